"""Fine-tune a trained encoder on the rows of a fit, once for each fold."""

import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
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


def fine_tune(
    encoder: Path | str,
    smiles: Sequence[str],
    molecules: MoleculeStore,
    targets: np.ndarray,
    info: TargetInfo,
    folds: np.ndarray,
    folder: Path,
    *,
    kind: str = "",
    epochs: int,
    seed: int,
    device: str = "cpu",
    pays: Callable[[np.ndarray, np.ndarray], bool] = lambda rows, unseen: True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> FineTuned | None:
    """Train one network for each fold on the rows of the other folds, and write their weights.

    All weights are trained for a fixed number of epochs. Nothing is chosen on the rows of the fold.

    Args:
        encoder: Run folder or name of the trained encoder.
        smiles: SMILES of n rows, for messages.
        molecules: The molecules of the rows, read from these SMILES.
        targets: float64 [n, T], NaN where missing, or other ones for the network of each of K folds, float64
            [K, n, T].
        info: The description of the targets.
        folds: Fold of each row, int [n]; -1 for held-out rows.
        folder: Folder of the fitted model, in which the networks are written. It also has the temporary
            files.
        kind: What the networks learn, if the model has networks of several kinds.
        epochs: Number of epochs of each network.
        seed: Seed of the heads, dropout and the order of rows.
        device: One of `DEVICES`.
        pays: Called after the first fold with its rows, int [k], and their predictions, float64 [k, T];
            returns whether to train the other networks.
        progress: Called with the number of trained networks and of all networks.

    Returns:
        The predictions; None if the networks do not pay. Nothing is written then.

    Raises:
        MolsliceError: The encoder does not fit, or a loss or a prediction is not finite.
    """
    num_folds, held = int(folds.max()) + 1, np.flatnonzero(folds < 0)
    unseen = np.full(targets.shape[-2:], np.nan)
    held_out = np.empty((num_folds, len(held), targets.shape[-1]))
    generators = torch.random.fork_rng([0] if device == "cuda" else [])
    with tempfile.TemporaryDirectory(dir=folder) as scratch, generators, _errors_only():
        runs = _Runs(Path(scratch), encoder, info, device)
        progress(0, num_folds)
        for fold in range(num_folds):
            dataset = FoldRows(molecules, targets if targets.ndim == 2 else targets[fold], info, folds, fold)
            network = runs.train(fold, dataset, epochs, seed, network_folder(folder, fold, kind))
            rows_of_fold = np.flatnonzero(folds == fold)
            rows = np.concatenate([rows_of_fold, held])
            scores = network_scores(network.predict_molecules(molecules, rows=rows).values, info)
            if not np.isfinite(scores).all():
                molecule = smiles[int(rows[~np.isfinite(scores).all(1)][0])]
                raise MolsliceError(
                    f"the network of fold {fold} predicts a value that is not finite for {molecule}"
                )
            unseen[rows_of_fold], held_out[fold] = np.split(scores, [len(rows_of_fold)])
            progress(fold + 1, num_folds)
            if fold == 0 and not pays(rows_of_fold, unseen[rows_of_fold]):
                shutil.rmtree(network_folder(folder, fold, kind).parent)
                with contextlib.suppress(OSError):  # it has networks of another kind
                    (folder / NETWORKS).rmdir()
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


@dataclass(frozen=True, slots=True)
class _Runs:
    """A temporary folder with the runs of all folds.

    Attributes:
        path: The folder.
        encoder: The trained encoder.
        info: The description of the targets.
        device: Where the networks are trained.
    """

    path: Path
    encoder: Path | str
    info: TargetInfo
    device: str

    def train(self, fold: int, dataset: FoldRows, epochs: int, seed: int, folder: Path) -> NetworkPredictor:
        """Train the network of a fold, and write its weights to a folder.

        Raises:
            MolsliceError: The encoder does not fit, or the loss is not finite.
        """
        data = {
            "path": "standardized.csv",
            "target_columns": list(self.info.names),
            "kind": self.info.kind,
            "split": {"kind": "column", "column": f"fold{fold}"},
        }
        settings = {
            **RECIPE,
            "data": {"name": "csv", **data},
            "training": {**RECIPE["training"], "max_epochs": epochs, "valid_every_epochs": epochs},
            "start": {"model": str(self.encoder)},
            "trainer": {"accelerator": self.device},
            "seed": seed + fold,
        }
        file, run = self.path / f"fold{fold}.yaml", self.path / f"run{fold}"
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
        folder.mkdir(parents=True)
        write_model(folder, trained.model.state_dict(), targets, trained.data, config, trained.metadata)
        write_in_half(folder, folder)
        shutil.rmtree(run)
        return NetworkPredictor(read_run(folder), str(folder), torch.device(self.device))


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
