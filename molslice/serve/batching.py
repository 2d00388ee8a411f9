"""The bounded queue of requests, whose molecules are computed together.

Each worker process has a thread that takes the first request of the queue, and with it all later ones for the
same task with the same options, up to `BATCH_MOLECULES`. While the worker computes, the next requests gather.
So a batch grows with the load, and a single request never waits for others. The thread starts its worker
again when it has ended, also if there are no requests.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from molslice.serve.limits import Limits
from molslice.serve.process import WorkerLostError, WorkerProcess
from molslice.types import MolsliceError

logger = logging.getLogger(__name__)

BATCH_MOLECULES = 64
BATCH_SHARE = 1 / 3  # of the time for a request; then each request is computed alone
FIRST_RATE = 200.0  # molecules per second, until the rate is known
LONGEST_RETRY = 60  # seconds
IDLE_SECONDS = 5.0  # between two looks at a worker without requests


class QueueFullError(MolsliceError):
    """Error for a request that does not fit in the queue.

    Attributes:
        retry_seconds: Time after which the queue is probably shorter.
    """

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


@dataclass(slots=True)
class _Request:
    """A request in the queue.

    Attributes:
        task: The name of the task.
        options: Options besides `smiles`, the same for all requests of a batch.
        smiles: The molecules.
        future: Gets the rows.
        alone: Whether it is computed without other requests.
    """

    task: str
    options: dict[str, Any]
    smiles: Sequence[str]
    future: Future[list[Any]] = field(default_factory=Future)
    alone: bool = False

    def fits(self, other: "_Request") -> bool:
        return not self.alone and not other.alone and (self.task, self.options) == (other.task, other.options)


class Batcher:
    """Computes requests with one or several worker processes, many requests at once.

    `observe` is called with the number of requests and of molecules of each batch.
    """

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        limits: Limits,
        observe: Callable[[int, int], None] = lambda requests, molecules: None,
    ) -> None:
        self.workers, self.limits, self._observe = list(workers), limits, observe
        self._queue: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._rate = FIRST_RATE
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), name="molslice-batches", daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Number of molecules in the queue."""
        return self._waiting

    @property
    def is_started(self) -> bool:
        """Whether all worker processes are running or about to start."""
        return self._waiting > 0 or all(worker.is_alive for worker in self.workers)

    def submit(self, task: str, options: Mapping[str, Any], smiles: Sequence[str]) -> Future[list[Any]]:
        """Add a request to the queue; see `_Request`.

        Returns:
            A future of one result for each molecule, with the exceptions of `WorkerProcess.call`. A request
            whose future is cancelled is not computed.

        Raises:
            QueueFullError: These molecules do not fit into the queue.
            MolsliceError: The service is ending.
        """
        request = _Request(task, dict(options), smiles)
        with self._changed:
            if self._closed:
                raise WorkerLostError("the service is ending")
            if self._waiting + len(smiles) > self.limits.waiting:
                seconds = min(max(math.ceil(self._waiting / self._rate), 1), LONGEST_RETRY)
                raise QueueFullError(
                    f"the queue is full: {self._waiting} molecules are waiting; try again in {seconds} s",
                    seconds,
                )
            self._queue.append(request)
            self._waiting += len(smiles)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """End the threads and the worker processes; requests without an answer fail."""
        with self._changed:
            self._closed = True
            abandoned, self._waiting = list(self._queue), 0
            self._queue.clear()
            self._changed.notify_all()
        for request in abandoned:
            _fail([request], WorkerLostError("the service is ending"))
        for worker in self.workers:
            worker.close()
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: WorkerProcess) -> None:
        while (batch := self._take()) is not None:
            if batch:
                self._compute(worker, batch)
            if worker.starts and not worker.is_alive:  # the first request starts a worker that is not started
                self._start_again(worker)

    def _start_again(self, worker: WorkerProcess) -> None:
        """Start a worker that has ended. A failure is logged, and `_serve` tries again."""
        try:
            worker.start()
        except MolsliceError as error:
            if not self._closed:
                logger.warning("cannot start a worker process again: %s", error)
        except Exception:  # it would end the thread of this worker
            logger.exception("cannot start a worker process again")

    def _take(self) -> list[_Request] | None:
        """Wait for requests and return the next batch; empty after `IDLE_SECONDS`, and None at the end."""
        with self._changed:
            while True:
                while not self._queue:
                    if self._closed:
                        return None
                    if not self._changed.wait(IDLE_SECONDS) and not self._queue:
                        return []
                batch: list[_Request] = []
                kept: deque[_Request] = deque()
                molecules = 0
                while self._queue and (not batch or molecules < BATCH_MOLECULES):
                    request = self._queue.popleft()
                    if batch and not (
                        batch[0].fits(request) and molecules + len(request.smiles) <= BATCH_MOLECULES
                    ):
                        kept.append(request)
                        continue
                    self._waiting -= len(request.smiles)
                    if request.alone or request.future.set_running_or_notify_cancel():
                        batch.append(request)
                        molecules += len(request.smiles)
                self._queue.extendleft(reversed(kept))
                if batch:
                    return batch

    def _compute(self, worker: WorkerProcess, batch: list[_Request]) -> None:
        smiles = [text for request in batch for text in request.smiles]
        self._observe(len(batch), len(smiles))
        seconds = self.limits.seconds * (1 if len(batch) == 1 else BATCH_SHARE)
        started = time.monotonic()
        try:
            rows = worker.call(batch[0].task, {**batch[0].options, "smiles": smiles}, seconds=seconds)
        except WorkerLostError as error:
            if len(batch) == 1 or self._closed:
                _fail(batch, error)
            else:
                self._retry_alone(batch)
            return
        except MolsliceError as error:
            _fail(batch, error)
            return
        except Exception:  # it would end the thread of this worker
            logger.exception("cannot compute %s", batch[0].task)
            _fail(batch, WorkerLostError("unexpected error of the service"))
            return
        self._rate = 0.8 * self._rate + 0.2 * len(smiles) / max(time.monotonic() - started, 1e-3)
        start = 0
        for request in batch:
            with suppress(InvalidStateError):
                request.future.set_result(rows[start : start + len(request.smiles)])
            start += len(request.smiles)

    def _retry_alone(self, batch: list[_Request]) -> None:
        """Return requests to the front of the queue, because only one of them broke the worker."""
        with self._changed:
            for request in reversed(batch):
                request.alone = True
                self._queue.appendleft(request)
                self._waiting += len(request.smiles)
            self._changed.notify_all()


def _fail(requests: Sequence[_Request], error: MolsliceError) -> None:
    for request in requests:
        with suppress(InvalidStateError):
            request.future.set_exception(error)
