"""One measurement in its own process: the job, the two ends of the process, and its outcome.

A job and its answers are lines of JSON. A crash of the process is an outcome, not an error.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from molslice.files.process_memory import resident_bytes
from molslice.files.processes import child_program, end_with_input

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "bad alloc",
    "alloc_failed",
)
POLL_SECONDS = 0.05
# The worker limits itself, but rounding and memory that its allocator caches may exceed the budget.
TOLERANCE = 1.05

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that a plan gives to each of its jobs.

    Attributes:
        device: `cpu`, `cuda`, or `cuda:0` and so on.
        steps: Number of steps to time; None for as many as run in `seconds`.
        seconds: Time for all steps, in seconds, if `steps` is None.
        timeout: Seconds after which a job has failed; None for no limit.
    """

    device: str = "cpu"
    steps: int | None = None
    seconds: float = 1.0
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Settings):
    """What a worker measures. A subclass adds fields of JSON values.

    Attributes:
        program: The module of the worker.
        threads: Number of CPU threads.
        budget_bytes: Memory that the job may use, in bytes; None for no limit.
    """

    program: ClassVar[str]

    threads: int = 1
    budget_bytes: int | None = None

    def to_json(self) -> str:
        """Return the job as one line of JSON, the input of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Construct the job from the result of `to_json`."""
        return cls(**json.loads(text))


def answer_request(answer: Callable[[str, Callable[[Numbers], None]], None]) -> None:
    """Read the job of this worker, and write its answers to standard output.

    What libraries write to standard output goes to standard error.

    Args:
        answer: Gets the line of the job, and a function that writes an answer.
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
    """Return the `outcome` "ok" with the numbers, or "OOM" or "failed" with the `reason`."""
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


def run_job(job: Job) -> Numbers:
    """Measure a job in a new process; see `outcome_of`."""
    # The new process may not find the folder that the package was imported from.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    threads = {name: str(job.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryFile() as errors:
        with child_program(job.program, job.to_json(), errors, environment) as process:
            assert process.stdout is not None
            answers, ended = _watch(job, process, process.stdout)
        if ended is not None:
            return ended
        if process.returncode == 0 and answers and "outcome" in answers[-1]:
            return answers[-1]
        return _outcome_of_exit(process.returncode, errors)


def _watch(
    job: Job, process: subprocess.Popen[bytes], stream: IO[bytes]
) -> tuple[list[Numbers], Numbers | None]:
    """Return the answers of the process, and the outcome if it had to be ended."""
    os.set_blocking(stream.fileno(), False)
    output, base, start = b"", None, time.monotonic()
    limit = TOLERANCE * job.budget_bytes if job.budget_bytes is not None and job.device == "cpu" else None
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        output += stream.read() or b""
        if job.timeout is not None and time.monotonic() - start > job.timeout:
            return [], {"outcome": "failed", "reason": f"took longer than {job.timeout:g} s"}
        if limit is None:
            continue
        first, newline, _ = output.partition(b"\n")
        if base is None and newline:
            base = json.loads(first).get("base_bytes")
        resident = resident_bytes(process.pid)
        if base is not None and resident is not None and resident - base > limit:
            return [], {"outcome": "OOM", "reason": "the resident set exceeded the budget"}
    output += stream.read() or b""
    return [json.loads(line) for line in output.splitlines() if line.endswith(b"}")], None


def _outcome_of_exit(code: int, errors: IO[bytes]) -> Numbers:
    """Return the outcome of a process that ended without an answer: the signal and its last message."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    last = lines[-1].strip()[:300] if lines else "no message"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        reason = f"the process was ended by {name}: {last}"
    else:
        reason = f"the process ended with code {code}: {last}"
    out_of_memory = "bad_alloc" in last or "MemoryError" in last
    return {"outcome": "OOM" if out_of_memory else "failed", "reason": reason}
