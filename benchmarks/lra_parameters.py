"""Count the parameters of every attention in each Long Range Arena configuration, relative to softmax.

A result is comparable with the table of the arena if the model has the sizes of its Transformer and at most
10% more parameters. Each attention has its default options. An attention that does not support a
configuration is listed with the reason. No data are read and nothing is trained:

    python benchmarks/lra_parameters.py

Writes benchmarks/results/lra_parameters.json.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from record import record

from molslice.attention import ATTENTIONS
from molslice.config import RunConfig, load_config
from molslice.entries import describe_data
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.types import DataSpec, MolsliceError

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs" / "lra"
MORE_ALLOWED = 0.10


def count(config: RunConfig, attention: AttentionChoice, data: DataSpec) -> dict[str, int]:
    """Count the parameters of each part, with a model on the meta device."""
    with torch.device("meta"):
        return parameters_by_part(build_model(config.model, attention, data))


def compare(config: RunConfig, names: list[str]) -> list[dict[str, Any]]:
    """Return the parameters of each attention, their ratio to softmax, and whether the rule allows them."""
    data = describe_data(config)
    base = count(config, AttentionChoice("softmax"), data)["total"]
    entries: list[dict[str, Any]] = []
    for name in names:
        try:
            parts = count(config, AttentionChoice(name), data)
        except MolsliceError as error:
            entries.append({"attention": name, "refused": str(error)})
            continue
        ratio = parts["total"] / base
        entries.append(
            {
                "attention": name,
                "parameters": parts["total"],
                "layers": parts["layers"],
                "of_softmax": round(ratio, 4),
                "within_rule": ratio <= 1 + MORE_ALLOWED,
            }
        )
    return entries


def show(label: str, entries: list[dict[str, Any]]) -> None:
    """Print the table of one configuration, smallest model first."""
    print(f"\n{label}")
    for entry in sorted(entries, key=lambda entry: entry.get("parameters", 0)):
        if "refused" in entry:
            print(f"  {entry['attention']:20} not available: {entry['refused']}")
            continue
        mark = "" if entry["within_rule"] else f"  more than {100 * MORE_ALLOWED:.0f}% above softmax"
        print(
            f"  {entry['attention']:20} {entry['parameters']:>12,} {100 * entry['of_softmax']:>7.1f}%{mark}"
        )


def main() -> None:
    """Count, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arena = [path for path in sorted(CONFIGS.glob("**/*.yaml")) if not path.stem.endswith("_small")]
    parser.add_argument("--configs", type=Path, nargs="+", default=arena)
    parser.add_argument("--out", default=str(ROOT / "benchmarks" / "results"))
    options = parser.parse_args()
    tables = {}
    for path in options.configs:
        label = str(path.relative_to(CONFIGS)) if path.is_relative_to(CONFIGS) else str(path)
        tables[label] = compare(load_config(path), ATTENTIONS.names())
        show(label, tables[label])
    payload = {
        "question": "parameters of each attention in the arena's configurations, and its rule of 10%",
        "more_allowed": MORE_ALLOWED,
        "configs": tables,
    }
    print(record("lra_parameters", payload, options.out))


if __name__ == "__main__":
    main()
