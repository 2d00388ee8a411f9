"""Predict several files to a folder, one output for each input."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from molslice.data.molecules.input_files import find_files
from molslice.data.molecules.refusals import Refusals
from molslice.files.atomic import UnwritableError, atomic_file
from molslice.files.lines import STDIN
from molslice.files.tables import file_format
from molslice.files.urls import File, Url
from molslice.inference.base import SmilesPredictor
from molslice.inference.chunk_log import different_keys
from molslice.inference.cluster import RayEngine
from molslice.inference.progress import progress_bar
from molslice.inference.table import TableReport, check_source, predict_table, prediction_identity
from molslice.types import MolsliceError

__all__ = ["is_folder", "output_name", "predict_folder"]

IDENTITY = ".prediction.json"  # what the outputs of a folder are predictions of
LONGEST = 2**20  # maximum bytes of it
FORMATS = {".parquet": ".parquet", ".pq": ".parquet", ".jsonl": ".jsonl", ".ndjson": ".jsonl"}
PACKED = (".gz", ".zst")


def is_folder(target: File) -> bool:
    """Return whether an output is a folder: a folder that exists, or a name without an ending."""
    if isinstance(target, Path) and target.is_dir():
        return True
    return target != STDIN and "." not in target.name


def output_name(source: File) -> str:
    """Return the name of the output of a file: its own, with the ending of the format in which it is written.

    Parquet and JSON lines stay what they are, other formats become CSV. A text that is compressed becomes
    gzip.
    """
    name, packed = source.name, ""
    if name.lower().endswith(PACKED):
        name, packed = name.rpartition(".")[0], ".gz"
    kind = file_format(source)
    ending = FORMATS.get(kind, ".csv")
    stem = name[: len(name) - len(kind)] if kind else name
    return stem + ending + ("" if ending == ".parquet" else packed)


def predict_folder(
    predictor: SmilesPredictor,
    sources: Sequence[File | str],
    folder: File,
    *,
    engine: RayEngine | None = None,
    resume: bool = False,
    progress: bool = True,
    **options: Any,  # noqa: ANN401
) -> tuple[TableReport, list[File]]:
    """Predict each file to a file of the same name in a folder; see `output_name`.

    Args:
        predictor: The model.
        sources: Files, URLs and patterns.
        folder: The folder; it is created.
        engine: The cluster that predicts the files; by default this program does, one after the other.
        resume: Whether to keep the outputs that exist, because they are complete, and to continue the others.
        progress: Whether to show a bar on standard error.
        options: Further options of `predict_table`.

    Returns:
        The report of all files, with the columns and findings of the first, and the outputs.

    Raises:
        MolsliceError: Two files would have the same output, all outputs exist, those that exist are of
            another model or other options, or as in `predict_table`. Finished outputs stay.
    """
    pairs = _pairs(find_files(sources), folder)
    if isinstance(folder, Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, str(folder)) from error
    own = {name: options.get(name) for name in ("smiles_column", "delimiter") if options.get(name)}
    identity = {**prediction_identity(predictor), **own}
    if resume:
        for source, target in pairs:
            check_source([source], target)
    left = [(source, target) for source, target in pairs if not (resume and target.exists())]
    if len(left) < len(pairs):
        _check_identity(folder, identity)
    else:
        _write_identity(folder, identity)
    if not left:
        raise MolsliceError(f"{folder}: nothing to resume, because every file has its output")
    options = {**options, "resume": resume}
    reports = _predicted(predictor, left, options) if engine is None else engine.predict_files(left, options)
    total: TableReport | None = None
    refusals = Refusals()
    with progress_bar(len(left), "files", progress, desc="predict") as bar:
        for report in reports:
            if total is None:
                total = report
            else:
                total.rows += report.rows
                total.failed += report.failed
                total.first_failure = total.first_failure or report.first_failure
                total.replaced += report.replaced
            refusals.merge(report.refusals)
            bar.set_postfix_str(f"{total.rows} molecules", refresh=False)
            bar.update()
    assert total is not None  # there is at least one file
    total.refusals = refusals.report()
    return total, [target for _, target in left]


def _check_identity(folder: File, identity: Mapping[str, Any]) -> None:
    """Check that the finished outputs of a folder are of the same model and options.

    Raises:
        MolsliceError: They are not, or their identity is missing.
    """
    path = _inside(folder, IDENTITY)
    advice = "delete the outputs, or choose another folder"
    if not path.exists():
        raise MolsliceError(f"{folder} has outputs, but no {IDENTITY} that says what made them; {advice}")
    try:
        with path.open() if isinstance(path, Url) else path.open("rb") as file:
            found = json.loads(file.read(LONGEST))
        different = different_keys(found, identity)
    except (OSError, ValueError, TypeError) as error:
        raise MolsliceError(f"cannot read {path}: {error}; {advice}") from error
    if different:
        raise MolsliceError(f"the outputs in {folder} are of another {' and '.join(different)}; {advice}")


def _write_identity(folder: File, identity: Mapping[str, Any]) -> None:
    with atomic_file(_inside(folder, IDENTITY)) as stream:
        stream.write(json.dumps(identity, indent=1).encode() + b"\n")


def _inside(folder: File, name: str) -> File:
    return Url(f"{str(folder).rstrip('/')}/{name}") if isinstance(folder, Url) else folder / name


def _pairs(sources: Sequence[File], folder: File) -> list[tuple[File, File]]:
    made: dict[str, File] = {}
    for source in sources:
        if source == STDIN:
            raise MolsliceError(
                "standard input has no name for a file in a folder; give --output a file name"
            )
        other = made.setdefault(output_name(source), source)
        if other != source:
            raise MolsliceError(
                f"{other} and {source} would both be written to {output_name(source)} in {folder}"
            )
    return [(source, _inside(folder, name)) for name, source in made.items()]


def _predicted(
    predictor: SmilesPredictor, pairs: Sequence[tuple[File, File]], options: Mapping[str, Any]
) -> Iterator[TableReport]:
    for source, target in pairs:
        yield predict_table(predictor, source, target, progress=False, **options)
