"""Many SMILES to stores in memory, chunk by chunk, in this process or in several."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any

import numpy as np

from molslice.data.packed import PackedMolecules
from molslice.data.prepare import featurize_chunk
from molslice.data.store import MoleculeStore
from molslice.types import MolsliceError

__all__ = ["SmilesReader"]

CHUNK_ROWS = 4096  # rows read and predicted at once: enough to batch by length, little enough for memory


class SmilesReader:
    """Turns chunks of SMILES into stores; at most `2 * workers + 1` chunks are under way at a time.

    Args:
        max_atoms: molecules with more atoms are refused.
        atom_order: `canonical` or `input`.
        workers: processes; 0 reads in this one.
    """

    def __init__(self, max_atoms: int, atom_order: str, workers: int = 0) -> None:
        if workers < 0:
            raise MolsliceError(f"workers must be 0 or more, got {workers}")
        self.max_atoms, self.atom_order, self.workers = max_atoms, atom_order, workers
        self.chunk_rows = CHUNK_ROWS
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "SmilesReader":
        if self.workers:
            # forking needs no guard around a user's script; the children touch nothing but rdkit and numpy
            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
            context = multiprocessing.get_context(method)
            self._pool = ProcessPoolExecutor(self.workers, context, _leave_interrupts_to_the_parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def read(self, chunks: Iterable[list[str]]) -> Iterator[MoleculeStore]:
        """One store for each chunk, in order; a row that cannot be read has no atoms and a reason.

        Raises:
            MolsliceError: a worker process died.
        """
        for packed in self._featurized(iter(chunks)):
            yield MoleculeStore.from_packed([packed])

    def _featurized(self, chunks: Iterator[list[str]]) -> Iterator[PackedMolecules]:
        if self._pool is None:
            yield from (featurize_chunk(*self._arguments(chunk)) for chunk in chunks)
            return
        under_way: deque[Future[PackedMolecules]] = deque()
        try:
            for chunk in chunks:
                under_way.append(self._pool.submit(featurize_chunk, *self._arguments(chunk)))
                if len(under_way) > 2 * self.workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool as error:
            raise MolsliceError("a process that reads SMILES died, perhaps for lack of memory") from error

    def _arguments(self, chunk: list[str]) -> tuple[Any, ...]:
        return chunk, np.empty((len(chunk), 0), np.float32), self.max_atoms, self.atom_order


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
