"""Explain predictions for molecules."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from molslice.data.molecules.fragments import choose_fragments
from molslice.explanation.attention import check_maps, layer_maps
from molslice.explanation.gradients import TOLERANCE, check_gradients, integrated_gradients
from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.explanation.result import AttentionView, Contributions
from molslice.explanation.score import NETWORKS, Score, find_score
from molslice.explanation.shapley import MAX_COALITIONS, shapley_values
from molslice.explanation.shapley import TOLERANCE as LARGEST_STANDARD_ERROR
from molslice.files.progress import Progress
from molslice.inference.base import SmilesPredictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import load_model
from molslice.types import MolsliceError

Method = Literal["gradients", "shapley", "attention"]
METHODS: tuple[Method, ...] = get_args(Method)
SHOWN = 60  # characters of a SMILES in a message


def explain(
    model: SmilesPredictor | str | Path,
    smiles: str,
    *,
    method: Method = "gradients",
    target: str | None = None,
    part: Literal["networks"] | None = None,
    max_evaluations: int | None = None,
) -> Contributions | AttentionView:
    """Explain the prediction for a molecule.

    Args:
        model: A model, or what `load_model` takes.
        smiles: The molecule.
        method: `gradients` (integrated gradients) and `shapley` (Shapley values of masked atoms) give the
            contribution of each atom; their sum is the prediction minus the prediction for the baseline, the
            saturated hydrocarbon with the same skeleton. `attention` gives the attention maps; if the model
            has several networks, the maps of the first.
        target: Name of the target; None for the only one.
        part: `networks` explains the fine-tuned networks of a model of `molslice fit`, whose trees and
            Gaussian process cannot be explained. The method `attention` needs no `part`.
        max_evaluations: About how many molecules with masked atoms the method `shapley` may evaluate; None
            for 8,192. More of them lower the standard errors.

    Returns:
        The contributions in the unit of the target (for classes in log-odds), or the maps; the atoms are in
        the order of `smiles`.

    Raises:
        MolsliceError: The SMILES cannot be read, an argument is invalid, or the model cannot be explained.
    """
    predictor = model if isinstance(model, SmilesPredictor) else load_model(model)
    options = {"method": method, "target": target, "part": part, "max_evaluations": max_evaluations}
    return Explainer(predictor, **options)(smiles)


class Explainer:
    """Explains the predictions of one model for molecules; see `explain`.

    `progress` shows a bar on standard error for each molecule that takes long.
    """

    def __init__(
        self,
        predictor: SmilesPredictor,
        *,
        method: Method = "gradients",
        target: str | None = None,
        part: Literal["networks"] | None = None,
        max_evaluations: int | None = None,
        progress: bool = False,
    ) -> None:
        if method not in METHODS:
            raise MolsliceError(f"invalid method {method!r}; choices: {', '.join(METHODS)}")
        if max_evaluations is None:
            max_evaluations = MAX_COALITIONS
        elif method != "shapley":
            raise MolsliceError(f"max_evaluations={max_evaluations} needs the method shapley, not {method}")
        elif not isinstance(max_evaluations, int) or isinstance(max_evaluations, bool) or max_evaluations < 1:
            raise MolsliceError(f"invalid max_evaluations {max_evaluations!r}: give a number from 1")
        self.progress, self.max_evaluations = progress, max_evaluations
        if method == "attention":
            target = target or predictor.target_names[0]  # the maps are the same for all targets
            part = NETWORKS if isinstance(predictor, FittedPredictor) else part
        self.model, self.method = predictor.name, method
        self.treatment = predictor.treatment
        self.score: Score = find_score(predictor, target, part)
        if method == "gradients":
            check_gradients(self.score)
        elif method == "attention":
            check_maps(self.score)

    def __call__(self, smiles: str) -> Contributions | AttentionView:
        """Explain one molecule, of a mixture the one that the model predicts."""
        from molslice.chem.canonical import canonical_order  # needs rdkit
        from molslice.chem.naming import element_symbols

        network, given = self.score.networks[0], smiles
        (smiles,) = choose_fragments([given], *self.treatment).smiles
        with network.reader() as reader:
            (store,) = reader.read([[smiles]])
        if not store.num_atoms[0]:
            reason = store.errors.get(0, "no atoms")
            if not str(given).strip():
                raise MolsliceError(reason)
            shown = repr(given) if len(str(given)) <= SHOWN else f"{str(given)[:SHOWN]!r}..."
            raise MolsliceError(f"cannot read the SMILES {shown}: {reason}")
        molecule = MaskedMolecule(store, self.score.device)
        elements = element_symbols(smiles, as_written=network.atom_order == "input")
        # the position in the SMILES of each atom of the model's arrays
        order = np.arange(len(elements)) if network.atom_order == "input" else canonical_order(smiles)
        explain = self._maps if self.method == "attention" else self._contributions
        return explain(smiles, molecule, elements, order)

    def _contributions(
        self, smiles: str, molecule: MaskedMolecule, elements: tuple[str, ...], order: np.ndarray
    ) -> Contributions:
        score, atoms = self.score, molecule.num_atoms
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
        return Contributions(
            smiles=smiles,
            model=self.model,
            target=score.name,
            unit=score.unit,
            note=score.note,
            method=self.method,
            elements=elements,
            values=_spread(values, order, len(elements)),
            of_bonds=None if of_bonds is None else _spread(of_bonds, order, len(elements)),
            standard_errors=None if errors is None else _spread(errors, order, len(elements)),
            prediction=float(prediction),
            baseline=float(baseline),
            sum_error=float(values.sum() - (prediction - baseline)),
            tolerance=TOLERANCE * score.spread,
            evaluations=evaluations,
            **limits,
        )

    def _maps(
        self, smiles: str, molecule: MaskedMolecule, elements: tuple[str, ...], order: np.ndarray
    ) -> AttentionView:
        attention, kind, layers, values = layer_maps(self.score, molecule)
        size = len(elements) + 1
        tokens = np.concatenate([[0], order + 1])
        maps = np.zeros((len(layers), size, size), np.float32)
        maps[:, tokens[:, None], tokens] = layers
        by_atom = {
            caption: np.stack([_spread(layer, order, len(elements)) for layer in of_layers])
            for caption, of_layers in values.items()
        }
        first, count, note = self.score.networks[0].name, len(self.score.networks), ""
        if count > 1:
            note = f"{first}, the first of {count} networks"
        return AttentionView(smiles, self.model, note, attention, kind, elements, maps, by_atom)


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
