"""Predictions of many rows by all processes together, and their exact metrics."""

from collections.abc import Callable
from typing import Any

import lightning.fabric
import numpy as np
import torch
from torch import Tensor, nn

from molslice.config import TrainingConfig
from molslice.data.base import Dataset
from molslice.data.batching import ordered_batches
from molslice.tasks.base import Task


class Evaluator:
    """Fixed rows of a data set, the same for every process; each predicts its share of each batch."""

    def __init__(
        self,
        fabric: lightning.fabric.Fabric,
        task: Task,
        dataset: Dataset,
        rows: np.ndarray,
        config: TrainingConfig,
    ) -> None:
        self.fabric, self.task, self.dataset, self.rows = fabric, task, dataset, rows
        self.truth = np.asarray(dataset.targets[rows])
        tokens = dataset.num_tokens[rows]
        self.batches = ordered_batches(  # places in `rows`
            tokens,
            token_budget=config.token_budget,
            batch_size=config.batch_size,
            parts=config.accumulate,
        )
        self.padded_tokens = np.array([int(tokens[p].max()) * len(p) for p in self.batches])

    def predict(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> np.ndarray:
        """Results [rows, R] of the task, the same on every process."""
        device = self.fabric.device
        values = torch.zeros(len(self.rows), self.task.num_results, device=device)
        for places in self.batches:
            mine = places[self.fabric.global_rank :: self.fabric.world_size]
            if len(mine):
                values[torch.from_numpy(mine).to(device)] = self.predict_batch(model, mine)
            if tick is not None:
                tick()
        if self.fabric.world_size > 1:  # every row was predicted by one process and is zero on the others
            values = self.fabric.all_reduce(values, reduce_op="sum")
            assert isinstance(values, Tensor)
        return values.cpu().numpy()

    @torch.inference_mode()
    def predict_batch(self, model: nn.Module, places: np.ndarray) -> Tensor:
        """Results [places, R]."""
        batch = self.dataset.collate(self.rows[places]).to(self.fabric.device, non_blocking=True)
        with self.fabric.autocast():
            prediction = model(batch).prediction
        return self.task.results(prediction, batch)

    def metrics(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> dict[str, float]:
        """The metric of each target by `model`, in evaluation mode meanwhile."""
        training = model.training
        model.eval()
        try:
            return self.task.metrics(self.predict(model, tick), self.truth)
        finally:
            model.train(training)
