"""A run that was killed and resumed has the same weights and metrics as an uninterrupted one."""

import csv
import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from molslice.files.lock import LOCK, Owner, lock_folder
from molslice.folders.run import CONFIG, LAST_CHECKPOINT, METRICS, MODEL, SUMMARY
from molslice.training.ensemble import train_ensemble
from molslice.training.run import train
from molslice.training.state import load_checkpoint
from molslice.training.trainer import interruptible
from molslice.types import MolsliceError
from tests.stopping import signal_at

# Kills its children at the moments named; a child is forked before anything was trained. Batches: 8 an epoch.
KILLER = """
import os, pathlib, signal, sys
from molslice.config import load_config
from molslice.training import state
from molslice.training.trainer import Trainer
from molslice.training.run import train

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def after(method, step):
    original = getattr(Trainer, method)
    def patched(self, *args):
        original(self, *args)
        if self.progress.step == step:
            die()
    setattr(Trainer, method, patched)

def before_rename(number):
    original, count = os.replace, [0]
    def patched(source, target):
        count[0] += str(target).endswith("last.ckpt")
        if str(target).endswith("last.ckpt") and count[0] == number:
            die()
        return original(source, target)
    os.replace = patched

config, folder = load_config(sys.argv[1]), pathlib.Path(sys.argv[2])
for moment in sys.argv[3:]:
    kind, _, number = moment.partition(":")
    child = os.fork()
    if child == 0:
        before_rename(int(number)) if kind == "before_rename" else after(kind, int(number))
        train(config, folder / moment.replace(":", "-"), quiet=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (moment, status)
"""

MOMENTS = {
    "within the first epoch, before any checkpoint": "_record_step:2",
    "within an epoch, steps after a checkpoint": "_record_step:11",
    "within an epoch, right after a checkpoint": "_save:12",
    "between epochs, before the validation": "_record_step:8",
    "between epochs, after the validation": "_validate:16",
    "while a checkpoint is written": "before_rename:3",
    "after the last step": "_validate:24",
}


@pytest.fixture(scope="module")
def config(build_config):
    # dropout makes the random numbers matter, a second target with gaps the count of losses
    return build_config(
        data={"target_columns": ["gap", "half"]},
        model={"dropout": 0.2, "attention_dropout": 0.1},
        training={"checkpoint_every_steps": 3},
    )


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train(config, folder, quiet=True)["steps"] == 24
    return folder


@pytest.fixture(scope="module")
def killed(config, whole, write_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    path = write_config(config, folder / "config.yaml")
    command = [sys.executable, "-c", KILLER, str(path), str(folder), *MOMENTS.values()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def flat(tree, path=""):
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, f"{path}.{key}")
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from flat(value, f"{path}.{number}")


def rows(folder):
    with (folder / METRICS).open() as file:
        timed = ("seconds", "rows_per_second")
        return [{k: v for k, v in row.items() if k not in timed} for row in csv.DictReader(file)]


def assert_equal_runs(one, other):
    states = [torch.load(folder / LAST_CHECKPOINT, weights_only=True) for folder in (one, other)]
    tensors = [dict(flat(state)) for state in states]
    assert tensors[0].keys() == tensors[1].keys()
    assert len(tensors[0]) > 100
    for name, tensor in tensors[0].items():
        assert torch.equal(tensor, tensors[1][name]), name
    for state in states:
        state["progress"].pop("seconds")
    assert states[0]["progress"] == states[1]["progress"]
    assert (one / MODEL).read_bytes() == (other / MODEL).read_bytes()
    assert rows(one) == rows(other)
    summaries = [json.loads((folder / SUMMARY).read_text()) for folder in (one, other)]
    for split in ("train", "valid", "test"):
        assert summaries[0][split] == summaries[1][split]


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
def test_a_killed_run_ends_as_one_that_was_not(config, whole, killed, moment):
    folder = killed / moment.replace(":", "-")
    assert not (folder / SUMMARY).exists()
    train(config, folder, resume=True, quiet=True)
    assert_equal_runs(whole, folder)
    assert not list(folder.rglob("*.partial"))


def test_another_seed_ends_elsewhere(build_config, whole, tmp_path):
    """The comparison can fail: a run with another seed differs."""
    other = build_config(data={"target_columns": ["gap", "half"]}, seed=6)
    train(other, tmp_path / "other", quiet=True)
    with pytest.raises(AssertionError):
        assert_equal_runs(whole, tmp_path / "other")


def test_a_run_by_muon_continues_as_one_that_was_not_interrupted(build_config, tmp_path):
    config = build_config(optimizer={"name": "muon"}, training={"max_epochs": 2, "checkpoint_every_steps": 3})
    train(config, tmp_path / "whole", quiet=True)
    with signal_at(7), pytest.raises(KeyboardInterrupt, match="step 7 of 16"):
        train(config, tmp_path / "run", quiet=True)
    state = torch.load(tmp_path / "run" / LAST_CHECKPOINT, weights_only=True)["optimizer"]["state"]
    assert {tuple(moments) for moments in state.values()} == {
        ("momentum_buffer",),
        ("step", "exp_avg", "exp_avg_sq"),
    }
    train(config, tmp_path / "run", resume=True, quiet=True)
    assert_equal_runs(tmp_path / "whole", tmp_path / "run")


def test_an_interrupt_leaves_a_run_that_continues(config, whole, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    # a validation is due after step 8
    with signal_at(8), pytest.raises(KeyboardInterrupt, match="step 8 of 24; .*--resume"):
        train(config, tmp_path / "run", quiet=True)
    assert signal.getsignal(signal.SIGINT) is before
    # resuming from an earlier checkpoint would end alike, with steps computed twice
    assert load_checkpoint(tmp_path / "run" / LAST_CHECKPOINT)[1].step == 8
    train(config, tmp_path / "run", resume=True, quiet=True)
    assert_equal_runs(whole, tmp_path / "run")


def test_an_interrupt_in_the_last_validation_is_heard(config, whole, tmp_path, monkeypatch):
    from molslice.training.trainer import Trainer

    original = Trainer._validate

    def interrupted(self):
        original(self)
        if self.progress.step == 24:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_validate", interrupted)
        with pytest.raises(KeyboardInterrupt, match="step 24 of 24; .*--resume"):
            train(config, tmp_path / "run", quiet=True)
    train(config, tmp_path / "run", resume=True, quiet=True)
    assert_equal_runs(whole, tmp_path / "run")


def test_a_finished_run_is_not_trained_again(config, whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    assert train(config, whole, resume=True, quiet=True) == json.loads((whole / SUMMARY).read_text())
    assert before == {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}


def test_minutes_are_not_measured_again(config, whole, caplog):
    minutes = dataclasses.replace(config.training, max_epochs=None, max_minutes=5.0)
    train(dataclasses.replace(config, training=minutes), whole, resume=True, quiet=True)
    assert "continues to the 24 steps that were set at its start" in caplog.text


def test_a_folder_with_something_in_it_is_refused_and_left_alone(config, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(MolsliceError, match="not empty.*--resume"):
        train(config, tmp_path, quiet=True)
    with pytest.raises(MolsliceError, match="not a run folder"):
        train(config, tmp_path, resume=True, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_refused_start_leaves_no_folders(build_config, tmp_path):
    missing = build_config(data={"path": str(tmp_path / "none.csv")})
    for start in (train, functools.partial(train_ensemble, members=2)):
        with pytest.raises(MolsliceError, match=r"no such file: .*none\.csv"):
            start(missing, tmp_path / "a" / "b", quiet=True)
        assert list(tmp_path.iterdir()) == []


def test_another_configuration_is_not_a_resumption(build_config, whole):
    other = build_config(
        data={"target_columns": ["gap", "half"]},
        model={"dropout": 0.2, "attention_dropout": 0.1},
        optimizer={"lr": 3e-3},
    )
    with pytest.raises(MolsliceError, match=r"optimizer.lr is 0.003, was 0.002"):
        train(other, whole, resume=True, quiet=True)


@pytest.mark.parametrize("machine", [Owner.current().machine, "another"])
def test_a_run_that_was_killed_at_its_first_files_continues(build_config, tmp_path, machine):
    """Only the checksum of the data is written, so without --resume the folder is not empty."""
    config, run = build_config(training={"max_steps": 1}), tmp_path / "run"
    train(config, run, quiet=True)
    dead = Owner.current()._replace(start=1, machine=machine)
    (run / CONFIG).rename(run / f".{CONFIG}.{dead}-0.partial")
    uncertainty = [f"{name}.{kind}" for name in ("calibration", "domain") for kind in ("json", "safetensors")]
    for name in (SUMMARY, METRICS, MODEL, "tensorboard", LAST_CHECKPOINT, *uncertainty):
        place = run / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    train(config, run, resume=True, quiet=True)
    assert (run / SUMMARY).is_file()
    # whether a process of another machine has ended is unknown
    assert bool(list(run.rglob("*.partial"))) == (machine == "another")


@pytest.fixture
def begun(killed, tmp_path):
    """Return a run that stopped at step 11."""
    folder = tmp_path / "run"
    shutil.copytree(killed / "_record_step-11", folder)
    for name in (SUMMARY, LOCK):  # another test may have resumed it; if not, its lock was copied while it ran
        (folder / name).unlink(missing_ok=True)
    return folder


def test_a_run_that_is_still_running_is_not_resumed(config, begun):
    before = sorted(begun.rglob("*"))
    with lock_folder(begun):
        for resume in (True, False):
            with pytest.raises(MolsliceError, match=rf"run is in use by process {os.getpid()} on "):
                train(config, begun, resume=resume, quiet=True)
    assert sorted(begun.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:-1], r"the number of rows \(149, was 150\), the targets, the inputs"),
        (lambda rows: [*rows[:-1], rows[-1].replace(",", ",1", 1)], "its start: the targets of "),
        (lambda rows: [*rows[:-1], "C" + rows[-1]], "the inputs"),
    ],
    ids=["rows", "target", "molecule"],
)
def test_changed_data_are_not_a_resumption(build_config, molecules, tmp_path, change, words):
    path = tmp_path / "molecules.csv"
    path.write_text(molecules.read_text())
    config = build_config(data={"path": str(path)}, training={"max_steps": 2})
    train(config, tmp_path / "run", quiet=True)
    (tmp_path / "run" / SUMMARY).unlink()
    path.write_text("\n".join(change(molecules.read_text().splitlines())) + "\n")
    with pytest.raises(MolsliceError, match=words):
        train(config, tmp_path / "run", resume=True, quiet=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_second_signal_ends_at_once(number, monkeypatch):
    monkeypatch.setattr("molslice.training.trainer.SAME_SIGNAL_SECONDS", 0.0)
    with interruptible() as interrupted:
        os.kill(os.getpid(), number)
        assert interrupted.is_set()
        with pytest.raises(KeyboardInterrupt, match="--resume"):
            os.kill(os.getpid(), number)
