"""The plan of a run: its configuration, rows and batches, resolved before a model is built."""

import contextlib
import dataclasses
import logging
from dataclasses import dataclass
from typing import Any

import lightning.fabric
import numpy as np

from molslice.config import RunConfig, TrainingConfig
from molslice.data.base import Dataset
from molslice.tasks import TASKS, TargetInfo
from molslice.training.batches import TrainingBatches
from molslice.training.duration import resolve_epochs
from molslice.training.start import StartSource, read_start
from molslice.training.step_graphs import uses_fixed_shapes
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run computes.

    Attributes:
        config: The configuration. Its length is in steps, or in minutes that are still to be measured.
        rows: The rows with known targets of `train`, `valid` and `test`, int64 [n] each.
        targets: The description of the targets.
        batches: The training batches, with the data set.
        task_options: The settings of `training` that the task takes.
        source: The trained model whose weights the run starts from; None for random weights or a checkpoint.
    """

    config: RunConfig
    rows: dict[str, np.ndarray]
    targets: TargetInfo
    batches: TrainingBatches
    task_options: dict[str, Any]
    source: StartSource | None


def plan_run(
    config: RunConfig, dataset: Dataset, fabric: lightning.fabric.Fabric, *, has_checkpoint: bool
) -> RunPlan:
    """Resolve all that can be known before a model is built.

    Args:
        config: The configuration, of a resumed run as at its start.
        dataset: The data.
        fabric: The device and the processes.
        has_checkpoint: Whether the weights come from a checkpoint, so that `start` is not read.

    Raises:
        MolsliceError: The configuration and the data do not fit each other.
    """
    rows = {split: dataset.labeled_rows(split) for split in ("train", "valid")}
    rows["test"] = _test_rows(dataset)
    task_options = _task_options(config)
    targets = _describe_targets(dataset, rows["train"])
    source = None if config.start is None or has_checkpoint else read_start(config.start, dataset)
    if config.start is not None and source is not None:
        config = dataclasses.replace(config, start=dataclasses.replace(config.start, sha256=source.sha256))
    fixed_shapes = uses_fixed_shapes(config, dataset, fabric.device)
    config = config.with_training(fixed_shapes=fixed_shapes)
    batches = TrainingBatches(
        dataset,
        rows["train"],
        config.training,
        config.seed,
        fabric.global_rank,
        fabric.world_size,
        fixed_shapes=fixed_shapes,
    )
    epochs = resolve_epochs(config.training.max_epochs, len(rows["train"]))
    if epochs is not None:
        config = with_steps(config, epochs * batches.steps_per_epoch)
    return RunPlan(config, rows, targets, batches, task_options, source)


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """Return the configuration with its length in steps."""
    return config.with_training(max_steps=steps, max_epochs=None, max_minutes=None)


def _test_rows(dataset: Dataset) -> np.ndarray:
    """Return the test rows with known targets, int64 [n]; empty if the test targets are secret."""
    if "test" in dataset.splits and len(dataset.splits["test"]):
        with contextlib.suppress(MolsliceError):
            return dataset.labeled_rows("test")
    logger.warning("%s has no test %s with known targets: no test metric", dataset.source, dataset.row_name)
    return np.empty(0, np.int64)


def _describe_targets(dataset: Dataset, rows: np.ndarray) -> TargetInfo:
    """Describe the targets as the data set states them, or measure them in the training rows.

    Raises:
        MolsliceError: The targets of molecules have more than two classes.
    """
    if dataset.spec.tokens == "molecules" and dataset.class_names:
        raise MolsliceError(
            f"{dataset.source} has {len(dataset.class_names)} classes; networks of molecules learn numbers "
            "and two classes, and molslice fit learns several"
        )
    stated = dataset.stated_targets
    if stated is not None:
        return TargetInfo.from_mapping(stated)
    known = np.asarray(dataset.targets[rows])
    return TargetInfo.of_training(
        dataset.target_names, dataset.target_units, dataset.kind, known, dataset.class_names
    )


def _task_options(config: RunConfig) -> dict[str, Any]:
    """Return the settings of `training` that the task takes.

    Raises:
        MolsliceError: A setting of another task is given, which would have no effect.
    """
    takers = {name: TASKS.options(name) for name in TASKS.names()}
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(config.training, field.name)
        others = [name for name, options in takers.items() if field.name in options]
        if others and config.task not in others and value != field.default:
            raise MolsliceError(
                f"training.{field.name} has no effect on task {config.task}, got {value!r}; only "
                f"{', '.join(others)} use{'s' * (len(others) == 1)} it"
            )
    return {name: getattr(config.training, name) for name in takers[config.task]}
