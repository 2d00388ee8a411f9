"""The contract of a task."""

from abc import ABC, abstractmethod
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.metrics import metric_per_target, selection_score
from molslice.tasks.targets import TargetInfo
from molslice.types import ModelOutput


class Portion:
    """The part of a batch that one device computes at once, with the counts of the whole batch.

    Losses are divided by the counts of the whole batch, so that the sum over portions is the loss of the
    batch, however it was divided. A plain class on purpose: Lightning takes apart dataclasses and refuses
    frozen ones.
    """

    __slots__ = ("batch", "present", "rows")

    def __init__(self, batch: Any, rows: int, present: int) -> None:  # noqa: ANN401
        self.batch = batch
        self.rows = rows  # rows (molecules, sequences) in the whole batch
        self.present = present  # targets that are not missing in the whole batch

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Portion":
        """The same portion on another device."""
        return Portion(self.batch.to(device, non_blocking=non_blocking), self.rows, self.present)

    def pin_memory(self) -> "Portion":
        """The same portion in page-locked memory."""
        return Portion(self.batch.pin_memory(), self.rows, self.present)


class Task(pl.LightningModule, ABC):
    """A model with its loss and the meaning of its predictions.

    A subclass writes `loss_sum`; its own options are keyword-only parameters of the constructor.
    """

    def __init__(self, model: nn.Module, targets: TargetInfo) -> None:
        super().__init__()
        self.model, self.targets = model, targets
        self.target_mean: Tensor
        self.target_std: Tensor
        self.register_buffer("target_mean", torch.tensor(targets.mean), persistent=False)
        self.register_buffer("target_std", torch.tensor(targets.std), persistent=False)

    @abstractmethod
    def loss_sum(self, prediction: Float[Tensor, "*B T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """The loss summed over the targets of the batch that are not missing; they are in the data's unit."""

    def output_loss_sum(self, output: ModelOutput, batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """`loss_sum` of the prediction; for a task that learns from more of what the model returns."""
        return self.loss_sum(output.prediction.float(), batch)

    def training_step(self, portion: Portion, batch_index: int = 0) -> Float[Tensor, ""]:
        """This portion's share of the loss of its batch, the model's penalty included."""
        output = self.model(portion.batch)
        loss = self.output_loss_sum(output, portion.batch) / max(portion.present, 1)
        if output.penalty is not None:
            loss = loss + output.penalty * (len(portion.batch) / portion.rows)
        return loss

    def predict_step(self, batch: Any, batch_index: int = 0) -> Float[Tensor, "B R"]:  # noqa: ANN401
        """Results of a batch: see `results`."""
        return self.results(self.model(batch).prediction, batch)

    @property
    def num_results(self) -> int:
        """R, what is kept of each row to compute the metrics from."""
        return len(self.targets.classes) or len(self.targets.names)

    def results(self, prediction: Float[Tensor, "*B T"], batch: Any) -> Float[Tensor, "B R"]:  # noqa: ANN401, ARG002
        """What the metrics need of each row: predictions in the targets' units, or probabilities."""
        return self.targets.to_unit(prediction)

    def metrics(self, results: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """The metric of each target; `results` are [rows, R], the truth [rows, T]."""
        return metric_per_target(self.targets, results, truth)

    def score(self, metrics: dict[str, float]) -> float:
        """One number to choose the best weights by, lower is better."""
        return selection_score(self.targets, metrics)
