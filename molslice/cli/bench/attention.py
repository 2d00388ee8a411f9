"""Measure the speed and memory of attentions: steps per second, peak memory, parameters and operations.

The model classifies sequences of bytes. Each number is measured in a new process, and the entries take
turns. The table shows medians over the rounds, and the length above which each attention trains faster than
softmax. An entry of --attention is a name with options after colons, such as softmax:fused=false, or `all`
for all attentions. An entry that runs out of memory is marked in the table. A second call with the same
--out continues where the first one stopped, also after Ctrl-C.
"""

import argparse
from typing import Any

from molslice.cli.arguments import add_device, file_path, positive, positive_number
from molslice.cli.bench.arguments import add_measuring, report
from molslice.cli.console import tell

SUMMARY = "speed and memory of attentions on sequences of any length"
EXAMPLE = """\
  molslice bench attention --attention softmax,slice_sort --lengths 256,512 --out runs/bench
  molslice bench attention --config configs/lra/text.yaml --attention softmax,slice_sort --batch-size 1
  molslice bench attention --setting sliceformer_text --attention all --batch-size 2 --out runs/text"""
TAKES_OVERRIDES = False
# the fields of the plan that override a setting, and the others
SIZES = ("lengths", "dims", "batch_sizes", "batch_tokens", "num_layers", "num_heads", "ffn_dim")
SETTINGS = ("dtype", "device", "threads", "rounds", "steps", "seconds", "budget_gb", "timeout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench attention`."""
    parser.add_argument(
        "--attention",
        metavar="A,B,...",
        help="entries, or all (default: softmax fused and unfused, slice_sort, flow, singular)",
    )
    _add_sizes(parser)
    parser.add_argument("--causal", action="store_true", help="measure the causal forms")
    parser.add_argument(
        "--dtype", default="fp32", metavar="TYPE", help="fp32, bf16 or fp16 by autocast (default: fp32)"
    )
    add_device(parser, "cpu")
    parser.add_argument(
        "--budget-gb",
        type=positive_number,
        metavar="GB",
        help="memory limit of a measurement (default: the free memory)",
    )
    parser.add_argument(
        "--timeout", type=positive_number, metavar="S", help="time limit of a measurement in seconds"
    )
    parser.add_argument(
        "--score",
        type=file_path,
        metavar="FILE",
        help="CSV or JSON file with a score for each entry, the vertical axis of the plot",
    )
    add_measuring(parser, 1.0, steps=True, out="folder for the tables and the plot")


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--setting", metavar="NAME", help="sizes of a paper: sliceformer_text; other flags override them"
    )
    whose.add_argument(
        "--config", type=file_path, metavar="FILE", help="sizes of a YAML file; other flags override them"
    )
    parser.add_argument(
        "--lengths", type=numbers, metavar="N,...", help="numbers of tokens (default: 512,1024,2048)"
    )
    parser.add_argument("--dim", dest="dims", type=numbers, metavar="D,...", help="widths (default: 256)")
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument(
        "--batch-size",
        dest="batch_sizes",
        type=numbers,
        metavar="B,...",
        help="sequences of a batch (default: 4)",
    )
    batch.add_argument(
        "--batch-tokens", type=positive, metavar="N", help="tokens of a batch; at least one sequence"
    )
    parser.add_argument("--num-layers", type=positive, metavar="N", help="layers (default: 4)")
    parser.add_argument("--num-heads", type=positive, metavar="N", help="heads (default: 4)")
    parser.add_argument(
        "--ffn-dim", type=positive, metavar="N", help="feed-forward width (default: 4 times the width)"
    )


def numbers(text: str) -> tuple[int, ...]:
    """Parse integers of at least 1, separated by commas."""
    return tuple(positive(word.strip()) for word in text.split(","))


def run(args: argparse.Namespace) -> int:
    """Measure; return 1 if an entry failed for another reason than memory, 130 after Ctrl-C."""
    from molslice.bench.attention import DEFAULT_ENTRIES, BenchPlan, read_entries, run_bench
    from molslice.bench.scores import read_scores

    scores = None if args.score is None else read_scores(args.score)
    plan = BenchPlan(read_entries(args.attention or DEFAULT_ENTRIES), **_settings(args))
    result = run_bench(plan, args.out, setting=args.setting, scores=scores, tell=tell, quiet=args.quiet)
    return report(args, result)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the plan: the setting, overridden by the given options."""
    from molslice.bench.attention import choose_setting, sizes_of_config
    from molslice.training.start import load_run_config

    sizes = {} if args.setting is None else dict(choose_setting(args.setting))
    if args.config is not None:
        sizes = sizes_of_config(load_run_config(args.config))
    causal = args.causal or sizes.get("causal", False)
    if args.batch_tokens is not None:
        sizes.pop("batch_sizes", None)
    overrides = {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}
    return {**sizes, **overrides, "causal": causal, **{name: getattr(args, name) for name in SETTINGS}}
