"""Batch rows of similar length within a budget of padded tokens."""

from collections.abc import Iterator, Sequence

import numpy as np

from molslice.types import MolsliceError

POOL_BATCHES = 64  # batches per pool; rows are sorted by length within a pool


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

    Raises:
        MolsliceError: A row has no tokens.
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
    """Batches of rows of similar length whose padded tokens stay within a budget.

    A batch of b rows whose longest row has n tokens has b n padded tokens. `epoch(e)` depends only on the
    arguments and on e, so that a resumed run gets the same batches.

    Args:
        num_tokens: Tokens of every row of the data set, int [rows]; 0 for an unreadable row.
        rows: Row numbers to batch; each occurs exactly once per epoch.
        token_budget: Maximum number of padded tokens per batch.
        batch_size: Maximum number of rows per batch.
        shuffle: Whether to draw pools of rows at random, sort each pool by length, and shuffle the batches.
            If False, all rows are sorted by length.
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
    ) -> None:
        self.rows = np.array(rows, dtype=np.int64)
        self.tokens = np.asarray(num_tokens)[self.rows].astype(np.int64)
        self.token_budget, self.batch_size = token_budget, batch_size
        self.shuffle, self.seed = shuffle, seed
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
        batches: list[np.ndarray] = []
        for pool in self._pools(generator.permutation(len(self.rows))):
            batches += self._cut(pool[np.argsort(self.tokens[pool], kind="stable")])
        return [self.rows[batches[i]] for i in generator.permutation(len(batches))]

    def _pools(self, order: np.ndarray) -> Iterator[np.ndarray]:
        typical = min(self.batch_size, max(1, int(self.token_budget / self.tokens.mean())))
        size = POOL_BATCHES * typical
        # the last pool includes the remainder, so that no pool is small
        bounds = [*range(0, max(1, len(order) // size) * size, size), len(order)]
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            yield order[start:stop]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Cut rows sorted by length into consecutive batches, as large as the limits allow."""
        tokens, batches, start = self.tokens[order], [], 0
        while start < len(order):
            sizes = tokens[start : start + self.batch_size]
            padded = sizes * np.arange(1, len(sizes) + 1)  # increasing, because the sizes are sorted
            count = int(np.searchsorted(padded, self.token_budget, side="right"))
            batches.append(order[start : start + count])
            start += count
        return batches
