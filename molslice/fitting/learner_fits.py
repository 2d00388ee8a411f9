"""Fit the learners and the baselines of `fit`, target after target."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from molslice.fitting.data import FitData
from molslice.folders.fitted import DISAGREEMENT, SIZE
from molslice.learners import LEARNERS, Features, Learner
from molslice.learners.boosting import splittable_columns
from molslice.learners.extra_trees import LARGEST
from molslice.learners.fold_averages import average_unseen, by_member
from molslice.learners.stacking import Stack
from molslice.learners.standard import standardize
from molslice.learners.trees import hidden_warnings
from molslice.tasks.several_classes import SeveralClasses
from molslice.uncertainty.difficulty import ErrorScale

__all__ = ["BASELINES", "FIT_LABEL", "LearnerFits", "TargetFit", "balanced_weights", "join_parts"]

FIT_LABEL = "molslice fit"
REPEATED_SHARE = 0.25  # of the time that is left
ALWAYS_FITTED = "extra_trees"  # without any time; boosting cannot divide fewer than 40 rows


@dataclass(slots=True)
class TargetFit:
    """What is fitted to one target.

    Attributes:
        rows: The training rows with a value, int [n].
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
        expected: The expected error of `rows` by the models that have not seen them, float64 [n]; None for
            classes.
    """

    rows: np.ndarray
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

    def stack_learners(
        self, values: np.ndarray, folds: np.ndarray, *, classes: bool, logarithmic: bool
    ) -> None:
        """Weigh the learners by their out-of-fold predictions, and fit the expected error of a number.

        Args:
            values: What is learned of `rows`, float64 [n]; see `FitData.learned`.
            folds: Fold of `rows` in the first assignment, int [n].
            classes: Whether the target is a class.
            logarithmic: Whether `values` are common logarithms.
        """
        self.stack = Stack.fit(self.parts, values, classes=classes, logarithmic=logarithmic)
        self.unseen = self.stack.combine(self.parts)
        if self.test_parts:
            self.held_out = {FIT_LABEL: self.stack.combine(self.test_parts).mean(0), **self.held_out}
        if not classes:
            indicators = {**self.indicators, DISAGREEMENT: self.stack.disagreement(self.parts)}
            errors = np.abs(values - self.stack.mean(self.parts))
            self.scale, self.expected = ErrorScale.fit(indicators, errors, folds)


def balanced_weights(values: np.ndarray) -> np.ndarray:
    """Return weights of rows of the classes 0 and 1, [n], with which both classes have half of the sum n."""
    counts = np.bincount(values.astype(np.int64), minlength=2)
    return len(values) / (2.0 * counts[values.astype(np.int64)])


def join_parts(fitted: Sequence[TargetFit], classes: SeveralClasses) -> TargetFit:
    """Combine the parts of several classes: `unseen` and `held_out` are probabilities [..., K] then."""
    joined = TargetFit(fitted[0].rows, indicators={})
    joined.unseen = classes.combine(np.stack([fit.unseen for fit in fitted], axis=-1))
    for name in fitted[0].held_out:
        parts = [
            fit.stack.combine(fit.test_parts) if name == FIT_LABEL else fit.held_out[name] for fit in fitted
        ]
        probabilities = classes.combine(np.stack(parts, axis=-1))
        joined.held_out[name] = probabilities.mean(0) if name == FIT_LABEL else probabilities
    names = dict.fromkeys(name for fit in fitted for name in fit.stack.names)
    weights = [dict(zip(fit.stack.names, fit.stack.weights, strict=True)) for fit in fitted]
    means = [float(np.mean([of_part.get(name, 0.0) for of_part in weights])) for name in names]
    joined.stack = Stack(tuple(names), tuple(means))
    return joined


class LearnerFits:
    """Fits the learners and the baselines until the deadline.

    With a deadline, a second assignment of rows to folds is used only if one assignment takes less than a
    quarter of the time that is left.

    Args:
        data: The rows.
        learned: Their targets as the learners predict them, float64 [n, T]; see `FitData.learned`.
        features: Their features.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        deadline: Value of `time.monotonic` after which nothing is started; one learner is always fitted.
        seed: Seed of the learners.
        progress: Called with the number of fits that are done and of all.
        balanced: Whether both classes of a column have the same weight in the learners.

    Attributes:
        names: What each of the T columns is, for messages.
        folds: The assignments that are used, int [1 or A, n].
        left_out: What was not computed.
    """

    def __init__(
        self,
        data: FitData,
        learned: np.ndarray,
        features: Features,
        folds: np.ndarray,
        deadline: float,
        seed: int,
        progress: Callable[[int, int], None],
        *,
        balanced: bool = False,
    ) -> None:
        self.data, self.learned, self.features, self.folds = data, learned, features, folds
        self.deadline, self.seed, self.progress = deadline, seed, progress
        self.balanced, several = balanced, data.classes
        parts = () if several is None else several.part_names
        self.names = [f"{data.names[0]} {part}" for part in parts] or data.names
        self.left_out: list[str] = []
        self._done = -1
        self._step()  # so that the number of all fits is known before the first one is done

    def fit_targets(self) -> list[TargetFit]:
        """Fit the learners and the baselines of all targets."""
        assignments, fitted = self.folds, []
        if len(assignments) > 1 and self.deadline < float("inf"):
            start, self.folds = time.monotonic(), assignments[:1]
            fitted.append(self._fit_learners(0))
            seconds = (time.monotonic() - start) * len(self.names)
            if not self.left_out and seconds < REPEATED_SHARE * (self.deadline - start):
                self.folds, fitted, self._done = assignments, [], 0
        fitted += [self._fit_learners(index) for index in range(len(fitted), len(self.names))]
        if self.data.classes is not None:
            self._fit_baselines_of_classes(fitted)
            return fitted
        for index, target_fit in enumerate(fitted):
            self._fit_baselines(index, target_fit)
        return fitted

    def _fit_learners(self, index: int) -> TargetFit:
        values, classes = self.learned[:, index], self.data.kind != "regression"
        rows = np.flatnonzero(~self.data.test & np.isfinite(values))
        folds, fitted, test = self.folds[:, rows], TargetFit(rows), np.flatnonzero(self.data.test)
        num_folds = int(folds.max()) + 1
        if not classes:
            fitted.indicators[SIZE] = self.features[rows].size()
        for name in LEARNERS.names():
            if name == ALWAYS_FITTED or self._has_time(f"{name} of {self.names[index]}"):
                learner, unseen = LEARNERS.find(name).fit(
                    self.features[rows],
                    values[rows],
                    folds,
                    classes=classes,
                    seed=self.seed,
                    weights=balanced_weights(values[rows]) if self.balanced else None,
                )
                fitted.learners[name] = learner
                if learner.indicators and not classes:
                    indicators = learner.predict_with_indicators(self.features[rows])[1]
                    fitted.indicators |= {
                        indicator: average_unseen(numbers, folds) for indicator, numbers in indicators.items()
                    }
                held_out = learner.predict(self.features[test]) if len(test) else np.empty((num_folds, 0))
                fitted.add(name, unseen, by_member(held_out, num_folds, len(folds)))
            self._step()
        return fitted

    def _fit_baselines(self, index: int, fitted: TargetFit) -> None:
        classes, test = self.data.kind != "regression", np.flatnonzero(self.data.test)
        for name, train in BASELINES.items():
            if len(test) and self._has_time(f"{name} for comparison, {self.names[index]}"):
                predicted = train(
                    self.features, fitted.rows, test, self.learned[:, index], classes, self.seed
                )
                fitted.held_out[name] = 10.0**predicted if self.data.logarithmic[index] else predicted
            self._step()

    def _fit_baselines_of_classes(self, fitted: Sequence[TargetFit]) -> None:
        """Fit one baseline to several classes, and add its prediction of each part."""
        several, test, rows = self.data.classes, np.flatnonzero(self.data.test), fitted[0].rows
        assert several is not None
        for name, train in BASELINES.items():
            if len(test) and self._has_time(f"{name} for comparison, {self.data.names[0]}"):
                predicted = train(self.features, rows, test, self.data.targets[:, 0], True, self.seed)
                for fit, probabilities in zip(fitted, several.parts_of(predicted).T, strict=True):
                    fit.held_out[name] = probabilities
            self._step()

    def _has_time(self, what: str) -> bool:
        if time.monotonic() < self.deadline:
            return True
        self.left_out.append(what)
        return False

    def _step(self) -> None:
        self._done += 1
        total = len(self.names) * len(LEARNERS.names()) + len(self.data.names) * len(BASELINES)
        self.progress(self._done, total)


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
    """Return the prediction of a number or the probability of class 1, [m]; of K > 2 classes, [m, K]."""
    with hidden_warnings():
        if classes:
            probabilities = model.fit(train, values).predict_proba(held_out)
            return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
        standardized, mean, spread = standardize(values)
        return model.fit(train, standardized).predict(held_out) * spread + mean


BASELINES = {"random forest": _forest, "boosting": _boosting}
