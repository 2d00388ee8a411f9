"""What a comparison trains: entries such as `slice_sort:form=mix_plus_sort`, and the labels of runs."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import yaml

from molslice.config import RunConfig, config_from_mapping, config_to_mapping, config_to_yaml
from molslice.data import DATASETS, build_dataset
from molslice.model.build import build_model
from molslice.model.spec import AnySpec, HierarchicalSpec
from molslice.types import DataSpec, MolsliceError

__all__ = [
    "Entry",
    "WrittenEntry",
    "attention_label",
    "describe_data",
    "folder_name",
    "labels_of",
    "parse_entries",
    "split_entries",
]

GIN = "gin_virtual"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is trained under one label: the base configuration with another attention or model."""

    label: str
    config: RunConfig


class WrittenEntry(NamedTuple):
    """One entry of a list, `label` is all of it: `name:option=value:option=value`."""

    label: str
    name: str
    options: dict[str, Any]


def parse_entries(text: str, base: RunConfig) -> list[Entry]:
    """Entries with a comma between, each a name, or `name:option=value:option=value`.

    The attention's options are those of the entry alone, not those of `base`. Behind `gin_virtual`
    stand settings of the model. Each model is built once, so that what cannot be built shows now and not
    after the runs before it.

    Raises:
        MolsliceError: no entry, one that stands twice, an unknown name or option, or an unfit value.
    """
    written = split_entries(text)
    data = describe_data(base)
    return [_parse_entry(entry, base, data) for entry in written]


def split_entries(text: str) -> list[WrittenEntry]:
    """Entries as they are written, names and options not yet looked up; values are read as YAML.

    Raises:
        MolsliceError: no entry, one that stands twice, or a setting that is not `option=value`.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MolsliceError("a comparison needs at least one entry, for instance softmax,slice_sort")
    for name in names:
        if names.count(name) > 1:
            raise MolsliceError(f"entry {name!r} stands twice; seeds or rounds repeat what an entry runs")
    return [_split_entry(name) for name in names]


def _split_entry(text: str) -> WrittenEntry:
    name, *settings = text.split(":")
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise MolsliceError(f"entry {text!r}: {setting!r} is not of the form option=value")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise MolsliceError(f"entry {text!r}: the value of {key} is not YAML: {value!r}") from error
    return WrittenEntry(text, name, options)


def _parse_entry(written: WrittenEntry, base: RunConfig, data: DataSpec) -> Entry:
    text, name, options = written
    mapping = config_to_mapping(base)
    if name == GIN:
        mapping["model"] = {**mapping["model"], **options, "name": GIN}
    else:
        if base.model.name == GIN:
            mapping["model"] = {**mapping["model"], "name": "graphormer"}
        mapping["attention"] = {**options, "name": name}
    config = config_from_mapping(mapping, source=f"entry {text!r}")
    try:
        build_model(config.model, config.attention, data)
    except (MolsliceError, TypeError) as error:
        raise MolsliceError(f"entry {text!r}: {error}") from error
    return Entry(text, config)


def attention_label(config: RunConfig) -> str:
    """What distinguishes a configuration in a comparison, spelt as an entry."""
    if config.model.name == GIN:
        return GIN
    choice = config.attention
    options = dict(choice.options)
    if choice.pair_bias is not None:
        options["pair_bias"] = choice.pair_bias
    return ":".join([choice.name, *(f"{key}={_short(value)}" for key, value in options.items())])


def describe_data(config: RunConfig) -> DataSpec:
    """What a model has to know of the configuration's data; they are read where their options do not tell.

    Raises:
        MolsliceError: data that had to be read and cannot be.
    """
    options = dict(config.data.options)
    described = DATASETS.find(config.data.name).describe(options)
    return described or build_dataset(config.data.name, options).spec


def folder_name(label: str) -> str:
    """A label as the name of a folder."""
    return re.sub(r"[^\w.=]+", "-", label)


def labels_of(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each run, the same for runs that differ in the seed alone.

    Sizes are added where the attention does not tell different runs apart, then a number.
    """
    plain = [attention_label(config) for config in configs]
    identity = [config_to_yaml(replace(config, seed=0)) for config in configs]
    sized = []
    for label, config in zip(plain, configs, strict=True):
        same = {identity[index] for index, other in enumerate(plain) if other == label}
        sized.append(f"{label} {size_label(config.model)}" if len(same) > 1 else label)
    labels = []
    for index, label in enumerate(sized):
        same = list(dict.fromkeys(identity[j] for j, other in enumerate(sized) if other == label))
        labels.append(label if len(same) == 1 else f"{label} #{same.index(identity[index]) + 1}")
    return labels


def size_label(model: AnySpec) -> str:
    """Layers and width, `12x768`, of a model in stages those of each, `3x96-3x192`."""
    if isinstance(model, HierarchicalSpec):
        return "-".join(f"{depth}x{dim}" for depth, dim in zip(model.depths, model.dims, strict=True))
    return f"{model.num_layers}x{model.dim}"


def _short(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # as it is usually written
    return json.dumps(value) if isinstance(value, bool | list | tuple | dict) or value is None else str(value)
