"""Measure one job: `python -m molslice.bench.training.worker` reads a `TrainJob` as JSON on standard input.

It answers with a line of JSON, see `outcome_of`.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from molslice.bench.job import Numbers, TrainJob, answer_request, outcome_of
from molslice.bench.molecules import StoredMolecules
from molslice.bench.training.clock import StepClock
from molslice.config import RunConfig, config_from_mapping
from molslice.data.base import RowNumbers
from molslice.data.molecules.store import MoleculeStore
from molslice.files.process_memory import peak_bytes
from molslice.model import build_model
from molslice.ops import kernels
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.training.batches import StepBatch, TrainingBatches
from molslice.training.fabric import build_fabric, quiet_lightning
from molslice.training.optimizer import learning_rate
from molslice.training.step_graphs import uses_fixed_shapes
from molslice.training.stepper import Stepper

__all__ = ["Training", "flops_per_token", "measure"]

WARM_UP_STEPS = {"cpu": 3, "cuda": 60}  # kernels are compiled and steps captured for each shape of a batch
SLOW_STEP_SECONDS = 5.0  # on a CPU, a slow step after the first one ends the warm-up
MIN_STEPS = 3
LOSS_STEPS = {"cpu": 1, "cuda": 50}  # steps between readings of the loss, as in training
COUNTED_BATCHES, COUNTED_ROWS = 4, 64  # of the timed batches, for the operations
TRAINING_STEPS = 1_000_000  # for the learning rate


class Training:
    """A model with its training batches, and one step as in `molslice.training.trainer`.

    Args:
        config: The configuration.
        store: The molecules.

    Raises:
        MolsliceError: The configuration does not fit the molecules or the machine.
    """

    def __init__(self, config: RunConfig, store: MoleculeStore) -> None:
        fabric = build_fabric(config.trainer)
        fabric.launch()
        dataset = StoredMolecules(store)
        rows = dataset.labeled_rows("train")
        values = np.asarray(dataset.targets[rows])
        targets = TargetInfo.of_training(dataset.target_names, dataset.target_units, dataset.kind, values)
        torch.manual_seed(config.seed)
        model = build_model(config.model, config.attention, config.model_data(dataset.spec))
        task = TASKS.build(config.task, model, targets, options={"loss": config.training.loss})
        self.config, self.device = config, fabric.device
        fixed_shapes = uses_fixed_shapes(config, dataset, fabric.device)
        self.batches = TrainingBatches(dataset, rows, config.training, config.seed, fixed_shapes=fixed_shapes)
        self.stepper = Stepper(fabric, task, config, self.batches)
        self.step_number = 0
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    def stream(self) -> Generator[StepBatch]:
        """Return the batches, prefetched on a GPU as in training."""
        return self.stepper.stream(0, 0)

    def step(self, batch: StepBatch, rate: float | None = None) -> Tensor:
        """Update the weights with a batch, and their average.

        Args:
            batch: The batch.
            rate: The learning rate; None for the rate of a long training.

        Returns:
            The loss, a scalar that the next step may overwrite.
        """
        if rate is None:
            rate = learning_rate(self.config.optimizer, self.step_number, TRAINING_STEPS)
        loss = self.stepper.step(batch, self.step_number, rate)
        self.step_number += 1
        if self.stepper.average:
            self.stepper.average.update(self.step_number)
        self._loss_sum += loss
        if self.step_number % LOSS_STEPS[self.device.type] == 0:
            float(loss)
        return loss

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def measure(job: TrainJob) -> Numbers:
    """Measure a job.

    Returns:
        The `outcome` with the numbers of `TrainResult`: seconds, bytes, counts. Without numbers, the `reason`
            for their absence.
    """
    torch.set_num_threads(job.threads)
    return outcome_of(lambda: _measure(job))


def _measure(job: TrainJob) -> Numbers:
    with quiet_lightning():
        training = Training(config_from_mapping(job.config), MoleculeStore.open(job.store, verify=False))
        return _measure_steps(job, training)


def _measure_steps(job: TrainJob, training: Training) -> Numbers:
    clock, fabric = StepClock(training.device), training.stepper.fabric
    fabric.backward = clock.around(fabric.backward)
    molecules, padded, rows = 0, 0, []
    stream = training.stream()
    with closing(stream):
        clock.begin()
        _warm_up(training, stream)
        training.wait()
        clock.begin()
        start, processor = time.perf_counter(), time.process_time()
        while not _is_enough(job, len(rows), time.perf_counter() - start):
            batch = next(stream)
            clock.arrive()
            training.step(batch)
            clock.finish()
            molecules += batch.rows
            padded += sum(map(_padded_tokens, batch.micro_batches))
            rows.append([one.batch.rows[one.batch.rows >= 0] for one in batch.micro_batches])
        training.wait()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    on_cpu = training.device.type == "cpu"
    peak = peak_bytes() if on_cpu else torch.cuda.max_memory_allocated(training.device)
    batches = training.batches
    flops = None
    if job.counts_flops:
        flops = flops_per_token(training, [part.numpy() for parts in _few(rows) for part in parts]) * padded
    return {
        "steps": len(rows),
        "molecules": molecules,
        "seconds": seconds,
        "processor_seconds": processor,
        **{f"{name}_seconds": value for name, value in clock.seconds().items()},
        "padding_share": 1.0 - batches.order.tokens.sum() / batches.padded_tokens(0).sum(),
        "peak_bytes": peak,
        "parameters": sum(one.numel() for one in training.stepper.model.parameters() if one.requires_grad),
        "flops": flops,
    }


def _warm_up(training: Training, stream: Iterator[StepBatch]) -> None:
    """Run steps that are not timed; the first ones allocate memory, compile and start threads."""
    on_cpu = training.device.type == "cpu"
    for number in range(WARM_UP_STEPS[training.device.type]):
        start = time.perf_counter()
        training.step(next(stream))
        training.wait()
        if on_cpu and number > 0 and time.perf_counter() - start > SLOW_STEP_SECONDS:
            return


def _is_enough(job: TrainJob, steps: int, seconds: float) -> bool:
    if job.steps is not None:
        return steps >= job.steps
    return steps >= MIN_STEPS and seconds >= job.seconds


def _padded_tokens(micro_batch: MicroBatch) -> int:
    if isinstance(micro_batch.batch, RowNumbers):
        return len(micro_batch.batch) * micro_batch.batch.width
    molecules, atoms = micro_batch.batch.atom_mask.shape
    return molecules * (atoms + 1)


def _few(values: list[Any]) -> list[Any]:
    """Return some of the values at equal distances."""
    return values[:: max(1, len(values) // COUNTED_BATCHES)][:COUNTED_BATCHES]


def flops_per_token(training: Training, batches: list[np.ndarray]) -> float:
    """Count the operations of a forward and a backward pass of batches, for each of their padded tokens.

    Two operations are one multiply-add of a matrix product; others are not counted. The model needs the data,
    so the batches are computed.
    """
    # the longest rows of a batch are the last ones, so a part of it has the same padded length
    batches = [rows[-COUNTED_ROWS:] for rows in batches]
    task, fabric, dataset = training.stepper.task, training.stepper.fabric, training.batches.dataset
    # The counter has no formula for fused kernels; the plain forms have the same products.
    counter, tokens = FlopCounterMode(display=False), 0
    with (
        torch.compiler.set_stance("force_eager"),
        kernels.torch_forms(),
        sdpa_kernel(SDPBackend.MATH),
        counter,
        fabric.autocast(),
    ):
        for rows in batches:
            micro_batch = MicroBatch(dataset.collate(rows), len(rows), len(rows)).to(training.device)
            task.training_step(micro_batch).backward()
            tokens += _padded_tokens(micro_batch)
    training.stepper.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops() / tokens


if __name__ == "__main__":
    answer_request(lambda line, report: report(measure(TrainJob.from_json(line))))
