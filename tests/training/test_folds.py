"""Tests of cross-validation: a comparison tests each entry on each fold."""

import csv
import json
import statistics

import numpy as np
import pytest

from molslice.cli import main
from molslice.data import build_dataset
from molslice.training import compare, comparison_figure
from molslice.training.compare import compare_attentions, compare_runs
from molslice.types import MolsliceError

WORDS = {"good": "fine great lovely warm", "bad": "dull poor slow cold"}


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Write 48 texts of two classes with different words, and a configuration."""
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(comparison_figure, "draw_comparison", lambda comparison, suffix: b"drawn elsewhere")
    draw = np.random.default_rng(0)
    for name, words in WORDS.items():
        (tmp_path / "texts" / name).mkdir(parents=True)
        for number in range(24):
            chosen = draw.choice([*words.split(), "film", "plot"], 8)
            (tmp_path / "texts" / name / f"{number}.txt").write_text(" ".join(chosen))
    config = {
        "data": {
            "name": "text_folder",
            "root": str(tmp_path / "texts"),
            "vocabulary_size": 16,
            "max_tokens": 8,
        },
        "model": {"name": "sequence", "num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "task": "sequence",
        "attention": "softmax",
        "training": {"max_steps": 3, "batch_size": 16, "token_budget": 256},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def test_each_entry_is_tested_on_each_fold(texts, tmp_path):
    out = tmp_path / "out"
    result = compare_attentions(texts, "softmax,slice_sort", out, folds=3, quiet=True)
    assert [(run.label, run.fold, run.seed) for run in result.results] == [
        (label, fold, 0) for label in ("softmax", "slice_sort") for fold in range(3)
    ]
    assert sorted(path.name for path in (out / "runs" / "softmax").iterdir()) == ["fold0", "fold1", "fold2"]
    first, _ = result.lines()
    accuracies = [run.test["class"] for run in result.results[:3]]
    assert first.test["class"] == pytest.approx(statistics.fmean(accuracies))
    assert first.test_sd["class"] == pytest.approx(statistics.stdev(accuracies))
    assert (first.folds, first.seeds, first.runs) == (3, 1, 3)
    rows = [
        json.loads((out / "runs" / "softmax" / f"fold{k}" / "summary.json").read_text()) for k in range(3)
    ]
    assert [summary["test"]["rows"] for summary in rows] == [16, 16, 16]

    header = (out / "table.md").read_text().splitlines()[0]
    assert "folds" in header
    assert "seeds" not in header
    with (out / "table.csv").open(newline="") as file:
        assert [row["folds"] for row in csv.DictReader(file)] == ["3", "3"]
    assert json.loads((out / "comparison.json").read_text())["spread_over"] == "folds"


def test_the_folds_are_those_of_the_data(texts, tmp_path):
    compare_attentions(texts, "softmax", tmp_path / "out", folds=2, quiet=True)
    options = {"root": tmp_path / "texts", "vocabulary_size": 16, "max_tokens": 8}
    tested = [build_dataset("text_folder", {**options, "folds": 2, "fold": k}).rows("test") for k in range(2)]
    assert sorted(np.concatenate(tested).tolist()) == list(range(48))
    for fold, run in enumerate(sorted((tmp_path / "out" / "runs" / "softmax").iterdir())):
        config = (run / "config.yaml").read_text()
        assert f"fold: {fold}" in config
        assert "folds: 2" in config


def test_a_second_call_continues(texts, tmp_path, monkeypatch):
    real, asked = compare.train, []

    def train(config, run, *, resume, quiet):
        asked.append(config.data.options["fold"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(config, run, resume=resume, quiet=quiet)

    monkeypatch.setattr(compare, "train", train)
    with pytest.raises(KeyboardInterrupt):
        compare_attentions(texts, "softmax", tmp_path / "out", folds=3, quiet=True)
    compare_attentions(texts, "softmax", tmp_path / "out", folds=3, quiet=True)
    assert asked == [0, 1, 1, 2]
    with pytest.raises(MolsliceError, match="choose another folder"):
        compare_attentions(texts, "softmax", tmp_path / "out", folds=4, quiet=True)


def test_a_failed_fold_is_named(texts, tmp_path, monkeypatch):
    real = compare.train

    def train(config, run, **options):
        if config.data.options["fold"] == 1:
            raise RuntimeError("not enough memory")
        return real(config, run, **options)

    monkeypatch.setattr(compare, "train", train)
    result = compare_attentions(texts, "softmax", tmp_path / "out", folds=2, quiet=True)
    assert result.failed == {"softmax": "fold 1: not enough memory"}
    assert result.lines()[0].folds == 1


def test_finished_folds_share_a_line(texts, tmp_path):
    compare_attentions(texts, "softmax,flow", tmp_path / "out", folds=2, quiet=True)
    runs = sorted((tmp_path / "out" / "runs").glob("*/fold*"))
    result = compare_runs(runs, tmp_path / "drawn")
    assert [(line.label, line.folds) for line in result.lines()] == [("flow", 2), ("softmax", 2)]
    with pytest.raises(MolsliceError, match="are the same run folder"):
        compare_runs([runs[0], *runs], tmp_path / "twice")
    compare_attentions(texts, "softmax", tmp_path / "seeds", quiet=True)
    with pytest.raises(MolsliceError, match="only one of .* was tested on a fold"):
        compare_runs([*runs, tmp_path / "seeds" / "runs" / "softmax" / "seed0"], tmp_path / "mixed")


def test_runs_on_different_folds_are_refused(texts, tmp_path):
    for folds in (2, 3):
        compare_attentions(texts, "softmax,identity", tmp_path / f"{folds}", folds=folds, quiet=True)
    softmax, identity = (
        [tmp_path / f"3/runs/{name}/fold{k}" for k in range(3)] for name in ("softmax", "identity")
    )
    of_two = tmp_path / "2/runs/identity/fold1"
    same = "a mean over folds needs the same folds$"
    for runs, message in [
        ([softmax[0], identity[1]], f"^softmax was tested on fold 0 and identity on fold 1; {same}"),
        (
            [*softmax, *identity[1:]],
            f"^softmax was tested on folds 0, 1, 2 and identity on folds 1, 2; {same}",
        ),
        (
            [softmax[0], of_two],
            f"^data.folds is 3 in {softmax[0]} and 2 in {of_two}; only runs with the same",
        ),
    ]:
        with pytest.raises(MolsliceError, match=message):
            compare_runs(runs, tmp_path / "out")
    result = compare_runs([*softmax[1:], *identity[1:]], tmp_path / "out")
    assert [line.folds for line in result.lines()] == [2, 2]


def test_folds_that_cannot_be(texts, tmp_path, monkeypatch, build_config, write_config):
    monkeypatch.setattr(compare, "train", pytest.fail)
    molecules = write_config(build_config(), tmp_path / "molecules.yaml")
    for config, options, message in [
        (texts, {"folds": 1}, "at least 2 folds, got 1"),
        (texts, {"folds": 5, "seeds": 2}, "over seeds or over folds"),
        (molecules, {"folds": 5}, "'csv' does not support folds; those that do: .*imdb.*text_folder"),
    ]:
        with pytest.raises(MolsliceError, match=message):
            compare_attentions(config, "softmax", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_flag(texts, tmp_path, capsys):
    words = [
        "compare",
        "--config",
        texts,
        "--attention",
        "softmax",
        "--out",
        tmp_path / "out",
        "--folds",
        "2",
    ]
    assert main([*map(str, words), "--quiet"]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert "test accuracy" in header
    assert header.split("|")[-2].strip() == "folds"
    assert "±" in row
    assert main(["compare", "--runs", str(tmp_path), "--out", str(tmp_path / "x"), "--folds", "2"]) == 2
