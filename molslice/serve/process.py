"""Start, call and end a worker process."""

import contextlib
import multiprocessing
import multiprocessing.process
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

from molslice.files.processes import end_with_parent
from molslice.types import MolsliceError

END_SECONDS = 1.0


class WorkerLostError(MolsliceError):
    """Error for a task whose worker process ended or took too long; the process was killed."""


class WorkerProcess:
    """A process that has loaded models by name, and carries out one task at a time.

    A process that has ended is started again by the next call.
    """

    def __init__(self, models: Mapping[str, str], device: str = "cpu") -> None:
        self.models, self.device = dict(models), device
        self.starts = 0
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Any = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.is_alive()

    def start(self) -> list[dict[str, Any]]:
        """Start the process and wait until the models are loaded.

        Returns:
            The description of each model.

        Raises:
            MolsliceError: A model cannot be loaded.
            WorkerLostError: The process cannot be started, ended before that, or is not wanted any more.
        """
        context = multiprocessing.get_context("spawn")  # the server has threads
        try:
            connection, worker_connection = context.Pipe()
            with self._lock:
                if self._closed:
                    raise WorkerLostError("the service is ending")
                process = context.Process(
                    target=run_worker,
                    args=(worker_connection, self.models, self.device),
                    name="molslice-worker",
                )
                process.start()
                self._process, self._connection = process, connection
                self.starts += 1
        except OSError as error:  # too many processes or open files
            raise WorkerLostError(f"cannot start a worker process: {error.strerror}") from error
        worker_connection.close()
        return self._receive(None, None)

    def call(
        self,
        task: str,
        options: Mapping[str, Any],
        *,
        seconds: float,
        report: Callable[[Any], None] | None = None,
    ) -> Any:  # noqa: ANN401
        """Carry out a task and return its result; start the process before if it is not running.

        A process that ended while it was idle is not always seen as ended before a task is sent to it. A task
        that was not begun is sent once more, to a new process.

        Args:
            task: The name of the task, in `worker.TASKS`.
            options: Its options.
            seconds: Maximum time until the result or the next report of progress.
            report: Called with each report of progress.

        Raises:
            MolsliceError: The task was refused; the message is the reason.
            WorkerLostError: The process ended or took too long.
        """
        if not self.is_alive:
            self.start()
        try:
            self._begin(task, options, seconds)
        except WorkerLostError:
            self.start()
            self._begin(task, options, seconds)
        return self._receive(seconds, report)

    def _begin(self, task: str, options: Mapping[str, Any], seconds: float) -> None:
        """Send a task and wait until the process has begun it."""
        connection = self._connection
        assert connection is not None
        try:
            connection.send((task, dict(options)))
        except OSError as error:
            self.kill()
            raise WorkerLostError("the worker process has ended") from error
        self._receive(seconds, None)

    def _receive(self, seconds: float | None, report: Callable[[Any], None] | None) -> Any:  # noqa: ANN401
        connection = self._connection
        assert connection is not None
        while True:
            try:
                if seconds is not None and not connection.poll(seconds):
                    self.kill()
                    raise WorkerLostError(f"stopped after {seconds:g} seconds without a result")
                state, value = connection.recv()
            except (EOFError, OSError) as error:
                self.kill()
                raise WorkerLostError("the worker process has ended") from error
            if state == "progress":
                if report is not None:
                    report(value)
            elif state == "failed":
                raise MolsliceError(value)
            else:
                return value

    def kill(self) -> None:
        """End the process at once; the next call starts another one."""
        with self._lock:
            process = self._process
        if process is not None:
            process.kill()
            process.join()

    def close(self) -> None:
        """End the process for good; a task that does not end within a second is given up."""
        with self._lock:
            self._closed = True
            process, connection = self._process, self._connection
        if process is None or connection is None:
            return
        with contextlib.suppress(OSError):  # it has ended
            connection.send(None)
        process.join(END_SECONDS)
        self.kill()


def run_worker(connection: Any, models: Mapping[str, str], device: str) -> None:  # noqa: ANN401
    """Load the models, then carry out tasks until None is received or the other end of the connection closes.

    Sends `("ready", descriptions of the models)`. Receives `(task, options)` and answers with
    `("begun", None)`, any number of `("progress", value)` and one `("done", result)` or `("failed", reason)`.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the server ends this process after the last answer
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    end_with_parent()
    try:
        from molslice.serve.worker import answer, load_models, reason_of  # needs torch
    except OSError as error:  # a library cannot be loaded
        connection.send(("failed", str(error.strerror or error)))
        return
    try:
        loaded = load_models(models, device)
        connection.send(("ready", [model.describe() for model in loaded.values()]))
        while (order := connection.recv()) is not None:
            connection.send(("begun", None))
            task, options = order
            connection.send(answer(loaded, task, options, lambda value: connection.send(("progress", value))))
    except (MolsliceError, OSError) as error:
        if not isinstance(error, BrokenPipeError | ConnectionError):
            connection.send(("failed", reason_of(error)))
    except EOFError:
        pass
