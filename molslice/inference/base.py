"""The interface of everything that predicts from SMILES."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from itertools import tee
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from molslice.data.molecules.conditions import Condition, Conditioned, conditioned_rows
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.target_values import listed_values
from molslice.files.processes import WorkerPool, worker_state
from molslice.files.progress import Progress
from molslice.files.tables import Chunk, NumberFormat, Unreadable
from molslice.inference.columns import ERROR, SMILES, distinct_columns, prediction_columns
from molslice.inference.domain import DOMAIN, TrainingDomain, canonical_smiles
from molslice.inference.inputs import Conditions, Molecules, check_conditions, given_rows
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.predictions import NEAREST, PLACE, REASON, SIMILARITY, Domain, Predictions
from molslice.inference.smiles_reader import default_workers
from molslice.tasks.target_types import TargetType, column_slices, columns_of_kind, common_kind, types_of
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import CALIBRATION, Calibration
from molslice.uncertainty.similarity_rule import OUTSIDE

SHOWN_TARGETS = 3  # in the `repr` of a model


class ChunkReader(Protocol):
    """Converts chunks of SMILES to molecules in the form that a predictor takes."""

    def read(self, chunks: Iterable[list[str]]) -> Iterator[Any]:
        """Yield the molecules of each chunk, in order."""
        ...


class Predictor(ABC):
    """A trained model that predicts from SMILES in the units of its targets.

    A subclass converts chunks of SMILES in `reader` and predicts them in `predict_molecules`.

    Attributes:
        name: The name of the model in messages.
        targets: The description of the targets.
        device: Where the model computes.
        chunk_rows: Number of rows of a chunk, for batches of similar length in bounded memory.
        folder: The folder of the model, with its held-out rows and training molecules; None without one.
        num_members: Number of members of an ensemble; 1 for a single model.
        fragment: What happens to a mixture: `keep` it, predict its `largest` molecule, or `refuse` it. See
            `molslice.chem.fragments.choose_fragment`.
        wildcards: What happens to a row with a wildcard: `refuse` it, or `keep` it as a graph. See
            `molslice.chem.fragments`.
        standardize: What standard form molecules get; see `molslice.chem.standardize`.
        conditions: The numbers and categories that the model takes beside a molecule.
        partner: The name of the second molecule of each row, given as a condition; None for single molecules.
        symmetric: Whether swapping the molecules of a pair changes nothing; False for single molecules.
        smiles_column: The column of SMILES in tables; None finds it.
        fit_options: The options of `molslice fit`; empty for other models.
        label: Name of a prediction in reports of progress.
    """

    name: str
    targets: TargetInfo
    device: torch.device
    chunk_rows: int
    folder: Path | None = None
    num_members: int = 1
    fragment: str = "keep"
    wildcards: str = "refuse"
    standardize: str = "no"
    conditions: tuple[Condition, ...] = ()
    partner: str | None = None
    symmetric: bool = False
    smiles_column: str | None = None
    fit_options: Mapping[str, Any] = MappingProxyType({})
    label: str = "predict"
    _domain: TrainingDomain | None = None

    def __repr__(self) -> str:
        """Return the name of the model, what it predicts, and what it takes beside a molecule."""
        types = zip(self.target_names, self.target_units, self.types, strict=True)
        targets = [f"{name} [{unit}]" if unit else name for name, unit, _ in types]
        shown = ", ".join(targets[:SHOWN_TARGETS])
        if len(targets) > SHOWN_TARGETS:
            shown += f" and {len(targets) - SHOWN_TARGETS} other targets"
        takes = f" with {', '.join(self.condition_names)}" if self.condition_names else ""
        text = (
            f"{self.name}: {common_kind(self.types)} of {shown}{takes}"
            if targets
            else f"{self.name}: no targets"
        )
        return f"<{type(self).__name__} {'; '.join([text, *self._details()])}>"

    def _details(self) -> list[str]:
        """Return what else tells models apart, for `repr`."""
        return [f"{self.num_members} members"] if self.num_members > 1 else []

    @property
    def number_format(self) -> NumberFormat:
        """How numbers and missing values were written in the table of the training."""
        options = self._table_options
        return NumberFormat(options.get("decimal"), listed_values(options.get("missing_values", ())))

    @property
    def _table_options(self) -> Mapping[str, Any]:
        """The options with which the table of the training was read."""
        return self.fit_options

    @property
    def treatment(self) -> tuple[str, str, str]:
        """What happens to molecules before they are read: arguments of `choose_fragments`."""
        return self.fragment, self.wildcards, self.standardize

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the T targets."""
        return tuple(self.targets.names)

    @property
    def labeled_targets(self) -> tuple[str, ...]:
        """Names of the targets of several classes, which `Predictions.labels` has."""
        named = zip(self.target_names, self.types, strict=True)
        return tuple(name for name, target_type in named if target_type.several is not None)

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """The column of each target in the table that was learned."""
        return self.target_names

    @property
    def target_units(self) -> tuple[str, ...]:
        """Unit of each target; empty for a target without a unit."""
        return tuple(self.targets.units)

    @property
    def types(self) -> tuple[TargetType, ...]:
        """The type of each target: a number, two classes or several classes."""
        return types_of(self.targets)

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of a prediction, `<target>_<unit>` and unique; see `prediction_columns`.

        The probability of a class that has a name is in `<target>_<class>`.
        """
        suffixes = [item["unit"] or item.get("class", "") for item in self._numbers()]
        return prediction_columns([item["name"] for item in self._numbers()], suffixes)

    @property
    def described_columns(self) -> list[dict[str, str]]:
        """Describe each number of a prediction: `name` of the target, `unit`, `class` if named, `column`."""
        return [
            {**item, "column": column} for item, column in zip(self._numbers(), self.columns, strict=True)
        ]

    def _numbers(self) -> list[dict[str, str]]:
        """Return `name`, `unit` and, of the probability of a class that has a name, `class`."""
        targets = zip(self.target_names, self.target_units, strict=True)
        return [{"name": name, "unit": unit} for name, unit in targets]

    def table_columns(
        self, options: PredictionOptions = PLAIN, taken: Iterable[str] = (SMILES, ERROR)
    ) -> tuple[list[str], list[str]]:
        """Name the columns of the numbers and of the texts of `Predictions.table_rows`.

        Args:
            options: What the predictions have besides their values.
            taken: Names that are used.

        Returns:
            The names of the numbers, of which the first are `columns` unless they are taken, and of the
            texts. Intervals and spread begin with the column of the prediction, or with the name of the
            target alone if that column ends with a unit.
        """
        taken, types = list(taken), self.types
        columns = distinct_columns(self.columns, taken=taken)
        labels = iter(distinct_columns(self.labeled_targets, taken=[*taken, *columns]))
        # the column of a target of one column, or of the chosen class
        names = [
            columns[of_target.start] if target_type.several is None else next(labels)
            for target_type, of_target in zip(types, column_slices(types), strict=True)
        ]
        numbers = []
        texts = [
            name for name, target_type in zip(names, types, strict=True) if target_type.several is not None
        ]
        if options.level is not None:
            described = zip(self.described_columns, columns, strict=True)
            starts = [item["name"] if item["unit"] else column for item, column in described]
            for end, kind in (
                ("lower", "regression"),
                ("upper", "regression"),
                ("calibrated", "classification"),
            ):
                numbers += [f"{starts[column]}_{end}" for column in columns_of_kind(types, kind)]
            numbers += [f"{start}_spread" for start in starts if self.has_spread(options)]
            texts += [
                f"{name}_set"
                for name, target_type in zip(names, types, strict=True)
                if target_type.has_classes
            ]
        if options.domain is not None:
            numbers.append(SIMILARITY)
            texts += [PLACE, REASON, NEAREST]
        names = distinct_columns([*numbers, *texts], taken=[*taken, *columns])
        return [*columns, *names[: len(numbers)]], names[len(numbers) :]

    def has_spread(self, options: PredictionOptions) -> bool:  # noqa: ARG002
        """Return whether predictions with intervals have a spread."""
        return self.num_members > 1

    def needs_spread(self, options: PredictionOptions) -> bool:
        """Return whether the spread has to be computed, which takes longer with dropout passes."""
        return options.needs_members and self.has_spread(options)

    def find_options(self, interval: float | None = None, *, domain: bool = False) -> PredictionOptions:
        """Read what predictions with intervals or domain need; see `PredictionOptions`.

        Args:
            interval: Probability that an interval, or the set of a class, holds the truth.
            domain: Whether to compare the molecules with the training molecules.

        Raises:
            MolsliceError: The model has no held-out rows, or too few for this probability, or no training
                molecules.
        """
        if interval is None:
            return PredictionOptions(domain=self.find_domain() if domain else None)
        calibration = self.find_calibration()
        calibration.check(interval)
        known = self.find_domain() if domain else None
        return PredictionOptions(interval, calibration, known, calibration.dropout_passes)

    def find_calibration(self) -> Calibration:
        """Read the held-out rows of the model; missing or damaged ones are an error."""
        calibration = None
        if self.folder is not None:
            calibration = Calibration.read(self.folder, self.targets.kind, self.target_names)
        if calibration is None:
            raise MolsliceError(
                f"{self.name} has no {CALIBRATION}, from which intervals are computed; molslice evaluate "
                f"{self.name} --split valid --calibrate writes it from the validation rows"
            )
        return calibration

    def find_domain(self) -> TrainingDomain:
        """Return the training molecules of the model; missing or damaged ones are an error."""
        if self._domain is None:  # reading many molecules takes seconds
            self._domain = self._read_domain()
        return self._domain

    def known_domain(self) -> TrainingDomain | None:
        """Return the training molecules; None if the model has none, or they cannot be read."""
        with contextlib.suppress(MolsliceError):
            return self.find_domain()
        return None

    def name_molecules(self, smiles: Sequence[str]) -> list[str]:
        """Return the canonical SMILES of each treated molecule; one that cannot be read keeps its text."""
        canonical = canonical_smiles(smiles, self.fragment, self.standardize)
        return [text if name is None else name for name, text in zip(canonical, smiles, strict=True)]

    def count_trained(self, names: Sequence[str], partners: Sequence[str] = ()) -> int:
        """Count the rows whose molecules are known training molecules; 0 if the model does not know them.

        Args:
            names: The molecules, as `name_molecules` returns them.
            partners: The second molecules for a model of pairs.
        """
        domain = self.known_domain()
        return 0 if domain is None else int(domain.knows(names).sum())

    def is_logarithmic(self, target: int) -> bool:
        """Return whether the logarithm of a target is learned."""
        return False

    def _read_domain(self) -> TrainingDomain:
        domain = None if self.folder is None else TrainingDomain.read(self.folder)
        if domain is None:
            raise MolsliceError(
                f"{self.name} has no {DOMAIN}, the training molecules to compare with; molslice evaluate "
                f"{self.name} --split valid --calibrate writes it if its data have SMILES"
            )
        if domain.values is not None and domain.values.shape[1] != len(self.target_names):
            raise MolsliceError(
                f"{self.folder}/{DOMAIN} is damaged: values of {domain.values.shape[1]} targets; the model "
                f"has {len(self.target_names)}"
            )
        return domain

    @property
    def condition_names(self) -> list[str]:
        """Names of the conditions and of the second molecule, which a table of molecules has as columns."""
        second = [] if self.partner is None else [self.partner]
        return [*(condition.name for condition in self.conditions), *second]

    def rows_of(self, chunk: Chunk, smiles_column: str) -> list[str]:
        """Return the rows of a chunk of a table, with their conditions if the model takes some."""
        return self.conditioned(chunk[smiles_column], lambda names: {name: chunk[name] for name in names})

    def conditioned(
        self, smiles: list[str], find: Callable[[list[str]], Mapping[str, Sequence[object]]]
    ) -> list[str]:
        """Return rows with conditions and second molecules; `find` returns the cells of columns by name."""
        if not self.condition_names:
            return smiles
        return conditioned_rows(smiles, find(self.condition_names), self.conditions, self.partner)

    def given_rows(self, smiles: Molecules, conditions: Conditions | None = None) -> list[str]:
        """Return rows with their conditions, given as in `predict`.

        Raises:
            MolsliceError: As in `predict`.
        """
        names = {"partner": self.partner, "smiles_column": self.smiles_column}
        return self._checked_rows(given_rows(smiles, conditions, self.conditions, self.name, **names))

    def _checked_rows(self, rows: list[str]) -> list[str]:
        """Return rows, which are refused if the model takes conditions and a row has none."""
        width, paired = len(self.conditions), self.partner is not None
        for row in rows if width or paired else ():
            if isinstance(row, Conditioned):
                has_all = len(row.values) == width and (row.partner is not None) == paired
            else:
                has_all = isinstance(row, Unreadable)
            if not has_all:
                check_conditions((), self.condition_names, self.name)
        return rows

    def _compare(
        self, domain: TrainingDomain, smiles: list[str], errors: list[str | None]
    ) -> list[Domain | None]:
        """Compare rows with the training rows: the molecules, then the conditions unless they are outside."""
        compared = domain.compare(smiles, errors)
        for place, (row, molecule) in enumerate(zip(smiles, compared, strict=True)):
            if isinstance(row, Conditioned) and molecule is not None and molecule.place != OUTSIDE:
                pairs = zip(self.conditions, row.values, strict=True)
                if reason := next(filter(None, (condition.outside(value) for condition, value in pairs)), ""):
                    compared[place] = replace(molecule, place=OUTSIDE, reason=reason)
        return compared

    @abstractmethod
    def reader(self, workers: int = 0) -> AbstractContextManager[ChunkReader]:
        """Return a reader that converts SMILES to what `predict_molecules` takes.

        Args:
            workers: Number of worker processes; 0 reads in this process.

        Raises:
            MolsliceError: The model was not trained on molecules.
        """

    @abstractmethod
    def predict_molecules(self, molecules: Any, options: PredictionOptions = PLAIN) -> Predictions:  # noqa: ANN401
        """Predict the molecules of one chunk from `reader`; rows out equal rows in.

        The domain is added by `predict_chunks`.
        """

    @abstractmethod
    def checksum(self) -> str:
        """Return a checksum of everything that a prediction depends on."""

    def predict_chunks(
        self, chunks: Iterable[list[str]], options: PredictionOptions = PLAIN, workers: int = 0
    ) -> Generator[Predictions]:
        """Predict chunks of SMILES in order, with few chunks in memory.

        On a CPU each worker process reads and predicts whole chunks with one thread. On a GPU the workers
        read SMILES, and the model computes in this process at the same time.

        Args:
            chunks: The chunks, with conditions (`Conditioned`) if the model takes some. It is read only as
                far as needed.
            options: What the predictions have besides their values.
            workers: Number of worker processes; 0 computes in this process.

        Raises:
            MolsliceError: The model was not trained on molecules, a row has no conditions although the model
                takes some, or a worker process was killed.
        """
        chunks = map(self._checked_rows, chunks)
        if workers and self.device.type == "cpu":
            with WorkerPool(workers, "predicts molecules", (self, options)) as pool:
                yield from pool.map(_predict_chunk, ((chunk,) for chunk in chunks))
            return
        treated = (choose_fragments(chunk, *self.treatment) for chunk in chunks)
        chosen, to_read = tee(treated)
        with self.reader(workers) as reader:
            read = reader.read(rows.smiles for rows in to_read)
            for molecules, rows in zip(read, chosen, strict=True):
                predictions = self.predict_molecules(molecules, options)
                if options.domain is not None:
                    domain = self._compare(options.domain, rows.smiles, predictions.errors)
                    predictions = replace(predictions, domain=domain)
                yield replace(predictions, replaced=rows.replaced)

    def predict(
        self,
        smiles: Molecules,
        *,
        conditions: Conditions | None = None,
        workers: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """Predict each SMILES in the unit of the target.

        Args:
            smiles: A SMILES or an RDKit molecule, which is one row, or a list, array, pandas or polars Series
                or DataFrame of them. See `molslice.inference.inputs.molecule_rows`.
            conditions: The conditions, if the model takes some: for each name one value for all molecules, or
                a value for each. None takes them from the columns of a DataFrame.
            workers: Number of worker processes; 0 computes in this process. See `predict_chunks`. None is 0
                on a CPU, and `default_workers` on a device.
            progress: Whether to show a bar on standard error.

        Returns:
            float32 `[n]` for a model with one target, else `[n, T]`, in the order of `smiles`; n is 1 for one
            molecule. NaN for an unreadable or missing molecule. For a classification, probabilities of class
            1; for more than two classes, the probability of each, `[n, C]`.

        Raises:
            MolsliceError: `smiles` is something else, a condition is missing or unknown, the model was not
                trained on molecules, or a worker process was killed.
        """
        predictions = self.predict_with_errors(
            smiles, conditions=conditions, workers=workers, progress=progress
        )
        values = predictions.values
        return values[:, 0] if values.shape[1] == 1 else values

    def predict_with_errors(
        self,
        smiles: Molecules,
        *,
        conditions: Conditions | None = None,
        interval: float | None = None,
        domain: bool = False,
        options: PredictionOptions | None = None,
        workers: int | None = None,
        progress: bool = False,
    ) -> Predictions:
        """Predict each SMILES, and return the reasons of failed rows and the uncertainty too.

        Args:
            smiles: The molecules, as in `predict`.
            conditions: The conditions, as in `predict`.
            interval: Probability that an interval, or the set of a class, holds the truth, such as 0.9; None
                for no intervals. It holds for molecules like the held-out rows of the model.
            domain: Whether to compare the molecules with the training molecules.
            options: The result of `find_options`, in place of `interval` and `domain`.
            workers: Number of worker processes, as in `predict`.
            progress: Whether to show a bar on standard error.

        Raises:
            MolsliceError: As in `predict` and `find_options`.
        """
        rows = self.given_rows(smiles, conditions)
        if options is None:
            options = self.find_options(interval, domain=domain)
        if workers is None:
            workers = 0 if self.device.type == "cpu" else default_workers(self.device, len(rows))
        index = smiles.index if hasattr(smiles, "iloc") else None  # of pandas
        done: list[Predictions] = []
        starts = range(0, max(len(rows), 1), self.chunk_rows)  # no rows are one chunk too
        chunks = (rows[start : start + self.chunk_rows] for start in starts)
        predicted = self.predict_chunks(chunks, options, workers)
        with closing(predicted), Progress(self.label, len(rows), "molecules", shown=progress) as bar:
            for predictions in predicted:
                done.append(predictions)
                bar.update(len(predictions.errors))
        names = tuple(map(tuple, self.table_columns(options)))
        texts = [row.written if isinstance(row, Unreadable) else str(row) for row in rows]
        return replace(Predictions.concatenate(done), smiles=texts, names=names, index=index)


def _predict_chunk(smiles: list[str]) -> Predictions:
    """Predict a chunk in a worker process."""
    torch.set_num_threads(1)
    predictor, options = worker_state()
    with threadpool_limits(1):
        (predictions,) = predictor.predict_chunks([smiles], options)
    return predictions
