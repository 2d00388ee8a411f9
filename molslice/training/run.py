"""One run: from a configuration to a run folder with a trained model and its metrics."""

import contextlib
import dataclasses
import json
import logging
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import lightning.fabric
import numpy as np
import torch
from torch import nn

from molslice.config import RunConfig, TrainingConfig, config_to_yaml
from molslice.config.settings import EPOCHS_DIFFER
from molslice.data import build_dataset
from molslice.data.base import Dataset
from molslice.data.identity import data_identity
from molslice.files.atomic import write_atomically
from molslice.files.progress import hidden_progress
from molslice.folders.run import (
    CONFIG,
    DATA,
    LAST_CHECKPOINT,
    MODEL,
    SUMMARY,
    SUMMARY_KINDS,
    read_run,
    read_summary,
)
from molslice.inference.held_out import write_calibration
from molslice.inference.json_text import to_json
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.model.depth import freeze_layers
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import Task
from molslice.training.batches import TrainingBatches
from molslice.training.budget import count_epochs, measure_max_steps
from molslice.training.continuation import as_begun, check_data, check_epochs, claimed
from molslice.training.fabric import build_fabric, limit_threads, quiet_lightning
from molslice.training.pair_memory import check_pair_memory
from molslice.training.processes import agreed, launched, starts_processes, was_restarted
from molslice.training.start import read_start, start_from
from molslice.training.step_graphs import uses_fixed_shapes
from molslice.training.stepper import Stepper
from molslice.training.trainer import Trainer
from molslice.training.validation import Evaluator
from molslice.types import DataSpec, MolsliceError
from molslice.version import __version__

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Evaluators:
    train: Evaluator  # at most as many rows as valid, drawn with the seed
    valid: Evaluator
    test: Evaluator


@dataclass(frozen=True, slots=True)
class _Begun:
    config: RunConfig  # that of the earlier start, if there was one
    has_checkpoint: bool
    summary: dict[str, Any] | None  # of a run that is finished


@dataclass(frozen=True, slots=True)
class _Parts:
    config: RunConfig
    rows: dict[str, np.ndarray]
    task: Task
    batches: TrainingBatches
    parameters: dict[str, int]
    start: float


def train(config: RunConfig, out: Path | str, *, resume: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Train a model, evaluate its best weights and write a run folder.

    A resumed run ends with the same weights as an uninterrupted one (bit for bit on a CPU).

    Args:
        config: The configuration.
        out: The run folder. It must be new or empty unless `resume` is true.
        resume: Whether to continue the run in `out`. The configuration must be that of the run. A process
            that `torchrun` or SLURM has started again always continues it.
        quiet: Whether to hide the progress bar.

    Returns:
        The content of `summary.json`.

    Raises:
        MolsliceError: The configuration, the data or the folder is invalid, or the loss is not finite.
        KeyboardInterrupt: Stopped by Ctrl-C or a signal. The message says how to resume.
    """
    folder = Path(out)
    with quiet_lightning(), contextlib.ExitStack() as exits:
        fabric = build_fabric(config.trainer)
        exits.enter_context(hidden_progress(quiet or not fabric.is_global_zero))
        TASKS.find(config.task)
        limit_threads(config.trainer.num_threads, fabric.device)
        asked = config.training.max_epochs if resume or was_restarted() else None
        begun, dataset, failure = None, None, None
        nobody_waits = fabric.world_size == 1 or (starts_processes(fabric) and config.trainer.num_nodes == 1)
        if fabric.is_global_zero:
            try:
                begun = _begin(config, folder, resume or was_restarted(), exits)
                # before the other processes start, so that this one prepares the data and they load them
                dataset = (
                    None if begun.summary else build_dataset(config.data.name, dict(config.data.options))
                )
                if dataset is not None:
                    check_data(folder, dataset)
            except Exception as error:
                if nobody_waits:
                    raise
                failure = error  # raised where the other processes hear of it
        if begun is not None and begun.summary and nobody_waits:
            return _already_finished(begun.summary, folder, asked)
        with launched(fabric):
            limit_threads(config.trainer.num_threads, fabric.device)
            with agreed(fabric):
                if failure is not None:
                    raise failure
            begun = fabric.broadcast(begun)
            assert begun is not None
            if begun.summary:
                return _already_finished(begun.summary, folder, asked)
            with agreed(fabric):
                dataset = dataset or build_dataset(config.data.name, dict(config.data.options))
                parts = _build_parts(fabric, begun, dataset, folder, asked, quiet)
            return _train_here(fabric, begun, parts, folder, quiet)


def _begin(config: RunConfig, folder: Path, resume: bool, exits: contextlib.ExitStack) -> _Begun:
    """Claim the folder until `exits` closes, and read what an earlier start has left in it."""
    exits.enter_context(claimed(folder, resume))
    if not resume:
        return _Begun(config, False, None)
    config = as_begun(config, folder)
    summary = None
    if (folder / SUMMARY).is_file():
        summary = read_summary(folder)
        if missing := SUMMARY_KINDS.keys() - summary.keys():
            raise MolsliceError(f"cannot read {folder / SUMMARY}: no {', '.join(sorted(missing))}")
    return _Begun(config, (folder / LAST_CHECKPOINT).is_file(), summary)


def _already_finished(
    summary: dict[str, Any], folder: Path, asked_epochs: int | Literal["auto"] | None
) -> dict[str, Any]:
    if summary["steps"] == summary["max_steps"]:
        asked = _resolved(asked_epochs, summary["train"]["of"])
        # epochs differ a little in their number of batches
        check_epochs(folder, asked, summary["epochs"], within=1e-2 + EPOCHS_DIFFER * (asked or 0))
    logger.info("%s is finished; nothing to resume", folder)
    return summary


def _build_parts(
    fabric: lightning.fabric.Fabric,
    begun: _Begun,
    dataset: Dataset,
    folder: Path,
    asked_epochs: int | Literal["auto"] | None,
    quiet: bool,
) -> _Parts:
    """Build all that a process needs before it communicates with the others."""
    start, config = time.perf_counter(), begun.config
    rows = {split: dataset.labeled_rows(split) for split in ("train", "valid")}
    rows["test"] = _test_rows(dataset)
    repeats = dataset.repeats if fabric.is_global_zero else ""  # it reads all molecules
    for finding in filter(None, (*dataset.notices, dataset.failures, repeats)):
        logger.warning("%s: %s", dataset.source, finding)
    targets = _describe_targets(dataset, rows["train"])
    source = None if config.start is None or begun.has_checkpoint else read_start(config.start, dataset)
    torch.manual_seed(config.seed)
    model = build_model(config.model, config.attention, config.model_data(dataset.spec))
    parameters = parameters_by_part(model)
    if config.start is not None and source is not None:
        report = start_from(source, config, model, targets)
        config = dataclasses.replace(config, start=dataclasses.replace(config.start, sha256=report.sha256))
        if not quiet and fabric.is_global_zero:
            logger.warning("%s", report)
    freeze_layers(model, config.training.frozen_layers)
    options = _task_options(config)
    if "teacher" in options:
        options["teacher"] = _read_teacher(config.training.teacher, targets, dataset.spec)
    task = TASKS.build(config.task, model, targets, options=options)
    fixed_shapes = uses_fixed_shapes(config.training.fixed_shapes, task, dataset, fabric.device)
    training = dataclasses.replace(config.training, fixed_shapes=fixed_shapes)
    config = dataclasses.replace(config, training=training)
    batches = TrainingBatches(
        dataset,
        rows["train"],
        config.training,
        config.seed,
        fabric.global_rank,
        fabric.world_size,
        fixed_shapes=fixed_shapes,
    )
    check_pair_memory(model, batches, config, fabric.device)
    if config.training.max_steps is not None:
        asked = _resolved(asked_epochs, len(rows["train"]))
        check_epochs(folder, asked, config.training.max_steps / batches.steps_per_epoch)
    return _Parts(config, rows, task, batches, parameters, start)


def _train_here(
    fabric: lightning.fabric.Fabric, begun: _Begun, parts: _Parts, folder: Path, quiet: bool
) -> dict[str, Any]:
    """Train in one of the processes; all return the same summary."""
    config, rows, start, dataset = parts.config, parts.rows, parts.start, parts.batches.dataset
    stepper = Stepper(fabric, parts.task, config, parts.batches)
    evaluators = _evaluators(fabric, stepper, dataset, rows)
    config = _with_steps(config, stepper, evaluators, len(rows["train"]), start)
    stepper.config = config
    if fabric.is_global_zero:
        write_atomically(folder / DATA, json.dumps(data_identity(dataset), indent=2) + "\n")
        write_atomically(folder / CONFIG, config_to_yaml(config))
    max_steps = config.training.max_steps
    assert max_steps is not None
    trainer = Trainer(stepper, evaluators.valid, folder, max_steps, resume=begun.has_checkpoint, quiet=quiet)
    trainer.fit()
    summary = _summarize(trainer, evaluators, rows, parts.parameters)
    around = time.perf_counter() - start - trainer.session_seconds  # measuring and the final evaluation
    summary["total_seconds"] = round(summary["seconds"] + around, 3)
    if fabric.is_global_zero:
        write_calibration(folder, dataset, fabric.device)
        write_atomically(folder / SUMMARY, to_json(summary))
    fabric.barrier()
    return summary


def _describe_targets(dataset: Dataset, rows: np.ndarray) -> TargetInfo:
    """Describe the targets as the data set states them, or measure them in the training rows."""
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
    taken = takers[config.task]
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(config.training, field.name)
        others = [name for name, options in takers.items() if field.name in options]
        if others and config.task not in others and value != field.default:
            raise MolsliceError(
                f"training.{field.name} is {value!r}, which task {config.task} does not take; it is for "
                f"{', '.join(others)}"
            )
    return {name: getattr(config.training, name) for name in taken}


def _read_teacher(path: str | None, targets: TargetInfo, data: DataSpec) -> nn.Module:
    """Load the teacher of a distillation.

    Raises:
        MolsliceError: The path is missing, is not a run folder, or its data or classes differ.
    """
    if path is None:
        raise MolsliceError("task distillation needs training.teacher, the run folder of a trained model")
    teacher = read_run(path)
    if teacher.data != data or teacher.targets.classes != targets.classes:
        raise MolsliceError(
            f"the teacher {path} was trained on other data: {teacher.data}, classes "
            f"{', '.join(teacher.targets.classes[:5])}; here {data}, classes {', '.join(targets.classes[:5])}"
        )
    return teacher.model


def _test_rows(dataset: Dataset) -> np.ndarray:
    """Return the test rows with known targets, int64 [n]; empty if the test targets are secret."""
    if "test" in dataset.splits and len(dataset.splits["test"]):
        with contextlib.suppress(MolsliceError):
            return dataset.labeled_rows("test")
    logger.warning("%s has no test %s with known targets: no test metric", dataset.source, dataset.row_name)
    return np.empty(0, np.int64)


def _evaluators(
    fabric: lightning.fabric.Fabric, stepper: Stepper, dataset: Dataset, rows: dict[str, np.ndarray]
) -> _Evaluators:
    def build(chosen: np.ndarray) -> Evaluator:
        return Evaluator(fabric, stepper.task, dataset, chosen, stepper.config.training)

    some, few = rows["train"], len(rows["valid"])
    if len(some) > few:
        some = np.sort(np.random.default_rng(stepper.config.seed).choice(some, few, replace=False))
    return _Evaluators(build(some), build(rows["valid"]), build(rows["test"]))


def _with_steps(
    config: RunConfig, stepper: Stepper, evaluators: _Evaluators, train_rows: int, start: float
) -> RunConfig:
    """Return the configuration with epochs or minutes converted to a number of steps."""
    training = config.training
    if training.max_steps is not None:
        return config
    if training.max_epochs is not None:
        epochs = _resolved(training.max_epochs, train_rows)
        assert epochs is not None
        steps = epochs * stepper.batches.steps_per_epoch
    else:
        assert training.max_minutes is not None
        rows = len(evaluators.train.rows) + len(evaluators.test.rows)
        steps = measure_max_steps(stepper, evaluators.valid, training.max_minutes, rows, start)
    fixed = dataclasses.replace(training, max_steps=steps, max_epochs=None, max_minutes=None)
    return dataclasses.replace(config, training=fixed)


def _resolved(epochs: int | Literal["auto"] | None, train_rows: int) -> int | None:
    """Return the number of epochs, for `auto` that of the training rows."""
    return count_epochs(train_rows) if epochs == "auto" else epochs


def _summarize(
    trainer: Trainer, evaluators: _Evaluators, rows: dict[str, np.ndarray], parameters: dict[str, int]
) -> dict[str, Any]:
    """Compute the metrics of the best weights and the cost of the training."""
    progress, config, measures = trainer.progress, trainer.config, trainer.stepper.task.measures
    trainer.fabric.barrier()  # the first process has written the best weights
    best = read_run(trainer.folder / MODEL).model.to(trainer.fabric.device)
    metric = measures[0].metric
    names = {measure.name: measure.name for measure in measures}
    if len({measure.metric for measure in measures}) > 1:
        metric, names = "measure", {measure.name: f"{measure.name}_{measure.metric}" for measure in measures}
    errors = {}
    for split in ("train", "valid", "test"):
        evaluator: Evaluator = getattr(evaluators, split)
        values = None
        if len(evaluator.rows):
            values = {names[name]: value for name, value in evaluator.metrics(best).items()}
        errors[split] = {metric: values, "rows": len(evaluator.rows), "of": len(rows[split])}
    return {
        "metric": metric,
        "units": {names[measure.name]: measure.unit for measure in measures},
        **errors,
        "model": config.model.name,
        "attention": config.attention.name if config.model.uses_attention else None,
        "parameters": parameters["total"],
        "parameters_without_embeddings": parameters["without embeddings"],
        "steps": progress.step,
        "max_steps": trainer.max_steps,
        "epochs": round(progress.epoch + progress.index / trainer.stepper.batches.steps_per_epoch, 3),
        "best_step": progress.best_step,
        "best_epoch": round(progress.best_epoch, 3),
        "seconds": round(progress.seconds, 3),
        "noun": trainer.stepper.batches.dataset.row_name,
        "failed": len(trainer.stepper.batches.dataset.errors),
        "rows_per_second": round(progress.rows / max(progress.seconds, 1e-9), 1),
        "seed": config.seed,
        "device": str(trainer.fabric.device),
        "processes": trainer.fabric.world_size,
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "versions": {
            "molslice": __version__,
            "torch": torch.__version__,
            "lightning": version("lightning"),
        },
    }
