"""Write a store of molecules as a table, with SMILES rebuilt from its arrays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from molslice.data.molecules.store import MoleculeStore
from molslice.files.processes import WorkerPool
from molslice.files.progress import Progress
from molslice.files.urls import File
from molslice.inference.columns import ERROR, SMILES, distinct_columns
from molslice.inference.predictions import TableRows
from molslice.inference.tables.sinks import TABLES, open_sink
from molslice.inference.tables.table import check_target
from molslice.types import MoleculeArrays

CHUNK_ROWS = 2_000  # about two seconds of one core


@dataclass(slots=True)
class StoreTableReport:
    """The outcome of writing a store as a table.

    Attributes:
        columns: The names of the columns of targets.
        rows: Number of rows.
        failed: Number of rows without a molecule.
        differing: Number of molecules whose SMILES does not give their arrays again.
        first_difference: Row and reason of the first of them.
    """

    columns: tuple[str, ...]
    rows: int = 0
    failed: int = 0
    differing: int = 0
    first_difference: str = ""


def write_store_table(
    store: MoleculeStore, target: File, *, workers: int = 0, progress: bool = True
) -> StoreTableReport:
    """Write the rows of a store with their SMILES, targets, and reasons.

    The column `error` has the reason of a row without a molecule, or what the SMILES of a row does not
    reproduce of its arrays; see `molslice.chem.rebuild`. It is `error_of_molecule` beside a target `error`.
    Targets of atoms, groups, descriptors and coordinates are not written.

    Args:
        store: The store.
        target: The file to write, with one of the endings `TABLES`; `-` is CSV on standard output.
        workers: Number of worker processes; 0 works in this process.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The file name is invalid.
        OSError: The file cannot be written. No partial file is left.
    """
    check_target(target, TABLES)
    columns = distinct_columns(store.target_names, taken=())
    smiles_column, error_column = (_free(name, columns) for name in (SMILES, ERROR))
    report = StoreTableReport(tuple(columns))
    with (
        open_sink(target, [smiles_column], columns, [], error_column) as sink,
        WorkerPool(workers, "rebuilds SMILES") as pool,
        Progress("writing", len(store), "molecules", shown=progress) as bar,
    ):
        start = 0
        for rebuilt in pool.map(_rebuilt, _chunks(store)):
            cells, errors = [], []
            for row, (smiles, lost) in enumerate(rebuilt, start=start):
                reason = store.errors.get(row)
                cells.append([smiles])
                errors.append(reason if reason is not None else lost)
                report.failed += reason is not None
                if reason is None and lost is not None:
                    report.differing += 1
                    report.first_difference = report.first_difference or f"row {row}: {lost}"
            values = np.asarray(store.targets[start : start + len(rebuilt)], np.float32)
            sink(cells, TableRows(values, errors))
            start += len(rebuilt)
            bar.update(len(rebuilt))
    report.rows = start
    return report


def _free(name: str, targets: Sequence[str]) -> str:
    """Return a column name that no target has."""
    while name in targets:
        name += "_of_molecule"
    return name


def _chunks(store: MoleculeStore) -> Iterator[tuple[list[MoleculeArrays]]]:
    for start in range(0, len(store), CHUNK_ROWS):
        yield ([store.arrays(row) for row in range(start, min(start + CHUNK_ROWS, len(store)))],)


def _rebuilt(molecules: Sequence[MoleculeArrays]) -> list[tuple[str, str | None]]:
    """Return the SMILES of each molecule and what it does not reproduce; both empty without atoms."""
    from molslice.chem.rebuild import ChemError, rebuild  # needs rdkit

    lines: list[tuple[str, str | None]] = []
    for molecule in molecules:
        if not len(molecule.atoms):
            lines.append(("", None))
            continue
        try:
            rebuilt = rebuild(molecule)
            lines.append((rebuilt.smiles, rebuilt.lost))
        except ChemError as error:
            lines.append(("", str(error)))
    return lines
