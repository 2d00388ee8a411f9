"""What is known of the targets: names, units, and the numbers that standardize them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from molslice.types import MolsliceError


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """The T targets of a model; travels with its weights.

    A regression model predicts (target - mean) / std, mean and spread of the training split; a
    classification model predicts logits, and its mean and std are 0 and 1.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]  # "" where there is none
    kind: Literal["regression", "classification"]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.names, self.units, self.mean, self.std)}
        if len(sizes) != 1 or sizes == {0}:
            raise MolsliceError(f"names, units, mean and std of targets must be equally many, got {self}")
        if self.kind not in ("regression", "classification"):
            raise MolsliceError(f"kind of targets is {self.kind!r}; choices: classification, regression")

    @classmethod
    def of_training(
        cls, names: tuple[str, ...], units: tuple[str, ...], kind: str, targets: np.ndarray
    ) -> "TargetInfo":
        """From the training rows' targets, float [rows, T], NaN where missing.

        Raises:
            MolsliceError: a target that is infinite, missing in every row, or not 0 or 1 in classification.
        """
        values = np.asarray(targets, dtype=np.float64)
        for column, name in enumerate(names):
            present = values[~np.isnan(values[:, column]), column]
            if not len(present):
                raise MolsliceError(f"target {name!r} is missing in every training row")
            if np.isinf(present).any():
                raise MolsliceError(f"target {name!r} is infinite in {np.isinf(present).sum()} training rows")
            if kind == "classification" and not np.isin(present, (0.0, 1.0)).all():
                odd = present[~np.isin(present, (0.0, 1.0))][0]
                raise MolsliceError(f"target {name!r} holds {odd:g}; classes are 0 and 1")
        mean, std = np.zeros(len(names)), np.ones(len(names))
        if kind == "regression":
            mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
            std[std < 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0  # a constant target stays as it is
        floats = tuple(map(float, mean)), tuple(map(float, std))
        return cls(tuple(names), tuple(units), kind, *floats)  # type: ignore[arg-type]

    def to_unit(self, prediction: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """What a model returns as what a person reads: the targets' units, or probabilities."""
        if self.kind == "classification":
            return torch.sigmoid(prediction.float())
        wide = prediction.double()  # a mean that is large beside the spread would cost digits
        return (wide * wide.new_tensor(self.std) + wide.new_tensor(self.mean)).float()

    def to_mapping(self) -> dict[str, Any]:
        """As values that JSON knows; `from_mapping` gives an equal value back."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: Any) -> "TargetInfo":  # noqa: ANN401
        """The inverse of `to_mapping`, also after a journey through JSON.

        Raises:
            MolsliceError: not what `to_mapping` gave.
        """
        try:
            lists = {key: tuple(mapping[key]) for key in ("names", "units", "mean", "std")}
            return cls(**lists, kind=mapping["kind"])
        except (KeyError, TypeError) as error:
            raise MolsliceError(f"the description of the targets does not read: {error}") from error
