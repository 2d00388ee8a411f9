"""The loop of a run: steps, validations, checkpoints and signals."""

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from molslice.config import RunConfig
from molslice.folders.run import LAST_CHECKPOINT, write_model
from molslice.training.batches import StepBatch
from molslice.training.fabric import local_part
from molslice.training.optimizer import learning_rate
from molslice.training.processes import StopRequests
from molslice.training.records import ProgressBar, Records
from molslice.training.state import Progress, load_checkpoint, save_checkpoint, unreadable_checkpoint
from molslice.training.stepper import Stepper
from molslice.training.validation import Evaluator
from molslice.types import MolsliceError

SAME_SIGNAL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Trainer:
    """The loop over steps with validations and checkpoints, which writes a run folder.

    The length of the configuration is in steps. With `resume` it continues the last checkpoint in the folder.

    Raises:
        MolsliceError: The checkpoint cannot be read or does not fit the model.
    """

    def __init__(
        self,
        stepper: Stepper,
        valid: Evaluator,
        folder: Path,
        config: RunConfig,
        *,
        resume: bool,
        quiet: bool,
    ) -> None:
        assert config.training.max_steps is not None
        self.stepper, self.valid, self.folder, self.config = stepper, valid, folder, config
        self.fabric, self.progress, self.max_steps = stepper.fabric, Progress(), config.training.max_steps
        self.lead = self.fabric.is_global_zero
        self.checkpoint = folder / LAST_CHECKPOINT
        if resume:
            tensors, self.progress = load_checkpoint(self.checkpoint)
            try:
                if self.progress.step > self.max_steps:
                    raise MolsliceError(f"step is {self.progress.step}, the run has {self.max_steps}")
                stepper.load_tensors(tensors, self.progress.step)
            except Exception as error:  # noqa: BLE001 - errors of torch's optimizers have no common base
                raise unreadable_checkpoint(self.checkpoint, error) from error
        measures = stepper.task.measures
        self.records = Records(folder, measures, self.progress.step) if self.lead else None
        row_name, hidden = stepper.batches.dataset.row_name, quiet or not self.lead
        self.bar = ProgressBar(self.max_steps, self.progress.step, hidden, measures, row_name)
        self._earlier_seconds, self._start = self.progress.seconds, time.perf_counter()
        self._earlier_rows = self.progress.rows
        # each process sums its own losses; only the first one continues the sum of the checkpoint
        losses = self.progress.loss_sum if self.lead else 0.0
        self._loss_sum = torch.tensor(losses, dtype=torch.float64, device=self.fabric.device)
        self._watch_loss = 1 if self.fabric.device.type == "cpu" else 50  # reading a loss synchronizes a GPU

    @property
    def stopped_early(self) -> bool:
        """Whether the score has not improved for the configured number of validations."""
        patience = self.config.training.early_stopping_patience
        return patience is not None and self.progress.validations_without_better >= patience

    def fit(self) -> None:
        """Train up to the last step.

        Raises:
            KeyboardInterrupt: Stopped by a signal. The message says how to resume.
            MolsliceError: The loss or the weights are not finite, or a file cannot be written.
        """
        try:
            with interruptible() as interrupted:
                requests = StopRequests(self.fabric, interrupted)
                if self.progress.validation_due:
                    self._validate()
                for batch in self._batches():
                    step = self.progress.step
                    rate = learning_rate(self.config.optimizer, step, self.max_steps)
                    self._record_step(batch, self.stepper.step(batch, step, rate))
                    if requests.exchange():
                        self._checkpoint()
                        self.fabric.barrier()  # a launcher ends all processes when one has ended
                        raise KeyboardInterrupt(self._how_to_resume())
                    if self.progress.validation_due:
                        self._validate()
                    elif self._is_due(self.config.training.checkpoint_every_steps):
                        self._checkpoint()
                if requests.exchange():  # during the last validation, whose checkpoint is written
                    raise KeyboardInterrupt(self._how_to_resume())
        finally:
            self.bar.close()

    def _batches(self) -> Iterator[StepBatch]:
        stream = self.stepper.stream(self.progress.epoch, self.progress.index)
        while self.progress.step < self.max_steps and not self.stopped_early:
            yield next(stream)

    def _record_step(self, batch: StepBatch, loss: Tensor) -> None:
        progress = self.progress
        progress.step += 1
        if self.stepper.average:
            self.stepper.average.update(progress.step)
        progress.epoch = batch.epoch + 1 if batch.last else batch.epoch
        progress.index = 0 if batch.last else batch.index + 1
        progress.rows += batch.rows
        self._loss_sum += loss
        progress.loss_steps += 1
        progress.validation_due = self._validation_due(batch)
        if progress.step % self._watch_loss == 0:
            self._refuse_not_finite(float(loss))
        self.bar.step(batch.epoch)
        if self.bar.wants_numbers:
            self.bar.show(float(self._loss_sum) / progress.loss_steps, self.rows_per_second)

    def _validation_due(self, batch: StepBatch) -> bool:
        training = self.config.training
        if self.progress.step == self.max_steps or self._is_due(training.valid_every_steps):
            return True
        by_epochs = training.valid_every_steps is None and batch.last
        return by_epochs and (batch.epoch + 1) % training.valid_every_epochs == 0

    def _is_due(self, every: int | None) -> bool:
        return every is not None and self.progress.step % every == 0

    @property
    def session_seconds(self) -> float:
        """Time of training and validation in this process up to the last checkpoint, in seconds."""
        return self.progress.seconds - self._earlier_seconds

    @property
    def rows_per_second(self) -> float:
        """Rows per second since this process started, including validation."""
        return (self.progress.rows - self._earlier_rows) / max(time.perf_counter() - self._start, 1e-9)

    def _refuse_not_finite(self, loss: float) -> None:
        if not math.isfinite(loss) and self.config.trainer.precision != "16":  # float16 skips such steps
            raise self._diverged(f"the loss became {loss} at step {self.progress.step}")

    def _diverged(self, what: str) -> MolsliceError:
        return MolsliceError(
            f"{what}; a smaller optimizer.lr, a longer warm-up or trainer.precision 32 may help"
            + f". The checkpoint in {self.folder} is from an earlier step" * self.checkpoint.exists()
        )

    def _refuse_broken(self) -> float:
        """Return the sum of the losses; check it and the weights before anything is written."""
        # the gradient of a finite loss may not be finite
        broken = [
            name
            for name, parameter in self.stepper.model.named_parameters()
            if not torch.isfinite(local_part(parameter)).all()
        ]
        # a sharded weight is broken on one process, and all must stop
        losses, count = self._sum(torch.stack([self._loss_sum, self._loss_sum.new_tensor(len(broken))]))
        self._refuse_not_finite(float(losses))
        if count:
            first_broken = broken[0] if broken else "of another process"
            raise self._diverged(f"the weights {first_broken} are not finite after step {self.progress.step}")
        return float(losses)

    def _validate(self) -> None:
        progress, task, model = self.progress, self.stepper.task, self.stepper.evaluated_model
        losses = self._refuse_broken()
        metrics = self.valid.metrics(model)
        score = task.score(metrics)
        if not math.isfinite(score) and not progress.best_metrics and self.lead:
            logger.warning(
                "the error on the split valid is not defined for %s; early stopping is off, and the last "
                "weights are kept instead of the best",
                ", ".join(name for name, value in metrics.items() if not math.isfinite(value)),
            )
        better = progress.best_score is None or score < progress.best_score
        epoch = progress.epoch + progress.index / self.stepper.batches.steps_per_epoch
        progress.validation_due, progress.validated_step = False, progress.step
        if better:
            progress.best_score = score if math.isfinite(score) else None
            progress.best_step, progress.best_epoch, progress.best_metrics = progress.step, epoch, metrics
        progress.validations_without_better = 0 if better else progress.validations_without_better + 1
        self.bar.show_metrics(metrics)
        progress.seconds = self._earlier_seconds + time.perf_counter() - self._start
        if self.records:
            row = {
                "step": progress.step,
                "epoch": epoch,
                "seconds": round(progress.seconds, 3),
                "learning_rate": learning_rate(self.config.optimizer, progress.step - 1, self.max_steps),
                "train_loss": losses / max(1, progress.loss_steps),
                "rows_per_second": self.rows_per_second,
            }
            self.records.add(row, metrics)
        if better:
            weights, dataset = self.stepper.weights(model), self.stepper.batches.dataset
            data = self.config.model_data(dataset.spec)
            extra = {**dataset.metadata, "step": progress.step}
            if self.lead:
                write_model(self.folder, weights, task.targets, data, self.config, extra)
        self._loss_sum.zero_()
        progress.loss_steps = 0
        self._save()

    def _sum(self, values: Tensor) -> Tensor:
        """Sum over the processes."""
        if self.fabric.world_size == 1:
            return values
        total = self.fabric.all_reduce(values.clone(), reduce_op="sum")
        assert isinstance(total, Tensor)
        return total

    def _checkpoint(self) -> None:
        """Write a checkpoint between validations."""
        self._refuse_broken()
        self._save()

    def _save(self) -> None:
        progress = self.progress
        progress.seconds = self._earlier_seconds + time.perf_counter() - self._start
        progress.loss_sum = float(self._sum(self._loss_sum))
        if self.fabric.world_size > 1:
            self._loss_sum.fill_(progress.loss_sum if self.lead else 0.0)
        tensors = self.stepper.tensors()
        if self.lead:
            self.checkpoint.parent.mkdir(exist_ok=True)
            save_checkpoint(self.checkpoint, tensors, progress)

    def _how_to_resume(self) -> str:
        done = f"stopped at step {self.progress.step} of {self.max_steps}"
        return f"{done}; the same command with --resume continues the run in {self.folder}"


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or termination signal sets; the second signal interrupts at once.

    Signals within a second count as one: a launcher passes on the signal that its terminal has sent to all.

    Raises:
        KeyboardInterrupt: A second signal arrived.
    """
    event, first = threading.Event(), 0.0

    def handle(number: int, frame: object) -> None:
        nonlocal first
        if not event.is_set():
            first = time.monotonic()
            event.set()
        elif time.monotonic() - first > SAME_SIGNAL_SECONDS:
            raise KeyboardInterrupt("stopped between checkpoints; --resume continues from the last one")

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # not under nohup
        signals.append(signal.SIGHUP)
    former = [signal.signal(number, handle) for number in signals]
    try:
        yield event
    finally:
        for number, handler in zip(signals, former, strict=True):
            signal.signal(number, handler)
