"""Training over NCCL equals training on one GPU."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from molslice.folders.run import METRICS

GPUS = torch.cuda.device_count()


@pytest.fixture(scope="module")
def train_on(build_config, write_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    sections = {
        "model": {"dropout": 0.0, "attention_dropout": 0.0},
        "attention": {"name": "singular"},
        "training": {"max_steps": 10, "valid_every_steps": 5, "batch_size": 13, "accumulate": 2},
        "trainer": {"accelerator": "cuda"},
    }
    path = write_config(build_config(**sections), folder / "config.yaml")

    def run(name, *options):
        left_out = ("LOCAL_RANK", "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")
        environment = {key: value for key, value in os.environ.items() if key not in left_out}
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        words = ["train", "--config", str(path), "--out", str(folder / name), "--quiet", *options]
        command = [sys.executable, "-m", "molslice", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        with (folder / name / METRICS).open() as file:
            return [
                {key: float(value) for key, value in row.items() if key not in ("seconds", "rows_per_second")}
                for row in csv.DictReader(file)
            ]

    return run


@pytest.fixture(scope="module")
def one(train_on):
    return train_on("one")


@pytest.mark.gpu
@pytest.mark.skipif(GPUS == 0, reason="no GPU")
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.skipif(GPUS < 2, reason="one GPU"))])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_processes_on_gpus_train_as_one(train_on, one, strategy, count):
    options = ("--trainer.strategy", strategy, "--trainer.devices", str(count))
    rows = train_on(f"{strategy}{count}", *options)
    assert len(rows) == len(one) == 2
    for row, other in zip(one, rows, strict=True):
        assert other == pytest.approx(row, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(GPUS == 0, reason="no GPU")
def test_a_sharded_training_in_bfloat16(train_on, one):
    rows = train_on("bf16", "--trainer.strategy", "fsdp", "--trainer.precision", "bf16")
    assert rows[-1]["train_loss"] == pytest.approx(one[-1]["train_loss"], rel=0.05)
