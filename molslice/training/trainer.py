"""The loop of a run: steps, validations, checkpoints and signals."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from molslice.run_folder import LAST_CHECKPOINT, write_model
from molslice.training.batches import StepBatch, prefetch
from molslice.training.optimizer import learning_rate
from molslice.training.records import ProgressBar, Records
from molslice.training.state import load_checkpoint, save_checkpoint, unreadable_checkpoint
from molslice.training.stepper import Stepper
from molslice.training.validation import Evaluator
from molslice.types import MolsliceError


class Trainer:
    """The loop over steps with validations and checkpoints, which writes a run folder.

    Args:
        stepper: The model and its optimizer.
        valid: The evaluator of the validation split.
        folder: The run folder.
        max_steps: The number of steps.
        resume: Whether to continue from the last checkpoint in the folder.
        quiet: Whether to hide the progress bar.

    Raises:
        MolsliceError: The checkpoint cannot be read or does not fit the model.
    """

    def __init__(
        self, stepper: Stepper, valid: Evaluator, folder: Path, max_steps: int, *, resume: bool, quiet: bool
    ) -> None:
        self.stepper, self.valid, self.folder, self.max_steps = stepper, valid, folder, max_steps
        self.fabric, self.config, self.progress = stepper.fabric, stepper.config, stepper.progress
        self.lead = self.fabric.is_global_zero
        self.checkpoint = folder / LAST_CHECKPOINT
        if resume and self.checkpoint.is_file():
            tensors, self.progress = load_checkpoint(self.checkpoint)
            stepper.progress = self.progress
            try:
                if self.progress.step > max_steps:
                    raise MolsliceError(f"step is {self.progress.step}, the run has {max_steps}")
                stepper.load_tensors(tensors)
            except Exception as error:  # noqa: BLE001 - errors of torch's optimizers have no common base
                raise unreadable_checkpoint(self.checkpoint, error) from error
        measures = stepper.task.measures
        self.records = Records(folder, measures, self.progress.step) if self.lead else None
        self.bar = ProgressBar(
            max_steps, self.progress.step, quiet or not self.lead, measures, stepper.batches.dataset.row_name
        )
        self._earlier_seconds, self._start = self.progress.seconds, time.perf_counter()
        self._session = (self.progress.step, self.progress.rows)
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
            with interruptible(self.fabric.world_size) as interrupted:
                if self.progress.validation_due:
                    self._validate()
                for batch in self._batches():
                    self._step(batch)
                    if interrupted.is_set():
                        self._checkpoint()
                        raise KeyboardInterrupt(self._how_to_resume())
                    if self.progress.validation_due:
                        self._validate()
                    elif self._is_due(self.config.training.checkpoint_every_steps):
                        self._checkpoint()
        finally:
            self.bar.close()

    def _batches(self) -> Iterator[StepBatch]:
        stream = self.stepper.batches.stream(self.progress.epoch, self.progress.index)
        if self.fabric.device.type == "cuda":
            stream = prefetch(stream)
        while self.progress.step < self.max_steps and not self.stopped_early:
            yield next(stream)

    def _step(self, batch: StepBatch) -> None:
        progress, config = self.progress, self.config
        rate = learning_rate(config.optimizer, progress.step, self.max_steps)
        loss = self.stepper.step(batch, rate)
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
        return (self.progress.rows - self._session[1]) / max(time.perf_counter() - self._start, 1e-9)

    def _refuse_not_finite(self, loss: float) -> None:
        if not math.isfinite(loss) and self.config.trainer.precision != "16":  # float16 skips such steps
            raise self._diverged(f"the loss became {loss} at step {self.progress.step}")

    def _diverged(self, what: str) -> MolsliceError:
        return MolsliceError(
            f"{what}; a smaller optimizer.lr, a longer warm-up or trainer.precision 32 may help. The "
            f"checkpoint in {self.folder} is from an earlier step"
        )

    def _refuse_broken(self) -> float:
        """Return the sum of the losses; check it and the weights before anything is written."""
        losses = self._summed_losses()
        self._refuse_not_finite(losses)
        # the gradient of a finite loss may not be finite
        for name, parameter in self.stepper.model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise self._diverged(f"the weights {name} are not finite after step {self.progress.step}")
        return losses

    def _validate(self) -> None:
        progress, task, model = self.progress, self.stepper.task, self.stepper.evaluated_model
        losses = self._refuse_broken()
        metrics = self.valid.metrics(model)
        score = task.score(metrics)
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
                dataset = self.stepper.batches.dataset
                extra = {**dataset.metadata, "step": progress.step}
                write_model(self.folder, model.state_dict(), task.targets, dataset.spec, self.config, extra)
        self._loss_sum.zero_()
        progress.loss_steps = 0
        self._save()

    def _summed_losses(self) -> float:
        if self.fabric.world_size == 1:
            return float(self._loss_sum)
        total = self.fabric.all_reduce(self._loss_sum.clone(), reduce_op="sum")
        assert isinstance(total, Tensor)
        return float(total)

    def _checkpoint(self) -> None:
        """Write a checkpoint between validations."""
        self._refuse_broken()
        self._save()

    def _save(self) -> None:
        progress = self.progress
        progress.seconds = self._earlier_seconds + time.perf_counter() - self._start
        progress.loss_sum = self._summed_losses()
        if self.fabric.world_size > 1:
            self._loss_sum.fill_(progress.loss_sum if self.lead else 0.0)
        if self.lead:
            self.checkpoint.parent.mkdir(exist_ok=True)
            save_checkpoint(self.checkpoint, self.stepper.tensors(), progress)

    def _how_to_resume(self) -> str:
        done = f"stopped at step {self.progress.step} of {self.max_steps}"
        return f"{done}; the same command with --resume continues the run in {self.folder}"


@contextmanager
def interruptible(world_size: int) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or termination signal sets; the second signal interrupts at once.

    With several processes the first signal interrupts at once too, because they could not agree on the last
    step. The run then resumes from its last checkpoint.

    Args:
        world_size: Number of processes.

    Raises:
        KeyboardInterrupt: A second signal arrived, or any signal with several processes.
    """
    event = threading.Event()

    def handle(number: int, frame: object) -> None:
        if event.is_set() or world_size > 1:
            raise KeyboardInterrupt("stopped between checkpoints; --resume continues from the last one")
        event.set()

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
