"""The folder of a run: claimed for one process, and continued only with the same settings and data."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from molslice.config import LENGTHS, RunConfig, config_to_mapping, load_config
from molslice.config.settings import EPOCHS_DIFFER
from molslice.data.base import Dataset
from molslice.data.checksums import changed_parts, data_identity
from molslice.files.atomic import SUFFIX, no_empty_folders, remove_stale
from molslice.files.lock import LOCK, lock_folder
from molslice.files.parsing import read_json_object
from molslice.folders.run import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    LAST_CHECKPOINT,
    SUMMARY,
    SUMMARY_KINDS,
    read_summary,
)
from molslice.training.duration import resolve_epochs
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

# settings that may change when a run is resumed: where it computes, not what
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
class EarlierStart:
    """What an earlier start of a run has left in its folder."""

    config: RunConfig  # with what was resolved at the first start
    has_checkpoint: bool = False
    summary: dict[str, Any] | None = None  # of a finished run


def read_earlier_start(config: RunConfig, folder: Path) -> EarlierStart:
    """Read what an earlier start has left in the folder of a resumed run."""
    config, summary = as_begun(config, folder), None
    if (folder / SUMMARY).is_file():
        summary = read_summary(folder)
        if missing := SUMMARY_KINDS.keys() - summary.keys():
            raise MolsliceError(f"cannot read {folder / SUMMARY}: no {', '.join(sorted(missing))}")
    return EarlierStart(config, (folder / LAST_CHECKPOINT).is_file(), summary)


def check_finished(
    summary: dict[str, Any], folder: Path, epochs: int | Literal["auto"] | None
) -> dict[str, Any]:
    """Return the summary of a finished run; refuse another number of epochs, None for another length."""
    if summary["steps"] == summary["max_steps"]:
        rows = summary["train"]["of"]
        # epochs differ a little in their number of batches
        within = 1e-2 + EPOCHS_DIFFER * (resolve_epochs(epochs, rows) or 0)
        check_epochs(folder, epochs, rows, summary["epochs"], within)
    logger.info("%s is finished; nothing to resume", folder)
    return summary


def check_data(folder: Path, dataset: Dataset) -> None:
    """Refuse to continue a run on data that have changed since its start, and name the changed parts."""
    if not (folder / DATA).is_file():
        return
    changed = changed_parts(read_json_object(folder / DATA), data_identity(dataset))
    if changed:
        raise MolsliceError(
            f"the data of the run in {folder} have changed since its start: {', '.join(changed)} of "
            f"{dataset.source}. Continue with the original data, or train in another folder"
        )


@contextlib.contextmanager
def claimed(folder: Path, resume: bool) -> Iterator[None]:
    """Make the folder and hold its lock; refuse a folder whose content would be lost."""
    with no_empty_folders(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if folder.exists():
                raise MolsliceError(f"{folder} is a file; a run needs a folder") from error
            raise MolsliceError(f"cannot make the run folder {folder}: {error.strerror}") from error
        with lock_folder(folder):
            for place in (folder, folder / CHECKPOINTS):
                remove_stale(place)  # left by a kill during writing
            _refuse_foreign(folder, resume)
            try:
                (folder / CHECKPOINTS).mkdir(exist_ok=True)
            except OSError as error:
                raise MolsliceError(f"cannot make the run folder {folder}: {error.strerror}") from error
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # empty after a start that failed on its data
                    (folder / CHECKPOINTS).rmdir()


def _refuse_foreign(folder: Path, resume: bool) -> None:
    # a start that failed on its data leaves an empty folder of checkpoints, which may be replaced
    if not resume and any(not _is_empty_start(path) for path in folder.iterdir()):
        raise MolsliceError(
            f"{folder} is not empty; choose another folder, remove it, or continue its run with --resume"
        )
    # a run that was killed while measuring its speed leaves an empty folder of checkpoints
    names = {path.name for path in folder.iterdir() if not path.name.endswith(SUFFIX)}
    foreign = not names <= {CHECKPOINTS, DATA, LOCK}
    if resume and foreign and not (folder / CONFIG).is_file():
        raise MolsliceError(f"{folder} is not a run folder (it has no {CONFIG}); nothing to resume there")


def _is_empty_start(path: Path) -> bool:
    left = path.name == CHECKPOINTS and path.is_dir() and not any(path.iterdir())
    return left or path.name == LOCK or path.name.endswith(SUFFIX)


def as_begun(config: RunConfig, folder: Path) -> RunConfig:
    """Return the configuration with the number of steps and the kind of batches of the run's start.

    Raises:
        MolsliceError: The run in the folder has another configuration.
    """
    if not (folder / CONFIG).is_file():
        return config
    begun = load_config(folder / CONFIG)
    if begun.training.fixed_shapes is None:  # the run of a version without them
        begun = begun.with_training(fixed_shapes=False)
    minutes = config.training.max_minutes
    if config.training.fixed_shapes is None:
        config = config.with_training(fixed_shapes=begun.training.fixed_shapes)
    if config.training.max_steps is None:
        config = config.with_training(**{name: getattr(begun.training, name) for name in LENGTHS})
    start, source = config.start, begun.start
    if start is not None and source is not None and start.sha256 is None:
        # the checksum is recorded when the run starts
        config = dataclasses.replace(config, start=dataclasses.replace(start, sha256=source.sha256))
    now, then = _flat(config_to_mapping(config)), _flat(config_to_mapping(begun))
    changed = [
        f"{key} is {now.get(key)!r}, was {then.get(key)!r}"
        for key in sorted(now.keys() | then.keys())
        if now.get(key) != then.get(key) and key not in MAY_DIFFER
    ]
    if changed:
        raise MolsliceError(
            f"the run in {folder} was started with another configuration: {'; '.join(changed)}. "
            f"Resume it with its own (--config {folder / CONFIG}), or train in another folder"
        )
    steps = config.training.max_steps
    if minutes is not None and steps is not None:
        logger.warning(
            "%s: the run continues to the %s steps that were set at its start, without training.max_minutes",
            folder,
            f"{steps:,}",
        )
    return config


def check_epochs(
    folder: Path, epochs: int | Literal["auto"] | None, rows: int, begun: float, within: float = 1e-2
) -> None:
    """Refuse another number of epochs than `begun` at the start, because the schedule depends on it.

    `epochs` is None if the run is resumed with another length.
    """
    asked = resolve_epochs(epochs, rows)
    if asked is not None and abs(begun - asked) > within:
        raise MolsliceError(
            f"the run in {folder} was started with {begun:g} epochs, not {asked}; train in another folder "
            "for another number of epochs"
        )


def _flat(mapping: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return flat
