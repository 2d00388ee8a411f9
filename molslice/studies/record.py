"""What a study writes beside its figure: a table and the versions of packages."""

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
    """Return a CSV table with a header; numbers have eight digits, None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _short(value: Any) -> Any:  # noqa: ANN401
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the numbers of a study can depend on."""
    found = {"python": platform.python_version(), "molslice": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
