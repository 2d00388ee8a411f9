"""The files of a study beside its figure: a table and the versions of packages."""

import csv
import io
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from molslice.version import __version__

__all__ = ["rows_to_csv", "versions"]

PACKAGES = ("numpy", "torch", "matplotlib", "rdkit", "lightning")
DIGITS = 8


def rows_to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Convert rows with the same keys to a CSV table with a header.

    Floats have eight digits, and None is an empty cell.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _short(value: Any) -> Any:  # noqa: ANN401
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the numbers of a study, by name."""
    found = {"python": platform.python_version(), "molslice": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
