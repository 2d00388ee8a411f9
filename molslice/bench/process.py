"""Run a job in a fresh process and watch it. A crash of the process is an outcome, not an error."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from molslice.bench.job import Job
from molslice.files.process_memory import resident_bytes
from molslice.files.processes import child_program

__all__ = ["run_job"]

POLL_SECONDS = 0.05
# The worker limits itself, but rounding and memory that its allocator caches may exceed the budget.
TOLERANCE = 1.05


def run_job(job: Job) -> dict[str, Any]:
    """Measure one job.

    Returns:
        The outcome, with the numbers or the reason for their absence; see `outcome_of`.
    """
    with tempfile.TemporaryFile() as errors:
        with child_program(job.program, job.to_json(), errors, _environment(job)) as process:
            assert process.stdout is not None
            answers, ended = _watch(job, process, process.stdout)
        if ended is not None:
            return ended
        if process.returncode == 0 and answers and "outcome" in answers[-1]:
            return answers[-1]
        return _outcome_of_exit(process.returncode, errors)


def _environment(job: Job) -> dict[str, str]:
    # The new process may not find the folder that the package was imported from.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    threads = {name: str(job.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _watch(
    job: Job, process: subprocess.Popen[bytes], stream: IO[bytes]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
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
        base = _base(output) if base is None else base
        resident = resident_bytes(process.pid)
        if base is not None and resident is not None and resident - base > limit:
            return [], {"outcome": "OOM", "reason": "the resident set exceeded the budget"}
    output += stream.read() or b""
    return [json.loads(line) for line in output.splitlines() if line.endswith(b"}")], None


def _base(output: bytes) -> int | None:
    line, newline, _ = output.partition(b"\n")
    return json.loads(line).get("base_bytes") if newline else None


def _outcome_of_exit(code: int, errors: IO[bytes]) -> dict[str, Any]:
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
