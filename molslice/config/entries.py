"""The entries of a comparison, such as `slice_sort:form=mix_plus_sort`, and the labels of runs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from molslice.config import RunConfig, config_from_mapping, config_to_mapping, config_to_yaml
from molslice.config.settings import EPOCHS_DIFFER
from molslice.data import DATASETS, build_dataset
from molslice.files.parsing import parse_yaml
from molslice.model import build_model
from molslice.types import DataSpec, MolsliceError

GIN = "gin_virtual"


class Entry(NamedTuple):
    """The base configuration with another attention or model."""

    label: str  # the text of the entry
    config: RunConfig


class WrittenEntry(NamedTuple):
    """The parts of the text `name:option=value:option=value`."""

    label: str  # the whole text
    name: str  # of an attention, or `gin_virtual`
    options: dict[str, Any]  # parsed as YAML


def parse_entries(text: str, base: RunConfig) -> list[Entry]:
    """Parse entries `name` or `name:option=value:option=value`, separated by commas.

    The options of an attention come from its entry only, not from `base`. The options of `gin_virtual` are
    settings of the model. Each model is built once, so that errors are reported before anything is
    trained.

    Raises:
        MolsliceError: There is no entry, an entry occurs twice, or a name, option or value is invalid.
    """
    written, data = split_entries(text), describe_data(base)
    return [_parse_entry(entry, base, data) for entry in written]


def split_entries(text: str) -> list[WrittenEntry]:
    """Split entries, separated by commas, into names and options without looking them up.

    Raises:
        MolsliceError: There is no entry, an entry occurs twice, or a setting is not `option=value`.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise MolsliceError("give at least one entry, such as softmax,slice_sort")
    for name in names:
        if names.count(name) > 1:
            raise MolsliceError(f"entry {name!r} occurs twice; use seeds or rounds to repeat an entry")
    entries = []
    for label in names:
        name, *settings = label.split(":")
        entries.append(WrittenEntry(label, name, {}))
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not (key and equals):
                raise MolsliceError(f"entry {label!r}: {setting!r} is not of the form option=value")
            entries[-1].options[key] = parse_yaml(value, f"{key} of entry {label!r}")
    return entries


def _parse_entry(written: WrittenEntry, base: RunConfig, data: DataSpec) -> Entry:
    text, name, options = written
    mapping = config_to_mapping(base)
    if name == GIN:
        mapping["model"] = {**mapping["model"], **options, "name": GIN}
    else:
        if base.model.name == GIN:
            mapping["model"] = {**mapping["model"], "name": "graphormer"}
        elif not base.model.uses_attention:
            raise MolsliceError(f"entry {text!r}: the model {base.model.name} has no attention to compare")
        mapping["attention"] = {**options, "name": name}
    config = config_from_mapping(mapping, source=f"entry {text!r}")
    try:
        build_model(config.model, config.attention, data)
    except (MolsliceError, TypeError) as error:
        raise MolsliceError(f"entry {text!r}: {error}") from error
    return Entry(text, config)


def attention_label(config: RunConfig) -> str:
    """Return the attention of a configuration in the format of an entry, or its model if it has none."""
    if not config.model.uses_attention:
        return config.model.name
    choice = config.attention
    options = dict(choice.options)
    if choice.pair_bias is not None:
        options["pair_bias"] = choice.pair_bias
    return ":".join([choice.name, *(f"{key}={_short(value)}" for key, value in options.items())])


def describe_data(config: RunConfig) -> DataSpec:
    """Return the properties of the data of a configuration, with the outputs that its loss needs.

    The data are loaded only if their options do not determine the properties.

    Raises:
        MolsliceError: The data had to be loaded and cannot be read.
    """
    options = dict(config.data.options)
    described = DATASETS.find(config.data.name).describe(options)
    return config.model_data(described or build_dataset(config.data.name, options).spec)


def folder_name(label: str) -> str:
    """Convert a label to a valid folder name."""
    return re.sub(r"[^\w.=]+", "-", label)


def labels_of(configs: Sequence[RunConfig], folds: Sequence[int | None] | None = None) -> list[str]:
    """Return a label for each run. Runs that differ only in their seed have the same label.

    Seeds give equally many epochs a slightly different number of batches, so that runs whose steps differ by
    at most 2 % are of the same length. If different runs have the same attention, the label also states the
    size of the model, and then a number if needed.

    Args:
        configs: The configurations, with the same fold in all that differ only in it.
        folds: The fold of each run of a cross-validation; None for other runs.
    """
    plain = [attention_label(config) for config in configs]
    identity = _identities(configs, folds or [None] * len(configs))
    sized = []
    for label, config in zip(plain, configs, strict=True):
        same = {identity[index] for index, other in enumerate(plain) if other == label}
        sized.append(f"{label} {config.model.size_label}" if len(same) > 1 else label)
    labels = []
    for index, label in enumerate(sized):
        same = list(dict.fromkeys(identity[j] for j, other in enumerate(sized) if other == label))
        labels.append(label if len(same) == 1 else f"{label} #{same.index(identity[index]) + 1}")
    return labels


def _identities(configs: Sequence[RunConfig], folds: Sequence[int | None]) -> list[tuple[str, int | None]]:
    """Return a pair for each configuration that is equal for runs that differ only in their seed."""
    texts = [
        config_to_yaml(replace(c, seed=0).with_training(max_steps=c.training.max_steps and 1))
        for c in configs
    ]
    # seeds and folds by configuration and number of steps
    seeds: dict[str, dict[int, set[tuple[int, int | None]]]] = {}
    for text, config, fold in zip(texts, configs, folds, strict=True):
        if config.training.max_steps is not None:
            seeds.setdefault(text, {}).setdefault(config.training.max_steps, set()).add((config.seed, fold))
    lengths = {text: _merged_lengths(of_steps) for text, of_steps in seeds.items()}
    return [
        (text, lengths[text][config.training.max_steps] if config.training.max_steps is not None else None)
        for text, config in zip(texts, configs, strict=True)
    ]


def _merged_lengths(seeds: Mapping[int, set[tuple[int, int | None]]]) -> dict[int, int]:
    """Return for each number of steps the one that stands for it and others near it.

    Runs of one seed and fold are not repetitions of each other.
    """
    merged: dict[int, int] = {}
    first, known = 0, set[tuple[int, int | None]]()
    for steps in sorted(seeds):
        if steps > first * (1 + EPOCHS_DIFFER) or known & seeds[steps]:
            first, known = steps, set()
        known |= seeds[steps]
        merged[steps] = first
    return merged


def _short(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 2 instead of 2.0
    return json.dumps(value) if isinstance(value, bool | list | tuple | dict) or value is None else str(value)
