"""One measurement, as it is sent to the worker."""

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

__all__ = ["DTYPES", "Dtype", "Job", "JsonJob", "Request"]

Dtype = Literal["fp32", "bf16", "fp16"]
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")


class Request(Protocol):
    """What a worker measures.

    Attributes:
        program: The module of the worker.
        device: `cpu`, `cuda`, or `cuda:0` and so on.
        threads: Number of CPU threads.
        budget_bytes: Memory that the job may use, in bytes; None for no limit.
    """

    program: ClassVar[str]

    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def threads(self) -> int: ...  # noqa: D102
    @property
    def budget_bytes(self) -> int | None: ...  # noqa: D102

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        ...


class JsonJob:
    """Base class of jobs, which are dataclasses of JSON values."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the job as one line of JSON, the input of the worker."""
        job: Any = self
        return json.dumps(asdict(job))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Construct the job from the result of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Job(JsonJob):
    """An attention at one size in one round.

    Attributes:
        program: The module that measures the job.
        attention: Name of the attention.
        options: Its own options.
        length: Tokens per sequence.
        dim: Width of the model.
        batch_size: Sequences per batch.
        num_layers: Layers of the encoder.
        num_heads: Heads of the attention.
        head_dim: Width of a head; None for `dim` / `num_heads`.
        ffn_dim: Hidden width of the feed-forward network.
        causal: Whether the causal form is measured.
        dtype: Precision of the computation; half precisions are autocast.
        device: `cpu`, `cuda`, or `cuda:0` and so on.
        threads: Number of CPU threads.
        steps: Number of steps to time; None for as many as run in `seconds`.
        seconds: Time for all steps, in seconds, if `steps` is None.
        budget_bytes: Memory that the job may use, in bytes; None for no limit.
        seed: Seed of the weights and of the batch.
        counts_flops: Whether operations are counted.
    """

    program: ClassVar[str] = "molslice.bench.worker"

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
    device: str
    threads: int
    steps: int | None
    seconds: float
    budget_bytes: int | None
    seed: int
    counts_flops: bool
