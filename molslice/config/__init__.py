"""Configurations: YAML and command-line overrides in, a typed, frozen `RunConfig` out.

Modules:
    reading: Reads YAML, applies overrides and short forms, writes YAML.
    settings: The sections of a configuration.
    entries: The entries of a comparison, such as `slice_sort:form=mix_plus_sort`.
    conversion: Converts plain values to the types of annotations.

Imports: `data`, `model` and the packages below them.

To add a key, add a field to a section in `settings`, with its line in the docstring. Options of data sets,
models and attentions are the keyword-only parameters of their classes and need no change here.
"""

from molslice.config.reading import (
    config_from_mapping,
    config_to_mapping,
    config_to_yaml,
    load_config,
    override_data,
)
from molslice.config.settings import (
    LENGTHS,
    DataConfig,
    OptimizerConfig,
    RunConfig,
    StartConfig,
    TrainerConfig,
    TrainingConfig,
)

__all__ = [
    "LENGTHS",
    "DataConfig",
    "OptimizerConfig",
    "RunConfig",
    "StartConfig",
    "TrainerConfig",
    "TrainingConfig",
    "config_from_mapping",
    "config_to_mapping",
    "config_to_yaml",
    "load_config",
    "override_data",
]
