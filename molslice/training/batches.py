"""The stream of training batches, a function of seed and position that can start anywhere."""

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from molslice.config import TrainingConfig
from molslice.data.base import Dataset, RowNumbers
from molslice.data.batching import BatchShape, FixedShapeBatches, TokenBudgetBatches
from molslice.tasks.base import MicroBatch
from molslice.types import MolsliceError


class StepBatch(NamedTuple):
    """One global batch, divided into the micro-batches that this process computes in turn."""

    epoch: int  # from 0
    index: int  # within the epoch
    last: bool  # of its epoch
    rows: int  # of all processes
    micro_batches: list[MicroBatch]  # of this process


class TrainingBatches:
    """All batches of all epochs. A process takes every `world`-th row of each batch, from its `rank`.

    The batches do not depend on the number of processes. In a batch with fewer rows than processes, the other
    processes compute its first row with weight zero, because all processes must exchange gradients.

    With fixed shapes a batch has row numbers, and its rows are gathered where they are computed. Empty rows
    of weight zero fill up the part of each process.

    Args:
        dataset: The data.
        rows: The rows to train on.
        config: Batch sizes and the number of micro-batches, `accumulate`.
        seed: Seed of the order of rows and of random augmentation.
        rank: The index of this process, of `world`.
        world: Number of processes.
        fixed_shapes: Whether batches have a few shapes; see `FixedShapeBatches`.
        mix_lengths: Whether batches of any shape have rows of all lengths; see `TokenBudgetBatches`.

    Raises:
        MolsliceError: `batch_size` is below the number of parts of a batch, or as `TokenBudgetBatches`.
    """

    def __init__(
        self,
        dataset: Dataset,
        rows: np.ndarray,
        config: TrainingConfig,
        seed: int,
        rank: int = 0,
        world: int = 1,
        *,
        fixed_shapes: bool = False,
        mix_lengths: bool = False,
    ) -> None:
        self.fixed_shapes = fixed_shapes
        self.dataset, self.rank, self.world, self.accumulate = dataset, rank, world, config.accumulate
        self.seed, self.num_tokens = seed, dataset.num_tokens
        if config.batch_size < world * config.accumulate:
            raise MolsliceError(
                f"training.batch_size is {config.batch_size}, expected at least {world * config.accumulate}: "
                f"{world} processes compute {config.accumulate} parts each (training.accumulate)"
            )
        limits = {"token_budget": config.token_budget, "batch_size": config.batch_size, "seed": seed}
        self.order = (
            FixedShapeBatches(self.num_tokens, rows, **limits)
            if fixed_shapes
            else TokenBudgetBatches(self.num_tokens, rows, shuffle=True, mix_lengths=mix_lengths, **limits)
        )
        self.steps_per_epoch = len(self.order.epoch(0))

    def padded_tokens(self, epoch: int) -> np.ndarray:
        """Return the padded tokens of each batch of an epoch, int [batches]; times are about proportional."""
        shapes = [self.order.shape_of(rows) for rows in self.order.epoch(epoch)]
        return np.array([width * rows for width, rows in shapes])

    def stream(self, epoch: int, index: int) -> Generator[StepBatch]:
        """Yield batches without end."""
        while True:
            batches = self.order.epoch(epoch)
            for place in range(index, len(batches)):
                rows = batches[place]
                last = place == len(batches) - 1
                yield StepBatch(epoch, place, last, len(rows), self._micro_batches(rows, epoch, place))
            epoch, index = epoch + 1, 0

    def _micro_batches(self, rows: np.ndarray, epoch: int, place: int) -> list[MicroBatch]:
        present = self.dataset.count_targets(rows)
        draw = self.seed * 1_000_003 + epoch  # augmentation differs between epochs
        hide = int(np.random.SeedSequence([self.seed, epoch, place]).generate_state(1)[0])
        count = min(self.accumulate, math.ceil(len(rows) / self.world))  # the same on every process
        if isinstance(self.order, FixedShapeBatches):
            return self._numbered(rows, present, self.order.shape_of(rows), hide)
        micro_batches = []
        for number in range(count):
            chosen = rows[number * self.world + self.rank :: self.world * count]
            counts = len(chosen) > 0
            batch = self.dataset.collate(chosen if counts else rows[:1], draw)
            micro_batches.append(MicroBatch(batch, len(rows), present, counts=counts, draw=hide))
        return micro_batches

    def _numbered(self, rows: np.ndarray, present: int, shape: BatchShape, hide: int) -> list[MicroBatch]:
        """Return the parts of a batch of fixed shape, filled up to equal sizes."""
        stride = self.world * self.accumulate
        micro_batches = []
        for number in range(self.accumulate):
            chosen = rows[number * self.world + self.rank :: stride]
            batch = RowNumbers.filled(chosen, -(-shape.rows // stride), shape.width)
            micro_batches.append(MicroBatch(batch, len(rows), present, size=len(chosen), draw=hide))
        return micro_batches


def prefetch(
    stream: Iterator[StepBatch],
    prepare: Callable[[Any], Any] | None = None,
    *,
    pin: bool = True,
    depth: int = 4,
) -> Generator[StepBatch]:
    """Yield the same batches, prepared in a thread and page-locked while the device computes.

    torch's `DataLoader` prefetches only with worker processes. Each process would need its own copy of the
    stream, and every batch would pass through shared memory.

    Args:
        stream: The batches; any error of it is raised here.
        prepare: Called with each collated batch; returns it with what the model needs. None for nothing.
        pin: Whether to lock the pages, for a GPU.
        depth: Maximum number of batches in memory.
    """
    ready: queue.Queue[StepBatch | BaseException] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: StepBatch | BaseException) -> None:
        while not stop.is_set():  # the queue stays full when its reader has stopped
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def work() -> None:
        try:
            for batch in stream:
                micro_batches = batch.micro_batches
                if prepare is not None:
                    micro_batches = [micro_batch.prepared(prepare) for micro_batch in micro_batches]
                if pin:
                    micro_batches = [micro_batch.pin_memory() for micro_batch in micro_batches]
                put(batch._replace(micro_batches=micro_batches))
                if stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
