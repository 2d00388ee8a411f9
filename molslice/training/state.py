"""The checkpoint of a run, with all that is needed to continue after a kill."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from molslice.files.atomic import atomic_file
from molslice.types import MolsliceError


@dataclass(slots=True)
class Progress:
    """The position of a run, in plain numbers.

    Attributes:
        step: Number of finished steps.
        epoch: The epoch of the next batch.
        index: The index of the next batch within its epoch.
        rows: Number of rows trained on.
        seconds: Time of training and validation in seconds.
        loss_sum: Sum of the losses since the last validation.
        loss_steps: Number of losses in the sum.
        validation_due: Whether the validation after the last step is still to be done.
        validated_step: The step of the last validation.
        best_score: The best score so far; None without a finite score.
        best_step: The step of the best score.
        best_epoch: The epoch of the best score, with a fraction.
        best_metrics: The metrics at the best score.
        validations_without_better: Number of validations since the best score.
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    rows: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0
    validation_due: bool = False
    validated_step: int = 0
    best_score: float | None = None
    best_step: int = 0
    best_epoch: float = 0.0
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    validations_without_better: int = 0


def save_checkpoint(path: Path, tensors: Mapping[str, Any], progress: Progress) -> None:
    """Write a checkpoint atomically: after a kill, either the previous one or this one exists.

    Args:
        path: The file.
        tensors: The state of `Stepper.tensors`.
        progress: The position of the run.

    Raises:
        MolsliceError: The file cannot be written.
    """
    try:
        with atomic_file(path) as file:
            torch.save({**tensors, "progress": dataclasses.asdict(progress)}, file)
    except RuntimeError as error:  # torch raises it when the stream cannot be written
        raise MolsliceError(f"cannot write {path}: {error}") from error


def load_checkpoint(path: Path) -> tuple[dict[str, Any], Progress]:
    """Read a checkpoint without running code from the file.

    Args:
        path: The file.

    Returns:
        The state for `Stepper.load_tensors` and the position of the run.

    Raises:
        MolsliceError: The file is damaged or not a checkpoint of this package.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        progress = Progress(**content.pop("progress"))
    except Exception as error:  # noqa: BLE001 - errors of damaged files have no common base
        raise unreadable_checkpoint(path, error) from error
    for name, kind in typing.get_type_hints(Progress).items():
        value = getattr(progress, name)
        if not isinstance(value, dict if typing.get_origin(kind) is dict else kind | int):
            raise MolsliceError(f"cannot read checkpoint {path}: {name} is {value!r:.80}")
    return content, progress


def unreadable_checkpoint(path: Path, error: Exception) -> MolsliceError:
    """Create the error for a checkpoint that is damaged or does not fit the run.

    Args:
        path: The file.
        error: The error of loading it.
    """
    reason = " ".join(str(error).split())[:300]
    return MolsliceError(f"cannot read checkpoint {path}: {type(error).__name__}: {reason}")
