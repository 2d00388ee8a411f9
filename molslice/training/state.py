"""The checkpoint of a run, with all that is needed to continue after a kill."""

import dataclasses
import math
import pickle
import typing
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from molslice.files.atomic import atomic_file
from molslice.types import MolsliceError

AT_MOST_STEPS = ("epoch", "index", "loss_steps", "validated_step", "best_step", "validations_without_better")


@dataclass(slots=True)
class Progress:
    """The position of a run, in plain numbers."""

    step: int = 0  # number of finished steps
    epoch: int = 0  # of the next batch
    index: int = 0  # of the next batch within its epoch
    rows: int = 0  # number of rows trained on
    seconds: float = 0.0  # of training and validation
    loss_sum: float = 0.0  # since the last validation
    loss_steps: int = 0  # number of losses in the sum
    validation_due: bool = False  # whether the validation after the last step is still to be done
    validated_step: int = 0  # step of the last validation
    best_score: float | None = None  # None without a finite score
    best_step: int = 0
    best_epoch: float = 0.0  # with a fraction
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    validations_without_better: int = 0  # since the best score


def save_checkpoint(path: Path, tensors: Mapping[str, Any], progress: Progress) -> None:
    """Write a checkpoint atomically: after a kill, either the previous one or this one exists.

    Raises:
        MolsliceError: The file cannot be written.
    """
    try:
        with atomic_file(path) as file:
            torch.save({**tensors, "progress": dataclasses.asdict(progress)}, file)
    except RuntimeError as error:  # torch raises it after the error of the stream
        cause = error.__context__
        reason = cause.strerror if isinstance(cause, OSError) else error
        raise MolsliceError(f"cannot write {path}: {reason}") from error


def load_checkpoint(path: Path) -> tuple[dict[str, Any], Progress]:
    """Read the tensors for `Stepper.load_tensors` and the position of a run; no code in the file is run.

    Raises:
        MolsliceError: The file is damaged or not a checkpoint of this package.
    """
    try:
        if zipfile.is_zipfile(path):  # torch names another file
            with zipfile.ZipFile(path) as archive:
                if (name := archive.testzip()) is not None:  # `torch.load` ignores checksums
                    raise MolsliceError(f"{name} does not match its checksum")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice about a pickle of another program
            content = torch.load(path, map_location="cpu", weights_only=True)
        progress = Progress(**content.pop("progress"))
        _check_progress(progress)
    except Exception as error:  # noqa: BLE001 - errors of damaged files have no common base
        raise unreadable_checkpoint(path, error) from error
    return content, progress


def _check_progress(progress: Progress) -> None:
    """Refuse values that no run has: it would continue at another step, or never end."""
    wrong = []
    for name, kind in typing.get_type_hints(Progress).items():
        value = getattr(progress, name)
        if not isinstance(value, dict if typing.get_origin(kind) is dict else kind | int):
            raise MolsliceError(f"{name} is {value!r:.80}")
        if name in ("step", "rows", "seconds", "best_epoch", *AT_MOST_STEPS):
            most = progress.step if name in AT_MOST_STEPS else math.inf
            wrong += [name] if not 0 <= value <= most or value == math.inf else []
    if progress.best_score is not None and not math.isfinite(progress.best_score):
        wrong.append("best_score")
    if not all(isinstance(value, int | float) for value in progress.best_metrics.values()):
        wrong.append("best_metrics")
    if wrong:
        raise MolsliceError(f"{wrong[0]} is {getattr(progress, wrong[0])!r:.80}")


def check_like(saved: object, expected: Tensor | Mapping[Any, Any], name: str) -> None:
    """Refuse tensors of a checkpoint that differ from the run in names, types or shapes, or hold NaN.

    torch's fused optimizer reads beyond a tensor that is too small, and a tensor of another type is cast.
    """
    if isinstance(expected, Mapping):
        if not isinstance(saved, Mapping):
            raise MolsliceError(f"{name} is {saved!r:.80}, expected a mapping")
        lacking, other = expected.keys() - saved.keys(), saved.keys() - expected.keys()
        for names, verb in ((lacking, "lacks"), (other, "also holds")):
            if names:
                shown = ", ".join(sorted(map(str, names))[:3])
                others = f" and {len(names) - 3} others" if len(names) > 3 else ""
                raise MolsliceError(f"{name} {verb} {shown:.200}{others}")
        for key, value in expected.items():
            check_like(saved[key], value, f"{name}.{key}")
        return
    if not isinstance(saved, Tensor):
        raise MolsliceError(f"{name} is {saved!r:.80}, expected a tensor")
    kinds = [(str(tensor.dtype), list(tensor.shape), str(tensor.layout)) for tensor in (saved, expected)]
    if kinds[0] != kinds[1]:
        raise MolsliceError(f"{name} is {kinds[0]}, expected {kinds[1]}")
    if torch.isnan(saved).any():
        raise MolsliceError(f"{name} holds NaN")


def unreadable_checkpoint(path: Path, error: Exception) -> MolsliceError:
    """Create the error for a checkpoint that is damaged or does not fit the run."""
    reason = " ".join(str(error).split())[:300]
    if isinstance(error, pickle.UnpicklingError):  # torch's own text advises to run the code in the file
        reason = "not a checkpoint, or one that holds other objects than tensors and plain values"
    elif not isinstance(error, MolsliceError):
        reason = f"{type(error).__name__}: {reason}"
    return MolsliceError(f"cannot read checkpoint {path}: {reason}")
