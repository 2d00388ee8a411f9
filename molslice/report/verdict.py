"""What the measured errors mean, in a few sentences for each target.

The guide of `molslice fit` states the rules, and the constants below are their numbers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from molslice.fitting.card import NAMES
from molslice.inference.fitted import FittedPredictor
from molslice.report.measure import MeasuredModel, SplitPredictions
from molslice.report.page import FEW, limits_text, share_text
from molslice.tasks.metrics import METRIC_LABELS, average_precision
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.standard_errors import MeasuredMetric, error_of_mean, measure_rows
from molslice.uncertainty.rounding import rounded_error
from molslice.uncertainty.scores import rank_correlation

FEWEST = 10  # molecules with an exact value from which there is a verdict
SMALL = 50  # molecules below which a split is called small
FEW_HELD_OUT = 100  # fewer held-out rows stand after the cross-validated ones, as in the table of a fit
ROUGH = " There are few molecules, so these numbers are rough."
CLEAR = 2.0  # standard errors of a difference
RANKS, RANKS_WEAKLY = 0.5, 0.3  # rank correlations
SEPARATES, SEPARATES_WEAKLY = 0.7, 0.6  # areas under the ROC curve
CHANCE = 0.5  # area under the ROC curve of random numbers
INSIDE = 0.8  # share of errors within the distance that decisions need, so that nine in ten are right
LEVEL = 0.9  # of the intervals
TRAINED = 0.1  # share of molecules that the model was trained on, from which there is no verdict


def verdicts(measured: MeasuredModel) -> list[str]:
    """Return sentences for each target, and one about the width of its intervals or the size of its sets."""
    lines = []
    for index, name in enumerate(measured.predictor.target_names):
        lines.append(f"{name}: {_verdict(measured, index)}")
        lines += [f"{name}: {width}." for width in _widths(measured, index)]
    return lines


@dataclass(frozen=True, slots=True)
class _Case:
    """Predictions of a target for molecules that the models had not seen.

    Attributes:
        measured: The model.
        target: Index of the target.
        split: The rows.
        kind: What the rows are, such as `held-out`.
        recorded: Their place in the errors of `fit.json`; "" if it does not have them.
        truth: Measured values or indices of classes, float64 [n]; of limits, the possible values nearest to
            the predictions.
        predicted: Predictions, float64 [n, columns of the target].
        molecules: Number of the molecule of each row, int64 [n].
        bounds: The least and the largest possible value of limits, float64 [2, n], NaN for exact values.
        left_out: Number of further rows, whose value has no logarithm although it is learned.
    """

    measured: MeasuredModel
    target: int
    split: SplitPredictions
    kind: str
    recorded: str
    truth: np.ndarray
    predicted: np.ndarray
    molecules: np.ndarray
    bounds: np.ndarray
    left_out: int = 0

    @property
    def is_exact(self) -> np.ndarray:
        """Whether a value is no limit, bool [n]."""
        return np.isnan(self.bounds[0])

    @property
    def several(self) -> SeveralClasses | None:
        """The classes, if there are more than two."""
        return self.measured.types[self.target].several

    def error(self, metric: str, predicted: np.ndarray) -> MeasuredMetric:
        """Measure predictions of the rows."""
        return measure_rows(self.measured.types[self.target], predicted, self.truth, self.molecules, metric)

    def announced(self, metric: str, error: MeasuredMetric) -> tuple[float, float]:
        """Return a metric and its standard error, of a fit as in `fit.json`."""
        of_record = self.of_record(metric, self.recorded)
        if of_record is not None and np.isclose(of_record[0], error.value, rtol=1e-3):  # not of a sample
            return of_record
        return error.value, error.standard_error

    def stated(self, metric: str, error: MeasuredMetric) -> str:
        """Write a metric with its standard error and the rows."""
        value, spread = self.announced(metric, error)
        return f"{rounded_error(value, spread)}{self.unit(metric)} on {self.rows_text}"

    @property
    def rows_text(self) -> str:
        """How many rows have an error, how many of their values are limits, and how many rows have none."""
        rows = f"{len(self.truth):,} {self.kind} {self.measured.noun}"
        left_out = f" ({self.left_out:,} without a logarithm left out)" * bool(self.left_out)
        return f"{rows}{limits_text(int((~self.is_exact).sum()))}{left_out}"

    def of_record(self, metric: str, place: str) -> tuple[float, float] | None:
        """Return a metric in `fit.json` with its standard error, NaN if unknown; None if it is not there."""
        model = self.measured.predictor
        if not (isinstance(model, FittedPredictor) and place):
            return None
        result = model.model.about["results"][self.target]
        announced = result.get("metric", model.model.about.get("metric"))
        errors: Mapping[str, Any] = (
            result if metric == announced else result.get("metrics", {}).get(metric, {})
        )
        value, spread = errors.get(place), errors.get("standard_errors", {}).get(place)
        if place == "test":
            value, spread = ((by_name or {}).get(NAMES[0]) for by_name in (value, spread))
        return None if value is None else (value, math.nan if spread is None else spread)

    @property
    def held_out_text(self) -> str:
        """How many held-out rows of a fit have an error; see `rows_text`.

        If the predictions of some are not there, it is the number of rows with a value in `fit.json`.
        """
        assert isinstance(self.measured.predictor, FittedPredictor)
        count = self.measured.predictor.model.about["results"][self.target]["test_rows"]
        for case in _cases(self.measured, self.target):
            if case.recorded == "test" and len(case.truth) + case.left_out == count:
                return case.rows_text
        return f"{count:,} held-out {self.measured.noun}"

    def unit(self, metric: str) -> str:
        """Return the unit of a metric after a blank; "" without one."""
        unit = self.measured.predictor.target_units[self.target]
        return f" {unit}" if unit and metric == "mae" else ""

    def reservations(self, metric: str) -> str:
        """Say what to keep in mind: few rows, the other error of a fit, and learned molecules."""
        notes = [ROUGH] * (len(np.unique(self.molecules)) < SMALL)
        place, other = "cross_validated", f"cross-validated {_label(metric)}"
        if self.recorded == place:
            place, other = "test", f"{_label(metric)} on {self.held_out_text}"
        if self.recorded and (error := self.of_record(metric, place)) is not None:
            notes.append(f" The {other} is {rounded_error(*error)}{self.unit(metric)}.")
        if self.split is self.measured.judged and self.measured.trained:
            notes.append(f" The model was trained on {self.measured.trained_text} of these molecules.")
        return "".join(notes)


def _cases(measured: MeasuredModel, target: int) -> list[_Case]:
    """List what a verdict may come from: the held-out rows, before or after the cross-validated ones."""
    cases = list[_Case]()
    judged, splits = measured.judged, list[tuple[SplitPredictions, str, str]]()
    if (held_out := measured.held_out) is not None:
        splits.append((held_out, "held-out", "test"))
    if measured.is_learned:
        splits.append((judged, judged.label, "cross_validated"))
    elif judged.is_unseen or not measured.is_own:
        of_fit = measured.is_own and isinstance(measured.predictor, FittedPredictor)
        splits.append((judged, "held-out" if of_fit else judged.name, "test" if of_fit else ""))
        learned = [split for split in measured.splits if of_fit and split.is_out_of_fold]
        splits += [(split, split.label, "cross_validated") for split in learned]
    for split, kind, recorded in splits:
        known, truth = split.measured(target)
        left_out = 0
        if measured.predictor.is_logarithmic(target):
            left_out = int((truth <= 0).sum())
            positive = (truth > 0) & (split.values(target)[known] > 0)
            known, truth = known[positive], truth[positive]
        rows = (truth, split.predicted[known, split.columns[target]], split.molecules[known])
        limits = split.limits(target)[:, known]
        cases.append(_Case(measured, target, split, kind, recorded, *rows, limits, left_out))
    return sorted(cases, key=lambda case: case.recorded == "test" and len(case.truth) < FEW_HELD_OUT)


def _verdict(measured: MeasuredModel, target: int) -> str:
    describe = _of_classes if measured.types[target].has_classes else _of_number
    if (several := measured.types[target].several) is not None and several.ordered:
        describe = _of_ordered
    if not measured.is_own and measured.trained >= TRAINED * len(measured.judged.rows):
        return f"no verdict, because the model was trained on {measured.trained_text} of these molecules."
    for case in _cases(measured, target):
        exact = len(np.unique(case.molecules[case.is_exact]))
        if exact >= FEWEST and (sentence := describe(case)):
            return sentence
    if measured.is_own and not measured.judged.is_unseen:
        return "no verdict, because the model was trained on all molecules with a value."
    return "no verdict, because the molecules with a value are too few or lack a class."


def _of_number(case: _Case) -> str:
    truth, predicted, exact = case.truth, case.predicted[:, 0], case.is_exact
    metric, logarithmic = "mae", case.measured.predictor.is_logarithmic(case.target)
    shown = case.error("mae", predicted)
    middle = np.full(len(truth), np.median(truth[exact]))
    truth_for_median = np.where(exact, truth, np.clip(middle, *case.bounds))
    if logarithmic:  # errors are compared on the scale that is learned
        metric, shown = "fold_error", case.error("fold_error", predicted)
        columns = truth, predicted, middle, truth_for_median
        truth, predicted, middle, truth_for_median = map(np.log10, columns)
    off, without = np.abs(predicted - truth), np.abs(middle - truth_for_median)
    distance = float(np.quantile(off[exact | (off > 0)], INSIDE))  # a limit that is met says nothing of it
    start = f"{_label(metric)} {case.stated(metric, shown)}"
    median = 10.0 ** without.mean() if logarithmic else without.mean()
    compared = f"the error of predicting the median for all ({_short(median)})"
    if not _is_clear(without - off, case.molecules):
        return f"{start}, not clearly below {compared}. Not useful yet.{case.reservations(metric)}"
    lower = f"{1 - off.mean() / without.mean():.0%} below {compared}{' on a logarithmic scale' * logarithmic}"
    reach = f"a factor of {_short(10.0**distance)}" if logarithmic else _short(distance) + case.unit("mae")
    rank = rank_correlation(predicted[exact], truth[exact])
    decisions = f"{'but' if rank >= RANKS_WEAKLY else 'and'} not for decisions within {reach} of a threshold"
    ranking = _ranking(rank, " of exact values" * (not exact.all()))
    return f"{start}, {lower}. {ranking}, {decisions}.{case.reservations(metric)}"


def _of_classes(case: _Case) -> str:
    truth, names = case.truth, case.measured.types[case.target].class_names
    if case.several is None:
        metric, chances = "roc_auc", case.predicted[:, 0]
        chosen, threshold = chances > case.measured.threshold, f"{case.measured.threshold:g}"
        area = case.error(metric, chances)
        compared = (
            f"; PR-AUC {average_precision(chances, truth):.2f} "
            f"({_share_of(truth == 1, case.measured.noun)} have class {names[1]})"
        )
        right = [
            _share_of(truth[calls] == label, f"predictions of class {name}")
            for label, name, calls in ((1, names[1], chosen), (0, names[0], ~chosen))
            if calls.any()
        ]
        decided = f"At a threshold of {threshold}, {' and '.join(right)} are right"
    else:
        metric, chosen = "macro_roc_auc", case.several.choose(case.predicted)
        area, commonest = case.error(metric, case.predicted), np.bincount(truth.astype(np.int64)).argmax()
        compared, right = "", _share_of(chosen == truth, case.measured.noun)
        decided = (
            f"The predicted class is right for {right}, and the most common class for "
            f"{_share_of(truth == commonest, case.measured.noun)}"
        )
    if not math.isfinite(area.value):
        return ""
    start = f"{_label(metric)} {case.stated(metric, area)}{compared}"
    spread = case.announced(metric, area)[1]
    if not area.value - CHANCE > CLEAR * np.nan_to_num(spread):  # without one the ranking is perfect
        return f"{start}. Not clearly above chance ({CHANCE}); not useful yet.{case.reservations(metric)}"
    ranking = _usefulness(area.value, SEPARATES, SEPARATES_WEAKLY)
    return f"{start}. {ranking}. {decided}.{case.reservations(metric)}"


def _of_ordered(case: _Case) -> str:
    metric, truth, several = "class_error", case.truth, case.several
    assert several is not None
    chosen = several.choose(case.predicted)
    off, without = np.abs(chosen - truth), np.abs(np.median(truth) - truth)
    start = f"{_label(metric)} {case.stated(metric, case.error(metric, case.predicted))}"
    compared = f"the error of predicting the median class for all ({_short(without.mean())})"
    if not _is_clear(without - off, case.molecules):
        return f"{start}, not clearly below {compared}. Not useful yet.{case.reservations(metric)}"
    ranking = _ranking(rank_correlation(case.predicted @ np.arange(len(several.names)), truth))
    return (
        f"{start}, {1 - off.mean() / without.mean():.0%} below {compared}. {ranking}. The predicted class is "
        f"right for {_share_of(chosen == truth, case.measured.noun)}.{case.reservations(metric)}"
    )


def _is_clear(gains: np.ndarray, molecules: np.ndarray) -> bool:
    """Whether the mean of the differences of each row is clearly above zero."""
    return bool(gains.mean() > CLEAR * error_of_mean(gains, molecules))


def _ranking(rank: float, of_which: str = "") -> str:
    number = f"rank correlation {rank:.2f}{of_which}" if math.isfinite(rank) else "all predictions are equal"
    return f"{_usefulness(rank, RANKS, RANKS_WEAKLY)} ({number})"


def _usefulness(measure: float, useful: float, weak: float) -> str:
    if measure >= useful:
        return "Useful for ranking"
    return "Of little use for ranking" if measure >= weak else "Not useful for ranking"


def _label(metric: str) -> str:
    return "error" if metric == "mae" else METRIC_LABELS[metric]


def _share_of(is_one: np.ndarray, rows: str) -> str:
    """Return a share of rows, bool [n], such as `32.0% of molecules` or `3 of 4 molecules`."""
    share, few = share_text(int(is_one.sum()), len(is_one)), len(is_one) < FEW
    return f"{share} {rows}" if few else f"{share} of {rows}"


def _short(value: float) -> str:
    """Write a number with two digits."""
    return f"{float(f'{value:.2g}'):,.7g}"


def _widths(measured: MeasuredModel, target: int) -> Iterator[str]:
    """Yield how wide the intervals of a number are, or how large the sets of classes, if it is measured."""
    result, predictor = measured.uncertainty, measured.predictor
    if not isinstance(result, Mapping):
        return
    of_target = next(entry for entry in result["targets"] if entry["name"] == predictor.target_names[target])
    levels = [entry for entry in of_target["levels"] if entry["level"] <= LEVEL] if of_target["count"] else []
    if not levels:
        return
    widest, unit = levels[-1], predictor.target_units[target]
    level = f"{widest['level']:.0%}"
    if "set_size" in widest:
        classes = len(measured.types[target].class_names)
        yield f"{level} sets have {widest['set_size']:.2g} of the {classes} classes on average"
    elif "factor" in widest:
        yield f"the ends of {level} intervals are a factor of {_short(widest['factor'])} apart on average"
    else:
        yield f"{level} intervals are {_short(widest['width'])} {unit}".rstrip() + " wide on average"
