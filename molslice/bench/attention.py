"""The measurement of attentions: entries, sizes, precision, device, and duration, and the run of a plan."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch

from molslice.attention import ATTENTIONS, build_attention
from molslice.bench.attention_result import BenchResult, Size
from molslice.bench.job import Job
from molslice.bench.machine import describe_machine
from molslice.bench.rounds import GIGA, Measurement, Plan, Task, run_rounds
from molslice.bench.scores import Scores
from molslice.config import RunConfig
from molslice.config.entries import WrittenEntry, describe_data, split_entries
from molslice.files.process_memory import available_bytes
from molslice.model.base import OneEncoderSpec
from molslice.registry import near_names
from molslice.types import AttentionSpec, MolsliceError

DEFAULT_ENTRIES = "softmax,softmax:fused=false,slice_sort,flow,singular"
ALL = "all"
MOLECULE_TOKENS = 52
MODEL_SETTINGS = ("num_layers", "num_heads", "head_dim", "ffn_dim", "causal", "dtype")
MARGIN = 0.9  # share of the free memory that a job may use if no budget is given

Dtype = Literal["fp32", "bf16", "fp16"]
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")

# The byte-level text classification that the Sliceformer paper measures speed and memory on
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sliceformer_text": {
            "lengths": (1024, 2048, 3072, 4096),
            "dims": (256,),
            "batch_sizes": (32,),
            "num_layers": 4,
            "num_heads": 4,
            "ffn_dim": 1024,
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionJob(Job):
    """An attention at one size in one round; a `BenchPlan` describes the fields of the model.

    Attributes:
        attention: Name of the attention.
        options: Its own options.
        length: Tokens per sequence.
        dim: Width of the model.
        batch_size: Sequences per batch.
        seed: Seed of the weights and of the batch.
        counts_flops: Whether operations are counted.
    """

    program: ClassVar[str] = "molslice.bench.attention_worker"

    attention: str
    options: dict[str, Any]
    length: int
    dim: int
    batch_size: int
    num_layers: int
    num_heads: int
    head_dim: int | None
    ffn_dim: int
    causal: bool
    dtype: Dtype
    seed: int
    counts_flops: bool


@dataclass(frozen=True, slots=True)
class BenchPlan(Plan):
    """The settings of a measurement; every entry is measured at every length, width, and batch size.

    Attributes:
        entries: The attentions with their options.
        lengths: Tokens per sequence.
        dims: Widths of the model.
        batch_sizes: Sequences per batch; unused if `batch_tokens` is given.
        batch_tokens: Tokens per batch, which then has at least one sequence; None for `batch_sizes`.
        num_layers: Layers of the encoder.
        num_heads: Heads of the attention.
        head_dim: Width of a head; None for the width of the model divided by `num_heads`.
        ffn_dim: Hidden width of the feed-forward network; None for four times the width.
        causal: Whether to measure the causal forms.
        dtype: Precision of the computation; half precisions are autocast.
        budget_gb: Memory in GB above which a job is out of memory; None for 90% of the free memory on a CPU,
            and all memory on a GPU.

    Raises:
        MolsliceError: The precision or the device is unknown, or an entry cannot be built or is registered
            in this process only.
    """

    entries: tuple[WrittenEntry, ...]
    lengths: tuple[int, ...] = (512, 1024, 2048)
    dims: tuple[int, ...] = (256,)
    batch_sizes: tuple[int, ...] = (4,)
    batch_tokens: int | None = None
    num_layers: int = 4
    num_heads: int = 4
    head_dim: int | None = None
    ffn_dim: int | None = None
    causal: bool = False
    dtype: Dtype = "fp32"
    budget_gb: float | None = None

    def __post_init__(self) -> None:
        for name in ("lengths", "dims", "batch_sizes"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if self.dtype not in DTYPES:
            raise MolsliceError(f"unknown dtype {self.dtype!r}; choices: {', '.join(DTYPES)}")
        Plan.__post_init__(self)
        for entry in self.entries:
            self._build_once(entry)

    def _build_once(self, entry: WrittenEntry) -> None:
        """Build the attentions of an entry, so that errors are reported before anything is measured."""
        if ATTENTIONS.is_added(entry.name):
            raise MolsliceError(
                f"entry {entry.label!r}: it is registered in this process only, and each measurement runs in "
                "a new one; put its file into molslice/attention"
            )
        for dim in self.dims:
            spec = AttentionSpec(
                dim=dim,
                num_heads=self.num_heads,
                num_layers=self.num_layers,
                causal=self.causal,
                max_tokens=self.lengths[0],
                channels_per_head=self.head_dim,
            )
            try:
                build_attention(entry.name, spec, entry.options)
            except (MolsliceError, TypeError) as error:
                raise MolsliceError(f"entry {entry.label!r}: {error}") from error

    def sizes(self) -> list[Size]:
        """Return all sizes by width, then batch size, then ascending length."""
        sizes = []
        for dim, batch_size, length in itertools.product(
            self.dims, self.batch_sizes if self.batch_tokens is None else [None], self.lengths
        ):
            if batch_size is None:
                tokens = self.batch_tokens or 1
                sizes.append(Size(length, dim, max(1, tokens // length), f"{tokens:,} tokens a batch"))
            else:
                sizes.append(Size(length, dim, batch_size, f"batch {batch_size}"))
        return sizes

    def tasks(self) -> Iterator[Task]:
        """Yield the measurements by size, then round: a slow minute affects all entries."""
        budget = self.budget_bytes()
        for size in self.sizes():
            for number in range(self.rounds):
                for entry in self.entries:
                    key = (entry.label, size.length, size.dim, size.batch_size)
                    label = f"{entry.label} at {size.length:,} tokens"
                    yield Task(key, number, self._job(entry, size, number, budget), label)

    def _job(self, entry: WrittenEntry, size: Size, number: int, budget_bytes: int | None) -> AttentionJob:
        settings = self.subset(*MODEL_SETTINGS, "device", "threads", "steps", "seconds", "timeout")
        return AttentionJob(
            attention=entry.name,
            options=entry.options,
            length=size.length,
            dim=size.dim,
            batch_size=size.batch_size,
            budget_bytes=budget_bytes,
            seed=number,
            counts_flops=number == 0,
            **{**settings, "ffn_dim": self.ffn_dim or 4 * size.dim},
        )

    def budget_bytes(self) -> int | None:
        """Return the bytes that a job may use; None if only the device limits it."""
        if self.budget_gb is not None:
            return int(self.budget_gb * GIGA)
        free = available_bytes() if torch.device(self.device).type == "cpu" else None
        return None if free is None else int(MARGIN * free)

    def conditions(self) -> dict[str, Any]:
        """Return the settings, apart from the machine, that must be equal for numbers to be comparable."""
        return self.subset(*MODEL_SETTINGS, "device", "threads", "steps", "seconds")


def read_entries(text: str) -> tuple[WrittenEntry, ...]:
    """Parse entries as `molslice compare` does; `all` is every attention with its defaults.

    `all` includes softmax twice: with the fused kernel, and without it as the papers measure it.

    Raises:
        MolsliceError: There is no entry, an entry is given twice, or a setting is not `option=value`.
    """
    if text.strip() == ALL:
        others = [name for name in ATTENTIONS.names() if name != "softmax"]
        text = ",".join(["softmax", "softmax:fused=false", *others])
    return tuple(split_entries(text))


def sizes_of_config(config: RunConfig) -> dict[str, Any]:
    """Return the sizes of a configuration as fields of a plan.

    The length of molecules is `model.max_tokens`, or 52 tokens, the maximum in PCQM4M.

    Raises:
        MolsliceError: The model has stages, which differ in width and length.
    """
    model = config.model
    if not isinstance(model, OneEncoderSpec):
        raise MolsliceError(
            f"bench measures one encoder of one width; the model {model.name} is {model.size_label}: measure "
            "its stages one by one, with --num-layers and --dim"
        )
    length = getattr(model, "max_tokens", None) or describe_data(config).max_tokens or MOLECULE_TOKENS
    return {
        "lengths": (length,),
        "dims": (model.dim,),
        "batch_sizes": (max(1, min(config.training.batch_size, config.training.token_budget // length)),),
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "head_dim": model.head_dim,
        "ffn_dim": model.ffn_dim,
        "causal": model.is_causal,
    }


def choose_setting(name: str) -> Mapping[str, Any]:
    """Return the sizes of a named setting as fields of a plan.

    Raises:
        MolsliceError: The setting is unknown; the message lists the choices.
    """
    if name not in SETTINGS:
        raise MolsliceError(f"unknown setting {name!r}; {near_names(name, SETTINGS)}")
    return SETTINGS[name]


def run_bench(
    plan: BenchPlan,
    out: Path | str | None = None,
    *,
    setting: str | None = None,
    scores: Scores | None = None,
    tell: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> BenchResult:
    """Measure every entry at every size, with a new process for each round; see `run_rounds`.

    Measurements in `out` are kept, except those that failed or were out of memory under a smaller budget.

    Args:
        plan: What to measure.
        out: Folder of `bench.json`, `table.md`, `table.csv`, `bubbles.png` and `bubbles.svg`. None writes no
            files.
        setting: Name of the setting that the sizes come from; the table shows its published numbers. None for
            other sizes.
        scores: Values that the plot draws against speed; None for memory.
        tell: See `run_rounds`.
        quiet: See `run_rounds`.

    Returns:
        The measurements, also of earlier calls.

    Raises:
        MolsliceError: See `run_rounds`.
    """
    result = BenchResult(
        entries=[entry.label for entry in plan.entries],
        sizes=plan.sizes(),
        conditions=plan.conditions(),
        machine=describe_machine(plan.device),
        setting=setting,
    )
    if scores is not None:
        scores.check(result.entries)
    budget = None if plan.budget_gb is None else plan.budget_bytes()

    def is_kept(measurement: Measurement) -> bool:
        used = measurement.numbers["budget_bytes"]
        return measurement.outcome == "ok" or (
            measurement.outcome == "OOM" and (budget is None or used is None or budget <= used)
        )

    def to_files() -> dict[str, str | bytes]:
        if not any(row.outcome == "ok" for row in result.rows()):
            return {"table.csv": result.to_csv()}
        from molslice.bench.bubbles import draw_bubbles  # matplotlib takes long to import

        pictures = {f"bubbles.{suffix}": draw_bubbles(result, suffix, scores) for suffix in ("png", "svg")}
        return {"table.csv": result.to_csv(), **pictures}

    run_rounds(result, plan.tasks(), out, to_files=to_files, tell=tell, quiet=quiet, is_kept=is_kept)
    return result
