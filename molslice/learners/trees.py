"""Binary decision trees as flat arrays, and what all learners of trees share."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molslice.learners.base import Learner
from molslice.learners.features import Features
from molslice.learners.fold_averages import average_unseen
from molslice.types import MolsliceError

CHUNK = 1 << 22  # positions (rows times trees) at once; bounds memory


@contextmanager
def hidden_warnings() -> Iterator[None]:
    """Hide the warnings of scikit-learn's threads, and keep the filters of the process.

    Before Python 3.14, each thread sets and restores the filters of all threads. If two do so at once, the
    list of filters may stay empty, and scikit-learn warns about that in every further task.
    """
    with warnings.catch_warnings(record=True):  # a filter would be lost with the others
        yield


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees whose values are added up, multiplied by a unit and added to an offset for each model.

    A row goes left if its feature is at most the threshold. A leaf is its own left and right child.

    Attributes:
        feature: Column of the features that a node compares, int32 [nodes].
        threshold: Threshold of a node, float64 [nodes].
        missing_left: Whether a value that is not defined goes left, bool [nodes].
        left: Left child of a node, int32 [nodes].
        right: Right child of a node, int32 [nodes].
        value: Value of a node, float64 [nodes]; only leaf values are used.
        roots: First node of each tree, int32 [trees].
        groups: Model of each tree, int32 [trees], ascending.
        offsets: Value that is added to the trees of each model, float64 [models].
        units: What the sum of the trees of each model is multiplied by, float64 [models].
    """

    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    groups: np.ndarray
    offsets: np.ndarray
    units: np.ndarray

    @classmethod
    def of_boosting(
        cls, models: Sequence[Any], columns: np.ndarray, units: Sequence[tuple[float, float]]
    ) -> Self:
        """Copy the trees of fitted `HistGradientBoosting` models.

        Args:
            models: The fitted estimators, binary or regression.
            columns: Column of the features behind each column that the estimators were fitted on.
            units: What was subtracted from the values of each model, and what they were divided by.
        """
        offsets = [
            float(np.ravel(model._baseline_prediction)[0]) * scale + offset
            for model, (offset, scale) in zip(models, units, strict=True)
        ]
        trees = [
            (
                fold,
                {
                    "feature": nodes["feature_idx"],
                    "threshold": nodes["num_threshold"],
                    "missing_left": nodes["missing_go_to_left"],
                    "left": nodes["left"],
                    "right": nodes["right"],
                    "value": nodes["value"],
                    "leaf": nodes["is_leaf"],
                },
            )
            for fold, model in enumerate(models)
            for (predictor,) in model._predictors
            for nodes in (predictor.nodes,)
        ]
        return cls._joined(trees, columns, offsets, [scale for _, scale in units])

    @classmethod
    def of_forests(
        cls, models: Sequence[Any], columns: np.ndarray, units: Sequence[tuple[float, float]]
    ) -> Self:
        """Copy the trees of fitted regression forests of scikit-learn, one forest for each model.

        A missing value is treated as zero.

        Args:
            models: The fitted estimators.
            columns: Column of the features behind each column that the estimators were fitted on.
            units: What was subtracted from the values of each model, and what they were divided by.
        """
        trees = []
        for fold, model in enumerate(models):
            for estimator in model.estimators_:
                tree = estimator.tree_
                value = tree.value[:, 0, 0] / len(model.estimators_)
                nodes = {
                    "feature": tree.feature,
                    "threshold": _float32_below(tree.threshold),  # the same comparison for float32 features
                    "missing_left": tree.threshold >= 0.0,
                    "left": tree.children_left,
                    "right": tree.children_right,
                    "value": value.astype(np.float32),  # as it is stored
                    "leaf": tree.children_left < 0,
                }
                trees.append((fold, nodes))
        return cls._joined(trees, columns, *map(list, zip(*units, strict=True)))

    @classmethod
    def _joined(
        cls,
        trees: Sequence[tuple[int, Mapping[str, np.ndarray]]],
        columns: np.ndarray,
        offsets: Sequence[float],
        units: Sequence[float],
    ) -> Self:
        """Concatenate the nodes of trees, each with its model.

        The children are counted from the root of their tree. The feature, the threshold and the children of a
        node that is a `leaf` are arbitrary.
        """
        sizes = [len(nodes["leaf"]) for _, nodes in trees]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        joined = {name: np.concatenate([nodes[name] for _, nodes in trees]) for name in trees[0][1]}
        leaf, starts = joined.pop("leaf").astype(bool), np.repeat(roots, sizes)
        joined["feature"] = np.where(leaf, 0, columns[np.where(leaf, 0, joined["feature"])])
        joined["threshold"] = np.where(leaf, 0.0, joined["threshold"])
        for side in ("left", "right"):
            joined[side] = np.where(leaf, np.arange(len(leaf)), starts + joined[side].astype(np.int64))
        kinds = {"threshold": np.float64, "value": np.float64, "missing_left": np.bool_}
        return cls(
            **{name: array.astype(kinds.get(name, np.int32)) for name, array in joined.items()},
            roots=roots.astype(np.int32),
            groups=np.array([fold for fold, _ in trees], np.int32),
            offsets=np.array(offsets, np.float64),
            units=np.array(units, np.float64),
        )

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        """Add up the trees of each model for each row of `matrix` [n, C]: float64 [models, n]."""
        total = np.repeat(self.offsets[:, None], len(matrix), axis=1)
        for rows in self._parts(matrix):
            total[:, rows] += self.units[:, None] * self._added(self._values(matrix[rows]))
        return total

    def predict_with_spread(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add up the trees of each model, and compute how far they are apart.

        Returns:
            The result of `predict`, and the standard deviation over the trees of a model of what the sum
            would be if all were like this tree, float64 [models, n] each.
        """
        total = np.repeat(self.offsets[:, None], len(matrix), axis=1)
        spread = np.zeros_like(total)
        counts = np.bincount(self.groups, minlength=len(self.offsets))[:, None]
        for rows in self._parts(matrix):
            values = self._values(matrix[rows])
            sums = self._added(values)
            total[:, rows] += self.units[:, None] * sums
            squares = np.maximum(self._added(values**2) * counts - sums**2, 0.0)
            spread[:, rows] = self.units[:, None] * np.sqrt(squares)
        return total, spread

    def _parts(self, matrix: np.ndarray) -> list[slice]:
        step = max(1, CHUNK // max(len(self.roots), 1))
        return [slice(start, start + step) for start in range(0, len(matrix), step)]

    def _added(self, values: np.ndarray) -> np.ndarray:
        """Add up the values of trees [trees, n] by model: [models, n]."""
        sums = np.zeros((len(self.offsets), values.shape[1]))
        np.add.at(sums, self.groups, values)
        return sums

    def _values(self, matrix: np.ndarray) -> np.ndarray:
        """Return the value of the leaf of each row in each tree, [trees, n]."""
        rows, width = matrix.shape
        values = np.ravel(matrix)
        children = np.stack([self.right, self.left], axis=1).ravel()
        has_missing = bool(np.isnan(matrix).any())
        # all rows of a tree follow each other, so that its nodes stay in the cache
        places = np.repeat(self.roots.astype(np.int64), rows)
        walking = np.flatnonzero(self.left[places] != places)
        starts = np.tile(np.arange(rows) * width, len(self.roots))[walking]
        while len(walking):
            nodes = places[walking]
            compared = values[starts + self.feature[nodes]]
            goes_left = compared <= self.threshold[nodes]
            if has_missing:
                goes_left |= np.isnan(compared) & self.missing_left[nodes]
            nodes = children[2 * nodes + goes_left]
            places[walking] = nodes
            goes_on = self.left[nodes] != nodes
            walking, starts = walking[goes_on], starts[goes_on]
        return self.value[places].reshape(len(self.roots), rows)

    def check(self, num_features: int) -> None:
        """Raise an error unless every tree ends and every index is inside of its array.

        Raises:
            MolsliceError: The arrays do not describe trees on that many features.
        """
        nodes, folds = len(self.value), len(self.offsets)
        same = all(
            len(array) == nodes
            for array in (self.feature, self.threshold, self.missing_left, self.left, self.right)
        )
        places = np.arange(nodes)
        kinds = {name: getattr(self, name).dtype.kind for name in self.__slots__}
        same = same and all(kinds[name] == "i" for name in ("feature", "left", "right", "roots", "groups"))
        same = same and all(kinds[name] == "f" for name in ("threshold", "value", "offsets", "units"))
        same = same and kinds["missing_left"] == "b" and self.offsets.ndim == self.value.ndim == 1
        same = same and self.units.shape == self.offsets.shape
        sound = same and nodes > 0 and len(self.groups) == len(self.roots) and folds > 0
        sound = sound and bool(((self.feature >= 0) & (self.feature < num_features)).all())
        sound = sound and bool(((self.roots >= 0) & (self.roots < nodes)).all())
        sound = sound and bool(((self.groups >= 0) & (self.groups < folds)).all())
        for child in (self.left, self.right):  # children follow their parents, so a walk ends
            sound = sound and len(child) == nodes and bool(((child >= places) & (child < nodes)).all())
        sound = sound and bool(((self.left == places) == (self.right == places)).all())
        numbers = (self.value, self.offsets, self.units)
        sound = sound and all(bool(np.isfinite(array).all()) for array in numbers)
        if not sound:
            raise MolsliceError("the arrays do not describe decision trees")

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the trees in few bytes.

        A leaf has its value in the place of the threshold, children are counted from their parents, and
        numbers have the smallest types that hold them.
        """
        places = np.arange(len(self.value))
        numbers = np.where(self.left == places, self.value, self.threshold)
        is_short = bool((numbers == numbers.astype(np.float32)).all())
        return {
            "feature": _smallest(self.feature),
            "number": numbers.astype(np.float32 if is_short else np.float64),
            "missing_left": np.packbits(self.missing_left),
            "to_left": _smallest(self.left - places),
            "to_right": _smallest(self.right - places),
            **{name: getattr(self, name) for name in ("roots", "groups", "offsets", "units")},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild trees from the result of `arrays`, or from their fields as in earlier versions."""
        if "number" not in arrays:
            fields = {name: np.asarray(arrays[name]) for name in cls.__slots__ if name != "units"}
            return cls(**fields, units=np.ones(len(fields["offsets"])))
        numbers, count = arrays["number"].astype(np.float64), len(arrays["number"])
        offsets = {name: arrays[f"to_{name}"] for name in ("left", "right")}
        if {arrays["feature"].dtype.kind, *(array.dtype.kind for array in offsets.values())} != {"u"}:
            raise TypeError("features and children are not whole numbers")
        children = {name: (np.arange(len(array)) + array).astype(np.int64) for name, array in offsets.items()}
        leaf = offsets["left"] == 0
        return cls(
            feature=arrays["feature"].astype(np.int32),
            threshold=np.where(leaf, 0.0, numbers),
            missing_left=np.unpackbits(arrays["missing_left"], count=count).astype(bool),
            value=np.where(leaf, numbers, 0.0),
            **children,
            **{name: np.asarray(arrays[name]) for name in ("roots", "groups", "offsets", "units")},
        )


def _float32_below(numbers: np.ndarray) -> np.ndarray:
    """Return the largest float32 numbers that are not above the numbers."""
    rounded = numbers.astype(np.float32)
    return np.where(rounded > numbers, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def _smallest(numbers: np.ndarray) -> np.ndarray:
    """Return whole numbers from zero up in the smallest unsigned type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


class TreeLearner(Learner):
    """A learner whose models are trees, one group of trees for each model, on `num_features` columns."""

    def __init__(self, trees: Trees, num_features: int) -> None:
        self.trees, self.num_features = trees, num_features

    @classmethod
    def matrix_of(cls, features: Features) -> np.ndarray:
        """Return the features as the trees compare them, [n, C]."""
        return features.matrix()

    @classmethod
    def of_training(cls, trees: Trees, matrix: np.ndarray, folds: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return the learner, and the mean prediction for each training row by trees that have not seen it.

        Args:
            trees: The fitted trees.
            matrix: The result of `matrix_of` for the training rows.
            folds: Folds of the rows; see `Learner.fit`.
        """
        return cls(trees, matrix.shape[1]), average_unseen(trees.predict(matrix), folds)

    def predict(self, features: Features) -> np.ndarray:
        """Predict with the trees of each model; see `Learner.predict`."""
        return self.trees.predict(self.checked_matrix(features))

    def checked_matrix(self, features: Features) -> np.ndarray:
        """Return `matrix_of` the features, without the embedding if the trees were fitted without it.

        Raises:
            MolsliceError: The trees were fitted on another number of features.
        """
        lean = features.without_embedding()
        matrix = self.matrix_of(lean if lean.width == self.num_features else features)
        if matrix.shape[1] != self.num_features:
            raise MolsliceError(
                f"{self.label} was fitted on {self.num_features} features, got {matrix.shape[1]}"
            )
        return matrix

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the trees; see `Learner.arrays`."""
        return {**self.trees.arrays(), "num_features": np.array([self.num_features], np.int64)}

    @classmethod
    def _rebuild(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        if arrays["num_features"].dtype.kind != "i":
            raise TypeError("num_features is not a whole number")
        trees, num_features = Trees.from_arrays(arrays), int(arrays["num_features"][0])
        trees.check(num_features)
        return cls(trees, num_features)
