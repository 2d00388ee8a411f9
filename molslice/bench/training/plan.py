"""What to measure: models, attentions, precision, batches, device, and duration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from molslice.bench.job import TrainJob
from molslice.bench.machine import check_device
from molslice.bench.rounds import Task
from molslice.config import RunConfig, config_from_mapping, config_to_mapping
from molslice.config.entries import attention_label, parse_entries
from molslice.registry import near_names
from molslice.training.start import load_run_config
from molslice.types import MolsliceError

__all__ = ["DEFAULT_ATTENTIONS", "MODELS", "TrainEntry", "TrainPlan", "plan_entries"]

DEFAULT_ATTENTIONS = "softmax,slice_sort,flow,singular"
# `quickstart` is the model of configs/molecule/quickstart.yaml; the others are presets
MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "quickstart": {
            "num_layers": 4,
            "dim": 64,
            "ffn_dim": 64,
            "num_heads": 8,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        "slim": {"preset": "slim"},
        "small": {"preset": "small"},
        "base": {"preset": "base"},
    }
)
PRECISIONS = ("32", "bf16", "bf16-weights", "16")
# batches of configs/molecule/quickstart.yaml on a CPU, of configs/molecule/pcqm4m_v2.yaml on a GPU
BATCHES = {
    "cpu": {"batch_size": 64, "token_budget": 2048},
    "cuda": {"batch_size": 1024, "token_budget": 65536},
}


@dataclass(frozen=True, slots=True)
class TrainEntry:
    """One row of the table.

    Attributes:
        model: Name of the model, or of the configuration file.
        attention: The attention with its options, as in a comparison.
        precision: Precision of the computation.
        config: The configuration of the training.
    """

    model: str
    attention: str
    precision: str
    config: RunConfig

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, attention and precision."""
        return self.model, self.attention, self.precision


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """The settings of a measurement of training.

    Attributes:
        entries: What to measure.
        device: `cpu` or `cuda`.
        threads: Number of CPU threads; None for the number that torch chooses.
        rounds: Measurements of each entry.
        steps: Steps per round; None for as many as run in `seconds`, at least three.
        seconds: Time for all steps of a round, in seconds, if `steps` is None.
        settings: Configuration file and changed settings of the entries. Numbers are comparable only if they
            are equal.

    Raises:
        MolsliceError: The device is unknown or not available.
    """

    entries: Sequence[TrainEntry]
    device: str = "cpu"
    threads: int | None = None
    rounds: int = 3
    steps: int | None = None
    seconds: float = 5.0
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_device(self.device)
        if self.threads is None:
            object.__setattr__(self, "threads", torch.get_num_threads())

    def tasks(self, store: Path) -> Iterator[Task]:
        """Yield the measurements by model, then round, so that a slow minute affects all entries.

        Args:
            store: Folder of the molecules.
        """
        for model in dict.fromkeys(entry.model for entry in self.entries):
            for number in range(self.rounds):
                for entry in self.entries:
                    if entry.model == model:
                        job = self._job(entry, number, store)
                        yield Task(entry.key, number, job, " ".join(entry.key))

    def _job(self, entry: TrainEntry, number: int, store: Path) -> TrainJob:
        mapping = config_to_mapping(entry.config)
        mapping["seed"] += number
        return TrainJob(
            config=mapping,
            store=str(store),
            device=self.device,
            threads=self.threads or 1,
            steps=self.steps,
            seconds=self.seconds,
            counts_flops=number == 0,
        )

    def conditions(self) -> dict[str, Any]:
        """Return the settings, apart from the machine, that must be equal for numbers to be comparable."""
        names = ("device", "threads", "steps", "seconds")
        return {**{name: getattr(self, name) for name in names}, "settings": dict(self.settings)}


def plan_entries(
    models: Sequence[str],
    attentions: str | None = None,
    precisions: Sequence[str] | None = None,
    *,
    config: Path | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    device: str = "cpu",
) -> list[TrainEntry]:
    """Combine models, attentions and precisions.

    Args:
        models: Names in `MODELS`; unused if `config` is given.
        attentions: Attentions as in a comparison; None for `DEFAULT_ATTENTIONS`, or the one of `config`.
        precisions: `32`, `bf16` or `16`; None for the precision of `config`, or for `32` without it.
        config: A configuration file whose model, batches and optimizer are measured.
        overrides: Settings of the configuration, such as `("training.batch_size", "128")`.
        device: `cpu` or `cuda`, which determines the size of batches without `config`.

    Raises:
        MolsliceError: A name or setting is unknown or given twice, or a model cannot be built.
    """
    _check_device(device)
    if precisions is None:
        precisions = ["32" if config is None else load_run_config(config, overrides).trainer.precision]
    for precision in precisions:
        if precision not in PRECISIONS:
            raise MolsliceError(f"unknown precision {precision!r}; choices: {', '.join(PRECISIONS)}")
    for what, names in (("model", models if config is None else [config.stem]), ("precision", precisions)):
        if not names:
            raise MolsliceError(f"give at least one {what}")
        if twice := [name for name in names if list(names).count(name) > 1]:
            raise MolsliceError(f"{twice[0]!r} is given twice")
    entries = []
    for name in models if config is None else [config.stem]:
        for precision in precisions:
            hardware = {"accelerator": device, "precision": precision, "devices": 1, "num_nodes": 1}
            hardware = [(f"trainer.{key}", str(value)) for key, value in hardware.items()]
            base = _base(name, device, overrides, hardware) if config is None else None
            base = base or load_run_config(config or "", [*overrides, *hardware])
            if base.task != "molecule":
                raise MolsliceError(f"cannot measure task {base.task}; only molecule")
            asked = attentions or (DEFAULT_ATTENTIONS if config is None else None)
            if asked is None:
                entries.append(TrainEntry(name, attention_label(base), precision, base))
            else:
                entries += [
                    TrainEntry(name, one.label, precision, one.config) for one in parse_entries(asked, base)
                ]
    return entries


def _base(
    model: str, device: str, overrides: Sequence[tuple[str, str]], hardware: Sequence[tuple[str, str]]
) -> RunConfig:
    if model not in MODELS:
        raise MolsliceError(f"unknown model {model!r}; {near_names(model, MODELS)}")
    mapping = {
        "data": {"name": "pcqm4m", "root": "data/gap_xtb"},
        "model": dict(MODELS[model]),
        "training": {"max_steps": 1_000_000, **BATCHES[device]},
    }
    return config_from_mapping(mapping, "settings", [*overrides, *hardware])


def _check_device(device: str) -> None:
    check_device(device)
    if device not in BATCHES:
        raise MolsliceError(
            f"cannot measure training on device {device!r}; choices: cpu, cuda (select one of several with "
            "CUDA_VISIBLE_DEVICES)"
        )
