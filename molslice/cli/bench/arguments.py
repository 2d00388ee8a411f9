"""Arguments and output that the actions of `bench` share."""

import argparse
from collections.abc import Callable
from typing import Any

from molslice.cli.arguments import file_path
from molslice.cli.console import say, write, write_json

__all__ = ["add_molecules", "positive_number", "report", "teller"]


def add_molecules(parser: argparse.ArgumentParser) -> None:
    """Add `--store` and `--input`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--store", type=file_path, metavar="DIR", help="folder of prepared molecules")
    source.add_argument(
        "--input", type=file_path, nargs="+", metavar="FILE", help="files with a column of SMILES"
    )


def positive_number(text: str) -> float:
    """Parse a positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def teller(args: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that writes a message to standard error, unless `--quiet` is given."""
    return (lambda message: None) if args.quiet else say


def report(args: argparse.Namespace, result: Any, to_markdown: Callable[[Any], str], file: str) -> int:  # noqa: ANN401
    """Write a result to standard output and messages to standard error.

    Args:
        args: The arguments, with `json`, `quiet` and `out`.
        result: The result, with `interrupted`, `measurements`, `failures()` and `to_mapping()`.
        to_markdown: Formats the result.
        file: Name of the result file in `out`.

    Returns:
        The exit code: 1 if an entry failed for another reason than memory, 130 after Ctrl-C.
    """
    if args.json:
        write_json(result.to_mapping())
    else:
        write(to_markdown(result))
    if args.out is not None:
        teller(args)(f"table: {args.out / 'table.md'}, all numbers: {args.out / file}")
    if result.interrupted:
        kept = "; the same command continues" if args.out is not None else ""
        say(f"interrupted after {len(result.measurements)} measurements{kept}")
        return 130
    for label, reason in result.failures().items():
        say(f"error: {label} failed {reason}")
    return 1 if result.failures() else 0
