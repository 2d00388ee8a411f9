"""Molecules to measure with: a store, a file of SMILES, or the data of a configuration."""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from molslice.config.settings import DataConfig
from molslice.data import MoleculeDataset, build_dataset
from molslice.data.molecules.input_files import find_files, name_of
from molslice.data.molecules.prepare import CHUNK_ROWS, Featurizing, featurize_chunk
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import LAYOUT
from molslice.data.molecules.tables import open_molecules
from molslice.files.cache import array_checksum
from molslice.files.processes import WorkerPool
from molslice.types import MolsliceError

MAX_ROWS = 100_000  # of a file
EMBEDDED = DataConfig("pcqm4m", {"root": "data/gap_xtb"})


@dataclass(frozen=True, slots=True)
class Molecules:
    """Where the molecules of a measurement come from.

    Attributes:
        store: Folder of a prepared store; None for another source.
        files: Tables with a column of SMILES; empty for another source.
        data: Data set to use if neither a store nor files are given.
    """

    store: Path | None = None
    files: Sequence[Path] = ()
    data: DataConfig = EMBEDDED

    def smiles(self) -> tuple[str, list[str]]:
        """Read the first SMILES, at most `MAX_ROWS`.

        Returns:
            The name of the source, and the SMILES; empty for a store.

        Raises:
            MolsliceError: A file cannot be read, or the data are not molecules.
        """
        if self.store is not None:
            return str(self.store), []
        if not self.files:
            dataset = _dataset(self.data)
            return dataset.source, dataset.smiles()[:MAX_ROWS]
        files, smiles = find_files(self.files), []
        with open_molecules(files) as table:
            for chunk in table.chunks(CHUNK_ROWS, [table.smiles_column]):
                smiles += chunk[table.smiles_column]
                if len(smiles) > MAX_ROWS:
                    return f"the first {MAX_ROWS:,} rows of {name_of(files)}", smiles[:MAX_ROWS]
        return name_of(files), smiles


class StoredMolecules(MoleculeDataset):
    """All readable rows of a store as training rows, whatever else the store holds.

    Targets that have no value are left out. If none remains, the target is the number of atoms. Descriptors
    and targets of atoms are left out; coordinates are kept, whose distances a training learns too.

    Args:
        store: The store.

    Raises:
        MolsliceError: The store has no molecule.
    """

    def __init__(self, store: MoleculeStore) -> None:
        self.kind, self.source = "regression", str(store.path or store.header["source"])
        if not store.num_atoms.any():
            raise MolsliceError(f"{self.source} has no molecules to measure with")
        arrays = {name: getattr(store, name) for name in LAYOUT}
        if store.coordinates is not None:
            arrays["coordinates"] = store.coordinates
        known = np.flatnonzero(np.isfinite(store.targets).any(axis=0))
        names = [store.target_names[place] for place in known]
        if not names:
            names, arrays["targets"] = ["atoms"], store.num_atoms.astype(np.float32)[:, None]
        elif len(known) < len(store.target_names):
            arrays["targets"] = store.targets[:, known]
        header = {**store.header, "target_names": names, "target_units": [""] * len(names)}
        self.store = MoleculeStore(arrays, header)
        self.target_names, self.target_units = tuple(names), ("",) * len(names)
        self.splits = {"train": np.arange(len(store))}

    def smiles(self) -> list[str]:
        """Refuse, because a store has no SMILES.

        Raises:
            MolsliceError: Always.
        """
        raise MolsliceError(f"{self.source} is a store, which has no SMILES")


@contextmanager
def open_store(source: Molecules, workers: int = 0) -> Iterator[MoleculeStore]:
    """Yield a store in a folder with the molecules. A temporary store is removed at the end.

    Args:
        source: Where the molecules come from.
        workers: Processes that convert files.

    Raises:
        MolsliceError: The source cannot be read, or is not one of molecules.
    """
    with tempfile.TemporaryDirectory(prefix="molslice-bench-") as folder:
        temporary, path = Path(folder) / "store", source.store
        if source.files:
            name, smiles = source.smiles()
            MoleculeStore.write(temporary, featurize(smiles, workers), source=name)
        elif path is None:
            store = _dataset(source.data).store
            path = store.path
            if path is None:
                _write(store, temporary)
        yield MoleculeStore.open(path or temporary, verify=False)


def describe_store(store: MoleculeStore) -> dict[str, Any]:
    """Return what measurements depend on: the source, the number of molecules, a checksum of sizes."""
    sizes = np.asarray(store.num_atoms)
    return {
        "source": store.header["source"],
        "molecules": int((sizes > 0).sum()),
        "sizes": array_checksum(sizes)[:16],
    }


def featurize(smiles: Sequence[str], workers: int = 0, *, endless: bool = False) -> Iterator[MoleculeStore]:
    """Convert SMILES to stores in memory in chunks, as `molslice prepare` does.

    Args:
        smiles: The SMILES.
        workers: Number of processes; 0 converts in this process.
        endless: Whether to start again after the last one.
    """
    chunks = (smiles[start : start + CHUNK_ROWS] for start in range(0, len(smiles), CHUNK_ROWS))
    arguments = (
        (chunk, np.zeros((len(chunk), 0), np.float32), Featurizing())
        for chunk in (itertools.cycle(chunks) if endless else chunks)
    )
    with WorkerPool(workers, "convert molecules") as pool:
        yield from pool.map(featurize_chunk, arguments)


def _dataset(data: DataConfig) -> MoleculeDataset:
    try:
        dataset = build_dataset(data.name, dict(data.options))
    except MolsliceError as error:
        if data == EMBEDDED:
            raise MolsliceError(f"{error}. Give molecules with --store or --input") from error
        raise
    if not isinstance(dataset, MoleculeDataset):
        raise MolsliceError(f"data.name {data.name} has no molecules, which this measurement needs")
    return dataset


def _write(store: MoleculeStore, path: Path) -> None:
    MoleculeStore.write(
        path,
        [store],
        target_names=store.target_names,
        target_units=store.target_units,
        source=store.header["source"],
        geometry=store.coordinates is not None,
    )
