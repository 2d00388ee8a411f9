"""Convert SMILES to descriptors, counts, canonical SMILES, parents and their scaffolds, in parallel."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import numpy as np

from molslice.data.molecules.conditions import Conditioned, values_of
from molslice.files.processes import WorkerPool
from molslice.files.tables import Unreadable

SECOND = "second molecule"
CHUNK_ROWS = 512  # about two seconds of one core


@dataclass(frozen=True, slots=True)
class DescribedMolecules:
    """Fixed features of n rows.

    Attributes:
        descriptors: float64 [n, D], in the order of `descriptor_names`; NaN in rows that failed.
        counts: Morgan counts, uint8 [n, 2048]; zero in rows that failed.
        canonical: Canonical SMILES of each row; empty in rows that failed.
        parents: Parent of each row, equal for all forms of a compound; empty in rows that failed.
        scaffolds: Bemis-Murcko scaffold of each parent; empty without rings and in rows that failed.
        errors: Reason of each row that failed; None for the others.
        conditions: Conditions of each row, float64 [n, K], as in `Conditioned.values`; None without any.
        partners: The second molecule of each row; None without any.
        binaries: Each molecule in RDKit's binary form, for `canonical_arrays`; empty in rows that failed.
            None if the describer does not keep them.
    """

    descriptors: np.ndarray
    counts: np.ndarray
    canonical: list[str]
    parents: list[str]
    scaffolds: list[str]
    errors: list[str | None]
    conditions: np.ndarray | None = None
    partners: "DescribedMolecules | None" = None
    binaries: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.errors)

    def take(self, rows: np.ndarray) -> Self:
        """Return some rows, in the given order."""
        lists = (self.canonical, self.parents, self.scaffolds, self.errors)
        chosen: list[Any] = [[column[row] for row in rows] for column in lists]
        conditions = None if self.conditions is None else self.conditions[rows]
        partners = None if self.partners is None else self.partners.take(rows)
        arrays = self.descriptors[rows], self.counts[rows]
        binaries = None if self.binaries is None else [self.binaries[row] for row in rows]
        return type(self)(*arrays, *chosen, conditions=conditions, partners=partners, binaries=binaries)

    def in_order(self) -> Self:
        """Return the pairs, each with the molecule first whose canonical SMILES is first in the alphabet."""
        assert self.partners is not None
        pairs = zip(self.canonical, self.partners.canonical, strict=True)
        return self._with_swapped(np.array([second < first for first, second in pairs], bool))

    def fewer_partners_first(self) -> Self:
        """Return the pairs, each with the compound first that has fewer partners in all rows.

        Of two with equally many, the first is the one whose canonical SMILES is first in the alphabet.
        """
        assert self.partners is not None
        ordered = self.in_order()
        assert ordered.partners is not None
        return ordered._with_swapped(second_has_fewer_partners(ordered.parents, ordered.partners.parents))

    def _with_swapped(self, swapped: np.ndarray) -> Self:
        """Return the pairs, of which some change their order."""
        assert self.partners is not None
        both = type(self).concatenate([replace(self, partners=None), self.partners])
        rows, count = np.arange(len(self)), len(self)
        first, second = np.where(swapped, rows + count, rows), np.where(swapped, rows, rows + count)
        ordered = both.take(first)
        return replace(ordered, errors=self.errors, conditions=self.conditions, partners=both.take(second))

    @classmethod
    def concatenate(cls, parts: Sequence["DescribedMolecules"]) -> Self:
        """Join parts, with second molecules and without conditions; no parts give no rows."""
        from molslice.chem.descriptors import MORGAN_BITS, descriptor_names  # needs rdkit

        empty = np.empty((0, len(descriptor_names()))), np.empty((0, MORGAN_BITS), np.uint8)
        joined: list[Any] = [
            [cell for described in parts for cell in getattr(described, name)]
            for name in ("canonical", "parents", "scaffolds", "errors")
        ]
        paired = any(described.partners is not None for described in parts)
        # all rows of a part without second molecules have failed
        seconds = [described if described.partners is None else described.partners for described in parts]
        kept = [described.binaries for described in parts if described.binaries is not None]
        return cls(
            np.concatenate([empty[0], *(described.descriptors for described in parts)]),
            np.concatenate([empty[1], *(described.counts for described in parts)]),
            *joined,
            partners=cls.concatenate(seconds) if paired else None,
            binaries=[*chain.from_iterable(kept)] if parts and len(kept) == len(parts) else None,
        )


def second_has_fewer_partners(firsts: Sequence[str], seconds: Sequence[str]) -> np.ndarray:
    """Return whether the second of each pair has fewer partners in all pairs than the first, bool [n]."""
    known: dict[str, set[str]] = {}
    pairs = [*zip(firsts, seconds, strict=True)]
    for first, second in pairs:
        known.setdefault(first, set()).add(second)
        known.setdefault(second, set()).add(first)
    return np.array([len(known[second]) < len(known[first]) for first, second in pairs], bool)


class MoleculeDescriber(WorkerPool):
    """Describes chunks of SMILES, with few chunks in memory.

    Args:
        workers: Number of worker processes; 0 computes in this process.
        with_groups: Whether to compute parents and their scaffolds; otherwise they are empty.
        with_binaries: Whether to keep the molecules in RDKit's binary form.
    """

    def __init__(self, workers: int = 0, *, with_groups: bool = False, with_binaries: bool = False) -> None:
        super().__init__(workers, "computes descriptors")
        self.chunk_rows, self.with_groups, self.with_binaries = CHUNK_ROWS, with_groups, with_binaries

    def read(self, chunks: Iterable[list[str]]) -> Iterator[DescribedMolecules]:
        """Yield the descriptions of each chunk, in order.

        Raises:
            MolsliceError: A worker process was killed.
        """
        options = self.with_groups, self.with_binaries
        yield from self.map(_describe, ((chunk, *options) for chunk in chunks))


def describe_molecules(
    smiles: Sequence[str], *, workers: int = 0, progress: Callable[[int, int], None] = lambda done, rows: None
) -> DescribedMolecules:
    """Describe all SMILES, with parents and their scaffolds.

    `progress` is called with the number of described rows and of all rows.
    """
    parts: list[DescribedMolecules] = []
    done = 0
    with MoleculeDescriber(workers, with_groups=True) as describer:
        size = describer.chunk_rows
        chunks = (list(smiles[start : start + size]) for start in range(0, len(smiles), size))
        for described in describer.read(chunks):
            parts.append(described)
            done += len(described)
            progress(done, len(smiles))
    return DescribedMolecules.concatenate(parts)


def _describe(smiles: Sequence[str], with_groups: bool, with_binaries: bool) -> DescribedMolecules:
    """Describe rows with their conditions and second molecules; an equal text is described once."""
    places: dict[tuple[str, str | None], int] = {}
    keys = [(str(text), text.reason if isinstance(text, Unreadable) else None) for text in smiles]
    inverse = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
    different = [text if reason is None else Unreadable(reason) for text, reason in places]
    molecules = _describe_molecules(different, with_groups, with_binaries)
    described = replace(molecules.take(inverse), conditions=values_of(smiles))
    if not any(isinstance(text, Conditioned) and text.partner is not None for text in smiles):
        return described
    seconds = [getattr(text, "partner", None) or Unreadable(SECOND) for text in smiles]
    partners = _describe(seconds, with_groups, with_binaries)
    pairs = zip(described.errors, partners.errors, strict=True)
    reasons = [first or (f"{SECOND}: {second}" if second else None) for first, second in pairs]
    return replace(described, errors=reasons, partners=partners)


def _describe_molecules(smiles: Sequence[str], with_groups: bool, with_binaries: bool) -> DescribedMolecules:
    from molslice.chem.canonical import canonical_molecule  # all need rdkit
    from molslice.chem.descriptors import MORGAN_BITS, descriptor_names, descriptors, morgan_counts
    from molslice.chem.parent import parents
    from molslice.chem.scaffold import scaffolds
    from molslice.chem.smiles import ChemError, quiet_rdkit

    values = np.full((len(smiles), len(descriptor_names())), np.nan)
    counts = np.zeros((len(smiles), MORGAN_BITS), np.uint8)
    canonical, binaries = [""] * len(smiles), [b""] * len(smiles)
    errors = [text.reason if isinstance(text, Unreadable) else None for text in smiles]
    for row, text in enumerate(smiles):
        if errors[row] is not None:
            continue
        try:
            molecule = canonical_molecule(text)
            with quiet_rdkit():
                values[row], counts[row] = descriptors(molecule.mol), morgan_counts(molecule.mol)
                binaries[row] = molecule.mol.ToBinary(0) if with_binaries else b""
            canonical[row] = molecule.smiles or text
        except ChemError as error:
            errors[row] = str(error)
    compounds = parents(canonical) if with_groups else [""] * len(smiles)
    rings = scaffolds(compounds) if with_groups else compounds
    kept = binaries if with_binaries else None
    return DescribedMolecules(values, counts, canonical, compounds, rings, errors, binaries=kept)
