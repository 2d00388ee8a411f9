"""Fit the learners and the baselines of `fit`, target after target."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from molslice.fitting.data import FitData
from molslice.fitting.quality import Quality
from molslice.folders.fitted import DISAGREEMENT, SIZE
from molslice.learners import LEARNERS, Features, Labels, Learner
from molslice.learners.boosting import splittable_columns
from molslice.learners.extra_trees import LARGEST
from molslice.learners.fold_averages import average_unseen, by_member
from molslice.learners.gaussian_process import GaussianProcess
from molslice.learners.stacking import Stack
from molslice.learners.standard import standardize
from molslice.learners.trees import hidden_warnings
from molslice.uncertainty.difficulty import ErrorScale

__all__ = ["BASELINES", "FIT_LABEL", "LearnerFits", "TargetFit", "completed_targets"]

FIT_LABEL = "molslice fit"
REPEATED_SHARE = 0.25  # of the time that is left
PROCESS = "gaussian_process"  # fitted first, whatever the time, where others need what it computes
ALWAYS_FITTED = "extra_trees"  # without any time; boosting cannot divide fewer than 40 rows


@dataclass(slots=True)
class TargetFit:
    """What is fitted to one target.

    Attributes:
        rows: The training rows with a value or a limit, int [n].
        labels: What is learned of these rows.
        learners: The fitted learners by name.
        parts: Out-of-fold prediction of these rows by each learner, of values or logarithms, float64 [n].
        test_parts: Prediction of the m held-out rows by each learner, float64 [members, m].
        indicators: Mean indicators of difficulty of `rows` for the models that have not seen them, float64
            [n]; empty for classes.
        held_out: Prediction of the held-out rows by the stack and by the baselines, float64 [m].
        stack: The weights of the learners; see `stack_learners`.
        unseen: Out-of-fold prediction by the stack, float64 [n].
        scale: The expected error of a row, in the unit of the learners; None for classes. See
            `stack_learners`.
        expected: The expected error of `rows` by the models that have not seen them, float64 [n], NaN for
            limits that are met; None for classes.
    """

    rows: np.ndarray
    labels: Labels
    learners: dict[str, Learner] = field(default_factory=dict)
    parts: dict[str, np.ndarray] = field(default_factory=dict)
    test_parts: dict[str, np.ndarray] = field(default_factory=dict)
    held_out: dict[str, np.ndarray] = field(default_factory=dict)
    indicators: dict[str, np.ndarray] = field(default_factory=dict)
    stack: Stack = field(init=False)
    unseen: np.ndarray = field(init=False)
    scale: ErrorScale | None = None
    expected: np.ndarray | None = None

    def add(self, name: str, unseen: np.ndarray, held_out: np.ndarray) -> None:
        """Add the predictions of a learner: `parts` and `test_parts`."""
        self.parts[name] = unseen
        if held_out.shape[1]:
            self.test_parts[name] = held_out

    def stack_learners(self, folds: np.ndarray, *, classes: bool, logarithmic: bool) -> None:
        """Weigh the learners by their out-of-fold predictions, and fit the expected error of a number.

        A limit that is met does not tell how large the error is, and is left out of the expected error.

        Args:
            folds: Fold of `rows` in the first assignment, int [n].
            classes: Whether the target is a class.
            logarithmic: Whether `labels` are common logarithms.
        """
        self.stack = Stack.fit(self.parts, self.labels, classes=classes, logarithmic=logarithmic)
        self.unseen = self.stack.combine(self.parts)
        if self.test_parts:
            self.held_out = {FIT_LABEL: self.stack.combine(self.test_parts).mean(0), **self.held_out}
        if not classes:
            indicators = {**self.indicators, DISAGREEMENT: self.stack.disagreement(self.parts)}
            predicted = self.stack.mean(self.parts)
            errors = np.abs(self.labels.nearest(predicted) - predicted)
            kept = ~self.labels.limited | (errors > 0)
            indicators = {name: numbers[kept] for name, numbers in indicators.items()}
            self.expected = np.full(len(errors), np.nan)
            self.scale, self.expected[kept] = ErrorScale.fit(indicators, errors[kept], folds[kept])


def completed_targets(fitted: Sequence[TargetFit], learned: np.ndarray, folds: int) -> np.ndarray:
    """Return what the networks learn, which have no likelihood of limits.

    Args:
        fitted: The fits of the T targets.
        learned: What is learned of n rows, float64 [n, T], NaN where missing or a limit.
        folds: Number K of folds of the first assignment.

    Returns:
        `learned`, or, if there are limits, `learned` with the expected values of limits given the rows of the
        other folds, for each fold, float64 [K, n, T].
    """
    if all(target_fit.labels.completed is None for target_fit in fitted):
        return learned
    targets = np.repeat(learned[None], folds, axis=0)
    for index, target_fit in enumerate(fitted):
        if (completed := target_fit.labels.completed) is not None:
            targets[:, target_fit.rows, index] = completed[:folds]
    return targets


class LearnerFits:
    """Fits the learners and the baselines until the deadline.

    With a deadline, a second assignment of rows to folds is used only if one assignment takes less than a
    quarter of the time that is left.

    Args:
        data: The rows.
        features: Their features.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        deadline: Value of `time.monotonic` after which nothing is started; one learner is always fitted.
        seed: Seed of the learners.
        quality: Which learners are fitted, and to which features.
        progress: Called with the number of fits that are done and of all.

    Attributes:
        folds: The assignments that are used, int [1 or A, n].
        left_out: What was not computed.
    """

    def __init__(
        self,
        data: FitData,
        features: Features,
        folds: np.ndarray,
        deadline: float,
        seed: int,
        quality: Quality,
        progress: Callable[[int, int], None],
    ) -> None:
        self.data, self.features, self.folds = data, features, folds
        self.deadline, self.seed, self.quality, self.progress = deadline, seed, quality, progress
        self.left_out: list[str] = []
        self._done = -1
        self._step()  # so that the number of all fits is known before the first one is done

    def fit_targets(self) -> list[TargetFit]:
        """Fit the learners and the baselines of all targets."""
        assignments, fitted = self.folds, []
        if len(assignments) > 1 and self.deadline < float("inf"):
            start, self.folds = time.monotonic(), assignments[:1]
            fitted.append(self._fit_learners(0))
            seconds = (time.monotonic() - start) * len(self.data.names)
            if not self.left_out and seconds < REPEATED_SHARE * (self.deadline - start):
                self.folds, fitted, self._done = assignments, [], 0
        fitted += [self._fit_learners(index) for index in range(len(fitted), len(self.data.names))]
        for index, target_fit in enumerate(fitted):
            self._fit_baselines(index, target_fit)
        return fitted

    def _fit_learners(self, index: int) -> TargetFit:
        classes, test = self.data.kind == "classification", np.flatnonzero(self.data.test)
        rows = np.flatnonzero(~self.data.test & self.data.known[:, index])
        folds, fitted = self.folds[:, rows], TargetFit(rows, self.data.labels(index)[rows])
        num_folds = int(folds.max()) + 1
        if not classes:
            fitted.indicators[SIZE] = self.features[rows].size()
        names, first = self.quality.learners, ALWAYS_FITTED
        if fitted.labels.needs_process:
            names, first = sorted(names, key=lambda name: name != PROCESS), PROCESS
        for name in names:
            if name == first or self._has_time(f"{name} of {self.data.names[index]}"):
                features = self.quality.features_of(name, self.features)
                inputs = features[rows], fitted.labels, folds
                if fitted.labels.needs_process:
                    learner, unseen, fitted.labels = GaussianProcess.fit_and_complete(
                        *inputs, classes=classes, seed=self.seed
                    )
                else:
                    learner, unseen = LEARNERS.find(name).fit(*inputs, classes=classes, seed=self.seed)
                fitted.learners[name] = learner
                if learner.indicators and not classes:
                    indicators = learner.predict_with_indicators(features[rows])[1]
                    fitted.indicators |= {
                        indicator: average_unseen(numbers, folds) for indicator, numbers in indicators.items()
                    }
                held_out = learner.predict(features[test]) if len(test) else np.empty((num_folds, 0))
                fitted.add(name, unseen, by_member(held_out, num_folds, len(folds)))
            self._step()
        return fitted

    def _fit_baselines(self, index: int, fitted: TargetFit) -> None:
        classes, test = self.data.kind == "classification", np.flatnonzero(self.data.test)
        for name, train in BASELINES.items():
            if len(test) and self._has_time(f"{name} for comparison, {self.data.names[index]}"):
                values = self.data.learned[:, index]
                rows = fitted.rows[np.isfinite(values[fitted.rows])]  # they learn exact values only
                predicted = train(self.features, rows, test, values, classes, self.seed)
                fitted.held_out[name] = 10.0**predicted if self.data.logarithmic[index] else predicted
            self._step()

    def _has_time(self, what: str) -> bool:
        if time.monotonic() < self.deadline:
            return True
        self.left_out.append(what)
        return False

    def _step(self) -> None:
        self._done += 1
        self.progress(self._done, len(self.data.names) * (len(self.quality.learners) + len(BASELINES)))


def _forest(
    features: Features, rows: np.ndarray, test: np.ndarray, values: np.ndarray, classes: bool, seed: int
) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if classes else RandomForestRegressor
    train, held_out = _matrices(features, rows, test)
    return _baseline(kind(random_state=seed, n_jobs=-1), train, held_out, values[rows], classes)


def _boosting(
    features: Features, rows: np.ndarray, test: np.ndarray, values: np.ndarray, classes: bool, seed: int
) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    train, held_out = _matrices(features, rows, test)
    columns = splittable_columns(train)
    return _baseline(kind(random_state=seed), train[:, columns], held_out[:, columns], values[rows], classes)


def _matrices(features: Features, rows: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of training and held-out rows; columns without a training value are 0."""
    matrix = np.clip(features.matrix(), -LARGEST, LARGEST)  # forests compare in float32; NaN stays
    matrix[:, np.isnan(matrix[rows]).all(0)] = 0.0  # boosting cannot bin a column without values
    return matrix[rows], matrix[test]


def _baseline(
    model: Any,  # noqa: ANN401
    train: np.ndarray,
    held_out: np.ndarray,
    values: np.ndarray,
    classes: bool,
) -> np.ndarray:
    with hidden_warnings():
        if classes:
            return model.fit(train, values).predict_proba(held_out)[:, 1]
        standardized, mean, spread = standardize(values)
        return model.fit(train, standardized).predict(held_out) * spread + mean


BASELINES = {"random forest": _forest, "boosting": _boosting}
