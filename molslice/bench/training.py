"""The measurement of training: models, attentions and precisions, the run of a plan, and the result.

Peak arithmetic is the dense rate of data sheets.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from molslice.bench.job import Job
from molslice.bench.machine import check_device, describe_machine
from molslice.bench.molecules import Molecules, describe_store, open_store
from molslice.bench.rounds import (
    GIGA,
    Column,
    Key,
    Measurement,
    Plan,
    Result,
    Spread,
    Task,
    number_text,
    row_table,
    run_rounds,
    spread_of,
)
from molslice.config import RunConfig, config_from_mapping, config_to_mapping
from molslice.config.entries import attention_label, parse_entries
from molslice.registry import near_names
from molslice.training.start import load_run_config
from molslice.types import MolsliceError

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

# Words that the name of the device contains, and its dense TFLOP/s. Where a data sheet states the rate "with
# sparsity", this is half of it. The first match counts.
# Source: data sheets "NVIDIA H100 Tensor Core GPU" (SXM, PCIe and NVL), "NVIDIA H200 Tensor Core GPU" (SXM
# and NVL) and "NVIDIA A100 Tensor Core GPU" (equal for SXM and PCIe).
PEAKS: tuple[tuple[tuple[str, ...], Mapping[str, float]], ...] = (
    (("H200", "NVL"), MappingProxyType({"bf16": 835.5, "tf32": 417.5, "fp32": 60.0})),
    (("H200",), MappingProxyType({"bf16": 989.5, "tf32": 494.5, "fp32": 67.0})),
    (("H100", "NVL"), MappingProxyType({"bf16": 835.5, "tf32": 417.5, "fp32": 60.0})),
    (("H100", "PCIe"), MappingProxyType({"bf16": 756.5, "tf32": 378.0, "fp32": 51.0})),
    (("H100",), MappingProxyType({"bf16": 989.5, "tf32": 494.5, "fp32": 67.0})),
    (("A100",), MappingProxyType({"bf16": 312.0, "tf32": 156.0, "fp32": 19.5})),
)
TERA = 1e12
PARTS = ("forward", "backward", "optimizer")
COLUMNS = (
    Column("parameters", "parameters", "{:,.0f}".format),
    Column("molecules/s", "molecules_per_second", number_text()),
    *(Column(name, f"{name}_share", "{:.1%}".format) for name in ("waiting", *PARTS, "padding")),
    Column("memory (GB)", "peak_bytes", number_text(GIGA)),
    Column("TFLOP/s", "flops_per_second", number_text(TERA)),
    Column("of peak", "peak_share", "{:.1%}".format),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob(Job):
    """A configuration in one round.

    Attributes:
        config: The configuration, as `config_to_mapping` returns it.
        store: Folder of the molecules.
        counts_flops: Whether operations are counted.
    """

    program: ClassVar[str] = "molslice.bench.training_worker"

    config: dict[str, Any]
    store: str
    counts_flops: bool


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
class TrainPlan(Plan):
    """The settings of a measurement of training.

    Attributes:
        entries: What to measure.
        settings: Configuration file and changed settings of the entries. Numbers are comparable only if they
            are equal.
    """

    entries: Sequence[TrainEntry]
    seconds: float = field(default=5.0, kw_only=True)
    settings: Mapping[str, str] = field(default_factory=dict)

    def tasks(self, store: str) -> Iterator[Task]:
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

    def _job(self, entry: TrainEntry, number: int, store: str) -> TrainJob:
        mapping = config_to_mapping(entry.config)
        mapping["seed"] += number
        settings = self.subset("device", "threads", "steps", "seconds", "timeout")
        return TrainJob(config=mapping, store=store, counts_flops=number == 0, **settings)

    def conditions(self) -> dict[str, Any]:
        """Return the settings, apart from the machine, that must be equal for numbers to be comparable."""
        return {**self.subset("device", "threads", "steps", "seconds"), "settings": dict(self.settings)}


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
    check_device(device)
    if device not in BATCHES:
        raise MolsliceError(
            f"cannot measure training on device {device!r}; choices: cpu, cuda (select one of several with "
            "CUDA_VISIBLE_DEVICES)"
        )
    if precisions is None:
        precisions = ["32" if config is None else load_run_config(config, overrides).trainer.precision]
    for precision in precisions:
        if precision not in PRECISIONS:
            raise MolsliceError(f"unknown precision {precision!r}; choices: {', '.join(PRECISIONS)}")
    names = models if config is None else [config.stem]
    for what, given in (("model", names), ("precision", precisions)):
        if not given:
            raise MolsliceError(f"give at least one {what}")
        if twice := [name for name in given if list(given).count(name) > 1]:
            raise MolsliceError(f"{twice[0]!r} is given twice")
    attentions = attentions or (DEFAULT_ATTENTIONS if config is None else None)
    entries = []
    for name, precision in itertools.product(names, precisions):
        hardware = {"accelerator": device, "precision": precision, "devices": 1, "num_nodes": 1}
        settings = [*overrides, *((f"trainer.{key}", str(value)) for key, value in hardware.items())]
        base = _base(name, device, settings) if config is None else load_run_config(config, settings)
        if base.task != "molecule":
            raise MolsliceError(f"cannot measure task {base.task}; only molecule")
        if attentions is None:
            entries.append(TrainEntry(name, attention_label(base), precision, base))
        else:
            entries += [
                TrainEntry(name, entry.label, precision, entry.config)
                for entry in parse_entries(attentions, base)
            ]
    return entries


def _base(model: str, device: str, settings: Sequence[tuple[str, str]]) -> RunConfig:
    if model not in MODELS:
        raise MolsliceError(f"unknown model {model!r}; {near_names(model, MODELS)}")
    mapping = {
        "data": {"name": "pcqm4m", "root": "data/gap_xtb"},
        "model": dict(MODELS[model]),
        "training": {"max_steps": 1_000_000, **BATCHES[device]},
    }
    return config_from_mapping(mapping, "settings", settings)


@dataclass(kw_only=True)
class TrainResult(Result):
    """All measurements of training, with their conditions.

    A measurement has, of its timed steps together: their number, the molecules in them, the time with and
    without waiting for batches (on a GPU, waiting is the idle time of the device before a batch), the
    processor time over all threads, and the operations, counted only in the first round. Forward passes
    include copies to the device; the optimizer includes clipping and averaging. Besides it has the share of
    padding in the tokens of the first epoch, the trainable parameters, and the peak memory: the largest
    resident set of the process, or what torch allocated on a GPU; None if it is not available.

    Attributes:
        entries: Model, attention and precision of each entry.
        peaks: Peak of the device in operations per second by precision; None if it is unknown.
    """

    FILE: ClassVar = "bench_train.json"
    KEY: ClassVar = {"model": str, "attention": str, "precision": str}
    NUMBERS: ClassVar = (
        "steps",
        "molecules",
        "seconds",
        "processor_seconds",
        "waiting_seconds",
        "forward_seconds",
        "backward_seconds",
        "optimizer_seconds",
        "padding_share",
        "peak_bytes",
        "parameters",
        "flops",
    )

    entries: list[tuple[str, str, str]]
    peaks: dict[str, float | None]

    def keys(self) -> list[Key]:
        """Return model, attention and precision of each entry."""
        return [*self.entries]

    def summarize(self, key: Key, rounds: Sequence[Measurement]) -> dict[str, Any]:
        """Return rates, shares and counts.

        Waiting is a share of the time; forward, backward and optimizer are shares of the time of the steps.
        """
        first = rounds[0].numbers if rounds else {}
        counted = [
            measurement.ratio("flops", "molecules")
            for measurement in rounds
            if measurement.numbers.get("flops")
        ]
        flops, peak = (counted[0] if counted else None), self.peaks.get(str(key[2]))
        speed = spread_of(rounds, "molecules", "seconds")
        per_second = None if flops is None or speed is None else flops * speed.median
        return {
            "parameters": first.get("parameters"),
            "molecules_per_second": speed,
            "molecules_per_processor_second": spread_of(rounds, "molecules", "processor_seconds"),
            "waiting_share": spread_of(rounds, "waiting_seconds", "seconds"),
            **{
                f"{name}_share": Spread.over([_share(measurement, name) for measurement in rounds])
                for name in PARTS
            },
            "padding_share": first.get("padding_share"),
            "peak_bytes": spread_of(rounds, "peak_bytes"),
            "flops_per_molecule": flops,
            "flops_per_second": per_second,
            "peak_share": None if per_second is None or not peak else per_second / peak,
        }

    def to_markdown(self) -> str:
        """Return the table, the conditions of the measurement, and the reasons for missing numbers."""
        had, machine, rows = self.conditions, self.machine, self.rows()
        lines = [
            f"{had['molecules']:,} molecules of {had['source']}, {machine['device']}, {had['threads']} "
            f"threads, torch {machine['torch']}. Median over rounds, each in a fresh process, the entries in "
            "turn. Waiting is a share of the time, forward, backward and optimizer are shares of the steps."
        ]
        if machine["device"] != machine["processor"] and not any(self.peaks.values()):
            lines.append(f"The peak of {machine['device']} is unknown, so its share is not stated.")
        if self.interrupted:
            lines.append("Interrupted: rows with `...` are not measured yet.")
        lines += ["", row_table(self.KEY, COLUMNS, rows, hides_empty=True)]
        for row in rows:
            if row.outcome in ("OOM", "failed"):
                model, attention, precision = row.key
                lines.append(f"- {model} `{attention}` in {precision}: {row.outcome}, {row.reason}")
        return "\n".join(lines).rstrip() + "\n"


def _share(measurement: Measurement, phase: str) -> float | None:
    """Return the share of a phase, one of `PARTS`, in the time of the steps."""
    seconds = {name: measurement.numbers[f"{name}_seconds"] for name in PARTS}
    if None in seconds.values() or not sum(seconds.values()):
        return None
    return seconds[phase] / sum(seconds.values())


def run_training_bench(
    plan: TrainPlan,
    source: Molecules,
    out: Path | str | None = None,
    *,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> TrainResult:
    """Measure the training of every entry, with a new process for each round; see `run_rounds`.

    Args:
        plan: What to measure.
        source: The molecules.
        out: Folder of `bench_train.json` and `table.md`. None writes no files.
        tell: See `run_rounds`.
        quiet: See `run_rounds`.

    Raises:
        MolsliceError: The molecules cannot be read; see also `run_rounds`.
    """
    with open_store(source) as store:
        conditions = {**plan.conditions(), **describe_store(store)}
        machine = describe_machine(plan.device)
        entries = [entry.key for entry in plan.entries]
        peaks = {precision: _peak_of(machine, plan.device, precision) for *_, precision in entries}
        result = TrainResult(conditions=conditions, machine=machine, entries=entries, peaks=peaks)
        run_rounds(result, plan.tasks(str(store.path)), out, tell=tell, quiet=quiet)
    return result


def _peak_of(machine: Mapping[str, str], device: str, precision: str) -> float | None:
    if device != "cuda":
        return None
    if precision != "32":
        return find_peak(machine["device"], "bf16")
    is_plain = torch.get_float32_matmul_precision() == "highest"
    return find_peak(machine["device"], "fp32" if is_plain else "tf32")


def find_peak(device_name: str, arithmetic: str) -> float | None:
    """Find the peak of a device without sparsity.

    Args:
        device_name: The name that the driver reports, such as `NVIDIA H100 80GB HBM3`.
        arithmetic: `bf16` (also for float16), `tf32`, or `fp32` without tensor cores.

    Returns:
        Floating-point operations per second; None for an unknown device.
    """
    name = device_name.lower()
    for words, peaks in PEAKS:
        if all(word.lower() in name for word in words):
            return peaks[arithmetic] * TERA
    return None
