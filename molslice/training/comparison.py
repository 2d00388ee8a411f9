"""The result of a comparison: one line for each entry, as CSV, Markdown, JSON and a plot."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from molslice.inference.json_text import to_json
from molslice.inference.run_folder import write_atomically
from molslice.tasks.metrics import METRIC_LABELS
from molslice.types import MolsliceError

__all__ = ["Comparison", "Line", "Result", "markdown_table"]


@dataclass(frozen=True, slots=True)
class Result:
    """One finished run. `valid` and `test` are errors by target, in the targets' units.

    An error is None where it is not defined, as an area under a curve is where all cases are of one class.
    `data` is the name of the data set, `test_rows` how many rows its test split has, `fold` the one that it
    was tested on, None where the data were not divided into folds.
    """

    label: str
    run: str
    seed: int
    metric: str
    units: dict[str, str]
    parameters: int
    parameters_without_embeddings: int
    valid: dict[str, float | None]
    test: dict[str, float | None]
    seconds: float
    steps: int
    rows_per_second: float
    noun: str  # what a row is
    data: str
    test_rows: int
    fold: int | None = None

    @classmethod
    def of_run(
        cls, label: str, run: Path, data: str, summary: dict[str, Any], fold: int | None = None
    ) -> "Result":
        """From the name of the data set and what `summary.json` holds.

        Raises:
            MolsliceError: it lacks something.
        """
        try:
            metric = summary["metric"]
            same = ("parameters", "parameters_without_embeddings", "seconds", "steps")
            same += ("rows_per_second", "noun")
            return cls(
                label=label,
                run=str(run),
                seed=summary["seed"],
                metric=metric,
                units=dict(summary["units"]),
                valid=_defined(summary["valid"][metric]),
                test=_defined(summary["test"][metric] or {}),  # data may have no labels for the test
                data=data,
                test_rows=summary["test"].get("of", 0),
                fold=fold,
                **{key: summary[key] for key in same},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise MolsliceError(f"the summary of {run} lacks {error}") from error


@dataclass(frozen=True, slots=True)
class Line:
    """One entry over its seeds or folds: means, and the standard deviation over them (None for a single one).

    Both are over the runs in which an error is defined, as many as `valid_runs` and `test_runs` tell; a mean
    over none is None. `folds` is 0 where the runs differ in their seeds.
    """

    label: str
    seeds: int
    parameters: int
    parameters_without_embeddings: int
    valid: dict[str, float | None]
    valid_sd: dict[str, float | None]
    valid_runs: dict[str, int]
    test: dict[str, float | None]
    test_sd: dict[str, float | None]
    test_runs: dict[str, int]
    seconds: float
    steps: int
    rows_per_second: float
    folds: int = 0

    @property
    def runs(self) -> int:
        """Seeds, or folds: what the standard deviation is over."""
        return self.folds or self.seeds


@dataclass(slots=True)
class Comparison:
    """Finished runs, and the entries that failed with the reason."""

    results: list[Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse runs that do not measure the same thing.

        Raises:
            MolsliceError: another metric, other targets or data than those of the first run, runs with and
                without folds, or a fold that a label has twice.
        """
        first = self.results[0]
        names = ", ".join(first.units)
        for result in self.results:
            if (result.metric, result.units) != (first.metric, first.units):
                raise MolsliceError(
                    f"{result.run} measures {result.metric} of {', '.join(result.units)}, {first.run} "
                    f"measures {first.metric} of {names}; only runs with the same targets compare"
                )
            if (result.fold is None) != (first.fold is None):
                raise MolsliceError(f"of {first.run} and {result.run} only one was tested on a fold")
            differs = result.fold is None and result.test_rows != first.test_rows  # folds differ by a row
            if result.data != first.data or differs:
                raise MolsliceError(
                    f"{result.run} was tested on {result.test_rows} rows of {result.data}, {first.run} on "
                    f"{first.test_rows} of {first.data}; only runs on the same data compare"
                )
        places = [(result.label, result.fold) for result in self.results if result.fold is not None]
        for label, fold in places:
            if places.count((label, fold)) > 1:
                raise MolsliceError(f"{label} has fold {fold} twice; a spread over folds takes each once")

    @property
    def repeated(self) -> str:
        """What the runs of a label differ in: seeds or folds."""
        return "seeds" if self.results[0].fold is None else "folds"

    def lines(self) -> list[Line]:
        """One line for each label, in the order of the entries."""
        labels = dict.fromkeys(result.label for result in self.results)
        return [_line([r for r in self.results if r.label == label]) for label in labels]

    def to_mapping(self) -> dict[str, Any]:
        """What `comparison.json` holds."""
        first = self.results[0]
        return {
            "metric": first.metric,
            "units": first.units,
            "spread_over": self.repeated,
            "entries": [asdict(line) for line in self.lines()],
            "runs": [asdict(result) for result in self.results],
            "failed": self.failed,
        }

    def write(self, folder: Path) -> None:
        """`table.csv`, `table.md`, `comparison.json`, `compare.png`, `compare.svg`.

        Raises:
            MolsliceError: a file cannot be written; what stood there before is left.
        """
        from molslice.training.figure import draw_comparison

        self.check()
        write_atomically(folder / "comparison.json", to_json(self.to_mapping()))
        write_atomically(folder / "table.csv", self._to_csv())
        write_atomically(folder / "table.md", self.to_text())
        for suffix in ("png", "svg"):
            write_atomically(folder / f"compare.{suffix}", draw_comparison(self, suffix))

    def to_text(self) -> str:
        """The table in Markdown, its columns aligned."""
        first = self.results[0]
        metric = METRIC_LABELS[first.metric]
        header = ["attention", "parameters", "without embeddings"]
        for target, unit in first.units.items():
            name = "" if len(first.units) == 1 else f" {target}"
            header += [f"{split} {metric}{name}{f' ({unit})' if unit else ''}" for split in ("valid", "test")]
        header += [f"{first.noun}/s", "steps", self.repeated]
        rows = [_cells(line, list(first.units)) for line in self.lines()]
        return markdown_table(header, rows)

    def _to_csv(self) -> str:
        first = self.results[0]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        targets = [
            (split, target, f"{split}_{first.metric}_{target}" + (f"_{unit}" if unit else ""))
            for target, unit in first.units.items()
            for split in ("valid", "test")
        ]
        columns = [f"{name}{kind}" for _, _, name in targets for kind in ("", "_sd", "_runs")]
        same = [
            "parameters",
            "parameters_without_embeddings",
            self.repeated,
            "seconds",
            "steps",
            "rows_per_second",
        ]
        writer.writerow(["attention", *same, *columns])
        for line in self.lines():
            values = [
                getattr(line, f"{split}{kind}").get(target)
                for split, target, _ in targets
                for kind in ("", "_sd", "_runs")
            ]
            numbers = [*(getattr(line, name) for name in same), *values]
            cells = (f"{number:.8g}" if isinstance(number, float) else number for number in numbers)
            writer.writerow([line.label, *cells])
        return stream.getvalue()


def _line(results: Sequence[Result]) -> Line:
    first = results[0]

    def over(take: Callable[[Result], float]) -> float:
        return statistics.fmean(take(result) for result in results)

    def errors(
        split: str,
    ) -> tuple[dict[str, float | None], dict[str, float | None], dict[str, int]]:
        means, spreads, counts = {}, {}, {}
        for target in getattr(first, split):
            every = [getattr(result, split).get(target) for result in results]
            values = [value for value in every if value is not None]
            means[target] = statistics.fmean(values) if values else None
            spreads[target] = statistics.stdev(values) if len(values) > 1 else None
            counts[target] = len(values)
        return means, spreads, counts

    valid, valid_sd, valid_runs = errors("valid")
    test, test_sd, test_runs = errors("test")
    return Line(
        label=first.label,
        seeds=len({result.seed for result in results}) if first.fold is not None else len(results),
        parameters=first.parameters,
        parameters_without_embeddings=first.parameters_without_embeddings,
        valid=valid,
        valid_sd=valid_sd,
        valid_runs=valid_runs,
        test=test,
        test_sd=test_sd,
        test_runs=test_runs,
        seconds=over(lambda result: result.seconds),
        steps=round(over(lambda result: result.steps)),
        rows_per_second=over(lambda result: result.rows_per_second),
        folds=0 if first.fold is None else len(results),
    )


def _cells(line: Line, targets: Sequence[str]) -> list[str]:
    cells = [line.label, f"{line.parameters:,}", f"{line.parameters_without_embeddings:,}"]
    for target in targets:
        cells.append(_cell(line, "valid", target))
        cells.append(_cell(line, "test", target))
    return [*cells, f"{line.rows_per_second:,.0f}", f"{line.steps:,}", str(line.runs)]


def _cell(line: Line, split: str, target: str) -> str:
    """Mean and spread, and over how many runs where it is not over all; a dash where there is none."""
    mean, spread, runs = (getattr(line, f"{split}{kind}").get(target) for kind in ("", "_sd", "_runs"))
    if mean is None:
        return "-"
    text = f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"
    return text if runs == line.runs else f"{text} ({runs} of {line.runs})"


def _defined(errors: Mapping[str, float | None]) -> dict[str, float | None]:
    """None for what is no number; JSON has it as null already."""
    return {
        name: None if value is None or not math.isfinite(value) else value for name, value in errors.items()
    }


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join([first, *rest])} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)]) + "\n"
