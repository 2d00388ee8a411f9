"""Training with several CPU processes equals training with one, whoever starts them and wherever it stops."""

import csv
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from molslice.config import config_from_mapping
from molslice.folders.run import LAST_CHECKPOINT, METRICS, MODEL, SUMMARY
from molslice.training.run import train
from molslice.training.state import load_checkpoint

# The last of 10 batches of an epoch has 3 rows, less than one for each of 4 processes.
SECTIONS = {
    "data": {"target_columns": ["gap", "half"]},  # gaps in the targets: shares of unequal weight
    "attention": {"name": "singular"},  # with a penalty
    "model": {"dropout": 0.0, "attention_dropout": 0.0},
    "optimizer": {"gradient_clip": 0.5},
    "training": {"max_steps": 14, "valid_every_steps": 7, "batch_size": 13, "accumulate": 2},
}
STOP = 10  # a step between the validations

# Each process runs all cases in turn. A case of several processes is one of the functions.
PROGRAM = """
import json, os, pathlib, signal, sys
import torch
from torch.distributed.device_mesh import init_device_mesh
from molslice.config import load_config
from molslice.inference.precision import float32_inference
from molslice.tasks.pretraining import Pretraining
from molslice.training import run
from molslice.training import fabric as sharding
from molslice.training.run import train
from molslice.training.trainer import Trainer
from molslice.types import MolsliceError

folder, rank, said = pathlib.Path(sys.argv[1]), int(os.environ["SLURM_PROCID"]), {}

def attempt(case, **options):
    try:
        train(load_config(folder / f"{case}.yaml"), folder / case, quiet=True, **options)
    except (MolsliceError, KeyboardInterrupt) as error:
        said[case] = f"{type(error).__name__}: {error}"

attempt("ddp")
attempt("resumed", resume=True)
original = Trainer._record_step
def step(self, batch, loss):
    original(self, batch, loss)
    if rank == 2 and self.progress.step == STOP:
        os.kill(os.getpid(), signal.SIGTERM)
Trainer._record_step = step
attempt("stopped")
Trainer._record_step = original
attempt("some_families")
freeze = Pretraining._freeze_unused
Pretraining._freeze_unused = lambda self: None
attempt("unused")
attempt("find_unused")
Pretraining._freeze_unused = freeze
attempt("gin")
build = run.build_dataset
def broken(*args):
    raise MolsliceError("no such file: data.csv")
if rank == 1:
    run.build_dataset = broken
attempt("broken")
run.build_dataset = build
attempt("taken")

mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("data_parallel",))
model, ones = torch.nn.Linear(4, 4), torch.ones(1, 4)
sharding.shard(model, mesh)
def predict():
    with float32_inference("cpu"), sharding.sharded_inference(model):
        values = model(ones)
    sharding.reshard(model)
    return float(values.abs().sum())
parts = [sharding.local_part(parameter.detach()) for parameter in model.parameters()]
before = predict()
for part in parts:
    part.zero_()
said["predictions"] = before, predict()
said["parts"] = [part.numel() for part in parts]
model(ones).sum().backward()
(folder / f"said{rank}.json").write_text(json.dumps(said))
"""


def metrics(folder):
    with (folder / METRICS).open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def assert_same_run(one, other):
    rows, others = metrics(one), metrics(other)
    assert len(rows) == len(others) > 0
    for row, value in zip(rows, others, strict=True):
        for column in row.keys() - {"seconds", "rows_per_second"}:
            assert value[column] == pytest.approx(row[column], abs=1e-5), column
    summaries = [json.loads((folder / SUMMARY).read_text()) for folder in (one, other)]
    for split in ("train", "valid", "test"):
        for name, value in summaries[0][split]["mae"].items():
            assert summaries[1][split]["mae"][name] == pytest.approx(value, abs=1e-5)
    for name in (MODEL, LAST_CHECKPOINT):
        found = [tensors_of(folder / name) for folder in (one, other)]
        assert found[0].keys() == found[1].keys()
        for key, tensor in found[0].items():
            # A key's bias adds the same to all scores of a query, which the softmax cancels. The gradient is
            # zero by the formula; what is computed is rounding, of which Adam makes whole steps.
            if not key.endswith("attention.key.bias"):
                assert found[1][key] == pytest.approx(tensor, abs=1e-4), key


def tensors_of(path):
    if path.name == MODEL:
        return load_file(path)
    tensors, _ = load_checkpoint(path)
    return {**tensors["model"], **{f"average.{name}": value for name, value in tensors["average"].items()}}


@pytest.fixture(scope="module")
def config(build_config):
    return build_config(**SECTIONS)


@pytest.fixture(scope="module")
def one(config, tmp_path_factory):
    """The run of one process."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    train(config, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def four(config, build_config, write_config, tmp_path_factory):
    """The folder with the runs of four processes, as SLURM would start them."""
    folder = tmp_path_factory.mktemp("four")

    def write(case, config, strategy):
        trainer = dataclasses.replace(config.trainer, devices=4, strategy=strategy)
        write_config(dataclasses.replace(config, trainer=trainer), folder / f"{case}.yaml")

    for case in ("ddp", "broken", "taken"):
        write(case, config, "auto")
    for case in ("resumed", "stopped"):
        write(case, config, "fsdp")
    shutil.copytree(stopped_run(config, folder / "one"), folder / "resumed")
    (folder / "taken").mkdir()
    (folder / "taken" / "mine.txt").write_text("mine")
    families = build_config(**PRETRAINING)
    write("some_families", families, "ddp")
    write("unused", families, "ddp")
    write("find_unused", families, "ddp_find_unused_parameters_true")
    gin = build_config(training={"max_steps": 4, "batch_size": 12})
    spec = config_from_mapping(
        {"data": "csv", "model": {"name": "gin_virtual", "num_layers": 2, "dim": 8}}
    ).model
    write("gin", dataclasses.replace(gin, model=spec), "ddp")
    start_tasks(4, [sys.executable, "-c", PROGRAM.replace("STOP", str(STOP)), str(folder)])
    return folder


# the heads of atoms and bonds are not used
PRETRAINING = {
    "task": "pretraining",
    "model": {"name": "graphormer_pretraining", "dropout": 0.0, "attention_dropout": 0.0},
    "training": {
        "max_steps": 4,
        "batch_size": 13,
        "label_weights": {"descriptors": 1.0},
        "hidden_targets": 0.0,
    },
}


def stopped_run(config, folder):
    """Train up to `STOP` with one process and leave a checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("molslice.training.processes.StopRequests.exchange", lambda _: stopping.pop())
        stopping = [True, *[False] * (STOP - 1)]
        with pytest.raises(KeyboardInterrupt, match=f"step {STOP} of 14"):
            train(config, folder, quiet=True)
    return folder


def start_tasks(count, command):
    """Run a command in several processes, with the variables that `srun` sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
        **{"OMP_NUM_THREADS": "1", "MASTER_PORT": str(port), "SLURM_JOB_ID": "1234567"},
        **{"SLURM_NTASKS": str(count), "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"},
    }
    if "lo" in (name for _, name in socket.if_nameindex()):
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # not the name of the machine, which may be unknown
    tasks = [
        subprocess.Popen(
            command,
            env={**environment, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        ended = [(*task.communicate(timeout=300), task.returncode) for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    for _, errors, code in ended:
        assert code == 0, errors


def said(folder, case):
    return [json.loads((folder / f"said{rank}.json").read_text()).get(case) for rank in range(4)]


@pytest.mark.slow
def test_four_processes_of_slurm_train_as_one(one, four):
    assert said(four, "ddp") == [None] * 4
    assert_same_run(one, four / "ddp")
    assert json.loads((four / "ddp" / SUMMARY).read_text())["processes"] == 4


@pytest.mark.slow
def test_a_sharded_training_continues_the_run_of_one_process(one, four):
    assert said(four, "resumed") == [None] * 4
    assert_same_run(one, four / "resumed")


@pytest.mark.slow
def test_a_sharded_model_predicts_before_it_is_trained_and_after_it_has_changed(four):
    assert said(four, "parts") == [[16 / 4, 4 / 4]] * 4
    for before, after in said(four, "predictions"):
        assert before > 0
        assert after == 0


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_a_checkpoint(four):
    for message in said(four, "stopped"):
        assert f"KeyboardInterrupt: stopped at step {STOP} of 14" in message
        assert "--resume" in message
    assert load_checkpoint(four / "stopped" / LAST_CHECKPOINT)[1].step == STOP


@pytest.mark.slow
def test_one_process_continues_a_sharded_training(one, four, config, tmp_path):
    run = shutil.copytree(four / "stopped", tmp_path / "run")
    train(config, run, resume=True, quiet=True)
    assert_same_run(one, run)


@pytest.mark.slow
def test_weights_that_a_step_does_not_use(four, build_config, tmp_path):
    for message in said(four, "unused"):
        assert "does not use the weights model." in message
        assert "choose ddp_find_unused_parameters_true or fsdp" in message
    train(build_config(**PRETRAINING), tmp_path / "run", quiet=True)
    for case in ("some_families", "find_unused"):
        assert said(four, case) == [None] * 4
        assert_same_run(tmp_path / "run", four / case)


@pytest.mark.slow
def test_validation_uses_the_batch_norm_of_the_written_model(four):
    """Each process has seen other rows, and the weights of one are written."""
    assert said(four, "gin") == [None] * 4
    summary = json.loads((four / "gin" / SUMMARY).read_text())
    best = next(row for row in metrics(four / "gin") if row["step"] == summary["best_step"])
    assert best["valid_mae_gap_eV"] == pytest.approx(summary["valid"]["mae"]["gap"], rel=1e-6)


@pytest.mark.slow
def test_an_error_of_one_process_is_an_error_of_all(four):
    own, other = (
        "MolsliceError: no such file: data.csv",
        "OtherProcessError: process 1 of 4: no such file: data.csv",
    )
    assert said(four, "broken") == [other, own, other, other]
    first, *others = said(four, "taken")
    assert first.startswith("MolsliceError: ")
    assert "is not empty" in first
    assert all(text.startswith("OtherProcessError: process 0 of 4: ") for text in others)
    assert os.listdir(four / "taken") == ["mine.txt"]


def test_micro_batches_computed_one_after_the_other_have_the_loss_of_the_whole(one, build_config, tmp_path):
    training = {**SECTIONS["training"], "accumulate": 1}
    train(build_config(**{**SECTIONS, "training": training}), tmp_path / "whole", quiet=True)
    for row, other in zip(metrics(one), metrics(tmp_path / "whole"), strict=True):
        for column in row.keys() - {"seconds", "rows_per_second"}:
            assert other[column] == pytest.approx(row[column], abs=1e-5), column
