"""The number that is explained: one target of networks or of a fitted model.

Contributions add up on a scale without bounds: of classes they are log-odds, and of a target that a fitted
model learned as its logarithm they are common logarithms.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.data.molecules.describe import DescribedMolecules
from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.folders.fitted import FINE_TUNED
from molslice.inference.base import Predictor
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.network import NetworkPredictor
from molslice.inference.precision import float32_inference
from molslice.inference.predictions import NOT_FINITE
from molslice.number_text import counted
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType, column_slices, part_slices
from molslice.tasks.targets import TargetInfo
from molslice.types import MoleculeBatch, MolsliceError
from molslice.uncertainty.probabilities import log_odds

LOG_ODDS = "log-odds"
SHOWN = 8  # names of targets in a message
ROWS_AT_ONCE = 64  # that are predicted together
LEAST_WEIGHT = 0.1  # of the networks of a fitted model whose gradients are shown


@dataclass(frozen=True, slots=True)
class Score:
    """One target as a function of a batch: the mean over one or several networks.

    Attributes:
        networks: The networks, which read molecules alike.
        column: Index of the target in the networks.
        scales: Factor and offset of each network, from its output to the unit.
        name: Name of the target.
        unit: Unit of the target, `log-odds` for classes, "" for a target without a unit.
        spread: Standard deviation of the target over the training rows, in the unit; 1 for classes.
        note: What the score is, if it is not the prediction of the model; else "".
    """

    networks: tuple[NetworkPredictor, ...]
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


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """One target of a fitted model as a function of rows: the prediction of the whole model.

    Attributes:
        predictor: The model.
        column: Index of the prediction.
        name: Name of the target.
        unit: Unit of the target, `log10(unit)` if its logarithm is learned, `log-odds` for classes.
        spread: Standard deviation of the target over the training rows, in the unit; 1 for classes.
        is_logarithmic: Whether the logarithm of the target is learned.
        several: The classes if there are more than two and none was chosen; each molecule is then explained
            by its predicted class (`of_predicted_class`), and `column` is the one of the first class.
        note: Always "".
    """

    predictor: FittedPredictor
    column: int
    name: str
    unit: str
    spread: float
    is_logarithmic: bool = False
    several: SeveralClasses | None = None
    note: str = ""

    def of_predicted_class(self, values: np.ndarray) -> "PredictionScore":
        """Return the score of the class that a prediction chooses, from its values [C]."""
        if self.several is None:
            return self
        chances = values[self.column : self.column + len(self.several.names)]
        return replace(self, column=self.column + int(self.several.choose(chances)), several=None)

    def __call__(self, rows: list[str], advance: Callable[[int], object] = lambda count: None) -> np.ndarray:
        """Return the score of each row, float64 in the unit; rows have no mixtures to choose from.

        `advance` is called with the number of computed scores after each chunk.

        Raises:
            MolsliceError: A row cannot be predicted.
        """
        chunks = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
        values = []
        with self.predictor.reader() as reader:
            for molecules in reader.read(chunks):
                values.append(self.of_molecules(molecules))
                advance(len(molecules))
        return np.concatenate(values)

    def of_molecules(self, molecules: DescribedMolecules) -> np.ndarray:
        """Return the score of described molecules, as `__call__`."""
        predictions = self.predictor.predict_molecules(molecules)
        if reason := next(filter(None, predictions.errors), None):
            raise MolsliceError(reason)
        values = predictions.values[:, self.column].astype(np.float64)
        if self.unit == LOG_ODDS:
            return log_odds(values)
        return np.log10(values) if self.is_logarithmic else values


def find_score(
    predictor: Predictor,
    target: str | None = None,
    method: str = "gradients",
    class_name: str | None = None,
) -> Score | PredictionScore:
    """Return the score of one target, by default the only one, that a method explains; see `explain`.

    Raises:
        MolsliceError: The target or the class is unknown or not clear, or the model cannot be explained.
    """
    predictor.reader()  # refuses a model that does not take molecules
    column = _find_target(predictor, target)
    of_target, name = predictor.types[column], predictor.target_names[column]
    if class_name is None and of_target.several is not None and target in predictor.columns:
        first = [*column_slices(predictor.types)][column].start
        if target not in predictor.target_names:  # a column is a target with its class
            class_name = of_target.class_names[predictor.columns.index(target) - first]
    if of_target.kind not in ("regression", "classification", "multiclass"):
        what = of_target.kind
        raise MolsliceError(f"{predictor.name} predicts {what}; explanations need a number or classes")
    _check_class(of_target, name, class_name)
    if of_target.several is not None and method == "gradients":
        count = len(of_target.class_names)
        raise MolsliceError(
            f"the method gradients does not support {name}, a target of {count} classes; use the method "
            "shapley"
        )
    if isinstance(predictor, FittedPredictor):
        if method == "shapley":
            return _score_of_prediction(predictor, column, class_name)
        return _score_of_networks(predictor, column, LEAST_WEIGHT if method == "gradients" else 0.0)
    if not isinstance(predictor, NetworkPredictor | EnsemblePredictor):
        raise MolsliceError(f"{predictor.name} is a {type(predictor).__name__}, which cannot be explained")
    networks = (predictor,) if isinstance(predictor, NetworkPredictor) else predictor.members
    note = ""
    if len(networks) > 1 and predictor.targets.kind == "classification":
        note = f"the mean log-odds of {len(networks)} members"  # a prediction is their mean probability
    return _score(networks, predictor.targets, column, ((1.0, 0.0),) * len(networks), note)


def _check_class(of_target: TargetType, name: str, class_name: str | None) -> None:
    """Refuse a class that a target does not have, and the class 0 of two."""
    names = of_target.class_names
    if class_name is None or class_name in names[of_target.several is None :]:
        return
    if not names:
        raise MolsliceError(f"{name} is a number and has no class {class_name!r}")
    if class_name in names:
        raise MolsliceError(
            f"{name} has two classes, whose contributions differ by their sign: choose class {names[1]}"
        )
    near = get_close_matches(class_name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choices: {', '.join(names)}"
    raise MolsliceError(f"{name} has no class {class_name!r}; {hint}")


def _find_target(predictor: Predictor, target: str | None) -> int:
    names = predictor.target_names
    shown, others = ", ".join(names[:SHOWN]), len(names) - SHOWN
    shown += f" and {counted(others, 'other')}" if others > 0 else ""
    if target is None:
        if len(names) > 1:
            raise MolsliceError(f"{predictor.name} has several targets; name one of {shown}")
        return 0
    if target in names:
        return names.index(target)
    if target in predictor.columns:
        place = predictor.columns.index(target)
        return next(i for i, of_target in enumerate(column_slices(predictor.types)) if place < of_target.stop)
    near = get_close_matches(target, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choices: {shown}"
    raise MolsliceError(f"{predictor.name} has no target {target!r}; {hint}")


def _score(
    networks: tuple[NetworkPredictor, ...],
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


def _score_of_prediction(predictor: FittedPredictor, target: int, class_name: str | None) -> PredictionScore:
    column, several = [*column_slices(predictor.types)][target].start, predictor.types[target].several
    if several is not None and class_name is not None:
        column, several = column + several.names.index(class_name), None
    has_classes = predictor.types[target].has_classes
    return PredictionScore(
        predictor,
        column,
        predictor.target_names[target],
        _unit(predictor, target),
        1.0 if has_classes else predictor.targets.std[target],
        is_logarithmic=not has_classes and predictor.is_logarithmic(target),
        several=several,
    )


def _unit(predictor: FittedPredictor, target: int) -> str:
    if predictor.types[target].has_classes:
        return LOG_ODDS
    unit = predictor.target_units[target]
    return f"log10({unit or predictor.target_names[target]})" if predictor.is_logarithmic(target) else unit


def _score_of_networks(predictor: FittedPredictor, target: int, least_weight: float) -> Score:
    learned = [*part_slices(predictor.types)][target].start
    stack, groups = predictor.model.stacks[learned], predictor.networks_by_kind()
    group, networks = next((of for of in groups if learned in of[0].columns), (None, ()))
    weight = dict(zip(stack.names, stack.weights, strict=True)).get(FINE_TUNED, 0.0)
    if group is None or not networks:
        raise MolsliceError(f"{predictor.name} has no fine-tuned networks; use the method shapley")
    if weight < least_weight:
        raise MolsliceError(
            f"the fine-tuned networks of {predictor.name} have the weight {weight:.2f} in the prediction, so "
            "that their gradients do not explain it; use the method shapley"
        )
    targets, column = group.targets, group.columns.index(learned)
    scale = (1.0, 0.0)
    if targets.kind == "regression":  # the networks predict standardized values, as in `network_scores`
        scale = (targets.std[column], targets.mean[column])
    note = f"the fine-tuned networks alone, which have the weight {weight:.2f} in the prediction"
    if predictor.conditions:
        note += f" and do not take {', '.join(predictor.condition_names)}"
    score = _score(networks, targets, column, (scale,) * len(networks), note)
    return replace(score, unit=_unit(predictor, target))
