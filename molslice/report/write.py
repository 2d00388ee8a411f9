"""Write a report."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from molslice.data.base import Dataset
from molslice.files.atomic import write_atomically
from molslice.inference.load import AnyPredictor
from molslice.report.measure import THRESHOLD, MeasuredModel, measure
from molslice.report.page import Html, page, paragraph, section
from molslice.report.sections import SECTIONS
from molslice.report.training import (
    networks_of,
    parameters,
    recorded_errors,
    reproduction,
    short_name,
    training,
    with_short_name,
)
from molslice.report.verdict import verdicts
from molslice.tasks.metrics import with_unit
from molslice.types import MolsliceError

MOST_ROWS = 10_000


def write_report(
    predictor: AnyPredictor,
    dataset: Dataset | None,
    path: Path,
    *,
    most_rows: int = MOST_ROWS,
    is_own: bool = True,
    threshold: float | None = None,
    missing: str = "",
    command: Sequence[str] = (),
    progress: bool = False,
) -> list[str]:
    """Measure a model and write one HTML page, which needs no other file and no network.

    Args:
        predictor: The model.
        dataset: Its data, or others with the same targets; None if there are none. Then the page has what
            the folder of the model says.
        path: The file to write. An existing file is replaced when the page is complete.
        most_rows: Most molecules of a split; a larger split is sampled.
        is_own: Whether the data are the data of the training.
        threshold: The probability of class 1 above which it is predicted, for targets of two classes; None
            for one half.
        missing: Why there are no data.
        command: The words of the command that writes this page, which the page shows.
        progress: Whether to show a bar on standard error.

    Returns:
        The sentences of the verdict; empty without data.

    Raises:
        MolsliceError: The data do not fit the model, the model does not take molecules, a threshold is given
            without two classes, or the file cannot be written.
    """
    predictor.reader()  # refuses a model that does not take molecules
    if threshold is not None and not any(
        target_type.kind == "classification" for target_type in predictor.types
    ):
        raise MolsliceError(f"a threshold is for targets of two classes; {predictor.name} has none")
    measured, verdict = None, []
    if dataset is not None:
        chosen = THRESHOLD if threshold is None else threshold
        measured = measure(predictor, dataset, most_rows, is_own=is_own, threshold=chosen, progress=progress)
        verdict = verdicts(measured)
    sections = list(_parts(predictor, measured, missing, command))
    targets = ", ".join(map(with_unit, predictor.target_names, predictor.target_units))
    lead = f"A model for {targets}" + ("." if dataset is None else f", evaluated on {dataset.source}.")
    lead = with_short_name(lead, predictor)
    write_atomically(path, page(f"Report on {short_name(predictor)}", lead, sections, verdict))
    return verdict


def _parts(
    predictor: AnyPredictor, measured: MeasuredModel | None, missing: str, command: Sequence[str]
) -> Iterator[tuple[str, Html]]:
    """Yield the name of each part and its content."""
    for name, make in SECTIONS.items():
        if measured is not None:
            yield name, make(measured)
        elif name == "Errors":
            reason = f", because the data are not available: {with_short_name(missing, predictor)}"
            lead = paragraph(f"Not measured{reason if missing else ''}.")
            yield name, section(lead, recorded_errors(predictor))
        else:
            yield name, paragraph("The data are not available.", soft=True)
    yield "Training", training(predictor)
    if networks_of(predictor):
        yield "Parameters", parameters(predictor)
    yield "Reproduction", reproduction(predictor, command)
