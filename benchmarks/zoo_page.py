"""Generate docs/attentions/index.md and docs/attentions/details.md from code and results.

Formulas are from `docs/attentions/formulas.yaml`, properties from the traits of the classes, counted
operations from one call of each attention, and speed and memory from the recorded `attention_speed.json`.
`--write` writes the pages. Without it, the program exits with 1 if a page is out of date.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tables import COSTS, ROOT, crossing_texts, left_aligned, load, markdown, write_or_check

from molslice.attention import ATTENTIONS, build_attention
from molslice.attention.base import Traits
from molslice.testing.traits import count_cost
from molslice.types import AttentionSpec, TokenContext

FOLDER = ROOT / "docs" / "attentions"
PAGE, DETAILS, FORMULAS = (FOLDER / name for name in ("index.md", "details.md", "formulas.yaml"))
DIM, HEADS, TOKENS = 256, 8, 1024
EXPECTED = {"linear": 1.0, "log_linear": 1.0, "n_sqrt_n": 1.5, "quadratic": 2.0}  # exponents of N
LENGTHS = (1024, 4096, 16384)
COUNTED_LENGTHS = (512, 1024, 2048)
COUNTED_OPTIONS: dict[str, dict[str, Any]] = {"sinkhorn_blocks": {"block_size": 2}}

HEAD = """# Attentions

Each attention is one file in `molslice/attention/`. The file name is its name in a configuration
(`attention: {name: flow}`, `--attention.name flow`). The class docstring documents every choice that the
paper leaves open. `tests/attention/references/` has a slow implementation of each attention. Tests compare
values and gradients with it in float64.

## Formulas and sources

Q, K and V are linear projections of the tokens X, C is the number of channels per head, n the number of real
tokens, and S + E the pair bias of a molecule. Formulas are for one head. Sums are over real tokens.
"""

PROMISES = f"""
## Properties

Tests check each property. Building an attention with a setting that it does not support raises an error.
Options can change the properties; the table is for the defaults.

- Cost: scaling of time and memory with the number of tokens N, without a pair bias.
- Order: `any` if permuting the tokens permutes the result, `matters` otherwise.
- Pair bias: use of S + E, added to the scores (`logits`) or as softmax(S + E) V instead of V (`mix`).
- Causal: a token can be restricted to depend only on earlier tokens.
- Recurrent: the causal form can also run token by token, with a state of constant size.
- Cross: keys and values can come from another sequence.
- Fixed length: parameters or defaults depend on the largest number of tokens, which must be given.
- vmap: supports `torch.func.vmap`.
- head_dim: heads can have a width other than the width of the tokens divided by the number of heads.
- Parameters: number of parameters of one layer of width {DIM} with {HEADS} heads, for {TOKENS:,} tokens if it
  depends on the length.
"""

MEASURED = """
## Measured

Training steps are measured on {threads} threads of {cpu}, with {layers} layers of width {dim} in float32. A
batch has {tokens:,} tokens, but at least one sequence. Numbers are medians of interleaved rounds ({rounds}),
each in its own process.

- Speed: ratio to `softmax` through `scaled_dot_product_attention`; above 1 is faster.
- Memory: peak of the resident set at {at:,} tokens, minus the resident set before the measurement.
- Crossing: length above which the attention trains faster than `softmax`.
"""


COUNTED = f"""
## Theoretical and measured cost

The first column is the declared scaling of time and memory with the number of tokens N, without a pair bias.
The others are exponents e of N^e. N log N counts as 1.

- Operations: multiplications and additions of matrix products, without sorts. The exponent is fitted to the
  increments between {", ".join(f"{length:,}" for length in COUNTED_LENGTHS)} tokens, so that constant terms
  cancel.
- Largest tensor: number of entries of the largest tensor that an operation returns, at the same lengths.
  `softmax` is counted with all scores, which its fused kernel does not materialize.
- Training time and memory: fitted to the measurements below, from {LENGTHS[0]:,} tokens, for one sequence.
  They include the rest of the model, whose cost is linear, and may therefore be below the theory at these
  lengths.

Tests check that the counted exponents agree with the declared scaling. `sinkhorn_blocks` is counted with
blocks of {COUNTED_OPTIONS["sinkhorn_blocks"]["block_size"]} tokens, because its quadratic term is small with
the default.
"""


def formula_of(name: str) -> str:
    """Return the formula in LaTeX, between dollar signs."""
    return f"${yaml.safe_load(FORMULAS.read_text(encoding='utf-8'))[name]}$"


def formulas() -> str:
    """Return the table of names, formulas and sources."""
    rows = [
        [f"`{name}`", f"{formula_of(name)}<br>{ATTENTIONS.find(name).traits.source}"]
        for name in ATTENTIONS.names()
    ]
    return left_aligned(["", "formula and source"], rows)


def promises() -> str:
    """Return the table of traits and parameter counts."""
    rows = []
    for name in ATTENTIONS.names():
        traits = ATTENTIONS.find(name).traits
        rows.append([f"`{name}`", *describe(traits), f"{count_parameters(name):,}"])
    return markdown(
        [
            "",
            "cost",
            "order",
            "pair bias",
            "causal",
            "recurrent",
            "cross",
            "fixed length",
            "vmap",
            "head_dim",
            "parameters",
        ],
        rows,
    )


def describe(traits: Traits) -> list[str]:
    """Return the cells of the traits."""
    modes = [mode for mode in traits.pair_bias if mode != "none"]
    names = "causal", "recurrent", "cross", "fixed_length", "vmap", "head_dim"
    yes = [getattr(traits, name) for name in names]
    order = "any" if traits.symmetry == "equivariant" else "matters"
    return [COSTS[traits.cost], order, ", ".join(modes) or "-", *("yes" if y else "-" for y in yes)]


def count_parameters(name: str) -> int:
    """Count the parameters of one layer."""
    attention = build_attention(name, AttentionSpec(dim=DIM, num_heads=HEADS, max_tokens=TOKENS))
    return sum(parameter.numel() for parameter in attention.parameters())


def costs() -> str:
    """Return the section of declared, counted and measured growth with the number of tokens."""
    cells = load("attention_speed")["sequences"]["cells"]
    rows = []
    for name in ATTENTIONS.names():
        numbers = (*counted_exponents(name), *measured_exponents(name, cells))
        shown = ("" if number is None else f"{number:.1f}" for number in numbers)
        rows.append([f"`{name}`", COSTS[ATTENTIONS.find(name).traits.cost], *shown])
    header = ["", "theory", "operations", "largest tensor", "training time", "training memory"]
    return f"{COUNTED}\n{markdown(header, rows)}"


def counted_exponents(name: str) -> tuple[float, float]:
    """Return the exponents of the operations and of the largest tensor."""
    counted = []
    for length in COUNTED_LENGTHS:
        torch.manual_seed(0)
        spec = AttentionSpec(dim=16, num_heads=2, max_tokens=length)
        attention = build_attention(name, spec, COUNTED_OPTIONS.get(name)).eval()
        context = TokenContext(torch.ones(1, length, dtype=torch.bool))
        with torch.no_grad():
            counted.append(count_cost(attention, torch.randn(1, length, spec.dim), context))
    increments = np.diff([cost.operations for cost in counted])
    by_operations = exponent(COUNTED_LENGTHS[1:], increments)
    return by_operations, exponent(COUNTED_LENGTHS, [cost.entries for cost in counted])


def measured_exponents(name: str, cells: list[dict[str, Any]]) -> tuple[float | None, float | None]:
    """Return the exponents of the training time and the memory of one sequence, if they were measured."""
    rows = [cell for cell in cells if (cell["attention"], cell["outcome"]) == (name, "ok")]
    rows = [cell for cell in rows if cell["length"] >= LENGTHS[0]]
    if len(rows) < 2:
        return None, None
    lengths = [cell["length"] for cell in rows]
    seconds = [1 / cell["training_steps_per_second"]["median"] / cell["batch_size"] for cell in rows]
    memory = [cell["peak_bytes"]["median"] / cell["batch_size"] for cell in rows]
    return exponent(lengths, seconds), exponent(lengths, memory)


def exponent(lengths: Sequence[int], values: Sequence[float] | np.ndarray) -> float:
    """Return the slope of the logarithm of the values in the logarithm of the lengths, by least squares."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def measured() -> str:
    """Return the section of measured speed relative to softmax, memory and crossings."""
    result = load("attention_speed")
    sequences = result["sequences"]
    cells = {(cell["attention"], cell["length"]): cell for cell in sequences["cells"]}
    crossings = crossing_texts(sequences)
    lengths = [length for length in LENGTHS if ("softmax", length) in cells]
    at = max(length for length in lengths if length <= 4096)
    rows = []
    for name in dict.fromkeys(cell["attention"] for cell in sequences["cells"]):
        ratios = [ratio(cells.get((name, length)), cells["softmax", length]) for length in lengths]
        rows.append(
            [f"`{name}`", *ratios, memory(cells.get((name, at))), crossings.get(name, {}).get("training", "")]
        )
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
    """Return training speed relative to the baseline, or the outcome of a failed measurement."""
    if cell is None or cell["outcome"] == "missing":
        return ""
    if cell["outcome"] != "ok" or baseline["outcome"] != "ok":
        return cell["outcome"]
    speed, reference = (measured["training_steps_per_second"]["median"] for measured in (cell, baseline))
    return f"{speed / reference:.2f}"


def memory(cell: dict[str, Any] | None) -> str:
    """Return the peak memory in GB (10^9 bytes)."""
    if cell is None or cell.get("peak_bytes") is None:
        return ""
    return f"{cell['peak_bytes']['median'] / 1e9:.2f}"


def make_page() -> str:
    """Return the overview page."""
    return f"{HEAD}\n{formulas()}\n{PROMISES}\n{promises()}\n{costs()}\n{measured()}\n"


def make_details() -> str:
    """Return the page of class docstrings, which mkdocstrings renders."""
    kinds = {name: ATTENTIONS.find(name) for name in ATTENTIONS.names()}
    members = (f"## {name}\n\n::: {kind.__module__}.{kind.__name__}" for name, kind in kinds.items())
    options = "    options:\n      members: false\n      show_root_heading: false\n"
    return "# Each attention in detail\n\n" + "\n\n".join(f"{member}\n{options}" for member in members)


def make_pages() -> dict[Path, str]:
    """Return the text of both pages."""
    return {PAGE: make_page(), DETAILS: make_details()}


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, "benchmarks/zoo_page.py", make_pages))
