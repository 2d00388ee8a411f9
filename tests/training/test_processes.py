"""Training with two CPU processes equals training with one."""

import csv
import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from molslice.run_folder import METRICS, MODEL
from molslice.training.run import train

SECTIONS = {
    "data": {"target_columns": ["gap", "half"]},  # gaps in the targets: shares of unequal weight
    "attention": {"name": "singular"},  # with a penalty
    "model": {"dropout": 0.0, "attention_dropout": 0.0},
    "training": {"max_steps": 10, "valid_every_steps": 5},
}


def metrics(folder):
    with (folder / METRICS).open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def one(build_config, tmp_path_factory):
    """The run of one process."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    train(build_config(**SECTIONS), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def two(build_config, write_config, tmp_path_factory):
    """The run of two processes: its folder and what the command printed."""
    folder = tmp_path_factory.mktemp("runs")
    path = write_config(build_config(**SECTIONS), folder / "two.yaml")
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "RANK")}
    words = ["train", "--config", str(path), "--out", str(folder / "two"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "molslice", *words, "--trainer.devices", "2", "--trainer.strategy", "ddp"],
        capture_output=True,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
        timeout=400,
        check=False,
    )
    return folder / "two", done


def test_of_two_processes_one_reports(two):
    _, done = two
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["processes"] == 2
    assert done.stderr.count("the run is in") == 1


def test_two_processes_have_the_loss_of_one(one, two):
    folder, _ = two
    rows, others = metrics(one), metrics(folder)
    assert len(rows) == len(others) == 2
    for row, other in zip(rows, others, strict=True):
        for column in row.keys() - {"seconds", "rows_per_second"}:
            assert other[column] == pytest.approx(row[column], abs=1e-5), column
    weights, others = load_file(one / MODEL), load_file(folder / MODEL)
    assert others.keys() == weights.keys()
    for name, tensor in weights.items():
        # A key's bias adds the same to all scores of a query, which the softmax cancels. The gradient is zero
        # by the formula; what is computed is rounding, of which Adam makes whole steps.
        if name.endswith("attention.key.bias"):
            continue
        assert others[name] == pytest.approx(tensor, abs=1e-4), name


def test_micro_batches_computed_one_after_the_other_have_the_loss_of_the_whole(one, build_config, tmp_path):
    training = {**SECTIONS["training"], "accumulate": 3}
    train(build_config(**{**SECTIONS, "training": training}), tmp_path / "three", quiet=True)
    for row, other in zip(metrics(one), metrics(tmp_path / "three"), strict=True):
        for column in row.keys() - {"seconds", "rows_per_second"}:
            assert other[column] == pytest.approx(row[column], abs=1e-5), column
