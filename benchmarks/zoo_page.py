"""Generate the pages of the attentions, docs/attentions/index.md and details.md, from code and results.

Formulas come from `docs/attentions/formulas.yaml`, promises from the classes' traits, speed and memory from
`benchmarks/results/attention_speed.json`. With `--write` the pages are written. Without it, the program exits
with 1 if one is out of date.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml
from result_tables import load, markdown

from molslice.attention import ATTENTIONS, build_attention
from molslice.types import AttentionSpec, Traits

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "attentions"
PAGE, DETAILS, FORMULAS = (FOLDER / name for name in ("index.md", "details.md", "formulas.yaml"))
DIM, HEADS, TOKENS = 256, 8, 1024
COSTS = {"linear": "N", "log_linear": "N log N", "n_sqrt_n": "N sqrt N", "quadratic": "N^2"}
LENGTHS = (1024, 4096, 16384)

HEAD = """# Attentions

An attention is one file, and the name of the file is its name in a configuration (`attention: {name: flow}`,
`--attention.name flow`). The class docstring states every decision that the paper leaves open. `references/`
holds a slow form of each, which the fast form equals in float64, in values and gradients.

## Formulas and sources

Q, K and V are linear maps of the tokens X, C is the number of channels of a head, n the number of real
tokens, and S + E the pair bias of a molecule. Formulas are per head. Sums run over real tokens.
"""

PROMISES = f"""
## Promises

Each promise is tested, and an attention refuses what it does not promise when it is built. Options can change
what an attention promises; the table is for the defaults.

- Cost: time and memory without a pair bias.
- Order: `any` means that permuting the tokens permutes the result.
- Pair bias: how S + E of a molecule may enter, added to the scores (`logits`) or as softmax(S + E) V in the
  place of V (`mix`).
- Steps: the causal form also runs token by token, from a state whose size does not grow.
- Memory: keys and values may come from another sequence.
- Parameters: one layer of width {DIM} with {HEADS} heads, for {TOKENS:,} tokens where they depend on the
  length.
"""

MEASURED = """
## Measured

Training steps on {threads} threads of {cpu}: {layers} layers of width {dim}, {tokens:,} tokens per batch (at
least one sequence), float32, medians of interleaved rounds ({rounds}), each in a process of its own. Speed is
the ratio to `softmax` through `scaled_dot_product_attention`; above 1 is faster. Memory is the peak of the
resident set at {at:,} tokens, less what the process uses before the measurement. `crossing` is the length
above which the attention trains faster than `softmax`.
"""


def formula_of(name: str) -> str:
    """The formula in LaTeX, between dollar signs."""
    return f"${yaml.safe_load(FORMULAS.read_text(encoding='utf-8'))[name]}$"


def formulas() -> str:
    """Name, formula and source."""
    rows = [
        [f"`{name}`", f"{formula_of(name)}<br>{ATTENTIONS.find(name).traits.source}"]
        for name in ATTENTIONS.names()
    ]
    return _left(markdown(["", "formula and source"], rows))


def _left(table: str) -> str:
    return table.replace("---:", ":---")


def promises() -> str:
    """Traits and parameters."""
    rows = []
    for name in ATTENTIONS.names():
        traits = ATTENTIONS.find(name).traits
        rows.append([f"`{name}`", *describe(traits), f"{count_parameters(name):,}"])
    return markdown(
        ["", "cost", "order", "pair bias", "causal", "steps", "memory", "fixed length", "vmap", "parameters"],
        rows,
    )


def describe(traits: Traits) -> list[str]:
    """The promises in words."""
    modes = [mode for mode in traits.pair_bias if mode != "none"]
    yes = [traits.causal, traits.recurrent, traits.cross, traits.fixed_length, traits.vmap]
    order = "any" if traits.symmetry == "equivariant" else "matters"
    return [COSTS[traits.cost], order, ", ".join(modes) or "-", *("yes" if y else "-" for y in yes)]


def count_parameters(name: str) -> int:
    """Of one layer."""
    attention = build_attention(name, AttentionSpec(dim=DIM, num_heads=HEADS, max_tokens=TOKENS))
    return sum(parameter.numel() for parameter in attention.parameters())


def measured() -> str:
    """Speed against softmax, memory, crossing points."""
    result = load("attention_speed")
    sequences = result["sequences"]
    cells = {(cell["attention"], cell["length"]): cell for cell in sequences["cells"]}
    crossings = {one["attention"]: one["text"] for one in sequences["crossings"]}
    lengths = [length for length in LENGTHS if ("softmax", length) in cells]
    at = max(length for length in lengths if length <= 4096)
    rows = []
    for name in dict.fromkeys(cell["attention"] for cell in sequences["cells"]):
        ratios = [ratio(cells.get((name, length)), cells["softmax", length]) for length in lengths]
        rows.append([f"`{name}`", *ratios, memory(cells.get((name, at))), crossings.get(name, "")])
    conditions = sequences["conditions"]
    head = MEASURED.format(
        threads=conditions["threads"],
        cpu=result["hardware"]["cpu_model"],
        layers=conditions["num_layers"],
        dim=cells["softmax", at]["dim"],
        tokens=cells["softmax", at]["batch_size"] * at,
        rounds=", ".join(f"{cells['softmax', n]['rounds']} at {n:,}" for n in lengths),
        at=at,
    )
    header = ["", *(f"speed at {length:,}" for length in lengths), f"GB at {at:,}", "crossing"]
    return f"{head}\n{markdown(header, rows)}"


def ratio(cell: dict[str, Any] | None, baseline: dict[str, Any]) -> str:
    """Training steps per second over the baseline's."""
    if cell is None or cell["outcome"] == "missing":
        return ""
    if cell["outcome"] != "ok" or baseline["outcome"] != "ok":
        return cell["outcome"]
    speeds = (one["training_steps_per_second"]["median"] for one in (cell, baseline))
    own, other = speeds
    return f"{own / other:.2f}"


def memory(cell: dict[str, Any] | None) -> str:
    """GB of 10^9 bytes."""
    if cell is None or cell.get("peak_bytes") is None:
        return ""
    return f"{cell['peak_bytes']['median'] / 1e9:.2f}"


def make_page() -> str:
    """The overview."""
    return f"{HEAD}\n{formulas()}\n{PROMISES}\n{promises()}\n{measured()}\n"


def make_details() -> str:
    """The page of class docstrings, rendered by mkdocstrings."""
    kinds = {name: ATTENTIONS.find(name) for name in ATTENTIONS.names()}
    members = (f"## {name}\n\n::: {kind.__module__}.{kind.__name__}" for name, kind in kinds.items())
    options = "    options:\n      members: false\n      show_root_heading: false\n"
    return "# Each attention in detail\n\n" + "\n\n".join(f"{member}\n{options}" for member in members)


def main() -> int:
    """Check or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the pages that are out of date")
    pages = {PAGE: make_page(), DETAILS: make_details()}
    behind = [
        path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if parser.parse_args().write:
        for path in behind:
            path.write_text(pages[path], encoding="utf-8")
    elif behind:
        names = ", ".join(path.name for path in behind)
        print(f"{names}: out of date; run benchmarks/zoo_page.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
