"""The interface of everything that predicts from SMILES."""

import contextlib
import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from molslice.data.molecules.fragments import choose_fragments
from molslice.files.processes import WorkerPool, worker_state
from molslice.files.progress import Progress
from molslice.inference.columns import ERROR, SMILES, prediction_columns
from molslice.inference.domain import DOMAIN, TrainingDomain
from molslice.inference.inputs import Molecules, molecule_rows
from molslice.inference.intervals import with_intervals
from molslice.inference.predictions import Members, Predictions, uncertainty_columns
from molslice.inference.reading import default_workers
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import CALIBRATION, Calibration

__all__ = ["ChunkReader", "SmilesPredictor"]


class ChunkReader(Protocol):
    """Converts chunks of SMILES to what a predictor takes."""

    def read(self, chunks: Iterable[list[str]]) -> Iterator[Any]:
        """Yield one part for each chunk, in order."""
        ...


class SmilesPredictor(ABC):
    """A trained model that predicts from SMILES in the units of its targets.

    A subclass converts chunks of SMILES in `reader` and predicts them in `predict_part`.

    Attributes:
        name: The name of the model in messages.
        targets: The description of the targets.
        device: Where the model computes.
        chunk_rows: Number of rows of a chunk, for batches of similar length in bounded memory.
        num_members: Number of members of an ensemble; 1 for a single model.
        dropout_passes: Number of passes with dropout over which the spread is computed; 0 without. See
            `with_dropout`.
        level: Probability of the intervals or sets that predictions have; None without them. See
            `with_uncertainty`.
        calibration: The held-out rows of these intervals; None without them.
        domain: The training molecules with which molecules are compared; None without a comparison.
        fragment: What happens to a mixture: `keep` it, predict its `largest` molecule, or `refuse` it. See
            `molslice.chem.fragments.choose_fragment`.
        wildcards: What happens to a row with a wildcard: `refuse` it, or `keep` it as a graph. See
            `molslice.chem.fragments`.
        label: Name of a prediction in reports of progress.
        keeps_members: Whether predictions have `members` without intervals too; see `with_members`.
    """

    name: str
    targets: TargetInfo
    device: torch.device
    chunk_rows: int
    num_members: int = 1
    dropout_passes: int = 0
    level: float | None = None
    calibration: Calibration | None = None
    fragment: str = "keep"
    wildcards: str = "refuse"
    keeps_members: bool = False
    domain: TrainingDomain | None = None
    label: str = "predict"
    _known_domain: TrainingDomain | None = None

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the T targets."""
        return tuple(self.targets.names)

    @property
    def target_units(self) -> tuple[str, ...]:
        """Unit of each target; empty for a target without a unit."""
        return tuple(self.targets.units)

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of a prediction, `<target>_<unit>` and unique; see `prediction_columns`."""
        return prediction_columns(self.target_names, self.target_units)

    def table_columns(self, taken: Iterable[str] = (SMILES, ERROR)) -> tuple[list[str], list[str]]:
        """Name the columns of the numbers and of the texts of `Predictions.table_rows`.

        Args:
            taken: Names that are used.
        """
        return uncertainty_columns(
            self.columns,
            kind=None if self.level is None else self.targets.kind,
            spread=self.level is not None and self.has_spread,
            domain=self.domain is not None,
            taken=list(taken),
        )

    @property
    def has_spread(self) -> bool:
        """Whether predictions with intervals have a spread."""
        return self.num_members > 1

    @property
    def needs_spread(self) -> bool:
        """Whether the spread has to be computed, which takes longer with dropout passes."""
        return self.has_spread and (self.keeps_members or self.level is not None)

    def with_dropout(self, passes: int) -> Self:
        """Return this model with a spread over passes with dropout; its predictions do not change.

        Args:
            passes: Number of passes, at least 2; 0 for no dropout.

        Raises:
            MolsliceError: The model was trained without dropout, or is not a network.
        """
        if not passes:
            return self
        raise MolsliceError(f"{self.name} is not a network of molslice train, so it has no dropout")

    def with_members(self) -> Self:
        """Return this model with the predictions of its members, from which any interval can be computed."""
        found = copy.copy(self)
        found.keeps_members = True
        return found

    def find_calibration(self) -> Calibration:
        """Return the held-out rows of the model.

        Raises:
            MolsliceError: The model has none.
        """
        raise MolsliceError(f"{self.name} has no intervals: it does not predict measured values")

    def read_calibration(self, folder: Path | None) -> Calibration:
        """Read the held-out rows from a model folder.

        Args:
            folder: The folder; None for a model without one.

        Raises:
            MolsliceError: They are missing or damaged.
        """
        found = None if folder is None else Calibration.read(folder, self.targets.kind, self.target_names)
        if found is None:
            raise MolsliceError(
                f"{self.name} has no {CALIBRATION}, from which intervals are computed; molslice evaluate "
                f"{self.name} --split valid --calibrate writes it from the validation rows"
            )
        return found

    def find_domain(self) -> TrainingDomain:
        """Return the training molecules of the model.

        Raises:
            MolsliceError: The model has none.
        """
        raise MolsliceError(f"{self.name} has no training molecules to compare with")

    def known_domain(self) -> TrainingDomain | None:
        """Return the training molecules; None if the model has none, or they cannot be read."""
        if self.domain is not None:
            return self.domain
        if self._known_domain is None:  # reading many molecules takes seconds
            with contextlib.suppress(MolsliceError):
                self._known_domain = self.find_domain()
        return self._known_domain

    def read_domain(self, folder: Path | None) -> TrainingDomain:
        """Read the training molecules from a model folder.

        Args:
            folder: The folder; None for a model without one.

        Raises:
            MolsliceError: They are missing or damaged.
        """
        found = None if folder is None else TrainingDomain.read(folder)
        if found is not None and found.values is not None and found.values.shape[1] != len(self.target_names):
            raise MolsliceError(
                f"{folder}/{DOMAIN} is damaged: values of {found.values.shape[1]} targets; the model has "
                f"{len(self.target_names)}"
            )
        if found is None:
            raise MolsliceError(
                f"{self.name} has no {DOMAIN}, the training molecules to compare with; molslice evaluate "
                f"{self.name} --split valid --calibrate writes it if its data have SMILES"
            )
        return found

    def with_uncertainty(self, interval: float | None = None, *, domain: bool = False) -> Self:
        """Return this model with intervals or domain: its predictions have further fields, see `Predictions`.

        Args:
            interval: Probability that an interval, or the set of a class, holds the truth.
            domain: Whether to compare the molecules with the training molecules.

        Raises:
            MolsliceError: The model has no held-out rows, or too few for this probability, or no training
                molecules.
        """
        found = copy.copy(self)
        if interval is not None:
            calibration = self.find_calibration()
            calibration.check(interval)
            found = copy.copy(self.with_dropout(calibration.dropout_passes))
            found.calibration, found.level = calibration, interval
        if domain:
            found.domain = self.find_domain()
        return found

    def _predict_texts(self, smiles: list[str], part: Any) -> Predictions:  # noqa: ANN401
        """Predict one chunk from `reader`, and compare its SMILES with the training molecules."""
        found = self.predict_part(part)
        return (
            found if self.domain is None else replace(found, domain=self.domain.compare(smiles, found.errors))
        )

    def with_intervals(self, predictions: Predictions, members: Members) -> Predictions:
        """Add the uncertainty that `with_uncertainty` has asked for to predictions.

        Args:
            predictions: The predictions.
            members: What the intervals are computed from.
        """
        if self.keeps_members or self.level is not None:
            predictions = replace(predictions, members=members)
        if self.level is None or self.calibration is None:
            return predictions
        return with_intervals(predictions, self.calibration, self.level)

    @abstractmethod
    def reader(self, workers: int = 0) -> AbstractContextManager[ChunkReader]:
        """Return a reader that converts SMILES to what `predict_part` takes.

        Args:
            workers: Number of worker processes; 0 reads in this process.

        Raises:
            MolsliceError: The model was not trained on molecules.
        """

    @abstractmethod
    def predict_part(self, part: Any) -> Predictions:  # noqa: ANN401
        """Predict one chunk from `reader`; rows out equal rows in."""

    @abstractmethod
    def checksum(self) -> str:
        """Return a checksum of everything that a prediction depends on."""

    def predict_chunks(self, chunks: Iterable[list[str]], workers: int = 0) -> Generator[Predictions]:
        """Predict chunks of SMILES in order, with few chunks in memory.

        On a CPU each worker process reads and predicts whole chunks with one thread. On a GPU the workers
        read SMILES, and the model computes in this process at the same time.

        Args:
            chunks: The chunks. It is read only as far as needed.
            workers: Number of worker processes; 0 computes in this process.

        Raises:
            MolsliceError: The model was not trained on molecules, or a worker process was killed.
        """
        if workers and self.device.type == "cpu":
            with WorkerPool(workers, "predicts molecules", self) as pool:
                yield from pool.map(_predict_chunk, ((chunk,) for chunk in chunks))
            return
        read: deque[tuple[list[str], int]] = deque()  # in the chunks that are read but not yet predicted

        def chosen() -> Iterator[list[str]]:
            for chunk in chunks:
                read.append(choose_fragments(chunk, self.fragment, self.wildcards))
                yield read[-1][0]

        with self.reader(workers) as reader:
            for part in reader.read(chosen()):
                rows, count = read.popleft()
                yield replace(self._predict_texts(rows, part), replaced=count)

    def predict(self, smiles: Molecules, *, workers: int | None = None, progress: bool = False) -> np.ndarray:
        """Predict each SMILES in the unit of the target.

        Args:
            smiles: A SMILES or an RDKit molecule, which is one row, or a list, array, pandas or polars Series
                or DataFrame of them. See `molslice.inference.inputs.molecule_rows`.
            workers: Number of worker processes; 0 computes in this process. See `predict_chunks`. None is 0
                on a CPU, and `default_workers` on a device.
            progress: Whether to show a bar on standard error.

        Returns:
            float32 `[n]` for a model with one target, else `[n, T]`, in the order of `smiles`; n is 1 for one
            molecule. NaN for an unreadable or missing molecule. For a classification, probabilities.

        Raises:
            MolsliceError: `smiles` is something else, the model was not trained on molecules, or a worker
                process was killed.
        """
        values = self.predict_with_errors(smiles, workers=workers, progress=progress).values
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_with_errors(
        self,
        smiles: Molecules,
        *,
        interval: float | None = None,
        domain: bool = False,
        workers: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict each SMILES, and return the reasons of failed rows and the uncertainty too.

        Args:
            smiles: The molecules, as in `predict`.
            interval: Probability that an interval, or the set of a class, holds the truth, such as 0.9; None
                for no intervals. It holds for molecules like the held-out rows of the model.
            domain: Whether to compare the molecules with the training molecules.
            workers: Number of worker processes, as in `predict`.
            progress: Whether to show a bar on standard error.

        Raises:
            MolsliceError: As in `predict` and `with_uncertainty`.
        """
        if interval is not None or domain:
            model = self.with_uncertainty(interval, domain=domain)
            return model.predict_with_errors(smiles, workers=workers, progress=progress)
        rows = molecule_rows(smiles)
        if not rows:
            return self._no_rows()
        if workers is None:
            workers = 0 if self.device.type == "cpu" else default_workers(self.device, len(rows))
        found = []
        parts = self.predict_chunks(_chunks(rows, self.chunk_rows), workers)
        with closing(parts), Progress(self.label, len(rows), "molecules", shown=progress) as bar:
            for part in parts:
                found.append(part)
                bar.update(len(part.errors))
        return Predictions.concatenate(found)

    def _no_rows(self) -> Predictions:
        """Return the predictions of no molecules."""
        empty = np.empty((0, len(self.target_names)), np.float32)
        domain = None if self.domain is None else []
        if self.level is None:
            return Predictions(empty, [], domain=domain)
        spread = empty if self.has_spread else None
        if self.targets.kind == "classification":
            sets = np.empty((*empty.shape, 2), bool)
            return Predictions(empty, [], spread, sets=sets, calibrated=empty, domain=domain)
        return Predictions(empty, [], spread, lower=empty, upper=empty, domain=domain)


def _predict_chunk(smiles: list[str]) -> Predictions:
    """Predict a chunk in a worker process."""
    torch.set_num_threads(1)
    predictor: SmilesPredictor = worker_state()
    with threadpool_limits(1), predictor.reader() as reader:
        rows, replaced = choose_fragments(smiles, predictor.fragment, predictor.wildcards)
        (part,) = reader.read([rows])
        return replace(predictor._predict_texts(rows, part), replaced=replaced)  # noqa: SLF001


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
