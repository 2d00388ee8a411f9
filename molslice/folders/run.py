"""The run folder: the names of its files, and reading and writing its trained model.

`model.safetensors` holds all that is needed to use the model: the weights and, as text in its metadata, the
targets and the configuration. Nothing in the file can run code.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from molslice.chem import DESCRIPTORS_VERSION
from molslice.config import RunConfig, config_from_mapping, config_to_mapping
from molslice.files.atomic import write_atomically
from molslice.files.parsing import parse_json, read_json_object
from molslice.files.received import open_tensors
from molslice.model import build_model
from molslice.model.skeleton import without_memory
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec, MolsliceError

MODEL = "model.safetensors"
CONFIG = "config.yaml"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
DATA = "data.json"  # checksums of the data, to detect changes
CHECKPOINTS = "checkpoints"
LAST_CHECKPOINT = "checkpoints/last.ckpt"
TENSORBOARD = "tensorboard"

SUMMARY_KINDS: dict[str, Any] = {
    "metric": str,
    "units": dict,
    "train": dict,
    "valid": dict,
    "test": dict,
    "noun": str,
    "seed": int,
    **dict.fromkeys(("parameters", "parameters_without_embeddings", "steps", "max_steps"), int),
    **dict.fromkeys(("epochs", "seconds", "rows_per_second"), int | float),
}
FORMAT = "molslice-1"
UNQUESTIONED = 1 << 20  # smaller sizes are accepted without a comparison with the weights
LARGEST_BUFFERS = 1 << 31  # bytes of all buffers of a model
# errors of building a model from a forged description
UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError)
UNFIT += (TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained model and its description."""

    model: nn.Module  # in evaluation mode
    config: RunConfig
    targets: TargetInfo
    data: DataSpec
    summary: dict[str, Any] | None  # None if the run is not finished
    metadata: dict[str, Any]  # see `Dataset.metadata`


def write_model(
    path: Path,
    model_state: Mapping[str, Tensor],
    info: TargetInfo,
    data: DataSpec,
    config: RunConfig,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write `model.safetensors` in the run folder `path` atomically, with `extra` metadata as JSON types.

    Raises:
        MolsliceError: The file cannot be written.
    """
    description = {
        **(extra or {}),
        "format": FORMAT,
        "targets": info.to_mapping(),
        "data": asdict(data),
        "config": config_to_mapping(config),
    }
    # one entry, because safetensors writes several in random order and equal models should be equal files
    metadata = {"molslice": json.dumps(description)}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model_state.items()}
    write_atomically(path / MODEL, save(tensors, metadata))


def write_in_half(source: Path, path: Path) -> None:
    """Copy the `model.safetensors` of a run folder to another folder with its weights in float16.

    Numbers that float16 cannot hold stay as they are. `read_run` returns weights in float32 again.

    Raises:
        MolsliceError: A file cannot be read or written.
    """
    state, metadata = _read_safetensors(model_file(source))
    write_atomically(path / MODEL, save(_in_half(state), metadata))


def _in_half(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights in float16, except for numbers that it cannot hold."""
    halves = {name: tensor.half() for name, tensor in state.items() if tensor.is_floating_point()}
    return {**state, **{name: half for name, half in halves.items() if bool(half.isfinite().all())}}


def model_file(path: Path) -> Path:
    """Return the file with the weights: `path` itself, or that in the run folder `path`."""
    return path.resolve() if path.is_file() else path / MODEL


def read_run(path: str | Path, *, in_half: bool = False) -> LoadedRun:
    """Read the trained model of a run folder, or of its `model.safetensors`.

    Args:
        path: The folder or file.
        in_half: Whether to round the weights to float16, as in a copy by `write_in_half`.

    Raises:
        MolsliceError: The path is not a run folder, a file in it is damaged or does not fit, or the model was
            trained on other descriptors than this version computes.
    """
    file = _find_file(Path(path))
    state, metadata = _read_safetensors(file)
    state = _in_half(state) if in_half else state
    state = {
        name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in state.items()
    }
    description = _read_about(metadata, file)
    with _named_errors(file):
        loaded = _build(description, state, file)
    finished = (file.parent / SUMMARY).is_file()
    return replace(loaded, summary=read_json_object(file.parent / SUMMARY) if finished else None)


def read_config(path: str | Path) -> RunConfig:
    """Read the configuration of a trained model, as `read_run`, without its weights.

    Raises:
        MolsliceError: The path is not a run folder, or the description of the model is damaged.
    """
    file = _find_file(Path(path))
    _, metadata = _read_safetensors(file, with_tensors=False)
    description = _read_about(metadata, file)
    with _named_errors(file):
        return _read_config(description, file)


def _find_file(given: Path) -> Path:
    """Return the file with the weights, which must exist."""
    file = model_file(given)
    if file.is_file():
        return file
    if not given.exists():
        raise MolsliceError(f"{given} does not exist; a model is a run folder with {MODEL} in it")
    started = (given / CONFIG).is_file()
    hint = "its training has not reached the first validation" if started else f"it holds no {MODEL}"
    raise MolsliceError(f"{given} is not a finished run folder: {hint}")


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    """Name the file in the error of a forged description."""
    try:
        yield
    except MolsliceError:
        raise
    except UNFIT as error:
        reason = " ".join(str(error).split())[:300]
        raise MolsliceError(f"{file} does not describe a model: {type(error).__name__}: {reason}") from error


def _read_config(description: dict[str, Any], file: Path) -> RunConfig:
    return config_from_mapping(description["config"], source=f"configuration in {file}")


def _build(description: dict[str, Any], state: dict[str, Tensor], file: Path) -> LoadedRun:
    targets = TargetInfo.from_mapping(description["targets"])
    config = _read_config(description, file)
    data = _read_spec(description.get("data", {"num_outputs": len(targets.names)}), file)
    made_by = description.get("descriptors_version", DESCRIPTORS_VERSION)
    if data.num_descriptors and made_by != DESCRIPTORS_VERSION:
        raise MolsliceError(
            f"{file} was trained on descriptors of version {made_by}; this version of molslice computes "
            f"{DESCRIPTORS_VERSION}"
        )
    _check_outputs(targets, data, file)
    _check_sizes(config, data, state, file)
    _check_fit(_skeleton(config, data, file), state, file)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise MolsliceError(f"the weights {name} in {file} are not finite: the model cannot predict")
    with float32_defaults(), own_random_state():
        model = build_model(config.model, config.attention, data)
        model.load_state_dict(state)
    known = ("format", "targets", "data", "config")
    metadata = {key: value for key, value in description.items() if key not in known}
    return LoadedRun(model.eval(), config, targets, data, None, metadata)


@contextmanager
def float32_defaults() -> Iterator[None]:
    """Make new tensors in float32 on the CPU; restore the caller's defaults afterwards.

    A default that already has the right value is not set, because the default dtype is shared by all threads.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))  # new tensors may be differentiated later
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if (dtype := torch.get_default_dtype()) != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, dtype)
        yield


@contextmanager
def own_random_state() -> Iterator[None]:
    """Draw from seed 0 of torch's CPU generator; restore the caller's state afterwards."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def _read_safetensors(file: Path, *, with_tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, str]]:
    with open_tensors(file, "pt") as opened:
        names = opened.keys() if with_tensors else ()
        return {name: opened.get_tensor(name) for name in names}, opened.metadata() or {}


def _read_about(metadata: dict[str, str], file: Path) -> dict[str, Any]:
    description = parse_json(metadata.get("molslice", "null"), f"the description in {file}")
    if not isinstance(description, dict) or not {"format", "targets", "config"} <= description.keys():
        raise MolsliceError(f"{file} is a safetensors file, but not one that molslice wrote")
    if description["format"] != FORMAT:
        raise MolsliceError(f"{file} has format {description['format']!r}, but this version reads {FORMAT!r}")
    return description


def _read_spec(mapping: Any, file: Path) -> DataSpec:  # noqa: ANN401
    try:
        values = dict(mapping)
        kinds = {"tokens": str, "vocabulary": str, "statistics": dict, "grid": list}
        kinds |= dict.fromkeys(("paired", "predicts_variance", "has_geometry"), bool)
        for key, value in values.items():
            if value is not None and type(value) is not kinds.get(key, int):
                raise TypeError(f"{key} is {value!r:.80}")
        if values.get("grid") is not None:  # JSON turns tuples into lists
            rows, columns = values["grid"]
            values["grid"] = int(rows), int(columns)
        if "statistics" in values:
            statistics = {name: tuple(map(float, pair)) for name, pair in values["statistics"].items()}
            if not np.isfinite([number for pair in statistics.values() for number in pair]).all():
                raise ValueError("statistics that are not finite")
            values["statistics"] = statistics
        return DataSpec(**values)
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise MolsliceError(f"cannot read the description of the data in {file}: {error}") from error


def _check_outputs(targets: TargetInfo, data: DataSpec, file: Path) -> None:
    """Check the number of outputs and the kind of targets."""
    if data.tokens == "molecules" and targets.kind not in ("regression", "classification"):
        raise MolsliceError(f"{file}: targets of molecules cannot be of kind {targets.kind}")
    if targets.kind in ("regression", "classification", "multiclass"):
        expected = len(targets.classes) or len(targets.names)
        if data.num_outputs != expected:
            raise MolsliceError(f"{file}: {data.num_outputs} outputs for {expected} targets or classes")
    if data.predicts_variance and targets.kind != "regression":
        raise MolsliceError(f"{file}: targets of kind {targets.kind} have no variance")


def _check_sizes(config: RunConfig, data: DataSpec, state: Mapping[str, Tensor], file: Path) -> None:
    """Refuse sizes that do not fit the weights, before a loop or an allocation of that size."""
    sections = config_to_mapping(config)
    depths = sections["model"].get("depths") or [sections["model"].get("num_layers") or 0]
    if sum(depths) > len(state):
        raise MolsliceError(f"{file} describes {sum(depths)} layers but holds {len(state)} tensors")
    largest = max(UNQUESTIONED, *(size for tensor in state.values() for size in tensor.shape))
    described = {name: sections[name] for name in ("model", "attention")} | {"data": asdict(data)}
    for key, number in _whole_numbers(described, ""):
        if number > largest and not key.endswith(".seed"):
            raise MolsliceError(f"{file}: {key} is {number}, more than any size of its weights ({largest})")


def _whole_numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:  # noqa: ANN401
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _whole_numbers(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _whole_numbers(item, path)
    elif type(value) is int:
        yield path, value


def _skeleton(config: RunConfig, data: DataSpec, file: Path) -> nn.Module | None:
    """Build the model without memory for its tensors; None if it cannot be built without memory."""
    try:
        with float32_defaults(), own_random_state(), without_memory():
            model = build_model(config.model, config.attention, data)
    except RuntimeError as error:
        if "meta" in str(error):
            return None
        raise
    size = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if size > LARGEST_BUFFERS:
        raise MolsliceError(f"{file} needs buffers of {size} bytes, more than {LARGEST_BUFFERS}")
    return model


def _check_fit(model: nn.Module | None, state: Mapping[str, Tensor], file: Path) -> None:
    if model is None:
        return
    expected = model.state_dict()
    problems = {
        "missing": sorted(expected.keys() - state.keys()),
        "unexpected": sorted(state.keys() - expected.keys()),
        "of another shape": [],
        "of another type": [],
    }
    for name in sorted(expected.keys() & state.keys()):
        tensor, other = state[name], expected[name]
        if tensor.shape != other.shape:
            shapes = f"{name} {list(tensor.shape)} instead of {list(other.shape)}"
            problems["of another shape"].append(shapes)
        if tensor.dtype != other.dtype:
            problems["of another type"].append(f"{name} {tensor.dtype} instead of {other.dtype}")
    faults = [
        f"{len(names)} {label} ({', '.join(names[:3])}"
        + (f" and {len(names) - 3} others)" if len(names) > 3 else ")")
        for label, names in problems.items()
        if names
    ]
    if faults:
        raise MolsliceError(f"weights in {file} do not fit its configuration: {'; '.join(faults)}")


def read_summary(run: Path) -> dict[str, Any]:
    """Read `summary.json` in the folder of a finished run. Missing values are not checked here.

    Raises:
        MolsliceError: The file cannot be read, or a value has a wrong type.
    """
    summary = read_json_object(run / SUMMARY)
    wrong = [
        key
        for key, kind in SUMMARY_KINDS.items()
        if key in summary and (not isinstance(summary[key], kind) or isinstance(summary[key], bool))
    ]
    for split in ("train", "valid", "test"):
        errors = None if wrong else summary.get(split, {}).get(summary.get("metric"))
        if not isinstance(errors, dict | None):
            wrong.append(split)
    if wrong:
        raise MolsliceError(f"cannot read {run / SUMMARY}: {wrong[0]} is {summary[wrong[0]]!r:.80}")
    return summary
