"""Run jobs in interleaved rounds and keep each measurement in a folder."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from molslice.bench.job import Request
from molslice.bench.process import run_job
from molslice.bench.result import from_mapping
from molslice.bench.run import read_measurements
from molslice.files.atomic import write_atomically
from molslice.files.lock import lock_folder
from molslice.files.progress import Progress
from molslice.inference.json_text import to_json

__all__ = ["Result", "run_rounds"]

Key = tuple[str, ...]


class Result(Protocol):
    """Measurements with their conditions.

    Attributes:
        conditions: Settings that all measurements share.
        machine: Description of the machine.
        interrupted: Whether the measurements were interrupted.
        measurements: The measurements so far.
    """

    conditions: dict[str, Any]
    machine: dict[str, str]
    interrupted: bool
    measurements: list[Any]

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the result file."""
        ...


def run_rounds(
    result: Result,
    record: Any,  # noqa: ANN401
    jobs: Iterable[tuple[Key, int, Request]],
    file: Path | None,
    *,
    to_markdown: Callable[[Any], str],
    tell: Callable[[str], None],
    quiet: bool,
) -> None:
    """Measure all jobs, each in a new process, and add the measurements to the result.

    Measurements in `file` are kept, except those without numbers. An entry that failed or was out of memory
    is not measured again in later rounds. Ctrl-C ends the measurements but not the function: the result is
    marked `interrupted`, and a second call with the same file continues.

    Args:
        result: The result, without measurements.
        record: Dataclass of a measurement. Its first fields are the key of an entry, then the round, the
            outcome and the reason.
        jobs: Key of the entry, round and job, in order.
        file: The result file, written after every measurement. The table is written beside it as `table.md`.
            None writes no files.
        to_markdown: Formats the table of the result.
        tell: Receives a line for each measurement without numbers.
        quiet: Whether to hide the progress bar.

    Raises:
        MolsliceError: The file holds measurements of another machine or under other conditions, or it cannot
            be read or written.
    """
    with ExitStack() as exits:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            exits.enter_context(lock_folder(file.parent))
            own = {"conditions": result.conditions, "machine": result.machine}
            kept = [from_mapping(record, one, str(file)) for one in read_measurements(file, own)]
            result.measurements += [one for one in kept if one.outcome == "ok"]
        try:
            _measure_all(result, record, list(jobs), file, tell, quiet)
        except KeyboardInterrupt:
            result.interrupted = True
        if file is not None:
            write_atomically(file, to_json(result.to_mapping()))
            write_atomically(file.parent / "table.md", to_markdown(result))


def _measure_all(
    result: Result,
    record: Any,  # noqa: ANN401
    jobs: list[tuple[Key, int, Request]],
    file: Path | None,
    tell: Callable[[str], None],
    quiet: bool,
) -> None:
    done = {(one.key, one.round) for one in result.measurements}
    bad: set[Key] = set()
    with Progress("bench", len(jobs), "measurements", shown=not quiet) as bar:
        for key, number, job in jobs:
            if (key, number) not in done and key not in bad:
                bar.annotate(" ".join(key))
                one = record(*key, number, **run_job(job))
                result.measurements.append(one)
                if one.outcome != "ok":
                    bad.add(key)
                    tell(f"{' '.join(key)}: {one.outcome}, {one.reason}")
                if file is not None:
                    write_atomically(file, to_json(result.to_mapping()))
            bar.update()
