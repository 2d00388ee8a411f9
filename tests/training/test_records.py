"""Tests of the records of a run: metrics.csv and TensorBoard events."""

import errno
import os

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from molslice.run_folder import METRICS, TENSORBOARD
from molslice.tasks.targets import TargetInfo
from molslice.training.records import Records
from molslice.types import MolsliceError

TARGETS = TargetInfo(("gap",), ("eV",), "regression", (0.0,), (1.0,))


def row(step, loss):
    numbers = {"epoch": 0.5, "seconds": 1.0, "learning_rate": 1e-3, "rows_per_second": 9.0}
    return {"step": step, "train_loss": loss, **numbers}


def test_a_resumed_run_replaces_the_events_after_its_checkpoint(tmp_path):
    first = Records(tmp_path, TARGETS, 0)
    for step in (1, 2, 3):
        first.add(row(step, float(step)), {"gap": 0.25})
    Records(tmp_path, TARGETS, 1).add(row(2, 7.0), {"gap": 0.5})
    events = EventAccumulator(str(tmp_path / TENSORBOARD)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train_loss")] == [(1, 1.0), (2, 7.0)]
    assert [e.value for e in events.Scalars("valid_mae_gap_eV")] == [0.25, 0.5]
    assert len((tmp_path / METRICS).read_text().splitlines()) == 3


def test_events_on_a_full_disk_are_one_line(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    records = Records(tmp_path, TARGETS, 0)
    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(MolsliceError, match=r"^cannot write .*tensorboard.*: No space left on device$"):
        records.add(row(1, 1.0), {"gap": 0.25})
