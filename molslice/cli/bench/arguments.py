"""Arguments and output that the actions of `bench` share."""

import argparse
from typing import TYPE_CHECKING

from molslice.cli.arguments import add_run_options, file_path, positive, positive_number
from molslice.cli.console import say, tell, write, write_json

if TYPE_CHECKING:
    from molslice.bench.rounds import Result


def add_molecules(parser: argparse.ArgumentParser) -> None:
    """Add `--store` and `--input`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--store", type=file_path, metavar="DIR", help="folder of prepared molecules")
    source.add_argument(
        "--input",
        type=file_path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="files with a column of SMILES",
    )


def add_measuring(parser: argparse.ArgumentParser, seconds: float, *, steps: bool, out: str) -> None:
    """Add `--rounds`, `--seconds`, `--out`, `--quiet`, `--json` and, for steps, `--threads` and `--steps`.

    Args:
        parser: The parser.
        seconds: The default of `--seconds`.
        steps: Whether steps are timed.
        out: Help of `--out`.
    """
    if steps:
        parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads")
    parser.add_argument(
        "--rounds", type=positive, default=3, metavar="N", help="repetitions of each measurement (default: 3)"
    )
    how_long = parser.add_mutually_exclusive_group()
    if steps:
        how_long.add_argument("--steps", type=positive, metavar="N", help="timed steps of a round")
    how_long.add_argument(
        "--seconds",
        type=positive_number,
        default=seconds,
        metavar="S",
        help=f"timed seconds (default: {seconds:g})",
    )
    parser.add_argument("--out", type=file_path, metavar="DIR", help=out)
    add_run_options(parser)


def report(args: argparse.Namespace, result: "Result") -> int:
    """Write a result to standard output and messages to standard error.

    Args:
        args: The arguments, with `json`, `quiet` and `out`.
        result: The result.

    Returns:
        The exit code: 1 if an entry failed for another reason than memory, 130 after Ctrl-C.
    """
    if args.json:
        write_json(result.to_mapping())
    else:
        write(result.to_markdown())
    if args.out is not None:
        tell(f"table: {args.out / 'table.md'}, all numbers: {args.out / result.FILE}")
    if result.interrupted:
        kept = "; the same command continues" if args.out is not None else ""
        say(f"interrupted after {len(result.measurements)} measurements{kept}")
        return 130
    for label, reason in result.failures().items():
        say(f"error: {label} failed {reason}")
    return 1 if result.failures() else 0
