"""Matched pairs of molecules of a fit, with their measured and predicted changes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from molslice.chem.matched_pairs import find_matched_pairs
from molslice.data.molecules.fragments import choose_fragments
from molslice.report.fit_rows import FitRows, MarkedRows
from molslice.report.table_rows import TableRow


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


def find_pair_changes(
    fit: FitRows, targets: Sequence[MarkedRows], progress: Callable[[int, int], None]
) -> list[PairChange]:
    """Find the matched pairs of rows with an exact value and the same conditions, for each target.

    Args:
        fit: The rows of the fit.
        targets: The rows with an out-of-fold prediction of each target.
        progress: Called with the number of molecules that are searched and of all.
    """
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
        wrong = set(target.rows[target.is_suspicious].tolist())
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
        changes += sorted(of_target, key=lambda change: -abs(change.measured_change))
    return changes
