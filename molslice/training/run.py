"""One run: from a configuration to a run folder with a trained model and its metrics."""

import contextlib
import dataclasses
import json
import logging
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning.fabric
import numpy as np
import torch
from torch import nn

from molslice.config import RunConfig, TrainingConfig, config_to_yaml
from molslice.data import build_dataset
from molslice.data.base import Dataset
from molslice.data.checksums import data_identity
from molslice.files.atomic import write_atomically
from molslice.files.progress import hidden_progress
from molslice.folders.run import CONFIG, DATA, MODEL, SUMMARY, read_run
from molslice.inference.held_out import write_calibration
from molslice.inference.json_text import to_json
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.model.layer_depth import freeze_layers
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import Task
from molslice.training.batches import TrainingBatches
from molslice.training.continuation import (
    EarlierStart,
    check_data,
    check_epochs,
    check_finished,
    claimed,
    read_earlier_start,
)
from molslice.training.duration import measure_max_steps, resolve_epochs
from molslice.training.fabric import build_fabric, quiet_lightning
from molslice.training.memory_check import check_pair_memory
from molslice.training.processes import agreed, launched, starts_processes, was_restarted
from molslice.training.start import StartSource, read_start, start_from
from molslice.training.step_graphs import uses_fixed_shapes
from molslice.training.stepper import Stepper
from molslice.training.threads import limit_threads
from molslice.training.trainer import Trainer
from molslice.training.validation import Evaluator
from molslice.types import DataSpec, MolsliceError
from molslice.version import __version__

logger = logging.getLogger(__name__)


def train(
    config: RunConfig,
    out: Path | str,
    *,
    resume: bool = False,
    quiet: bool = False,
    dataset: Dataset | None = None,
) -> dict[str, Any]:
    """Train a model, evaluate its best weights and write a run folder.

    A resumed run ends with the same weights as an uninterrupted one (bit for bit on a CPU).

    Args:
        config: The configuration.
        out: The run folder. It must be new or empty unless `resume` is true.
        resume: Whether to continue the run in `out`, with the configuration of its start. A process that
            `torchrun` or SLURM has started again always continues it.
        quiet: Whether to hide the progress bar.
        dataset: The data, if they are in memory; None reads them as `config.data` says.

    Returns:
        The content of `summary.json`.

    Raises:
        MolsliceError: The configuration, the data or the folder is invalid, or the loss is not finite.
        KeyboardInterrupt: Stopped by Ctrl-C or a signal. The message says how to resume.
    """
    folder, resume = Path(out), resume or was_restarted()
    epochs = config.training.max_epochs if resume else None
    with quiet_lightning(), contextlib.ExitStack() as exits:
        fabric = build_fabric(config.trainer)
        exits.enter_context(hidden_progress(quiet or not fabric.is_global_zero))
        TASKS.find(config.task)
        limit_threads(config.trainer.num_threads, fabric.device)
        earlier = None
        is_first = fabric.world_size == 1 or (starts_processes(fabric) and config.trainer.num_nodes == 1)
        if fabric.is_global_zero and is_first:  # the others are started after it, and load what it prepares
            earlier, dataset = _open_folder(config, folder, resume, exits, dataset)
            if earlier.summary is not None:
                return check_finished(earlier.summary, folder, epochs)
        with launched(fabric):
            limit_threads(config.trainer.num_threads, fabric.device)
            with agreed(fabric):
                if fabric.is_global_zero and earlier is None:
                    earlier, dataset = _open_folder(config, folder, resume, exits, dataset)
            earlier = fabric.broadcast(earlier)
            assert earlier is not None
            if earlier.summary is not None:
                return check_finished(earlier.summary, folder, epochs)
            start = time.perf_counter()
            with agreed(fabric):
                dataset = dataset or build_dataset(config.data.name, dict(config.data.options))
                _log_notices(dataset, fabric)
                _log_device(config, fabric)
                plan = _plan(earlier.config, dataset, fabric, has_checkpoint=earlier.has_checkpoint)
                if earlier.config.training.max_steps is not None:
                    begun = earlier.config.training.max_steps / plan.batches.steps_per_epoch
                    check_epochs(folder, epochs, len(plan.rows["train"]), begun)
                task = _build_task(plan, show_start=fabric.is_global_zero and not quiet)
                check_pair_memory(task.model, plan.batches, plan.config, fabric.device)
            stepper = Stepper(fabric, task, plan.config, plan.batches)
            evaluators = _build_evaluators(stepper, plan)
            config = plan.config
            if (minutes := config.training.max_minutes) is not None:
                at_the_end = len(evaluators["train"].rows) + len(evaluators["test"].rows)
                steps = measure_max_steps(stepper, evaluators["valid"], minutes, at_the_end, start)
                config = _with_steps(config, steps)
            if fabric.is_global_zero:
                _warn_of_long_warmup(config)
                write_atomically(folder / DATA, json.dumps(data_identity(dataset), indent=2) + "\n")
                write_atomically(folder / CONFIG, config_to_yaml(config))
            trainer = Trainer(
                stepper, evaluators["valid"], folder, config, resume=earlier.has_checkpoint, quiet=quiet
            )
            try:
                trainer.fit()
            finally:
                stepper.free_device()
            return _finish(trainer, evaluators, plan, start)


def _open_folder(
    config: RunConfig, folder: Path, resume: bool, exits: contextlib.ExitStack, dataset: Dataset | None
) -> tuple[EarlierStart, Dataset | None]:
    """Claim the folder until `exits` closes, and load data that are not given unless the run is finished."""
    exits.enter_context(claimed(folder, resume))
    earlier = read_earlier_start(config, folder) if resume else EarlierStart(config)
    if earlier.summary is not None:
        return earlier, None
    dataset = dataset or build_dataset(config.data.name, dict(config.data.options))
    check_data(folder, dataset)
    return earlier, dataset


def _log_notices(dataset: Dataset, fabric: lightning.fabric.Fabric) -> None:
    repeats = dataset.repeats if fabric.is_global_zero else ""  # it reads all molecules
    for notice in filter(None, (*dataset.notices, dataset.failures, repeats)):
        logger.warning("%s: %s", dataset.source, notice)


def _log_device(config: RunConfig, fabric: lightning.fabric.Fabric) -> None:
    """Name a GPU that was found, after the data are read: naming it starts CUDA."""
    if config.trainer.accelerator == "auto" and fabric.device.type == "cuda" and fabric.is_global_zero:
        name = torch.cuda.get_device_name(fabric.device)
        logger.warning("device: cuda (%s); trainer.accelerator cpu trains without it", name)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a run computes, resolved before a model is built."""

    config: RunConfig  # its length is in steps, or in minutes that are still to be measured
    rows: dict[str, np.ndarray]  # with known targets, of `train`, `valid` and `test`, int64 [n] each
    targets: TargetInfo
    batches: TrainingBatches
    task_options: dict[str, Any]  # the settings of `training` that the task takes
    source: StartSource | None  # the trained model to start from; None for random weights or a checkpoint


def _plan(
    config: RunConfig, dataset: Dataset, fabric: lightning.fabric.Fabric, *, has_checkpoint: bool
) -> _Plan:
    """Resolve all that can be known before a model is built; with a checkpoint, `start` is not read."""
    rows = {split: dataset.labeled_rows(split) for split in ("train", "valid")}
    rows["test"] = _test_rows(dataset)
    task_options = _task_options(config)
    targets = _describe_targets(dataset, rows["train"])
    source = None if config.start is None or has_checkpoint else read_start(config.start, dataset)
    if config.start is not None and source is not None:
        config = dataclasses.replace(config, start=dataclasses.replace(config.start, sha256=source.sha256))
    fixed_shapes = uses_fixed_shapes(config, dataset, fabric.device)
    config = config.with_training(fixed_shapes=fixed_shapes)
    share = fabric.global_rank, fabric.world_size
    batches = TrainingBatches(
        dataset,
        rows["train"],
        config.training,
        config.seed,
        *share,
        fixed_shapes=fixed_shapes,
        mix_lengths=config.mixes_lengths,
    )
    epochs = resolve_epochs(config.training.max_epochs, len(rows["train"]))
    if epochs is not None:
        config = _with_steps(config, epochs * batches.steps_per_epoch)
    return _Plan(config, rows, targets, batches, task_options, source)


def _warn_of_long_warmup(config: RunConfig) -> None:
    warmup, steps = config.optimizer.warmup_steps, config.training.max_steps
    if warmup is not None and steps is not None and warmup >= steps:
        logger.warning(
            "optimizer.warmup_steps is %d, but the training has %d steps: the learning rate never reaches "
            "optimizer.lr",
            warmup,
            steps,
        )


def _with_steps(config: RunConfig, steps: int) -> RunConfig:
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
    """Describe the targets as the data set states them, or measure them in the training rows."""
    if dataset.spec.tokens == "molecules" and dataset.class_names:
        raise MolsliceError(
            f"{dataset.source} has {len(dataset.class_names)} classes; networks of molecules learn numbers "
            "and two classes, and molslice fit learns several"
        )
    if dataset.kind == "mixed":
        raise MolsliceError(
            f"the targets of {dataset.source} are of several kinds; networks learn one kind, and "
            "molslice fit learns several"
        )
    stated = dataset.stated_targets
    if stated is not None:
        return TargetInfo.from_mapping(stated)
    known = np.asarray(dataset.targets[rows])
    return TargetInfo.of_training(
        dataset.target_names, dataset.target_units, dataset.kind, known, dataset.class_names
    )


def _task_options(config: RunConfig) -> dict[str, Any]:
    """Return the settings of `training` that the task takes; refuse settings of other tasks."""
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


def _build_task(plan: _Plan, *, show_start: bool) -> Task:
    """Build the model with its initial weights and its loss."""
    config, data = plan.config, plan.batches.dataset.spec
    model_data = config.model_data(data)
    _refuse_unused_geometry(config, data, model_data)
    torch.manual_seed(config.seed)
    model = build_model(config.model, config.attention, model_data)
    if plan.source is not None:
        report = start_from(plan.source, config, model, plan.targets)
        if show_start:
            logger.warning("%s", report)
    freeze_layers(model, config.training.frozen_layers)
    options = dict(plan.task_options)
    if "teacher" in options:
        options["teacher"] = _read_teacher(options["teacher"], plan.targets, data)
    return TASKS.build(config.task, model, plan.targets, options=options)


def _refuse_unused_geometry(config: RunConfig, data: DataSpec, model_data: DataSpec) -> None:
    """Refuse settings of a geometry that is not there or that the model does not learn."""
    weight = config.training.distance_weight
    defaults = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
    if weight != defaults["distance_weight"] and not data.has_geometry:
        raise MolsliceError(f"training.distance_weight is {weight}, but the data have no geometry")
    # a prepared store may have one for other models
    if config.data.options.get("geometry") and not model_data.has_geometry:
        raise MolsliceError(
            f"data.geometry has no effect on the model {config.model.name} with the task {config.task}; only "
            "graphormer with the task molecule learns distances"
        )


def _read_teacher(path: str | None, targets: TargetInfo, data: DataSpec) -> nn.Module:
    """Load the teacher of a distillation, which was trained on the same kind of data and classes."""
    if path is None:
        raise MolsliceError("task distillation needs training.teacher, the run folder of a trained model")
    teacher = read_run(path)
    if teacher.data != data or teacher.targets.classes != targets.classes:
        raise MolsliceError(
            f"the teacher {path} was trained on other data: {teacher.data}, classes "
            f"{', '.join(teacher.targets.classes[:5])}; here {data}, classes {', '.join(targets.classes[:5])}"
        )
    return teacher.model


def _build_evaluators(stepper: Stepper, plan: _Plan) -> dict[str, Evaluator]:
    """Return the evaluator of each split; for `train` of at most as many rows as `valid`."""
    rows, few = dict(plan.rows), len(plan.rows["valid"])
    if len(rows["train"]) > few:
        generator = np.random.default_rng(plan.config.seed)
        rows["train"] = np.sort(generator.choice(rows["train"], few, replace=False))
    dataset, training = plan.batches.dataset, plan.config.training
    return {
        split: Evaluator(stepper.fabric, stepper.task, dataset, chosen, training)
        for split, chosen in rows.items()
    }


def _finish(trainer: Trainer, evaluators: dict[str, Evaluator], plan: _Plan, start: float) -> dict[str, Any]:
    """Evaluate the best weights and write the summary; all processes return it."""
    fabric, folder = trainer.fabric, trainer.folder
    summary = _summarize(trainer, evaluators, plan)
    around = time.perf_counter() - start - trainer.session_seconds  # measuring and the final evaluation
    summary["total_seconds"] = round(summary["seconds"] + around, 3)
    if fabric.is_global_zero:
        write_calibration(folder, plan.batches.dataset, fabric.device)
        write_atomically(folder / SUMMARY, to_json(summary))
    fabric.barrier()
    return summary


def _summarize(trainer: Trainer, evaluators: dict[str, Evaluator], plan: _Plan) -> dict[str, Any]:
    """Compute the metrics of the best weights and the cost of the training."""
    fabric, progress, config = trainer.fabric, trainer.progress, trainer.config
    dataset, measures = plan.batches.dataset, trainer.stepper.task.measures
    fabric.barrier()  # the first process has written the best weights
    best = read_run(trainer.folder / MODEL).model.to(fabric.device)
    parameters = parameters_by_part(best)
    metric = measures[0].metric
    names = {measure.name: measure.name for measure in measures}
    if len({measure.metric for measure in measures}) > 1:
        metric, names = "measure", {measure.name: f"{measure.name}_{measure.metric}" for measure in measures}
    errors = {}
    for split, evaluator in evaluators.items():
        values = None
        if len(evaluator.rows):
            values = {names[name]: value for name, value in evaluator.metrics(best).items()}
        errors[split] = {metric: values, "rows": len(evaluator.rows), "of": len(plan.rows[split])}
    return {
        "metric": metric,
        "units": {names[measure.name]: measure.unit for measure in measures},
        **errors,
        "model": config.model.name,
        "attention": config.attention.name if config.model.uses_attention else None,
        "parameters": parameters["total"],
        "parameters_without_embeddings": parameters["without embeddings"],
        "steps": progress.step,
        "max_steps": config.training.max_steps,
        "epochs": round(progress.epoch + progress.index / plan.batches.steps_per_epoch, 3),
        "best_step": progress.best_step,
        "best_epoch": round(progress.best_epoch, 3),
        "seconds": round(progress.seconds, 3),
        "noun": dataset.row_name,
        "failed": len(dataset.errors),
        "rows_per_second": round(progress.rows / max(progress.seconds, 1e-9), 1),
        "seed": config.seed,
        "device": str(fabric.device),
        "processes": fabric.world_size,
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "versions": {
            "molslice": __version__,
            "torch": torch.__version__,
            "lightning": version("lightning"),
        },
    }
