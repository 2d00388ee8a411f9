"""Fully sharded data parallelism: each process holds a part of each parameter, gradient and moment.

The strategy is Lightning Fabric's `ModelParallelStrategy` with PyTorch's `fully_shard` (FSDP2). Fabric's
older `FSDPStrategy` does not run on CPUs, and neither does PyTorch's `FullyShardedDataParallel`. With
`fully_shard` the parameters keep their names and shapes, so a checkpoint does not depend on the strategy.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from molslice.model.encoder import EncoderLayer
from molslice.tasks.base import Task
from molslice.types import MolsliceError

try:
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor, distribute_tensor
except ImportError:  # before torch 2.6, where nothing is sharded
    FSDPModule: Any = ()
    DTensor: Any = ()
    fully_shard: Any = None
    distribute_tensor: Any = None


def build_sharded_strategy(world: int) -> ModelParallelStrategy:
    """Build the strategy that shards the model of a task over all processes.

    Raises:
        MolsliceError: This version of PyTorch has no `fully_shard`.
    """
    if not FSDPModule:
        raise MolsliceError(
            f"trainer.strategy fsdp needs torch 2.6 or later, this is {torch.__version__}; "
            "choices here: auto, ddp, ddp_find_unused_parameters_true"
        )

    def parallelize(task: nn.Module, mesh: DeviceMesh) -> nn.Module:
        assert isinstance(task, Task)
        trained = (name for name, parameter in task.named_parameters() if parameter.requires_grad)
        if outside := [name for name in trained if not name.startswith("model.")]:
            raise MolsliceError(
                f"trainer.strategy fsdp shards the model only, but the task has the parameter {outside[0]}"
            )
        shard(task.model, mesh)
        return task

    return ModelParallelStrategy(parallelize, data_parallel_size=world, tensor_parallel_size=1)


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard the parameters of a model in place: each layer is one unit, and the rest is another.

    Raises:
        MolsliceError: A parameter has no dimension to shard.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 0:
            raise MolsliceError(
                f"trainer.strategy fsdp cannot shard the parameter {name}, which is a scalar; give it the "
                "shape [1]"
            )
    for module in model.modules():
        if isinstance(module, EncoderLayer):
            fully_shard(module, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])


def local_part(tensor: Tensor) -> Tensor:
    """Return this process's part of a sharded tensor; any other tensor is returned as it is."""
    sharded: Any = tensor
    return sharded.to_local() if isinstance(sharded, DTensor) else tensor


def gather(tree: Any, keep: bool) -> Any:  # noqa: ANN401
    """Replace the sharded tensors in nested containers by whole tensors on the CPU.

    All processes must call it with the same containers.

    Args:
        tree: Mappings, lists and values.
        keep: Whether this process needs the result. The tensors of other processes are empty, to save memory.
    """
    if isinstance(tree, Mapping):
        return {key: gather(value, keep) for key, value in tree.items()}
    if isinstance(tree, list):
        return [gather(value, keep) for value in tree]
    if not isinstance(tree, DTensor):
        return tree
    whole = tree.full_tensor()
    return whole.detach().cpu() if keep else torch.empty(0)


def spread(tree: Any, like: Any) -> Any:  # noqa: ANN401
    """Shard whole tensors in nested mappings as the tensors in `like` are. The inverse of `gather`.

    Args:
        tree: Mappings of whole tensors, the same on every process.
        like: Mappings with the same keys.
    """
    if isinstance(tree, Mapping):
        return {key: spread(value, like[key]) for key, value in tree.items()}
    if not isinstance(like, DTensor):
        return tree
    return distribute_tensor(tree, like.device_mesh, like.placements)


def reshard(model: nn.Module) -> None:
    """Free the whole parameters that a forward pass of a sharded model has left in memory.

    Otherwise the next forward pass would not see that the parts have changed.
    """
    if isinstance(model, FSDPModule):
        model.reshard()  # pyright: ignore[reportCallIssue]


@contextmanager
def sharded_inference(model: nn.Module) -> Iterator[None]:
    """Disable gradients without `torch.inference_mode` if the model is sharded.

    In inference mode a first forward pass would allocate parameters that cannot be trained later.
    """
    if not isinstance(model, FSDPModule):
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield
