"""Measure training: molecules per second of real training steps, and where their time goes.

Each number is measured in a new process, and the entries take turns. The batches come from a prepared store
(--store, which needs no rdkit), from files of SMILES (--input, at most the first 100,000 rows), or else from
the data of the configuration, by default data/gap_xtb. Without --config the models are given by --models,
with batches of 64 molecules on a CPU and of 1,024 on a GPU. Any setting of the configuration can be given as
--any.dotted.key VALUE.

The table shows medians over the rounds: the share of the time without a batch, the shares of forward pass,
backward pass and optimizer in a step, the share of padding in the tokens, peak memory (the resident set of
the process, or what is allocated on a GPU), and the arithmetic of matrix products, on a GPU also as a share
of its peak. A second call with the same --out continues where the first one stopped.
"""

import argparse

from molslice.cli.arguments import file_path
from molslice.cli.bench.arguments import add_measuring, add_molecules, report
from molslice.cli.console import tell

SUMMARY = "speed and memory of training models of molecules"
EXAMPLE = """\
  molslice bench train --models slim --attentions softmax,slice_sort --out runs/bench_train
  molslice bench train --models base --device cuda --precision bf16 --store prepared --json
  molslice bench train --config configs/molecule/quickstart.yaml --training.batch_size 128"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench train`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--models",
        default="quickstart,slim,small,base",
        metavar="A,B,...",
        help="presets, or quickstart for 4 layers of width 64 (default: quickstart,slim,small,base)",
    )
    group.add_argument(
        "--config", type=file_path, metavar="FILE", help="measure the training of a configuration file"
    )
    parser.add_argument(
        "--attentions",
        metavar="A,B,...",
        help="attentions with options after colons (default: softmax,slice_sort,flow,singular, or from "
        "--config)",
    )
    add_molecules(parser)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--precision",
        metavar="P,...",
        help="32, bf16, bf16-weights or 16, or several (default: 32, or from --config)",
    )
    add_measuring(parser, 5.0, steps=True, out="folder for the results")


def run(args: argparse.Namespace) -> int:
    """Measure; return 1 if an entry failed for another reason than memory, 130 after Ctrl-C."""
    from molslice.bench.molecules import Molecules
    from molslice.bench.training import TrainPlan, plan_entries, run_training_bench
    from molslice.files.cache import file_checksum

    entries = plan_entries(
        _names(args.models),
        args.attentions,
        None if args.precision is None else _names(args.precision),
        config=args.config,
        overrides=args.overrides,
        device=args.device,
    )
    settings = dict(args.overrides)
    if args.config is not None:
        settings |= {"config": str(args.config), "config_sha256": file_checksum(args.config)}
    plan = TrainPlan(
        entries,
        settings,
        device=args.device,
        threads=args.threads,
        rounds=args.rounds,
        steps=args.steps,
        seconds=args.seconds,
    )
    source = Molecules(args.store, args.input or (), entries[0].config.data)
    result = run_training_bench(plan, source, args.out, tell=tell, quiet=args.quiet)
    return report(args, result)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
