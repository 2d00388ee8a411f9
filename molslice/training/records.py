"""Reports of a training: `metrics.csv`, TensorBoard and the progress bar."""

import csv
import functools
import logging
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from molslice.files.atomic import UnwritableError, write_atomically
from molslice.files.progress import Progress
from molslice.files.text_tables import csv_text
from molslice.folders.run import METRICS, TENSORBOARD
from molslice.tasks.base import Measure
from molslice.tasks.metrics import METRIC_LABELS, format_metric
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

BEFORE = ("step", "epoch", "seconds", "learning_rate", "train_loss")


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Read the columns of `metrics.csv`, `step` and `train_loss` first; an empty cell is NaN.

    Raises:
        MolsliceError: It has no numbers.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = {name: [float(row[name] or "nan") for row in rows] for name in rows[0]}
        return {"step": columns.pop("step"), "train_loss": columns.pop("train_loss"), **columns}
    except (OSError, ValueError, TypeError, KeyError, IndexError, csv.Error) as error:
        raise MolsliceError(f"cannot read {path}: {error}") from error


class Records:
    """`metrics.csv` and TensorBoard of one run, with a row for each validation.

    Without the package tensorboard, only `metrics.csv` is written. A run that is resumed at `step` removes
    the rows after it, because it repeats these steps.

    Raises:
        MolsliceError: `metrics.csv` of a resumed run cannot be read, or a file cannot be written.
    """

    def __init__(self, folder: Path, measures: Sequence[Measure], step: int) -> None:
        self.path, self.measures = folder / METRICS, measures
        self.columns = [*BEFORE, *(measure.column for measure in measures), "rows_per_second"]
        kept = [[row[name] for name in self.columns] for row in self._rows_until(step)]
        write_atomically(self.path, csv_text([self.columns, *kept]))
        self._events = _Events(folder / TENSORBOARD, step + 1) if _has_tensorboard() else None

    def _rows_until(self, step: int) -> list[dict[str, str]]:
        if step == 0 or not self.path.is_file():
            return []
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                missing = [name for name in self.columns if name not in (reader.fieldnames or ())]
                if missing:
                    raise KeyError(missing[0])
                rows = [row for row in reader if None not in row.values()]  # the last line may be incomplete
            return [row for row in rows if int(row["step"]) <= step]
        except (OSError, ValueError, KeyError, csv.Error) as error:
            reason = f"no column {error}" if isinstance(error, KeyError) else error
            raise MolsliceError(
                f"cannot read {self.path}: {reason}; remove it to continue without its rows"
            ) from error

    def add(self, row: dict[str, float], metrics: dict[str, float]) -> None:
        """Append a row: the columns that are no metrics, such as `step`, and the metrics by measure.

        Raises:
            UnwritableError: A file cannot be written.
        """
        values = {**row, **{measure.column: metrics[measure.name] for measure in self.measures}}
        try:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(csv_text([[values[name] for name in self.columns]]))
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, str(self.path)) from error
        if self._events is not None:
            self._events.add(int(row["step"]), {name: v for name, v in values.items() if name != "step"})


@functools.cache  # one message for all runs of a comparison
def _has_tensorboard() -> bool:
    try:
        import tensorboard.compat.proto
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        logger.warning(
            "TensorBoard is not available, so a run writes only %s (%s); pip install 'molslice[logging]'",
            METRICS,
            error,
        )
        return False
    return True


class _Events:
    """The event file of TensorBoard, one for each process.

    A row is written at once, and not by the thread of torch's `SummaryWriter`. A full disk is therefore an
    error of the row, and nothing has to be flushed at the end.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        self.folder, self.first_step, self._file = folder, first_step, None

    def add(self, step: int, values: dict[str, float]) -> None:
        """Append the numbers of a step."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        proto: Any = event_pb2  # generated on import, unknown to type checkers
        summary: Any = summary_pb2
        events = []
        if self._file is None:
            name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}.0"
            self._file = self.folder / name
            events.append(proto.Event(file_version="brain.Event:2"))
            # TensorBoard drops the earlier events of the run from this step on
            start = proto.SessionLog(status=proto.SessionLog.START)
            events.append(proto.Event(step=self.first_step, session_log=start))
        scalars = [summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        events.append(proto.Event(step=step, summary=summary.Summary(value=scalars)))
        try:
            self.folder.mkdir(exist_ok=True)
            with self._file.open("ab") as file:
                writer = RecordWriter(file)
                for event in events:
                    event.wall_time = time.time()
                    writer.write(event.SerializeToString())
        except OSError as error:
            raise UnwritableError(error.errno, error.strerror, str(self._file)) from error


class ProgressBar(Progress):
    """The progress of a training with epoch, loss, validation metric and speed.

    `step` of `total` steps were done before. `row_name` is a row in the plural, such as `molecules`.
    """

    def __init__(
        self, total: int, step: int, quiet: bool, measures: Sequence[Measure], row_name: str = "rows"
    ) -> None:
        super().__init__("training", total, "steps", shown=not quiet, done=step)
        self.measures, self.row_name, self.valid = measures, row_name, ""

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """Keep the latest validation visible: the first metric and the number of others."""
        first = self.measures[0]
        unit = f" {first.unit}" if first.unit else ""
        more = f" (+{len(metrics) - 1} targets)" if len(metrics) > 1 else ""
        self.valid = f"valid {METRIC_LABELS[first.metric]} {format_metric(metrics[first.name])}{unit}{more}"

    def step(self, epoch: int) -> None:
        """Count a step of epoch `epoch`, from 0."""
        self.rename(f"epoch {epoch + 1}")
        self.update()

    def show(self, loss: float, rows_per_second: float) -> None:
        """Show the loss and the speed after the numbers of steps."""
        notes = (f"loss {format_metric(loss)}", self.valid, f"{rows_per_second:.0f} {self.row_name}/s")
        self.annotate(", ".join(filter(None, notes)))
