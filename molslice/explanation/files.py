"""Explain many molecules to a folder of pictures."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.data.molecules.tables import open_molecules
from molslice.explanation.explain import Explainer
from molslice.explanation.result import AttentionView, Contributions
from molslice.files.atomic import atomic_folder
from molslice.files.progress import Progress
from molslice.files.urls import File
from molslice.inference.json_text import to_json
from molslice.types import MolsliceError

__all__ = ["EXPLANATIONS", "FolderReport", "explain_files", "explain_to_folder"]

EXPLANATIONS = "explanations.jsonl"
CHUNK_ROWS = 1_000


@dataclass(slots=True)
class FolderReport:
    """The outcome of explaining many molecules.

    Attributes:
        rows: Number of molecules.
        failed: Number of molecules without an explanation.
        first_failure: Row, SMILES and reason of the first one, "" without one.
        not_converged: Number of explanations with a `warning`.
        refusals: The molecules without an explanation by reason; see `Refusals.report`.
    """

    rows: int = 0
    failed: int = 0
    first_failure: str = ""
    not_converged: int = 0
    refusals: list[dict[str, Any]] = field(default_factory=list)


def explain_files(
    explainer: Explainer,
    sources: Sequence[File | str],
    folder: Path,
    *,
    ending: str = ".svg",
    smiles_column: str | None = None,
    delimiter: str | None = None,
    strict: bool = False,
    progress: bool = False,
) -> FolderReport:
    """Explain each row of files; see `explain_to_folder`.

    Args:
        explainer: The model and the method.
        sources: Files, URLs and patterns in the formats of `open_molecules`.
        folder: The folder to write.
        ending: Format of the pictures, `.svg` or `.png`.
        smiles_column: The column of SMILES; None finds it.
        delimiter: The character between cells; None finds it.
        strict: Whether to stop at the first molecule that cannot be explained, and write nothing.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: A file cannot be read, or as in `explain_to_folder`.
    """
    with open_molecules(sources, smiles_column=smiles_column, delimiter=delimiter) as table:
        column = table.smiles_column
        rows = (
            (chunk.where(place), cell)
            for chunk in table.chunks(CHUNK_ROWS, [column])
            for place, cell in enumerate(chunk[column])
        )
        return _explain(explainer, rows, folder, ending, strict, progress)


def explain_to_folder(
    explainer: Explainer,
    smiles: Iterable[str],
    folder: Path,
    *,
    ending: str = ".svg",
    strict: bool = False,
    progress: bool = False,
) -> FolderReport:
    """Write a picture of each molecule, and one line of JSON for each molecule.

    The picture of row 7 is `000007.svg`; rows count from 1. `explanations.jsonl` has one object for each row,
    with `row`, `picture` (None without one), `error` (None without one) and the fields of the explanation.
    The folder gets its name when it is complete.

    Args:
        explainer: The model and the method.
        smiles: The molecules. It is read only once.
        folder: The folder to write; it must not exist, or be empty.
        ending: Format of the pictures, `.svg` or `.png`.
        strict: Whether to stop at the first molecule that cannot be explained, and write nothing.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The folder cannot be written, the ending is unknown, or a molecule cannot be explained
            although `strict` is set.
    """
    rows = ((f"row {row}", text) for row, text in enumerate(smiles, start=1))
    return _explain(explainer, rows, folder, ending, strict, progress)


def _explain(
    explainer: Explainer,
    rows: Iterable[tuple[str, str]],
    folder: Path,
    ending: str,
    strict: bool,
    progress: bool,
) -> FolderReport:
    """Explain pairs of a place and a SMILES."""
    from molslice.chem.drawing import drawer_kind  # needs rdkit

    drawer_kind(ending)
    report, refusals = FolderReport(), Refusals()
    with (
        atomic_folder(folder, alone=True) as partial,
        (partial / EXPLANATIONS).open("w", encoding="utf-8", errors="backslashreplace") as lines,
        Progress("explain", None, "molecules", shown=progress) as bar,
    ):
        for row, (where, text) in enumerate(rows, start=1):
            report.rows = row
            name, found, reason = f"{row:06}{ending}", None, None
            try:
                found = explainer(text)
                (partial / name).write_bytes(found.picture(ending))
                report.not_converged += isinstance(found, Contributions) and bool(found.warning)
            except MolsliceError as error:
                found, reason = None, str(error)
                failure = failure_text(where, "", reason)
                if strict:
                    raise MolsliceError(f"{failure}; {folder} is not written") from error
                report.failed += 1
                report.first_failure = report.first_failure or failure
                refusals.add(reason, text, where)
            lines.write(_line(row, text, name, found, reason))
            bar.update()
    report.refusals = refusals.report()
    return report


def _line(
    row: int, smiles: str, name: str, found: Contributions | AttentionView | None, reason: str | None
) -> str:
    fields: dict[str, Any] = {"smiles": smiles} if found is None else found.to_dict()
    entry = {"row": row, "picture": None if found is None else name, "error": reason, **fields}
    return json.dumps(json.loads(to_json(entry)), ensure_ascii=False) + "\n"
