"""One measurement as it is sent to a worker, and the answer: lines of JSON in both directions."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from molslice.files.processes import end_with_input

__all__ = ["Job", "Numbers", "TrainJob", "answer_request", "is_out_of_memory", "outcome_of"]

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "bad alloc",
    "alloc_failed",
)

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker measures. A subclass adds fields of JSON values.

    Attributes:
        program: The module of the worker.
        device: `cpu`, `cuda`, or `cuda:0` and so on.
        threads: Number of CPU threads.
        budget_bytes: Memory that the job may use, in bytes; None for no limit.
        timeout: Seconds after which the job has failed; None for no limit.
    """

    program: ClassVar[str]

    device: str = "cpu"
    threads: int = 1
    budget_bytes: int | None = None
    timeout: float | None = None

    def to_json(self) -> str:
        """Return the job as one line of JSON, the input of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Construct the job from the result of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob(Job):
    """A configuration in one round.

    Attributes:
        config: The configuration, as `config_to_mapping` returns it.
        store: Folder of the molecules.
        steps: Number of steps to time; None for as many as run in `seconds`.
        seconds: Time for all steps, in seconds, if `steps` is None.
        counts_flops: Whether operations are counted.
    """

    program: ClassVar[str] = "molslice.bench.training.worker"

    config: dict[str, Any]
    store: str
    steps: int | None
    seconds: float
    counts_flops: bool


def answer_request(answer: Callable[[str, Callable[[Numbers], None]], None]) -> None:
    """Read one line of standard input, and write answers to standard output.

    What libraries write to standard output goes to standard error.

    Args:
        answer: Gets the line, and a function that writes an answer.
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(numbers: Numbers) -> None:
        channel.write(json.dumps(numbers) + "\n")
        channel.flush()

    request = sys.stdin.readline()
    end_with_input()
    answer(request, report)


def outcome_of(measure: Callable[[], Numbers]) -> Numbers:
    """Run a measurement.

    Returns:
        The `outcome` "ok" with the numbers, or "OOM" or "failed" with the `reason`.
    """
    try:
        return {"outcome": "ok", **measure()}
    except (MemoryError, RuntimeError, ValueError, TypeError, ArithmeticError, LookupError) as error:
        outcome = "OOM" if is_out_of_memory(error) else "failed"
        text = re.sub(r"\[enforce fail [^]]*\] [^.]*\. ", "", " ".join(str(error).split()))
        return {"outcome": outcome, "reason": f"{type(error).__name__}: {text}"[:500]}


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocator of Python, C++, torch, or CUDA has raised the error."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY)
