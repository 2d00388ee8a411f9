"""Parts of the generated tables: result files, Markdown, and means with their spread."""

import json
from pathlib import Path
from typing import Any

from molslice.bench.result import BenchResult

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COSTS = {"linear": "N", "log_linear": "N log N", "n_sqrt_n": "N sqrt N", "quadratic": "N^2"}


def load(name: str) -> dict[str, Any]:
    """Return the content of one result file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def crossing_texts(sequences: dict[str, Any], baseline: str = "softmax") -> dict[str, dict[str, str]]:
    """Return the crossings of a result of `molslice bench` as text, by attention, then by quantity."""
    texts: dict[str, dict[str, str]] = {}
    for crossing in BenchResult.of_mapping(sequences, "the recorded result").crossings(baseline):
        texts.setdefault(crossing.attention, {})[crossing.quantity] = crossing.to_text()
    return texts


def cell(values: dict[str, Any]) -> str:
    """Return mean and standard deviation over seeds as text."""
    mean = values.get("mean", values.get("mae_mean"))
    spread = values.get("sd", values.get("mae_sd"))
    return f"{mean:.3f} ± {spread:.3f}" if spread else f"{mean:.3f}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with the first column aligned left and all others aligned right."""
    lines = [header, [":---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def left_aligned(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with all columns aligned left."""
    return markdown(header, rows).replace("---:", ":---")


def percent(values: dict[str, Any]) -> str:
    """Return the mean and, for several seeds, the standard deviation, in percent."""
    spread = f" ± {100 * values['sd']:.1f}" if values["sd"] is not None else ""
    return f"{100 * values['mean']:.1f}{spread}"


def perplexity(values: dict[str, Any]) -> str:
    """Return mean and standard deviation over seeds as text."""
    return f"{values['mean']:.1f}" + (f" ± {values['sd']:.1f}" if values["sd"] else "")
