"""Predictions of many rows by all processes together, and their exact metrics."""

from collections.abc import Callable
from typing import Any

import lightning.fabric
import numpy as np
import torch
from torch import Tensor, nn

from molslice.config import TrainingConfig
from molslice.data.batching import TokenBudgetBatches, collate
from molslice.data.store import MoleculeStore
from molslice.tasks.base import Task


class Evaluator:
    """Fixed rows of a store; the same for every process, each of which predicts its share of each batch."""

    def __init__(
        self,
        fabric: lightning.fabric.Fabric,
        task: Task,
        store: MoleculeStore,
        rows: np.ndarray,
        config: TrainingConfig,
    ) -> None:
        self.fabric, self.task, self.store, self.rows = fabric, task, store, rows
        self.truth = np.asarray(store.targets)[rows]
        atoms = np.asarray(store.num_atoms)[rows]
        self.batches: list[np.ndarray] = []  # places in `rows`
        if len(rows):
            self.batches = TokenBudgetBatches(
                atoms,
                np.arange(len(rows)),
                token_budget=config.token_budget,
                max_molecules=config.max_molecules,
                shuffle=False,
                seed=0,
            ).epoch(0)
        self.padded_tokens = np.array([(int(atoms[p].max()) + 1) * len(p) for p in self.batches])

    def predict(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> np.ndarray:
        """[rows, T] in the targets' units, the same on every process."""
        device = self.fabric.device
        values = torch.zeros(len(self.rows), len(self.task.targets.names), device=device)
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
        """[places, T] in the targets' units."""
        batch = collate(self.store, self.rows[places]).to(self.fabric.device, non_blocking=True)
        with self.fabric.autocast():
            prediction = model(batch).prediction
        return self.task.targets.to_unit(prediction)

    def metrics(self, model: nn.Module, tick: Callable[[], Any] | None = None) -> dict[str, float]:
        """The metric of each target by `model`, in evaluation mode meanwhile."""
        training = model.training
        model.eval()
        try:
            return self.task.metrics(self.predict(model, tick), self.truth)
        finally:
            model.train(training)
