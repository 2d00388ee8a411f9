"""The number that is explained: one target of a network, in the unit of the target or in log-odds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.folders.fitted import FINE_TUNED
from molslice.inference.base import SmilesPredictor
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.network import Predictor
from molslice.inference.precision import float32_inference
from molslice.inference.predictions import NOT_FINITE
from molslice.tasks.targets import TargetInfo
from molslice.types import MoleculeBatch, MolsliceError

LOG_ODDS = "log-odds"
SHOWN = 8  # names of targets in a message
NETWORKS = "networks"  # the part of a fitted model that can be explained


@dataclass(frozen=True, slots=True)
class Score:
    """One target as a function of a batch: the mean over one or several networks.

    Attributes:
        networks: The networks, which read molecules alike.
        column: Index of the target.
        scales: Factor and offset of each network, from its output to the unit.
        name: Name of the target.
        unit: Unit of the target, `log-odds` for classes, "" for a target without a unit.
        spread: Standard deviation of the target over the training rows, in the unit; 1 for classes.
        note: What the score is, if it is not the prediction of the model; else "".
    """

    networks: tuple[Predictor, ...]
    column: int
    scales: tuple[tuple[float, float], ...]
    name: str
    unit: str
    spread: float
    note: str = ""

    @property
    def device(self) -> torch.device:
        """Where the networks compute."""
        return self.networks[0].device

    def __call__(self, batch: MoleculeBatch) -> Float[Tensor, " B"]:
        """Return the score of each molecule, float64 in the unit."""
        return sum(
            (self.of_network(index, batch, network.model) for index, network in enumerate(self.networks)),
            start=torch.zeros(len(batch), dtype=torch.float64, device=self.device),
        ) / len(self.networks)

    def of_network(self, index: int, batch: MoleculeBatch, model: nn.Module) -> Float[Tensor, " B"]:
        """Return the score of each molecule by one of the networks, float64 in the unit.

        `model` is the module of the network, or a changed copy of it.
        """
        factor, offset = self.scales[index]
        return model(batch).prediction[:, self.column].double() * factor + offset

    def of_masked(
        self,
        molecule: MaskedMolecule,
        visible: np.ndarray,
        advance: Callable[[int], object] = lambda count: None,
    ) -> np.ndarray:
        """Return the score of a molecule for each choice of visible atoms.

        Args:
            molecule: The molecule.
            visible: True for atoms that are not masked, bool [K, n].
            advance: Called with the number of computed scores after each batch.

        Returns:
            float64 [K] in the unit.

        Raises:
            MolsliceError: A score is not finite.
        """
        with float32_inference(self.device):
            scores = []
            for batch in molecule.masked_batches(visible):
                scores.append(self(batch).cpu().numpy())
                advance(len(batch))
        values = np.concatenate(scores)
        if not np.isfinite(values).all():
            raise MolsliceError(NOT_FINITE)
        return values


def find_score(predictor: SmilesPredictor, target: str | None = None, part: str | None = None) -> Score:
    """Return the score of one target, by default the only one, of a model or its part; see `explain`.

    Raises:
        MolsliceError: The target is unknown or not clear, or the model cannot be explained.
    """
    if part not in (None, NETWORKS):
        raise MolsliceError(f"invalid part {part!r} of a model; choices: {NETWORKS}")
    predictor.reader()  # refuses a model that does not take molecules
    if predictor.targets.kind not in ("regression", "classification"):
        raise MolsliceError(
            f"{predictor.name} predicts {predictor.targets.kind}; explanations need a regression or classes "
            "0 and 1"
        )
    column = _find_target(predictor, target)
    if isinstance(predictor, FittedPredictor):
        return _score_of_fitted(predictor, column, part)
    if part is not None:
        raise MolsliceError(
            f"{predictor.name} was not written by molslice fit and has no parts; leave part out"
        )
    if not isinstance(predictor, Predictor | EnsemblePredictor):
        raise MolsliceError(f"{predictor.name} is a {type(predictor).__name__}, which cannot be explained")
    networks = (predictor,) if isinstance(predictor, Predictor) else predictor.members
    note = ""
    if len(networks) > 1 and predictor.targets.kind == "classification":
        note = f"the mean log-odds of {len(networks)} members"  # a prediction is their mean probability
    return _score(networks, predictor.targets, column, ((1.0, 0.0),) * len(networks), note)


def _find_target(predictor: SmilesPredictor, target: str | None) -> int:
    names = predictor.target_names
    shown = ", ".join(names[:SHOWN]) + ("" if len(names) <= SHOWN else f", ... ({len(names)} in all)")
    if target is None:
        if len(names) > 1:
            raise MolsliceError(f"{predictor.name} has several targets; name one of {shown}")
        return 0
    if target in names:
        return names.index(target)
    if target in predictor.columns:
        return predictor.columns.index(target)
    near = get_close_matches(target, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choices: {shown}"
    raise MolsliceError(f"{predictor.name} has no target {target!r}; {hint}")


def _score(
    networks: tuple[Predictor, ...],
    targets: TargetInfo,
    column: int,
    scales: tuple[tuple[float, float], ...],
    note: str = "",
) -> Score:
    """Compose the scales of the networks with `scales`, from their unit to the unit of `targets`."""
    composed = tuple(
        (network.targets.std[column] * factor, network.targets.mean[column] * factor + offset)
        for network, (factor, offset) in zip(networks, scales, strict=True)
    )
    unit = LOG_ODDS if targets.kind == "classification" else targets.units[column]
    spread = float(np.mean([factor for factor, _ in composed]))
    return Score(networks, column, composed, targets.names[column], unit, spread, note)


def _score_of_fitted(predictor: FittedPredictor, column: int, part: str | None) -> Score:
    stack = predictor.model.stacks[column]
    networks = tuple(network for network in predictor.networks if isinstance(network, Predictor))
    weight = dict(zip(stack.names, stack.weights, strict=True)).get(FINE_TUNED, 0.0)
    reason = (
        f"{predictor.name} was written by molslice fit: its trees and its Gaussian process use descriptors "
        "of the whole molecule, which are not defined for a molecule with masked atoms"
    )
    if not networks:
        raise MolsliceError(
            f"{reason}, and it has no fine-tuned networks; fit with --quality best, or explain a run of "
            "molslice train"
        )
    if part is None:
        raise MolsliceError(
            f"{reason}; the part {NETWORKS} (--part {NETWORKS}) explains its fine-tuned networks alone, "
            f"which have the weight {weight:.2f} in the prediction"
        )
    targets = predictor.targets
    scale = (1.0, 0.0)
    if targets.kind == "regression":  # the networks predict standardized values, as in `network_scores`
        scale = (targets.std[column], targets.mean[column])
    if stack.logarithmic:
        units = [f"log10({unit or name})" for name, unit in zip(targets.names, targets.units, strict=True)]
        targets = replace(targets, units=tuple(units))
    note = f"the mean of the fine-tuned networks, which have the weight {weight:.2f} in the model"
    if predictor.conditions:
        note += f" and do not take {', '.join(predictor.condition_names)}"
    return _score(networks, targets, column, (scale,) * len(networks), note)
