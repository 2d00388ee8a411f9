"""Worker processes and child programs that end with this process, also if it is killed.

Each worker waits in a thread for the end of its parent and then exits at once. Therefore no worker survives
its parent, even after a signal that cannot be caught (`kill -9`). Workers ignore Ctrl-C, which reaches every
process of a terminal, because the parent handles it.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import IO, Any, Self, TypeVar

from molslice.errors import MolsliceError

MAX_WORKERS = 1024  # more than the cores of any supported machine

_state: list[Any] = []  # of the pool of this worker

# what workers need and is imported once; not torch, because on some machines a process that is forked after
# its import hangs
PRELOADED = ["numpy", "rdkit.Chem", "rdkit.Chem.Descriptors"]

PATIENCE_SECONDS = 2.0  # until a missing result means that a worker was killed

Result = TypeVar("Result")


def count_cores() -> int:
    """Count the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int | None) -> None:
    """Check that a number of worker processes or threads is at most `MAX_WORKERS`; None is the default."""
    if workers is not None and not 0 <= workers <= MAX_WORKERS:
        raise MolsliceError(f"workers must be 0 to {MAX_WORKERS}, got {workers}")


class WorkerPool:
    """Worker processes that map a function over many arguments, in order and in bounded memory.

    Leaving the `with` block ends the workers after their current task, or at once after an exception.

    If this process has used a GPU, the workers are forked from a server process, and arguments and state are
    pickled: a fork of this process may hang.

    Args:
        workers: Number of processes; 0 computes in the calling process.
        task: What the workers do, such as "read molecules", for the message about a killed worker.
        state: What the functions need in every call and get from `worker_state`. A worker that is forked
            from this process shares its memory.

    Raises:
        MolsliceError: The number of workers is negative or above `MAX_WORKERS`.
    """

    def __init__(self, workers: int, task: str, state: Any = None) -> None:  # noqa: ANN401
        check_workers(workers)
        self.workers, self.task, self.state = workers, task, state
        self._pool: ProcessPoolExecutor | None = None
        self._method = ""

    def __enter__(self) -> Self:
        if self.workers:
            self._method = start_method()
            context = multiprocessing.get_context(self._method)
            self._pool = ProcessPoolExecutor(self.workers, context, _begin_worker, (self.state,))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if kind is not None:
            _kill_workers(pool)
        pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the results of a function in the order of its arguments.

        At most two tasks per worker are submitted at a time, so `arguments` is read only as far as needed.

        The function must be picklable; `arguments` are the positional ones of each call.

        Raises:
            MolsliceError: A worker was killed.
        """
        if self._pool is None:
            yield from (function(*call) for call in arguments)
            return
        under_way: deque[Future[Result]] = deque()
        for call in arguments:
            under_way.append(self._submit(function, call))
            if len(under_way) >= 2 * self.workers:
                yield self._result(under_way.popleft())
        while under_way:
            yield self._result(under_way.popleft())

    def begin(
        self, function: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]
    ) -> Generator[Result]:
        """Begin the calls one after the other, and yield their results in order; see `map`.

        Without workers, a call is computed when its result is asked for. Closing the generator after its
        first result begins no further call, and waits for the one under way.
        """
        if self._pool is None:
            return (function(*call) for call in arguments)
        waiting = deque(arguments)
        futures: queue.SimpleQueue[Future[Result]] = queue.SimpleQueue()

        def begin_next(former: Future[Result] | None = None) -> None:
            if former is not None and (former.cancelled() or former.exception() is not None):
                return
            if waiting and self._pool is not None:
                future = self._submit(function, waiting.popleft())
                futures.put(future)
                future.add_done_callback(begin_next)

        def results() -> Generator[Result]:
            try:
                for _ in arguments:
                    yield self._result(futures.get())
            except GeneratorExit:
                waiting.clear()
                while not futures.empty():
                    wait([futures.get()])
                raise

        begin_next()
        return results()

    def _submit(self, function: Callable[..., Result], call: tuple[Any, ...]) -> Future[Result]:
        assert self._pool is not None
        try:
            # the first calls start the workers
            with _deferred_signals(), _from_server(self._method):
                return self._pool.submit(function, *call)
        except BrokenProcessPool as error:
            raise self._killed() from error

    def _result(self, future: Future[Result]) -> Result:
        assert self._pool is not None
        try:
            return _result(self._pool, future)
        except BrokenProcessPool as error:
            raise self._killed() from error

    def _killed(self) -> MolsliceError:
        return MolsliceError(
            f"one of {self.workers} worker processes that {self.task} was killed, usually because memory "
            "ran out; try again with fewer workers (0 computes without worker processes)"
        )


def start_method() -> str:
    """Return how to start workers: `fork` where it exists, unless this process has used a GPU."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return "spawn"
    torch = sys.modules.get("torch")
    return "forkserver" if torch is not None and torch.cuda.is_initialized() else "fork"


@contextmanager
def _from_server(method: str) -> Iterator[None]:
    """Keep Ctrl-C and the main module from a server process that starts in the block, and from its workers.

    The main module therefore needs no guard. Only the method `forkserver` has such a server.
    """
    if method != "forkserver":
        yield
        return
    import multiprocessing.forkserver  # not on Windows
    import multiprocessing.resource_tracker

    multiprocessing.forkserver.set_forkserver_preload(PRELOADED)
    multiprocessing.resource_tracker.ensure_running()  # it unblocks SIGINT
    main = sys.modules["__main__"]
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a new process inherits it
    try:
        sys.modules["__main__"] = ModuleType("__main__")
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _result(pool: ProcessPoolExecutor, future: Future[Result]) -> Result:
    """Wait for a result, also if a worker was killed while it sent one.

    The executor would wait forever for the rest of that result.
    """
    lost = False
    while True:
        try:
            return future.result(timeout=PATIENCE_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()  # the function itself may raise this error
        if lost:  # for longer than the executor needs to notice it
            _kill_workers(pool)
        lost = any(process.exitcode is not None for process in _processes(pool))


def _processes(pool: ProcessPoolExecutor) -> list[multiprocessing.Process]:
    return list((getattr(pool, "_processes", None) or {}).values())


def _kill_workers(pool: ProcessPoolExecutor) -> None:
    """Kill all workers, and end the wait for a result of which only a part was sent."""
    for process in _processes(pool):
        process.kill()
    results = getattr(pool, "_result_queue", None)
    if results is not None and _processes(pool):
        results._writer.close()  # this process never writes


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Handle INT, TERM and HUP after the block.

    Python ignores an exception that a handler raises while a process is forked, so the signal would be lost.
    """
    former: dict[int, Callable[[int, FrameType | None], object]] = {}
    arrived: list[int] = []
    deferring = True

    def handle(number: int, frame: FrameType | None) -> None:
        if deferring:
            arrived.append(number)
        else:  # another handler raised an exception before this one was replaced below
            former[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):  # neither ignored nor left to the system
                former[number] = handler
    try:
        for number in former:
            signal.signal(number, handle)
        yield
    finally:
        deferring = False
        for number, handler in former.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def worker_state() -> Any:  # noqa: ANN401
    """Return the `state` of the pool in one of its workers."""
    return _state[0]


def _begin_worker(state: Any) -> None:  # noqa: ANN401
    _state.append(state)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the parent's handler
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    end_with_parent()


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

    The input stays open while this process is running. A program that calls `end_with_input` after reading
    the line therefore ends with this process.

    Args:
        module: The module to run.
        request: The line, without a line end.
        errors: File for the program's standard error.
        environment: Environment variables; by default the same as here.
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
        with contextlib.suppress(BrokenPipeError):  # it ended before reading; its exit code tells why
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


def end_with_parent() -> None:
    """End this process when the process that started it has ended."""
    if (starter := multiprocessing.parent_process()) is not None:
        _leave_after(lambda: multiprocessing.connection.wait([starter.sentinel]))
        return
    parent = os.getppid()  # Windows keeps it when the parent has ended

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)

    _leave_after(wait)


def end_with_input() -> None:
    """End this program when its standard input closes, because the program that started it has ended."""

    def wait() -> None:
        while os.read(0, 1024):
            pass

    _leave_after(wait)
