"""Lightning Fabric: device, precision and processes, without its log messages."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import lightning.fabric
import numpy as np
import torch
from lightning.fabric.strategies.strategy import Strategy

from molslice.config import TrainerConfig
from molslice.training.processes import find_environment
from molslice.training.sharding import build_sharded_strategy
from molslice.types import MolsliceError

# On 16 cores with an H100, training was 1.5 times as fast with 4 threads as with 16, which spin and take
# the time of the thread that starts kernels.
THREADS_WITH_GPU = 4
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
        return build_sharded_strategy(world)
    return "ddp" if config.strategy == "auto" and world > 1 else config.strategy


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


def limit_threads(asked: int | None, device: torch.device) -> None:
    """Set the number of CPU threads of this process.

    Args:
        asked: The number; None for torch's default, at most `THREADS_WITH_GPU` with a CUDA device.
        device: The device that computes.
    """
    if asked is None and device.type == "cuda":
        asked = min(THREADS_WITH_GPU, torch.get_num_threads())
    if asked is not None:
        torch.set_num_threads(asked)


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
