"""Batch rows within a budget of padded tokens.

Batches have any shape (`TokenBudgetBatches`), or one of a few (`FixedShapeBatches`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from molslice.types import MolsliceError

POOL_BATCHES = 64  # batches per pool; rows are sorted by length within a pool
MOST_SHAPES = 12  # of the batches of a data set
STEP_SHARE = 0.05  # time of an optimizer step without tokens, as a share of one with a full batch


class BatchShape(NamedTuple):
    """The padded shape of a batch.

    Attributes:
        width: Number of tokens that rows are padded to.
        rows: Number of rows, some of which may be empty.
    """

    width: int
    rows: int


def ordered_batches(
    num_tokens: np.ndarray, *, token_budget: int, batch_size: int, parts: int = 1
) -> list[np.ndarray]:
    """Batch all rows for a prediction, sorted by length.

    Args:
        num_tokens: Tokens of every row, int [rows].
        token_budget: Maximum number of padded tokens per batch; one row may exceed it.
        batch_size: Maximum number of rows per batch.
        parts: Divisor of both limits. With the number of gradient accumulation steps, a prediction needs no
            more memory than training.

    Returns:
        Row numbers of each batch, int64, at least one row per batch.
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
    """Batches of any shape whose padded tokens stay within a budget.

    A batch of b rows whose longest row has n tokens has b n padded tokens. `epoch(e)` depends only on the
    arguments and on e, so that a resumed run gets the same batches.

    Args:
        num_tokens: Tokens of every row of the data set, int [rows]; 0 for an unreadable row.
        rows: Row numbers to batch; each occurs exactly once per epoch.
        token_budget: Maximum number of padded tokens per batch.
        batch_size: Maximum number of rows per batch.
        shuffle: Whether to draw the rows at random. If False, all rows are sorted by length.
        mix_lengths: Whether a shuffled batch has rows of all lengths. If False, pools of rows are drawn, each
            pool is sorted by length, and the batches are shuffled, so that little is padding.
        seed: Seed of the shuffling.

    Raises:
        MolsliceError: There are no rows, a row is unreadable, or the budget is too small for the longest row.
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
        mix_lengths: bool = False,
    ) -> None:
        self.rows = np.array(rows, dtype=np.int64)
        self._all_tokens = np.asarray(num_tokens)
        self.tokens = self._all_tokens[self.rows].astype(np.int64)
        self.token_budget, self.batch_size = token_budget, batch_size
        self.shuffle, self.mix_lengths, self.seed = shuffle, mix_lengths, seed
        self._check()

    def _check(self) -> None:
        if self.batch_size < 1:
            raise MolsliceError(f"batch_size must be positive, got {self.batch_size}")
        if not len(self.rows):
            raise MolsliceError("no rows to batch")
        if (self.tokens < 1).any():
            failed = self.rows[self.tokens < 1][:5].tolist()
            raise MolsliceError(f"cannot batch rows that could not be read: {failed}")
        row, tokens = self.rows[self.tokens.argmax()], self.tokens.max()
        if tokens > self.token_budget:
            raise MolsliceError(
                f"training.token_budget is {self.token_budget}, but must be at least {tokens}, the tokens of "
                f"row {row + 1}"
            )

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch, each an int64 array of row numbers."""
        if not self.shuffle:
            return [self.rows[batch] for batch in self._cut(np.argsort(self.tokens, kind="stable"))]
        generator = np.random.default_rng([self.seed, epoch])
        if self.mix_lengths:
            return [self.rows[batch] for batch in self._cut(generator.permutation(len(self.rows)))]
        batches: list[np.ndarray] = []
        for pool in self._pools(generator.permutation(len(self.rows))):
            batches += self._cut(pool[np.argsort(self.tokens[pool], kind="stable")])
        return [self.rows[batches[i]] for i in generator.permutation(len(batches))]

    def shape_of(self, rows: np.ndarray) -> BatchShape:
        """Return the padded shape of a batch from its row numbers."""
        return BatchShape(int(self._all_tokens[rows].max()), len(rows))

    def _pools(self, order: np.ndarray) -> Iterator[np.ndarray]:
        typical = min(self.batch_size, max(1, int(self.token_budget / self.tokens.mean())))
        size = POOL_BATCHES * typical
        # the last pool includes the remainder, so that no pool is small
        bounds = [*range(0, max(1, len(order) // size) * size, size), len(order)]
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            yield order[start:stop]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Cut rows into consecutive batches, as large as the limits allow."""
        tokens, batches, start = self.tokens[order], [], 0
        while start < len(order):
            widths = np.maximum.accumulate(tokens[start : start + self.batch_size])
            padded = widths * np.arange(1, len(widths) + 1)
            count = int(np.searchsorted(padded, self.token_budget, side="right"))
            batches.append(order[start : start + count])
            start += count
        return batches


class FixedShapeBatches(TokenBudgetBatches):
    """Batches of a few shapes, for CUDA graphs.

    Lengths are divided into ranges, and a batch has rows of one range, padded to its longest. Rows of a range
    are divided evenly, so that at most one row of a batch is empty. The ranges are those with the fewest
    padded tokens, with `STEP_SHARE` of a batch as the cost of a step. `epoch(e)` depends only on the
    arguments and on e.

    Args:
        num_tokens: Tokens of every row of the data set, int [rows]; 0 for an unreadable row.
        rows: Row numbers to batch; each occurs exactly once per epoch.
        token_budget: Maximum number of padded tokens per batch.
        batch_size: Maximum number of rows per batch.
        seed: Seed of the shuffling.
    """

    def __init__(
        self,
        num_tokens: np.ndarray,
        rows: np.ndarray | Sequence[int],
        *,
        token_budget: int,
        batch_size: int,
        seed: int,
    ) -> None:
        super().__init__(
            num_tokens, rows, token_budget=token_budget, batch_size=batch_size, shuffle=True, seed=seed
        )
        self._widths = self._choose_widths()
        self._ranges = np.searchsorted(self._widths, self.tokens)
        counts = np.bincount(self._ranges, minlength=len(self._widths))
        divided = [
            self._divide(int(width), int(rows)) for width, rows in zip(self._widths, counts, strict=True)
        ]
        self._batches, self._sizes = zip(*divided, strict=True)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of an epoch, each an int64 array of row numbers without empty rows."""
        generator = np.random.default_rng([self.seed, epoch])
        order = generator.permutation(len(self.rows))
        order = order[np.argsort(self._ranges[order], kind="stable")]
        ends = np.cumsum(np.bincount(self._ranges))[:-1]
        batches = [
            batch
            for rows, number in zip(np.split(order, ends), self._batches, strict=True)
            for batch in np.array_split(rows, number)
        ]
        return [self.rows[batches[i]] for i in generator.permutation(len(batches))]

    def shape_of(self, rows: np.ndarray) -> BatchShape:
        """Return the padded shape of a batch; see `TokenBudgetBatches.shape_of`."""
        place = int(np.searchsorted(self._widths, self._all_tokens[rows].max()))
        return BatchShape(int(self._widths[place]), self._sizes[place])

    @property
    def shapes(self) -> list[BatchShape]:
        """The shapes of all batches."""
        return [BatchShape(int(width), size) for width, size in zip(self._widths, self._sizes, strict=True)]

    def _choose_widths(self) -> np.ndarray:
        """Divide the lengths into ranges by dynamic programming, and return their upper ends."""
        lengths, counts = np.unique(np.minimum(rounded(self.tokens), self.token_budget), return_counts=True)
        before = np.concatenate([[0], counts.cumsum()])
        typical = min(self.batch_size * self.tokens.mean(), self.token_budget)
        # for each number of ranges and the index after their lengths: the cost, and the start of the last one
        costs: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
        for _ in range(MOST_SHAPES):
            costs.append({})
            for end in range(1, len(lengths) + 1):
                for start, (cost, _) in costs[-2].items():
                    if start < end:
                        width = int(lengths[end - 1])
                        batches, size = self._divide(width, int(before[end] - before[start]))
                        total = cost + batches * (size * width + STEP_SHARE * typical)
                        if end not in costs[-1] or total < costs[-1][end][0]:
                            costs[-1][end] = total, start
        end, widths = len(lengths), []
        number = min((n for n in range(len(costs)) if end in costs[n]), key=lambda n: costs[n][end][0])
        for ranges in reversed(costs[1 : number + 1]):
            widths.append(int(lengths[end - 1]))
            end = ranges[end][1]
        return np.array(widths[::-1])

    def _divide(self, width: int, rows: int) -> tuple[int, int]:
        """Return the number of batches of the rows of a range, and the rows of a batch."""
        batches = -(-rows // min(self.batch_size, self.token_budget // width))
        return batches, -(-rows // batches)


def rounded(tokens: np.ndarray) -> np.ndarray:
    """Round lengths above 64 up to three further binary digits, so that few different ones remain."""
    step = 2 ** np.maximum(np.ceil(np.log2(np.maximum(tokens, 1))).astype(np.int64) - 4, 0)
    return np.where(tokens > 64, -(-tokens // step) * step, tokens)
