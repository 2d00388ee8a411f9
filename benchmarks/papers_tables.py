"""Tables of docs/results/papers.md: the results of the papers beside ours, and the order of the attentions.

`papers.yaml` has the published numbers and the state of each column.
"""

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from scipy import stats
from tables import RESULTS, left_aligned, load, markdown

from molslice.bench.published import LENGTHS, PUBLISHED, SETTING

STATES = {
    "measured": "measured",
    "reduced": "measured with reduced settings",
    "open": "not measured",
    "no_data": "no data here",
}
DEFAULTS = re.compile(r":(order=ascending|form=sort_of_mix|placement=index)")
LEVEL = 0.95


class Unit(NamedTuple):
    """How numbers of a table are written.

    Attributes:
        scale: Factor from a result file to the table.
        digits: Digits after the decimal point for our results; published numbers keep theirs.
        lower_is_better: True for errors and perplexities.
    """

    scale: float
    digits: int
    lower_is_better: bool


UNITS = {"percent": Unit(100, 1, False), "ev": Unit(1, 3, True), "perplexity": Unit(1, 1, True)}
# title, result file, unit
ABLATIONS = (
    (
        "Orders of `slice_sort` on ListOps with 50 to 200 symbols, accuracy in %",
        "task_listops_orders",
        "percent",
    ),
    ("Orders of `slice_sort` on the embedded molecules, MAE in eV", "orders_gap_xtb", "ev"),
    ("Ablations of `flow` on ListOps with 50 to 200 symbols, accuracy in %", "task_listops_flow", "percent"),
    ("Ranks of `singular` on R8, accuracy in %", "task_r8_ranks", "percent"),
)


class Difference(NamedTuple):
    """Difference of two means with its interval.

    Attributes:
        mean: First mean minus second mean.
        low: Lower bound; NaN for a single seed.
        high: Upper bound; NaN for a single seed.
    """

    mean: float
    low: float
    high: float


def papers() -> str:
    """Return all tables, each with its source and the state of its columns."""
    return "\n\n".join([*map(_section, _tables()), _speed()])


def ablations() -> str:
    """Return the results of the options of one attention, a table for each recorded experiment."""
    return "\n\n".join(
        _ablation(title, file, UNITS[unit])
        for title, file, unit in ABLATIONS
        if (RESULTS / f"{file}.json").is_file()
    )


def _ablation(title: str, file: str, unit: Unit) -> str:
    rows = [
        [f"`{entry['label']}`", f"{entry['parameters']:,}", _ours(entry, "", unit)]
        for entry in load(file)["entries"]
    ]
    seeds = load(file)["entries"][0]["seeds"]
    return f"{title} (`{file}.json`, {seeds} seeds):\n\n{markdown(['', 'parameters', 'ours'], rows)}"


def pairs() -> str:
    """Return how many pairs of attentions have the published order, and each pair with its interval."""
    rows, verdicts = [], []
    for table, column, place in _measured_columns():
        ours = _runs(table["columns"][column]["results"])
        known = [
            (method, row["entry"], row["values"][place])
            for method, row in table["rows"].items()
            if row["values"][place] is not None and row["entry"] in ours and "measure" not in row
        ]
        sign = -1 if UNITS[table["unit"]].lower_is_better else 1
        for (first, entry, value), (second, other, other_value) in itertools.combinations(known, 2):
            published = sign * (float(value) - float(other_value))
            difference = _difference(ours[entry], ours[other])
            verdicts.append(_verdict(published, sign, difference))
            digits = UNITS[table["unit"]].digits
            rows.append(
                [
                    column,
                    f"{first} - {second}",
                    f"{float(value) - float(other_value):+.{digits + 1}f}",
                    _with_interval(difference, UNITS[table["unit"]]),
                    verdicts[-1],
                ]
            )
    counts = {word: verdicts.count(word) for word in ("same", "opposite", "undecided")}
    text = (
        f"Of {len(verdicts)} pairs, {counts['same']} have the published order, {counts['opposite']} the "
        f"opposite order, and {counts['undecided']} are undecided: the interval contains zero, or there is "
        "one seed."
    )
    header = ["data", "pair", "published difference", f"ours ({LEVEL:.0%} interval)", "order"]
    return f"{text}\n\n{left_aligned(header, rows)}"


def _difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the means over seeds, with the interval of Welch's t."""
    mean = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return Difference(mean, float("nan"), float("nan"))
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(sum(parts))
    return Difference(mean, mean - half, mean + half)


def _verdict(published: float, sign: int, difference: Difference) -> str:
    if not (difference.low > 0 or difference.high < 0) or not published:
        return "undecided"
    return "same" if sign * difference.mean * published > 0 else "opposite"


def _tables() -> list[dict[str, Any]]:
    path = Path(__file__).with_name("papers.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _measured_columns() -> list[tuple[dict[str, Any], str, int]]:
    """Return the columns with results, each once for each paper, with their place in the table."""
    return [
        (table, name, place)
        for table in _tables()
        for place, (name, column) in enumerate(table["columns"].items())
        if "results" in column
    ]


def _section(table: Mapping[str, Any]) -> str:
    """Return one table with its source and the state of its columns."""
    columns = table["columns"]
    body = [
        [
            _cell(row, value, column, UNITS[table["unit"]])
            for value, column in zip(row["values"], columns.values(), strict=True)
        ]
        for row in table["rows"].values()
    ]
    names = [
        method if row["entry"] in method else f"{method} (`{row['entry']}`)"
        for method, row in table["rows"].items()
    ]
    if table.get("transposed"):
        rows = [[name, *cells] for name, cells in zip(columns, zip(*body, strict=True), strict=True)]
        grid = markdown(["published / ours", *names], rows)
    else:
        grid = markdown(
            ["published / ours", *columns], [[name, *cells] for name, cells in zip(names, body, strict=True)]
        )
    names_of: dict[str, list[str]] = {}
    for name, column in columns.items():
        names_of.setdefault(_state(column), []).append(name)
    states = "\n".join(f"- {', '.join(same)}: {state}" for state, same in names_of.items())
    return f"## {table['title']}\n\nSource: {table['source'].strip()}\n\n{grid}\n\n{states}"


def _speed() -> str:
    """Return the published speed and memory of attentions, which are measured on a GPU."""
    rows = [
        [
            f"{one.name} (`{entry}`)",
            *(f"{a or '-'} / {b or '-'}" for a, b in zip(one.speed, one.memory, strict=True)),
        ]
        for entry, one in PUBLISHED.items()
    ]
    grid = markdown(["published steps per second / GB", *(f"{length:,} bytes" for length in LENGTHS)], rows)
    source = "Sliceformer (arXiv 2310.17683); batches of 32 on four RTX 3090; `-` is out of memory"
    state = (
        f"- All columns: **not measured**; `molslice bench attention --setting {SETTING}`, ten minutes on a "
        "GPU. [Cost of attentions](attention-cost.md) has the growth with the length on a CPU."
    )
    return f"## Training speed and memory on text\n\nSource: {source}\n\n{grid}\n\n{state}"


def _cell(row: Mapping[str, Any], value: str | None, column: Mapping[str, Any], unit: Unit) -> str:
    """Return the published number and ours."""
    ours = _entries(column.get("results", ())).get(row["entry"])
    if ours is None:
        return value or ""
    return f"{value or ''} / {_ours(ours, row.get('measure', ''), unit)}"


def _ours(entry: Mapping[str, Any], measure: str, unit: Unit) -> str:
    """Return mean and standard deviation over seeds of a result."""
    test = entry[measure or ("test" if "test" in entry else "test_mae")]
    numbers = [unit.scale * number for number in (test["mean"], test["sd"]) if number is not None]
    return " ± ".join(f"{number:.{unit.digits}f}" for number in numbers)


def _with_interval(difference: Difference, unit: Unit) -> str:
    mean, low, high = (f"{unit.scale * bound:+.{unit.digits}f}" for bound in difference)
    return mean if math.isnan(difference.low) else f"{mean} ({low} to {high})"


def _state(column: Mapping[str, Any]) -> str:
    """Return the state of a column, with its reason and its files."""
    files = ", ".join(f"`{file}.json`" for file in column.get("results", ()))
    further = f" Full settings: {column['open']}." if "open" in column else ""
    return f"**{STATES[column['state']]}**{f' ({files})' if files else ''}; {column['why']}.{further}"


def _entries(files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the entries of result files by label; the first file with a label counts."""
    entries: dict[str, dict[str, Any]] = {}
    for file in files:
        for entry in load(file)["entries"]:
            entries.setdefault(DEFAULTS.sub("", entry["label"]), entry)
    return entries


def _runs(files: Sequence[str]) -> dict[str, list[float]]:
    """Return the test results of each seed by label; the first file with a label counts."""
    runs: dict[str, list[float]] = {}
    for file in files:
        values: dict[str, list[float]] = {}
        for run in load(file)["runs"]:
            label = DEFAULTS.sub("", run["label"])
            values.setdefault(label, []).append(run["canonical"] if "canonical" in run else run["value"])
        runs = {**values, **runs}
    return runs
