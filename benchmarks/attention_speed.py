"""Measure the speed and memory of every attention on sequences, and of one layer on molecules.

Sequences: run `molslice bench` for all attentions at width 256. At each length a batch has `--batch-tokens`
tokens, but at least one sequence. The `--long` lengths are measured only for `--long-attention`, by default
`softmax` and all attentions whose cost is not quadratic. Finished measurements are kept in `--runs`, so the
same command continues after an interruption.

Molecules: time the forward and backward pass of one attention layer with a pair bias, for 256 molecules of 24
tokens, width 256 and 8 heads. `slice_sort` and `key_sort` are compared with `softmax`.

Run it on two cores without other work:

    python benchmarks/attention_speed.py

Writes `benchmarks/results/NAME.json` and the plots NAME.png and NAME.svg. `--draw` only draws the plots of
the recorded JSON.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import ROOT, make_parser, median_and_range, record, take_turns

from molslice.attention import ATTENTIONS, build_attention
from molslice.bench.attention import ALL, BenchPlan, read_entries, run_bench
from molslice.bench.attention_result import BenchResult
from molslice.bench.bubbles import draw_bubbles
from molslice.ops.masked import pair_softmax
from molslice.types import AttentionSpec, PairBiasMode, TokenContext

LENGTHS, LONG = "256,1024,4096", "16384"
# (label, attention, pair bias mode, whether softmax(S + E) is precomputed, as in the encoder)
LAYERS: tuple[tuple[str, str, PairBiasMode, bool], ...] = (
    ("softmax", "softmax", "logits", False),
    ("slice_sort", "slice_sort", "mix", False),
    ("slice_sort, weights given", "slice_sort", "mix", True),
    ("key_sort", "key_sort", "logits", False),
)


def layer_step(
    attention: str, mode: PairBiasMode, given: bool, *, batch: int, length: int, dim: int, heads: int
) -> Callable[[], None]:
    """Return a function that runs one layer forward and backward.

    Gradients are computed for the parameters, the tokens, and the pair bias or its softmax.
    """
    torch.manual_seed(0)
    layer = build_attention(attention, AttentionSpec(dim=dim, num_heads=heads, pair_bias_mode=mode))
    tokens = torch.randn(batch, length, dim, requires_grad=True)
    bias = torch.randn(batch, heads, length, length, requires_grad=True)
    mask = torch.ones(batch, length, dtype=torch.bool)
    weights = pair_softmax(bias, mask).detach().requires_grad_() if given else None
    context = TokenContext(mask, bias, weights)
    leaves = [tokens, weights if weights is not None else bias, *layer.parameters()]
    upstream = torch.randn_like(tokens)

    def step() -> None:
        torch.autograd.grad((layer(tokens, context).tokens * upstream).sum(), leaves)

    return step


def measure_layers(rounds: int, seconds: float, **sizes: int) -> dict[str, Any]:
    """Return the time of a step in milliseconds for each layer. In each round the layers take turns."""
    steps = {label: layer_step(attention, mode, given, **sizes) for label, attention, mode, given in LAYERS}
    counts = {}
    for label, step in steps.items():
        time_steps(step, 3)
        counts[label] = max(1, round(seconds / time_steps(step, 3)))
    calls = {label: partial(time_steps, step, counts[label]) for label, step in steps.items()}
    times = take_turns(calls, rounds)
    return {label: median_and_range([1000 * second for second in values]) for label, values in times.items()}


def time_steps(step: Callable[[], None], count: int) -> float:
    """Return the mean time of a step, in seconds."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def measure_sequences(options: argparse.Namespace) -> BenchResult:
    """Measure all attentions at the short lengths, and the chosen ones at the long lengths."""
    entries = read_entries(options.attention)
    if options.long_attention:
        far = read_entries(options.long_attention)
    else:
        far = tuple(entry for entry in entries if is_for_long(entry.name, entry.label))
    parts = []
    for name, chosen, lengths in (("short", entries, options.lengths), ("long", far, options.long)):
        plan = BenchPlan(
            chosen,
            lengths=tuple(map(int, lengths.split(","))),
            dims=(options.dim,),
            batch_tokens=options.batch_tokens,
            num_layers=options.num_layers,
            threads=options.threads,
            rounds=options.rounds,
            seconds=options.seconds,
            budget_gb=options.budget_gb,
        )
        tell = partial(print, flush=True)
        parts.append(run_bench(plan, options.runs / name, tell=tell))
        if parts[-1].interrupted:
            return parts[-1]
    short, long = parts
    return replace(
        short, sizes=[*short.sizes, *long.sizes], measurements=[*short.measurements, *long.measurements]
    )


def is_for_long(name: str, label: str) -> bool:
    """Return True for attentions whose cost is not quadratic, and for the baseline."""
    return label == "softmax" or ATTENTIONS.find(name).traits.cost != "quadratic"


def draw(result: BenchResult, options: argparse.Namespace) -> None:
    """Write the plots as PNG and SVG."""
    for suffix in ("png", "svg"):
        (options.out / f"{options.name}.{suffix}").write_bytes(draw_bubbles(result, suffix))


def main() -> None:
    """Measure sequences and molecules, and record the results."""
    parser = make_parser(__doc__)
    parser.add_argument("--attention", default=ALL)
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--long", default=LONG)
    parser.add_argument("--long-attention", help="default: softmax and all that are not quadratic")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--molecules", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layer-rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--budget-gb", type=float)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "attention_speed")
    parser.add_argument("--name", default="attention_speed")
    parser.add_argument("--draw", action="store_true", help="only draw the recorded JSON")
    options = parser.parse_args()
    if options.draw:
        file = options.out / f"{options.name}.json"
        recorded = json.loads(file.read_text(encoding="utf-8"))["sequences"]
        draw(BenchResult.of_mapping(recorded, str(file)), options)
        return
    torch.set_num_threads(options.threads)
    molecules = {"batch": options.molecules, "length": 24, "dim": options.dim, "heads": 8}
    layers = measure_layers(options.layer_rounds, options.seconds, **molecules)
    result = measure_sequences(options)
    if result.interrupted:
        print(f"interrupted; the same command continues from {options.runs}")
        return
    payload = {
        "question": "steps per second and peak memory of every attention by length; molecules: ms of a layer",
        "molecule_layer": {"sizes": molecules, "milliseconds": layers},
        "sequences": result.to_mapping(),
    }
    print(record(options.name, payload, options.out))
    draw(result, options)


if __name__ == "__main__":
    main()
