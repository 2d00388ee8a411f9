"""Convert a file of SMILES to a store of molecules, in parallel, and cache it."""

import contextlib
import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION, GEOMETRY_VERSION, check_choices
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import SCHEMA_VERSION
from molslice.data.molecules.tables import Structure
from molslice.files.cache import FAILING, failing_disk
from molslice.files.processes import WorkerPool, check_workers, count_cores
from molslice.files.progress import Progress
from molslice.files.tables import Unreadable
from molslice.types import MolsliceError

CHUNK_ROWS = 2_000
WORK = "reads molecules"  # what a worker process does
PARALLEL_ROWS = 20_000  # fewer rows take less time than starting worker processes
Chunks = Iterator[tuple[list[str], np.ndarray]]


@dataclass(frozen=True, slots=True)
class Featurizing:
    """How SMILES are converted to arrays.

    Attributes:
        max_atoms: Maximum number of atoms of a molecule.
        atom_order: `canonical`, or `input` for the atoms of the SMILES as OGB has them.
        workers: Number of processes; by default all cores for large data, one process for small data.
        descriptors: Whether to compute RDKit's descriptors too.
        fragment: What happens to a mixture; see `molslice.chem.fragments.choose_fragment`.
        wildcards: What happens to wildcards, R-groups and bonds of any order: `refuse` or `keep`.
        geometry: Whether to compute the coordinates of the atoms too.
    """

    max_atoms: int = 256
    atom_order: str = "canonical"
    workers: int | None = None
    descriptors: bool = False
    fragment: str = "keep"
    wildcards: str = "refuse"
    geometry: bool = False

    @property
    def arrays(self) -> dict[str, Any]:
        """The options of `molslice.chem.featurize`."""
        return {"max_atoms": self.max_atoms, "atom_order": self.atom_order}

    @property
    def num_descriptors(self) -> int:
        """Number of descriptors of each row; 0 without descriptors."""
        return count_descriptors() if self.descriptors else 0

    @property
    def optional(self) -> dict[str, Any]:
        """The arguments of `MoleculeStore.write` that name the optional arrays."""
        return {"num_descriptors": self.num_descriptors, "geometry": self.geometry}


def prepare_store(
    chunks: Callable[[], Chunks],
    how: Featurizing,
    places: Sequence[Path],
    *,
    source: str,
    rows: int,
    target_names: Sequence[str],
    target_units: Sequence[str],
    identity: Mapping[str, Any],
) -> MoleculeStore:
    """Load the store of some rows from a folder, or build it there.

    If no folder is writable, the store stays in memory.

    Args:
        chunks: Starts reading, and yields SMILES [n] and targets, float32 [n, T], a few thousand rows at a
            time.
        how: How to convert them.
        places: The folders to try, in order.
        source: The file or folder of the rows, for messages.
        rows: Number of rows, for the progress bar and the default number of processes.
        target_names: Names of the targets.
        target_units: Unit of each target.
        identity: JSON values on which the store depends besides the featurizing, such as file checksums and
            column names.

    Raises:
        MolsliceError: The source is invalid, the store is damaged, or the disk is full or broken.
    """
    check_workers(how.workers)
    targets = [*zip(target_names, target_units, strict=True)]
    stem = f"molecules-{_key({**identity, 'targets': targets}, how)}"
    kept = _find(stem, places)
    if kept is not None:
        return _open(kept)
    check_featurizing(how)
    names = {"target_names": list(target_names), "target_units": list(target_units), "source": source}
    for place in places:
        path = place / f"{stem}-{_rdkit_version()}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            if not os.access(place, os.W_OK):  # before the molecules are read
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
            parts = _featurized(chunks(), rows, how)
            return MoleculeStore.write(path, parts, **names, **how.optional)
        except OSError as error:
            if error.errno == errno.EEXIST and path.is_dir():  # another process was faster
                return _open(path)
            if error.errno in FAILING:
                raise MolsliceError(failing_disk(error)) from error
    store = MoleculeStore.join(list(_featurized(chunks(), rows, how))).contiguous()
    return MoleculeStore(store.present, {**store.header, **names})


def _open(path: Path) -> MoleculeStore:
    try:
        return MoleculeStore.open(path)
    except MolsliceError as error:
        raise MolsliceError(f"{error}; delete the folder") from error


def check_featurizing(how: Featurizing) -> None:
    """Refuse invalid options of the conversion. Needs rdkit."""
    from molslice.chem.featurize import check_options

    check_workers(how.workers)
    check_choices(fragment=how.fragment, wildcards=how.wildcards)
    check_options(how.max_atoms, how.atom_order)
    if how.geometry and how.atom_order != "canonical":
        raise MolsliceError(f"geometry needs atom_order canonical, got {how.atom_order}")


def count_descriptors() -> int:
    """Return the number of descriptors of a molecule."""
    from molslice.chem.descriptors import descriptor_names  # needs rdkit

    return len(descriptor_names())


def featurize_chunk(smiles: Sequence[str], targets: np.ndarray, how: Featurizing) -> MoleculeStore:
    """Convert SMILES to a store in memory; its header has the number of mixtures that were `replaced`.

    Args:
        smiles: SMILES [n]; a `Structure` is converted first, and an `Unreadable` has its own reason.
        targets: float32 or float64 [n, T]; the result has them unchanged.
        how: How to convert them; the number of workers is unused.
    """
    texts = [text.to_smiles() if isinstance(text, Structure) else text for text in smiles]
    chosen = choose_fragments(texts, how.fragment, how.wildcards)
    store = read_smiles(chosen.smiles, how)
    store.targets, store.header["replaced"] = (
        targets,
        chosen.replaced,
    )  # not rounded, for `Tally`
    return store


def read_smiles(smiles: Sequence[str], how: Featurizing) -> MoleculeStore:
    """Convert SMILES as they are to a store in memory without targets; see `featurize_chunk`."""
    from molslice.chem.featurize import many_molecule_arrays  # needs rdkit

    molecules = many_molecule_arrays(smiles, **how.arrays)
    reasons = {
        row: text.reason if isinstance(text := smiles[row], Unreadable) else reason
        for row, reason in molecules.errors.items()
    }
    descriptors = positions = None
    rows = np.flatnonzero(molecules.atom_counts).tolist()
    if how.descriptors:
        from molslice.chem.descriptors import finite_descriptors

        descriptors = np.full((len(smiles), how.num_descriptors), np.nan, np.float32)
        for row in rows:
            descriptors[row] = finite_descriptors(smiles[row])
    if how.geometry:
        from molslice.chem.conformers import coordinates

        embedded = [coordinates(smiles[row], int(molecules.atom_counts[row])) for row in rows]
        positions = np.concatenate([np.empty((0, 3), np.float16), *embedded])
    return MoleculeStore.in_memory(
        molecules._replace(errors=reasons), descriptors=descriptors, coordinates=positions
    )


def _key(identity: Mapping[str, Any], how: Featurizing) -> str:
    identity = {
        **identity,
        "featurizer": FEATURIZER_VERSION,
        "schema": SCHEMA_VERSION,
        "atom_order": how.atom_order,
        "max_atoms": how.max_atoms,
    }
    if how.fragment != "keep":
        identity["fragment"] = how.fragment
    if how.wildcards != "refuse":
        identity["wildcards"] = how.wildcards
    if how.descriptors:
        identity["descriptors"] = DESCRIPTORS_VERSION
    if how.geometry:
        identity["geometry"] = GEOMETRY_VERSION
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def _rdkit_version() -> str:
    return f"rdkit{importlib.metadata.version('rdkit')}"


def _find(stem: str, places: Sequence[Path]) -> Path | None:
    """Find a prepared store of the installed RDKit version, because the canonical order may differ.

    Without rdkit, a store of any version is used.
    """
    version = _rdkit_version() if importlib.util.find_spec("rdkit") else "*"
    for place in places:
        with contextlib.suppress(OSError):
            for folder in sorted(place.glob(f"{stem}-{version}")):
                return folder
    return None


def _featurized(chunks: Chunks, rows: int, how: Featurizing) -> Iterator[MoleculeStore]:
    """Convert chunks in order, a few at a time to bound memory."""
    workers = number_of_workers(how.workers, is_small=rows < PARALLEL_ROWS)
    with Progress("preparing molecules", rows, "molecules") as bar, WorkerPool(workers, WORK) as pool:
        for store in pool.map(featurize_chunk, ((smiles, targets, how) for smiles, targets in chunks)):
            yield store
            bar.update(len(store))


def number_of_workers(workers: int | None, *, is_small: bool) -> int:
    """Return the number of worker processes; 0 instead of 1, because a single worker saves no time.

    By default small data are read in this process, and others with all cores.
    """
    if workers is None:
        workers = 1 if is_small else count_cores()
    return workers if workers > 1 else 0
