"""Explain many molecules to a folder of pictures."""

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from molslice.data.molecules.identifiers import find_name_column
from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.data.molecules.tables import open_molecules
from molslice.explanation.explain import Explainer
from molslice.explanation.result import AttentionView, Contributions
from molslice.files.atomic import atomic_folder
from molslice.files.progress import Progress
from molslice.files.urls import File
from molslice.inference.base import Predictor
from molslice.inference.json_text import to_json
from molslice.types import MolsliceError

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


def read_rows(
    predictor: Predictor,
    sources: Sequence[File | str],
    smiles_column: str | None = None,
    delimiter: str | None = None,
) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the SMILES and the name of each row of files, URLs and patterns; see `open_molecules`.

    If the model takes conditions, the SMILES has the conditions of its row (`Conditioned`).
    """
    smiles_column = smiles_column or predictor.smiles_column
    with open_molecules(sources, smiles_column=smiles_column, delimiter=delimiter) as table:
        column = find_name_column(table.names, table.smiles_column)
        named = [] if column is None else [column]
        for chunk in table.chunks(CHUNK_ROWS, [table.smiles_column, *predictor.condition_names, *named]):
            names = [""] * len(chunk) if column is None else chunk[column]
            for place, row in enumerate(predictor.rows_of(chunk, table.smiles_column)):
                yield chunk.where(place), row, names[place] or ""


def explain_to_folder(
    explainer: Explainer,
    rows: Iterable[tuple[str, str, str]],
    folder: Path,
    *,
    ending: str = ".svg",
    background: str = "white",
    strict: bool = False,
    progress: bool = False,
) -> FolderReport:
    """Write a picture of each molecule, and one line of JSON for each molecule.

    The colors of all pictures end at the largest contribution of all molecules, so that they can be compared.
    The picture of row 7 is `000007.svg`; rows count from 1. `explanations.jsonl` has one object for each row,
    with `row`, `picture` (None without one), `error` (None without one) and the fields of the explanation.
    The folder gets its name when it is complete.

    Args:
        explainer: The model and the method.
        rows: The place of each molecule for messages, its SMILES, and its name; "" without one.
        folder: The folder to write; it must not exist, or be empty.
        ending: Format of the pictures, `.svg` or `.png`.
        background: Background of the pictures: `white`, `dark` or `transparent`.
        strict: Whether to stop at the first molecule that cannot be explained, and write nothing.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The folder cannot be written, the ending is unknown, or a molecule cannot be explained
            although `strict` is set.
    """
    from molslice.chem.drawing import drawer_kind  # needs rdkit

    drawer_kind(ending)
    report, refusals = FolderReport(), Refusals()
    with (
        atomic_folder(folder, alone=True) as partial,
        (partial / EXPLANATIONS).open("w", encoding="utf-8", errors="backslashreplace") as lines,
        TemporaryFile(dir=partial) as kept,  # until the largest contribution is known; maps are large
        Progress("explain", None, "molecules", shown=progress) as bar,
    ):
        largest = 0.0
        for where, smiles, name in rows:
            outcome = _explained(explainer, smiles)
            if isinstance(outcome, MolsliceError):
                if strict:
                    raise _not_written(where, outcome, folder) from outcome
                outcome = str(outcome)
            else:
                largest = max(largest, outcome.largest)
            pickle.dump((where, str(smiles), name, outcome), kept)
            report.rows += 1
            bar.update()
        kept.seek(0)
        for row in range(1, report.rows + 1):
            where, smiles, name, outcome = pickle.load(kept)
            picture = f"{row:06}{ending}"
            entry: dict[str, Any] = {"row": row, "picture": picture, "error": None}
            try:
                if isinstance(outcome, str):
                    raise MolsliceError(outcome)
                drawn = outcome.picture(ending, background=background, largest=largest, name=name)
                (partial / picture).write_bytes(drawn)
                report.not_converged += isinstance(outcome, Contributions) and bool(outcome.warning)
                entry |= outcome.to_dict()
            except MolsliceError as error:
                if strict:
                    raise _not_written(where, error, folder) from error
                report.failed += 1
                report.first_failure = report.first_failure or failure_text(where, "", str(error))
                refusals.add(str(error), smiles, where)
                entry |= {"picture": None, "error": str(error), "smiles": smiles}
            lines.write(json.dumps(json.loads(to_json(entry)), ensure_ascii=False) + "\n")
    report.refusals = refusals.report()
    return report


def _explained(explainer: Explainer, smiles: str) -> Contributions | AttentionView | MolsliceError:
    """Explain a molecule, or return why it cannot be explained."""
    try:
        return explainer(smiles)
    except MolsliceError as error:
        return error


def _not_written(where: str, error: MolsliceError, folder: Path) -> MolsliceError:
    return MolsliceError(f"{failure_text(where, '', str(error))}; {folder} is not written")
