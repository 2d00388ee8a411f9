"""Predictions and metrics of many rows, computed by all processes together."""

import lightning.fabric
import numpy as np
import torch
from torch import Tensor, nn

from molslice.config import TrainingConfig
from molslice.data.base import Dataset
from molslice.data.batching import ordered_batches
from molslice.inference.precision import float32_inference
from molslice.tasks.base import Task
from molslice.training.fabric import reshard, sharded_inference


class Evaluator:
    """Predicts fixed rows of a data set, the same on every process, each its share of each batch."""

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
        limits = {"token_budget": config.token_budget, "batch_size": config.batch_size}
        self.batches = ordered_batches(tokens, **limits, parts=config.accumulate)  # indices into `rows`
        self.padded_tokens = np.array([int(tokens[p].max()) * len(p) for p in self.batches])

    def metrics(self, model: nn.Module) -> dict[str, float]:
        """Predict all rows and compute the metric of each target, by its name."""
        device, training = self.fabric.device, model.training
        values = torch.zeros(len(self.rows), self.task.num_results, device=device)
        model.eval()
        try:
            for places in self.batches:
                share = places[self.fabric.global_rank :: self.fabric.world_size]
                if len(share):
                    values[torch.from_numpy(share).to(device)] = self.predict_batch(model, share)
                else:  # under FSDP every process must run the same number of forward passes
                    self.predict_batch(model, places[:1])
            reshard(model)
            if self.fabric.world_size > 1:  # each row is zero except on the process that predicted it
                values = self.fabric.all_reduce(values, reduce_op="sum")
                assert isinstance(values, Tensor)
            return self.task.metrics(values.cpu().numpy(), self.truth)
        finally:
            model.train(training)

    def predict_batch(self, model: nn.Module, places: np.ndarray) -> Tensor:
        """Predict the task's results [B, R] in float32, as `molslice evaluate` and `molslice predict` do.

        The model is in evaluation mode. `places` are indices [B] into the rows of the evaluator.
        """
        batch = self.dataset.collate(self.rows[places]).to(self.fabric.device, non_blocking=True)
        with float32_inference(self.fabric.device), sharded_inference(model):
            return self.task.evaluate_batch(model, batch)
