"""The predictions of a trained network."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from molslice.chem import FRAGMENTS, WILDCARDS
from molslice.config import DataConfig, config_to_yaml
from molslice.data.base import Dataset
from molslice.data.batching import ordered_batches
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.files.progress import Progress
from molslice.folders.run import LoadedRun
from molslice.inference.base import Predictor
from molslice.inference.embedding import Embedder
from molslice.inference.inputs import Molecules
from molslice.inference.options import PLAIN, PredictionOptions, add_uncertainty
from molslice.inference.precision import bounded_threads, float32_inference
from molslice.inference.predictions import NOT_FINITE, Members, Predictions
from molslice.inference.smiles_reader import CHUNK_ROWS, SmilesReader
from molslice.model.dropout import DropoutSampler
from molslice.types import MoleculeBatch, MolsliceError

# padded tokens of a batch: on a CPU it fits the cache, on a GPU it bounds memory
CPU_TOKENS, GPU_TOKENS = 2_048, 16_384
CPU_ROWS, GPU_ROWS = 256, 1_024
# batches whose results are fetched together: the host prepares the next ones while a GPU computes
CPU_QUEUE, GPU_QUEUE = 1, 8


class NetworkPredictor(Predictor):
    """A trained model that predicts in the units of its targets.

    A prediction depends on the molecule only. It does not depend on the other rows of the batch, on their
    order, on the precision of the training, or on torch's settings such as the default dtype and autocast. It
    is computed in float32 (see `molslice.inference.precision`), deterministically and without dropout.

    Args:
        run: The model and its description.
        name: The name of the model in messages.
        device: Where to compute.
        folder: The run folder, which has the held-out rows of intervals; None without one.
    """

    chunk_rows = CHUNK_ROWS

    def __init__(
        self, run: LoadedRun, name: str, device: torch.device | str = "cpu", folder: Path | None = None
    ) -> None:
        self.name, self.folder = name, folder
        self.device = torch.device(device)
        self.model = run.model.eval().to(self.device)
        self.config = run.config
        self.targets, self.data = run.targets, run.data
        self.summary, self.metadata = run.summary, run.metadata
        self.fragment = self._option_of_data("fragment", "keep", FRAGMENTS)
        self.wildcards = self._option_of_data("wildcards", "refuse", WILDCARDS)
        self._samplers: dict[int, DropoutSampler] = {}  # by number of passes

    def _option_of_data(self, option: str, default: str, choices: Sequence[str] = ()) -> str:
        stated = self.metadata.get(option)  # a prepared store has it in its header
        value = str(stated or self.config.data.options.get(option, default))
        if choices and value not in choices:
            raise MolsliceError(f"invalid {option} in {self.name}: {value!r}")
        return value

    def checksum(self) -> str:
        """Return a checksum of the weights and of the settings; see `Predictor.checksum`."""
        total = hashlib.sha256(config_to_yaml(self.config).encode())
        total.update(repr((self.targets, self.data)).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            total.update(name.encode())
            total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return total.hexdigest()

    def has_spread(self, options: PredictionOptions) -> bool:
        """Return whether predictions with intervals have a spread; see `Predictor.has_spread`."""
        return self.data.predicts_variance or options.dropout_passes > 0

    @property
    def data_config(self) -> DataConfig:
        """The data set that the model was trained on."""
        return self.config.data

    @property
    def _table_options(self) -> Mapping[str, Any]:
        return self.data_config.options

    @property
    def atom_order(self) -> str:
        """Order of the atoms in training, `canonical` or `input`."""
        return self._option_of_data("atom_order", "canonical")

    def reader(self, workers: int = 0, *, with_descriptors: bool = True) -> SmilesReader:
        """Return a reader that converts SMILES to the arrays that this model takes.

        Raises:
            MolsliceError: The model was not trained on molecules.
        """
        if "molecules" not in self.config.model.takes:
            raise MolsliceError(
                f"{self.name} does not take molecules: it was trained on data of {self.config.data.name!r}. "
                "Use molslice evaluate to measure it on data of the same kind"
            )
        from molslice.chem.smiles import HARD_MAX_ATOMS  # needs rdkit

        described = with_descriptors and self.data.num_descriptors > 0
        if described:
            from molslice.chem.descriptors import descriptor_names

            if (count := len(descriptor_names())) != self.data.num_descriptors:
                raise MolsliceError(
                    f"{self.name} takes {self.data.num_descriptors} descriptors, but this version of "
                    f"molslice and RDKit compute {count}"
                )
        return SmilesReader(HARD_MAX_ATOMS, self.atom_order, workers, with_descriptors=described)

    def predict_dataset(
        self,
        dataset: MoleculeDataset,
        rows: np.ndarray,
        options: PredictionOptions = PLAIN,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a data set; see `predict_molecules`."""
        return self.predict_molecules(
            dataset.store, options, rows, atom_permutation=atom_permutation, progress=progress
        )

    def predict_molecules(
        self,
        molecules: MoleculeStore,
        options: PredictionOptions = PLAIN,
        rows: np.ndarray | None = None,
        *,
        atom_permutation: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict rows of a store in batches of similar length.

        Args:
            molecules: The molecules.
            options: What the predictions have besides their values.
            rows: The rows to predict; by default all.
            atom_permutation: Seed of a random order of the atoms of each molecule; None keeps the order.
            progress: Whether to show a bar on standard error.

        Returns:
            The predictions in the order of `rows`.

        Raises:
            MolsliceError: The options have dropout passes and the model was trained without dropout.
        """
        rows = np.arange(len(molecules)) if rows is None else np.asarray(rows, dtype=np.int64)
        columns, needs_spread = len(self.target_names), self.needs_spread(options)
        compute = self._predict_batch
        if needs_spread:
            compute = partial(self._predict_with_spread, self._find_sampler(options.dropout_passes))
        numbers = self._compute(
            self._batches(molecules, rows, atom_permutation),
            compute,
            (len(rows), columns * (1 + needs_spread)),
            "molecules" if progress else None,
        )
        errors = _find_errors(numbers, molecules, rows)
        values, spreads = numbers[:, None, :columns], numbers[:, None, columns:]
        members = Members.of_ensemble(values, spreads if needs_spread else None)
        return add_uncertainty(Predictions(values[:, 0], errors), members, options)

    def _find_sampler(self, passes: int) -> DropoutSampler | None:
        """Return the sampler of dropout passes; None for no passes."""
        if passes and passes not in self._samplers:
            try:
                self._samplers[passes] = DropoutSampler(self.model, passes)
            except MolsliceError as error:
                raise MolsliceError(f"cannot compute dropout passes of {self.name}: {error}") from error
        return self._samplers.get(passes)

    def _predict_batch(self, batch: MoleculeBatch) -> Tensor:
        """Predict a batch in the units of the targets [B, T]."""
        return self.targets.to_unit(self.model(batch).prediction)

    def _predict_with_spread(self, sampler: DropoutSampler | None, batch: MoleculeBatch) -> Tensor:
        """Predict a batch and the standard deviation of each prediction, both in the units of the targets.

        Total variance: variance across dropout passes plus predicted variance.

        Returns:
            Predictions, then standard deviations, float32 [B, 2 T].

        Source: Kendall and Gal 2017, "What Uncertainties Do We Need in Bayesian Deep Learning for Computer
        Vision?", equation 9; here the mean and the predicted variance come from the pass without dropout.
        """
        output = self.model(batch)
        variance = torch.zeros_like(output.prediction, dtype=torch.float64)
        if output.log_variance is not None:
            variance = variance + output.log_variance.double().exp()
        if sampler is not None:
            passes = sampler.predictions(batch).double()
            if self.targets.kind == "classification":
                passes = passes.sigmoid()
            variance = variance + passes.var(0, correction=0)
        spread = variance.sqrt() * variance.new_tensor(self.targets.std)
        return torch.cat([self.targets.to_unit(output.prediction), spread.float()], 1)

    def embed(self, smiles: Molecules, *, workers: int | None = None, progress: bool = False) -> np.ndarray:
        """Compute the learned fingerprint of each SMILES.

        Args:
            smiles: The molecules, as in `predict`.
            workers: Number of worker processes, as in `predict`.
            progress: Whether to show a bar on standard error.

        Returns:
            float32 [n, 2 D]: the last state of the graph token and the mean of the last states of the atoms,
            each D wide. NaN for an unreadable molecule.

        Raises:
            MolsliceError: As in `predict`, or the model has no embedding.
        """
        return Embedder(self).predict_with_errors(smiles, workers=workers, progress=progress).values

    def embed_store(self, store: MoleculeStore) -> Predictions:
        """Compute the embeddings of all rows of a store; see `embed`."""
        model: Any = self.model
        rows = np.arange(len(store))
        values = self._compute(self._batches(store, rows), model.embed, (len(rows), model.embedding_dim))
        return Predictions(values, _find_errors(values, store, rows))

    def _batches(
        self, store: MoleculeStore, rows: np.ndarray, atom_permutation: int | None = None
    ) -> Iterator[tuple[np.ndarray, MoleculeBatch]]:
        """Yield batches of similar length within the token budget, with their places in `rows`.

        The same rows give the same batches. Rows without atoms are in no batch.
        """
        num_atoms = np.asarray(store.num_atoms)[rows]
        places = np.flatnonzero(num_atoms)
        tokens = num_atoms[places] + 1  # the graph token
        budget, most = (CPU_TOKENS, CPU_ROWS) if self.device.type == "cpu" else (GPU_TOKENS, GPU_ROWS)
        for batch in ordered_batches(tokens, token_budget=budget, batch_size=most):
            chosen = places[batch]
            yield chosen, collate(store, rows[chosen], atom_permutation=atom_permutation)

    def predict_rows(
        self,
        dataset: Dataset,
        rows: np.ndarray,
        results: Callable[[Tensor, Any], Tensor],
        num_results: int,
        *,
        progress: bool = False,
    ) -> np.ndarray:
        """Apply `results` to the predictions of each batch, with the batch sizes of the training.

        `results` converts a prediction and its batch to [B, num_results].
        """
        training = self.config.training
        batches = ordered_batches(
            dataset.num_tokens[rows],
            token_budget=training.token_budget,
            batch_size=training.batch_size,
            parts=training.accumulate,
        )
        return self._compute(
            ((places, dataset.collate(rows[places])) for places in batches),
            lambda batch: results(self.model(batch).prediction, batch),
            (len(rows), num_results),
            dataset.row_name if progress else None,
        )

    def _compute(
        self,
        batches: Iterable[tuple[np.ndarray, Any]],
        compute: Callable[[Any], Tensor],
        shape: tuple[int, int],
        row_name: str | None = None,
    ) -> np.ndarray:
        """Compute numbers for batches of rows, float32 of a shape [n, C]; NaN in rows of no batch.

        `batches` has the places of the rows in the result, and their batch. No name of a row shows no bar.
        """
        values = np.full(shape, np.nan, dtype=np.float32)
        with (
            bounded_threads(self.device),
            Progress("predict", shape[0], row_name or "", shown=row_name is not None) as bar,
        ):
            waiting: list[tuple[np.ndarray, Tensor]] = []
            most = CPU_QUEUE if self.device.type == "cpu" else GPU_QUEUE

            def fetch() -> None:
                for places, numbers in waiting:
                    values[places] = numbers.cpu().numpy()
                    bar.update(len(places))
                waiting.clear()

            for places, batch in batches:
                on_device = self._move(batch)
                with float32_inference(self.device):
                    waiting.append((places, compute(on_device).float()))
                if len(waiting) >= most:
                    fetch()
            fetch()
        return values

    def _move(self, batch: Any) -> Any:  # noqa: ANN401
        """Copy a batch to the device; from pinned memory the host need not wait for the batches before it."""
        if self.device.type != "cuda":
            return batch.to(self.device)
        return batch.pin_memory().to(self.device, non_blocking=True)


def _find_errors(values: np.ndarray, store: MoleculeStore, rows: np.ndarray) -> list[str | None]:
    """Return the reason of each row without finite numbers, whose other numbers become NaN."""
    num_atoms, reasons = np.asarray(store.num_atoms)[rows], store.errors
    errors = [
        None if count else reasons.get(int(row), "no atoms")
        for row, count in zip(rows, num_atoms, strict=True)
    ]
    for place in np.flatnonzero((num_atoms > 0) & ~np.isfinite(values).all(1)):
        values[place], errors[place] = np.nan, NOT_FINITE
    return errors
