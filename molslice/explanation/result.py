"""Explanations with their pictures: contributions of atoms, or attention maps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from molslice.explanation.score import LOG_ODDS
from molslice.tasks.metrics import with_unit
from molslice.uncertainty.rounding import rounded_interval

SHOWN = 80  # characters of a name or a SMILES in a picture


@dataclass(frozen=True, slots=True)
class Headline:
    """A prediction as `molslice predict` prints it.

    Attributes:
        label: Name of the target, for classes with the class whose probability it is.
        unit: Unit of the target; "" for a probability and without a unit.
        value: The prediction.
        interval: Its ends; None without one.
        level: Probability that the interval holds the truth.
    """

    label: str
    unit: str
    value: float
    interval: tuple[float, float] | None = None
    level: float = 0.0

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.label}: {_number(self.value, self.unit)}"
        value, low, high = rounded_interval(self.value, *self.interval)
        return f"{self.label}: {value} {self.unit}".rstrip() + f" ({self.level:.0%}: {low} to {high})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        interval = None
        if self.interval is not None:
            interval = {"level": self.level, "lower": self.interval[0], "upper": self.interval[1]}
        return {"label": self.label, "unit": self.unit, "value": self.value, "interval": interval}


@dataclass(frozen=True, slots=True)
class Contributions:
    """The contribution of each atom to a prediction, in the order of the SMILES.

    Attributes:
        smiles: The SMILES as given; for a mixture its largest molecule, if the model predicts only this one.
        model: Name of the model.
        target: Name of the target.
        unit: Unit of all numbers below: unit of the target, `log-odds` for classes, `log10(unit)` where
            `molslice fit` learned the logarithm, "" without a unit.
        note: What is explained, if it is not the prediction of the model; else "".
        method: `gradients` or `shapley`.
        elements: Symbol of each atom.
        values: Contribution of each atom, float64 [n].
        of_bonds: The part of `values` that is half of the contributions of the bonds of the atom, float64
            [n]; None for `shapley`, which does not divide them.
        standard_errors: Standard error of each contribution, float64 [n]; zero for exact values; None for
            `gradients`.
        prediction: The number that is explained: the prediction, in `unit`.
        baseline: The prediction for the saturated hydrocarbon with the same skeleton.
        sum_error: Sum of the contributions minus (prediction minus baseline).
        tolerance: Largest absolute `sum_error` that is accepted.
        evaluations: Number of gradients, or of molecules with masked atoms.
        headline: The prediction as `molslice predict` prints it.
        standard_error_target: Standard error at which sampling stops; None for `gradients`.
        max_evaluations: About how many molecules with masked atoms are allowed; None for `gradients`.
        class_name: The class whose log-odds are explained; None for a number.
        groups: Atoms that were masked together, which share their contribution; None if atoms were masked
            one by one.
    """

    smiles: str
    model: str
    target: str
    unit: str
    note: str
    method: str
    elements: tuple[str, ...]
    values: np.ndarray
    of_bonds: np.ndarray | None
    standard_errors: np.ndarray | None
    prediction: float
    baseline: float
    sum_error: float
    tolerance: float
    evaluations: int
    headline: Headline
    standard_error_target: float | None = None
    max_evaluations: int | None = None
    class_name: str | None = None
    groups: Sequence[Sequence[int]] | None = None

    @property
    def probability(self) -> float | None:
        """Probability of `class_name`, None for a number and with a `note`."""
        if self.unit != LOG_ODDS or self.note:
            return None
        return float(1.0 / (1.0 + np.exp(-self.prediction)))

    @property
    def largest_standard_error(self) -> float | None:
        """Largest of `standard_errors`, zero for exact values, None for `gradients`."""
        return None if self.standard_errors is None else float(self.standard_errors.max(initial=0.0))

    @property
    def warning(self) -> str:
        """What to do if the standard error is above its target; "" if it is not."""
        largest, target = self.largest_standard_error, self.standard_error_target
        if largest is None or target is None or largest <= target:
            return ""
        assert self.standard_errors is not None
        assert self.max_evaluations is not None
        needed = max(self.max_evaluations, self.evaluations) * (largest / target) ** 2
        players = np.count_nonzero(self.standard_errors) if self.groups is None else len(self.groups)
        needed = min(math.ceil(needed), 1 << players)  # all coalitions
        digit = 10 ** max(0, len(str(needed)) - 2)
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"not converged: standard error up to {largest:.2g}{unit}, target {target:.2g}{unit}; "
            f"raise --max-evaluations from {self.max_evaluations} to {math.ceil(needed / digit) * digit}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        atoms: list[dict[str, Any]] = [
            {"index": index, "element": element, "contribution": float(value)}
            for index, (element, value) in enumerate(zip(self.elements, self.values, strict=True))
        ]
        for name, values in (("of_bonds", self.of_bonds), ("standard_error", self.standard_errors)):
            if values is not None:
                for atom, value in zip(atoms, values, strict=True):
                    atom[name] = float(value)
        if self.groups is not None:
            group_of = {atom: number for number, group in enumerate(self.groups) for atom in group}
            for place, atom in enumerate(atoms):
                atom["group"] = group_of.get(place)
        return {
            "smiles": self.smiles,
            "model": self.model,
            "target": self.target,
            "class": self.class_name,
            "unit": self.unit,
            "note": self.note or None,
            "method": self.method,
            "headline": self.headline.to_dict(),
            "prediction": self.prediction,
            "probability": self.probability,
            "baseline": self.baseline,
            "sum": float(self.values.sum()),
            "sum_error": self.sum_error,
            "tolerance": self.tolerance,
            "largest_standard_error": self.largest_standard_error,
            "standard_error_target": self.standard_error_target,
            "converged": not self.warning,
            "warning": self.warning or None,
            "evaluations": self.evaluations,
            "atoms": atoms,
        }

    @property
    def largest(self) -> float:
        """Absolute value of the largest contribution, where the colors of a picture end."""
        return float(np.abs(self.values).max(initial=0.0))

    def picture(
        self, ending: str = ".svg", *, background: str = "white", largest: float | None = None, name: str = ""
    ) -> bytes:
        """Draw the contributions on the structure, below the prediction.

        Args:
            ending: `.svg` or `.png`.
            background: `white`, `dark` or `transparent`.
            largest: The absolute contribution where the colors end; None for `self.largest`. Pictures of one
                value can be compared.
            name: The name of the molecule; "" for its SMILES.

        Returns:
            The contents of the file.

        Raises:
            MolsliceError: The ending or the background is unknown, or this RDKit cannot write PNG.
        """
        from molslice.chem.colored_drawing import draw_colored  # needs rdkit

        return draw_colored(
            self.smiles,
            self.values,
            ending,
            heading=str(self.headline),
            lines=[line for line in (_shortened(name or self.smiles), self.warning, self.note) if line],
            scale=f"contribution of the atom to {with_unit(self._explained, self.unit)}",
            equation=self.short_equation,
            largest=largest,
            background=background,
        )

    def bare_picture(self, *, dark: bool) -> str:
        """Draw the contributions on the structure alone, as SVG on a transparent background."""
        from molslice.chem.colored_drawing import draw_disks  # needs rdkit

        return draw_disks(self.smiles, self.values, dark=dark)

    @property
    def _explained(self) -> str:
        """The target, with its class if it has names."""
        named = self.class_name not in (None, "1")
        return f"{self.target}, class {self.class_name}" if named else self.target

    @property
    def _is_headline(self) -> bool:
        """Whether the explained number is the headline, not its log-odds, its logarithm or another number."""
        return self.headline.unit == self.unit and not self.note

    @property
    def short_equation(self) -> str:
        """The explained number as a sum in a few words, rounded as the headline where it is the headline."""
        unit, interval = self.unit, self.headline.interval
        baseline, prediction = _number(self.baseline, ""), _number(self.prediction, unit)
        if self._is_headline and interval is not None:
            prediction, *_ = rounded_interval(self.prediction, *interval)
            shift = self.baseline - self.prediction  # moves the interval, so that the decimals are the same
            baseline, *_ = rounded_interval(self.baseline, *(end + shift for end in interval))
            prediction = f"{prediction} {unit}".rstrip()
        return f"baseline {baseline} + atoms = {prediction}"

    @property
    def equation(self) -> str:
        """The explained number as a sum."""
        difference = self.prediction - self.baseline
        explained = "" if self._is_headline else f"{_number(self.prediction, self.unit)} "
        return (
            f"{explained}= {_number(self.baseline, '')} for the saturated hydrocarbon with this skeleton "
            f"{'-' if difference < 0 else '+'} {_number(abs(difference), '')} from the atoms"
        )


@dataclass(frozen=True, slots=True)
class AttentionView:
    """The attention maps of a molecule, with atoms in the order of the SMILES.

    Attributes:
        smiles: The SMILES as given; for a mixture its largest molecule, if the model predicts only this one.
        model: Name of the model.
        note: The network whose maps these are, if the model has several; else "".
        attention: Name of the attention.
        kind: `exact`, or `influence` (norms of derivatives) for an attention without an exact map.
        elements: Symbol of each atom.
        maps: Mean over the heads of each of L layers, float32 [L, 1 + n, 1 + n]. Entry (i, j) is the weight
            of token j in the output of token i; token 0 is the graph token.
        by_atom: Values of each atom, float32 [L, n], by caption; see `layer_maps`.
    """

    smiles: str
    model: str
    note: str
    attention: str
    kind: str
    elements: tuple[str, ...]
    maps: np.ndarray
    by_atom: dict[str, np.ndarray]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "smiles": self.smiles,
            "model": self.model,
            "note": self.note or None,
            "method": "attention",
            "attention": self.attention,
            "map": self.kind,
            "elements": list(self.elements),
            "by_atom": self.by_atom,
            "maps": self.maps,
        }

    @property
    def largest(self) -> float:
        """The largest absolute value of an atom; see `Contributions.largest`."""
        return float(np.abs(next(iter(self.by_atom.values())).mean(0)).max(initial=0.0))

    def picture(
        self, ending: str = ".svg", *, background: str = "white", largest: float | None = None, name: str = ""
    ) -> bytes:
        """Draw the values of the atoms beside the map, means over the layers; see `Contributions.picture`."""
        from molslice.chem.colored_drawing import Matrix, draw_colored  # needs rdkit

        caption, values = next(iter(self.by_atom.items()))
        labels = ["graph", *(f"{element}{index}" for index, element in enumerate(self.elements))]
        layers, matrix = len(self.maps), self.maps.mean(0)
        return draw_colored(
            self.smiles,
            values.mean(0),
            ending,
            heading=f"{self.model}: attention {self.attention}",
            lines=[
                _shortened(name or self.smiles),
                f"mean over {layers} layers and their heads; not a contribution to the prediction",
                *([f"maps of {self.note}"] if self.note else []),
                *(["negative weights of the map are drawn as zero"] if matrix.min() < 0 else []),
            ],
            scale=caption,
            diverging=bool(values.min() < 0),
            matrix=Matrix(np.maximum(matrix, 0.0), labels, f"{self.kind} map: to row, from column"),
            largest=largest,
            background=background,
        )


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
