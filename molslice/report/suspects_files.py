"""Write suspicious values and matched pairs: two CSV files for the laboratory, and a page with drawings."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from molslice.chem.drawing import draw_smiles
from molslice.chem.smiles import ChemError
from molslice.files.atomic import write_atomically
from molslice.folders.results import results_folder
from molslice.inference.load import AnyPredictor
from molslice.report.charts import draw_suspects
from molslice.report.page import (
    Html,
    cards,
    code,
    figures,
    heading,
    in_both_schemes,
    page,
    pair_cards,
    paragraph,
    section,
    table,
)
from molslice.report.pair_changes import PairChange
from molslice.report.suspects import Examined, Suspect
from molslice.report.table_rows import TableRow
from molslice.report.training import short_name
from molslice.tasks.metrics import with_unit
from molslice.uncertainty.rounding import rounded_error

SUSPECTS, PAIRS, PAGE = "suspects.csv", "pairs.csv", "suspects.html"
SUSPECT_COLUMNS = (
    *("target", "unit", "name", "file", "row", "line", "smiles", "measured", "predicted", "lower", "upper"),
    *("probability", "excess", "reason"),
)
PAIR_COLUMNS = (
    *("target", "scale", "first_name", "first_file", "first_row", "first_smiles", "second_name"),
    *(
        "second_file",
        "second_row",
        "second_smiles",
        "constant",
        "before",
        "after",
        "first_measured",
        "second_measured",
    ),
    *("measured_change", "first_predicted", "second_predicted", "predicted_change", "cliff", "suspicious"),
)
DRAWN, DRAWN_PAIRS, LISTED = 24, 12, 15  # suspects, pairs and exchanges on the page
FEWEST = 3  # pairs of an exchange
OPEN_BOND = "[*:1]"  # in the SMILES of a substituent


def write_examined(
    examined: Examined, predictor: AnyPredictor, folder: Path, command: Sequence[str] = ()
) -> list[Path]:
    """Write `suspects.csv`, `pairs.csv` and `suspects.html` to a folder, in place of earlier ones.

    Args:
        examined: What `examine` found.
        predictor: The model.
        folder: The folder, which is made if it does not exist.
        command: The words of the command, which the page shows.

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
        MolsliceError: The folder is a file, or holds a model.
    """
    contents = {
        SUSPECTS: suspects_csv(examined),
        PAIRS: _csv(PAIR_COLUMNS, map(_pair_cells, examined.pairs)),
        PAGE: suspects_page(examined, predictor, command),
    }
    with results_folder(folder):
        for name, text in contents.items():
            write_atomically(folder / name, text)
    return [folder / name for name in contents]


def suspects_csv(examined: Examined) -> str:
    """Return the suspicious values as CSV, with the columns of the table if it was read."""
    further = [f"table_{name}" if name in SUSPECT_COLUMNS else name for name in examined.table_columns]
    rows = (
        [*_suspect_cells(suspect), *examined.table_cells.get((suspect.place.file, suspect.place.row), ())]
        for suspect in examined.suspects
    )
    return _csv([*SUSPECT_COLUMNS, *further], rows)


def suspects_page(examined: Examined, predictor: AnyPredictor, command: Sequence[str] = ()) -> str:
    """Return the page."""
    name = short_name(predictor)
    lead = (
        f"{len(examined.suspects):,} of {examined.values:,} measured values are suspicious: outside the 99% "
        "interval of a prediction by models that have not seen them, or in contradiction to another value of "
        "the molecule. A suspicious value may be right; it is worth a second look."
    )
    sections = [("Suspicious values", _suspects(examined, predictor))]
    if examined.pairs:
        sections += [("Activity cliffs", _cliffs(examined)), ("Matched pairs", _exchanges(examined))]
    sections.append(("Reproduction", section(code(" ".join(command)))))
    return page(f"Suspicious values of {name}", lead, sections)


def _suspects(examined: Examined, predictor: AnyPredictor) -> Html:
    parts = [paragraph(f"All of them are in {SUSPECTS}, with their rows and reasons.", soft=True)]
    if not examined.knows_table:
        note = (
            "An earlier version fitted the model: rows are numbered as in rows.csv, and duplicates are "
            "merged."
        )
        parts.append(paragraph(note, soft=True))
    charts = []
    for name, points in examined.judged.items():
        index = predictor.target_names.index(name)
        if len(points.truth) and not predictor.types[index].has_classes:
            logarithmic = predictor.is_logarithmic(index)
            label = with_unit(name, predictor.target_units[index])
            chart = draw_suspects(*points, label, logarithmic=logarithmic)
            caption = (
                f"{name}: one dot for each measured value, suspicious ones orange; a line joins the values"
            )
            charts.append((chart, f"{caption} of a molecule."))
    parts += [figures(charts)] if charts else []
    drawn = [
        (_drawing(suspect.place.smiles), _suspect_lines(suspect)) for suspect in examined.suspects[:DRAWN]
    ]
    if drawn:
        title = f"The first {DRAWN}" if len(examined.suspects) > DRAWN else "Structures"
        parts.append(cards(title, drawn))
    return section(*parts)


def _suspect_lines(suspect: Suspect) -> list[str]:
    unit = f" {suspect.unit}" if suspect.unit else ""
    lines = [f"{suspect.target}: measured {suspect.measured}{unit}"]
    if suspect.has_interval:
        predicted, lower, upper = suspect.rounded()
        lines.append(f"predicted {predicted} ({lower} to {upper}){unit}")
    elif suspect.predicted:
        lines.append(
            f"predicted {suspect.predicted}; probability of {suspect.measured} {suspect.probability:.3g}"
        )
    return [*lines, "; ".join(suspect.reasons), where(suspect.place)]


def _cliffs(examined: Examined) -> Html:
    cliffs = [pair for pair in examined.pairs if pair.is_cliff]
    lead = paragraph(
        f"{len(cliffs):,} of {len(examined.pairs):,} pairs of molecules that differ by one substituent are "
        "cliffs: the measured change is larger than the standard deviation of all measured values. All pairs "
        f"are in {PAIRS}."
    )
    drawn = [
        ((_drawing(pair.first.smiles), _drawing(pair.second.smiles)), _pair_lines(pair))
        for pair in cliffs[:DRAWN_PAIRS]
    ]
    title = f"The {DRAWN_PAIRS} largest" if len(cliffs) > DRAWN_PAIRS else "Cliffs"
    return section(lead, *([pair_cards(title, drawn)] if drawn else []))


def _pair_lines(pair: PairChange) -> list[str]:
    first, second = pair.measured
    scale = ", of log10" if pair.is_logarithm else ""
    lines = [
        _exchange(pair.before, pair.after),
        f"{pair.target}: {first:.4g} to {second:.4g}",
        f"change{scale}: measured {pair.measured_change:+.3g}, predicted {pair.predicted_change:+.3g}",
        f"{where(pair.first)}; {where(pair.second)}",
    ]
    return [*lines, "a value is suspicious"] if pair.is_suspicious else lines


def _exchanges(examined: Examined) -> Html:
    """Return the exchanges of substituents of several pairs, and what they change on average."""
    grouped: dict[tuple[str, str, str], list[PairChange]] = {}
    for pair in examined.pairs:
        grouped.setdefault((pair.target, pair.before, pair.after), []).append(pair)
    several = [(key, pairs) for key, pairs in grouped.items() if len(pairs) >= FEWEST]
    rows = []
    for (target, before, after), pairs in several:
        measured, predicted = (
            np.array([getattr(pair, name) for pair in pairs])
            for name in ("measured_change", "predicted_change")
        )
        error = measured.std(ddof=1) / math.sqrt(len(pairs))
        size = abs(measured.mean()) * math.sqrt(len(pairs))
        changes = (rounded_error(measured.mean(), error, signed=True), f"{predicted.mean():+.3g}")
        rows.append((size, [_exchange(before, after), target, f"{len(pairs):,}", *changes]))
    rows.sort(key=lambda row: -row[0])
    lead = paragraph(
        f"Exchanges with at least {FEWEST} pairs, the ones with the largest mean change times the root of "
        "their number first. * is the open bond. The ± is the standard error of the mean.",
        soft=True,
    )
    if not rows:
        return section(paragraph(f"No exchange has {FEWEST} pairs.", soft=True))
    header = ["exchange", "target", "pairs", "measured change", "predicted change"]
    return section(lead, heading("Mean changes"), table(header, [cells for _, cells in rows[:LISTED]]))


def _exchange(before: str, after: str) -> str:
    """Write an exchange of substituents for people, such as `Cl* → F*`; the files have SMILES."""
    first, second = (text.replace(OPEN_BOND, "*").replace("[H]", "H") for text in (before, after))
    return f"{first} → {second}"


def where(place: TableRow) -> str:
    """Describe a row for a person."""
    line = "" if place.line is None else f" (line {place.line})"
    name = f"{place.name}, " if place.name else ""
    return f"{name}row {place.row}{line} of {place.file}"


def _drawing(smiles: str) -> Html:
    try:
        drawings = [draw_smiles(smiles, dark=dark) for dark in (False, True)]
    except ChemError:
        return Html("")
    return in_both_schemes(*(text[text.index("<svg") :] for text in drawings))


def _suspect_cells(suspect: Suspect) -> list[str]:
    numbers = (suspect.lower, suspect.upper, suspect.probability, suspect.excess)
    return [
        *(
            suspect.target,
            suspect.unit,
            suspect.place.name,
            *_place_cells(suspect.place),
            suspect.place.smiles,
            suspect.measured,
            suspect.predicted,
        ),
        *map(_number, numbers),
        "; ".join(suspect.reasons),
    ]


def _pair_cells(pair: PairChange) -> list[str]:
    first, second = (
        [place.name, place.file, str(place.row), place.smiles] for place in (pair.first, pair.second)
    )
    scale = "log10" if pair.is_logarithm else "linear"
    return [
        *(pair.target, scale, *first, *second, pair.constant, pair.before, pair.after),
        *map(_number, (*pair.measured, pair.measured_change, *pair.predicted, pair.predicted_change)),
        *(str(value).lower() for value in (pair.is_cliff, pair.is_suspicious)),
    ]


def _place_cells(place: TableRow) -> list[str]:
    return [place.file, str(place.row), "" if place.line is None else str(place.line)]


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def _csv(header: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()
