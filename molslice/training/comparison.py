"""The result of a comparison: one line for each entry, as CSV, Markdown and JSON."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from molslice.files.atomic import write_atomically
from molslice.files.text_tables import csv_text, markdown_table
from molslice.inference.json_text import to_json
from molslice.tasks.metrics import METRIC_LABELS, with_unit
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error


@dataclass(frozen=True, slots=True)
class Result:
    """One finished run."""

    label: str  # its entry
    run: str  # the run folder
    seed: int
    metric: str
    units: dict[str, str]  # of each target
    parameters: int
    parameters_without_embeddings: int  # outside of embedding tables
    # the metric of each target in its unit; None if it is not defined, such as ROC-AUC with only one class
    valid: dict[str, float | None]
    test: dict[str, float | None]
    seconds: float  # of the training
    steps: int
    rows_per_second: float
    row_name: str  # such as `molecules`
    data: str  # name of the data set
    test_rows: int  # number of rows of the test split
    fold: int | None = None  # the test fold

    @property
    def repetition(self) -> str:
        """The seed or the fold, such as `seed 0`."""
        return f"seed {self.seed}" if self.fold is None else f"fold {self.fold}"

    @classmethod
    def of_run(
        cls, label: str, run: Path, data: str, summary: dict[str, Any], fold: int | None = None
    ) -> "Result":
        """Build from the summary of a finished run, which must be complete."""
        try:
            metric = summary["metric"]
            same = ("parameters", "parameters_without_embeddings", "seconds", "steps", "rows_per_second")
            return cls(
                label=label,
                run=str(run),
                seed=summary["seed"],
                metric=metric,
                units=dict(summary["units"]),
                valid=_defined(summary["valid"][metric]),
                test=_defined(summary["test"][metric] or {}),  # the test split may have no labels
                data=data,
                test_rows=summary["test"].get("of", 0),
                fold=fold,
                row_name=summary["noun"],
                **{key: summary[key] for key in same},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise MolsliceError(f"cannot read the summary of {run}: missing or invalid {error}") from error


@dataclass(frozen=True, slots=True)
class Line:
    """The mean of one entry over its seeds or folds.

    Means and standard deviations are over the runs in which the metric is defined.
    """

    label: str  # the entry
    seeds: int  # number of seeds
    parameters: int
    parameters_without_embeddings: int
    valid: dict[str, float | None]  # mean of each target's metric; None if no run defines it
    valid_sd: dict[str, float | None]  # None for fewer than two runs
    valid_runs: dict[str, int]  # in the mean
    test: dict[str, float | None]
    test_sd: dict[str, float | None]
    test_runs: dict[str, int]
    seconds: float  # mean training time
    steps: int  # mean
    rows_per_second: float  # mean
    folds: int  # 0 if the runs differ in their seeds

    @property
    def runs(self) -> int:
        """Number of seeds or folds that means are taken over."""
        return self.folds or self.seeds


@dataclass(slots=True)
class Comparison:
    """Finished runs and failed entries.

    Attributes:
        results: The finished runs.
        failed: The reason for each entry that failed.
    """

    results: list[Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse runs that do not measure the same quantity, and a label with a seed or fold twice."""
        first = self.results[0]
        names = ", ".join(first.units)
        for result in self.results:
            if (result.metric, result.units) != (first.metric, first.units):
                raise MolsliceError(
                    f"{result.run} measures {result.metric} of {', '.join(result.units)}, {first.run} "
                    f"measures {first.metric} of {names}; only runs with the same targets can be compared"
                )
            if (result.fold is None) != (first.fold is None):
                raise MolsliceError(f"only one of {first.run} and {result.run} was tested on a fold")
            differs = result.fold is None and result.test_rows != first.test_rows  # folds may differ by a row
            if result.data != first.data or differs:
                raise MolsliceError(
                    f"{result.run} was tested on {result.test_rows} rows of {result.data}, {first.run} on "
                    f"{first.test_rows} of {first.data}; only runs on the same data can be compared"
                )
        known: dict[tuple[str, str], Result] = {}
        for result in self.results:
            other = known.setdefault((result.label, result.repetition), result)
            if other is not result:
                raise MolsliceError(
                    f"{other.run} and {result.run} are both {result.label} with {result.repetition}; a mean "
                    f"over {self.repeated} needs each once"
                )

    @property
    def repeated(self) -> str:
        """The quantity that differs between the runs of a label: `seeds` or `folds`."""
        return "seeds" if self.results[0].fold is None else "folds"

    def lines(self) -> list[Line]:
        """Return one line for each label, in the order of the entries."""
        labels = dict.fromkeys(result.label for result in self.results)
        return [_line([r for r in self.results if r.label == label]) for label in labels]

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of `comparison.json`."""
        first, runs = self.results[0], [asdict(result) for result in self.results]
        for run in runs:
            run["noun"] = run.pop("row_name")  # as in `summary.json`
        return {
            "metric": first.metric,
            "units": first.units,
            "spread_over": self.repeated,
            "entries": [asdict(line) for line in self.lines()],
            "runs": runs,
            "failed": self.failed,
        }

    def write(self, folder: Path) -> None:
        """Write `table.csv`, `table.md` and `comparison.json`, unless the runs cannot be compared."""
        self.check()
        write_atomically(folder / "comparison.json", to_json(self.to_mapping()))
        write_atomically(folder / "table.csv", self._to_csv())
        write_atomically(folder / "table.md", self.to_text())

    def to_text(self) -> str:
        """Return the table in Markdown with aligned columns."""
        first = self.results[0]
        metric = METRIC_LABELS[first.metric]
        header = ["attention", "parameters", "without embeddings"]
        for target, unit in first.units.items():
            name = "" if len(first.units) == 1 else f" {target}"
            header += [with_unit(f"{split} {metric}{name}", unit) for split in ("valid", "test")]
        header += [f"{first.row_name}/s", "steps", self.repeated]
        rows = []
        for line in self.lines():
            row = [line.label, f"{line.parameters:,}", f"{line.parameters_without_embeddings:,}"]
            row += [_cell(line, split, target) for target in first.units for split in ("valid", "test")]
            rows.append([*row, f"{line.rows_per_second:,.0f}", f"{line.steps:,}", str(line.runs)])
        return markdown_table(header, rows)

    def _to_csv(self) -> str:
        first = self.results[0]
        targets = [
            (split, target, f"{split}_{first.metric}_{target}" + (f"_{unit}" if unit else ""))
            for target, unit in first.units.items()
            for split in ("valid", "test")
        ]
        columns = [f"{name}{kind}" for _, _, name in targets for kind in ("", "_sd", "_runs")]
        same = ["parameters", "parameters_without_embeddings", self.repeated]
        same += ["seconds", "steps", "rows_per_second"]
        rows: list[list[object]] = [["attention", *same, *columns]]
        for line in self.lines():
            values = [
                getattr(line, f"{split}{kind}").get(target)
                for split, target, _ in targets
                for kind in ("", "_sd", "_runs")
            ]
            rows.append([line.label, *(getattr(line, name) for name in same), *values])
        return csv_text(rows)


def _line(results: Sequence[Result]) -> Line:
    first = results[0]
    errors: dict[str, Any] = {}
    for split in ("valid", "test"):
        values = {
            target: [e for result in results if (e := getattr(result, split).get(target)) is not None]
            for target in getattr(first, split)
        }
        errors[split] = {name: statistics.fmean(v) if v else None for name, v in values.items()}
        errors[f"{split}_sd"] = {
            name: statistics.stdev(v) if len(v) > 1 else None for name, v in values.items()
        }
        errors[f"{split}_runs"] = {name: len(v) for name, v in values.items()}
    return Line(
        label=first.label,
        seeds=len(results) if first.fold is None else len({result.seed for result in results}),
        parameters=first.parameters,
        parameters_without_embeddings=first.parameters_without_embeddings,
        **errors,
        seconds=statistics.fmean(result.seconds for result in results),
        steps=round(statistics.fmean(result.steps for result in results)),
        rows_per_second=statistics.fmean(result.rows_per_second for result in results),
        folds=0 if first.fold is None else len(results),
    )


def _cell(line: Line, split: str, target: str) -> str:
    """Format mean and spread, and the number of runs if some are missing; `-` without a mean."""
    mean, spread, runs = (getattr(line, f"{split}{kind}").get(target) for kind in ("", "_sd", "_runs"))
    if mean is None:
        return "-"
    text = rounded_error(mean, spread)
    return text if runs == line.runs else f"{text} ({runs} of {line.runs})"


def _defined(errors: Mapping[str, float | None]) -> dict[str, float | None]:
    """Replace NaN and infinity by None, as JSON does."""
    return {
        name: None if value is None or not math.isfinite(value) else value for name, value in errors.items()
    }
