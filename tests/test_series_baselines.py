"""The classical methods on time series: accuracy on an easy problem, padding, a missing package."""

import json
import sys

import numpy as np
import pytest
import torch

from tests.programs import load_program


@pytest.fixture(scope="module")
def program():
    return load_program("series_baselines")


@pytest.fixture
def waves(tmp_path):
    """Write a problem of two channels and unequal lengths: slow low waves or fast high waves with noise."""
    generator = np.random.default_rng(0)
    for part, count in (("TRAIN", 40), ("TEST", 20)):
        lines = ["@problemName Waves", "@classLabel true slow fast", "@data"]
        for case in range(count):
            longest = 24 if part == "TRAIN" else 27
            times = np.arange(generator.integers(16, longest + 1))
            wave = np.sin((0.3, 1.5)[case % 2] * times + generator.uniform(0, 6)) + (-2, 2)[case % 2]
            channels = (wave, wave[::-1] + 0.05 * generator.normal(size=len(times)))
            cells = (",".join(f"{value:.4f}" for value in channel) for channel in channels)
            lines.append(":".join((*cells, ("slow", "fast")[case % 2])))
        (tmp_path / f"Waves_{part}.ts").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("methods", ["boosting,lstm,tcn", "dtw,rocket"])
def test_each_method_learns_an_easy_problem(methods, waves, program, capsys):
    if "dtw" in methods:
        pytest.importorskip("aeon")
    words = [
        "--data",
        str(waves),
        "--problems",
        "Waves",
        "--methods",
        methods,
        "--seeds",
        "2",
        "--epochs",
        "12",
    ]
    assert program.main([*words, "--out", str(waves)]) == 0
    entries = json.loads((waves / "series_baselines.json").read_text())["entries"]
    assert [entry["method"] for entry in entries] == methods.split(",")
    for entry in entries:
        assert entry["test"]["mean"] >= 0.9, entry
        assert entry["seeds"] == (1 if entry["method"] in program.DETERMINISTIC else 2)
        assert entry["cases"] == {"train": 40, "test": 20}
    assert len(capsys.readouterr().out.splitlines()) == len(entries)


def test_cases_are_those_of_the_files(waves, program):
    train, test = program.load_parts(str(waves), "Waves")
    assert train.values.shape == (40, 27, 2)
    assert test.labels.tolist() == [0, 1] * 10
    lengths = [series.shape[1] for series in train.series()]
    assert min(lengths) < 24 == max(lengths)
    assert np.allclose(np.concatenate(train.series(), 1).mean(1), 0, atol=1e-4)


@pytest.mark.parametrize("name", ["Lstm", "Tcn"])
def test_networks_ignore_padding_and_depend_on_every_step(name, program):
    torch.manual_seed(0)
    network = program.Lstm(2, 3) if name == "Lstm" else program.Tcn(2, 3, steps=30)
    network.eval()
    values, mask = torch.randn(1, 30, 2), torch.ones(1, 30, dtype=torch.bool)
    scores = network(values, mask)
    filled = torch.cat([values, torch.full((1, 5, 2), 9.0)], 1)
    padded = network(filled, torch.arange(35)[None] < 30)
    assert torch.allclose(scores, padded, atol=1e-6)
    leaf = values.clone().requires_grad_()
    network(leaf, mask).sum().backward()
    assert (leaf.grad.abs().sum(2) > 0).all()


def test_a_method_without_its_package_says_what_to_install(waves, program, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "aeon"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aeon", None)
    words = ["--data", str(waves), "--problems", "Waves", "--methods", "rocket", "--out", str(waves)]
    assert program.main(words) == 1
    assert (
        "RocketClassifier needs the package aeon: pip install 'molslice[series]'" in capsys.readouterr().err
    )
    assert not (waves / "series_baselines.json").exists()


def test_bad_requests(waves, program, capsys):
    words = ["--data", str(waves), "--problems", "Waves"]
    with pytest.raises(SystemExit) as stop:
        program.main([*words, "--methods", "dtw,xgb"])
    assert stop.value.code == 2
    assert "unknown methods: xgb; choices: dtw, boosting, rocket, lstm, tcn" in capsys.readouterr().err
    for part in ("TRAIN", "TEST"):
        (waves / f"Numbers_{part}.ts").write_text("@targetLabel true\n@data\n1,2,3:0.5\n2,3,4:0.7\n")
    assert program.main(["--data", str(waves), "--problems", "Numbers"]) == 1
    assert "Numbers has numbers to predict" in capsys.readouterr().err
