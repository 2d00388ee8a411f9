"""Binary decision trees as flat arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from molslice.types import MolsliceError

__all__ = ["Trees"]

CHUNK = 1 << 22  # positions (rows times trees) at once; bounds memory


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees whose values are added up, one group of trees for each fold.

    A row goes left if its feature is at most the threshold. A leaf is its own left and right child.

    Attributes:
        feature: Column of the features that a node compares, int32 [nodes].
        threshold: Threshold of a node, float64 [nodes].
        missing_left: Whether a value that is not defined goes left, bool [nodes].
        left: Left child of a node, int32 [nodes].
        right: Right child of a node, int32 [nodes].
        value: Value of a node, float64 [nodes]; only those of leaves are used.
        roots: First node of each tree, int32 [trees].
        groups: Fold of each tree, int32 [trees], ascending.
        offsets: Value that is added to the trees of each fold, float64 [folds].
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

    @classmethod
    def of_boosting(cls, models: Sequence[Any], columns: np.ndarray) -> Self:
        """Copy the trees of fitted `HistGradientBoosting` models, one for each fold.

        Args:
            models: The fitted estimators, binary or regression.
            columns: Column of the features behind each column that the estimators were fitted on.
        """
        parts: dict[str, list[np.ndarray]] = {
            name: [] for name in ("feature", "threshold", "missing_left", "left", "right", "value")
        }
        roots, groups, offsets, start = [], [], [], 0
        for fold, model in enumerate(models):
            offsets.append(float(np.ravel(model._baseline_prediction)[0]))
            for (tree,) in model._predictors:
                nodes = tree.nodes
                places, leaf = np.arange(len(nodes)) + start, nodes["is_leaf"].astype(bool)
                parts["feature"].append(np.where(leaf, 0, columns[np.where(leaf, 0, nodes["feature_idx"])]))
                parts["threshold"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
                parts["missing_left"].append(nodes["missing_go_to_left"].astype(bool))
                parts["left"].append(np.where(leaf, places, start + nodes["left"].astype(np.int64)))
                parts["right"].append(np.where(leaf, places, start + nodes["right"].astype(np.int64)))
                parts["value"].append(nodes["value"])
                roots.append(start)
                groups.append(fold)
                start += len(nodes)
        kinds = {"threshold": np.float64, "value": np.float64, "missing_left": np.bool_}
        joined = {
            name: np.concatenate(part).astype(kinds.get(name, np.int32)) for name, part in parts.items()
        }
        return cls(
            **joined,
            roots=np.array(roots, np.int32),
            groups=np.array(groups, np.int32),
            offsets=np.array(offsets, np.float64),
        )

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        """Add up the trees of each fold for each row of `matrix` [n, C]: float64 [folds, n]."""
        total = np.repeat(self.offsets[:, None], len(matrix), axis=1)
        step = max(1, CHUNK // max(len(self.roots), 1))
        for start in range(0, len(matrix), step):
            part = slice(start, start + step)
            total[:, part] += self._sums(matrix[part])
        return total

    def _sums(self, matrix: np.ndarray) -> np.ndarray:
        places = np.repeat(self.roots[None].astype(np.int64), len(matrix), axis=0)
        rows = np.arange(len(matrix))[:, None]
        while True:
            values = matrix[rows, self.feature[places]]
            goes_left = np.where(
                np.isnan(values), self.missing_left[places], values <= self.threshold[places]
            )
            following = np.where(goes_left, self.left[places], self.right[places])
            if (following == places).all():
                break
            places = following
        sums = np.zeros((len(self.offsets), len(matrix)))
        np.add.at(sums, self.groups, self.value[places].T)
        return sums

    def check(self, num_features: int) -> None:
        """Raise an error unless every tree ends and every index is inside of its array.

        Raises:
            MolsliceError: The arrays do not describe trees on that many features.
        """
        nodes, folds = len(self.value), len(self.offsets)
        same = all(
            len(part) == nodes
            for part in (self.feature, self.threshold, self.missing_left, self.left, self.right)
        )
        places = np.arange(nodes)
        sound = same and nodes > 0 and len(self.groups) == len(self.roots) and folds > 0
        sound = sound and bool(((self.feature >= 0) & (self.feature < num_features)).all())
        sound = sound and bool(((self.roots >= 0) & (self.roots < nodes)).all())
        sound = sound and bool(((self.groups >= 0) & (self.groups < folds)).all())
        for child in (self.left, self.right):  # children follow their parents, so a walk ends
            sound = sound and len(child) == nodes and bool(((child >= places) & (child < nodes)).all())
        sound = sound and bool(((self.left == places) == (self.right == places)).all())
        sound = sound and bool(np.isfinite(self.value).all() and np.isfinite(self.offsets).all())
        if not sound:
            raise MolsliceError("the arrays do not describe decision trees")

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild trees from their fields."""
        return cls(**{name: np.asarray(arrays[name]) for name in cls.__slots__})
