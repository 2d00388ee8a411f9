"""Typed, frozen configurations: YAML and command-line overrides in, `RunConfig` out.

The error for an unknown key names the file, the key and similar names. The error for a wrong type names the
key, the value and the expected type.

The project converts types itself: pydantic and jsonargparse accept or refuse other values than YAML needs
(`1e-4` is text in YAML 1.1), suggest no similar names, and support no keys that depend on `name`.

docs/config.schema.json, the schema for editors, is generated from the same dataclasses and registries.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from molslice.attention import ATTENTIONS
from molslice.config.conversion import convert, show
from molslice.config.settings import LENGTHS, DataConfig, RunConfig, StartConfig
from molslice.data import DATASETS
from molslice.files.parsing import parse_yaml
from molslice.model import DEFAULT_MODEL, MODELS, AttentionChoice, ModelSpec
from molslice.model.base import SIZES
from molslice.registry import near_names
from molslice.types import MolsliceError

NAMED = ("attention", "data")  # sections whose `name` determines the other options
DEFAULT_NAMES = {"attention": AttentionChoice().name}
MAX_BYTES = 1_000_000  # maximum size of a configuration file


def load_config(
    path: str | Path,
    overrides: Sequence[tuple[str, str]] = (),
    find_base: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
) -> RunConfig:
    """Read a configuration from a YAML file and apply overrides.

    Args:
        path: The YAML file.
        overrides: Pairs of a dotted key and a value in YAML, such as `("optimizer.lr", "1e-3")`. A length of
            training (`max_steps`, `max_epochs`, `max_minutes`) replaces the one in the file. Another
            `attention.name` or `data.name` removes the options in the file for the previous name, and
            `model.preset` removes the sizes in the file.
        find_base: Gets the content of the file with the overrides, and returns the sections for keys that it
            lacks.

    Raises:
        MolsliceError: The file does not exist or is not YAML, a key is unknown, or a value or its type is
            invalid.
    """
    mapping = parse_yaml(_read_text(path), str(path))
    if not isinstance(mapping, dict) or not mapping:
        keys = ", ".join(_names(RunConfig))
        raise MolsliceError(f"{path}: a configuration is a mapping with the keys {keys}")
    _override(mapping, overrides)
    if find_base is not None:
        _fill(mapping, find_base(mapping))
    return config_from_mapping(mapping, source=_named(str(path), overrides))


def override_data(data: DataConfig, overrides: Sequence[tuple[str, str]]) -> DataConfig:
    """Return a copy of the settings of a data set with overrides `data.*`, as in `load_config`.

    Raises:
        MolsliceError: A value or its type is invalid.
    """
    mapping = {"data": _plain(data)}
    _override(mapping, overrides)
    return _build(DataConfig, mapping["data"], "data")


def config_from_mapping(
    mapping: Mapping[str, Any], source: str = "configuration", overrides: Sequence[tuple[str, str]] = ()
) -> RunConfig:
    """Convert the content of a YAML file, named `source` in messages, to a typed configuration.

    Raises:
        MolsliceError: A key is unknown or missing, or a value or its type is invalid.
    """
    if overrides:
        mapping = dict(mapping)
        _override(mapping, overrides)
    try:
        return _build(RunConfig, mapping, "")
    except MolsliceError as error:
        raise MolsliceError(f"{_named(source, overrides)}: {error}") from error


def config_to_mapping(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to plain values with every field. `config_from_mapping` is the inverse."""
    return _plain(config)


def config_to_yaml(config: RunConfig) -> str:
    """Convert a configuration to YAML with every field. Loading the YAML gives an equal configuration."""
    return yaml.safe_dump(config_to_mapping(config), sort_keys=False)


def _named(source: str, overrides: Sequence[tuple[str, str]]) -> str:
    """Name the origin of settings in an error message: the file, and what the command line changed."""
    return " ".join([source, *(["with"] if overrides else []), *(f"--{key}" for key, _ in overrides)])


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
    # these first: they remove options in the file, but not those in the overrides
    naming = {*NAMED, *(f"{section}.name" for section in NAMED), "model.preset"}
    given.sort(key=lambda item: not (item[0] in naming and isinstance(item[1], str)))
    lengths = [f"training.{name}" for name in LENGTHS]
    places = [place for place, (key, value) in enumerate(given) if key in lengths and value is not None]
    if places:
        given[places[0] : places[0]] = [(key, None) for key in lengths]
    for key, value in given:
        _set(mapping, key, value)


def _fill(mapping: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Add the keys of `base` that `mapping` lacks, unless a section has another `name`."""
    for key, inner in base.items():
        given = mapping.get(key)
        if isinstance(given, str) and key in NAMED:
            given = {"name": given}
        if given is None:
            mapping[key] = inner
        elif isinstance(given, dict) and given.get("name", inner.get("name")) == inner.get("name"):
            mapping[key] = {**inner, **given}


def _set(mapping: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    if path and path[0] in NAMED and isinstance(mapping.get(path[0]), str):
        mapping[path[0]] = {"name": mapping[path[0]]}  # `data: csv` is short for `data: {name: csv}`
    section = mapping
    for name in path:
        inner = section.get(name)
        section[name] = dict(inner) if isinstance(inner, dict) else {}  # a YAML alias may share it
        section = section[name]
    if len(path) == 1 and path[0] in NAMED and last == "name":
        former = section.get("name", DEFAULT_NAMES.get(path[0]))
        if former != value:
            section.clear()
    if key == "model.preset" and value is not None:
        for size in SIZES:
            section.pop(size, None)
    if key == "start.model":
        section.clear()  # it has the checksum of another model
    section[last] = value


def _build(cls: type, mapping: Any, path: str) -> Any:  # noqa: ANN401
    """Build a dataclass from a mapping. `path` is its dotted key, empty at the top level."""
    if cls is ModelSpec:
        name = mapping.get("name", DEFAULT_MODEL) if isinstance(mapping, Mapping) else DEFAULT_MODEL
        if not isinstance(name, str) or name not in MODELS.names():
            raise MolsliceError(f"{path}.name is {show(name)}; {near_names(str(name), MODELS.names())}")
        cls = MODELS.find(name)
    if isinstance(mapping, str) and cls in (DataConfig, AttentionChoice):
        mapping = {"name": mapping}
    if not isinstance(mapping, Mapping):
        keys = ", ".join(_names(cls))
        raise MolsliceError(f"{path} is {show(mapping)}, expected a mapping with the keys {keys}")
    if cls is DataConfig or cls is AttentionChoice:
        mapping = _gather_options(cls, dict(mapping), path)
    hints, names = typing.get_type_hints(cls), _names(cls)  # there are hints of class variables too
    values = {}
    for key, value in mapping.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in names:
            raise MolsliceError(f"unknown key {where!r}; {near_names(str(key), names)}")
        values[key] = _convert(value, hints[key], where)
    for f in dataclasses.fields(cls):
        if f.name not in values and f.default is f.default_factory is dataclasses.MISSING:
            raise MolsliceError(f"key {f'{path}.{f.name}' if path else f.name!r} is missing")
    try:
        return cls(**values)
    except MolsliceError as error:
        raise MolsliceError(f"{path}: {error}" if path else str(error)) from error


def _gather_options(cls: type, mapping: dict[str, Any], path: str) -> dict[str, Any]:
    """Convert `{name, option: value}` of a file to `{name, options: {...}}` and check the option names."""
    registry = DATASETS if cls is DataConfig else ATTENTIONS
    name = mapping.get("name", DEFAULT_NAMES.get(path))
    if not isinstance(name, str):
        raise MolsliceError(f"{path}.name is {show(name)}, expected one of {', '.join(registry.names())}")
    fields = {f for f in _names(cls) if f != "options"}
    known = set(registry.options(name))
    options = {key: value for key, value in mapping.items() if key not in fields}
    for key in options:
        if key not in known:
            near = near_names(str(key), known | fields)
            raise MolsliceError(f"unknown key '{path}.{key}' for {name!r}; {near}")
    hints = registry.hints(name)
    options = {key: convert(value, hints.get(key, Any), f"{path}.{key}") for key, value in options.items()}
    return {**{key: value for key, value in mapping.items() if key in fields}, "options": options}


def _convert(value: Any, hint: Any, where: str) -> Any:  # noqa: ANN401
    if hint == StartConfig | None:
        return None if value is None else _build(StartConfig, value, where)
    if hint is ModelSpec or (dataclasses.is_dataclass(hint) and isinstance(hint, type)):
        return _build(hint, value, where)
    return convert(value, hint, where)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, DataConfig | AttentionChoice):
        plain = {name: _plain(getattr(value, name)) for name in _names(type(value)) if name != "options"}
        return {**plain, **_plain(value.options)}
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
