"""Fit the learners and the baselines of `fit`, target after target."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.quality import EMBEDDING, QUALITIES
from molslice.folders.fitted import DISAGREEMENT, SIZE
from molslice.learners import LEARNERS, Features, Labels, Learner
from molslice.learners.boosting import splittable_columns
from molslice.learners.extra_trees import LARGEST
from molslice.learners.fold_averages import average_unseen, by_member
from molslice.learners.gaussian_process import GaussianProcess
from molslice.learners.stacking import Stack
from molslice.learners.standardizing import standardize
from molslice.learners.trees import hidden_warnings
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import part_slices, targets_of_parts
from molslice.uncertainty.difficulty import ErrorScale

FIT_LABEL = "molslice fit"
REPEATED_SHARE = 0.25  # of the time that is left
PROCESS = "gaussian_process"  # fitted first, whatever the time, where others need what it computes
ALWAYS_FITTED = "extra_trees"  # without any time; boosting cannot divide fewer than 40 rows

LearnerSettings = Mapping[str, Mapping[str, Any]]  # other settings than the defaults, by learner


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

        `folds` is the fold of `rows` in the first assignment, int [n].
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


def with_balanced_classes(labels: Labels) -> Labels:
    """Return labels whose classes 0 and 1 have half of the sum of all weights each."""
    classes = labels.values.astype(np.int64)
    weights = np.ones(len(labels)) if labels.weights is None else labels.weights
    sums = np.bincount(classes, weights, minlength=2)
    return replace(labels, weights=weights * weights.sum() / (2.0 * sums[classes]))


def fit_learner(
    name: str,
    features: Features,
    labels: Labels,
    folds: np.ndarray,
    options: FitOptions,
    settings: Mapping[str, Any],
    *,
    classes: bool,
) -> tuple[Learner, np.ndarray, Labels]:
    """Fit a learner to the features that it takes.

    Returns:
        The result of `Learner.fit`, and the labels; completed if they need it, by the Gaussian process.
    """
    given: dict[str, Any] = {key: value for key, value in settings.items() if key != EMBEDDING}
    given |= {"classes": classes, "seed": options.seed}
    if labels.needs_process:
        return GaussianProcess.fit_and_complete(features, labels, folds, **given)
    learned = with_balanced_classes(labels) if classes and options.class_weight is not None else labels
    return *LEARNERS.find(name).fit(features, learned, folds, **given), labels


def join_parts(fitted: Sequence[TargetFit], classes: SeveralClasses) -> TargetFit:
    """Combine the parts of several classes: `unseen` and `held_out` are probabilities [..., K] then."""
    joined = TargetFit(fitted[0].rows, fitted[0].labels)
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
        features: Their features.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        deadline: Value of `time.monotonic` after which nothing is started; one learner is always fitted.
        options: Options of the fit.
        progress: Called with the number of fits that are done and of all.
        settings: The settings of the learners of each column, by name; none for the defaults.
        chosen: The names of the learners of each column, which are fitted whatever the time; None for all
            that start before the deadline.

    Attributes:
        names: What each of the T columns is, for messages.
        folds: The assignments that are used, int [1 or A, n].
        left_out: What was not computed.
    """

    def __init__(
        self,
        data: FitData,
        features: Features,
        folds: np.ndarray,
        deadline: float,
        options: FitOptions,
        progress: Callable[[int, int], None],
        settings: Sequence[LearnerSettings] = (),
        chosen: Sequence[Container[str]] | None = None,
    ) -> None:
        self.data, self.features, self.folds = data, features, folds
        self.deadline, self.options, self.progress = deadline, options, progress
        self.settings, self.chosen = settings, chosen
        self.learned, self.quality = data.learned, QUALITIES[options.quality]
        self.names = data.learned_names
        self.target_of = targets_of_parts(data.types)
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
            else:
                self.left_out.append("the second division of the rows into folds")
        fitted += [self._fit_learners(index) for index in range(len(fitted), len(self.names))]
        for index, columns in enumerate(part_slices(self.data.types)):
            self._fit_baselines(index, fitted[columns])
        return fitted

    def _fit_learners(self, column: int) -> TargetFit:
        """Fit the learners to a column of what is learned."""
        classes = self.data.types[self.target_of[column]].has_classes
        test, labels = np.flatnonzero(self.data.test), self.data.labels(column)
        rows = np.flatnonzero(~self.data.test & labels.known)
        folds, fitted = self.folds[:, rows], TargetFit(rows, labels[rows])
        num_folds = int(folds.max()) + 1
        if not classes:
            fitted.indicators[SIZE] = self.features[rows].size()
        names, first = self.quality.learners, ALWAYS_FITTED
        if fitted.labels.needs_process:
            names, first = sorted(names, key=lambda name: name != PROCESS), PROCESS
        for name in names:
            if name == first or self._is_chosen(name, column):
                settings = self.settings[column].get(name, {}) if self.settings else {}
                features = self.quality.features_of(name, self.features, settings)
                learner, unseen, fitted.labels = fit_learner(
                    name, features[rows], fitted.labels, folds, self.options, settings, classes=classes
                )
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

    def _fit_baselines(self, index: int, fitted: Sequence[TargetFit]) -> None:
        """Fit the baselines to a target, whose parts are fitted if it has several classes."""
        test, of_target = np.flatnonzero(self.data.test), self.data.types[index]
        several, values = of_target.several, self.data.targets[:, index]
        if several is None:
            values = self.learned[:, self.target_of.index(index)]
        rows = fitted[0].rows[np.isfinite(values[fitted[0].rows])]  # they learn exact values only
        compares = bool(len(test)) and not self.chosen  # a fit to all rows is not measured
        for name, train in BASELINES.items():
            if compares and self._has_time(f"{name} for comparison, {self.data.names[index]}"):
                seed = self.options.seed
                predicted = train(self.features, rows, test, values, of_target.has_classes, seed)
                if several is not None:
                    columns = several.parts_of(predicted).T
                else:
                    columns = [10.0**predicted if self.data.logarithmic[index] else predicted]
                for fit, column in zip(fitted, columns, strict=True):
                    fit.held_out[name] = column
            self._step()

    def _is_chosen(self, name: str, column: int) -> bool:
        if self.chosen is not None:
            return name in self.chosen[column]
        return self._has_time(f"{name} of {self.names[column]}")

    def _has_time(self, what: str) -> bool:
        if time.monotonic() < self.deadline:
            return True
        self.left_out.append(what)
        return False

    def _step(self) -> None:
        self._done += 1
        total = len(self.names) * len(self.quality.learners) + len(self.data.names) * len(BASELINES)
        self.progress(self._done, total)


def _forest(
    features: Features, rows: np.ndarray, test: np.ndarray, values: np.ndarray, classes: bool, seed: int
) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    # scikit-learn's default of a regression is all columns, which takes 2.7 times as long, for the same error
    model: Any = RandomForestClassifier() if classes else RandomForestRegressor(max_features=1 / 3)
    model.set_params(random_state=seed, n_jobs=-1)
    train, held_out = _matrices(features, rows, test)
    return _baseline(model, train, held_out, values[rows], classes)


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
    learned, mean, spread = (values, 0.0, 1.0) if classes else standardize(values)
    with hidden_warnings():
        model.fit(train, learned)
        if "n_jobs" in model.get_params():
            model.set_params(n_jobs=1)  # threads add the trees in any order, and the last digits vary
        if classes:
            probabilities = model.predict_proba(held_out)
            return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
        return model.predict(held_out) * spread + mean


BASELINES = {"random forest": _forest, "boosting": _boosting}
