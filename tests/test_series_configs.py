"""Tests of the ten time series configurations: data set, published sizes, a short run of one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from molslice.cli import main
from molslice.config import load_config
from molslice.config.entries import describe_data
from molslice.data.series.uea import SIZES
from molslice.model import build_model
from molslice.model.count import parameters_by_part
from molslice.training.run import train

FOLDER = Path(__file__).parents[1] / "configs" / "series"
CONFIGS = sorted(FOLDER.glob("*.yaml"))
LAYER = 4 * (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 2 * 2 * 512
TINY = [
    *[("model.dim", "16"), ("model.ffn_dim", "16"), ("model.num_heads", "2"), ("model.dropout", "0")],
    *[("training.max_epochs", "40"), ("training.token_budget", "256"), ("training.valid_every_epochs", "10")],
    *[("optimizer.lr", "5e-3"), ("optimizer.warmup_steps", "0")],
    *[("trainer.accelerator", "cpu"), ("trainer.num_threads", "1")],
]


def test_each_of_the_ten_sets_has_one():
    problems = [load_config(path).data.options["problem"] for path in CONFIGS]
    assert sorted(problems) == sorted(SIZES)


def by_radam(config):
    return config.optimizer.name == "radam"


def test_they_differ_in_the_set_and_its_epochs_alone():
    configs = [load_config(path) for path in CONFIGS]
    assert len({config.model for config in configs}) == 1
    assert len({replace(config.optimizer, name="adamw") for config in configs}) == 1
    assert [path.stem for path, config in zip(CONFIGS, configs, strict=True) if not by_radam(config)] == [
        "spoken_arabic_digits"  # the authors' commands
    ]
    epochs = {config.data.options["problem"]: config.training.max_epochs for config in configs}
    assert {problem: number for problem, number in epochs.items() if number != 100} == {"PEMS-SF": 400}
    for config in configs:
        assert config.data.options["valid_fraction"] == 0
        longest = SIZES[config.data.options["problem"]][1]
        assert config.training.batch_size * longest <= config.training.token_budget  # a batch is always full


@pytest.mark.parametrize(
    "path", [FOLDER / "japanese_vowels.yaml", FOLDER / "pems_sf.yaml"], ids=lambda p: p.stem
)
@pytest.mark.parametrize("attention", ["softmax", "flow", "slice_sort"])
def test_the_model_has_the_sizes_of_the_paper(path, attention):
    config = load_config(path, [("attention.name", attention)])
    channels, longest, classes = SIZES[config.data.options["problem"]]
    counts = parameters_by_part(build_model(config.model, config.attention, describe_data(config)))
    layer = LAYER if attention != "slice_sort" else LAYER - 2 * (512 * 512 + 512)  # no Q, no K
    assert counts["layers"] == 2 * layer + 2 * 512
    assert counts["embedding"] == channels * 512 + 512 + longest * 512
    assert counts["readout"] == 512 * longest * classes + classes


def write_archive(folder, head, last):
    """Write cases of twelve channels: noise around a slope from -1 to 1, several lengths, missing values."""
    draw = np.random.default_rng(0)
    for part, rows in (("TRAIN", 48), ("TEST", 24)):
        lines = []
        for rise in draw.uniform(0.2, 1, rows) * draw.choice([-1, 1], rows):
            slope = rise * np.linspace(-2, 2, draw.integers(5, 12))
            values = [slope + draw.normal(0, 0.1, len(slope)) for _ in range(12)]
            texts = [",".join("?" if draw.random() < 0.05 else f"{x:.3f}" for x in v) for v in values]
            lines.append(":".join([*texts, last(rise)]))
        text = f"@dimensions 12\n{head}\n@data\n" + "\n".join(lines)
        (folder / f"JapaneseVowels_{part}.ts").write_text(text)
    return folder


def tiny_run(root, out, *more):
    overrides = [("data.root", str(root)), *TINY, *more]
    return train(load_config(FOLDER / "japanese_vowels.yaml", overrides), out, quiet=True)


@pytest.mark.parametrize("valid_fraction", ["0.0", "0.25"])
def test_a_small_run_learns_and_evaluates(tmp_path, valid_fraction, capsys):
    head = "@classLabel true up down"
    root = write_archive(tmp_path, head, lambda rise: "up" if rise > 0 else "down")
    summary = tiny_run(root, tmp_path / "run", ("data.valid_fraction", valid_fraction))
    assert summary["metric"] == "accuracy"
    assert summary["valid"]["rows"] == (24 if valid_fraction == "0.0" else 12)
    assert summary["test"]["accuracy"]["class"] > 0.9
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json", "--quiet"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert target["accuracy"] == pytest.approx(summary["test"]["accuracy"]["class"])


def test_numbers_are_learned_by_the_task_that_knows_regression(tmp_path):
    root = write_archive(tmp_path, "@targetlabel true", lambda rise: f"{rise:.4f}")
    summary = tiny_run(root, tmp_path / "run", ("task", "molecule"))
    assert summary["metric"] == "mae"
    assert summary["test"]["mae"]["target"] < 0.2  # that of the median is about 0.6
