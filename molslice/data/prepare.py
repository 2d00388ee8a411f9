"""A file of SMILES becomes a store of molecules: once, in parallel, and kept for the next time."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import molslice
from molslice.chem import FEATURIZER_VERSION
from molslice.data.packed import PackedMolecules
from molslice.data.store import MoleculeStore
from molslice.data.store_writer import FAILING, SCHEMA_VERSION, failing_disk
from molslice.types import MolsliceError

CHUNK_ROWS = 2_000
PARALLEL_ROWS = 20_000  # fewer rows are done before worker processes are up
Chunks = Iterator[tuple[list[str], np.ndarray]]


@dataclass(frozen=True, slots=True)
class Featurizing:
    """How SMILES become arrays.

    `workers` counts processes; None takes all cores for a large set and this process for a small one.
    """

    max_atoms: int = 256
    atom_order: str = "canonical"
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """What a store is made of.

    `chunks` begins to read: it yields SMILES and their targets, float32 [n, T], a few thousand rows at a
    time. `identity` is what the store depends on besides the featurizing: checksums of files, names of
    columns.
    """

    name: str
    chunks: Callable[[], Chunks]
    rows: int
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    identity: Mapping[str, Any]


def prepare_store(source: Source, how: Featurizing, places: Sequence[Path]) -> MoleculeStore:
    """The store of `source`: found in one of `places`, or made there, or in memory where none can be written.

    Raises:
        MolsliceError: the source is at fault, a store that stands there is damaged, or the disk is full.
    """
    stem = f"molecules-{_key(source, how)}"
    found = _find(stem, places)
    if found is not None:
        return MoleculeStore.open(found)
    _check(how)
    for place in places:
        path = place / f"{stem}-{_rdkit_version()}"
        try:
            return _write(path, source, how)
        except OSError as error:
            if isinstance(error, FileExistsError) and path.is_dir():  # another process was quicker
                return MoleculeStore.open(path)
            if error.errno in FAILING:
                raise MolsliceError(failing_disk(error)) from error
    return MoleculeStore.from_packed(
        _featurized(source, how),
        target_names=source.target_names,
        target_units=source.target_units,
        source=source.name,
    )


def cache_folders(cache_dir: str | os.PathLike[str] | None, beside: Path | None = None) -> list[Path]:
    """Where prepared stores may stand: the folder asked for, else `beside`, then the user's cache."""
    if cache_dir is not None:
        return [Path(cache_dir)]
    folders = [] if beside is None else [beside]
    asked = os.environ.get("MOLSLICE_CACHE")
    if asked:
        return [*folders, Path(asked)]
    # an account may have no home
    with contextlib.suppress(RuntimeError):
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folders.append(Path(base) / "molslice")
    return folders


def file_checksum(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
        MolsliceError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except OSError as error:
        raise MolsliceError(f"{path} cannot be read: {error.strerror}") from error


def featurize_chunk(
    smiles: Sequence[str], targets: np.ndarray, max_atoms: int, atom_order: str
) -> PackedMolecules:
    """The packed molecules of some SMILES, with the reasons of those that failed.

    `targets` are float32 [len(smiles), T].
    """
    from molslice.chem.featurize import ChemError, molecule_arrays  # rdkit is needed from here on only

    molecules = []
    for text in smiles:
        try:
            molecules.append(molecule_arrays(text, max_atoms=max_atoms, atom_order=atom_order))  # type: ignore
        except ChemError as error:
            molecules.append(str(error))
    return PackedMolecules.pack(molecules, targets, targets.shape[1])


def _key(source: Source, how: Featurizing) -> str:
    identity = {
        **source.identity,
        "targets": [*zip(source.target_names, source.target_units, strict=True)],
        "featurizer": FEATURIZER_VERSION,
        "schema": SCHEMA_VERSION,
        "atom_order": how.atom_order,
        "max_atoms": how.max_atoms,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def _rdkit_version() -> str:
    return f"rdkit{importlib.metadata.version('rdkit')}"


def _find(stem: str, places: Sequence[Path]) -> Path | None:
    """A prepared store. RDKit's canonical order may change with its version; without rdkit any will do."""
    version = _rdkit_version() if importlib.util.find_spec("rdkit") else "*"
    for place in places:
        with contextlib.suppress(OSError):
            for folder in sorted(place.glob(f"{stem}-{version}")):
                return folder
    return None


def _check(how: Featurizing) -> None:
    from molslice.chem.featurize import check_options

    check_options(how.max_atoms, how.atom_order)
    if how.workers is not None and how.workers < 0:
        raise MolsliceError(f"workers must not be negative, got {how.workers}")


def _write(path: Path, source: Source, how: Featurizing) -> MoleculeStore:
    # a place that cannot be written must show before the molecules are read
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "not writable", str(path.parent))
    return MoleculeStore.write(
        path,
        _featurized(source, how),
        target_names=source.target_names,
        target_units=source.target_units,
        source=source.name,
        versions={
            "molslice": molslice.__version__,
            **{name: importlib.metadata.version(name) for name in ("numpy", "rdkit")},
        },
    )


def _featurized(source: Source, how: Featurizing) -> Iterator[PackedMolecules]:
    with tqdm(
        total=source.rows, desc="preparing molecules", unit=" molecules", file=sys.stderr, disable=None
    ) as bar:
        for part in _in_order(source.chunks(), how, _number_of_workers(how.workers, source.rows)):
            yield part
            bar.update(len(part.atom_counts))


def _number_of_workers(workers: int | None, rows: int) -> int:
    if workers is not None:
        return workers
    if rows < PARALLEL_ROWS:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(chunks: Chunks, how: Featurizing, workers: int) -> Iterator[PackedMolecules]:
    """Featurize chunks in their order; at most two chunks a worker are under way, which bounds memory."""
    if workers <= 1:
        for smiles, targets in chunks:
            yield featurize_chunk(smiles, targets, how.max_atoms, how.atom_order)
        return
    # forking needs no guard around a user's script; the children touch nothing but rdkit and numpy
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), _leave_interrupts_to_the_parent)
    under_way: deque[Future[PackedMolecules]] = deque()
    try:
        for smiles, targets in chunks:
            under_way.append(pool.submit(featurize_chunk, smiles, targets, how.max_atoms, how.atom_order))
            if len(under_way) >= 2 * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
