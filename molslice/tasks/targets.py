"""The description of the targets: names, units, classes, and the mean and spread that standardize them."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.config.conversion import convert
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

Kind = Literal["regression", "classification", "multiclass", "mixed", "tokens", "actions"]
# A spread below this share of the largest value is a rounding error of the mean in float64.
CONSTANT = 1e-12
# Targets are stored in float32, which cannot resolve a smaller spread.
SMALLEST_SPREAD = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """The T targets of a model, stored with its weights.

    A regression model predicts (target - mean) / std. A model of kind `classification` predicts one logit for
    each target, `multiclass` one for each class, and `tokens` one for each word of the vocabulary, at each
    token. A model of kind `actions` predicts the action itself, at each step. Targets of several kinds, or
    several targets of several classes, are `mixed`; they belong to a model of `molslice fit`.

    Attributes:
        names: Names of the targets.
        units: Units of the targets, "" for a target without a unit.
        kind: Type of the targets. The values of `classification` are 0 and 1. `multiclass` has one target,
            whose values are indices into `classes`.
        mean: Mean of each target over the training split, in its unit; 0 unless the kind is regression.
        std: Standard deviation of each target over the training split, in its unit; 1 unless the kind is
            regression.
        classes: Names of the classes; empty unless the kind is multiclass.
        families: Kind of label of each target, for the task `pretraining`; empty for other tasks.
        atoms: The targets of each atom; None if there are none.
        parts: The description of each target if they are mixed; else empty. See `each`.

    Raises:
        MolsliceError: The fields contradict each other, or a mean or std is invalid.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    kind: Kind
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    atoms: "TargetInfo | None" = None
    parts: "tuple[TargetInfo, ...]" = ()

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (self.names, self.units, self.mean, self.std)}
        if len(sizes) != 1 or sizes == {0}:
            raise MolsliceError(f"targets need as many names as units, means and stds, got {self!s:.300}")
        if self.kind not in get_args(Kind):
            raise MolsliceError(
                f"kind of targets is {self.kind!r}; choices: {', '.join(sorted(get_args(Kind)))}"
            )
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and min(self.std) > 0):
            raise MolsliceError(f"mean and std of targets must be finite and std positive, got {self!s:.300}")
        if (self.kind == "multiclass") != bool(self.classes) or (self.classes and len(self.names) != 1):
            raise MolsliceError(f"classes belong to multiclass, which has one target, got {self!s:.300}")
        if self.families and len(self.families) != len(self.names):
            raise MolsliceError(f"targets need as many names as families, got {self!s:.300}")
        joined = _joined(self.parts)
        matches = all(getattr(self, name) == values for name, values in joined.items())
        if (self.kind == "mixed") != bool(self.parts) or (self.parts and not matches):
            raise MolsliceError(f"mixed targets need a description of each, got {self!s:.300}")

    @classmethod
    def mixed(cls, parts: Sequence["TargetInfo"]) -> "TargetInfo":
        """Describe mixed targets by the description of each."""
        return cls(kind="mixed", parts=tuple(parts), **_joined(parts))

    @property
    def each(self) -> "tuple[TargetInfo, ...]":
        """The description of each target alone."""
        if self.parts:
            return self.parts
        columns = zip(self.names, self.units, self.mean, self.std, strict=True)
        return tuple(
            TargetInfo((name,), (unit,), self.kind, (mean,), (std,), self.classes)
            for name, unit, mean, std in columns
        )

    @classmethod
    def of_training(
        cls,
        names: tuple[str, ...],
        units: tuple[str, ...],
        kind: str,
        targets: np.ndarray,
        classes: tuple[str, ...] = (),
    ) -> "TargetInfo":
        """Describe the targets of the training rows.

        Mean and spread are computed in float64 and scale with the unit: the same targets in joules and in
        electronvolts train the same model. If a target is constant, up to `CONSTANT` of its largest
        magnitude, its spread is that magnitude, or 1 if all values are zero, and a warning is logged.

        Args:
            names: Names of the targets.
            units: Units of the targets.
            kind: One of `Kind`.
            targets: Targets in their units, float [rows, T], NaN where missing.
            classes: Names of the classes, for kind multiclass.

        Raises:
            MolsliceError: A target is infinite, missing in every row, too small for float32, or not one of
                the classes.
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
            if kind == "classification" and np.ptp(present) == 0:
                logger.warning("target %r is %g in every training row", name, present[0])
            if kind == "multiclass" and not np.isin(present, np.arange(len(classes))).all():
                odd = present[~np.isin(present, np.arange(len(classes)))][0]
                raise MolsliceError(f"target {name!r} holds {odd:g}; its {len(classes)} classes count from 0")
        mean, std = np.zeros(len(names)), np.ones(len(names))
        if kind == "regression":
            mean, std = _mean_and_spread(names, values)
        floats = tuple(map(float, mean)), tuple(map(float, std))
        return cls(tuple(names), tuple(units), kind, *floats, tuple(classes))  # type: ignore[arg-type]

    def to_unit(self, prediction: Float[Tensor, "*B T"]) -> Float[Tensor, "*B T"]:
        """Convert the output of a model to the units of the targets, or to probabilities.

        Returns:
            Values in the units of the targets, or probabilities, float32 [..., T].
        """
        if self.kind == "classification":
            return torch.sigmoid(prediction.float())
        if self.kind in ("multiclass", "tokens"):
            return prediction.float().softmax(-1)
        wide = prediction.double()  # in float32 a mean that is large relative to the spread would lose digits
        return (wide * wide.new_tensor(self.std) + wide.new_tensor(self.mean)).float()

    def to_mapping(self) -> dict[str, Any]:
        """Return the description as JSON types; `from_mapping` is the inverse."""
        mapping = asdict(self)
        if self.parts:
            return {**mapping, "parts": [info.to_mapping() for info in self.parts]}
        del mapping["parts"]
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Any) -> "TargetInfo":  # noqa: ANN401
        """Construct the description from the result of `to_mapping`, also after a round trip through JSON.

        Raises:
            MolsliceError: The mapping is not a result of `to_mapping`.
        """
        try:
            names = [field.name for field in fields(cls) if field.name in mapping]
            hints = get_type_hints(cls)
            values = {name: convert(mapping[name], hints[name], name) for name in names}
            atoms, parts = values.pop("atoms", None), values.pop("parts", ())
            values["parts"] = tuple(map(cls.from_mapping, parts))
            return cls(**values, atoms=None if atoms is None else cls.from_mapping(atoms))
        except (MolsliceError, KeyError, TypeError) as error:
            raise MolsliceError(f"cannot read the description of the targets: {error}") from error


class Standardizer(nn.Module):
    """(target - mean) / std, in float64. In float32 a mean far above the spread loses digits."""

    mean: Tensor
    std: Tensor

    def __init__(self, targets: TargetInfo) -> None:
        super().__init__()
        for name in ("mean", "std"):
            values = torch.tensor(getattr(targets, name), dtype=torch.float64)
            self.register_buffer(name, values, persistent=False)

    def forward(self, values: Tensor, known: Tensor, dtype: torch.dtype) -> Tensor:
        """Return standardized values [..., T], zero where they are not known.

        They are replaced before the loss, because NaN times a zero mask is still NaN in the gradient.
        """
        return ((values.double() - self.mean) / self.std).to(dtype).masked_fill(~known, 0.0)


def _joined(parts: Sequence[TargetInfo]) -> dict[str, Any]:
    """Return the fields of several descriptions that have an entry for each target."""
    return {
        name: sum((getattr(info, name) for info in parts), ()) for name in ("names", "units", "mean", "std")
    }


def _mean_and_spread(names: tuple[str, ...], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each column, float64 [T] each."""
    mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    largest = np.nanmax(np.abs(values), axis=0)
    for column, name in enumerate(names):
        if std[column] <= CONSTANT * largest[column]:
            logger.warning("target %r is %g in every training row", name, mean[column])
            std[column] = largest[column] or 1.0
        if std[column] < SMALLEST_SPREAD:
            raise MolsliceError(
                f"target {name!r} has a spread of {std[column]:g}, too small for float32; give it in "
                "a smaller unit"
            )
    return mean, std
