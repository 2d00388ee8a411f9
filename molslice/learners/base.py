"""The interface of a learner."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from molslice.learners.features import Features
from molslice.learners.labels import Labels
from molslice.types import MolsliceError


class Learner(ABC):
    """A model of one target, fitted once for each fold with the rows of that fold left out.

    The rows may be divided into folds more than once; see `molslice.learners.fold_averages`. A learner is
    deterministic: the same rows, folds and seed give the same arrays.

    Attributes:
        label: Name of the learner in messages.
        indicators: Names of the indicators of difficulty that `predict_with_indicators` returns.
    """

    label: ClassVar[str]
    indicators: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def fit(
        cls,
        features: Features,
        labels: Labels,
        folds: np.ndarray,
        *,
        classes: bool,
        seed: int,
        **settings: Any,  # noqa: ANN401
    ) -> tuple[Self, np.ndarray]:
        """Fit one model for each fold of each assignment.

        Args:
            features: Features of n training rows.
            labels: Labels of the rows. A learner without a likelihood of limits is fitted to
                `Labels.of_model`.
            folds: Fold of each row in each of A assignments, from 0 without gaps, int [A, n]; int [n] for one
                assignment.
            classes: Whether the target is a class. The prediction is then a score that grows with the
                probability of class 1; `stacking.py` calibrates it.
            seed: Seed of random choices.
            settings: Values of `choices`, other than the defaults.

        Returns:
            The learner, and the mean prediction for each row by the models that have not seen it, float64
            [n].
        """

    @classmethod
    def choices(cls, *, classes: bool) -> Mapping[str, Sequence[Any]]:  # noqa: ARG003
        """Return the settings of `fit` that may be tuned: the values that are tried, the default first."""
        return {}

    @abstractmethod
    def predict(self, features: Features) -> np.ndarray:
        """Predict with each model: float64 [models, n], in the unit of the target."""

    def predict_with_indicators(self, features: Features) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Predict, and compute numbers that tend to grow with the error.

        Returns:
            The result of `predict`, and each of `indicators` for each model, not negative, float64 [models,
            n].
        """
        return self.predict(features), {}

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything that `from_arrays` needs, by name."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild a learner.

        Raises:
            MolsliceError: The arrays do not describe a learner of this class.
        """
        try:
            return cls._rebuild(arrays)
        except KeyError as error:
            raise MolsliceError(f"the arrays do not describe {cls.label}: no {error}") from error
        except (IndexError, TypeError, ValueError) as error:
            raise MolsliceError(f"the arrays do not describe {cls.label}: {error}") from error

    @classmethod
    @abstractmethod
    def _rebuild(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild a learner; arrays of another one raise a KeyError, IndexError, TypeError or ValueError."""
