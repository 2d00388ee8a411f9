"""The run folder: the names of its files, and the trained model in it.

`model.safetensors` holds the weights and, as text in its metadata, all that is needed to use them: the
targets and the configuration. Nothing in it can run code.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from molslice.config import RunConfig, config_from_mapping, config_to_mapping
from molslice.model.build import build_model
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec, MolsliceError

MODEL = "model.safetensors"
CONFIG = "config.yaml"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
CHECKPOINTS = "checkpoints"
LAST_CHECKPOINT = "checkpoints/last.ckpt"
TENSORBOARD = "tensorboard"

FORMAT = "molslice-1"


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained model in evaluation mode, with what it was trained from."""

    model: nn.Module
    config: RunConfig
    targets: TargetInfo
    data: DataSpec
    summary: dict[str, Any] | None  # None while the run is not finished
    metadata: dict[str, Any]  # what else was written beside the weights: see `Dataset.metadata`


def write_atomically(path: Path, content: bytes | str) -> None:
    """The whole content under its name, or nothing: a full disk leaves what was there before.

    Raises:
        MolsliceError: the file could not be written.
    """
    data = content.encode() if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise MolsliceError(f"cannot write {path}: {error.strerror or error}") from error


def write_model(
    path: Path,
    model_state: Mapping[str, Tensor],
    info: TargetInfo,
    data: DataSpec,
    config: RunConfig,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write `model.safetensors` into the folder `path`, atomically.

    Raises:
        MolsliceError: the file could not be written.
    """
    about = {
        **(extra or {}),
        "format": FORMAT,
        "targets": info.to_mapping(),
        "data": asdict(data),
        "config": config_to_mapping(config),
    }
    # one entry: safetensors writes several in random order, and equal models should be equal files
    metadata = {"molslice": json.dumps(about)}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model_state.items()}
    write_atomically(path / MODEL, save(tensors, metadata))


def read_run(path: str | Path) -> LoadedRun:
    """The trained model of a run folder, or of its `model.safetensors`.

    Raises:
        MolsliceError: not a run folder, or a file in it that is truncated, foreign or does not fit.
    """
    given = Path(path)
    file = given if given.is_file() else given / MODEL
    if not file.is_file():
        if not given.exists():
            raise MolsliceError(f"{given} does not exist; a model is a run folder with {MODEL} in it")
        started = (given / CONFIG).is_file()
        hint = "its training has not reached the first validation" if started else f"it holds no {MODEL}"
        raise MolsliceError(f"{given} is not a finished run folder: {hint}")
    state, metadata = _read_safetensors(file)
    about = _read_about(metadata, file)
    targets = TargetInfo.from_mapping(about["targets"])
    config = config_from_mapping(about["config"], source=f"configuration in {file}")
    data = _read_spec(about.get("data", {"num_outputs": len(targets.names)}), file)
    model = build_model(config.model, config.attention, data)
    _load_state(model, state, file)
    known = ("format", "targets", "data", "config")
    metadata = {key: value for key, value in about.items() if key not in known}
    summary = _read_summary(file.parent / SUMMARY)
    return LoadedRun(model.eval(), config, targets, data, summary, metadata)


def _read_safetensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            return {name: opened.get_tensor(name) for name in names}, opened.metadata() or {}
    except (SafetensorError, OSError, ValueError) as error:
        raise MolsliceError(f"{file} is truncated or not a safetensors file: {error}") from error


def _read_about(metadata: dict[str, str], file: Path) -> dict[str, Any]:
    try:
        about = json.loads(metadata.get("molslice", "null"))
    except ValueError as error:
        raise MolsliceError(f"what {file} says about itself does not read: {error}") from error
    if not isinstance(about, dict) or not {"format", "targets", "config"} <= about.keys():
        raise MolsliceError(f"{file} is a safetensors file, but not one that molslice wrote")
    if about["format"] != FORMAT:
        raise MolsliceError(f"{file} has format {about['format']!r}, this program reads {FORMAT!r}")
    return about


def _read_spec(mapping: Any, file: Path) -> DataSpec:  # noqa: ANN401
    try:
        grid = mapping.get("grid")  # JSON makes lists of tuples
        return DataSpec(**{**mapping, "grid": None if grid is None else tuple(grid)})
    except (TypeError, KeyError, AttributeError) as error:
        raise MolsliceError(f"what {file} says about its data does not read: {error}") from error


def _load_state(model: nn.Module, state: dict[str, Tensor], file: Path) -> None:
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    shapes = [
        f"{name} {list(state[name].shape)} instead of {list(own[name].shape)}"
        for name in sorted(own.keys() & state.keys())
        if own[name].shape != state[name].shape
    ]
    faults = [
        f"{len(names)} {label} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for label, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    if faults:
        raise MolsliceError(f"weights in {file} do not fit its configuration: {'; '.join(faults)}")
    with torch.no_grad():
        model.load_state_dict(state)


def _read_summary(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MolsliceError(f"{file} does not read: {error}") from error
