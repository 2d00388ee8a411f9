"""The measuring core: run jobs in interleaved rounds, keep each measurement in a folder, summarize by entry.

A kind of measurement consists of a `Job` with its worker, of the `Task`s of a plan, and of a `Result`.
"""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from molslice.bench.job import Job, Settings, run_job
from molslice.bench.machine import check_device
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.progress import Progress
from molslice.files.text_tables import markdown_table
from molslice.inference.json_text import to_json
from molslice.training.threads import default_threads
from molslice.types import MolsliceError

GIGA = 1e9
LARGEST = 2**63  # of a number in a result file
UNKNOWN = "-"
RATE = "molecules_per_second"
OUTCOMES = {"OOM": "OOM", "failed": "failed", "missing": "..."}  # their texts in tables

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Settings):
    """What to measure. A subclass adds the entries.

    Attributes:
        threads: Number of CPU threads; None for the number that a training takes, which is fewer with a GPU.
        rounds: Measurements of each entry.

    Raises:
        MolsliceError: The device is unknown or not available.
    """

    threads: int | None = None
    rounds: int = 3

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.threads is None:
            object.__setattr__(self, "threads", default_threads(torch.device(self.device)))

    def subset(self, *names: str) -> dict[str, Any]:
        """Return some of the settings by name."""
        return {name: getattr(self, name) for name in names}


class Task(NamedTuple):
    """One measurement of a plan.

    Attributes:
        key: The entry, with a value for each name in `Result.KEY`.
        round: Index of the round, from 0.
        job: What the worker measures.
        label: The entry in messages.
    """

    key: Key
    round: int
    job: Job
    label: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one job.

    Attributes:
        key: The entry.
        round: Index of the round, from 0.
        outcome: `ok` with numbers, or `OOM` or `failed` with a reason.
        reason: Why there are no numbers; None for `ok`.
        numbers: Numbers by name, see `Result.NUMBERS`.
    """

    key: Key
    round: int
    outcome: str
    reason: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def ratio(self, numerator: str, denominator: str) -> float | None:
        """Return the ratio of two numbers; None if one is missing or the second is 0."""
        dividend, divisor = self.numbers.get(numerator), self.numbers.get(denominator)
        return None if dividend is None or not divisor else dividend / divisor


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over the rounds.

    Attributes:
        median: The median.
        min: The smallest value.
        max: The largest value.
    """

    median: float
    min: float
    max: float

    @classmethod
    def over(cls, values: Sequence[float | None]) -> "Spread | None":
        """Return the spread of the values, or None if one of them is missing."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return cls(statistics.median(known), min(known), max(known))


def spread_of(rounds: Sequence[Measurement], name: str, per: str | None = None) -> Spread | None:
    """Return the spread of a number over the rounds, or of its ratio to the number `per`."""
    return Spread.over(
        [measurement.ratio(name, per) if per else measurement.numbers.get(name) for measurement in rounds]
    )


@dataclass(frozen=True, slots=True)
class Row:
    """An entry, over the rounds.

    Attributes:
        key: The entry.
        outcome: `ok`, `OOM`, `failed`, or `missing` if it is not measured yet.
        reason: Why there are no numbers; None for `ok`.
        rounds: Number of rounds.
        numbers: Result of `Result.summarize`: spreads and numbers by name, all None without `ok`.
    """

    key: Key
    outcome: str
    reason: str | None
    rounds: int
    numbers: dict[str, Any]

    @property
    def label(self) -> str:
        """The entry as text."""
        return " ".join(map(str, self.key))


@dataclass(kw_only=True)
class Result(ABC):
    """Measurements with their conditions.

    A subclass adds fields; all except `entries` and `sizes` are written to the result file.

    Attributes:
        FILE: Name of the result file.
        KEY: Names and types of the values of a key.
        NUMBERS: Names of the numbers of a measurement.
        FAILURES: Outcomes for which a command fails.
        conditions: Settings that all measurements share.
        machine: Description of the machine, see `describe_machine`.
        interrupted: Whether the measurements were interrupted.
        measurements: The measurements so far.
    """

    FILE: ClassVar[str]
    KEY: ClassVar[Mapping[str, type]]
    NUMBERS: ClassVar[tuple[str, ...]]
    FAILURES: ClassVar[tuple[str, ...]] = ("failed",)

    conditions: dict[str, Any]
    machine: dict[str, str]
    interrupted: bool = False
    measurements: list[Measurement] = field(default_factory=list)

    @abstractmethod
    def to_markdown(self) -> str:
        """Return the tables, the conditions of the measurement, and the reasons for missing numbers."""

    @abstractmethod
    def keys(self) -> list[Key]:
        """Return the keys of the rows."""

    @abstractmethod
    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return the numbers of a row.

        Args:
            key: The entry.
            rounds: Its measurements, all of them `ok`. Without any, all numbers are None.
        """

    def rows(self) -> list[Row]:
        """Return a row for each entry. A round that failed or was out of memory determines its outcome."""
        rounds: dict[Key, list[Measurement]] = {}
        for measurement in self.measurements:
            rounds.setdefault(measurement.key, []).append(measurement)
        return [self._row(key, rounds.get(key, [])) for key in self.keys()]

    def _row(self, key: Key, rounds: list[Measurement]) -> Row:
        failures = [
            measurement
            for outcome in ("OOM", "failed")
            for measurement in rounds
            if measurement.outcome == outcome
        ]
        if failures or not rounds:
            outcome, reason = (failures[0].outcome, failures[0].reason) if failures else ("missing", None)
            return Row(key, outcome, reason, len(rounds), self.summarize(key, []))
        return Row(key, "ok", None, len(rounds), self.summarize(key, rounds))

    def failures(self) -> dict[str, str]:
        """Return the reason of each entry for which the command fails."""
        return {row.label: f"with {row.reason}" for row in self.rows() if row.outcome in self.FAILURES}

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the result file."""
        names = [
            attribute.name
            for attribute in fields(self)
            if attribute.name not in ("entries", "sizes", "measurements")
        ]
        return {
            **{name: getattr(self, name) for name in names},
            "rows": [self._flat(row, ("outcome", "reason", "rounds"), row.numbers) for row in self.rows()],
            "measurements": [
                self._flat(measurement, ("round", "outcome", "reason"), self.NUMBERS)
                for measurement in self.measurements
            ],
        }

    def _flat(
        self, record: Row | Measurement, names: Iterable[str], numbers: Iterable[str]
    ) -> dict[str, Any]:
        values = asdict(record)
        return {
            **dict(zip(self.KEY, values["key"], strict=True)),
            **{name: values[name] for name in names},
            **{name: values["numbers"].get(name) for name in numbers},
        }

    @classmethod
    def read_measurement(cls, mapping: dict[str, Any], source: str) -> Measurement:
        """Construct a measurement from its form in the result file.

        Args:
            mapping: The entry of the file.
            source: Name of the file, for the message.

        Raises:
            MolsliceError: The mapping has other names or types, or a number out of range.
        """
        numbers = dict.fromkeys(cls.NUMBERS, float | int | None)
        kinds = {**cls.KEY, "round": int, "outcome": str, "reason": str | None, **numbers}
        try:
            for name, value in mapping.items():
                if not isinstance(value, kinds[name]) or not _is_in_range(name, value):
                    raise TypeError(f"{name} is {value!r:.80}")
            key = tuple(mapping[name] for name in cls.KEY)
            values = {name: mapping.get(name) for name in cls.NUMBERS}
            return Measurement(key, mapping["round"], mapping["outcome"], mapping.get("reason"), values)
        except (TypeError, KeyError) as error:
            raise MolsliceError(f"invalid measurement in {source}: {error}") from error


def _is_in_range(name: str, value: object) -> bool:
    if not isinstance(value, int | float):
        return True
    can_be_zero = name == "waiting_seconds" or not name.endswith("_seconds")
    return 0 <= value <= LARGEST and (value > 0 or can_be_zero)


def run_rounds(
    result: Result,
    tasks: Iterable[Task],
    folder: Path | str | None,
    *,
    tell: Callable[[str], None],
    quiet: bool,
    to_files: Callable[[], Mapping[str, str | bytes]] = dict,
    is_kept: Callable[[Measurement], bool] = lambda measurement: measurement.outcome == "ok",
) -> None:
    """Measure all tasks, each in a new process, and add the measurements to the result.

    Kept measurements of `folder` are not repeated. An entry that failed or was out of memory is not measured
    again in later rounds. Ctrl-C ends the measurements but not the function: the result is marked
    `interrupted`, and a second call with the same folder continues.

    Args:
        result: The result, without measurements.
        tasks: The measurements in order.
        folder: Folder of the result file, which is written after every measurement, and of `table.md`. None
            writes no files.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.
        to_files: Returns the content of further files by name, which are written at the end.
        is_kept: Whether a measurement of an earlier call is kept; by default those with numbers.

    Raises:
        MolsliceError: The file holds measurements of another machine or under other conditions, or it cannot
            be read or written.
    """
    with ExitStack() as exits:
        file = None if folder is None else Path(folder) / result.FILE
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            exits.enter_context(lock_folder(file.parent))
            result.measurements += filter(is_kept, _read_measurements(file, result))
        try:
            _measure_all(result, list(tasks), file, tell, quiet)
        except KeyboardInterrupt:
            result.interrupted = True
        if file is not None:
            write_atomically(file, to_json(result.to_mapping()))
            for name, content in {"table.md": result.to_markdown(), **to_files()}.items():
                write_atomically(file.parent / name, content)


def _measure_all(
    result: Result, tasks: list[Task], file: Path | None, tell: Callable[[str], None], quiet: bool
) -> None:
    done = {(measurement.key, measurement.round) for measurement in result.measurements}
    failed = {measurement.key for measurement in result.measurements if measurement.outcome != "ok"}
    with Progress("bench", len(tasks), "measurements", shown=not quiet) as bar:
        for key, number, job, label in tasks:
            if (key, number) not in done and key not in failed:
                bar.annotate(label)
                numbers = {"budget_bytes": job.budget_bytes, **run_job(job)}
                measurement = Measurement(
                    key, number, numbers.pop("outcome"), numbers.pop("reason", None), numbers
                )
                result.measurements.append(measurement)
                if measurement.outcome != "ok":
                    failed.add(key)
                    tell(f"{label}: {measurement.outcome}, {measurement.reason}")
                if file is not None:
                    write_atomically(file, to_json(result.to_mapping()))
            bar.update()


def _read_measurements(file: Path, result: Result) -> list[Measurement]:
    """Read the measurements of an earlier call; empty if there is no file."""
    if not file.is_file():
        return []
    kept = read_json_object(file)
    lines = kept.get("measurements")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise MolsliceError(f"{file} is not a result of `molslice bench`")
    for what, now in (("conditions", result.conditions), ("machine", result.machine)):
        if not isinstance(before := kept.get(what), dict):
            raise MolsliceError(f"{file} is not a result of `molslice bench`")
        for name in now.keys() | before.keys():
            if before.get(name) != now.get(name):
                raise MolsliceError(
                    f"{file} was measured with {name} {before.get(name)!r}, now it is {now.get(name)!r}; "
                    "choose another folder"
                )
    return [result.read_measurement(line, str(file)) for line in lines]


class Column(NamedTuple):
    """A column of a table of rows.

    Attributes:
        title: The title.
        name: Name of the number of a row.
        to_text: Formats the number, or the median of its rounds.
    """

    title: str
    name: str
    to_text: Callable[[float], str]


def row_table(
    keys: Iterable[str], columns: Sequence[Column], rows: Sequence[Row], *, hides_empty: bool
) -> str:
    """Return rows as a Markdown table. A row without numbers has its outcome in the column `RATE`.

    Args:
        keys: Names of the values of a key.
        columns: The other columns.
        rows: The rows.
        hides_empty: Whether columns without any number are left out.
    """

    def text(row: Row, column: Column) -> str:
        if column.name == RATE and row.outcome != "ok":
            return OUTCOMES[row.outcome]
        return cell_text(row, column.name, column.to_text)

    is_empty = {column: all(text(row, column) == UNKNOWN for row in rows) for column in columns}
    shown = [column for column in columns if not (hides_empty and is_empty[column])]
    header = [*keys, *(column.title for column in shown)]
    return markdown_table(
        header, [[*map(str, row.key), *(text(row, column) for column in shown)] for row in rows]
    )


def cell_text(row: Row, name: str, to_text: Callable[[float], str]) -> str:
    """Return a number of a row as text, or the median of its rounds; `-` without one."""
    value = row.numbers[name]
    value = value.median if isinstance(value, Spread) else value
    return UNKNOWN if value is None else to_text(value)


def number_text(divisor: float = 1.0) -> Callable[[float], str]:
    """Return a function that formats a number divided by `divisor`, with three digits."""
    return lambda value: f"{value / divisor:,.0f}" if value / divisor >= 100 else f"{value / divisor:.3g}"
