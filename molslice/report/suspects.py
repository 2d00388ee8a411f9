"""Measured values of a fit that may be wrong, and pairs of molecules whose values change a lot.

A value is suspicious if it is outside the 99% interval of its out-of-fold prediction, or if it contradicts
another value of the same molecule. The fit names the largest contradictions; all of these are suspicious. The
folder of the fit has all that is needed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from molslice.data.molecules.tables import open_molecules
from molslice.files.urls import File
from molslice.fitting.duplicates import LEAST_CONFLICT
from molslice.inference.base import Predictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.uncertainty import two_classes
from molslice.report.fit_rows import Entry, FitRows, JudgedRows, MarkedRows
from molslice.report.pair_changes import PairChange, find_pair_changes
from molslice.report.table_rows import TableRow
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import HeldOut
from molslice.uncertainty.probabilities import calibrate
from molslice.uncertainty.rounding import rounded_interval
from molslice.uncertainty.tails import least_probability, usual_error

LEVEL = 0.99
SHOWN = 3  # other values of a molecule in a reason
ENOUGH = 20  # molecules with several values, whose differences say what is usual
CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Suspect:
    """A suspicious value.

    Attributes:
        target: The target.
        unit: Its unit; empty without one.
        place: Its row.
        measured: The value as text: a number, a limit or a class.
        predicted: The out-of-fold prediction: a number or the most probable class; "" without one.
        lower: The lower end of the 99% interval of a number; NaN for a class or without a prediction.
        upper: The upper end, as `lower`.
        probability: The out-of-fold probability of the measured class; NaN for a number.
        excess: How large the error is, relative to the half of the interval, or how large the difference from
            another value is, relative to the usual one or to `LEAST_CONFLICT`; for classes, the least usual
            probability divided by the one of the class. At least 1.
        reasons: Why it is suspicious.
    """

    target: str
    unit: str
    place: TableRow
    measured: str
    predicted: str
    lower: float
    upper: float
    probability: float
    excess: float
    reasons: tuple[str, ...]

    @property
    def has_interval(self) -> bool:
        """Whether it has the interval of a number."""
        return math.isfinite(self.lower)

    def rounded(self) -> tuple[str, str, str]:
        """Return the prediction and the ends of its interval for people to read; see `rounded_interval`."""
        return rounded_interval(float(self.predicted), self.lower, self.upper)


@dataclass(frozen=True, slots=True)
class Examined:
    """The suspicious values and the matched pairs of a fit.

    Attributes:
        model: Name of the model.
        values: Number of values of the table that were compared with an out-of-fold prediction or with
            another value of the molecule.
        suspects: The suspicious values, the most suspicious first; values of one molecule follow each other.
        pairs: The matched pairs, the largest measured change of each target first.
        knows_table: Whether the folder knows the rows of the table.
        judged: The rows with a value and an out-of-fold prediction of each target; not for several classes.
        table_columns: The columns of the table, if it was read.
        table_cells: The cells of the rows of suspects in these columns, by file and row.
    """

    model: str
    values: int
    suspects: tuple[Suspect, ...]
    pairs: tuple[PairChange, ...]
    knows_table: bool
    judged: Mapping[str, JudgedRows]
    table_columns: tuple[str, ...] = ()
    table_cells: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Judged:
    """The values of one target.

    Attributes:
        rows: The rows of `rows.csv` with an out-of-fold prediction, int [n].
        truth: Their values, float64 [n].
        predicted: Their predictions, or the probabilities of class 1, float64 [n].
        compared: The numbers of the entries whose values were compared.
        suspects: The suspicious values by the number of their entry.
        errors: How far a value is from its prediction, by the number of its entry: on the scale of the
            learners, for a class one minus its probability.
    """

    rows: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray
    compared: set[int] = field(default_factory=set)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    errors: dict[int, float] = field(default_factory=dict)

    def add(self, number: int, suspect: Suspect) -> None:
        """Add a suspect, or the reasons to a known one."""
        known = self.suspects.get(number)
        if known is not None:
            reasons, excess = (*known.reasons, *suspect.reasons), max(known.excess, suspect.excess)
            suspect = replace(known, reasons=reasons, excess=excess)
        self.suspects[number] = suspect


def examine(
    predictor: Predictor,
    *,
    table: File | str | None = None,
    progress: Callable[[int, int], None] = lambda done, rows: None,
) -> Examined:
    """Find suspicious values and matched pairs among the training rows of a fit.

    The interval of a value is computed from the out-of-fold errors of all rows, as if the largest were no
    wrong measurements (see `usual_error`), so that wrong values do not hide each other.

    Args:
        predictor: A model of `molslice fit`.
        table: The table of the fit, whose cells are added to the suspects; None for no cells.
        progress: Called with the number of molecules that are searched for pairs and of all.

    Raises:
        MolsliceError: The model is no fit, its folder has no rows or is damaged, or `table` is another one.
    """
    if not isinstance(predictor, FittedPredictor):
        raise MolsliceError(f"suspicious values need a model of molslice fit; {predictor.name} is a network")
    fit = FitRows(predictor)
    if table is not None and not fit.knows_table:
        raise MolsliceError(
            f"{predictor.name} was fitted by an earlier version, which did not keep the rows of its table; "
            "fit it again for --table"
        )
    targets = [_judge(fit, index) for index in range(len(fit.names))]
    suspects = _ordered(fit, targets)
    marked = [_marked(fit, target) for target in targets]
    pairs = () if predictor.partner is not None else find_pair_changes(fit, marked, progress)
    judged = {
        name: _judged_rows(fit, index, targets[index])
        for index, name in enumerate(fit.names)
        if fit.types[index].several is None
    }
    columns, cells = ((), {}) if table is None else _read_cells(table, predictor, suspects)
    values = sum(len(target.compared) for target in targets)
    return Examined(predictor.name, values, suspects, tuple(pairs), fit.knows_table, judged, columns, cells)


def _marked(fit: FitRows, target: _Judged) -> MarkedRows:
    suspicious = {fit.entries[number].row for number in target.suspects}
    marks = np.array([row in suspicious for row in target.rows.tolist()], bool)
    return MarkedRows(target.rows, target.truth, target.predicted, marks)


def _judged_rows(fit: FitRows, index: int, target: _Judged) -> JudgedRows:
    """Collect the rows of the table with a value and an out-of-fold prediction of a target."""
    places = {row: place for place, row in enumerate(target.rows.tolist())}
    molecules, rows = dict[object, int](), list[tuple[float, float, bool, int]]()
    for number, entry in enumerate(fit.entries):
        if (place := places.get(entry.row)) is None:
            continue
        value = target.truth[place] if fit.limit(index, entry.row) else entry.values[index]
        if math.isfinite(value):
            molecule = molecules.setdefault(entry.molecule, len(molecules))
            rows.append((value, target.predicted[place], number in target.suspects, molecule))
    kinds = (np.float64, np.float64, np.bool_, np.int64)
    columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
    return JudgedRows(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def _judge(fit: FitRows, index: int) -> _Judged:
    """Compare the values of a target with the out-of-fold predictions, and with each other."""
    held_out, rows = fit.calibration.targets[index], fit.held_out_rows(index)
    if not len(rows):
        return _Judged(rows, held_out.truth, held_out.truth)
    judge = _judge_classes if fit.types[index].has_classes else _judge_numbers
    return judge(fit, index, held_out, rows)


def _judge_numbers(fit: FitRows, index: int, held_out: HeldOut, rows: np.ndarray) -> _Judged:
    judged = _Judged(rows, held_out.truth, held_out.predicted)
    scales = np.broadcast_to(held_out.scale(held_out.difficulty), (len(rows),))
    halves = usual_error(held_out.scores, LEVEL) * scales
    centers = held_out.transform(held_out.predicted)
    lower, upper = held_out.invert(centers - halves), held_out.invert(centers + halves)
    places = {row: place for place, row in enumerate(rows.tolist())}

    def suspect(entry: Entry, excess: float, reason: str) -> Suspect:
        value, place = entry.values[index], places.get(entry.row)
        limit = fit.limit(index, entry.row) if entry.row >= 0 else ""
        measured = fit.text(index, value) if math.isfinite(value) else limit
        ends = (math.nan, math.nan) if place is None else (float(lower[place]), float(upper[place]))
        predicted = "" if place is None else fit.text(index, held_out.predicted[place])
        name, unit = fit.names[index], fit.units[index]
        return Suspect(name, unit, entry.place, measured, predicted, *ends, math.nan, excess, (reason,))

    several: dict[object, dict[int, float]] = {}
    for number, entry in enumerate(fit.entries):
        value, place = entry.values[index], places.get(entry.row)
        if not math.isfinite(value) and place is not None:
            value = held_out.truth[place] if fit.limit(index, entry.row) else math.nan
        elif math.isfinite(value) and not (held_out.logarithmic and value <= 0):
            several.setdefault(entry.molecule, {})[number] = held_out.transform_limit(value)
        if place is None or not math.isfinite(value) or (held_out.logarithmic and value <= 0):
            continue
        judged.compared.add(number)
        error = judged.errors[number] = abs(held_out.transform_limit(value) - centers[place])
        if error > halves[place]:
            judged.add(number, suspect(entry, error / halves[place], f"outside the {LEVEL:.0%} interval"))
    several = {name: values for name, values in several.items() if len(values) > 1}
    for numbers, excess in _contradictions(fit, index, several, {row: halves[places[row]] for row in places}):
        for number in numbers:
            others = [other for other in numbers if other != number]
            judged.add(
                number, suspect(fit.entries[number], excess, _contradiction(fit, index, number, others))
            )
    judged.compared.update(judged.suspects, *several.values())
    return judged


def _contradictions(
    fit: FitRows, index: int, several: Mapping[object, Mapping[int, float]], halves: Mapping[int, float]
) -> list[tuple[list[int], float]]:
    """Find the molecules whose numbers contradict each other, and how much; see `Suspect.excess`.

    Args:
        fit: The rows.
        index: Number of the target.
        several: The values of each molecule that has several by the number of the entry, in the learned unit.
        halves: The half of the interval of each row of `rows.csv` that has one.

    Returns:
        The numbers of the entries of each molecule, and the excess.
    """
    gaps = {name: float(np.ptp([*values.values()])) for name, values in several.items()}
    differing = np.array([gap for gap in gaps.values() if gap > 0])
    usual = usual_error(differing, LEVEL) if len(differing) >= ENOUGH else math.inf
    contradictions = dict[object, tuple[list[int], float]]()
    for conflict in fit.conflicts:
        if conflict.target == index:
            numbers = [row for row in conflict.rows if math.isfinite(fit.entries[row].values[index])]
            contradictions[fit.entries[numbers[0]].molecule] = numbers, conflict.size / LEAST_CONFLICT
    for name, values in several.items():
        numbers = [*values]
        limit = min(usual, halves.get(fit.entries[numbers[0]].row, math.inf))
        if gaps[name] > limit:
            contradictions[name] = numbers, gaps[name] / limit
    return [*contradictions.values()]


def _judge_classes(fit: FitRows, index: int, held_out: HeldOut, rows: np.ndarray) -> _Judged:
    probabilities = held_out.predicted
    if held_out.line is not None:
        probabilities = two_classes(calibrate(probabilities, *held_out.line))
    one_column = probabilities[:, 1]
    judged, least = _Judged(rows, held_out.truth, one_column), least_probability(probabilities, LEVEL)
    places = {row: place for place, row in enumerate(rows.tolist())}

    def suspect(entry: Entry, excess: float, reason: str) -> Suspect:
        label, place = int(entry.values[index]), places.get(entry.row)
        given = None if place is None else probabilities[place]
        predicted = "" if given is None else fit.text(index, given.argmax())
        probability = math.nan if given is None else float(given[label])
        name, no_interval = fit.names[index], (math.nan, math.nan)
        measured = fit.text(index, label)
        return Suspect(
            name, "", entry.place, measured, predicted, *no_interval, probability, excess, (reason,)
        )

    several: dict[object, list[int]] = {}
    for number, entry in enumerate(fit.entries):
        if not math.isfinite(entry.values[index]):
            continue
        several.setdefault(entry.molecule, []).append(number)
        place = places.get(entry.row)
        if place is not None:
            judged.compared.add(number)
        probability = 1.0 if place is None else float(probabilities[place, int(entry.values[index])])
        judged.errors[number] = 1.0 - probability
        if probability < least:
            excess = least / max(probability, np.finfo(float).tiny)
            judged.add(number, suspect(entry, excess, f"outside the {LEVEL:.0%} set of classes"))
    for numbers in several.values():
        judged.compared.update(numbers if len(numbers) > 1 else ())
        labels = {number: fit.entries[number].values[index] for number in numbers}
        for number, label in labels.items() if len({*labels.values()}) > 1 else ():
            others = [other for other in numbers if labels[other] != label]
            judged.add(
                number, suspect(fit.entries[number], math.inf, _contradiction(fit, index, number, others))
            )
    return judged


def _contradiction(fit: FitRows, index: int, number: int, others: Sequence[int]) -> str:
    """Name the other values of the molecule of an entry, with their rows and names if these differ."""
    name, listed = fit.entries[number].place.name, []
    for other in (fit.entries[other] for other in others[:SHOWN]):
        text = f"{fit.text(index, other.values[index])} in row {other.place.row}"
        has_other_name = other.place.name not in ("", name)
        listed.append(f"{text} ({other.place.name})" if has_other_name else text)
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return f"contradicts {', '.join(listed)}{more}"


def _ordered(fit: FitRows, targets: Sequence[_Judged]) -> tuple[Suspect, ...]:
    """Order suspects by the largest excess of each molecule, then by their errors."""
    listed, largest = [], dict[tuple[int, object], float]()
    for index, target in enumerate(targets):
        for number, suspect in target.suspects.items():
            key = index, fit.entries[number].molecule
            largest[key] = max(largest.get(key, 0.0), suspect.excess)
            listed.append((key, (-target.errors.get(number, 0.0), number), suspect))
    order = {key: place for place, key in enumerate(sorted(largest, key=lambda key: -largest[key]))}
    return tuple(suspect for *_, suspect in sorted(listed, key=lambda item: (order[item[0]], item[1])))


def _read_cells(
    table: File | str, predictor: FittedPredictor, suspects: Sequence[Suspect]
) -> tuple[tuple[str, ...], dict[tuple[str, int], list[str]]]:
    """Read the cells of the rows of suspects from the table of the fit.

    Raises:
        MolsliceError: The table cannot be read, or has other rows than the fit.
    """
    wanted = {(suspect.place.file, suspect.place.row): suspect.place.smiles for suspect in suspects}
    cells = dict[tuple[str, int], list[str]]()
    column, delimiter = predictor.model.about["smiles_column"], predictor.fit_options.get("delimiter")
    with open_molecules([table], smiles_column=column, delimiter=delimiter) as opened:
        for chunk in opened.chunks(CHUNK_ROWS, [column]):
            for place, smiles in enumerate(chunk[column]):
                key = chunk.path.name, chunk.first + place
                if wanted.get(key) == smiles:
                    cells[key] = chunk.cells[place]
        names = tuple(opened.names)
    missing = next((key for key in wanted if key not in cells), None)
    if missing is not None:
        raise MolsliceError(
            f"{table} is not the table of {predictor.name}: row {missing[1]} of {missing[0]} differs"
        )
    return names, cells
