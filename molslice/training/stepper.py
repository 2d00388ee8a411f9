"""One optimizer step and the state that it changes."""

import logging
import math
from collections.abc import Generator
from typing import Any

import lightning.fabric
import torch
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn

from molslice.config import RunConfig
from molslice.data.base import DeviceRows, RowNumbers
from molslice.model.encoder import EncoderLayer
from molslice.tasks.base import MicroBatch, Task
from molslice.training.batches import StepBatch, TrainingBatches, prefetch
from molslice.training.fabric import gather, seed_step, shard, spread
from molslice.training.optimizer import HalfWeights, WeightAverage, build_optimizer, state_like
from molslice.training.processes import unused_weights
from molslice.training.state import check_like
from molslice.training.step_graphs import StepGraphs
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)


class Stepper:
    """A model and its optimizer.

    A step is a function of the previous state and of the number of the step. A run that is resumed from a
    checkpoint therefore has the same states as an uninterrupted one.
    """

    def __init__(
        self, fabric: lightning.fabric.Fabric, task: Task, config: RunConfig, batches: TrainingBatches
    ) -> None:
        self.fabric, self.task, self.config, self.batches = fabric, task, config, batches
        self.model: nn.Module = task.model
        is_sharded = isinstance(fabric.strategy, ModelParallelStrategy)
        if is_sharded and config.optimizer.name == "muon":
            raise MolsliceError(
                "optimizer.name muon needs whole matrices, but trainer.strategy fsdp divides them; choices: "
                "adamw, radam"
            )
        if not is_sharded:  # a model to be sharded may not fit on the device
            task.to(fabric.device)
        decay = config.optimizer.ema_decay
        self.average = None if decay is None else WeightAverage(self.model, decay)
        self.half = HalfWeights(task) if config.trainer.precision == "bf16-weights" else None
        trained = task if self.half is None else self.half.task
        if config.training.compile:
            compile_layers(trained.model)
        self.module = fabric.setup_module(trained)
        if isinstance(fabric.strategy, ModelParallelStrategy):
            task.to(fabric.device)
            if self.average is not None:  # a sharded model cannot be copied, so the copy is sharded
                shard(self.average.model, fabric.strategy.device_mesh)
        self.module.mark_forward_method("training_step")  # DDP must wrap this call
        # torch's fused update does not work with the unscaling that float16 needs before clipping
        optimizer = build_optimizer(task, config.optimizer, fused=config.trainer.precision != "16")
        self.rows, self.graphs = self._prepare_fixed_shapes(optimizer)
        self.optimizer: Any = fabric.setup_optimizers(optimizer)
        self.module.train()
        self._first = True

    def _prepare_fixed_shapes(
        self, optimizer: torch.optim.Optimizer
    ) -> tuple[DeviceRows | None, StepGraphs | None]:
        """Return the rows on the device and the graphs of steps, for batches of fixed shapes."""
        if not self.batches.fixed_shapes:
            return None, None
        device = self.fabric.device
        rows = self.batches.dataset.rows_on(device)
        if rows is None:
            logger.warning(
                "the host gathers the batches, because the rows would take too much of the device's memory"
            )
            rows = self.batches.dataset.rows_on(torch.device("cpu"))
        training, encoder = self.config.training, getattr(self.model, "encoder", None)
        obstacles = {
            "several processes": self.fabric.world_size > 1,
            "training.accumulate": training.accumulate > 1,
            f"optimizer.name {(name := self.config.optimizer.name)}": name == "radam",
            "trainer.precision 16": self.config.trainer.precision == "16",
            "model.activation_checkpointing": getattr(encoder, "activation_checkpointing", False),
        }
        if any(obstacles.values()):
            if device.type == "cuda":
                what = " and ".join(name for name, is_there in obstacles.items() if is_there)
                logger.warning("training steps are not captured as CUDA graphs, because of %s", what)
            return rows, None
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=device)
            group["capturable"] = device.type == "cuda"
        # torch would warn of the steps before the first capture
        setattr(optimizer, "_warned_capturable_if_run_uncaptured", True)  # noqa: B010
        return rows, StepGraphs(
            lambda micro_batch: self._compute([micro_batch]), device, is_compiled=training.compile
        )

    @property
    def evaluated_model(self) -> nn.Module:
        """The model with averaged weights, or the model in training if there is no average.

        All processes must read it. They get the buffers of the first process, because the statistics of batch
        norm differ.
        """
        model = self.model
        if self.average is not None:
            self.average.take_counters()
            model = self.average.model
        if self.fabric.world_size > 1:
            for buffer in model.buffers():
                torch.distributed.broadcast(buffer, 0)
        return model

    def stream(self, epoch: int, index: int) -> Generator[StepBatch]:
        """Yield batches without end, prepared ahead in a thread for a GPU; see `TrainingBatches.stream`."""
        stream = self.batches.stream(epoch, index)
        return prefetch(stream, self._prepare_ahead) if self.fabric.device.type == "cuda" else stream

    def _prepare_ahead(self, batch: Any) -> Any:  # noqa: ANN401
        """Compute in the host's thread what it can of a batch."""
        if isinstance(batch, RowNumbers):
            rows = self.rows
            return batch if rows is None or rows.device.type != "cpu" else rows.gather(batch)
        prepare = getattr(self.model, "prepare", None)
        return batch if prepare is None else prepare(batch)

    def step(self, batch: StepBatch, number: int, rate: float) -> Tensor:
        """Update the weights with one batch at a learning rate.

        The number of steps before, `number`, determines the random numbers together with the seed.

        Returns:
            This process's share of the loss, a detached scalar.
        """
        fabric = self.fabric
        seed_step(self.config.seed, number, fabric.global_rank, fabric.device)
        for group in self.optimizer.param_groups:
            group_rate = rate * group.get("factor", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group_rate)
            else:
                group["lr"] = group_rate
        if self.graphs is not None:
            (micro_batch,) = batch.micro_batches
            return self.graphs.step(micro_batch)
        return self._compute(batch.micro_batches)

    def _compute(self, micro_batches: list[MicroBatch]) -> Tensor:
        """Compute the gradients of a batch and update the weights; return the loss."""
        fabric, optimizer = self.fabric, self.optimizer
        total = torch.zeros((), device=fabric.device)
        for number, micro_batch in enumerate(micro_batches):
            micro_batch = self._on_device(micro_batch)
            waiting = number < len(micro_batches) - 1
            with fabric.no_backward_sync(self.module, enabled=waiting), fabric.autocast():
                loss = self.module.training_step(micro_batch)
                if not micro_batch.counts:
                    loss = loss * 0.0
                # processes average their gradients, but the loss of a batch is the sum over processes
                fabric.backward(loss * fabric.world_size if fabric.world_size > 1 else loss)
            total += loss.detach()
        if self.half is not None:
            self.half.hand_over_gradients()
        self._refuse_unused()
        clip = self.config.optimizer.gradient_clip
        if clip is not None:
            fabric.clip_gradients(self.module, optimizer, max_norm=clip, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.half is not None:
            self.half.take_weights()
        return total

    def _on_device(self, micro_batch: MicroBatch) -> MicroBatch:
        """Return a micro-batch with its rows in the memory of the device."""
        micro_batch = micro_batch.to(self.fabric.device, non_blocking=True)
        if self.rows is not None and isinstance(micro_batch.batch, RowNumbers):
            return micro_batch.prepared(self.rows.gather)
        return micro_batch

    def _refuse_unused(self) -> None:
        """Refuse weights without a gradient in the first step: DDP would sum the others only in part."""
        if self._first and self.fabric.world_size > 1 and self.config.trainer.strategy in ("auto", "ddp"):
            named = self.task.named_parameters()
            unused = [name for name, weight in named if weight.requires_grad and weight.grad is None]
            if unused:
                others = f" and {len(unused) - 3} others" if unused[3:] else ""
                raise unused_weights(f"the weights {', '.join(unused[:3])}{others}")
        self._first = False

    def free_device(self) -> None:
        """Free the rows and the graphs on the device. No step can follow."""
        if self.graphs is not None:
            self.graphs.discard()
        self.rows = self.graphs = None  # the graphs refer to this object
        if self.fabric.device.type == "cuda":
            torch.cuda.empty_cache()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the weights of `model` or its average, on the first process. All processes must call it."""
        return gather(model.state_dict(), self.fabric.is_global_zero)

    def tensors(self) -> dict[str, Any]:
        """Return all tensors of a checkpoint, on the first process. All processes must call it."""
        return gather(self._tensors(), self.fabric.is_global_zero)

    def _tensors(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict() if self.average else {},
            "optimizer": self.optimizer.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def load_tensors(self, tensors: dict[str, Any], step: int) -> None:
        """Load the tensors of a checkpoint after `step` steps, as returned by `tensors` on the first process.

        Only the state of the optimizer is loaded; its settings come from the configuration.

        Raises:
            MolsliceError: A part is missing, or differs in names, types or shapes.
        """
        current = self._tensors()
        if lacking := current.keys() - tensors.keys():
            raise MolsliceError(f"it lacks {', '.join(sorted(lacking))}")
        for name in ("model", "average"):
            check_like(tensors[name], current[name], name)
        state = self._checked_moments(tensors["optimizer"], step)
        for key in current["precision"]:
            value = dict(tensors["precision"]).get(key)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise MolsliceError(f"precision.{key} is {value!r:.80}")
        self.model.load_state_dict(spread(tensors["model"], current["model"]))
        if self.average:
            self.average.model.load_state_dict(spread(tensors["average"], current["average"]))
        self.optimizer.optimizer.load_state_dict({**current["optimizer"], "state": state})
        if self.graphs is not None:
            self.graphs.discard()
        if self.half is not None:
            self.half.take_weights()
        self.fabric.strategy.precision.load_state_dict(tensors["precision"])

    def _checked_moments(self, optimizer: Any, step: int) -> dict[int, Any]:  # noqa: ANN401
        """Return the optimizer's state of each parameter; one that never had a gradient has no state."""
        state = optimizer.get("state") if isinstance(optimizer, dict) else None
        if not isinstance(state, dict) or (step > 0 and not state):
            raise MolsliceError("optimizer holds no state")
        groups = self.optimizer.optimizer.param_groups
        of_parameters = [state_like(group, parameter) for group in groups for parameter in group["params"]]
        expected = {place: tensors for place, tensors in enumerate(of_parameters) if place in state}
        check_like(state, expected, "optimizer.state")
        return spread(state, expected)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer of the encoders in place; a model without such layers is compiled as a whole.

    The layers share one compiled function. The rest is not compiled, because the tensors of bonds have
    another shape in each batch. torch limits the variants of a function, and the layers of earlier models
    would count; therefore all compiled functions of the process are discarded, and compiled again when they
    are called.
    """
    torch._dynamo.reset()
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer)]
    for module in layers or [model]:
        module.compile(dynamic=True)
