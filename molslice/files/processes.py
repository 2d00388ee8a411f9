"""Worker processes and child programs that end with this process, however it ends.

A worker waits in a thread for the end of its parent and then leaves at once. A signal that cannot be caught
(`kill -9`) therefore leaves no worker behind, and neither do TERM and HUP. Ctrl-C reaches every process of a
terminal: workers ignore it, the parent decides.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from molslice.types import MolsliceError

__all__ = ["MAX_WORKERS", "WorkerPool", "check_workers", "child_program", "count_cores", "end_with_input"]

MAX_WORKERS = 1024  # more processes or threads than any machine has cores

Result = TypeVar("Result")


def count_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int | None) -> None:
    """Refuse an invalid number of worker processes or threads; None is a number that is not given.

    Raises:
        MolsliceError: a number below zero or above `MAX_WORKERS`.
    """
    if workers is not None and not 0 <= workers <= MAX_WORKERS:
        raise MolsliceError(f"workers must be 0 to {MAX_WORKERS}, got {workers}")


class WorkerPool:
    """Maps a function over many arguments in worker processes, in order and in bounded memory.

    Leaving the `with` block ends the workers: after their current task, or at once after an exception.

    Args:
        workers: number of processes; 0 computes in this one.
        task: what the workers do, for the message about one that was killed: "read molecules".

    Raises:
        MolsliceError: a number of workers below zero or above `MAX_WORKERS`.
    """

    def __init__(self, workers: int, task: str) -> None:
        check_workers(workers)
        self.workers, self.task = workers, task
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers:
            # forking needs no guard around a user's script; the children touch no threads of the parent
            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
            self._pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context(method), _begin_worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if error is not None:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.kill()
        pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield `function(*each)` for each of `arguments`, in their order.

        At most two tasks a worker are under way, so `arguments` is read only as far as needed.

        Raises:
            MolsliceError: a worker was killed.
        """
        if self._pool is None:
            yield from (function(*each) for each in arguments)
            return
        under_way: deque[Future[Result]] = deque()
        try:
            for each in arguments:
                under_way.append(self._pool.submit(function, *each))
                if len(under_way) >= 2 * self.workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool as error:
            raise MolsliceError(
                f"one of {self.workers} worker processes that {self.task} was killed, usually because memory "
                "ran out; try again with fewer workers (0 computes without worker processes)"
            ) from error


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # handlers of the parent are not meant for its workers
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None
    _leave_after(lambda: multiprocessing.connection.wait([parent.sentinel]))


def _leave_after(wait: Callable[[], object]) -> None:
    def watch() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


@contextmanager
def child_program(
    module: str, request: str, errors: IO[bytes], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module` with one line on its standard input; end it when the block ends.

    The input stays open while this process lives: a program that calls `end_with_input` after it has read
    the line ends with this process.

    Args:
        module: the program.
        request: the line.
        errors: receives its standard error.
        environment: variables, by default those of this process.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it died before it read: its exit code says why
            process.stdin.write(f"{request}\n".encode())
            process.stdin.flush()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def end_with_input() -> None:
    """End this program when its standard input closes, which is when the program that started it ends."""

    def wait() -> None:
        while os.read(0, 1024):
            pass

    _leave_after(wait)
