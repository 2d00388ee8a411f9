"""Predictions of the splits of a data set for a report."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.base import Dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.files.received import check_received
from molslice.folders.fitted import HELD_OUT, ROW_COLUMNS, ROWS, row_columns
from molslice.folders.limit_cells import limit_columns, read_limit
from molslice.inference.evaluate import check_targets, count_trained
from molslice.inference.fitted import FittedPredictor, prediction_row_columns
from molslice.inference.groups import number_molecules, number_names
from molslice.inference.load import AnyPredictor
from molslice.inference.uncertainty import evaluate_uncertainty, score_learned_rows, two_classes
from molslice.tasks.target_types import TargetType, column_slices
from molslice.types import MoleculeArrays, MolsliceError

SPLITS = ("train", "valid", "test")
THRESHOLD = 0.5  # probability of class 1 above which it is predicted


@dataclass(frozen=True, slots=True)
class SplitPredictions:
    """Measured and predicted values of rows of a split.

    Attributes:
        name: Name of the split.
        is_unseen: Whether the models that predict a row have not been trained on it.
        total: Number of rows of the split with a known target that can be read.
        rows: Row numbers of those that are predicted, all or a sample, int64 [n].
        truth: Targets, float64 [n, T], NaN where missing.
        predicted: Predictions, float64 [n, C], with the columns of `Predictions`.
        columns: The columns of each target.
        molecules: Number of the molecule of each row, int64 [n]. Rows of one molecule count as one in
            standard errors.
        bounds: The least and the largest possible value of limits, such as `>10`, float64 [2, n, T], NaN
            where there is no limit; None without limits.
    """

    name: str
    is_unseen: bool
    total: int
    rows: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray
    columns: Sequence[slice]
    molecules: np.ndarray
    bounds: np.ndarray | None = None

    @property
    def is_out_of_fold(self) -> bool:
        """Whether the rows are the training rows of a fit, predicted by models without them."""
        return self.name == "train" and self.is_unseen

    @property
    def label(self) -> str:
        """What the rows are called."""
        return "cross-validated" if self.is_out_of_fold else self.name

    def values(self, target: int) -> np.ndarray:
        """Return the predictions of a number, or probabilities of class 1 or of the first class, [n]."""
        return self.predicted[:, self.columns[target].start]

    def known(self, target: int) -> np.ndarray:
        """Return the positions of the rows with an exact value and a prediction of a target, int64 [k]."""
        return np.flatnonzero(np.isfinite(self.truth[:, target]) & np.isfinite(self.values(target)))

    def measured(self, target: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the rows with a value or a limit, and a prediction, and their values.

        The value of a limit is the possible value nearest to the prediction. A limit that is met thus has no
        error, and the error of another one is the distance to it, as in the errors that `fit` announces.

        Returns:
            int64 [k] and float64 [k].
        """
        truth, predicted = self.truth[:, target], self.values(target)
        truth = np.where(np.isfinite(truth), truth, np.clip(predicted, *self.limits(target)))
        known = np.flatnonzero(np.isfinite(truth) & np.isfinite(predicted))
        return known, truth[known]

    def limits(self, target: int) -> np.ndarray:
        """Return the least and the largest possible value of limits, float64 [2, n]; see `bounds`."""
        return np.full((2, len(self.truth)), np.nan) if self.bounds is None else self.bounds[..., target]

    def unpredicted(self, target: int) -> int:
        """Return the number of rows with a value of a target but without a finite prediction."""
        return int((np.isfinite(self.truth[:, target]) & ~np.isfinite(self.values(target))).sum())


@dataclass(frozen=True)
class MeasuredModel:
    """A model with its predictions.

    Attributes:
        predictor: The model.
        dataset: The molecules.
        splits: The splits with known targets.
        is_own: Whether the model was trained on the rows `train` of the data.
        threshold: The probability of class 1 above which it is predicted.
    """

    predictor: AnyPredictor
    dataset: MoleculeDataset
    splits: tuple[SplitPredictions, ...]
    is_own: bool = True
    threshold: float = THRESHOLD

    @property
    def types(self) -> tuple[TargetType, ...]:
        """What each target is."""
        return self.predictor.types

    @property
    def noun(self) -> str:
        """What rows are called: `molecules`, or `rows` if a molecule may have several."""
        model = self.predictor
        if not isinstance(model, FittedPredictor):
            return "molecules"
        several = model.condition_names or model.fit_options.get("duplicates") == "keep"
        return "rows" if several else "molecules"

    @property
    def has_limits(self) -> bool:
        """Whether some values are limits."""
        return any(split.bounds is not None and np.isfinite(split.bounds).any() for split in self.splits)

    @property
    def truth_word(self) -> str:
        """What the known values are called: a run may have learned computed ones."""
        return "measured" if isinstance(self.predictor, FittedPredictor) else "reference"

    def probabilities(self, split: SplitPredictions, target: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of the known rows of a split, int [k], and its probabilities, float64 [k, K]."""
        known = split.known(target)
        values = split.predicted[known, split.columns[target]]
        if self.types[target].several is None:
            values = two_classes(values[:, 0])
        return split.truth[known, target].astype(np.int64), values

    @property
    def judged(self) -> SplitPredictions:
        """The split whose errors are examined: test if it has known targets, else the last one."""
        return next((split for split in self.splits if split.name == "test"), self.splits[-1])

    @property
    def is_learned(self) -> bool:
        """Whether the judged rows are the training rows of a fit, predicted out of fold."""
        return self.judged.is_out_of_fold

    @cached_property
    def uncertainty(self) -> Mapping[str, Any] | MolsliceError:
        """How good the intervals and sets of the judged rows are, or why this is not measured."""
        split, model = self.judged, self.predictor
        try:
            if self.is_learned and isinstance(model, FittedPredictor):
                known = [split.known(target) for target in range(len(model.types))]
                return score_learned_rows(model, known, split.molecules)
            return evaluate_uncertainty(model, self.dataset, split.name, rows=split.rows)
        except MolsliceError as error:
            return error

    @property
    def held_out(self) -> SplitPredictions | None:
        """The rows that a fit held out before it learned all rows; None for other models and data."""
        model = self.predictor
        if not (self.is_own and isinstance(model, FittedPredictor) and (model.folder / HELD_OUT).is_file()):
            return None
        kept = read_rows(model, model.folder / HELD_OUT)
        count, columns = len(kept.truth), [*column_slices(model.types)]
        places, molecules = np.arange(count), kept.number_molecules(model)
        return SplitPredictions(
            "held-out", True, count, places, kept.truth, kept.predicted, columns, molecules, kept.bounds
        )

    @cached_property
    def trained(self) -> int:
        """Number of judged molecules that are known training molecules of the models that predict them."""
        if self.is_learned:
            return 0
        return count_trained(self.predictor, self.dataset, self.judged.rows)

    @property
    def trained_text(self) -> str:
        """How many of the judged rows have training molecules, to stand before `of these rows`."""
        return "all" if self.trained == len(self.judged.rows) else f"at least {self.trained:,}"

    def molecules(self, rows: np.ndarray) -> Iterator[MoleculeArrays]:
        """Yield the arrays of rows."""
        for row in rows:
            yield self.dataset.store.arrays(int(row))


def measure(
    predictor: AnyPredictor,
    dataset: Dataset,
    most_rows: int,
    *,
    is_own: bool = True,
    threshold: float = THRESHOLD,
    progress: bool = False,
) -> MeasuredModel:
    """Predict the rows of each split with known targets.

    The training rows of a fit have the predictions of the models that have not seen them, which the folder
    keeps.

    Args:
        predictor: The model.
        dataset: Data with the targets of the model.
        most_rows: Most rows of a split; a larger split is sampled with seed 0.
        is_own: Whether the model was trained on the rows `train` of the data.
        threshold: The probability of class 1 above which it is predicted.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: The data are not molecules, have other targets, or no row has a known target.
    """
    if not isinstance(dataset, MoleculeDataset):
        raise MolsliceError(
            f"a report is about molecules; the rows of {dataset.source} are {dataset.row_name}"
        )
    check_targets(predictor, dataset)
    splits, columns = [], [*column_slices(predictor.types)]
    kept, names = None, [name for name in SPLITS if name in dataset.splits]
    if isinstance(predictor, FittedPredictor):
        kept = _kept_rows(predictor, dataset)
        if kept is not None and predictor.model.about.get("refitted"):
            names = ["train"]  # the others have no logarithm, so that no model learned them
    for name in names:
        rows = dataset.rows(name)
        labels = np.asarray(dataset.targets)[rows]
        known = np.isfinite(labels)
        if kept is not None and kept.bounds is not None:
            known |= ~np.isnan(kept.bounds[0, rows])
        rows = rows[known.any(1) & (np.asarray(dataset.num_tokens)[rows] > 0)]
        if not len(rows):
            continue
        sampled_rows = rows
        if len(rows) > most_rows:
            sampled_rows = np.sort(np.random.default_rng(0).choice(rows, most_rows, replace=False))
        truth, bounds = np.asarray(dataset.targets)[sampled_rows].astype(np.float64), None
        if kept is None:
            predicted = predictor.predict_dataset(dataset, sampled_rows, progress=progress).values
        else:
            predicted = kept.predicted[sampled_rows]
            bounds = None if kept.bounds is None else kept.bounds[:, sampled_rows]
        unseen = name != "train" or kept is not None
        predicted = predicted.astype(np.float64)
        molecules = number_molecules(predictor, dataset, sampled_rows)
        splits.append(
            SplitPredictions(
                name, unseen, len(rows), sampled_rows, truth, predicted, columns, molecules, bounds
            )
        )
    if not splits:
        raise MolsliceError(f"no row of {dataset.source} has a known target, so there is no error to report")
    return MeasuredModel(predictor, dataset, tuple(splits), is_own, threshold)


def _kept_rows(predictor: FittedPredictor, dataset: MoleculeDataset) -> "KeptRows | None":
    """Read `rows.csv`; None for other data or use of mixtures."""
    path = predictor.folder / ROWS
    treated, model = (predictor.fragment, predictor.wildcards), predictor.model
    if dataset.source != str(path) or treated != (model.fragment, model.wildcards):
        return None
    return read_rows(predictor, path)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of a fit with predictions of models that have not seen them.

    Attributes:
        smiles: The molecules, as they were given.
        given: The conditions and the second molecule of each row, as text.
        truth: Measured values, float64 [n, T], NaN where missing.
        predicted: Predictions, float64 [n, C], with the columns of `Predictions`; NaN where missing.
        is_test: Whether the row is held out, bool [n].
        bounds: See `SplitPredictions`.
    """

    smiles: Sequence[str]
    given: Sequence[tuple[str, ...]]
    truth: np.ndarray
    predicted: np.ndarray
    is_test: np.ndarray
    bounds: np.ndarray | None

    def number_molecules(self, model: FittedPredictor) -> np.ndarray:
        """Return the number of the molecule of each row, int64 [n]; see `number_names`."""
        both = self.smiles, [given[-1] for given in self.given] if model.symmetric else []
        return number_names(*map(model.name_molecules, both))


def read_rows(predictor: FittedPredictor, path: Path) -> KeptRows:
    """Read `rows.csv` or `held_out.csv` of a fit.

    Raises:
        MolsliceError: The file is damaged.
    """
    names, types = predictor.target_names, predictor.types
    predicted = prediction_row_columns(names, types, predictor.condition_names)
    measured, given = row_columns(names), predictor.condition_names
    check_received(path)
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        needed = [*ROW_COLUMNS[:2], *measured, *predicted, *given]
        if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
            raise MolsliceError(f"{path} has no column {missing[0]!r}")
        rows = list(reader)
    try:
        truth = [
            [read_value(row[name], target_type) for name, target_type in zip(measured, types, strict=True)]
            for row in rows
        ]
        numbers = [[float(row[name] or "nan") for name in predicted] for row in rows]
        bounds = None
        limits = limit_columns(measured, [*ROW_COLUMNS, *measured, *predicted, *given])
        if {*limits} <= {*(reader.fieldnames or ())}:
            cells = [[read_limit(row[name]) for name in limits] for row in rows]
            bounds = np.array(cells, dtype=np.float64).reshape(len(rows), -1, 2).transpose(2, 0, 1)
    except (TypeError, ValueError) as error:
        raise MolsliceError(f"cannot read {path}: {error}") from error
    return KeptRows(
        [row[ROW_COLUMNS[0]] for row in rows],
        [tuple(row[name] for name in given) for row in rows],
        np.array(truth, dtype=np.float64).reshape(-1, len(measured)),
        np.array(numbers, dtype=np.float64).reshape(-1, len(predicted)),
        np.array([row[ROW_COLUMNS[1]] == "test" for row in rows], dtype=bool),
        bounds,
    )


def read_value(cell: str, of_target: TargetType) -> float:
    """Return the number in a cell, or the index of its class; NaN for an empty cell."""
    if not cell:
        return float("nan")
    if of_target.several is not None or of_target.words:
        return float(of_target.class_names.index(cell))
    return float(cell)
