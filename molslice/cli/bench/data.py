"""Measure data loading without a model: conversion of SMILES, the store, and padded batches.

The molecules come from a prepared store (--store, which needs no rdkit; the conversion is then not measured),
from files of SMILES (--input, at most the first 100,000 rows), or else from data/gap_xtb. The table shows
medians over the rounds: molecules, batches and bytes of arrays per second, the share of padding in the tokens
of an epoch, and the largest resident set of the process and of a worker. `read the store` copies the
molecules of shuffled batches one by one. With --device the store is also copied to a device, which gathers
batches of fixed shapes from it as in a training on a GPU. A second call with the same --out continues where
the first one stopped.
"""

import argparse

from molslice.cli.arguments import positive
from molslice.cli.bench.arguments import add_measuring, add_molecules, report
from molslice.cli.console import tell

SUMMARY = "speed and memory of data loading without a model"
EXAMPLE = """\
  molslice bench data --input molecules.csv --out runs/bench_data
  molslice bench data --store prepared --batch-size 1024 --token-budget 65536 --device cuda"""
TAKES_OVERRIDES = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench data`."""
    add_molecules(parser)
    parser.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="processes that convert SMILES, beside one process (default: all cores)",
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="molecules of a batch (default: 64 of 2,048 tokens, and 1,024 of 65,536 tokens)",
    )
    parser.add_argument(
        "--token-budget",
        type=positive,
        metavar="N",
        help="padded tokens of a batch with --batch-size (default: 64 for each molecule)",
    )
    parser.add_argument(
        "--device", help="also gather batches of fixed shapes on this device: cuda, cuda:1 or cpu"
    )
    add_measuring(parser, 3.0, steps=False, out="folder for the results")


def run(args: argparse.Namespace) -> int:
    """Measure; return 1 if a stage failed, 130 after Ctrl-C."""
    from molslice.bench.data import BATCHES, run_data_bench
    from molslice.bench.molecules import Molecules
    from molslice.files.processes import count_cores

    if args.token_budget is not None and args.batch_size is None:
        args.usage_error("--token-budget needs --batch-size")
    batches = BATCHES
    if args.batch_size is not None:
        batches = ((args.batch_size, args.token_budget or 64 * args.batch_size),)
    source = Molecules(args.store, args.input or ())
    result = run_data_bench(
        source,
        args.out,
        workers=args.workers or count_cores(),
        batches=batches,
        device=args.device,
        rounds=args.rounds,
        seconds=args.seconds,
        tell=tell,
        quiet=args.quiet,
    )
    return report(args, result)
