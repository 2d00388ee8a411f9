"""One measurement of training, as it is sent to the worker."""

from dataclasses import dataclass
from typing import Any, ClassVar

from molslice.bench.job import JsonJob

__all__ = ["TrainJob"]


@dataclass(frozen=True, slots=True)
class TrainJob(JsonJob):
    """A configuration in one round.

    Attributes:
        program: The module that measures the job.
        config: The configuration, as `config_to_mapping` returns it.
        store: Folder of the molecules.
        device: `cpu` or `cuda`.
        threads: Number of CPU threads.
        steps: Number of steps to time; None for as many as run in `seconds`.
        seconds: Time for all steps, in seconds, if `steps` is None.
        counts_flops: Whether operations are counted.
    """

    program: ClassVar[str] = "molslice.bench.training.worker"

    config: dict[str, Any]
    store: str
    device: str
    threads: int
    steps: int | None
    seconds: float
    counts_flops: bool

    @property
    def budget_bytes(self) -> int | None:
        """Memory that the job may use; None, because there is no limit."""
        return None
