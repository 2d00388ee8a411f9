"""Tests of the records of a run: metrics.csv and TensorBoard events."""

import errno
import os
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from molslice.folders.run import METRICS, TENSORBOARD
from molslice.tasks.base import Measure
from molslice.training import records
from molslice.training.records import Records
from molslice.training.run import train
from molslice.types import MolsliceError

MEASURES = [Measure("gap", "mae", "eV")]


def row(step, loss):
    numbers = {"epoch": 0.5, "seconds": 1.0, "learning_rate": 1e-3, "rows_per_second": 9.0}
    return {"step": step, "train_loss": loss, **numbers}


@pytest.mark.parametrize(
    "content", ["", "step,train_loss\n", "step,train_loss\n1,x\n", f"step,{'x' * 200_000}\n1,2\n"]
)
def test_a_damaged_table_of_metrics_is_refused(tmp_path, content):
    (tmp_path / METRICS).write_text(content)
    with pytest.raises(MolsliceError, match=f"cannot read .*{METRICS}"):
        records.read_metrics(tmp_path / METRICS)


def test_a_resumed_run_replaces_the_events_after_its_checkpoint(tmp_path):
    first = Records(tmp_path, MEASURES, 0)
    for step in (1, 2, 3):
        first.add(row(step, float(step)), {"gap": 0.25})
    Records(tmp_path, MEASURES, 1).add(row(2, 7.0), {"gap": 0.5})
    events = EventAccumulator(str(tmp_path / TENSORBOARD)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train_loss")] == [(1, 1.0), (2, 7.0)]
    assert [e.value for e in events.Scalars("valid_mae_gap_eV")] == [0.25, 0.5]
    assert len((tmp_path / METRICS).read_text().splitlines()) == 3


def test_events_on_a_full_disk_are_one_line(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = Records(tmp_path, MEASURES, 0)
    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(MolsliceError, match=r"^cannot write .*tensorboard.*: No space left on device$"):
        found.add(row(1, 1.0), {"gap": 0.25})


@pytest.fixture
def _without_tensorboard(monkeypatch):
    for name in ("tensorboard", *sys.modules):
        if name.partition(".")[0] == "tensorboard":
            monkeypatch.setitem(sys.modules, name, None)
    records._has_tensorboard.cache_clear()
    yield
    records._has_tensorboard.cache_clear()


@pytest.mark.usefixtures("_without_tensorboard")
def test_training_without_tensorboard_writes_metrics(build_config, tmp_path, caplog):
    for name in ("first", "second"):
        summary = train(build_config(training={"max_epochs": 2}), tmp_path / name, quiet=True)
        lines = (tmp_path / name / METRICS).read_text().splitlines()
        assert int(lines[-1].split(",")[0]) == summary["steps"]
        assert not (tmp_path / name / TENSORBOARD).exists()
    (message,) = [text for text in caplog.messages if "TensorBoard" in text]
    assert "pip install 'molslice[logging]'" in message
