"""Load a trained model and predict from SMILES."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from molslice.chem.featurize import HARD_MAX_ATOMS
from molslice.data.base import Dataset, MoleculeDataset
from molslice.data.batching import collate, ordered_batches
from molslice.data.store import MoleculeStore
from molslice.inference.progress import progress_bar
from molslice.inference.reading import SmilesReader
from molslice.inference.run_folder import LoadedRun, read_run
from molslice.model.spec import ModelSpec
from molslice.pretrained import find_pretrained, pretrained_names
from molslice.types import MolsliceError

__all__ = ["Predictions", "Predictor", "load_model"]

TOKEN_BUDGET = 8192  # padded tokens a batch; bounds memory, 32 molecules of 256 atoms
MAX_ROWS = 256
REDUCED = {"bf16": torch.bfloat16, "16": torch.float16}


@dataclass(frozen=True, slots=True)
class Predictions:
    """Values in the targets' units, [n, T], NaN where a molecule failed; its reason, None for the others."""

    values: np.ndarray
    errors: list[str | None]


class Predictor:
    """A trained model that predicts in the unit of its targets.

    A prediction depends on the molecule alone: not on its neighbors in the batch, nor on the order of the
    rows. It is deterministic, without dropout.
    """

    def __init__(self, run: LoadedRun, name: str, device: torch.device | str = "cpu") -> None:
        self.name = name
        self.device = torch.device(device)
        self.model = run.model.eval().to(self.device)
        self.config = run.config
        self.targets, self.data = run.targets, run.data
        self.summary, self.metadata = run.summary, run.metadata

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets, T of them."""
        return tuple(self.targets.names)

    @property
    def target_units(self) -> tuple[str, ...]:
        """Unit of each target, empty where it has none."""
        return tuple(self.targets.units)

    @property
    def columns(self) -> tuple[str, ...]:
        """`<target>_<unit>` for each target: the names of the columns of a prediction."""
        pairs = zip(self.target_names, self.target_units, strict=True)
        return tuple(f"{name}_{unit}" if unit else name for name, unit in pairs)

    @property
    def atom_order(self) -> str:
        """The order of atoms that the model was trained on: `canonical` or `input`."""
        return str(self.config.data.options.get("atom_order", "canonical"))

    def reader(self, workers: int = 0) -> SmilesReader:
        """What turns SMILES into the arrays that this model was trained on, in `workers` processes.

        Raises:
            MolsliceError: a model of other data than molecules.
        """
        if not isinstance(self.config.model, ModelSpec):
            raise MolsliceError(
                f"{self.name} does not take molecules: it was trained on data of {self.config.data.name!r}. "
                "molslice evaluate measures such a model, on other data of the same kind too"
            )
        return SmilesReader(HARD_MAX_ATOMS, self.atom_order, workers)

    def predict(self, smiles: Sequence[str], *, workers: int = 0, progress: bool = False) -> np.ndarray:
        """Predict for each SMILES, in order, in the unit of the target; NaN where it cannot be read.

        Args:
            smiles: the molecules.
            workers: processes that read SMILES; 0 reads them in this one.
            progress: show a bar on standard error.

        Returns:
            float32 `[n]` for a model of one target, else `[n, T]`. For a classification, probabilities.

        Raises:
            MolsliceError: one string instead of a list of them.
        """
        values = self.predict_with_errors(smiles, workers=workers, progress=progress).values
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_with_errors(
        self, smiles: Sequence[str], *, workers: int = 0, progress: bool = False
    ) -> Predictions:
        """As `predict`, with the reason for each row that failed, and always `[n, T]`."""
        if isinstance(smiles, str):
            raise MolsliceError(
                f"predict takes a list of SMILES, got the one string {smiles!r}; write [{smiles!r}]"
            )
        values, errors = [np.empty((0, len(self.target_names)), np.float32)], []
        with self.reader(workers) as reader, progress_bar(len(smiles), "molecules", progress) as bar:
            for store in reader.read(_chunks(list(smiles), reader.chunk_rows)):
                part = self.predict_store(store)
                values.append(part.values)
                errors += part.errors
                bar.update(len(store))
        return Predictions(np.concatenate(values), errors)

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set; `atom_permutation` seeds a shuffle of each molecule's atoms."""
        return self.predict_store(dataset.store, rows, atom_permutation=atom_permutation, progress=progress)

    @torch.inference_mode()
    def predict_store(
        self,
        store: MoleculeStore,
        rows: np.ndarray | None = None,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a store (all of them by default), batched by length, in the order asked for."""
        rows = np.arange(len(store)) if rows is None else np.asarray(rows, dtype=np.int64)
        values = np.full((len(rows), len(self.target_names)), np.nan, dtype=np.float32)
        num_atoms = np.asarray(store.num_atoms)[rows]
        readable = np.flatnonzero(num_atoms)
        with progress_bar(len(rows), "molecules", progress) as bar:
            for places in _batches(num_atoms, readable):
                batch = collate(store, rows[places], atom_permutation=atom_permutation)
                output = self.model(batch.to(self.device)).prediction
                values[places] = self.targets.to_unit(output).cpu().numpy()
                bar.update(len(places))
        reasons = store.errors
        errors = [None if num_atoms[i] else reasons.get(int(row), "no atoms") for i, row in enumerate(rows)]
        return Predictions(values, errors)

    @torch.inference_mode()
    def predict_rows(
        self,
        dataset: Dataset,
        rows: np.ndarray,
        results: Callable[[Tensor, Any], Tensor],
        num_results: int,
        *,
        progress: bool = False,
    ) -> np.ndarray:
        """What `results` makes of predictions and batch, float32 [rows, num_results], in the order asked for.

        Batches are those of the model's training configuration, and so is the precision: what training has
        reported comes out again.
        """
        values = np.full((len(rows), num_results), np.nan, dtype=np.float32)
        training = self.config.training
        batches = ordered_batches(
            dataset.num_tokens[rows],
            token_budget=training.token_budget,
            batch_size=training.batch_size,
            parts=training.accumulate,
        )
        reduced = REDUCED.get(self.config.trainer.precision)
        autocast = torch.autocast(self.device.type, reduced, enabled=reduced is not None)
        with progress_bar(len(rows), dataset.noun, progress) as bar:
            for places in batches:
                batch = dataset.collate(rows[places]).to(self.device)
                with autocast:
                    prediction = self.model(batch).prediction
                values[places] = results(prediction, batch).float().cpu().numpy()
                bar.update(len(places))
        return values


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _batches(num_atoms: np.ndarray, places: np.ndarray) -> Iterator[np.ndarray]:
    """Places of similar length together, under the token budget; the same places give the same batches."""
    tokens = num_atoms[places] + 1  # the graph token
    for batch in ordered_batches(tokens, token_budget=TOKEN_BUDGET, batch_size=MAX_ROWS):
        yield places[batch]


def load_model(name_or_path: str | Path, device: torch.device | str = "cpu") -> Predictor:
    """Load a trained model.

    Args:
        name_or_path: a run folder, a checkpoint folder (`model.safetensors` and `config.yaml`), or the
            name of a model that ships with the package.
        device: where it computes, for instance `cpu` or `cuda`.

    Raises:
        MolsliceError: neither such a folder nor such a name, or files that are damaged or foreign.
    """
    path = Path(name_or_path)
    if not path.exists():
        looks_like_path = len(path.parts) != 1
        if looks_like_path or str(name_or_path) not in pretrained_names():
            shipped = ", ".join(pretrained_names()) or "(none)"
            raise MolsliceError(
                f"no model {str(name_or_path)!r}: no folder of that path, and the models that ship with "
                f"molslice are {shipped}"
            )
        path = find_pretrained(str(name_or_path))
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise MolsliceError(f"device {str(device)!r} cannot be used: {reason}") from error
    return Predictor(read_run(path), name=str(name_or_path), device=target)
