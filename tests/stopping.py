"""Trainings that a signal stops."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from molslice.training.trainer import Trainer


@contextmanager
def signal_at(step: int, number: int = signal.SIGINT) -> Iterator[None]:
    """Send this process a signal after a step of the trainings in the block."""
    record_step = Trainer._record_step

    def record_and_send(self, batch, loss):
        record_step(self, batch, loss)
        if self.progress.step == step:
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_record_step", record_and_send)
        yield
