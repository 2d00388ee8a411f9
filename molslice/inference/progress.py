"""The progress bar of long operations."""

from typing import Any

from tqdm import tqdm

__all__ = ["progress_bar"]


def progress_bar(total: int | None, unit: str, shown: bool = True, **options: Any) -> tqdm:  # noqa: ANN401
    """Create a bar on standard error that appears after two seconds, and only on a terminal.

    Args:
        total: Number of units; None if unknown.
        unit: Name of a unit in the plural.
        shown: Whether to show the bar.
        **options: Other options of tqdm.
    """
    disable = None if shown else True  # None: tqdm checks whether standard error is a terminal
    return tqdm(total=total, unit=f" {unit}", unit_scale=True, delay=2, disable=disable, **options)
