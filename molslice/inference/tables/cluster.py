"""Predict tables on a cluster with Ray Data: chunks of rows for one output, or whole files for a folder."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from molslice.data.molecules.tables import MoleculeTable
from molslice.files.ray_data import ray_map
from molslice.files.tables import Chunk
from molslice.files.urls import File
from molslice.inference.base import Predictor
from molslice.inference.load import load_model
from molslice.inference.options import PredictionOptions
from molslice.inference.tables.chunk_log import log_folder, unfinished_error
from molslice.inference.tables.table import Computed, TableReport, predict_table


@dataclass(slots=True)
class RayEngine:
    """Predicts on a cluster. Each worker loads the model when it first needs it, and keeps it.

    Attributes:
        model: The name or the folder of the model, which every machine of the cluster has.
        device: The kind of device of a worker, such as `cpu` or `cuda`.
        workers: Number of workers; None for all cores (or GPUs) of the cluster.
        interval: Probability of the intervals; None without them. See `Predictor.find_options`.
        fragment: As in `load_model`.
        domain: Whether to compare the molecules with the training molecules.
        wildcards: As in `load_model`.
    """

    model: str
    device: str = "cpu"
    workers: int | None = None
    interval: float | None = None
    fragment: str | None = None
    domain: bool = False
    wildcards: str | None = None
    _loaded: tuple[Predictor, PredictionOptions] | None = field(default=None, init=False, repr=False)

    def predict_chunks(
        self, predictor: Predictor, table: MoleculeTable, columns: Sequence[str]
    ) -> Generator[Computed, None, None]:
        """Predict the chunks of a table; an `Engine` of `predict_table`.

        The table is split into the same chunks as in one process, so the numbers agree to the last digit.

        Args:
            predictor: The model, which is not used to predict.
            table: The table.
            columns: Names of the requested columns.

        Raises:
            MolsliceError: As in `MoleculeTable.map_on_cluster`.
        """
        work = partial(self._predict_chunk, table.smiles_column)
        yield from table.map_on_cluster(work, predictor.chunk_rows, columns, **self._workers)

    def predict_files(
        self, pairs: Sequence[tuple[File, File]], settings: Mapping[str, Any]
    ) -> Iterator[TableReport]:
        """Predict each file to its own output, and yield the reports in order.

        Args:
            pairs: Inputs and outputs.
            settings: Keyword arguments of `predict_table`.

        Raises:
            MolsliceError: As in `predict_table` and `ray_map`.
        """
        if not settings.get("resume"):
            for _, target in pairs:
                if isinstance(target, Path) and log_folder(target).exists():
                    raise unfinished_error(log_folder(target))
        # a worker continues a file where a killed one was
        work = partial(self._predict_file, {**settings, "resume": True})
        yield from ray_map(pairs, work, **self._workers)

    @property
    def _workers(self) -> dict[str, Any]:
        return {"workers": self.workers, "gpus": 0 if self.device == "cpu" else 1}

    def _load(self) -> tuple[Predictor, PredictionOptions]:
        if self._loaded is None:
            model = load_model(self.model, self.device, fragment=self.fragment, wildcards=self.wildcards)
            self._loaded = model, model.find_options(self.interval, domain=self.domain)
        return self._loaded

    def _predict_chunk(self, column: str, item: tuple[Chunk, int]) -> Computed:
        (chunk, position), (predictor, options) = item, self._load()
        given = predictor.rows_of(chunk, column)
        rows = predictor.predict_with_errors(given, options=options).table_rows()
        return chunk, rows, position

    def _predict_file(self, settings: Mapping[str, Any], pair: tuple[File, File]) -> TableReport:
        predictor, options = self._load()
        return predict_table(predictor, *pair, options, progress=False, **settings)
