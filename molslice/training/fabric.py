"""Lightning Fabric: device, precision and processes, and models that are sharded over them.

A sharded model has a part of each parameter, gradient and moment on each process. The strategy is Fabric's
`ModelParallelStrategy` with PyTorch's `fully_shard` (FSDP2). Fabric's older `FSDPStrategy` does not run on
CPUs, and neither does PyTorch's `FullyShardedDataParallel`. With `fully_shard` the parameters keep their
names and shapes, so a checkpoint does not depend on the strategy.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning.fabric
import numpy as np
import torch
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from molslice.config import TrainerConfig
from molslice.model.encoder import EncoderLayer
from molslice.tasks.base import Task
from molslice.training.processes import find_environment
from molslice.types import MolsliceError

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "bf16-weights": "32-true", "16": "16-mixed"}


def build_fabric(config: TrainerConfig) -> lightning.fabric.Fabric:
    """Build Fabric with the device, precision and strategy of the configuration. No process is started yet.

    Raises:
        MolsliceError: The device or strategy is not available, float16 is used on a CPU, or `torchrun` or
            SLURM has started another number of processes.
    """
    world = config.devices * config.num_nodes
    strategy, plugins = _build_strategy(config, world), find_environment(config)
    try:
        fabric = lightning.fabric.Fabric(
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.num_nodes,
            strategy=strategy,
            precision=PRECISIONS[config.precision],  # pyright: ignore[reportArgumentType]
            plugins=plugins,  # pyright: ignore[reportArgumentType]
        )
    except (RuntimeError, ValueError, ImportError) as error:
        asked = f"accelerator={config.accelerator} devices={config.devices} precision={config.precision}"
        raise MolsliceError(f"trainer: {asked} is not available: {str(error).splitlines()[0]}") from error
    if config.precision == "16" and fabric.device.type != "cuda":
        raise MolsliceError("trainer.precision 16 needs a CUDA device; choices here: 32, bf16, bf16-weights")
    return fabric


def _build_strategy(config: TrainerConfig, world: int) -> str | Strategy:
    if config.strategy == "fsdp":
        if config.precision in ("16", "bf16-weights"):
            raise MolsliceError(
                f"trainer.precision {config.precision} is not available with trainer.strategy fsdp; choices: "
                "32, bf16"
            )
        return _build_sharded_strategy(world)
    return "ddp" if config.strategy == "auto" and world > 1 else config.strategy


def _build_sharded_strategy(world: int) -> ModelParallelStrategy:
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
    """Replace the sharded tensors in nested mappings and lists by whole tensors on the CPU.

    All processes must call it with the same containers. The tensors of processes that do not `keep` the
    result are empty, to save memory.
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
    """Shard whole tensors in nested mappings as the tensors in `like` are. The inverse of `gather`."""
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


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide Lightning's tips and warnings, which are about loops and loaders that are not used here."""
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed torch for one step on one device by a function of seed, step and rank.

    A checkpoint therefore needs no random state. The numbers are mixed because torch's CPU generator uses
    only 32 bits of its seed.
    """
    mixed = int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
    if device.type == "cpu":
        torch.default_generator.manual_seed(mixed)  # torch.manual_seed would also touch all accelerators
    else:
        torch.manual_seed(mixed)
