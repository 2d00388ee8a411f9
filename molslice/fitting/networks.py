"""Fine-tune a trained encoder on the rows of a fit, once for each fold."""

import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from molslice.data.molecules.base import ArraysOnly
from molslice.data.molecules.store import MoleculeStore
from molslice.errors import MolsliceError
from molslice.folders.fitted import NETWORKS, network_folder
from molslice.folders.run import read_run, write_in_half, write_model
from molslice.inference.fitted import network_scores
from molslice.inference.load import NetworkPredictor
from molslice.tasks.targets import TargetInfo
from molslice.training.duration import count_epochs
from molslice.training.run import train
from molslice.training.start import load_run_config

EPOCH_COST = 4.0  # time of training on a row relative to embedding it

RECIPE: dict[str, Any] = {
    "model": {"dropout": 0.0, "attention_dropout": 0.0},
    "optimizer": {
        "lr": 1e-3,
        "weight_decay": 0.01,
        "schedule": "cosine",
        "warmup_fraction": 0.1,
        "layer_decay": 0.8,
        "ema_decay": 0.99,
    },
    "training": {"batch_size": 32, "token_budget": 4096},
}


@dataclass(frozen=True, slots=True)
class FineTuned:
    """Predictions of the networks of all folds, as `network_scores` returns them.

    Attributes:
        unseen: Prediction of each training row by the network that has not seen its fold, float64 [n, T]; NaN
            for held-out rows.
        held_out: Prediction of the m held-out rows by each network, float64 [folds, m, T].
    """

    unseen: np.ndarray
    held_out: np.ndarray


class FoldRows(ArraysOnly):
    """The rows of a fit as training rows, except for one fold.

    Half of the rows of the fold are called `valid` and half `test`: a run expects both, and only measures
    them.

    Args:
        molecules: The n molecules.
        targets: What is learned, float64 [n, T], NaN where missing. It is standardized, because stores have
            targets in float32.
        info: The description of the targets.
        folds: Fold of each row, int [n]; -1 for held-out rows.
        fold: The fold.
    """

    def __init__(
        self, molecules: MoleculeStore, targets: np.ndarray, info: TargetInfo, folds: np.ndarray, fold: int
    ) -> None:
        values = ((targets - np.array(info.mean)) / np.array(info.std)).astype(np.float32)
        self.kind, self.source = info.kind, "the rows of the fit"
        self.target_names = tuple(f"target{place}" for place in range(len(info.names)))
        self.target_units = ("",) * len(info.names)
        names = {"target_names": list(self.target_names), "target_units": list(self.target_units)}
        self.store = MoleculeStore({**molecules.present, "targets": values}, {**molecules.header, **names})
        of_fold = np.flatnonzero(folds == fold)
        self.splits = {
            "train": np.flatnonzero((folds >= 0) & (folds != fold)),
            "valid": of_fold[::2],
            "test": of_fold[1::2],
        }


@dataclass(frozen=True, slots=True)
class FineTuning:
    """The training of one network for each fold on the rows of the other folds.

    All weights are trained for a fixed number of epochs. Nothing is chosen on the rows of the fold.

    Attributes:
        encoder: Run folder or name of the trained encoder.
        molecules: The n molecules.
        targets: float64 [n, T], NaN where missing, or other ones for the network of each of K folds, float64
            [K, n, T].
        info: The description of the targets.
        folds: Fold of each row, int [n]; -1 for held-out rows.
        folder: Folder of the fitted model, in which the networks are written. It also has the temporary
            files.
        epochs: Number of epochs of each network.
        seed: Seed of the heads, dropout and the order of rows.
        kind: What the networks learn, if the model has networks of several kinds.
        device: One of `DEVICES`.
    """

    encoder: Path | str
    molecules: MoleculeStore
    targets: np.ndarray
    info: TargetInfo
    folds: np.ndarray
    folder: Path
    epochs: int
    seed: int
    kind: str = ""
    device: str = "cpu"

    @property
    def num_folds(self) -> int:
        """Number K of folds."""
        return int(self.folds.max()) + 1

    def rows(self, fold: int) -> np.ndarray:
        """Return the rows that the network of a fold predicts: first of the fold, then held-out ones."""
        return np.concatenate([np.flatnonzero(self.folds == fold), np.flatnonzero(self.folds < 0)])

    def folder_of(self, fold: int) -> Path:
        """Return the folder of the network of a fold."""
        return network_folder(self.folder, fold, self.kind)

    def train(self, fold: int) -> np.ndarray:
        """Train the network of a fold, and write its weights.

        Returns:
            Its predictions of `rows`, as `network_scores` returns them, float64 [k, T].

        Raises:
            MolsliceError: The encoder does not fit, or the loss is not finite.
        """
        targets = self.targets if self.targets.ndim == 2 else self.targets[fold]
        dataset = FoldRows(self.molecules, targets, self.info, self.folds, fold)
        generators = torch.random.fork_rng([0] if self.device == "cuda" else [])
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch, generators, _errors_only():
            network = self._train(fold, dataset, Path(scratch))
        values = network.predict_molecules(self.molecules, rows=self.rows(fold)).values
        return network_scores(values, self.info)

    def _train(self, fold: int, dataset: FoldRows, scratch: Path) -> NetworkPredictor:
        data = {
            "path": "standardized.csv",
            "target_columns": list(self.info.names),
            "kind": self.info.kind,
            "split": {"kind": "column", "column": f"fold{fold}"},
        }
        settings = {
            **RECIPE,
            "data": {"name": "csv", **data},
            "training": {**RECIPE["training"], "max_epochs": self.epochs, "valid_every_epochs": self.epochs},
            "start": {"model": str(self.encoder)},
            "trainer": {"accelerator": self.device},
            "seed": self.seed + fold,
        }
        file, run = scratch / "config.yaml", scratch / "run"
        file.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        try:
            train(load_run_config(file), run, quiet=True, dataset=dataset)
        except KeyboardInterrupt:  # the message is about resuming the temporary run
            raise KeyboardInterrupt from None
        except MolsliceError as error:
            reason = str(error).partition("; ")[0]  # the advice is about settings of the run
            raise MolsliceError(f"cannot fine-tune {self.encoder} without fold {fold}: {reason}") from error
        trained = read_run(run)
        # the weights belong to standardized targets
        config = replace(trained.config, start=None)
        unit = "standard deviations" if self.info.kind == "regression" else ""
        targets = replace(trained.targets, names=self.info.names, units=(unit,) * len(self.info.names))
        folder = self.folder_of(fold)
        folder.mkdir(parents=True)
        write_model(folder, trained.model.state_dict(), targets, trained.data, config, trained.metadata)
        write_in_half(folder, folder)
        return NetworkPredictor(read_run(folder), str(folder), torch.device(self.device))


def fine_tune(
    training: FineTuning,
    smiles: Sequence[str],
    scores: Generator[np.ndarray] | None = None,
    *,
    pays: Callable[[np.ndarray, np.ndarray], bool] = lambda rows, unseen: True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> FineTuned | None:
    """Train the networks of all folds, and collect their predictions.

    Args:
        training: What is trained.
        smiles: SMILES of the n rows, for messages.
        scores: The results of `FineTuning.train` of each fold, if the networks are trained elsewhere.
        pays: Called after the first fold with its rows, int [k], and their predictions, float64 [k, T];
            returns whether to train the other networks.
        progress: Called with the number of trained networks and of all networks.

    Returns:
        The predictions; None if the networks do not pay. Nothing is written then.

    Raises:
        MolsliceError: The encoder does not fit, or a loss or a prediction is not finite.
    """
    num_folds, num_held = training.num_folds, int((training.folds < 0).sum())
    scores = scores or (training.train(fold) for fold in range(num_folds))
    shape = training.targets.shape[-2:]
    unseen, held_out = np.full(shape, np.nan), np.empty((num_folds, num_held, shape[-1]))
    progress(0, num_folds)
    for fold, predicted in enumerate(scores):
        rows = training.rows(fold)
        if not np.isfinite(predicted).all():
            molecule = smiles[int(rows[~np.isfinite(predicted).all(1)][0])]
            raise MolsliceError(
                f"the network of fold {fold} predicts a value that is not finite for {molecule}"
            )
        rows_of_fold = rows[: len(rows) - num_held]
        unseen[rows_of_fold], held_out[fold] = np.split(predicted, [len(rows_of_fold)])
        progress(fold + 1, num_folds)
        if fold == 0 and not pays(rows_of_fold, unseen[rows_of_fold]):
            scores.close()
            shutil.rmtree(training.folder_of(fold).parent)
            with contextlib.suppress(OSError):  # it has networks of another kind
                (training.folder / NETWORKS).rmdir()
            return None
    return FineTuned(unseen, held_out)


def affordable_epochs(folds: np.ndarray, seconds: float, embedding_seconds: float) -> int:
    """Return the number of epochs of each network for which there is time; 0 for none.

    An epoch is assumed to take as long as embedding its rows four times.

    Args:
        folds: Fold of each row, int [n]; -1 for held-out rows.
        seconds: The time that is left, in seconds.
        embedding_seconds: The time in which the encoder has embedded all rows, in seconds.
    """
    rows, members = int((folds >= 0).sum()), int(folds.max()) + 1
    wanted = count_epochs(rows * (members - 1) // members)
    if seconds == float("inf"):
        return wanted
    # the time of an epoch of all networks
    epoch_seconds = EPOCH_COST * embedding_seconds * (members - 1) * rows / len(folds)
    return max(0, min(wanted, int(seconds / max(epoch_seconds, 1e-9))))


@contextmanager
def _errors_only() -> Iterator[None]:
    """Hide warnings about the temporary runs, such as a fold without test rows."""
    logger = logging.getLogger("molslice")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
