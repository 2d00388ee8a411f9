"""Tables of the documentation from the results on sequences; `result_tables.py` writes them."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from tables import COSTS, RESULTS, ROOT, load, markdown, percent, perplexity

MEASURED = re.compile(r"^# Measured: .*?\(benchmarks/results/\w+\.json\)\.\n", re.DOTALL | re.MULTILINE)

# experiment -> title in the table
TASKS = {
    "listops": "ListOps, 50 to 200 symbols",
    "pathfinder": "Pathfinder, 16 x 16, at chance",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10, JPEG copy",
    "r8": "R8",
    "imdb": "IMDB, 256 words",
    "japanese_vowels": "JapaneseVowels",
    "uwave": "UWaveGestureLibrary",
}
# experiments with the configuration of another experiment, whose result is in its header
FURTHER = ("listops_orders", "listops_flow", "listops_others", "r8_others", "r8_ranks", "imdb_others")
COLUMNS = (
    "softmax",
    "slice_sort",
    "slice_sort:order=interleave",
    "flow",
    "singular",
    "slice_sort:order=shuffle",
    "identity",
)


def sequence_tasks() -> str:
    """Return the accuracy of each recorded experiment, with the published numbers in the next row."""
    rows = []
    for name, title in TASKS.items():
        if not (RESULTS / f"task_{name}.json").is_file():
            continue
        result = load(f"task_{name}")
        entries = {entry["label"]: entry for entry in result["entries"]}
        minutes = [entry["seconds"] / 60 for entry in entries.values()]
        rows.append(
            [
                f"{title} ({entries['softmax']['seeds']} seeds)".replace("(1 seeds)", "(1 seed)"),
                *(percent(entries[column]["test"]) if column in entries else "" for column in COLUMNS),
                f"{min(minutes):.1f} to {max(minutes):.1f}",
                in_order(result["order"]),
            ]
        )
        published = [entries[column]["published"] if column in entries else None for column in COLUMNS]
        if any(published):
            shares = ["" if share is None else f"{100 * share:.2f}" for share in published]
            rows.append(["published", *shares, "", ""])
    names = [f"`{column.removeprefix('slice_sort:')}`" for column in COLUMNS]
    return markdown(["accuracy (%)", *names, "minutes", "pairs in the published order"], rows)


def in_order(order: dict[str, Any]) -> str:
    """Return the number of pairs of attentions with the published order, out of all pairs."""
    return f"{order['pairs'] - len(order['turned'])} of {order['pairs']}" if order["pairs"] else ""


def language() -> str:
    """Return the perplexity of the small language models."""
    result = load("task_wikitext2")
    rows = [
        [
            f"`{entry['label']}`",
            f"{entry['parameters']:,}",
            perplexity(entry["test"]),
            "" if entry["published"] is None else f"{entry['published']:.1f}",
        ]
        for entry in result["entries"]
    ]
    return markdown(["", "parameters", "perplexity", "WikiText-103, published"], rows)


def long_inputs() -> str:
    """Return memory and time of training on 16,384 tokens."""
    rows = []
    for row in load("long_inputs")["rows"]:
        found = row["plain"]
        numbers = [f"{found['gb']:.2f}", f"{found['seconds_a_picture']:.1f}"]
        rows.append([f"`{row['attention']}`", COSTS[row["cost"]], *numbers])
    rows.sort(key=lambda row: (list(COSTS.values()).index(row[1]), row[0]))
    return markdown(["", "cost", "memory (GB)", "seconds per image"], rows)


def headers() -> dict[Path, str]:
    """Return the measured configurations with regenerated results in their headers.

    Raises:
        ValueError: The header of a configuration has no results to replace.
    """
    found = {}
    for file in sorted(RESULTS.glob("task_*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        if file.stem.removeprefix("task_") in FURTHER:
            continue
        path = ROOT / "configs" / result["config"]
        text = path.read_text(encoding="utf-8")
        if not MEASURED.search(text):
            raise ValueError(f"{path}: missing comment '# Measured: ... (benchmarks/results/{file.name}).'")
        lines = textwrap.fill(measured(result, file.name), 118, initial_indent="# ", subsequent_indent="# ")
        found[path] = MEASURED.sub(lambda _, lines=lines: f"{lines}\n", text)
    return found


def measured(result: dict[str, Any], file: str) -> str:
    """Return the sentence of a header with seeds, time per run, and the result of each attention."""
    entries = result["entries"]
    show, what = percent, "test accuracy in %"
    if result["lower_is_better"]:
        show, what = perplexity, "test perplexity"
    seeds = " or ".join(str(count) for count in sorted({entry["seeds"] for entry in entries}))
    minutes = [entry["seconds"] / 60 for entry in entries]
    numbers = ", ".join(f"{entry['label']} {show(entry['test'])}" for entry in entries)
    return (
        f"Measured: {what}, {'one seed' if seeds == '1' else f'{seeds} seeds'}, {min(minutes):.1f} to "
        f"{max(minutes):.1f} minutes per run on one core: {numbers} (benchmarks/results/{file})."
    )
