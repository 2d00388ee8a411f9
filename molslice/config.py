"""Typed, frozen configurations: YAML and command-line overrides in, `RunConfig` out.

The error for an unknown key names the file, the key and similar names. The error for a wrong type names the
key, the value and the expected type.

The project converts types itself instead of using pydantic 2.14 or jsonargparse 4.53. Both were tried on the
optimizer's section and on the options of the data set `csv`:

- Strict pydantic refuses `1e-4`, which YAML 1.1 reads as text, a list for a tuple, and 32 for "32".
  Lax pydantic accepts "8", 8.0 and `true` as integers. Each annotation needs a validator.
- Its messages contain neither similar names nor the options of a registry. An adapter with both took 38 lines
  and replaced about 90 lines, with two messages still wrong (a tuple that is too short, the choices of a
  literal). The code for overrides and short forms is still needed.
- It adds 9.6 MB and 0.4 to 0.7 s of import time, and every registry would need models with validators.
- jsonargparse accepts "8" as an integer, and an infinite learning rate. It reports an unknown key without
  similar names and a wrong value in up to eight lines. It does not support keys that depend on `name`.

docs/config.schema.json, the schema for editors, is generated from the same dataclasses and registries.
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
NAMED = ("attention", "data")  # sections whose `name` determines the other options
MAX_NODES = 100_000
MAX_BYTES = 1_000_000  # maximum size of a configuration file


@dataclass(frozen=True, slots=True)
class DataConfig:
    """A data set and its options.

    Attributes:
        name: Name of the data set in the registry.
        options: Its own options, the keyword-only parameters of its class.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW and its learning rate schedule.

    Attributes:
        lr: Learning rate at the end of the linear warm-up.
        weight_decay: Decoupled weight decay of AdamW. Norms, biases and embeddings are not decayed.
        betas: Decay rates of AdamW's first and second moments.
        warmup_fraction: Length of the warm-up as a fraction of all steps; unused if `warmup_steps` is given.
        warmup_steps: Length of the warm-up in steps.
        schedule: Learning rate after the warm-up. `linear` and `cosine` decrease to `end_lr_fraction * lr`
            at the end of the training, `constant` stays at `lr`, `inverse_sqrt` is
            lr sqrt(warm-up steps / step) (Vaswani et al. 2017, section 5.3).
        end_lr_fraction: Final learning rate divided by `lr`; unused by `constant` and `inverse_sqrt`.
        gradient_clip: Maximum global norm of the gradient; None does not clip.
        ema_decay: Decay of the moving average of the weights; None does not average.

    Raises:
        MolsliceError: A value is outside of its range.
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
    """Length of the training, batches, validations and loss.

    Exactly one of `max_steps`, `max_epochs` and `max_minutes` must be given.

    Attributes:
        max_steps: Length of the training in optimizer steps.
        max_epochs: Length of the training in epochs.
        max_minutes: Length of the training in minutes. It is converted to steps by measuring the speed before
            the first step, and the run folder's configuration has that number of steps.
        token_budget: Maximum number of padded tokens in a batch, over all devices. A molecule has one token
            for each atom and one graph token.
        batch_size: Maximum number of rows (molecules, sequences) in a batch, over all devices.
        accumulate: Number of parts in which each device computes a batch, to save memory.
        valid_every_epochs: Epochs between validations; unused if `valid_every_steps` is given. The last step
            is always followed by a validation.
        valid_every_steps: Steps between validations.
        checkpoint_every_steps: Steps between checkpoints for resuming. None writes one at each validation
            only.
        early_stopping_patience: Number of validations without improvement after which training stops; None
            disables early stopping.
        compile: Whether to compile the encoder with `torch.compile`.
        loss: Loss of regression. Classification uses cross-entropy.
        label_smoothing: Label smoothing of the cross-entropy over several classes.
        teacher: Run folder of the teacher, for the task `distillation`.
        label_weights: Weights of the families of labels, for the task `pretraining`: descriptors, quantum,
            charges, atoms, bonds. Families that are not named have the weight 0; None gives each the weight
            1.
        hidden_targets: Share of the targets of molecules that is left out in each step of `pretraining`.
        hidden_atoms: Share of the atoms whose features are hidden in the task `pretraining`.
        hidden_bonds: Share of the bonds whose features are hidden in the task `pretraining`.

    Raises:
        MolsliceError: A value is outside of its range, or not exactly one length is given.
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
    loss: Literal["mae", "mse", "huber"] = "mae"
    label_smoothing: float = 0.0
    teacher: str | None = None
    label_weights: dict[str, float] | None = None
    hidden_targets: float = 0.15
    hidden_atoms: float = 0.15
    hidden_bonds: float = 0.15

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
        for name in ("hidden_targets", "hidden_atoms", "hidden_bonds"):
            _require(0 <= getattr(self, name) < 1, name, getattr(self, name), "a number in [0, 1)")


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Hardware, processes and precision of a run.

    Attributes:
        accelerator: Accelerator of Lightning Fabric.
        devices: Number of devices of each node.
        num_nodes: Number of nodes.
        strategy: Strategy of Lightning Fabric; `auto` is `ddp` with more than one device.
        precision: float32, or mixed precision with bfloat16 or float16.
        num_threads: Number of CPU threads of each process; None keeps PyTorch's default.

    Raises:
        MolsliceError: A number is outside of its range.
    """

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
    """The complete configuration of a run.

    Attributes:
        data: The data set.
        model: The model.
        attention: The attention of the model.
        task: Name of the task in the registry.
        optimizer: The optimizer and its schedule.
        training: Length of the training, batches, validations and loss.
        trainer: Hardware, processes and precision.
        seed: Seed of the initial weights, dropout, the order of rows and random augmentation.

    Raises:
        MolsliceError: The seed is negative.
    """

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
    """Read a configuration from a YAML file and apply overrides.

    Args:
        path: The YAML file.
        overrides: Pairs of a dotted key and a value in YAML, such as `("optimizer.lr", "1e-3")`. A length of
            training (`max_steps`, `max_epochs`, `max_minutes`) replaces the one in the file. Another
            `attention.name` or `data.name` removes the options in the file for the previous name.

    Raises:
        MolsliceError: The file does not exist or is not YAML, a key is unknown, or a value or its type is
            invalid.
    """
    mapping = parse_yaml(_read_text(path), str(path))
    if not isinstance(mapping, dict) or not mapping:
        keys = ", ".join(_names(RunConfig))
        raise MolsliceError(f"{path}: a configuration is a mapping with the keys {keys}")
    _override(mapping, overrides)
    return config_from_mapping(mapping, source=str(path))


def override_data(data: DataConfig, overrides: Sequence[tuple[str, str]]) -> DataConfig:
    """Return a copy of the settings of a data set with overrides applied.

    Args:
        data: The settings.
        overrides: As in `load_config`; every key starts with `data.`.

    Raises:
        MolsliceError: A value or its type is invalid.
    """
    mapping = {"data": _plain(data)}
    _override(mapping, overrides)
    return _build(DataConfig, mapping["data"], "data")


def config_from_mapping(mapping: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Convert the content of a YAML file to a typed configuration.

    Args:
        mapping: The content of the file.
        source: Start of the error message.

    Raises:
        MolsliceError: A key is unknown or missing, or a value or its type is invalid.
    """
    try:
        return _build(RunConfig, mapping, "")
    except MolsliceError as error:
        raise MolsliceError(f"{source}: {error}") from error


def config_to_mapping(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to plain values with every field. `config_from_mapping` is the inverse."""
    return _plain(config)


def config_to_yaml(config: RunConfig) -> str:
    """Convert a configuration to YAML with every field. Loading the YAML gives an equal configuration."""
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
    """Apply dotted settings to `mapping`, the content of a file."""
    given = [(key.replace("-", "_"), parse_yaml(value, f"--{key}")) for key, value in overrides]
    # names first: another name removes the options in the file, but not those in the overrides
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
        section[name] = dict(inner) if isinstance(inner, dict) else {}  # a YAML alias may share it
        section = section[name]
    if len(path) == 1 and path[0] in NAMED and last == "name" and section.get("name") != value:
        section.clear()
    section[last] = value


def _build(cls: type, mapping: Any, path: str) -> Any:  # noqa: ANN401
    """Build a dataclass from a mapping. `path` is its dotted key, empty at the top level."""
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
    """Convert `{name, option: value}` of a file to `{name, options: {...}}` and check the option names."""
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
