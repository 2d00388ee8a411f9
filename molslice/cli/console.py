"""The two streams: results on standard output, messages on standard error."""

import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["OutputClosedError", "close_output", "say", "text_table", "write", "write_json"]


class OutputClosedError(Exception):
    """Whoever read standard output has closed it."""


def say(message: str) -> None:
    """One line for the person, on standard error."""
    sys.stderr.write(f"molslice: {message}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Text on standard output.

    Raises:
        OutputClosedError: nobody reads any more.
    """
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError as error:
        _abandon_output()
        raise OutputClosedError from error


def write_json(value: Any) -> None:  # noqa: ANN401
    """One JSON document on standard output."""
    from molslice.inference.json_text import to_json

    write(to_json(value))


def close_output() -> None:
    """Flush standard output while a failure can still be told."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        _abandon_output()
        raise OutputClosedError from error


def _abandon_output() -> None:
    # The interpreter flushes standard output once more at exit and would complain there.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by spaces, numbers to the right."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, numeric, strict=True)
        return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip()

    return "\n".join(line(row) for row in table)


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "-+.n"
