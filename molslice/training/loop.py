"""The steps of a run: forward, backward, update, validation, checkpoint."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.fabric
import torch
from torch import Tensor, nn

from molslice.config import RunConfig
from molslice.inference.run_folder import LAST_CHECKPOINT, write_model
from molslice.tasks.base import Task
from molslice.training.batches import StepBatch, TrainingBatches, prefetch
from molslice.training.ema import WeightAverage
from molslice.training.fabric import seed_step
from molslice.training.optimizer import build_optimizer, learning_rate
from molslice.training.records import ProgressBar, Records
from molslice.training.state import Progress, load_checkpoint, save_checkpoint
from molslice.training.validation import Evaluator
from molslice.types import MolsliceError


class Loop:
    """The model, its optimizer and where the run is.

    One step is a function of the state before it and of its number, so a run that continues from a checkpoint
    goes through the states of one that was never stopped.
    """

    def __init__(
        self, fabric: lightning.fabric.Fabric, task: Task, config: RunConfig, batches: TrainingBatches
    ) -> None:
        self.fabric, self.task, self.config, self.batches = fabric, task, config, batches
        self.model: nn.Module = task.model
        task.to(fabric.device)
        decay = config.optimizer.ema_decay
        self.average = None if decay is None else WeightAverage(self.model, decay)
        if config.training.compile:
            # what a molecule's bonds decide has other shapes in every batch and stays as it is
            getattr(self.model, "encoder", self.model).compile(dynamic=True)
        # torch's fused update cannot be combined with the unscaling that float16 needs before clipping
        optimizer = build_optimizer(task, config.optimizer, fused=config.trainer.precision != "16")
        self.module, self.optimizer = fabric.setup(task, optimizer)
        self.module.train()
        self.progress = Progress()

    @property
    def evaluated_model(self) -> nn.Module:
        """The averaged weights, or those in training where there is no average."""
        if self.average is None:
            return self.model
        self.average.take_counters()
        return self.average.model

    def step(self, batch: StepBatch, rate: float) -> Tensor:
        """One update; returns this process's share of the loss, detached."""
        fabric, optimizer = self.fabric, self.optimizer
        seed_step(self.config.seed, self.progress.step, fabric.global_rank, fabric.device)
        for group in optimizer.param_groups:
            group["lr"] = rate
        total = torch.zeros((), device=fabric.device)
        for number, portion in enumerate(batch.portions):
            portion = portion.to(fabric.device, non_blocking=True)
            waiting = number < len(batch.portions) - 1
            with fabric.no_backward_sync(self.module, enabled=waiting), fabric.autocast():
                loss = self.module.training_step(portion)
                # processes average their gradients; the loss of a batch is the sum over them
                fabric.backward(loss * fabric.world_size if fabric.world_size > 1 else loss)
            total += loss.detach()
        clip = self.config.optimizer.gradient_clip
        if clip is not None:
            fabric.clip_gradients(self.module, optimizer, max_norm=clip, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    def tensors(self) -> dict[str, Any]:
        """All tensors that a checkpoint holds."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict() if self.average else {},
            "optimizer": self.optimizer.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Put back what `tensors` gave."""
        self.model.load_state_dict(tensors["model"])
        if self.average:
            self.average.model.load_state_dict(tensors["average"])
        self.optimizer.optimizer.load_state_dict(tensors["optimizer"])
        self.fabric.strategy.precision.load_state_dict(tensors["precision"])


class Run:
    """A loop that goes to its last step and keeps a run folder."""

    def __init__(
        self, loop: Loop, valid: Evaluator, folder: Path, max_steps: int, *, resume: bool, quiet: bool
    ) -> None:
        self.loop, self.valid, self.folder, self.max_steps = loop, valid, folder, max_steps
        self.fabric, self.config, self.progress = loop.fabric, loop.config, loop.progress
        self.lead = self.fabric.is_global_zero
        self.checkpoint = folder / LAST_CHECKPOINT
        if resume and self.checkpoint.is_file():
            tensors, self.progress = load_checkpoint(self.checkpoint)
            loop.load_tensors(tensors)
            loop.progress = self.progress
        targets = loop.task.targets
        self.records = Records(folder, targets, self.progress.step) if self.lead else None
        self.bar = ProgressBar(
            max_steps, self.progress.step, quiet or not self.lead, targets, loop.batches.dataset.noun
        )
        self._earlier_seconds, self._start = self.progress.seconds, time.perf_counter()
        self._session = (self.progress.step, self.progress.rows)
        # each process sums its own shares; what a checkpoint held is kept by the first one alone
        losses = self.progress.loss_sum if self.lead else 0.0
        self._loss_sum = torch.tensor(losses, dtype=torch.float64, device=self.fabric.device)
        self._watch_loss = 1 if self.fabric.device.type == "cpu" else 50  # reading it makes a GPU wait

    @property
    def stopped_early(self) -> bool:
        """Whether validations have not become better for as long as the configuration allows."""
        patience = self.config.training.early_stopping_patience
        return patience is not None and self.progress.validations_without_better >= patience

    def go(self) -> None:
        """To the last step.

        Raises:
            KeyboardInterrupt: stopped by a signal; the folder can be resumed and the message says so.
            MolsliceError: the loss is not finite any more, or a file cannot be written.
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
            if self.records:
                self.records.close()

    def _batches(self) -> Iterator[StepBatch]:
        stream = self.loop.batches.stream(self.progress.epoch, self.progress.index)
        if self.fabric.device.type == "cuda":
            stream = prefetch(stream)
        while self.progress.step < self.max_steps and not self.stopped_early:
            yield next(stream)

    def _step(self, batch: StepBatch) -> None:
        progress, config = self.progress, self.config
        rate = learning_rate(config.optimizer, progress.step, self.max_steps)
        loss = self.loop.step(batch, rate)
        progress.step += 1
        if self.loop.average:
            self.loop.average.update(progress.step)
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
        """Of training and validation in this process, up to the last checkpoint."""
        return self.progress.seconds - self._earlier_seconds

    @property
    def rows_per_second(self) -> float:
        """Since this process began, validation included."""
        return (self.progress.rows - self._session[1]) / max(time.perf_counter() - self._start, 1e-9)

    def _refuse_not_finite(self, loss: float) -> None:
        if not math.isfinite(loss) and self.config.trainer.precision != "16":  # float16 skips such steps
            raise self._diverged(f"the loss became {loss} at step {self.progress.step}")

    def _diverged(self, what: str) -> MolsliceError:
        return MolsliceError(
            f"{what}; a smaller optimizer.lr, a longer warm-up or trainer.precision 32 may help. The "
            f"checkpoint in {self.folder} is from before"
        )

    def _refuse_broken(self) -> float:
        """The summed losses, before anything is written; on a GPU not every step has looked at its own."""
        losses = self._summed_losses()
        self._refuse_not_finite(losses)
        # a loss that is finite may have a gradient that is not
        for name, parameter in self.loop.model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise self._diverged(f"the weights {name} are not finite after step {self.progress.step}")
        return losses

    def _validate(self) -> None:
        progress, task, model = self.progress, self.loop.task, self.loop.evaluated_model
        losses = self._refuse_broken()
        metrics = self.valid.metrics(model)
        score = task.score(metrics)
        better = progress.best_score is None or score < progress.best_score
        epoch = progress.epoch + progress.index / self.loop.batches.steps_per_epoch
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
                dataset = self.loop.batches.dataset
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
        """Between validations."""
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
            save_checkpoint(self.checkpoint, self.loop.tensors(), progress)

    def _how_to_resume(self) -> str:
        done = f"stopped at step {self.progress.step} of {self.max_steps}"
        return f"{done}; the same command with --resume continues the run in {self.folder}"


@contextmanager
def interruptible(world_size: int) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or termination signal sets; the second one interrupts at once.

    With several processes, which could not agree on the step to stop at, the first one interrupts too: the
    run continues from its last checkpoint.
    """
    event = threading.Event()

    def handle(number: int, frame: object) -> None:
        if event.is_set() or world_size > 1:
            raise KeyboardInterrupt("stopped between checkpoints; --resume continues from the last one")
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, handle) for number in signals]
    try:
        yield event
    finally:
        for number, handler in zip(signals, former, strict=True):
            signal.signal(number, handler)
