"""The interface of a task."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.tasks.metrics import METRIC_NAMES, metric_per_target, selection_score
from molslice.tasks.targets import Kind, TargetInfo
from molslice.types import ModelOutput, MolsliceError


class Measure(NamedTuple):
    """A number that training reports for a split.

    Attributes:
        name: The key in the result of `Task.metrics`.
        metric: The name of the metric, such as `mae`.
        unit: The unit; "" for none.
    """

    name: str
    metric: str
    unit: str

    @property
    def column(self) -> str:
        """The column for the validation split in `metrics.csv`, such as `valid_mae_gap_eV`."""
        return "_".join(filter(None, ("valid", self.metric, self.name, self.unit)))


class MicroBatch:
    """The part of a batch that one device computes in one forward pass.

    A loss is divided by the counts of the whole batch, so that the sum over the micro-batches is the loss of
    the batch. This is a plain class because Fabric rebuilds dataclasses and refuses frozen ones.

    Attributes:
        batch: The collated rows of this part.
        rows: Number of rows (molecules, sequences) in the whole batch.
        present: Number of targets in the whole batch that are not missing.
        size: Number of rows of this part without the empty rows that fill it up; None if there are none. In
            a step that is captured as a CUDA graph, the three numbers are scalars on the device.
        counts: Whether the loss of this part counts. It does not on a process without rows of the batch.
        draw: Random seed shared by all parts of a batch. In a captured step it is a scalar on the device too.
    """

    __slots__ = ("batch", "counts", "draw", "present", "rows", "size")

    def __init__(
        self,
        batch: Any,  # noqa: ANN401
        rows: int | Tensor,
        present: int | Tensor,
        *,
        size: int | Tensor | None = None,
        counts: bool = True,
        draw: int | Tensor = 0,
    ) -> None:
        self.batch = batch
        self.rows = rows
        self.present = present
        self.size = size
        self.counts = counts
        self.draw = draw

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "MicroBatch":
        """Return the micro-batch on another device."""
        return self.prepared(lambda batch: batch.to(device, non_blocking=non_blocking))

    def prepared(self, prepare: Callable[[Any], Any]) -> "MicroBatch":
        """Return the micro-batch with `prepare` applied to its batch."""
        return MicroBatch(
            prepare(self.batch), self.rows, self.present, size=self.size, counts=self.counts, draw=self.draw
        )

    @property
    def share(self) -> float | Tensor:
        """The share of this part in the rows of the whole batch."""
        return (len(self.batch) if self.size is None else self.size) / self.rows

    @property
    def divisor(self) -> int | Tensor:
        """The number of targets to divide a sum of losses by, at least one."""
        return self.present if isinstance(self.present, Tensor) else max(self.present, 1)

    def pin_memory(self) -> "MicroBatch":
        """Return the micro-batch in page-locked memory."""
        return self.prepared(lambda batch: batch.pin_memory())


class Task(nn.Module, ABC):
    """A model with its loss and the meaning of its predictions.

    A subclass implements `loss_sum`. Its own options are keyword-only parameters of the constructor.

    Attributes:
        kinds: The kinds of targets that the task takes.
        advice: End of the message for targets of other kinds.
        has_fixed_steps: Whether all steps with batches of one shape are the same computation, in which no
            number of the host differs, so that they can be captured as a CUDA graph.

    Args:
        model: The model to train.
        targets: Names, units, kind and scale of the targets.

    Raises:
        MolsliceError: The targets are of another kind.
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)
    advice: ClassVar[str] = ""
    has_fixed_steps: ClassVar[bool] = False

    def __init__(self, model: nn.Module, targets: TargetInfo) -> None:
        super().__init__()
        if targets.kind not in self.kinds:
            raise MolsliceError(
                f"task {type(self).__name__.lower()} needs targets of kind {' or '.join(self.kinds)}, got "
                f"{targets.kind}{self.advice}"
            )
        self.model, self.targets = model, targets

    @abstractmethod
    def loss_sum(self, prediction: Float[Tensor, "*B T"], batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Sum the loss over the targets of the batch that are not missing.

        Args:
            prediction: `ModelOutput.prediction` in float32, [B, T], or [B, N, T] for each token.
            batch: The collated rows; `batch.targets` are in the unit of the data.

        Returns:
            A scalar, without unit.
        """

    def output_loss_sum(self, output: ModelOutput, batch: Any) -> Float[Tensor, ""]:  # noqa: ANN401
        """Return `loss_sum` of the prediction, a scalar. Override it to use other outputs of the model."""
        return self.loss_sum(output.prediction.float(), batch)

    def training_step(self, micro_batch: MicroBatch) -> Float[Tensor, ""]:
        """Compute the share of a micro-batch in the loss of its batch, including the penalty of the model.

        The sum over the micro-batches is the loss of the batch.
        """
        return self._share_of(self.model(micro_batch.batch), micro_batch)

    def _share_of(self, output: ModelOutput, micro_batch: MicroBatch) -> Float[Tensor, ""]:
        """Return the share of an output of the model in the loss of its batch."""
        loss = self.output_loss_sum(output, micro_batch.batch) / micro_batch.divisor
        if output.penalty is not None:
            loss = loss + output.penalty * micro_batch.share
        return loss

    def evaluate_batch(self, model: nn.Module, batch: Any) -> Float[Tensor, "B R"]:  # noqa: ANN401
        """Compute the results of a batch for the metrics; see `results`."""
        return self.results(model(batch).prediction, batch)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The numbers that `metrics` returns: by default one for each target."""
        metric = METRIC_NAMES[self.targets.kind]
        units = self.targets.units if self.targets.kind == "regression" else [""] * len(self.targets.names)
        return tuple(
            Measure(name, metric, unit) for name, unit in zip(self.targets.names, units, strict=True)
        )

    @property
    def num_results(self) -> int:
        """Number R of values that the metrics need from each row."""
        return len(self.targets.classes) or len(self.targets.names)

    def results(self, prediction: Float[Tensor, "*B T"], batch: Any) -> Float[Tensor, "B R"]:  # noqa: ANN401, ARG002
        """Return what the metrics need from each row: predictions in the targets' units, or probabilities."""
        return self.targets.to_unit(prediction)

    def metrics(self, results: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute the metric of each target in its unit, by the names of `measures`.

        Args:
            results: `results` of all rows, float [rows, R].
            truth: Targets in their units, float [rows, T], NaN where missing.
        """
        return metric_per_target(self.targets, results, truth)

    def score(self, metrics: dict[str, float]) -> float:
        """Return one number to select the best weights by; lower is better."""
        return selection_score(self.targets, metrics)
