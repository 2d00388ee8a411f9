"""Predict a CSV file of any length: read, predict and write chunk by chunk, in bounded memory."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from molslice.files.atomic import UnwritableError
from molslice.files.tables import Chunk, Table, open_table
from molslice.inference.base import Predictions, SmilesPredictor
from molslice.inference.columns import ERROR, distinct_columns
from molslice.inference.progress import progress_bar
from molslice.inference.sinks import CSV, Sink, open_sink
from molslice.types import MolsliceError

__all__ = ["TableReport", "predict_table"]

SHOWN = 60  # characters of a SMILES in a message


@dataclass(slots=True)
class TableReport:
    """The outcome of a prediction of a table.

    Attributes:
        columns: The names of the columns with predictions, one for each target.
        error_column: The name of the column with reasons.
        rows: Number of rows read.
        failed: Number of rows without a prediction.
        first_failure: Place, SMILES and reason of the first row that failed.
    """

    columns: tuple[str, ...]
    error_column: str
    rows: int = 0
    failed: int = 0
    first_failure: str = ""


def predict_table(
    predictor: SmilesPredictor,
    source: Path,
    target: Path,
    *,
    smiles_column: str = "smiles",
    endings: Sequence[str] = CSV,
    workers: int = 0,
    progress: bool = True,
) -> TableReport:
    """Write the rows of `source` with predictions appended to `target`, in the same order.

    All columns are kept. The columns of `predictor.columns` and `error` are appended under names that are not
    in `source` yet (see `distinct_columns`). An unreadable row keeps its cells, up to the number of columns,
    and has the reason in the error column. The file gets its final name when it is complete.

    Args:
        predictor: The model.
        source: The table, CSV or gzip-compressed CSV.
        target: The file to write.
        smiles_column: The name of the column with SMILES.
        endings: The allowed endings of `target`, of those of `open_sink`.
        workers: Number of worker processes; 0 reads SMILES in this process.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The column is missing, the table has no rows, the file is damaged, or a file name is
            invalid. The message says that `target` is not written.
        OSError: The file cannot be written. No partial file is left.
    """
    _check_names(source, target, endings)
    with open_table(source) as table:
        table.find(smiles_column)
        *columns, error_column = distinct_columns([*predictor.columns, ERROR], taken=table.names)
        report = TableReport(tuple(columns), error_column)
        try:
            with open_sink(target, table.names, columns, error_column) as sink:
                _stream(predictor, table, smiles_column, sink, report, workers, progress)
        except UnwritableError:
            raise
        except MolsliceError as error:
            done = f" although {report.rows} rows were predicted" if report.rows else ""
            raise MolsliceError(f"{error}; {target} is not written{done}") from error
    return report


def _stream(
    predictor: SmilesPredictor,
    table: Table,
    column: str,
    sink: Sink,
    report: TableReport,
    workers: int,
    progress: bool,
) -> None:
    kept: deque[Chunk] = deque()  # read but not yet written

    def smiles() -> Iterator[list[str]]:
        for chunk in table.chunks(reader.chunk_rows, [column]):
            kept.append(chunk)
            yield chunk[column]

    size = table.path.stat().st_size
    bar = progress_bar(size, "B", progress, desc="predict", unit_divisor=1024)
    with predictor.reader(workers) as reader, bar:
        for part in reader.read(smiles()):
            predictions = predictor.predict_part(part)
            chunk = kept.popleft()
            sink.write(chunk.cells, predictions)
            _count(report, chunk, chunk[column], predictions)
            bar.set_postfix_str(f"{report.rows} molecules", refresh=False)
            bar.update(table.position - bar.n)


def _count(report: TableReport, chunk: Chunk, smiles: list[str], predictions: Predictions) -> None:
    for place, reason in enumerate(predictions.errors):
        if reason is not None:
            report.failed += 1
            text = smiles[place][:SHOWN] + "…" * (len(smiles[place]) > SHOWN)
            shown = "" if place in chunk.errors else f"{text!r}: "
            report.first_failure = report.first_failure or f"{chunk.where(place)}: {shown}{reason}"
    report.rows += len(chunk)


def _check_names(source: Path, target: Path, endings: Sequence[str]) -> None:
    for path, allowed in ((source, CSV), (target, tuple(endings))):
        if not path.name.lower().endswith(allowed):
            raise MolsliceError(f"{path}: the name must end in {' or '.join(allowed)}")
    if not target.parent.is_dir():
        raise MolsliceError(f"{target}: the folder {target.parent} does not exist")
    if target.exists() and source.exists() and target.samefile(source):
        raise MolsliceError(f"{target}: the output would replace the input; choose another name")
    if target.exists() and not target.is_file():
        raise MolsliceError(f"{target}: not a regular file")
