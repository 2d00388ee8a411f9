"""Helpers of the generated tables: result files, Markdown, and means with their spread."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, ROOT

from molslice.bench.attention_result import BenchResult

COSTS = {"linear": "N", "log_linear": "N log N", "n_sqrt_n": "N sqrt N", "quadratic": "N^2"}

Entry = Mapping[str, Any]
Column = str | Callable[[Any], str]


def load(name: str) -> dict[str, Any]:
    """Return the content of one result file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def crossing_texts(sequences: dict[str, Any], baseline: str = "softmax") -> dict[str, dict[str, str]]:
    """Return the crossings of a result of `molslice bench` as text, by attention, then by quantity."""
    texts: dict[str, dict[str, str]] = {}
    for crossing in BenchResult.of_mapping(sequences, "the recorded result").crossings(baseline):
        texts.setdefault(crossing.attention, {})[crossing.quantity] = crossing.to_text()
    return texts


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with the first column aligned left and all others aligned right."""
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def left_aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with all columns aligned left."""
    return markdown(header, rows).replace("---:", ":---")


def grid(entries: Iterable[Any], columns: Mapping[str, Column]) -> str:
    """Return a Markdown table with one row for each entry of a result.

    Args:
        entries: The entries.
        columns: For each title, the format string or the function that makes the cell of an entry.
    """

    def make(column: Column, entry: Any) -> str:  # noqa: ANN401
        return column.format_map(entry) if isinstance(column, str) else column(entry)

    return markdown(
        list(columns), [[make(column, entry) for column in columns.values()] for entry in entries]
    )


def mean_and_sd(values: Entry, digits: int, scale: float = 1.0) -> str:
    """Return a mean and, for several seeds, the standard deviation over them."""
    numbers = [scale * number for number in (values["mean"], values["sd"]) if number is not None]
    return " ± ".join(f"{number:.{digits}f}" for number in numbers)


def cell(values: Entry | None) -> str:
    """Return mean and standard deviation with three digits, without a deviation of zero; `-` for None."""
    return "-" if values is None else mean_and_sd({"mean": values["mean"], "sd": values.get("sd") or None}, 3)


def percent(values: Entry) -> str:
    """Return mean and standard deviation in percent."""
    return mean_and_sd(values, 1, 100)


def decimal(value: float | None) -> str:
    """Return a number with one decimal; empty for None."""
    return "" if value is None else f"{value:.1f}"


def write_or_check(description: str | None, program: str, make: Callable[[], Mapping[Path, str]]) -> int:
    """Run a program that generates files: check them, or write them with `--write`.

    Args:
        description: The docstring of the program.
        program: Its path, for the message.
        make: Generates the content of each file.

    Returns:
        The exit code: 1 if a file is out of date.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the files that are out of date")
    write = parser.parse_args().write
    texts = make()
    outdated = [
        path for path in texts if not path.exists() or path.read_text(encoding="utf-8") != texts[path]
    ]
    if not write and outdated:
        names = ", ".join(str(path.relative_to(ROOT)) for path in outdated)
        print(f"{names}: out of date; run {program} --write", file=sys.stderr)
        return 1
    for path in outdated:
        path.write_text(texts[path], encoding="utf-8")
    return 0
