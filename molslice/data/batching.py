"""From rows of a store to padded batches, and which rows share a batch."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from molslice.data.packed import ATOM_COLUMNS
from molslice.data.store import MoleculeStore
from molslice.types import MoleculeBatch, MolsliceError

POOL_BATCHES = 64  # batches' worth of rows among which lengths are sorted


def collate(
    store: MoleculeStore,
    rows: np.ndarray | Sequence[int],
    *,
    pad_to: int | None = None,
    atom_permutation: int | None = None,
) -> MoleculeBatch:
    """The molecules of `rows` as one padded batch, in the order of `rows`; padding is zero.

    Args:
        store: where the molecules are.
        rows: rows of the store; none of them failed.
        pad_to: number of atoms A; by default that of the largest molecule.
        atom_permutation: a seed; renumbers the atoms of each molecule at random, by a permutation that
            depends on the seed and the row alone. Features stay as they are, chirality tags among them.

    Raises:
        MolsliceError: no rows, a row that is not there or that has no molecule, or `pad_to` too small.
    """
    rows = _checked_rows(store, rows)
    num_atoms = store.num_atoms[rows]
    width = _checked_width(num_atoms, rows, pad_to)
    molecule, position, source = _spread(store.atom_offsets[rows], num_atoms)
    first = num_atoms.cumsum() - num_atoms  # where each molecule's atoms begin in the flat arrays
    slots = position if atom_permutation is None else _permuted(molecule, position, rows, atom_permutation)

    atoms = np.zeros((len(rows) * width, ATOM_COLUMNS), np.uint8)
    atoms[molecule * width + slots] = store.atoms[source]
    mask = np.arange(width) < num_atoms[:, None]

    num_bonds = store.bond_offsets[rows + 1] - store.bond_offsets[rows]
    bond_molecule, _, bond_source = _spread(store.bond_offsets[rows], num_bonds)
    bonds = store.bonds[bond_source]
    ends = bonds[:, :2].astype(np.int64)
    if atom_permutation is not None:
        ends = slots[first[bond_molecule, None] + ends]
    return MoleculeBatch(
        atoms=torch.from_numpy(atoms.reshape(len(rows), width, ATOM_COLUMNS)),
        atom_mask=torch.from_numpy(mask),
        bond_index=torch.from_numpy(np.column_stack((bond_molecule, ends))),
        bond_features=torch.from_numpy(np.ascontiguousarray(bonds[:, 2:])),
        targets=torch.from_numpy(np.asarray(store.targets[rows])) if store.target_names else None,
        rows=torch.from_numpy(rows),
    )


def _checked_rows(store: MoleculeStore, rows: np.ndarray | Sequence[int]) -> np.ndarray:
    rows = np.array(rows, dtype=np.int64)  # a copy: the batch keeps it
    if rows.ndim != 1 or not len(rows):
        raise MolsliceError(f"a batch takes a list of at least one row, got shape {list(rows.shape)}")
    if rows.min() < 0 or rows.max() >= len(store):
        raise MolsliceError(f"rows {rows.min()} to {rows.max()} of a store of {len(store)} rows")
    return rows


def _checked_width(num_atoms: np.ndarray, rows: np.ndarray, pad_to: int | None) -> int:
    if not num_atoms.all():
        failed = rows[num_atoms == 0][:5].tolist()
        raise MolsliceError(f"rows without a molecule cannot be batched: {failed}")
    largest = int(num_atoms.max())
    if pad_to is not None and pad_to < largest:
        raise MolsliceError(f"pad_to={pad_to} is less than the {largest} atoms of the largest molecule")
    return largest if pad_to is None else pad_to


def _spread(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For items of molecules end to end: molecule, position within it, and place in the store."""
    molecule = np.repeat(np.arange(len(counts)), counts)
    ends = counts.cumsum()
    position = np.arange(ends[-1]) - (ends - counts)[molecule]
    return molecule, position, starts[molecule] + position


def _permuted(molecule: np.ndarray, position: np.ndarray, rows: np.ndarray, seed: int) -> np.ndarray:
    """A new position for every atom: those of a molecule ranked by a hash of (seed, row, position)."""
    with np.errstate(over="ignore"):
        key = _mixed(np.full(1, seed % 2**64, np.uint64))
        key = _mixed(key ^ rows.astype(np.uint64))[molecule]
        key = _mixed(key ^ position.astype(np.uint64))
    slots = np.empty_like(position)
    slots[np.lexsort((key, molecule))] = position  # the molecules keep their places, their atoms change
    return slots


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one step from `values`, uint64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def ordered_batches(
    num_tokens: np.ndarray, *, token_budget: int, batch_size: int, parts: int = 1
) -> list[np.ndarray]:
    """Rows 0, 1, ... for a prediction: short ones first, in batches of a `parts`-th of the bounds.

    With the `parts` of an accumulating training a prediction takes no more memory than its steps do. A
    batch holds a row at least.

    Raises:
        MolsliceError: a row without tokens.
    """
    if not len(num_tokens):
        return []
    return TokenBudgetBatches(
        num_tokens,
        np.arange(len(num_tokens)),
        token_budget=max(token_budget // parts, int(num_tokens.max())),
        batch_size=max(batch_size // parts, 1),
        shuffle=False,
        seed=0,
    ).epoch(0)


class TokenBudgetBatches:
    """Batches of rows of like length whose padded tokens stay within a budget.

    A batch of b rows, the longest of n tokens, has b n padded tokens.
    `epoch(e)` is a function of the arguments and e alone, so that a run which was killed finds the same
    batches.

    Args:
        num_tokens: int [rows of the data set], tokens of every row, zero where it could not be read.
        rows: the rows to batch, each of which comes exactly once an epoch.
        token_budget: padded tokens a batch at most.
        batch_size: rows a batch at most.
        shuffle: draw pools of rows at random, sort within the pools, shuffle the batches; without it all rows
            are sorted by length and the batches go from short ones to long ones.
        seed: of the shuffling.
        min_rows: rows a batch at least, for callers that deal a batch out to several devices.

    Raises:
        MolsliceError: a row that could not be read, a budget too small for the longest one, or fewer rows
            than `min_rows`.
    """

    def __init__(
        self,
        num_tokens: np.ndarray,
        rows: np.ndarray | Sequence[int],
        *,
        token_budget: int,
        batch_size: int,
        shuffle: bool,
        seed: int,
        min_rows: int = 1,
    ) -> None:
        self.rows = np.array(rows, dtype=np.int64)
        self.tokens = np.asarray(num_tokens)[self.rows].astype(np.int64)
        self.token_budget, self.batch_size = token_budget, batch_size
        self.shuffle, self.seed, self.min_rows = shuffle, seed, min_rows
        self._check()

    def _check(self) -> None:
        least = self.min_rows
        if least < 1 or self.batch_size < 1:
            raise MolsliceError(
                f"rows a batch must be positive, got at least {least}, at most {self.batch_size}"
            )
        if len(self.rows) < least:
            raise MolsliceError(f"{len(self.rows)} rows do not fill a batch of at least {least}")
        if (self.tokens < 1).any():
            failed = self.rows[self.tokens < 1][:5].tolist()
            raise MolsliceError(f"rows that could not be read cannot be batched: {failed}")
        # a full batch has twice the least, so that it can lend a last batch what that one lacks
        needed = 1 if least == 1 else 2 * least
        if self.batch_size < needed:
            raise MolsliceError(f"batch_size={self.batch_size} must be at least {needed}")
        row, tokens = self.rows[self.tokens.argmax()], self.tokens.max()
        if tokens * needed > self.token_budget:
            raise MolsliceError(
                f"token_budget={self.token_budget} must be at least {tokens * needed}: row {row} takes "
                f"{tokens} tokens and a batch must have room for {needed} such"
            )

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch, each an int64 array of rows."""
        if not self.shuffle:
            return [self.rows[batch] for batch in self._cut(np.argsort(self.tokens, kind="stable"))]
        generator = np.random.default_rng([self.seed, epoch])
        batches: list[np.ndarray] = []
        for pool in self._pools(generator.permutation(len(self.rows))):
            batches += self._cut(pool[np.argsort(self.tokens[pool], kind="stable")])
        return [self.rows[batches[i]] for i in generator.permutation(len(batches))]

    def _pools(self, order: np.ndarray) -> Iterator[np.ndarray]:
        typical = min(self.batch_size, max(1, int(self.token_budget / self.tokens.mean())))
        size = POOL_BATCHES * typical
        # the last pool takes the rest, so that none is too small for `min_rows`
        bounds = [*range(0, max(1, len(order) // size) * size, size), len(order)]
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            yield order[start:stop]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Consecutive batches of rows sorted by size, as large as the limits let them."""
        tokens, batches, start = self.tokens[order], [], 0
        while start < len(order):
            sizes = tokens[start : start + self.batch_size]
            padded = sizes * np.arange(1, len(sizes) + 1)  # grows, as the sizes are sorted
            count = int(np.searchsorted(padded, self.token_budget, side="right"))
            batches.append(order[start : start + count])
            start += count
        lacking = self.min_rows - len(batches[-1])
        if lacking > 0 and len(batches) > 1:  # the rows before are shorter: the budget holds
            batches[-1] = np.concatenate((batches[-2][-lacking:], batches[-1]))
            batches[-2] = batches[-2][:-lacking]
        return batches
