"""A run as typed, frozen values: YAML and command-line overrides in, `RunConfig` out.

An unknown key is an error that names the file, the path of the key and the near names; a wrong type is an
error that names the path, the value and what was expected. What the values mean stands beside the fields.
"""

import contextlib
import dataclasses
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from molslice.attention import ATTENTIONS
from molslice.data import DATASETS
from molslice.model.spec import SPECS, AnySpec, AttentionChoice, ModelSpec
from molslice.registry import near_names
from molslice.types import MolsliceError

LENGTHS = ("max_steps", "max_epochs", "max_minutes")
PLAIN = (int, float, bool, str, dict)
NAMING = ("attention", "attention.name", "data", "data.name")


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
        _require(self.devices >= 1, "devices", self.devices, "1 or more")
        _require(self.num_nodes >= 1, "num_nodes", self.num_nodes, "1 or more")
        _require(self.num_threads is None or self.num_threads >= 1, "num_threads", self.num_threads, ">= 1")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """All that decides a run."""

    data: DataConfig
    model: AnySpec
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
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MolsliceError(f"cannot read configuration {path}: {error}") from error
    mapping = _parse_yaml(text, str(path))
    if not isinstance(mapping, dict) or not mapping:
        keys = ", ".join(_names(RunConfig))
        raise MolsliceError(f"{path}: a configuration is a mapping with the keys {keys}")
    given = [(key.replace("-", "_"), _parse_yaml(value, f"--{key}")) for key, value in overrides]
    # names first, whatever the order: another name takes the options of the file away, not those given here
    given.sort(key=lambda item: not (item[0] in NAMING and isinstance(item[1], str)))
    lengths = [f"training.{name}" for name in LENGTHS]
    places = [place for place, (key, value) in enumerate(given) if key in lengths and value is not None]
    if places:
        given[places[0] : places[0]] = [(key, None) for key in lengths]
    for key, value in given:
        _override(mapping, key, value)
    return config_from_mapping(mapping, source=str(path))


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
        raise MolsliceError(f"{name} is {value!r}, expected {expected}")


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in seen:
            if seen.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str, source: str) -> Any:  # noqa: ANN401
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise MolsliceError(f"{source} is not YAML: {' '.join(str(error).split())}") from error


def _override(mapping: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    section = mapping
    for name in path:
        if not isinstance(section.get(name), dict):
            # `data: csv` is short for `data: {name: csv}`
            section[name] = {"name": section[name]} if isinstance(section.get(name), str) else {}
        section = section[name]
    if path in (["attention"], ["data"]) and last == "name" and section.get("name") != value:
        section.clear()
    section[last] = value


def _build(cls: type, mapping: Any, path: str) -> Any:  # noqa: ANN401
    """One dataclass from a mapping; `path` is the dotted way to it, empty at the top."""
    if cls is ModelSpec and isinstance(mapping, Mapping):
        cls = _find_spec(mapping.get("name", "graphormer"), f"{path}.name")
    if isinstance(mapping, str) and cls in (DataConfig, AttentionChoice):
        mapping = {"name": mapping}
    if not isinstance(mapping, Mapping):
        keys = ", ".join(_names(cls))
        raise MolsliceError(f"{path} is {mapping!r}, expected a mapping with the keys {keys}")
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


def _find_spec(name: Any, where: str) -> type[AnySpec]:  # noqa: ANN401
    if name not in SPECS:
        raise MolsliceError(f"{where} is {name!r}; {near_names(str(name), SPECS)}")
    return SPECS[name]


def _gather_options(cls: type, mapping: dict[str, Any], path: str) -> dict[str, Any]:
    """`{name, option: value}` as a file has it to `{name, options: {...}}`, the option names checked."""
    registry = DATASETS if cls is DataConfig else ATTENTIONS
    name = mapping.get("name")
    if not isinstance(name, str):
        raise MolsliceError(f"{path}.name is {name!r}, expected one of {', '.join(registry.names())}")
    own = {f for f in _names(cls) if f != "options"}
    known = set(registry.options(name))
    options = {key: value for key, value in mapping.items() if key not in own}
    for key in options:
        if key not in known:
            near = near_names(str(key), known | own)
            raise MolsliceError(f"unknown key '{path}.{key}' for {name!r}; {near}")
    hints = registry.hints(name)
    options = {key: _convert(value, hints.get(key, Any), f"{path}.{key}") for key, value in options.items()}
    return {**{key: value for key, value in mapping.items() if key in own}, "options": options}


def _convert(value: Any, hint: Any, where: str) -> Any:  # noqa: ANN401, C901
    """`value` as the type `hint` asks for; YAML reads 1e-4 as text and 32 as a number, both are put right."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint == AnySpec:
        return _build(ModelSpec, value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    if hint is Any or (origin in (dict, Mapping) or hint is dict) and isinstance(value, Mapping):
        return dict(value) if isinstance(value, Mapping) else value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert_to_one(
            value, [argument for argument in arguments if argument is not type(None)], where
        )
    if origin is Literal:
        for choice in arguments:
            if value == choice or (isinstance(choice, str) and str(value) == choice):
                return choice
        raise MolsliceError(f"{where} is {value!r}; {near_names(str(value), map(str, arguments))}")
    if origin is tuple and isinstance(value, list | tuple):
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(inner) == len(value):
            return tuple(_convert(value[i], inner[i], f"{where}[{i}]") for i in range(len(value)))
    if origin is Sequence and isinstance(value, list | tuple):
        return [_convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if origin is os.PathLike and isinstance(value, os.PathLike):
        return value
    if hint is float and not isinstance(value, bool):
        try:
            return float(value)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError):
            pass
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    if hint in PLAIN or origin in (*PLAIN, tuple, Sequence, Mapping, os.PathLike):
        raise MolsliceError(f"{where} is {value!r}, expected {_say(hint)}")
    return value  # of a form that the class itself looks at


def _convert_to_one(value: Any, hints: Sequence[Any], where: str) -> Any:  # noqa: ANN401
    """`value` as the first of several types that it can be."""
    if len(hints) == 1:
        return _convert(value, hints[0], where)
    for hint in hints:
        with contextlib.suppress(MolsliceError):
            return _convert(value, hint, where)
    is_path = any(typing.get_origin(hint) is os.PathLike for hint in hints)
    expected = "a path" if is_path else " or ".join(map(_say, hints))
    raise MolsliceError(f"{where} is {value!r}, expected {expected}")


def _say(hint: Any) -> str:  # noqa: ANN401
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    forms = {dict: "a mapping", Mapping: "a mapping", Sequence: "a list"}
    return words.get(hint) or forms.get(typing.get_origin(hint) or hint) or str(hint).replace("typing.", "")


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
