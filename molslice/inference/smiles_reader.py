"""Convert many SMILES to stores in memory, chunk by chunk, in this process or in several."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from molslice.data.molecules.prepare import Featurizing, read_smiles
from molslice.data.molecules.store import MoleculeStore
from molslice.files.processes import WorkerPool, count_cores

CHUNK_ROWS = 4096  # rows at once: enough for batches of similar length, few enough for memory
PARALLEL_ROWS = 25_000  # fewer take less than a minute on a CPU
DEVICE_PARALLEL_ROWS = 10_000  # one process reads fewer while others start


def default_workers(device: torch.device, rows: int) -> int:
    """Return the number of worker processes for an input: all cores if it is large, and 0 otherwise.

    A device waits for one process that reads SMILES, so there fewer rows are many.
    """
    return count_cores() if rows >= (PARALLEL_ROWS if device.type == "cpu" else DEVICE_PARALLEL_ROWS) else 0


def read_molecules(smiles: Sequence[str], workers: int = 0) -> MoleculeStore:
    """Read SMILES into one store in memory, with atoms in canonical order.

    A row that cannot be read has no atoms and a reason.

    Raises:
        MolsliceError: A worker process was killed.
    """
    from molslice.chem.smiles import HARD_MAX_ATOMS  # needs rdkit

    chunks = (list(smiles[start : start + CHUNK_ROWS]) for start in range(0, len(smiles), CHUNK_ROWS))
    with SmilesReader(HARD_MAX_ATOMS, "canonical", workers) as reader:
        stores = list(reader.read(chunks))
    return MoleculeStore.join(stores).contiguous()


class SmilesReader(WorkerPool):
    """Converts chunks of SMILES to stores, with few chunks in memory.

    Args:
        max_atoms: Maximum number of atoms; the row of a larger molecule is unreadable.
        atom_order: `canonical` or `input`.
        workers: Number of worker processes; 0 reads in this process.
        with_descriptors: Whether to compute RDKit's descriptors too.
    """

    def __init__(
        self, max_atoms: int, atom_order: str, workers: int = 0, *, with_descriptors: bool = False
    ) -> None:
        super().__init__(workers, "reads SMILES")
        self.max_atoms, self.atom_order, self.with_descriptors = max_atoms, atom_order, with_descriptors

    def read(self, chunks: Iterable[list[str]]) -> Iterator[MoleculeStore]:
        """Yield one store for each chunk, in order. An unreadable row has no atoms and a reason.

        Raises:
            MolsliceError: A worker process was killed.
        """
        how = Featurizing(self.max_atoms, self.atom_order, descriptors=self.with_descriptors)
        yield from self.map(read_smiles, ((chunk, how) for chunk in chunks))
