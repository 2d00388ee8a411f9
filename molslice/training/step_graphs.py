"""Optimizer steps with batches of fixed shapes, captured as CUDA graphs.

A graph replays the kernels of a whole step, from the gathering of the rows to the optimizer, with one launch.
If the rows take too much memory of the device, the host gathers them and copies each batch to the same place.
All that differs between steps is therefore in memory of the device at a fixed address: row numbers, counts,
learning rates and the seed of the random numbers.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from molslice.config import RunConfig
from molslice.data.base import Dataset
from molslice.tasks import TASKS
from molslice.tasks.base import MicroBatch
from molslice.types import Batch, MolsliceError

WARM_UP_STEPS = 1  # of a shape before it is captured, in which kernels are compiled and memory is allocated
# operators whose result the host reads, or whose shape depends on values
READING = frozenset(
    {
        "aten::_linalg_check_errors",
        "aten::_local_scalar_dense",
        "aten::allclose",
        "aten::bincount",
        "aten::equal",
        "aten::is_nonzero",
        "aten::masked_select",
        "aten::nonzero",
        "aten::repeat_interleave",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::_unique2",
    }
)
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})

logger = logging.getLogger(__name__)


def uses_fixed_shapes(config: RunConfig, dataset: Dataset, device: torch.device) -> bool:
    """Return whether batches have fixed shapes.

    Raises:
        MolsliceError: They are asked for, and the data, the model or the task do not support them.
    """
    supported = {
        f"the data {dataset.source}": dataset.has_fixed_shapes,
        f"the model {config.model.name}": config.model.takes_adjacency,
        "batches of mixed lengths": not config.mixes_lengths,
        f"the task {config.task}": TASKS.find(config.task).has_fixed_steps,
    }
    missing = [name for name, is_supported in supported.items() if not is_supported]
    asked = config.training.fixed_shapes
    if asked and missing:
        raise MolsliceError(f"training.fixed_shapes is not available with {' and '.join(missing)}")
    return not missing and device.type == "cuda" if asked is None else asked


class WaitFinder(TorchDispatchMode):
    """Notes operators that make the host wait for the device, which a graph cannot contain.

    Attributes:
        waiting_operators: Their names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting_operators: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401, ARG002
        name = func._schema.name
        if name in READING or (name in INDEXING and _has_mask(args[1])):
            self.waiting_operators.add(name)
        result = func(*args, **(kwargs or {}))
        if name in ("aten::_to_copy", "aten::copy_") and _is_copied_between(args, result):
            self.waiting_operators.add(name)
        return result


def _has_mask(indices: Any) -> bool:  # noqa: ANN401
    return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _is_copied_between(args: Any, result: Any) -> bool:  # noqa: ANN401
    tensors = [tensor for tensor in (*args, result) if isinstance(tensor, Tensor)]
    return len({tensor.device.type for tensor in tensors}) > 1


class StepGraphs:
    """Computes steps, each shape of a batch first as usual and then by a CUDA graph.

    The first step also looks for operators that cannot be captured. If there are any, all steps are computed
    as usual. This is the case on a CPU too.

    Attributes:
        obstacles: The operators of the first step that cannot be captured.

    Args:
        compute: Computes a step with a batch on the device: changes the weights and returns the loss.
        device: The device.
        is_compiled: Whether `compute` calls compiled functions.
    """

    def __init__(
        self, compute: Callable[[MicroBatch], Tensor], device: torch.device, *, is_compiled: bool
    ) -> None:
        self._compute, self._device, self._is_compiled = compute, device, is_compiled
        self._steps: dict[tuple[Any, ...], _FixedStep] = {}
        self._captures = device.type == "cuda"
        self._is_checked = False
        self.obstacles: set[str] = set()
        self._stream = torch.cuda.Stream(device) if self._captures else None
        self._pool: Any = None

    @property
    def num_captured(self) -> int:
        """Number of shapes that have a graph."""
        return sum(step.graph is not None for step in self._steps.values())

    def step(self, micro_batch: MicroBatch) -> Tensor:
        """Compute a step with a whole batch in any memory: row numbers, or molecules of a fixed shape.

        Returns:
            The loss, a scalar that the next step overwrites.
        """
        form = micro_batch.batch.form
        if form not in self._steps:
            self._steps[form] = _FixedStep(micro_batch.batch, self._device)
        step = self._steps[form]
        step.fill(micro_batch)
        if step.graph is None and self._captures and step.warm_ups >= WARM_UP_STEPS:
            self._capture(step)
        if step.graph is not None:
            step.graph.replay()
        else:
            self._warm_up(step)
        return step.loss

    def discard(self) -> None:
        """Discard the graphs and their memory, for instance because tensors that they use were replaced."""
        self._steps.clear()
        self._pool = None

    def _warm_up(self, step: "_FixedStep") -> None:
        if self._is_checked:
            step.warm_ups += 1
            with _on_stream(self._stream):
                step.loss.copy_(self._compute(step.micro_batch))
            return
        self._is_checked = True
        finder, without_compiling = WaitFinder(), nullcontext()
        if self._is_compiled:  # within the finder, torch would mark the functions as not to be compiled
            without_compiling = torch.compiler.set_stance("force_eager")
        with _on_stream(self._stream), without_compiling, finder:
            step.loss.copy_(self._compute(step.micro_batch))
        self.obstacles = finder.waiting_operators
        if self._captures and self.obstacles:
            self._refuse(f"the host waits for results of {', '.join(sorted(self.obstacles))}")

    def _capture(self, step: "_FixedStep") -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            # other threads, which prepare batches, may allocate memory meanwhile
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                step.loss.copy_(self._compute(step.micro_batch))
        except RuntimeError as error:  # torch cannot draw random numbers any more after it
            raise MolsliceError(
                f"cannot capture a training step as a CUDA graph: {error}. Set training.fixed_shapes to false"
            ) from error
        step.graph, self._pool = graph, graph.pool()

    def _refuse(self, reason: str) -> None:
        self._captures = False
        logger.warning("training steps are not captured as CUDA graphs: %s", reason)


class _FixedStep:
    """The memory of the inputs and the loss of steps with batches like the first one, and their graph."""

    def __init__(self, first: Batch, device: torch.device) -> None:
        self.loss = torch.zeros((), device=device)
        counts = [torch.ones((), device=device) for _ in range(3)]
        draw = torch.zeros((), dtype=torch.long, device=device)
        batch = first.copied_to(device)
        self.micro_batch = MicroBatch(batch, *counts[:2], size=counts[2], draw=draw)
        self.warm_ups = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def fill(self, given: MicroBatch) -> None:
        self.micro_batch.batch.overwrite(given.batch)
        for name in ("rows", "present", "size", "draw"):
            value = given.divisor if name == "present" else getattr(given, name)
            getattr(self.micro_batch, name).fill_(value)


@contextmanager
def _on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Compute in another stream, after the work of the current one and before what it does next."""
    if stream is None:
        yield
        return
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)
