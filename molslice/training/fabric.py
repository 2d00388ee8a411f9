"""Lightning's Fabric: device, precision, processes; quiet."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import lightning.fabric
import numpy as np
import torch

from molslice.config import TrainerConfig
from molslice.types import MolsliceError

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def build_fabric(config: TrainerConfig) -> lightning.fabric.Fabric:
    """Device, precision and strategy as the configuration has them; processes are not started yet.

    Raises:
        MolsliceError: a device that is not there, or float16 on a CPU.
    """
    world = config.devices * config.num_nodes
    strategy = "ddp" if config.strategy == "auto" and world > 1 else config.strategy
    try:
        fabric = lightning.fabric.Fabric(
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.num_nodes,
            strategy=strategy,
            precision=PRECISIONS[config.precision],  # pyright: ignore[reportArgumentType]
        )
    except (RuntimeError, ValueError, ImportError) as error:
        asked = f"accelerator={config.accelerator} devices={config.devices} precision={config.precision}"
        raise MolsliceError(f"trainer: {asked} cannot be had: {str(error).splitlines()[0]}") from error
    if config.precision == "16" and fabric.device.type != "cuda":
        raise MolsliceError("trainer.precision 16 needs a CUDA device; choices here: 32, bf16")
    return fabric


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Lightning's tips and warnings are about its own loops and loaders, which are not used here."""
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
    """Torch's random numbers of one step on one device, a function of these three alone.

    So nothing random has to be kept in a checkpoint. The numbers are mixed first, as torch's CPU generator
    looks at 32 bits of its seed only.
    """
    mixed = int(np.random.SeedSequence([seed, step, rank]).generate_state(1)[0])
    if device.type == "cpu":
        torch.default_generator.manual_seed(mixed)  # torch.manual_seed also visits every kind of accelerator
    else:
        torch.manual_seed(mixed)
