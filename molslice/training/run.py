"""One run: from a configuration to a run folder with a trained model and its errors."""

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

import molslice
from molslice.config import LENGTHS, RunConfig, TrainingConfig, config_to_mapping, config_to_yaml, load_config
from molslice.data import build_dataset
from molslice.data.base import Dataset
from molslice.inference.json_text import to_json
from molslice.inference.run_folder import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    SUMMARY,
    read_run,
    write_atomically,
)
from molslice.model.build import build_model
from molslice.model.count import parameters_by_part
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.metrics import METRIC_NAMES
from molslice.training.batches import TrainingBatches
from molslice.training.budget import measure_max_steps
from molslice.training.fabric import build_fabric, quiet_lightning
from molslice.training.loop import Loop, Run
from molslice.training.validation import Evaluator
from molslice.types import DataSpec, MolsliceError

logger = logging.getLogger(__name__)

TASK_SETTINGS = ("loss", "label_smoothing", "teacher")
# what may change between the parts of a resumed run: where it computes, not what
MAY_DIFFER = (
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.num_threads",
    "training.checkpoint_every_steps",
    "training.compile",
)


@dataclass(frozen=True, slots=True)
class _Evaluators:
    train: Evaluator  # at most as many rows as valid, drawn by the seed
    valid: Evaluator
    test: Evaluator


def train(config: RunConfig, out: Path | str, *, resume: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Train, evaluate the best averaged weights, and return what `summary.json` holds.

    The folder `out` must be new or empty, unless `resume`: then the run that was begun there goes on and
    ends with the weights of one that was never stopped (bit for bit on a CPU). `quiet` hides the bar.

    Raises:
        MolsliceError: a configuration, data or folder that cannot be used, or a loss that is not finite.
        KeyboardInterrupt: stopped by Ctrl-C or a termination signal; the message says how to go on.
    """
    folder = Path(out)
    with quiet_lightning():
        fabric = build_fabric(config.trainer)
        TASKS.find(config.task)
        if fabric.is_global_zero:
            _claim(folder, resume)
        asked = config.training.max_epochs if resume else None
        if resume:
            config = _as_begun(config, folder)
            if (folder / SUMMARY).is_file():
                summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
                if summary["steps"] == summary["max_steps"]:
                    _check_epochs(folder, asked, summary["epochs"])
                logger.info("%s is finished; nothing to resume", folder)
                return summary
        if config.trainer.num_threads is not None:
            torch.set_num_threads(config.trainer.num_threads)
        # before the processes start: the first one prepares the data, the others find it prepared
        dataset = build_dataset(config.data.name, dict(config.data.options))
        fabric.launch()
        if config.trainer.num_threads is not None:
            torch.set_num_threads(config.trainer.num_threads)
        return _train_here(fabric, config, dataset, folder, resume, quiet, asked)


def _train_here(
    fabric: lightning.fabric.Fabric,
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    resume: bool,
    quiet: bool,
    asked_epochs: int | None,
) -> dict[str, Any]:
    """On one of the processes; all return the same."""
    start = time.perf_counter()
    rows = {split: dataset.labeled_rows(split) for split in ("train", "valid")}
    rows["test"] = _test_rows(dataset)
    if dataset.failures:
        logger.warning("%s: %s", dataset.source, dataset.failures)
    known = np.asarray(dataset.targets[rows["train"]])
    targets = TargetInfo.of_training(
        dataset.target_names, dataset.target_units, dataset.kind, known, dataset.class_names
    )
    torch.manual_seed(config.seed)
    model = build_model(config.model, config.attention, dataset.spec)
    parameters = parameters_by_part(model)
    options = _task_options(config)
    if "teacher" in options:
        options["teacher"] = _read_teacher(config.training.teacher, targets, dataset.spec)
    task = TASKS.build(config.task, model, targets, options=options)
    batches = TrainingBatches(
        dataset, rows["train"], config.training, config.seed, fabric.global_rank, fabric.world_size
    )
    if config.training.max_steps is not None:
        _check_epochs(folder, asked_epochs, config.training.max_steps / batches.steps_per_epoch)
    loop = Loop(fabric, task, config, batches)
    evaluators = _evaluators(fabric, loop, dataset, rows)
    config = _with_steps(config, loop, evaluators, start)
    loop.config = config
    if fabric.is_global_zero:
        write_atomically(folder / CONFIG, config_to_yaml(config))
    max_steps = config.training.max_steps
    assert max_steps is not None
    run = Run(loop, evaluators.valid, folder, max_steps, resume=resume, quiet=quiet)
    run.go()
    summary = _summarize(run, evaluators, rows, parameters)
    around = time.perf_counter() - start - run.session_seconds  # measuring and the last evaluation
    summary["total_seconds"] = round(summary["seconds"] + around, 3)
    if fabric.is_global_zero:
        write_atomically(folder / SUMMARY, to_json(summary))
    fabric.barrier()
    return summary


def _task_options(config: RunConfig) -> dict[str, Any]:
    """The settings of `training` that are the task's own.

    Raises:
        MolsliceError: one of another task is set, which would change nothing.
    """
    taken = TASKS.options(config.task)
    for field in dataclasses.fields(TrainingConfig):
        value = getattr(config.training, field.name)
        if field.name in TASK_SETTINGS and field.name not in taken and value != field.default:
            raise MolsliceError(
                f"training.{field.name} is {value!r}, which the task {config.task} does not take; it is for "
                f"{', '.join(task for task in TASKS.names() if field.name in TASKS.options(task))}"
            )
    return {name: getattr(config.training, name) for name in taken}


def _read_teacher(path: str | None, targets: TargetInfo, data: DataSpec) -> nn.Module:
    """The trained model that another one learns from.

    Raises:
        MolsliceError: no path or no model there, or one of other data or classes.
    """
    if path is None:
        raise MolsliceError("the task distillation needs training.teacher, the run folder of a trained model")
    teacher = read_run(path)
    if teacher.data != data or teacher.targets.classes != targets.classes:
        raise MolsliceError(
            f"the teacher {path} was trained on other data: {teacher.data}, classes "
            f"{', '.join(teacher.targets.classes[:5])}; here {data}, classes {', '.join(targets.classes[:5])}"
        )
    return teacher.model


def _test_rows(dataset: Dataset) -> np.ndarray:
    """Those whose targets are known: none for a data set that keeps the targets of its test split."""
    if "test" in dataset.splits and len(dataset.splits["test"]):
        with contextlib.suppress(MolsliceError):
            return dataset.labeled_rows("test")
    logger.warning("%s has no test %s with known targets: no test error", dataset.source, dataset.noun)
    return np.empty(0, np.int64)


def _claim(folder: Path, resume: bool) -> None:
    """Make the folder, and refuse one that would lose something."""
    if folder.exists() and not folder.is_dir():
        raise MolsliceError(f"{folder} is a file; a run needs a folder")
    # a start that failed on its data has left an empty folder of checkpoints: nothing that could be lost
    if not resume and folder.is_dir() and any(not _is_empty_start(path) for path in folder.iterdir()):
        raise MolsliceError(
            f"{folder} is not empty; choose another folder, remove it, or continue its run with --resume"
        )
    # a run that was killed while it measured its speed has left an empty folder of checkpoints
    foreign = folder.is_dir() and not {path.name for path in folder.iterdir()} <= {CHECKPOINTS}
    if resume and foreign and not (folder / CONFIG).is_file():
        raise MolsliceError(f"{folder} is not a run folder (it has no {CONFIG}); nothing to resume there")
    try:
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for torn in (*folder.glob(".*.tmp"), *(folder / CHECKPOINTS).glob(".*.tmp")):
            torn.unlink()  # a kill in the middle of writing left it
    except OSError as error:
        raise MolsliceError(f"cannot make the run folder {folder}: {error.strerror}") from error


def _is_empty_start(path: Path) -> bool:
    return path.name == CHECKPOINTS and path.is_dir() and not any(path.iterdir())


def _as_begun(config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with the number of steps that the run was begun with.

    Raises:
        MolsliceError: the configuration asks for another run than the one in the folder.
    """
    if not (folder / CONFIG).is_file():
        return config
    begun = load_config(folder / CONFIG)
    training = config.training
    if training.max_steps is None:
        lengths = {name: getattr(begun.training, name) for name in LENGTHS}
        config = dataclasses.replace(config, training=dataclasses.replace(training, **lengths))
    now, then = _flat(config_to_mapping(config)), _flat(config_to_mapping(begun))
    changed = [
        f"{key} is {now.get(key)!r}, was {then.get(key)!r}"
        for key in sorted(now.keys() | then.keys())
        if now.get(key) != then.get(key) and key not in MAY_DIFFER
    ]
    if changed:
        raise MolsliceError(
            f"the run in {folder} was begun with another configuration: {'; '.join(changed)}. "
            f"Resume it with its own (--config {folder / CONFIG}), or train in another folder"
        )
    return config


def _check_epochs(folder: Path, asked: int | None, begun: float) -> None:
    """A run ends where it was begun to end: its schedule depends on it."""
    if asked is not None and abs(begun - asked) > 1e-2:
        raise MolsliceError(
            f"the run in {folder} was begun with {begun:g} epochs, asked for are {asked}: a longer or "
            "shorter training is another run, in another folder"
        )


def _flat(mapping: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return flat


def _evaluators(
    fabric: lightning.fabric.Fabric, loop: Loop, dataset: Dataset, rows: dict[str, np.ndarray]
) -> _Evaluators:
    def build(chosen: np.ndarray) -> Evaluator:
        return Evaluator(fabric, loop.task, dataset, chosen, loop.config.training)

    some, few = rows["train"], len(rows["valid"])
    if len(some) > few:
        some = np.sort(np.random.default_rng(loop.config.seed).choice(some, few, replace=False))
    return _Evaluators(build(some), build(rows["valid"]), build(rows["test"]))


def _with_steps(config: RunConfig, loop: Loop, evaluators: _Evaluators, start: float) -> RunConfig:
    """The configuration with epochs or minutes turned into a number of steps."""
    training = config.training
    if training.max_steps is not None:
        return config
    if training.max_epochs is not None:
        steps = training.max_epochs * loop.batches.steps_per_epoch
    else:
        assert training.max_minutes is not None
        rows = len(evaluators.train.rows) + len(evaluators.test.rows)
        steps = measure_max_steps(loop, evaluators.valid, training.max_minutes, rows, start)
    fixed = dataclasses.replace(training, max_steps=steps, max_epochs=None, max_minutes=None)
    return dataclasses.replace(config, training=fixed)


def _summarize(
    run: Run, evaluators: _Evaluators, rows: dict[str, np.ndarray], parameters: dict[str, int]
) -> dict[str, Any]:
    """The errors of the best weights, and what they cost."""
    progress, config, targets = run.progress, run.config, run.loop.task.targets
    run.fabric.barrier()  # the first process has written the best weights
    best = read_run(run.folder / MODEL).model.to(run.fabric.device)
    metric = METRIC_NAMES[targets.kind]
    errors = {}
    for split in ("train", "valid", "test"):
        evaluator: Evaluator = getattr(evaluators, split)
        values = evaluator.metrics(best) if len(evaluator.rows) else None
        errors[split] = {metric: values, "rows": len(evaluator.rows), "of": len(rows[split])}
    return {
        "metric": metric,
        "units": dict(zip(targets.names, targets.units, strict=True)),
        **errors,
        "model": config.model.name,
        "attention": config.attention.name if config.model.name != "gin_virtual" else None,
        "parameters": parameters["total"],
        "parameters_without_embeddings": parameters["without embeddings"],
        "steps": progress.step,
        "max_steps": run.max_steps,
        "epochs": round(progress.epoch + progress.index / run.loop.batches.steps_per_epoch, 3),
        "best_step": progress.best_step,
        "best_epoch": round(progress.best_epoch, 3),
        "seconds": round(progress.seconds, 3),
        "noun": run.loop.batches.dataset.noun,
        "failed": len(run.loop.batches.dataset.errors),
        "rows_per_second": round(progress.rows / max(progress.seconds, 1e-9), 1),
        "seed": config.seed,
        "device": str(run.fabric.device),
        "processes": run.fabric.world_size,
        "threads": torch.get_num_threads(),
        "precision": config.trainer.precision,
        "versions": {
            "molslice": molslice.__version__,
            "torch": torch.__version__,
            "lightning": version("lightning"),
        },
    }
