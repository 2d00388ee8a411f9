"""Predict several files to a folder, one output for each input."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from molslice.data.molecules.input_files import find_files
from molslice.data.molecules.refusals import Refusals
from molslice.files.atomic import UnwritableError, atomic_file
from molslice.files.cache import file_checksum
from molslice.files.lines import STDIN
from molslice.files.progress import Progress
from molslice.files.tables import file_format
from molslice.files.urls import File, Url, file_size
from molslice.folders.results import check_results_folder, file_inside
from molslice.inference.base import Predictor
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.tables.chunk_log import describe_difference
from molslice.inference.tables.cluster import RayEngine
from molslice.inference.tables.table import TableReport, check_source, predict_table, prediction_identity
from molslice.number_text import counted
from molslice.types import MolsliceError

RECORD = ".prediction.json"  # model and options of the outputs of a folder, and the state of each input
INPUTS = "inputs"  # the key of the states by the name of the output
LONGEST = 2**26  # maximum bytes of it
FORMATS = {".parquet": ".parquet", ".pq": ".parquet", ".jsonl": ".jsonl", ".ndjson": ".jsonl"}
PACKED = (".gz", ".zst")
ADVICE = "delete the outputs, or choose another folder"


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
    predictor: Predictor,
    sources: Sequence[File | str],
    folder: File,
    options: PredictionOptions = PLAIN,
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    workers: int | None = None,
    engine: RayEngine | None = None,
    resume: bool = False,
    strict: bool = False,
    progress: bool = True,
) -> tuple[TableReport, list[File]]:
    """Predict each file to a file of the same name in a folder; see `output_name`.

    Args:
        predictor: The model.
        sources: Files, URLs and patterns.
        folder: The folder; it is created.
        options: As in `predict_table`.
        smiles_column: As in `predict_table`.
        delimiter: As in `predict_table`.
        workers: As in `predict_table`.
        engine: The cluster that predicts the files; by default this program does, one after the other.
        resume: Whether to keep the outputs that exist, because they are complete, and to continue the others.
            Without it, they are replaced.
        strict: As in `predict_table`.
        progress: Whether to show a bar on standard error.

    Returns:
        The report of all files, with the columns and findings of the first, and the outputs.

    Raises:
        MolsliceError: Two files would have the same output, an output would replace an input or a file that
            is not an output, the folder holds a model or a store, outputs in it are of another model, other
            options or another input, all outputs exist, or as in `predict_table`. Finished outputs stay.
    """
    pairs = _pairs(find_files(sources), folder)
    check_results_folder(folder)
    if isinstance(folder, Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, str(folder)) from error
    reading = {"smiles_column": smiles_column, "delimiter": delimiter}
    chosen = {name: value for name, value in reading.items() if value}
    identity = {**prediction_identity(predictor, options), **chosen}
    check_source([source for source, _ in pairs], *(target for _, target in pairs))
    present = {target.name for _, target in pairs if target.exists()}
    left = [(source, target) for source, target in pairs if not (resume and target.name in present)]
    _update_record(folder, identity, pairs, present, resume=resume)
    if not left:
        raise MolsliceError(f"{folder}: nothing to resume, because every file has its output")
    settings = {**reading, "workers": workers, "strict": strict, "resume": resume}
    if engine is None:
        reports = (
            predict_table(predictor, source, target, options, progress=False, **settings)
            for source, target in left
        )
    else:
        reports = engine.predict_files(left, settings)
    total: TableReport | None = None
    refusals = Refusals()
    with Progress("predict", len(left), "files", shown=progress) as bar:
        for report in reports:
            if total is None:
                total = report
            else:
                total.rows += report.rows
                total.failed += report.failed
                total.first_failure = total.first_failure or report.first_failure
                total.replaced += report.replaced
                total.wildcards += report.wildcards
            refusals.merge(report.refusals)
            bar.annotate(f"{total.rows:,} molecules")
            bar.update()
    assert total is not None  # there is at least one file
    total.refusals = refusals.report()
    if kept := len(pairs) - len(left):
        total.findings += (f"{counted(kept, 'finished output')} kept",)
    return total, [target for _, target in left]


def _update_record(
    folder: File,
    identity: Mapping[str, Any],
    pairs: Sequence[tuple[File, File]],
    present: Collection[str],
    *,
    resume: bool,
) -> None:
    """Check that the finished outputs of a folder belong to this prediction, and record what the others are.

    An output that is to be replaced because its input has changed is removed, so that it cannot be taken for
    finished after an interruption.

    Args:
        folder: The folder.
        identity: Model and options.
        pairs: Inputs and outputs.
        present: Names of the outputs that exist.
        resume: Whether they are finished, and not to be replaced.

    Raises:
        MolsliceError: Outputs are of another model, other options or another input, nothing says of what, or
            a file that would be replaced is not an output.
    """
    keeps = resume and bool(present)
    known = _read_record(folder, needed=keeps)
    inputs: dict[str, str | int] = known.pop(INPUTS, {})
    states = {target.name: _state(source) for source, target in pairs}
    names = [
        name
        for name in inputs
        if name in present or (name not in states and file_inside(folder, name).exists())
    ]
    if (keeps or names) and (words := describe_difference(known, identity)):
        raise MolsliceError(f"the outputs in {folder} are of another {words}; {ADVICE}")
    has_names = bool(inputs) or not known  # earlier versions recorded no inputs
    for source, target in pairs:
        before = inputs.get(target.name)
        if has_names and before is None and target.name in present and not resume:
            raise MolsliceError(
                f"{target} is not an output of an earlier prediction, and would be replaced; move it, or "
                "choose another folder"
            )
        now = file_size(source) if isinstance(before, int) else states[target.name]
        if before in (None, now) or target.name not in present:
            continue
        if resume:
            raise MolsliceError(
                f"{source} has changed since {target} was predicted; delete {target} to predict it again"
            )
        target.unlink()
    kept = {name: inputs[name] for name in names}
    record = {**identity, INPUTS: {**kept, **states}}
    if record != {**known, INPUTS: inputs}:
        with atomic_file(file_inside(folder, RECORD)) as stream:
            stream.write(json.dumps(record, indent=1).encode() + b"\n")


def _state(source: File) -> str | int:
    """Return what tells a changed input: the checksum of a file, or the size of a URL in bytes.

    Earlier versions recorded the size of files too.
    """
    return file_size(source) if isinstance(source, Url) else file_checksum(source)


def _read_record(folder: File, *, needed: bool) -> dict[str, Any]:
    """Read the record of a folder.

    Args:
        folder: The folder.
        needed: Whether there are finished outputs to keep. If not, a missing or damaged record is empty.

    Raises:
        MolsliceError: It is needed, and missing or damaged.
    """
    path = file_inside(folder, RECORD)
    if not path.exists():
        if needed:
            raise MolsliceError(f"{folder} has outputs, but no {RECORD} that says what made them; {ADVICE}")
        return {}
    try:
        with path.open() if isinstance(path, Url) else path.open("rb") as file:
            record = json.loads(file.read(LONGEST))
        inputs = record.setdefault(INPUTS, {})  # earlier versions have none
        if any(type(state) not in (int, str) or "/" in name for name, state in inputs.items()):
            raise ValueError(f"invalid {INPUTS}")  # noqa: TRY301
    except (OSError, ValueError, TypeError, AttributeError) as error:
        if needed:
            raise MolsliceError(f"cannot read {path}: {error}; {ADVICE}") from error
        return {}
    return record


def _pairs(sources: Sequence[File], folder: File) -> list[tuple[File, File]]:
    by_output: dict[str, File] = {}
    for source in sources:
        if source == STDIN:
            raise MolsliceError(
                "standard input has no name for a file in a folder; give --output a file name"
            )
        other = by_output.setdefault(output_name(source), source)
        if other != source:
            raise MolsliceError(
                f"{other} and {source} would both be written to {output_name(source)} in {folder}"
            )
    return [(source, file_inside(folder, name)) for name, source in by_output.items()]
