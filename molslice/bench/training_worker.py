"""Measure one job: `python -m molslice.bench.training_worker` reads a `TrainJob` on standard input.

It answers with a line of JSON, see `outcome_of`. It needs no rdkit.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from molslice.bench.job import Numbers, answer_request, outcome_of
from molslice.bench.molecules import StoredMolecules
from molslice.bench.training import TrainJob
from molslice.config import RunConfig, config_from_mapping
from molslice.data.base import RowNumbers
from molslice.data.molecules.store import MoleculeStore
from molslice.files.process_memory import peak_bytes
from molslice.model import build_model
from molslice.ops import kernel_choice
from molslice.tasks import TASKS, TargetInfo
from molslice.tasks.base import MicroBatch
from molslice.training.batches import StepBatch, TrainingBatches
from molslice.training.fabric import build_fabric, quiet_lightning
from molslice.training.optimizer import learning_rate
from molslice.training.step_graphs import uses_fixed_shapes
from molslice.training.stepper import Stepper

WARM_UP_STEPS = {"cpu": 3, "cuda": 60}  # kernels are compiled and steps captured for each shape of a batch
SLOW_STEP_SECONDS = 5.0  # on a CPU, a slow step after the first one ends the warm-up
MIN_STEPS = 3
LOSS_STEPS = {"cpu": 1, "cuda": 50}  # steps between readings of the loss, as in training
COUNTED_BATCHES, COUNTED_ROWS = 4, 64  # of the timed batches, for the operations
TRAINING_STEPS = 1_000_000  # for the learning rate
MOMENTS = 5  # of a step with one backward pass: start, arrival, backward pass, end


class StepClock:
    """The times of waiting, forward passes, backward passes and the optimizer in a sequence of steps.

    On a GPU the moments are events in its stream, which do not synchronize. Waiting is then the time in which
    the device has nothing to do before a batch arrives, not the time in which the host waits.

    Args:
        device: The device that computes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._steps: list[list[Any]] = []

    def now(self) -> Any:  # noqa: ANN401
        """Return the current moment: seconds on a CPU, a recorded event on a GPU."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """Forget all steps, and start before the first batch is requested."""
        self._steps = []
        self._moments = [self.now()]

    def arrive(self) -> None:
        """A batch has arrived, and its step begins."""
        self._moments.append(self.now())

    def around(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the backward pass and notes when it begins and ends."""

        def timed(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return backward(*args, **options)
            self._moments.append(self.now())
            result = backward(*args, **options)
            self._moments.append(self.now())
            return result

        return timed

    def finish(self) -> None:
        """The step is finished, and the next batch is requested."""
        end = self.now()
        self._steps.append([*self._moments, end])
        self._moments = [end]

    def seconds(self) -> dict[str, float | None]:
        """Return the sums over all steps in seconds: waiting, forward, backward, optimizer.

        The forward pass includes the copy of the batch to the device and the loss; the optimizer includes
        clipping and averaging. The sum of all four is the time from `begin` to the last `finish`. The last
        three are None if a step was replayed as a CUDA graph, which has no moments inside.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        total: dict[str, float] = dict.fromkeys(("waiting", "forward", "backward", "optimizer"), 0.0)
        for moments in self._steps:
            parts = [self._between(a, b) for a, b in zip(moments, moments[1:], strict=False)]
            total["waiting"] += parts[0]
            total["forward"] += sum(parts[1:-1:2])
            total["backward"] += sum(parts[2:-1:2])
            total["optimizer"] += parts[-1]
        if any(len(moments) < MOMENTS for moments in self._steps):
            return {"waiting": total["waiting"], "forward": None, "backward": None, "optimizer": None}
        return {**total}

    def _between(self, start: Any, end: Any) -> float:  # noqa: ANN401
        if self.device.type == "cuda":
            return start.elapsed_time(end) / 1e3
        return end - start


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
        self.batches = TrainingBatches(
            dataset,
            rows,
            config.training,
            config.seed,
            fixed_shapes=fixed_shapes,
            mix_lengths=config.mixes_lengths,
        )
        self.stepper = Stepper(fabric, task, config, self.batches)
        self.step_number = 0
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    def stream(self) -> Generator[StepBatch]:
        """Return the batches, prefetched on a GPU as in training."""
        return self.stepper.stream(0, 0)

    def step(self, batch: StepBatch) -> None:
        """Update the weights with a batch, and their average, at the rate of a long training."""
        rate = learning_rate(self.config.optimizer, self.step_number, TRAINING_STEPS)
        loss = self.stepper.step(batch, self.step_number, rate)
        self.step_number += 1
        if self.stepper.average:
            self.stepper.average.update(self.step_number)
        self._loss_sum += loss
        if self.step_number % LOSS_STEPS[self.device.type] == 0:
            float(loss)

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
        while len(rows) < (job.steps or MIN_STEPS) or (
            job.steps is None and time.perf_counter() - start < job.seconds
        ):
            batch = next(stream)
            clock.arrive()
            training.step(batch)
            clock.finish()
            molecules += batch.rows
            padded += sum(map(padded_tokens, batch.micro_batches))
            rows.append(
                [micro_batch.batch.rows[micro_batch.batch.rows >= 0] for micro_batch in batch.micro_batches]
            )
        training.wait()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
    on_cpu = training.device.type == "cpu"
    peak = peak_bytes() if on_cpu else torch.cuda.max_memory_allocated(training.device)
    batches = training.batches
    flops = None
    if job.counts_flops:
        counted = rows[:: max(1, len(rows) // COUNTED_BATCHES)][:COUNTED_BATCHES]
        flops = flops_per_token(training, [row_ids.numpy() for step in counted for row_ids in step]) * padded
    return {
        "steps": len(rows),
        "molecules": molecules,
        "seconds": seconds,
        "processor_seconds": processor,
        **{f"{name}_seconds": value for name, value in clock.seconds().items()},
        "padding_share": 1.0 - batches.order.tokens.sum() / batches.padded_tokens(0).sum(),
        "peak_bytes": peak,
        "parameters": sum(
            parameter.numel() for parameter in training.stepper.model.parameters() if parameter.requires_grad
        ),
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


def padded_tokens(micro_batch: MicroBatch) -> int:
    """Return the tokens of a batch with its padding."""
    if isinstance(micro_batch.batch, RowNumbers):
        return len(micro_batch.batch) * micro_batch.batch.width
    molecules, atoms = micro_batch.batch.atom_mask.shape
    return molecules * (atoms + 1)


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
        kernel_choice.torch_forms(),
        sdpa_kernel(SDPBackend.MATH),
        counter,
        fabric.autocast(),
    ):
        for rows in batches:
            micro_batch = MicroBatch(dataset.collate(rows), len(rows), len(rows)).to(training.device)
            task.training_step(micro_batch).backward()
            tokens += padded_tokens(micro_batch)
    training.stepper.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops() / tokens


if __name__ == "__main__":
    answer_request(lambda line, report: report(measure(TrainJob.from_json(line))))
