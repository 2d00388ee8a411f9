"""Measured values of a fit that may be wrong, and pairs of molecules whose values change a lot.

A value is suspicious if it is outside the 99% interval of its out-of-fold prediction, or if it contradicts
another value of the same molecule. The fit names the largest contradictions; all of these are suspicious. The
folder of the fit has all that is needed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from molslice.chem.canonical import canonical_molecule
from molslice.chem.matched_pairs import find_matched_pairs
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.molecules.tables import open_molecules
from molslice.files.urls import File
from molslice.fitting.duplicates import LEAST_CONFLICT, Conflict, find_conflicts
from molslice.folders.fitted import ROWS, row_columns
from molslice.inference.base import SmilesPredictor
from molslice.inference.fitted import FittedPredictor, prediction_row_columns
from molslice.inference.uncertainty import two_classes
from molslice.report.measure import read_value
from molslice.report.table_rows import MeasuredRow, TableRow, knows_table, read_csv, read_table_rows
from molslice.tasks.target_types import column_slices
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
class PairChange:
    """Two measured molecules that differ by a substituent, and what the exchange changes.

    The numbers are in the unit of the target, or of its common logarithm if `is_logarithm`; of two classes,
    they are class 1 and its probability.

    Attributes:
        target: The target.
        is_logarithm: Whether the changes are differences of common logarithms.
        first: The row of the first molecule.
        second: The row of the second molecule.
        constant: What both molecules have; see `MatchedPair`.
        before: What the first molecule has beside it.
        after: What the second molecule has.
        measured: The measured values.
        predicted: The out-of-fold predictions.
        is_cliff: Whether the measured change is larger than the standard deviation of all measured values;
            of classes, whether they differ.
        is_suspicious: Whether a value is suspicious.
    """

    target: str
    is_logarithm: bool
    first: TableRow
    second: TableRow
    constant: str
    before: str
    after: str
    measured: tuple[float, float]
    predicted: tuple[float, float]
    is_cliff: bool
    is_suspicious: bool

    @property
    def measured_change(self) -> float:
        """The second measured value minus the first."""
        return self._change(self.measured)

    @property
    def predicted_change(self) -> float:
        """The second prediction minus the first."""
        return self._change(self.predicted)

    def _change(self, values: tuple[float, float]) -> float:
        first, second = (math.log10(value) if self.is_logarithm else value for value in values)
        return second - first


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
        judged: For each target the measured values, the out-of-fold predictions, and whether the value is
            suspicious, [n] each; not for several classes.
        table_columns: The columns of the table, if it was read.
        table_cells: The cells of the rows of suspects in these columns, by file and row.
    """

    model: str
    values: int
    suspects: tuple[Suspect, ...]
    pairs: tuple[PairChange, ...]
    knows_table: bool
    judged: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    table_columns: tuple[str, ...] = ()
    table_cells: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _Entry:
    """A row of the table.

    Attributes:
        place: Where it is.
        row: Its row of `rows.csv`, from 0; a negative number for a molecule that has none.
        molecule: What rows of one molecule in the same conditions have in common.
        values: The values of the targets, NaN where missing or a limit.
    """

    place: TableRow
    row: int
    molecule: object
    values: list[float]


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
    predictor: SmilesPredictor,
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
    fit = _Rows(predictor)
    if table is not None and not fit.knows_table:
        raise MolsliceError(
            f"{predictor.name} was fitted by an earlier version, which did not keep the rows of its table; "
            "fit it again for --table"
        )
    targets = [_judge(fit, index) for index in range(len(fit.names))]
    suspects = _ordered(fit, targets)
    pairs = () if predictor.partner is not None else _find_pairs(fit, targets, progress)
    judged = {}
    for name, one, target in zip(fit.names, fit.types, targets, strict=True):
        if one.several is None:
            wrong = {fit.entries[number].row for number in target.suspects}
            marks = np.array([row in wrong for row in target.rows.tolist()], bool)
            judged[name] = (target.truth, target.predicted, marks)
    columns, cells = ((), {}) if table is None else _read_cells(table, predictor, suspects)
    values = sum(len(target.compared) for target in targets)
    return Examined(predictor.name, values, suspects, tuple(pairs), fit.knows_table, judged, columns, cells)


class _Rows:
    """The rows of a fit: `rows.csv`, `table_rows.csv` and the calibration."""

    def __init__(self, predictor: FittedPredictor) -> None:
        self.predictor, self.file = predictor, predictor.folder / ROWS
        self.types, self.names = predictor.types, predictor.target_names
        self.columns, self.units = row_columns(self.names), predictor.target_units
        self.rows = read_csv(self.file, [*self.columns, "smiles", "split"])
        self.calibration = predictor.find_calibration()
        predicted = prediction_row_columns(self.names, self.types, predictor.condition_names)
        try:
            targets = [*zip(self.columns, self.types, strict=True)]
            values = [[read_value(row[name], one) for name, one in targets] for row in self.rows]
            cells = [[float(row[name] or "nan") for name in predicted] for row in self.rows]
        except (KeyError, ValueError) as error:
            raise MolsliceError(f"cannot read {self.file}: {error}") from error
        self.values = np.array(values).reshape(len(self.rows), len(self.columns))
        self.predictions = np.array(cells).reshape(len(self.rows), len(predicted))
        self.knows_table = knows_table(predictor)
        self.entries = self._read_entries()
        self.conflicts = self._find_conflicts()

    def text(self, index: int, value: float) -> str:
        """Return a value of a target as text, for a class its name."""
        one = self.types[index]
        return one.class_names[int(value)] if one.has_classes else f"{value:.6g}"

    def conditions(self, row: int) -> tuple[str, ...]:
        """Return the conditions and the second molecule of a row of `rows.csv`."""
        return tuple(self.rows[row].get(name, "") for name in self.predictor.condition_names)

    def _read_entries(self) -> list[_Entry]:
        if self.knows_table:
            rows = read_table_rows(self.predictor, len(self.rows))
        else:
            places = [
                TableRow(self.file.name, number, number + 1, cells["smiles"])
                for number, cells in enumerate(self.rows, 1)
            ]
            rows = [MeasuredRow(place, row, self.values[row].tolist()) for row, place in enumerate(places)]
        entries = [_Entry(one.place, one.row, one.row, one.values) for one in rows]
        if self.predictor.fit_options.get("duplicates") == "keep":
            names = choose_fragments([one.place.smiles for one in entries], *self.predictor.treatment).smiles
            for one, name in zip(entries, names, strict=True):
                if one.row >= 0:
                    one.molecule = canonical_molecule(name).smiles, self.conditions(one.row)
        return entries

    def _find_conflicts(self) -> list[Conflict]:
        """Find the conflicts that the fit names; their rows are numbers of entries."""
        molecules: dict[object, list[int]] = {}
        for number, entry in enumerate(self.entries):
            molecules.setdefault(entry.molecule, []).append(number)
        values = np.array([entry.values for entry in self.entries]).reshape(-1, len(self.names))
        has_classes = np.array([one.has_classes for one in self.types])
        return find_conflicts(values, has_classes, [rows for rows in molecules.values() if len(rows) > 1])

    def held_out_rows(self, index: int) -> np.ndarray:
        """Find the rows of `rows.csv` that the held-out rows of a target are, int [n]."""
        held_out, columns = self.calibration.targets[index], [*column_slices(self.types)][index]
        matched, row = [], -1
        for truth, predicted in zip(held_out.truth, held_out.predicted, strict=True):
            row += 1
            while row < len(self.rows) and not (
                self.rows[row]["split"] == "train"
                and np.allclose(self.predictions[row, columns], predicted, atol=0.0)
                and (np.isclose(self.values[row, index], truth, atol=0.0) or self.limit(index, row))
            ):
                row += 1
            if row == len(self.rows):
                raise MolsliceError(f"{self.file} does not fit the calibration of {self.predictor.name}")
            matched.append(row)
        return np.array(matched, np.int64)

    def limit(self, index: int, row: int) -> str:
        """Return the limit of a target in a row, such as `>10`; "" without one."""
        is_known = math.isfinite(self.values[row, index])
        return "" if is_known else self.rows[row].get(f"{self.columns[index]}_limit", "")


def _judge(fit: _Rows, index: int) -> _Judged:
    """Compare the values of a target with the out-of-fold predictions, and with each other."""
    held_out, rows = fit.calibration.targets[index], fit.held_out_rows(index)
    if not len(rows):
        return _Judged(rows, held_out.truth, held_out.truth)
    judge = _judge_classes if fit.types[index].has_classes else _judge_numbers
    return judge(fit, index, held_out, rows)


def _judge_numbers(fit: _Rows, index: int, held_out: HeldOut, rows: np.ndarray) -> _Judged:
    judged = _Judged(rows, held_out.truth, held_out.predicted)
    scales = np.broadcast_to(held_out.scale(held_out.difficulty), (len(rows),))
    halves = usual_error(held_out.scores, LEVEL) * scales
    centers = held_out.transform(held_out.predicted)
    lower, upper = held_out.invert(centers - halves), held_out.invert(centers + halves)
    places = {row: place for place, row in enumerate(rows.tolist())}

    def suspect(entry: _Entry, excess: float, reason: str) -> Suspect:
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
            judged.add(number, suspect(fit.entries[number], excess, _contradiction(fit, index, others)))
    judged.compared.update(judged.suspects, *several.values())
    return judged


def _contradictions(
    fit: _Rows, index: int, several: Mapping[object, Mapping[int, float]], halves: Mapping[int, float]
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


def _judge_classes(fit: _Rows, index: int, held_out: HeldOut, rows: np.ndarray) -> _Judged:
    probabilities = held_out.predicted
    if held_out.line is not None:
        probabilities = two_classes(calibrate(probabilities, *held_out.line))
    one_column = probabilities[:, 1]
    judged, least = _Judged(rows, held_out.truth, one_column), least_probability(probabilities, LEVEL)
    places = {row: place for place, row in enumerate(rows.tolist())}

    def suspect(entry: _Entry, excess: float, reason: str) -> Suspect:
        label, place = int(entry.values[index]), places.get(entry.row)
        given = None if place is None else probabilities[place]
        predicted = "" if given is None else fit.text(index, given.argmax())
        probability = math.nan if given is None else float(given[label])
        name, nothing = fit.names[index], (math.nan, math.nan)
        measured = fit.text(index, label)
        return Suspect(name, "", entry.place, measured, predicted, *nothing, probability, excess, (reason,))

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
            judged.add(number, suspect(fit.entries[number], math.inf, _contradiction(fit, index, others)))
    return judged


def _contradiction(fit: _Rows, index: int, others: Sequence[int]) -> str:
    listed = [
        f"{fit.text(index, fit.entries[other].values[index])} in row {fit.entries[other].place.row}"
        for other in others[:SHOWN]
    ]
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return f"contradicts {', '.join(listed)}{more}"


def _ordered(fit: _Rows, targets: Sequence[_Judged]) -> tuple[Suspect, ...]:
    """Order suspects by the largest excess of each molecule, then by their errors."""
    listed, largest = [], dict[tuple[int, object], float]()
    for index, target in enumerate(targets):
        for number, suspect in target.suspects.items():
            key = index, fit.entries[number].molecule
            largest[key] = max(largest.get(key, 0.0), suspect.excess)
            listed.append((key, (-target.errors.get(number, 0.0), number), suspect))
    order = {key: place for place, key in enumerate(sorted(largest, key=lambda key: -largest[key]))}
    return tuple(suspect for *_, suspect in sorted(listed, key=lambda one: (order[one[0]], one[1])))


def _find_pairs(
    fit: _Rows, targets: Sequence[_Judged], progress: Callable[[int, int], None]
) -> list[PairChange]:
    """Find the matched pairs of rows with an exact value and the same conditions, for each target."""
    smiles = choose_fragments([row["smiles"] for row in fit.rows], *fit.predictor.treatment).smiles
    matched = [
        pair
        for pair in find_matched_pairs(smiles, progress=progress)
        if fit.conditions(pair.first) == fit.conditions(pair.second)
    ]
    first_entries = dict[int, TableRow]()
    for entry in fit.entries:
        first_entries.setdefault(entry.row, entry.place)
    changes = []
    for index, target in enumerate(targets):
        held_out = fit.calibration.targets[index]
        if fit.types[index].several is not None:
            continue
        exact = np.isfinite(fit.values[target.rows, index])
        places = {int(row): place for place, row in enumerate(target.rows) if exact[place]}
        spread = float(held_out.transform(target.truth[exact]).std()) if exact.any() else 0.0
        wrong = {fit.entries[number].row for number in target.suspects}
        of_target = []
        for pair in matched:
            rows = pair.first, pair.second
            if not places.keys() >= {*rows}:
                continue
            first, second = (places[row] for row in rows)
            change = PairChange(
                fit.names[index],
                held_out.logarithmic,
                first_entries[pair.first],
                first_entries[pair.second],
                pair.constant,
                pair.before,
                pair.after,
                (float(target.truth[first]), float(target.truth[second])),
                (float(target.predicted[first]), float(target.predicted[second])),
                False,
                bool(wrong & {*rows}),
            )
            is_cliff = abs(change.measured_change) > (0.0 if held_out.line is not None else spread)
            of_target.append(replace(change, is_cliff=is_cliff))
        changes += sorted(of_target, key=lambda one: -abs(one.measured_change))
    return changes


def _read_cells(
    table: File | str, predictor: FittedPredictor, suspects: Sequence[Suspect]
) -> tuple[tuple[str, ...], dict[tuple[str, int], list[str]]]:
    """Read the cells of the rows of suspects from the table of the fit.

    Raises:
        MolsliceError: The table cannot be read, or has other rows than the fit.
    """
    wanted = {(one.place.file, one.place.row): one.place.smiles for one in suspects}
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
