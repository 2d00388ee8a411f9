"""Predictions and metrics of many rows, computed by all processes together."""

from collections.abc import Callable
from typing import Any

import lightning.fabric
import numpy as np
import torch
from torch import Tensor, nn

from molslice.config import TrainingConfig
from molslice.data.base import Dataset
from molslice.data.batching import ordered_batches
from molslice.inference.forward import float32_inference
from molslice.tasks.base import Task
from molslice.training.sharding import reshard, sharded_inference


class Evaluator:
    """Predicts fixed rows of a data set. Each process predicts its share of each batch.

    Args:
        fabric: The device and the processes.
        task: The task that defines results and metrics.
        dataset: The data.
        rows: The rows, the same on every process.
        config: The batch sizes.
    """

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
        self.batches = ordered_batches(  # indices into `rows`
            tokens,
            token_budget=config.token_budget,
            batch_size=config.batch_size,
            parts=config.accumulate,
        )
        self.padded_tokens = np.array([int(tokens[p].max()) * len(p) for p in self.batches])

    def predict(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> np.ndarray:
        """Predict all rows.

        Args:
            model: The model, in evaluation mode.
            tick: Called after each batch.

        Returns:
            The task's results, float32 [rows, R], the same on every process.
        """
        device = self.fabric.device
        values = torch.zeros(len(self.rows), self.task.num_results, device=device)
        for places in self.batches:
            mine = places[self.fabric.global_rank :: self.fabric.world_size]
            if len(mine):
                values[torch.from_numpy(mine).to(device)] = self.predict_batch(model, mine)
            else:  # processes with a part of the model each compute it equally often
                self.predict_batch(model, places[:1])
            if tick is not None:
                tick()
        reshard(model)
        if self.fabric.world_size > 1:  # each row is zero except on the process that predicted it
            values = self.fabric.all_reduce(values, reduce_op="sum")
            assert isinstance(values, Tensor)
        return values.cpu().numpy()

    def predict_batch(self, model: nn.Module, places: np.ndarray) -> Tensor:
        """Predict some rows in float32, as `molslice evaluate` and `molslice predict` do.

        Args:
            model: The model, in evaluation mode.
            places: Indices [B] into the rows of the evaluator.

        Returns:
            The task's results [B, R].
        """
        batch = self.dataset.collate(self.rows[places]).to(self.fabric.device, non_blocking=True)
        with float32_inference(self.fabric.device), sharded_inference(model):
            return self.task.evaluate_batch(model, batch)

    def metrics(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> dict[str, float]:
        """Compute the metric of each target.

        Args:
            model: The model; its training mode is restored.
            tick: Called after each batch.

        Returns:
            The metrics by target name.
        """
        training = model.training
        model.eval()
        try:
            return self.task.metrics(self.predict(model, tick), self.truth)
        finally:
            model.train(training)
