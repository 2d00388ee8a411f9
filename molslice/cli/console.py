"""The standard streams: results on standard output, messages on standard error."""

import contextlib
import errno
import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from molslice.files.progress import is_hidden
from molslice.number_text import counted

if TYPE_CHECKING:
    from molslice.inference.base import Predictor
    from molslice.inference.tables.table import TableReport


class OutputClosedError(Exception):
    """Error of writing to a standard output whose reader has closed it, as `head` does."""


def open_streams() -> None:
    """Make the standard streams safe to use: closed ones are not reused, and any text is writable."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # otherwise the next opened file would get the number of this stream
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(message: str) -> None:
    """Write one line for the user to standard error."""
    with contextlib.suppress(OSError):  # standard error is closed
        sys.stderr.write(f"molslice: {escaped(message)}\n")
    close_messages()


def tell(message: str) -> None:
    """Write one line for the user to standard error, unless `--quiet` hides it."""
    if not is_hidden():
        say(message)


class _MessageHandler(logging.Handler):
    """Writes log records as messages for the user."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextlib.contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Write warnings that the package logs like other messages, until the block ends."""
    logger, handler = logging.getLogger("molslice"), _MessageHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def close_messages() -> None:
    """Flush standard error. If it cannot be written, discard later messages."""
    try:
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def write(text: str) -> None:
    """Write text to standard output.

    Raises:
        OutputClosedError: The reader has closed standard output.
        MolsliceError: Standard output cannot be written.
    """
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    except OSError as error:
        _abandon_output(error)
    close_output()


def write_json(value: Any) -> None:  # noqa: ANN401
    """Write one JSON document to standard output, as `write` does."""
    from molslice.inference.json_text import to_json

    write(to_json(value))


def close_output() -> None:
    """Flush standard output while a failure can still be reported, with the errors of `write`."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _abandon_output(error)


@contextlib.contextmanager
def writing_to(target: object) -> Iterator[None]:
    """Convert the error of a block that writes to `target`, if this is standard output, `-`.

    Raises:
        OutputClosedError: The reader has closed standard output.
    """
    try:
        yield
    except BrokenPipeError as error:
        if str(target) != "-":
            raise
        _abandon_output(error)


def _abandon_output(error: OSError) -> NoReturn:
    if sys.stdout is not None:
        _drop(sys.stdout)
    if isinstance(error, BrokenPipeError) or (os.name == "nt" and error.errno == errno.EINVAL):
        raise OutputClosedError from error
    from molslice.errors import MolsliceError

    raise MolsliceError(f"cannot write to standard output: {error.strerror}") from error


def _drop(stream: TextIO) -> None:
    # the interpreter flushes the stream again at exit, which would fail again
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with columns aligned by spaces; columns of numbers are right-aligned."""
    table = [list(map(escaped, row)) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, numeric, strict=True)
        return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip()

    return "\n".join(line(row) for row in table)


def refusal_lines(refusals: Sequence[Mapping[str, Any]]) -> list[str]:
    """Format the failed rows of a `Refusals.report`, one line for each kind of reason and each example.

    A kind with one row has one line, the example.
    """
    lines = []
    for kind in refusals:
        examples = []
        for example in kind["examples"]:
            named = not example["smiles"] or repr(example["smiles"]) in example["reason"]
            smiles = "" if named else f" {example['smiles']!r}:"
            examples.append(f"{example['where']}:{smiles} {example['reason']}")
        if kind["count"] == len(examples) == 1:
            lines.append(f"1 failed: {examples[0]}")
        else:
            lines.append(f"{kind['count']:,} failed: {kind['reason']}")
            lines += [f"  {example}" for example in examples]
    return [escaped(line) for line in lines]


def tell_refusals(refusals: Sequence[Mapping[str, Any]]) -> None:
    """Write which rows failed and why."""
    for line in refusal_lines(refusals):
        tell(line)


def say_failed_rows(report: "TableReport", output: object, missing: str) -> bool:
    """Write which rows of a table failed, and return whether all rows failed, which is an error.

    Args:
        report: The outcome of `predict_table`.
        output: The file or folder that was written.
        missing: What the failed rows do not have, such as `prediction`.
    """
    tell_refusals(report.refusals)
    if report.rows and report.failed == report.rows:
        where = "" if str(output) == "-" else f"; {output} has no {missing}s"
        say(f"error: {report.describe_failure()}{where}")
        return True
    if report.failed:
        first = f"; {report.first_failure}" if is_hidden() else ""  # told above
        say(f"{report.failed} of {report.rows} rows have no {missing}{first}")
    return False


def describe_replaced(replaced: int) -> str:
    """Say how many mixtures were replaced."""
    return f"mixtures: the largest molecule is used in {counted(replaced)}"


def tell_treated_rows(replaced: int, wildcards: int) -> None:
    """Write how many mixtures were replaced and how many rows with wildcards were predicted."""
    if replaced:
        tell(describe_replaced(replaced))
    if wildcards:
        tell(f"predicted rows with a wildcard, an R-group or a bond of any order: {wildcards:,}")


def tell_trained(predictor: "Predictor", trained: int, rows: int) -> None:
    """Write how many of the measured rows have training molecules of the model."""
    count, domain, compared = f"at least {trained:,} of", predictor.known_domain(), ""
    if trained == rows:
        count = "all"
    elif domain is not None and domain.is_sample:
        compared = f" (compared with a sample of {len(domain.smiles):,})"
    what = f"{count} {rows:,} measured rows are of training molecules{compared}"
    tell(f"{what}; the error for new molecules is larger")


def escaped(text: str) -> str:
    """Escape characters that would break a line or control the terminal, such as names in a model's file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "-+.n"
