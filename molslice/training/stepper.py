"""One optimizer step and the state that it changes."""

import math
from typing import Any

import lightning.fabric
import torch
from torch import Tensor, nn

from molslice.config import RunConfig
from molslice.tasks.base import Task
from molslice.training.batches import StepBatch, TrainingBatches
from molslice.training.ema import WeightAverage
from molslice.training.fabric import seed_step
from molslice.training.optimizer import build_optimizer
from molslice.training.state import Progress, check_like
from molslice.types import MolsliceError


class Stepper:
    """A model, its optimizer and the progress of the run.

    A step is a function of the previous state and of the number of the step. A run that is resumed from a
    checkpoint therefore has the same states as an uninterrupted one.

    Args:
        fabric: The device, the precision and the processes.
        task: The model and its loss.
        config: The configuration.
        batches: The training batches.
    """

    def __init__(
        self, fabric: lightning.fabric.Fabric, task: Task, config: RunConfig, batches: TrainingBatches
    ) -> None:
        self.fabric, self.task, self.config, self.batches = fabric, task, config, batches
        self.model: nn.Module = task.model
        task.to(fabric.device)
        decay = config.optimizer.ema_decay
        self.average = None if decay is None else WeightAverage(self.model, decay)
        if config.training.compile:
            # only the encoder, because the tensors of bonds have another shape in each batch
            getattr(self.model, "encoder", self.model).compile(dynamic=True)
        # torch's fused update does not work with the unscaling that float16 needs before clipping
        optimizer = build_optimizer(task, config.optimizer, fused=config.trainer.precision != "16")
        self.module, self.optimizer = fabric.setup(task, optimizer)
        self.module.mark_forward_method("training_step")  # DDP must wrap this call
        self.module.train()
        self.progress = Progress()

    @property
    def evaluated_model(self) -> nn.Module:
        """The model with averaged weights, or the model in training if there is no average."""
        if self.average is None:
            return self.model
        self.average.take_counters()
        return self.average.model

    def step(self, batch: StepBatch, rate: float) -> Tensor:
        """Update the weights with one batch.

        Args:
            batch: The batch.
            rate: The learning rate.

        Returns:
            This process's share of the loss, a detached scalar.
        """
        fabric, optimizer = self.fabric, self.optimizer
        seed_step(self.config.seed, self.progress.step, fabric.global_rank, fabric.device)
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        total = torch.zeros((), device=fabric.device)
        for number, micro_batch in enumerate(batch.micro_batches):
            micro_batch = micro_batch.to(fabric.device, non_blocking=True)
            waiting = number < len(batch.micro_batches) - 1
            with fabric.no_backward_sync(self.module, enabled=waiting), fabric.autocast():
                loss = self.module.training_step(micro_batch)
                if not micro_batch.counts:
                    loss = loss * 0.0
                # processes average their gradients, but the loss of a batch is the sum over processes
                fabric.backward(loss * fabric.world_size if fabric.world_size > 1 else loss)
            total += loss.detach()
        clip = self.config.optimizer.gradient_clip
        if clip is not None:
            fabric.clip_gradients(self.module, optimizer, max_norm=clip, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    def tensors(self) -> dict[str, Any]:
        """Return all tensors of a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict() if self.average else {},
            "optimizer": self.optimizer.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Load the tensors of a checkpoint, as returned by `tensors`.

        The settings of the optimizer stay those of the configuration; only its state is loaded.

        Raises:
            MolsliceError: A part is missing, or differs in names, types or shapes.
        """
        own = self.tensors()
        if lacking := own.keys() - tensors.keys():
            raise MolsliceError(f"it lacks {', '.join(sorted(lacking))}")
        for name in ("model", "average"):
            check_like(tensors[name], own[name], name)
        state = self._checked_moments(tensors["optimizer"])
        for key in own["precision"]:
            value = dict(tensors["precision"]).get(key)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise MolsliceError(f"precision.{key} is {value!r:.80}")
        self.model.load_state_dict(tensors["model"])
        if self.average:
            self.average.model.load_state_dict(tensors["average"])
        self.optimizer.optimizer.load_state_dict({**own["optimizer"], "state": state})
        self.fabric.strategy.precision.load_state_dict(tensors["precision"])

    def _checked_moments(self, optimizer: Any) -> dict[int, Any]:  # noqa: ANN401
        """Return AdamW's state of each parameter; one that never had a gradient has no state."""
        state = optimizer.get("state") if isinstance(optimizer, dict) else None
        if not isinstance(state, dict) or (self.progress.step > 0 and not state):
            raise MolsliceError("optimizer holds no state")
        parameters = [p for group in self.optimizer.optimizer.param_groups for p in group["params"]]
        count = torch.zeros(())
        expected = {
            place: {"step": count, "exp_avg": parameter, "exp_avg_sq": parameter}
            for place, parameter in enumerate(parameters)
            if place in state
        }
        check_like(state, expected, "optimizer.state")
        return state
