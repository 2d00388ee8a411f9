"""Several fits in one table: errors, rows, time and settings, from what their folders say."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from molslice.errors import MolsliceError
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.text_tables import csv_text, markdown_table
from molslice.folders.fitted import FIT
from molslice.folders.results import results_folder
from molslice.inference.json_text import to_json
from molslice.number_text import METRIC_LABELS
from molslice.uncertainty.rounding import rounded_error

FIT_NAME = "molslice fit"  # of the errors on held-out rows, beside baselines


@dataclass(frozen=True, slots=True)
class FitLine:
    """One target of a fit.

    Attributes:
        fit: The folder.
        target: Name of the target.
        unit: Its unit; "" without one.
        metric: Name of the metric.
        rows: Number of learned rows.
        cross_validated: The metric on out-of-fold predictions; None if it is not defined.
        cross_validated_error: Its standard error; None in older folders.
        held_out_rows: Number of held-out rows.
        held_out: The metric on held-out rows; None without any.
        held_out_error: Its standard error.
        split: How the rows are held out.
        quality: `fast`, `good` or `best`.
        seconds: Time of the whole fit.
    """

    fit: str
    target: str
    unit: str
    metric: str
    rows: int
    cross_validated: float | None
    cross_validated_error: float | None
    held_out_rows: int
    held_out: float | None
    held_out_error: float | None
    split: str
    quality: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ComparedFits:
    """The targets of several fits; the lines of one target follow each other."""

    lines: Sequence[FitLine]

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of `comparison.json`."""
        return {"fits": [asdict(line) for line in self.lines]}

    def to_text(self) -> str:
        """Return the table in Markdown with aligned columns."""
        header = ["fit", "target", "unit", "metric", "rows", "cross-validated", "held-out rows", "held-out"]
        rows = [
            [
                line.fit,
                line.target,
                line.unit or "-",
                METRIC_LABELS[line.metric],
                f"{line.rows:,}",
                rounded_error(line.cross_validated, line.cross_validated_error),
                f"{line.held_out_rows:,}",
                rounded_error(line.held_out, line.held_out_error),
                line.split,
                line.quality,
                f"{line.seconds:,.0f}",
            ]
            for line in self.lines
        ]
        return markdown_table([*header, "split", "quality", "seconds"], rows)

    def to_csv(self) -> str:
        """Return the table with all digits."""
        return csv_text([[*FitLine.__slots__], *(asdict(line).values() for line in self.lines)])


def compare_fits(folders: Sequence[Path | str], out: Path | str) -> ComparedFits:
    """Write `table.md`, `table.csv` and `comparison.json` about models of `molslice fit`.

    Args:
        folders: The folders of the models.
        out: The folder for the files.

    Raises:
        MolsliceError: A folder is named twice, or its `fit.json` cannot be read.
    """
    known: dict[Path, Path | str] = {}
    for folder in folders:
        if other := known.get(place := Path(folder).resolve()):
            raise MolsliceError(f"{other} and {folder} are the same folder; name each fit once")
        known[place] = folder
    lines = [line for folder in folders for line in _lines(Path(folder))]
    targets = [*dict.fromkeys(line.target for line in lines)]
    compared = ComparedFits(sorted(lines, key=lambda line: targets.index(line.target)))
    place = Path(out)
    with results_folder(place), lock_folder(place):
        write_atomically(place / "comparison.json", to_json(compared.to_mapping()))
        write_atomically(place / "table.csv", compared.to_csv())
        write_atomically(place / "table.md", compared.to_text())
    return compared


def _lines(folder: Path) -> list[FitLine]:
    """Return a line for each target of a fit."""
    record = read_json_object(folder / FIT)
    try:
        return [_line(folder, record, result) for result in record["results"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise MolsliceError(f"{folder / FIT} is damaged: missing or invalid {error}") from error


def _line(folder: Path, record: Mapping[str, Any], result: Mapping[str, Any]) -> FitLine:
    spreads = result.get("standard_errors", {"cross_validated": None, "test": {}})
    options = record["options"]
    return FitLine(
        fit=str(folder),
        target=result["target"],
        unit=result["unit"],
        metric=result.get("metric", record.get("metric")),
        rows=result["train_rows"],
        cross_validated=result["cross_validated"],
        cross_validated_error=spreads["cross_validated"],
        held_out_rows=result["test_rows"],
        held_out=result["test"].get(FIT_NAME),
        held_out_error=spreads["test"].get(FIT_NAME),
        split=options["split"],
        quality=options.get("quality", "good"),
        seconds=record["seconds"],
    )
