"""What to measure: entries, sizes, precision, device, and duration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from molslice.attention import ATTENTIONS, build_attention
from molslice.bench.machine import check_device
from molslice.bench.rounds import GIGA, Task
from molslice.bench.worker import DTYPES, AttentionJob, Dtype
from molslice.config import RunConfig
from molslice.config.entries import WrittenEntry, describe_data, split_entries
from molslice.files.process_memory import available_bytes
from molslice.model.base import OneEncoderSpec
from molslice.registry import near_names
from molslice.types import AttentionSpec, MolsliceError

__all__ = [
    "ALL",
    "DEFAULT_ENTRIES",
    "SETTINGS",
    "BenchPlan",
    "Size",
    "choose_setting",
    "read_entries",
    "sizes_of_config",
]

DEFAULT_ENTRIES = "softmax,softmax:fused=false,slice_sort,flow,singular"
ALL = "all"
MOLECULE_TOKENS = 52
MODEL_SIZES = ("num_layers", "num_heads", "head_dim", "ffn_dim")
MARGIN = 0.9  # share of the free memory that a job may use if no budget is given

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


@dataclass(frozen=True, slots=True)
class Size:
    """One column of a table.

    Attributes:
        length: Tokens per sequence.
        dim: Width of the model.
        batch_size: Sequences per batch.
        batching: The batch size or the tokens per batch, as text. Sizes with the same batching and width are
            in one table.
    """

    length: int
    dim: int
    batch_size: int
    batching: str


@dataclass(frozen=True, slots=True)
class BenchPlan:
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
        device: `cpu`, `cuda`, or `cuda:0` and so on.
        threads: Number of CPU threads; None for the number that torch chooses.
        rounds: Measurements of each entry and size.
        steps: Steps per round; None for as many as run in `seconds`.
        seconds: Time for all steps of a round, in seconds, if `steps` is None.
        budget_gb: Memory in GB above which a job is out of memory; None for 90% of the free memory on a CPU,
            and all memory on a GPU.
        timeout: Seconds after which a job has failed; None for no limit.

    Raises:
        MolsliceError: The precision or the device is unknown, or an entry cannot be built.
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
    device: str = "cpu"
    threads: int | None = None
    rounds: int = 3
    steps: int | None = None
    seconds: float = 1.0
    budget_gb: float | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("lengths", "dims", "batch_sizes"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if self.dtype not in DTYPES:
            raise MolsliceError(f"unknown dtype {self.dtype!r}; choices: {', '.join(DTYPES)}")
        check_device(self.device)
        if self.threads is None:
            object.__setattr__(self, "threads", torch.get_num_threads())
        for entry in self.entries:
            self._build_once(entry)

    def _build_once(self, entry: WrittenEntry) -> None:
        """Build the attentions of an entry, so that errors are reported before anything is measured."""
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
        if self.batch_tokens is not None:
            text = f"{self.batch_tokens:,} tokens a batch"
            rules = [(text, lambda length: max(1, (self.batch_tokens or 1) // length))]
        else:
            rules = [(f"batch {size}", lambda _, size=size: size) for size in self.batch_sizes]
        return [
            Size(length, dim, batch_of(length), text)
            for dim in self.dims
            for text, batch_of in rules
            for length in self.lengths
        ]

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
        settings = (*MODEL_SIZES, "causal", "dtype", "device", "threads", "steps", "seconds", "timeout")
        return AttentionJob(
            attention=entry.name,
            options=entry.options,
            length=size.length,
            dim=size.dim,
            batch_size=size.batch_size,
            budget_bytes=budget_bytes,
            seed=number,
            counts_flops=number == 0,
            **{**{name: getattr(self, name) for name in settings}, "ffn_dim": self.ffn_dim or 4 * size.dim},
        )

    def budget_bytes(self) -> int | None:
        """Return the bytes that a job may use; None if only the device limits it."""
        if self.budget_gb is not None:
            return int(self.budget_gb * GIGA)
        free = available_bytes() if torch.device(self.device).type == "cpu" else None
        return None if free is None else int(MARGIN * free)

    def conditions(self) -> dict[str, Any]:
        """Return the settings, apart from the machine, that must be equal for numbers to be comparable."""
        names = (*MODEL_SIZES, "causal", "dtype", "device", "threads", "steps")
        return {**{name: getattr(self, name) for name in names}, "seconds": self.seconds}


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
