"""Tables as text: CSV and Markdown."""

import csv
import io
from collections.abc import Iterable, Sequence


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Format the lines of a CSV file: floats with eight digits, None as an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([f"{value:.8g}" if isinstance(value, float) else value for value in row])
    return stream.getvalue()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table; the first column is left-aligned, the others are right-aligned."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return f"| {' | '.join([first, *rest])} |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)]) + "\n"
