"""Explain predictions for molecules."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from molslice.data.molecules.conditions import with_conditions
from molslice.data.molecules.fragments import choose_fragments
from molslice.explanation.attention import check_maps, layer_maps
from molslice.explanation.gradients import TOLERANCE, check_gradients, integrated_gradients
from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.explanation.result import AttentionView, Contributions, Headline
from molslice.explanation.score import LOG_ODDS, PredictionScore, Score, find_score
from molslice.explanation.shapley import MAX_COALITIONS, shapley_values
from molslice.explanation.shapley import TOLERANCE as LARGEST_STANDARD_ERROR
from molslice.files.progress import Progress
from molslice.inference.base import Predictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.inputs import Conditions
from molslice.inference.load import load_model
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.predictions import NOT_FINITE
from molslice.tasks.target_types import column_slices
from molslice.types import MolsliceError

if TYPE_CHECKING:
    from molslice.chem.masked import MaskableMolecule

ScoreKind = TypeVar("ScoreKind", Score, PredictionScore)
Method = Literal["gradients", "shapley", "attention"]
METHODS: tuple[Method, ...] = get_args(Method)
SHOWN = 60  # characters of a SMILES in a message
MAX_MASKED = 4_096  # molecules that a fitted model predicts for an explanation, about, in up to a minute
MASKED_TOLERANCE = 0.02  # of the largest standard error of these, in standard deviations of the target
LEVEL = 0.9  # of the interval beside a prediction


def explain(
    model: Predictor | str | Path,
    smiles: str,
    *,
    method: Method | None = None,
    target: str | None = None,
    class_name: str | None = None,
    conditions: Conditions | None = None,
    max_evaluations: int | None = None,
) -> Contributions | AttentionView:
    """Explain the prediction for a molecule.

    Args:
        model: A model, or what `load_model` takes.
        smiles: The molecule.
        method: `gradients` (integrated gradients) and `shapley` (Shapley values of masked atoms) give the
            contribution of each atom; their sum is the prediction minus the prediction for the baseline, the
            saturated hydrocarbon with the same skeleton. `attention` gives the attention maps; if the model
            has several networks, the maps of the first. None is `shapley` for a model of `molslice fit`, of
            which the other two methods show the fine-tuned networks alone, and `gradients` for other models.
        target: Name of the target; None for the only one.
        class_name: The class whose log-odds are explained, of a target of three and more; None for the class
            that is predicted for the molecule.
        conditions: The value of each condition, if the model takes some.
        max_evaluations: About how many molecules with masked atoms the method `shapley` may evaluate; None
            for 4,096 with a model of `molslice fit`, and for 8,192 with others. More of them lower the
            standard errors. At least 16 are evaluated for each atom or group.

    Returns:
        The contributions in the unit of the target (for classes in log-odds, and in common logarithms if
        `molslice fit` learned them), or the maps; the atoms are in the order of `smiles`.

    Raises:
        MolsliceError: The SMILES cannot be read, an argument is invalid, or the model cannot be explained.
    """
    predictor = model if isinstance(model, Predictor) else load_model(model)
    explainer = Explainer(
        predictor, method=method, target=target, class_name=class_name, max_evaluations=max_evaluations
    )
    return explainer(smiles, conditions)


class Explainer:
    """Explains the predictions of one model for molecules; see `explain`.

    `progress` shows a bar on standard error for each molecule that takes long.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        method: Method | None = None,
        target: str | None = None,
        class_name: str | None = None,
        max_evaluations: int | None = None,
        progress: bool = False,
    ) -> None:
        if method is None:
            method = "shapley" if isinstance(predictor, FittedPredictor) else "gradients"
        elif method not in METHODS:
            raise MolsliceError(f"invalid method {method!r}; choices: {', '.join(METHODS)}")
        if max_evaluations is None:
            max_evaluations = MAX_MASKED if isinstance(predictor, FittedPredictor) else MAX_COALITIONS
        elif method != "shapley":
            raise MolsliceError(f"max_evaluations={max_evaluations} needs the method shapley, not {method}")
        elif not isinstance(max_evaluations, int) or isinstance(max_evaluations, bool) or max_evaluations < 1:
            raise MolsliceError(f"invalid max_evaluations {max_evaluations!r}: give a number from 1")
        self.progress, self.max_evaluations = progress, max_evaluations
        if method == "attention":
            target = target or predictor.target_names[0]  # the maps are the same for all targets
        self.predictor, self.model, self.method = predictor, predictor.name, method
        self.score = find_score(predictor, target, method, class_name)
        place = predictor.target_names.index(self.score.name)
        self._column = [*column_slices(predictor.types)][place].start  # of the predictions of the model
        if isinstance(self.score, PredictionScore):
            return
        if method == "gradients":
            check_gradients(self.score)
        elif method == "attention":
            check_maps(self.score)

    @cached_property
    def _options(self) -> PredictionOptions:
        """What a prediction of numbers has besides its value: an interval, if the model knows its errors."""
        if self.score.unit != LOG_ODDS:
            with suppress(MolsliceError):
                return self.predictor.find_options(LEVEL)
        return PLAIN

    def __call__(self, smiles: str, conditions: Conditions | None = None) -> Contributions | AttentionView:
        """Explain one molecule, of a mixture the one that the model predicts."""
        given, needs_conditions = smiles, self.predictor.condition_names and self.method != "attention"
        if needs_conditions or conditions is not None:
            (given,) = self.predictor.given_rows([smiles], conditions)
        (row,) = choose_fragments([given], *self.predictor.treatment).smiles
        if isinstance(self.score, PredictionScore):
            return self._prediction(self.score, given, row)
        return self._network(self.score, given, row)

    def _prediction(self, score: PredictionScore, given: str, row: str) -> Contributions:
        """Compute Shapley values of groups of atoms, which are divided equally among the atoms."""
        from molslice.chem.masked import MaskableMolecule  # needs rdkit
        from molslice.chem.naming import element_symbols

        headline, score = self._headline(given, score)
        molecule = MaskableMolecule(row)
        with Progress("explain", None, "molecules", shown=self.progress) as bar:
            game = _MaskedRows(score, molecule, row, bar.update)
            baseline, prediction = game(np.array([[False], [True]]).repeat(len(molecule.groups), axis=1))
            limit = MASKED_TOLERANCE * score.spread
            shares = shapley_values(game, len(molecule.groups), limit, self.max_evaluations)
        values, errors = np.zeros((2, molecule.num_atoms))
        for group, value, error in zip(molecule.groups, shares.values, shares.standard_errors, strict=True):
            values[group], errors[group] = value / len(group), error / len(group)
        return self._explanation(
            score,
            row,
            headline,
            (baseline, prediction),
            values,
            elements=element_symbols(row),
            of_bonds=None,
            standard_errors=errors,
            evaluations=len(game.known),
            standard_error_target=limit,
            max_evaluations=self.max_evaluations,
            groups=molecule.groups,
        )

    def _network(self, score: Score, given: str, row: str) -> Contributions | AttentionView:
        from molslice.chem.canonical import canonical_order  # needs rdkit
        from molslice.chem.naming import element_symbols

        network = score.networks[0]
        with network.reader() as reader:
            (store,) = reader.read([[row]])
        if not store.num_atoms[0]:
            raise _unreadable(given, store.errors.get(0, "no atoms"))
        molecule = MaskedMolecule(store, score.device)
        elements = element_symbols(row, as_written=network.atom_order == "input")
        # the position in the SMILES of each atom of the model's arrays
        order = np.arange(len(elements)) if network.atom_order == "input" else canonical_order(row)
        if self.method == "attention":
            return self._maps(score, row, molecule, elements, order)
        return self._contributions(score, given, row, molecule, elements, order)

    def _column_of(self, score: Score | PredictionScore) -> int:
        """Return the column of the predictions of the model, which has more targets than some networks."""
        return score.column if isinstance(score, PredictionScore) else self._column

    def _class_of(self, score: Score | PredictionScore) -> str | None:
        """Return the class whose log-odds are explained; None for a number."""
        if score.unit != LOG_ODDS:
            return None
        return self.predictor.described_columns[self._column_of(score)].get("class", "1")

    def _headline(self, given: str, score: ScoreKind) -> tuple[Headline, ScoreKind]:
        """Predict a row as `predict` does, and return the score of its class if none was chosen."""
        predictions = self.predictor.predict_with_errors([given], options=self._options)
        if reason := predictions.errors[0]:
            raise _unreadable(given, reason)
        if isinstance(score, PredictionScore):
            score = score.of_predicted_class(predictions.values[0])
        column, interval = self._column_of(score), None
        described = self.predictor.described_columns[column]
        if predictions.lower is not None and predictions.upper is not None:
            interval = float(predictions.lower[0, column]), float(predictions.upper[0, column])
        label = described["name"]
        if self.score.unit == LOG_ODDS:
            label += ", probability of " + (repr(described["class"]) if "class" in described else "class 1")
        value = float(predictions.values[0, column])
        return Headline(label, described["unit"], value, interval, LEVEL), score

    def _contributions(
        self,
        score: Score,
        given: str,
        smiles: str,
        molecule: MaskedMolecule,
        elements: tuple[str, ...],
        order: np.ndarray,
    ) -> Contributions:
        atoms = molecule.num_atoms
        ends = np.stack([np.zeros(atoms, bool), np.ones(atoms, bool)])
        baseline, prediction = score.of_masked(molecule, ends)
        of_bonds, errors, limits = None, None, {}
        if self.method == "gradients":
            values, of_bonds, evaluations = integrated_gradients(score, molecule)
        else:
            with Progress("explain", None, "masked molecules", shown=self.progress) as bar:
                limits = {
                    "standard_error_target": LARGEST_STANDARD_ERROR * score.spread,
                    "max_evaluations": self.max_evaluations,
                }
                values, errors, evaluations = _shapley(score, molecule, bar.update, *limits.values())
        return self._explanation(
            score,
            smiles,
            self._headline(given, score)[0],
            (baseline, prediction),
            _spread(values, order, len(elements)),
            elements=elements,
            of_bonds=None if of_bonds is None else _spread(of_bonds, order, len(elements)),
            standard_errors=None if errors is None else _spread(errors, order, len(elements)),
            evaluations=evaluations,
            **limits,
        )

    def _explanation(
        self,
        score: Score | PredictionScore,
        smiles: str,
        headline: Headline,
        ends: tuple[float, float],
        values: np.ndarray,
        **details: Any,  # noqa: ANN401
    ) -> Contributions:
        """Return contributions; `ends` are the scores of the baseline and of the molecule."""
        baseline, prediction = ends
        return Contributions(
            smiles=str(smiles),
            model=self.model,
            target=score.name,
            unit=score.unit,
            note=score.note,
            method=self.method,
            values=values,
            prediction=float(prediction),
            baseline=float(baseline),
            sum_error=float(values.sum() - (prediction - baseline)),
            tolerance=TOLERANCE * score.spread,
            headline=headline,
            class_name=self._class_of(score),
            **details,
        )

    def _maps(
        self,
        score: Score,
        smiles: str,
        molecule: MaskedMolecule,
        elements: tuple[str, ...],
        order: np.ndarray,
    ) -> AttentionView:
        attention, kind, layers, values = layer_maps(score, molecule)
        size = len(elements) + 1
        tokens = np.concatenate([[0], order + 1])
        maps = np.zeros((len(layers), size, size), np.float32)
        maps[:, tokens[:, None], tokens] = layers
        by_atom = {
            caption: np.stack([_spread(layer, order, len(elements)) for layer in of_layers])
            for caption, of_layers in values.items()
        }
        first, count, note = score.networks[0].name, len(score.networks), ""
        if count > 1:
            note = f"{first}, the first of {count} networks"
        return AttentionView(str(smiles), self.model, note, attention, kind, elements, maps, by_atom)


class _MaskedRows:
    """The score of a row for each choice of visible groups; a molecule is predicted once.

    `advance` is called with the number of predicted molecules.
    """

    def __init__(
        self,
        score: PredictionScore,
        molecule: "MaskableMolecule",
        row: str,
        advance: Callable[[int], object],
    ) -> None:
        self.score, self.molecule, self.row, self.advance = score, molecule, row, advance
        self.known: dict[str, float] = {}

    def __call__(self, members: np.ndarray) -> np.ndarray:
        """Return the score of each choice, bool [K, m]."""
        smiles = [self.molecule.masked(visible) for visible in members]
        new = [text for text in dict.fromkeys(smiles) if text not in self.known]
        if new:
            rows = [with_conditions(text, self.row) for text in new]
            self.known.update(zip(new, self.score(rows, self.advance), strict=True))
        return np.array([self.known[text] for text in smiles])


def _unreadable(given: object, reason: str) -> MolsliceError:
    """Return the error for a molecule that cannot be explained."""
    if reason == NOT_FINITE or not str(given).strip():
        return MolsliceError(reason)
    shown = repr(str(given)) if len(str(given)) <= SHOWN else f"{str(given)[:SHOWN]!r} and more"
    return MolsliceError(f"cannot read the SMILES {shown}: {reason}")


def _spread(values: np.ndarray, order: np.ndarray, atoms: int) -> np.ndarray:
    """Put values of the model's atoms into the order of the SMILES."""
    placed = np.zeros(atoms, values.dtype)
    placed[order] = values
    return placed


def _shapley(
    score: Score,
    molecule: MaskedMolecule,
    advance: Callable[[int], object],
    limit: float,
    max_evaluations: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return Shapley value and standard error of each atom, and the number of coalitions."""
    players = molecule.players

    def game(members: np.ndarray) -> np.ndarray:
        visible = np.zeros((len(members), molecule.num_atoms), bool)
        visible[:, players] = members
        return score.of_masked(molecule, visible, advance)

    result = shapley_values(game, len(players), limit, max_evaluations)
    values, errors = np.zeros(molecule.num_atoms), np.zeros(molecule.num_atoms)
    values[players], errors[players] = result.values, result.standard_errors
    return values, errors, result.coalitions
