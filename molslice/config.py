"""A run as typed, frozen values: YAML and command-line overrides in, `RunConfig` out.

An unknown key is an error that names the file, the path of the key and the near names; a wrong type is an
error that names the path, the value and what was expected. What the values mean stands beside the fields.

Why the project's own conversion of types instead of pydantic 2.14 or jsonargparse 4.53, both tried on the
optimizer's section and on the options of the data set `csv`:

- Strict pydantic refuses `1e-4`, which YAML 1.1 reads as text, a list for a tuple, and 32 for "32".
  Lax pydantic accepts "8", 8.0 and `true` as a whole number. Each needs a validator around its annotation.
- Its messages have neither the near names nor the options of a registry. An adapter with both took 38 lines
  and replaced about 90 of this file (`_build` to `_say`), with two messages still wrong (a tuple that is too
  short, the choices of a literal). The overrides and the short forms stay.
- It adds 9.6 MB and 0.3 to 0.6 s of import, and models with validators would spread over every registry.
- jsonargparse accepts "8" as a whole number and an infinite rate. It reports an unknown key without near
  names and a wrong value in up to eight lines. It has no notion of `name` deciding about the other keys.

The schema for editors, docs/config.schema.json, comes from the same dataclasses and registries.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from molslice.attention import ATTENTIONS
from molslice.conversion import convert, show
from molslice.data import DATASETS
from molslice.files.parsing import parse_yaml
from molslice.files.processes import MAX_WORKERS
from molslice.model import DEFAULT_MODEL, MODELS, AttentionChoice, ModelSpec
from molslice.registry import near_names
from molslice.types import MolsliceError

LENGTHS = ("max_steps", "max_epochs", "max_minutes")
NAMED = ("attention", "data")  # sections whose `name` decides which other options there are
MAX_NODES = 100_000
MAX_BYTES = 1_000_000  # of a configuration file


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Which data set, and its own options (the keyword-only parameters of its class)."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW and its schedule: a linear warm-up to `lr`, then down to `end_lr_fraction * lr` at the last step.

    `constant` stays at `lr`; `inverse_sqrt` falls as lr sqrt(warm-up / step), whatever the last step
    (Vaswani et al. 2017, section 5.3); both know no `end_lr_fraction`.
    `warmup_steps` counts if given, else `warmup_fraction` of all steps. Norms, biases and embeddings
    are not decayed. `gradient_clip` bounds the global norm; `ema_decay` None switches the average off.
    """

    lr: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_fraction: float = 0.05
    warmup_steps: int | None = None
    schedule: Literal["linear", "cosine", "constant", "inverse_sqrt"] = "linear"
    end_lr_fraction: float = 0.0
    gradient_clip: float | None = 5.0
    ema_decay: float | None = 0.999

    def __post_init__(self) -> None:
        _require(self.lr > 0, "lr", self.lr, "a positive number")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "zero or more")
        _require(0 <= self.warmup_fraction < 1, "warmup_fraction", self.warmup_fraction, "a number in [0, 1)")
        _require(0 <= self.end_lr_fraction <= 1, "end_lr_fraction", self.end_lr_fraction, "in [0, 1]")
        _require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "two numbers in [0, 1)")
        warmup, clip, decay = self.warmup_steps, self.gradient_clip, self.ema_decay
        _require(warmup is None or warmup >= 0, "warmup_steps", warmup, "zero or more, or null")
        _require(clip is None or clip > 0, "gradient_clip", clip, "a positive number or null")
        _require(decay is None or 0 < decay < 1, "ema_decay", decay, "a number in (0, 1) or null")


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How long and in which portions.

    Exactly one of `max_steps`, `max_epochs`, `max_minutes` says how long. Minutes are turned into steps by
    measuring the speed before the first step; the run folder's configuration then holds that number of steps.
    A batch holds at most `batch_size` rows (molecules, sequences) and `token_budget` padded tokens (of a
    molecule its atoms and one graph token), over all devices; `accumulate` computes it in that many parts.
    Validation is after every `valid_every_epochs` epochs, or `valid_every_steps` steps if given, and at the
    end. A checkpoint for resuming is written at every validation and every `checkpoint_every_steps` steps.
    Early stopping counts validations without a better value.
    """

    max_steps: int | None = None
    max_epochs: int | None = None
    max_minutes: float | None = None
    token_budget: int = 8192
    batch_size: int = 256
    accumulate: int = 1
    valid_every_epochs: int = 1
    valid_every_steps: int | None = None
    checkpoint_every_steps: int | None = None
    early_stopping_patience: int | None = None
    compile: bool = False
    loss: Literal["mae", "mse", "huber"] = "mae"  # regression; classification takes cross-entropy
    label_smoothing: float = 0.0  # one class of several
    teacher: str | None = None  # the run folder that the task distillation learns from

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise MolsliceError(f"exactly one of {', '.join(LENGTHS)} must be given, found {found}")
        _require(getattr(self, given[0]) > 0, given[0], getattr(self, given[0]), "a positive number")
        for name in ("token_budget", "batch_size", "accumulate", "valid_every_epochs"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("valid_every_steps", "checkpoint_every_steps", "early_stopping_patience"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "1 or more, or null")


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Where a run computes. `num_threads` None leaves torch's own choice."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: Literal["auto", "ddp", "ddp_find_unused_parameters_true"] = "auto"
    precision: Literal["32", "bf16", "16"] = "32"
    num_threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "num_nodes", "num_threads"):
            value = getattr(self, name)
            most = MAX_NODES if name == "num_nodes" else MAX_WORKERS
            allowed = value is None or 1 <= value <= most
            _require(allowed, name, value, f"a whole number from 1 to {most:,}")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """All that decides a run."""

    data: DataConfig
    model: ModelSpec
    attention: AttentionChoice = field(default_factory=AttentionChoice)
    task: str = "molecule"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(max_epochs=100))
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        _require(self.seed >= 0, "seed", self.seed, "zero or more")


def load_config(path: str | Path, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """Read a YAML file, then the overrides (`("optimizer.lr", "1e-3")`; values are read as YAML).

    An override of one length of training (`max_steps`, `max_epochs`, `max_minutes`) takes the place of the
    file's; two of them are refused. Another `attention.name` or `data.name` starts without the options that
    the file has for the former one.

    Raises:
        MolsliceError: no such file, not YAML, unknown key, wrong type or value.
    """
    mapping = parse_yaml(_read_text(path), str(path))
    if not isinstance(mapping, dict) or not mapping:
        keys = ", ".join(_names(RunConfig))
        raise MolsliceError(f"{path}: a configuration is a mapping with the keys {keys}")
    _override(mapping, overrides)
    return config_from_mapping(mapping, source=str(path))


def override_config(
    config: RunConfig, overrides: Sequence[tuple[str, str]], source: str = "settings"
) -> RunConfig:
    """Another configuration with some settings changed, by the rules of `load_config`.

    Raises:
        MolsliceError: unknown key, wrong type or value. `source` is the start of the message.
    """
    mapping = config_to_mapping(config)
    _override(mapping, overrides)
    return config_from_mapping(mapping, source=source)


def config_from_mapping(mapping: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """The typed form of what a YAML file holds. `source` stands first in messages.

    Raises:
        MolsliceError: unknown key, wrong type or value.
    """
    try:
        return _build(RunConfig, mapping, "")
    except MolsliceError as error:
        raise MolsliceError(f"{source}: {error}") from error


def config_to_mapping(config: RunConfig) -> dict[str, Any]:
    """Plain values, every field written out; `config_from_mapping` gives an equal configuration back."""
    return _plain(config)


def config_to_yaml(config: RunConfig) -> str:
    """The complete configuration as YAML; it loads back equal."""
    return yaml.safe_dump(config_to_mapping(config), sort_keys=False)


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise MolsliceError(f"{name} is {show(value)}, expected {expected}")


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _read_text(path: str | Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise MolsliceError(f"cannot read configuration {path}: larger than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MolsliceError(f"cannot read configuration {path}: {reason}") from error


def _override(mapping: dict[str, Any], overrides: Sequence[tuple[str, str]]) -> None:
    """Change `mapping`, which is what a file holds, by dotted settings."""
    given = [(key.replace("-", "_"), parse_yaml(value, f"--{key}")) for key, value in overrides]
    # names first, whatever the order: another name removes the options of the file, not those given here
    naming = {*NAMED, *(f"{section}.name" for section in NAMED)}
    given.sort(key=lambda item: not (item[0] in naming and isinstance(item[1], str)))
    lengths = [f"training.{name}" for name in LENGTHS]
    places = [place for place, (key, value) in enumerate(given) if key in lengths and value is not None]
    if places:
        given[places[0] : places[0]] = [(key, None) for key in lengths]
    for key, value in given:
        _set(mapping, key, value)


def _set(mapping: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    if path and path[0] in NAMED and isinstance(mapping.get(path[0]), str):
        mapping[path[0]] = {"name": mapping[path[0]]}  # `data: csv` is short for `data: {name: csv}`
    section = mapping
    for name in path:
        inner = section.get(name)
        section[name] = dict(inner) if isinstance(inner, dict) else {}  # an alias may share it: copy
        section = section[name]
    if len(path) == 1 and path[0] in NAMED and last == "name" and section.get("name") != value:
        section.clear()
    section[last] = value


def _build(cls: type, mapping: Any, path: str) -> Any:  # noqa: ANN401
    """One dataclass from a mapping; `path` is the dotted way to it, empty at the top."""
    if cls is ModelSpec:
        given = mapping if isinstance(mapping, Mapping) else {}
        cls = _find_spec(given.get("name", DEFAULT_MODEL), f"{path}.name")
    if isinstance(mapping, str) and cls in (DataConfig, AttentionChoice):
        mapping = {"name": mapping}
    if not isinstance(mapping, Mapping):
        keys = ", ".join(_names(cls))
        raise MolsliceError(f"{path} is {show(mapping)}, expected a mapping with the keys {keys}")
    if cls is DataConfig or cls is AttentionChoice:
        mapping = _gather_options(cls, dict(mapping), path)
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in mapping.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in hints:
            raise MolsliceError(f"unknown key {where!r}; {near_names(str(key), hints)}")
        values[key] = _convert(value, hints[key], where)
    for f in dataclasses.fields(cls):
        if f.name not in values and f.default is f.default_factory is dataclasses.MISSING:
            raise MolsliceError(f"key {f'{path}.{f.name}' if path else f.name!r} is missing")
    try:
        return cls(**values)
    except MolsliceError as error:
        raise MolsliceError(f"{path}: {error}" if path else str(error)) from error


def _find_spec(name: Any, where: str) -> type[ModelSpec]:  # noqa: ANN401
    if not isinstance(name, str) or name not in MODELS.names():
        raise MolsliceError(f"{where} is {show(name)}; {near_names(str(name), MODELS.names())}")
    return MODELS.find(name)


def _gather_options(cls: type, mapping: dict[str, Any], path: str) -> dict[str, Any]:
    """`{name, option: value}` as a file has it to `{name, options: {...}}`, the option names checked."""
    registry = DATASETS if cls is DataConfig else ATTENTIONS
    name = mapping.get("name")
    if not isinstance(name, str):
        raise MolsliceError(f"{path}.name is {show(name)}, expected one of {', '.join(registry.names())}")
    own = {f for f in _names(cls) if f != "options"}
    known = set(registry.options(name))
    options = {key: value for key, value in mapping.items() if key not in own}
    for key in options:
        if key not in known:
            near = near_names(str(key), known | own)
            raise MolsliceError(f"unknown key '{path}.{key}' for {name!r}; {near}")
    hints = registry.hints(name)
    options = {key: convert(value, hints.get(key, Any), f"{path}.{key}") for key, value in options.items()}
    return {**{key: value for key, value in mapping.items() if key in own}, "options": options}


def _convert(value: Any, hint: Any, where: str) -> Any:  # noqa: ANN401
    if hint is ModelSpec or (dataclasses.is_dataclass(hint) and isinstance(hint, type)):
        return _build(hint, value, where)
    return convert(value, hint, where)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, DataConfig | AttentionChoice):
        own = {name: _plain(getattr(value, name)) for name in _names(type(value)) if name != "options"}
        return {**own, **_plain(value.options)}
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
