"""What several verbs ask for, and the dotted settings."""

import argparse
from typing import Any

__all__ = ["HelpFormatter", "add_device", "add_json", "add_quiet", "positive", "split_overrides"]


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the example's lines as they are."""

    def __init__(self, prog: str, **options: Any) -> None:  # noqa: ANN401
        super().__init__(prog, max_help_position=32, width=100, **options)


def split_overrides(words: list[str]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Take `--any.dotted.key value` and `--any.dotted.key=value` out of a command line.

    Returns:
        The other words in order, and the settings in order; a value is None where none was given.
    """
    rest: list[str] = []
    overrides: list[tuple[str, str | None]] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        key, equals, value = word[2:].partition("=")
        if not (word.startswith("--") and "." in key):
            rest.append(word)
        elif equals:
            overrides.append((key, value))
        elif position < len(words) and not words[position].startswith("--"):
            overrides.append((key, words[position]))
            position += 1
        else:
            overrides.append((key, None))
    return rest, overrides


def positive(text: str) -> int:
    """A whole number of at least one."""
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def count(text: str) -> int:
    """A whole number of at least zero."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def minutes(text: str) -> float:
    """A positive number of minutes."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of minutes")
    return value


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no messages")


def add_device(parser: argparse.ArgumentParser) -> None:
    """`--device`."""
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1 (default: cpu)")


def add_workers(parser: argparse.ArgumentParser) -> None:
    """`--workers`."""
    parser.add_argument(
        "--workers",
        type=count,
        default=0,
        metavar="N",
        help="processes that read SMILES (default: 0, in this one)",
    )
