"""Predict files of any length: read, predict and write chunk by chunk, in bounded memory."""

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import tee
from pathlib import Path
from typing import Any

import torch

from molslice.data.molecules.fragments import count_wildcards
from molslice.data.molecules.input_files import bytes_on_disk, find_files, name_of
from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.data.molecules.store_files import current_versions
from molslice.data.molecules.tables import MoleculeTable, open_molecules
from molslice.files.atomic import UnwritableError, reserved
from molslice.files.lines import STDIN
from molslice.files.progress import BYTES, Progress
from molslice.files.tables import Chunk
from molslice.files.tables.base import MissingColumnError
from molslice.files.urls import File, Url, as_file
from molslice.inference.base import Predictor
from molslice.inference.columns import ERROR, distinct_columns
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.predictions import TableRows
from molslice.inference.smiles_reader import default_workers
from molslice.inference.tables.chunk_log import ChunkLog, smiles_checksum
from molslice.inference.tables.measured import MeasuredValues
from molslice.inference.tables.sinks import STDOUT, TABLES, Sink, open_sink
from molslice.types import MolsliceError

Computed = tuple[Chunk, TableRows, int]  # with the number of bytes read so far
Engine = Callable[[Predictor, MoleculeTable, Sequence[str]], Generator[Computed, None, None]]

ROW_BYTES = 40  # of a SMILES and a number


@dataclass(slots=True)
class TableReport:
    """The outcome of a prediction of a table.

    Attributes:
        columns: The names of the columns with predictions, and with their uncertainty if it is asked for.
        error_column: The name of the column with reasons.
        smiles_column: The column of SMILES of the input.
        findings: What was found in the input, one sentence each.
        metrics: Errors of each target, with `name`, `unit`, `count`, `metric`, `value` and `standard_error`,
            also the mean fold error if the logarithm is learned; None if not asked.
        measured: Number of rows in `metrics`.
        trained: Number of them whose molecule or pair is known from the training of the model.
        rows: Number of rows read.
        failed: Number of rows without a prediction.
        first_failure: Place, SMILES and reason of the first row that failed.
        refusals: The failed rows by reason; see `Refusals.report`.
        fragment: What happened to mixtures; see `Predictor.fragment`.
        replaced: Number of mixtures that were replaced by their largest molecule.
        wildcards: Number of rows with a wildcard that have a prediction.
    """

    columns: tuple[str, ...]
    error_column: str
    smiles_column: str
    findings: tuple[str, ...] = ()
    metrics: list[dict[str, Any]] | None = None
    measured: int = 0
    trained: int = 0
    rows: int = 0
    failed: int = 0
    first_failure: str = ""
    refusals: list[dict[str, Any]] = field(default_factory=list)
    fragment: str = "keep"
    replaced: int = 0
    wildcards: int = 0

    def describe_failure(self) -> str:
        """Return the text for a table of which no row has a prediction."""
        subject = f"none of the {self.rows} SMILES in column {self.smiles_column!r}"
        return f"{subject} can be read; {self.first_failure}"


def predict_table(
    predictor: Predictor,
    source: File | str | Sequence[File | str],
    target: File | str,
    options: PredictionOptions = PLAIN,
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    metrics: bool = False,
    decimal: str | None = None,
    missing_values: Sequence[float | str] = (),
    endings: Sequence[str] = TABLES,
    workers: int | None = None,
    resume: bool = False,
    strict: bool = False,
    engine: Engine | None = None,
    progress: bool = True,
) -> TableReport:
    """Write the rows of `source` with predictions appended to `target`, in the same order.

    All columns are kept. The columns of `predictor.columns` and `error` are appended under names that are not
    in `source` yet (see `distinct_columns`). An unreadable row keeps its cells, up to the number of columns,
    and has the reason in the error column. The file gets its final name when it is complete. Until then the
    predictions of finished chunks are in the folder `log_folder(target)`, from which `resume` continues.

    Args:
        predictor: The model.
        source: One or several files, URLs or patterns in the formats of `open_molecules`.
        target: The file or URL to write; `-` is standard output.
        options: What the predictions have besides their values; an engine has its own.
        smiles_column: The name of the column with SMILES; None finds it.
        delimiter: The character between the cells of `source`; None finds it.
        metrics: Whether to compare the predictions with the columns of `source` that have the names of the
            targets.
        decimal: The decimal mark of these columns; None for the one of the training.
        missing_values: Values that stand for a missing value in them; without any, as in the training.
        endings: The allowed endings of `target`, some of `ENDINGS`.
        workers: Number of worker processes (see `Predictor.predict_chunks`); None for all cores if the
            input is large (see `default_workers`).
        resume: Whether to continue an interrupted prediction, if there is one.
        strict: Whether to stop at the first row that fails. Nothing is written then, also not to standard
            output, which otherwise gets the rows while they are computed.
        engine: Computes the predictions elsewhere; by default this program does.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The column is missing, a file is damaged, a file name is invalid, a row fails although
            `strict` is set, another process is writing `target`, or an unfinished prediction does not fit.
            The message says that `target` is not written.
        OSError: The file cannot be written. No partial file is left.
        KeyboardInterrupt: Stopped by Ctrl-C. The message says how to continue.
    """
    sources = [source] if isinstance(source, str | Path | Url) else list(source)
    target = as_file(target)
    check_target(target, endings)
    kept = target if isinstance(target, Path) and target != STDOUT and engine is None else None
    with (
        # a worker that continues after another one may be on another machine
        reserved(None if target == STDOUT or resume else target),
        open_molecules(
            sources, smiles_column=smiles_column or predictor.smiles_column, delimiter=delimiter
        ) as table,
        ChunkLog(kept, {} if kept is None else _log_identity(predictor, options), resume=resume) as log,
    ):
        check_source(table.paths, target)
        check_conditions(predictor, table)
        numbers, texts = predictor.table_columns(options, table.names)
        columns = [*numbers, *texts]
        error_column = distinct_columns([*columns, ERROR], taken=table.names)[-1]
        report = TableReport(
            tuple(columns),
            error_column,
            table.smiles_column,
            tuple(table.findings),
            fragment=predictor.fragment,
        )
        measured = MeasuredValues(predictor, table, decimal, missing_values) if metrics else None
        try:
            with open_sink(
                target, table.names, numbers, texts, error_column, table.schema, held=strict
            ) as sink:
                compute = engine or functools.partial(_in_this_program, options, workers, log)
                stream_rows(predictor, table, sink, report, measured, compute, strict, progress)
        except (UnwritableError, _OtherInputError):
            raise
        except _RefusedRowError as error:
            log.discard()  # the corrected input has other rows
            raise MolsliceError(f"{error}; {target} is not written") from error
        except MolsliceError as error:
            done = f" although {report.rows} rows were predicted" if report.rows else ""
            how = f"; {log.folder.name} keeps them for --resume" if log.folder and log.is_kept else ""
            raise MolsliceError(f"{error}; {target} is not written{done}{how}") from error
        except KeyboardInterrupt as interrupt:
            how = "; the same command with --resume continues" if log.is_kept else ""
            raise KeyboardInterrupt(f"stopped after {report.rows} rows{how}") from interrupt
        log.discard()
    if measured is not None:
        report.metrics, report.measured, report.trained = measured.compare(), measured.rows, measured.trained
    return report


class _RefusedRowError(MolsliceError):
    """Error for the first row that fails in a strict prediction."""


class _OtherInputError(MolsliceError):
    """Error for finished chunks that are of another input."""


def prediction_identity(predictor: Predictor, options: PredictionOptions = PLAIN) -> dict[str, Any]:
    """Return JSON values in which predictions of different models, or with different options, differ."""
    numbers, texts = predictor.table_columns(options)
    return {
        "model": predictor.checksum(),
        "columns": [*numbers, *texts],
        **({} if options.level is None else {"interval": options.level}),
        **({} if options.calibration is None else {"calibration": options.calibration.checksum()}),
        **({} if predictor.fragment == "keep" else {"fragment": predictor.fragment}),
        **({} if predictor.wildcards == "refuse" else {"wildcards": predictor.wildcards}),
        **({} if predictor.standardize == "no" else {"standardize": predictor.standardize}),
    }


def _log_identity(predictor: Predictor, options: PredictionOptions) -> dict[str, Any]:
    return {
        **prediction_identity(predictor, options),
        "chunk_rows": predictor.chunk_rows,
        "device": predictor.device.type,
        "versions": {**current_versions(), "torch": torch.__version__},
    }


def stream_rows(
    predictor: Predictor,
    table: MoleculeTable,
    sink: Sink,
    report: TableReport,
    measured: MeasuredValues | None,
    engine: Engine,
    strict: bool,
    progress: bool,
) -> None:
    """Compute the rows of a table with an engine, count them in the report, and hand them to the sink."""
    refusals = Refusals()
    column = table.smiles_column
    wanted = dict.fromkeys([column, *(measured.needed if measured else ()), *predictor.condition_names])
    bar = Progress(predictor.label, table.size, BYTES, shown=progress)
    with bar, contextlib.closing(engine(predictor, table, list(wanted))) as computed:
        for chunk, predictions, position in computed:
            _count(report, refusals, chunk, chunk[column], predictions)
            if strict and report.failed:
                raise _RefusedRowError(report.first_failure)
            sink(chunk.cells, predictions)
            if measured is not None:
                measured.add(chunk, predictions)
            bar.annotate(f"{report.rows:,} molecules")
            bar.move(position)
    report.refusals = refusals.report()


def estimate_rows(paths: Sequence[str | File]) -> int:
    """Estimate the number of rows of files from their sizes; 0 for standard input and unreadable files."""
    rows = 0
    with contextlib.suppress(OSError, MolsliceError):  # opening the files names the reason
        for path in find_files(paths):
            rows += bytes_on_disk(path) // ROW_BYTES
    return rows


def _in_this_program(
    options: PredictionOptions,
    workers: int | None,
    log: ChunkLog,
    predictor: Predictor,
    table: MoleculeTable,
    columns: Sequence[str],
) -> Generator[Computed, None, None]:
    """Repeat the finished chunks of a table, and predict the others with worker processes.

    Raises:
        MolsliceError: The rows differ from the finished chunks.
    """
    if workers is None:
        workers = default_workers(predictor.device, table.size // ROW_BYTES)
    chunks, rows = table.chunks(predictor.chunk_rows, columns), 0
    for checksum, predictions in log.finished():
        chunk = next(chunks, None)
        if chunk is None or smiles_checksum(predictor.rows_of(chunk, table.smiles_column)) != checksum:
            raise _OtherInputError(
                f"{name_of(table.paths)} is not the input of the unfinished prediction: it differs after row "
                f"{rows}; delete {log.folder} to start again"
            )
        rows += len(chunk)
        yield chunk, predictions, table.position
    chunks, to_predict = tee(chunks)
    smiles = (predictor.rows_of(chunk, table.smiles_column) for chunk in to_predict)
    with contextlib.closing(predictor.predict_chunks(smiles, options, workers)) as predicted:
        for predictions, chunk in zip(predicted, chunks, strict=True):
            rows = predictions.table_rows()
            log.add(predictor.rows_of(chunk, table.smiles_column), rows)
            yield chunk, rows, table.position


def _count(
    report: TableReport, refusals: Refusals, chunk: Chunk, smiles: list[str], predictions: TableRows
) -> None:
    for place, reason in enumerate(predictions.errors):
        if reason is not None:
            where = chunk.where(place)
            report.failed += 1
            report.first_failure = report.first_failure or failure_text(where, smiles[place], reason)
            refusals.add(reason, smiles[place], where)
    report.rows += len(chunk)
    report.replaced += predictions.replaced
    report.wildcards += count_wildcards(
        [text for text, reason in zip(smiles, predictions.errors, strict=True) if reason is None]
    )


def check_conditions(predictor: Predictor, table: MoleculeTable) -> None:
    """Check that a table has the columns of the conditions, before anything is computed.

    Raises:
        MolsliceError: A column is missing.
    """
    for name in predictor.condition_names:
        try:
            table.find(name)
        except MissingColumnError as error:
            raise MolsliceError(f"{error}; {predictor.name} needs this condition") from error


def check_target(target: File, endings: Sequence[str]) -> None:
    """Check the name of a table to write before anything is computed.

    Raises:
        MolsliceError: The ending is not one of `endings`, the folder does not exist, or the name
            belongs to something other than a file.
    """
    if target == STDOUT:
        return
    if not target.name.lower().endswith(tuple(endings)):
        raise MolsliceError(f"{target}: the name must end in {' or '.join(endings)}")
    if isinstance(target, Url):
        return  # opening it checks the rest
    if not target.parent.is_dir():
        raise MolsliceError(f"{target}: the folder {target.parent} does not exist")
    if target.exists() and not target.is_file():
        raise MolsliceError(f"{target}: not a regular file")


def check_source(sources: Sequence[File], *targets: File) -> None:
    """Refuse an output that is one of the inputs."""
    read = {_identity(source) for source in sources}
    for target in targets:
        if (identity := _identity(target)) is not None and identity in read:
            raise MolsliceError(f"{target}: the output would replace the input; choose another name")


def _identity(file: File) -> Url | tuple[int, int] | None:
    """Return what all names of a file have in common; None for standard input and where there is no file."""
    if isinstance(file, Url):
        return file
    if file == STDIN or not file.exists():
        return None
    status = file.stat()
    return status.st_dev, status.st_ino
