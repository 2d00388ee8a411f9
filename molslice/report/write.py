"""Write a report."""

from collections.abc import Callable
from pathlib import Path

from molslice.data.base import Dataset
from molslice.files.atomic import write_atomically
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import Predictor
from molslice.report.measure import measure
from molslice.report.page import page
from molslice.report.sections import SECTIONS

__all__ = ["write_report"]

MOST_ROWS = 10_000


def write_report(
    predictor: Predictor | EnsemblePredictor | FittedPredictor,
    dataset: Dataset,
    path: Path,
    *,
    most_rows: int = MOST_ROWS,
    progress: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Measure a model and write one HTML page, which needs no other file and no network.

    Args:
        predictor: The model.
        dataset: Its data, or others with the same targets.
        path: The file to write. An existing file is replaced when the page is complete.
        most_rows: Most molecules of a split; a larger split is sampled.
        progress: Whether to show a bar on standard error.
        tell: Receives the name of each part before it is made.

    Raises:
        MolsliceError: The data do not fit the model, or the file cannot be written.
    """
    measured = measure(predictor, dataset, most_rows, progress=progress)
    sections = []
    for name, make in SECTIONS.items():
        tell(name)
        sections.append((name, make(measured)))
    targets = ", ".join(
        f"{name} ({unit})" if unit else name
        for name, unit in zip(predictor.target_names, predictor.target_units, strict=True)
    )
    lead = f"A model of {targets}, measured on {dataset.source}."
    write_atomically(path, page(f"Report of {Path(predictor.name).name}", lead, sections))
