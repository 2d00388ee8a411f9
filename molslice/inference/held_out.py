"""Keep the predictions of held-out rows, from which intervals are computed."""

import logging
from collections.abc import Sequence
from pathlib import Path, PurePath

import numpy as np
import torch

from molslice.data.base import Dataset
from molslice.data.molecules.base import ArraysOnly, MoleculeDataset
from molslice.data.molecules.fragments import choose_fragments
from molslice.inference.base import Predictor
from molslice.inference.domain import TrainingDomain
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import AnyPredictor, load_model
from molslice.inference.options import PredictionOptions
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration, HeldOut
from molslice.uncertainty.similarity_rule import MOST_COMPARED, SimilarityRule, are_covered, mean_of_rows

SPLIT = "valid"

logger = logging.getLogger(__name__)


def write_calibration(folder: Path, dataset: Dataset, device: torch.device | str = "cpu") -> None:
    """Write the calibration of a trained network or ensemble, if its predictions can have intervals."""
    predictor = load_model(folder, device)
    if not isinstance(predictor, FittedPredictor) and _has_intervals(predictor.targets, dataset):
        calibrate(predictor, dataset).write(folder)
        write_domain(predictor, dataset)


def write_domain(predictor: Predictor, dataset: Dataset) -> None:
    """Write the training molecules into the folder of a run, if the data have them as SMILES.

    The rule of the domain is chosen on the validation rows, whose predictions are in the calibration of the
    folder. A warning says if the SMILES cannot be read again.
    """
    assert isinstance(dataset, MoleculeDataset)
    assert predictor.folder is not None  # it was loaded from one
    if isinstance(dataset, ArraysOnly):
        return
    try:
        smiles = dataset.smiles()
    except MolsliceError as error:
        logger.warning("the domain of the model is not available: %s", error)
        return
    rows = dataset.labeled_rows("train")
    values = np.asarray(dataset.targets[rows], np.float64)
    domain = TrainingDomain.of_smiles([smiles[row] for row in rows], predictor.fragment, values=values)
    calibration = Calibration.read(predictor.folder, predictor.targets.kind, predictor.target_names)
    if calibration is not None:
        held_out = dataset.labeled_rows(SPLIT)
        truth = np.asarray(dataset.targets[held_out], np.float64)
        of_rows = [smiles[row] for row in held_out]
        molecules = dataset.number_molecules(held_out)
        domain.rule = choose_rule(domain, calibration, of_rows, truth, molecules, predictor.fragment)
    domain.write(predictor.folder)


def choose_rule(
    domain: TrainingDomain,
    calibration: Calibration,
    smiles: Sequence[str],
    truth: np.ndarray,
    molecules: np.ndarray,
    fragment: str,
) -> SimilarityRule:
    """Choose the rule of a domain on the validation rows of a run.

    Args:
        domain: The training molecules.
        calibration: The predictions of the rows that have a value of a target, in the order of `smiles`.
        smiles: The molecule of each validation row.
        truth: Values of each row and target, float64 [n, T], NaN where missing.
        molecules: Number of the molecule of each row, int [n]; rows of one molecule count as one.
        fragment: What happens to a mixture; see `choose_fragment`.
    """
    errors, covered = np.full((2, *truth.shape), np.nan)
    for index, held_out in enumerate(calibration.targets):
        known = np.flatnonzero(np.isfinite(truth[:, index]))
        if not np.array_equal(truth[known, index], held_out.truth):  # a prediction is not finite
            continue
        mean = held_out.errors.mean() if len(known) else 0.0
        if mean > 0:
            errors[known, index] = held_out.errors / mean
        if held_out.kind == "regression":
            covered[known, index] = are_covered(held_out.scores)
    rows = np.arange(len(smiles))
    if len(rows) > MOST_COMPARED:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_COMPARED, replace=False))
    treated = choose_fragments([smiles[int(row)] for row in rows], fragment).smiles
    compared = domain.compare(treated, [None] * len(rows))
    similarities = np.array(
        [np.nan if row_domain is None else row_domain.nearest_similarity for row_domain in compared]
    )
    of_rows = np.where(np.isfinite(similarities), mean_of_rows(errors)[rows], np.nan)
    return SimilarityRule.choose(
        similarities,
        of_rows,
        mean_of_rows(covered)[rows],
        threshold=domain.threshold,
        molecules=molecules[rows],
    )


def _has_intervals(targets: TargetInfo, dataset: Dataset) -> bool:
    """Return whether predictions of these targets can have intervals: measured values of molecules."""
    known = targets.kind in ("regression", "classification") and not targets.families
    return isinstance(dataset, MoleculeDataset) and known


def calibrate(
    predictor: AnyPredictor,
    dataset: Dataset,
    split: str = SPLIT,
    *,
    dropout_passes: int = 0,
    progress: bool = False,
) -> Calibration:
    """Predict the validation rows, which the model was not trained on.

    The intervals are split-conformal. Validation rows have selected the checkpoint of a training, so that
    errors on them are smaller than on new rows, by little where there are many rows.

    Args:
        predictor: A trained network or an ensemble of them.
        dataset: Data with the same targets as the model.
        split: The split of held-out rows, `valid`.
        dropout_passes: Number of passes with dropout over which the spread is computed, here and in each
            prediction with intervals; 0 without. See `molslice.model.dropout`.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The split is another one, the model was written by `molslice fit`, it does not
            predict measured values of molecules, or it has no dropout.
    """
    if isinstance(predictor, FittedPredictor):
        raise MolsliceError(
            f"{predictor.name} was written by molslice fit, which calibrates on out-of-fold rows"
        )
    if split != SPLIT:
        raise MolsliceError(
            f"intervals are calibrated on the rows of the split {SPLIT}, not {split}: the model must not be "
            "trained on them, and test rows must stay unused"
        )
    if not _has_intervals(predictor.targets, dataset) or not isinstance(dataset, MoleculeDataset):
        raise MolsliceError(f"{predictor.name} does not predict measured values of molecules")
    rows = dataset.labeled_rows(split)
    options = PredictionOptions(dropout_passes=dropout_passes, with_members=True)
    predictions = predictor.predict_dataset(dataset, rows, options, progress=progress)
    truth = np.asarray(dataset.targets[rows], np.float64)
    members = predictions.members
    assert members is not None
    held_out = []
    for index, name in enumerate(predictor.target_names):
        guess = predictions.values[:, index].astype(np.float64)
        hard = None if members.difficulty is None else members.difficulty[:, 0, index]
        folds = np.zeros(len(rows), np.int64)
        held_out.append(HeldOut.of_rows(name, predictor.targets.kind, truth[:, index], guess, folds, hard))
    source = f"{split} rows of {PurePath(str(dataset.source)).name}"
    return Calibration(predictor.targets.kind, 1, source, tuple(held_out), dropout_passes)
