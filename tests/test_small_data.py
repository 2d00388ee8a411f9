"""The program that compares methods on small measured sets, on tiny tables."""

import csv
import gzip
import json
import stat
import sys
from dataclasses import replace

import numpy as np
import pytest

from molslice.files.cache import file_checksum
from molslice.inference.load import find_model
from molslice.tasks.metrics import roc_auc
from tests.programs import load_program
from tests.real_data import SAVED_MODEL, embedded_smiles


@pytest.fixture(scope="module")
def program():
    return load_program("small_data")


@pytest.fixture(scope="module")
def sets():
    return load_program("small_data_sets")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two of the sets with 60 molecules: one with several targets, one with its own test split."""
    folder = tmp_path_factory.mktemp("sets")
    smiles = embedded_smiles()[3::150][:60]
    sizes = np.array([len(text) for text in smiles])
    tables = {
        "moleculenet/clintox.csv.gz": (
            ["smiles", "FDA_APPROVED", "CT_TOX"],
            [
                [text, int(n > np.median(sizes)), "" if n % 3 else n % 2]
                for text, n in zip(smiles, sizes, strict=True)
            ],
        ),
        "admet/tdc_ld50_zhu.csv.gz": (
            ["smiles", "ld50[-log10(mol/kg)]", "split"],
            [
                [text, n / 10, "test" if i % 5 == 0 else "train_val"]
                for i, (text, n) in enumerate(zip(smiles, sizes, strict=True))
            ],
        ),
    }
    for name, (header, rows) in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with gzip.open(folder / name, "wt", newline="") as file:
            csv.writer(file).writerows([header, *rows, [rows[0][0], *rows[0][1:]], ["C(C", *rows[0][1:]]])
    return folder


def arguments(data, runs, *more):
    given = ["--data", data, "--runs", runs, "--sets", "clintox,tdc_ld50_zhu", "--seeds", "1", *more]
    return [str(part) for part in given]


def test_a_molecule_is_in_one_split(sets, data, tmp_path):
    measured = sets.SETS["clintox"]
    molecules = sets.read_molecules(measured, data, tmp_path)
    again = sets.read_molecules(measured, data, tmp_path)  # from the cache
    np.testing.assert_array_equal(molecules.features.matrix(), again.features.matrix())
    assert molecules.canonical == again.canonical
    assert len(molecules.smiles) == len(set(molecules.canonical)) == 60  # not the duplicate, not `C(C`
    for split in ("random", "scaffold"):
        parts = sets.divide(molecules, split, 0)
        assert sorted(np.concatenate(list(parts.values()))) == list(range(60))
        assert len(parts["test"]) == pytest.approx(6, abs=2)
    frames = [{molecules.scaffolds[row] for row in parts[name]} for name in ("train", "test")]
    assert not frames[0] & frames[1]


def test_test_rows_of_the_file_are_kept_and_a_curve_takes_fewer_training_rows(sets, data, tmp_path):
    molecules = sets.read_molecules(sets.SETS["tdc_ld50_zhu"], data, tmp_path)
    parts, few = sets.divide(molecules, "own", 1), sets.divide(molecules, "own", 1, 20)
    assert [molecules.own_split[row] for row in parts["test"]] == ["test"] * len(parts["test"])
    assert "test" not in {molecules.own_split[row] for name in ("train", "val") for row in parts[name]}
    np.testing.assert_array_equal(parts["test"], few["test"])
    assert (len(few["train"]), len(few["val"])) == (18, 2)


def test_scores_are_means_over_the_targets_that_have_one(sets):
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 2, (50, 3)).astype(float)
    truth[:, 2] = 1.0  # not defined for one class
    truth[draw.random((50, 3)) < 0.2] = np.nan
    found = draw.random((50, 3))
    expected = np.mean([roc_auc(found[:, i], truth[:, i]) for i in range(2)])
    assert sets.score("roc_auc", found, truth) == pytest.approx(expected)
    values = draw.normal(size=(50, 1))
    from scipy.stats import spearmanr

    assert sets.score("spearman", found[:, :1], values) == pytest.approx(
        spearmanr(found[:, 0], values[:, 0])[0]
    )
    assert sets.score("rmse", values + 2, values) == pytest.approx(2)
    assert sets.score("mae", values - 3, values) == pytest.approx(3)
    assert sets.score("pr_auc", found[:2, :1], np.array([[1.0], [0.0]])) in (0.5, 1.0)
    assert sets.error_of("roc_auc", 0.9) == pytest.approx(0.1)
    assert sets.error_of("rmse", 0.9) == 0.9


def test_jobs_are_run_once_and_collected(program, data, tmp_path, capsys):
    runs = tmp_path / "runs"
    for _ in range(2):
        program.main(arguments(data, runs, "--members", "boosting"))
        program.main(arguments(data, runs, "--members", "plain", "--sets", "tdc_ld50_zhu"))
    printed = capsys.readouterr().out
    assert printed.count("boosting ") == 3
    assert printed.count("fit without encoder ") == 1
    program.main(["--collect", "--runs", str(runs), "--out", str(tmp_path)])
    content = json.loads((tmp_path / "small_data.json").read_text())
    assert {(row["set"], row["split"], row["label"]) for row in content["results"]} == {
        ("clintox", "random", "boosting"),
        ("clintox", "scaffold", "boosting"),
        ("tdc_ld50_zhu", "own", "boosting"),
        ("tdc_ld50_zhu", "own", "fit without encoder"),
    }
    assert not list(runs.glob("jobs/*/scratch"))


def test_methods_with_other_rows_are_not_compared(program, data, tmp_path, sets):
    runs = tmp_path / "runs"
    program.main(arguments(data, runs, "--members", "boosting,plain", "--sets", "tdc_ld50_zhu"))
    file = runs / "jobs" / "tdc_ld50_zhu-own-0-plain" / "result.json"
    result = json.loads(file.read_text())
    for key, value in (("test_checksum", "0" * 16), ("rows", {**result["rows"], "test": 1})):
        file.write_text(json.dumps({**result, key: value}))
        with pytest.raises(SystemExit, match=f"boosting and plain have other {key} of tdc_ld50_zhu"):
            program.main(["--collect", "--runs", str(runs), "--out", str(tmp_path)])
    file.write_text(json.dumps({key: value for key, value in result.items() if key != "test_checksum"}))
    program.main(["--collect", "--runs", str(runs), "--out", str(tmp_path)])
    molecules = sets.read_molecules(sets.SETS["tdc_ld50_zhu"], data, runs / "features")
    rows = np.arange(5)
    assert program.checksum_rows(molecules, rows) == program.checksum_rows(molecules, rows[::-1])
    assert program.checksum_rows(molecules, rows) != program.checksum_rows(molecules, rows + 1)


def test_recorded_jobs_are_restored_and_not_run_again(program, data, tmp_path, capsys):
    runs, later = tmp_path / "runs", tmp_path / "later"
    chosen = ["--members", "boosting", "--sets", "tdc_ld50_zhu"]
    program.main(arguments(data, runs, *chosen))
    program.main(["--collect", "--runs", str(runs), "--out", str(tmp_path)])
    first = json.loads((tmp_path / "small_data.json").read_text())
    capsys.readouterr()
    for number in (1, 0):
        program.main(["--restore", "--runs", str(later), "--out", str(tmp_path)])
        assert capsys.readouterr().out == f"{number} jobs restored\n"
    program.main(arguments(data, later, *chosen))
    assert capsys.readouterr().out == ""
    program.main(arguments(data, later, *chosen, "--seeds", "2"))
    program.main(["--collect", "--runs", str(later), "--out", str(tmp_path)])
    again = json.loads((tmp_path / "small_data.json").read_text())
    assert again["jobs"][0] == first["jobs"][0]
    assert [row["seeds"] for row in again["results"]] == [2]


def test_chemprop_is_called_with_the_same_rows(program, sets, data, tmp_path):
    """A program in place of chemprop that checks its arguments and predicts the number of its model."""
    command = tmp_path / "chemprop"
    command.write_text(
        """#!/usr/bin/env python3
import csv, pathlib, sys
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "train" and given["--epochs"] == "50" and given["--ensemble-size"] == "5"
rows = list(csv.DictReader(open(given["--data-path"])))
assert {row["split"] for row in rows} == {"train", "val", "test"}
columns = [name for name in rows[0] if name.startswith("t") and name != "split"]
assert sys.argv[-len(columns):] == columns
for model in range(5):
    folder = pathlib.Path(given["--output-dir"]) / f"model_{model}"
    folder.mkdir(parents=True)
    with open(folder / "test_predictions.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", *columns])
        writer.writerows([row["smiles"], *[model] * len(columns)] for row in rows if row["split"] == "test")
"""
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    runs = tmp_path / "runs"
    more = ["--members", "chemprop", "--chemprop", command]
    program.main(arguments(data, runs, *more))
    found = json.loads((runs / "jobs" / "tdc_ld50_zhu-own-0-chemprop" / "result.json").read_text())
    molecules = sets.read_molecules(sets.SETS["tdc_ld50_zhu"], data, runs / "features")
    truth = molecules.values[sets.divide(molecules, "own", 0)["test"], 0]
    assert found["values"]["chemprop"] == pytest.approx(np.abs(truth).mean())
    assert found["values"]["chemprop ensemble"] == pytest.approx(np.abs(truth - 2).mean())


def test_fingerprints_of_minimol_are_computed_once_for_a_set(program, data, tmp_path):
    """A package in place of minimol whose fingerprints are the number of characters and a draw."""
    calls = tmp_path / "calls"
    package = tmp_path / "packages" / "minimol.py"
    package.parent.mkdir()
    package.write_text(
        f"""
import torch
from torch_scatter import scatter, scatter_add
from torch_sparse import SparseTensor
from types import SimpleNamespace

class Minimol:
    def __init__(self):
        self.datamodule = SimpleNamespace(featurization_n_jobs=-1)

    def __call__(self, smiles):
        assert self.datamodule.featurization_n_jobs == 1
        with open({str(calls)!r}, "a") as file:
            print(len(smiles), file=file)
        sizes = torch.tensor([len(text) for text in smiles])
        rows = torch.arange(len(smiles)).repeat_interleave(sizes)
        counted = scatter_add(torch.ones(len(rows)), rows)
        largest = scatter(rows, rows, 0, None, len(smiles), reduce="max")
        assert largest.tolist() == list(range(len(smiles)))
        return list(torch.stack([counted, torch.rand(len(smiles))], dim=1))
"""
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    runs = tmp_path / "runs"
    program.main(arguments(data, runs, "--members", "minimol", "--minimol", python, "--seeds", "2"))
    for seed in (0, 1):
        job = runs / "jobs" / f"tdc_ld50_zhu-own-{seed}-minimol" / "result.json"
        assert json.loads(job.read_text())["values"]["minimol"] < 0.05
    assert len(calls.read_text().split()) == 2  # one call for each set


def test_a_failed_job_does_not_stop_the_others(program, data, tmp_path, capsys):
    command = tmp_path / "chemprop"
    command.write_text("#!/bin/sh\nexit 3\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    more = ["--members", "chemprop,boosting", "--chemprop", command, "--sets", "tdc_ld50_zhu"]
    with pytest.raises(SystemExit, match="1 jobs failed: tdc_ld50_zhu-own-0-chemprop"):
        program.main(arguments(data, tmp_path / "runs", *more))
    assert (tmp_path / "runs" / "jobs" / "tdc_ld50_zhu-own-0-boosting" / "result.json").is_file()
    assert "exit status 3" in capsys.readouterr().err


def test_an_encoder_is_used_frozen_and_tuned(program, data, tmp_path, monkeypatch):
    for bound in ("MIN_EPOCHS", "MAX_EPOCHS"):
        monkeypatch.setattr(f"molslice.training.duration.{bound}", 1)
    runs = tmp_path / "runs"
    more = ["--members", "frozen,tuned,fit", "--sets", "tdc_ld50_zhu", "--encoder", str(SAVED_MODEL)]
    program.main(arguments(data, runs, *more))
    for member in ("frozen", "tuned", "fit"):
        found = json.loads((runs / "jobs" / f"tdc_ld50_zhu-own-0-{member}" / "result.json").read_text())
        assert 0 < found["values"][member] < 4
        assert found["encoder"]


def test_results_of_another_encoder_are_refused(program, data, tmp_path, monkeypatch):
    def fill(work):
        return {"constant": np.zeros((len(work.parts["test"]), 1))}

    members = sys.modules["small_data_members"].MEMBERS
    monkeypatch.setitem(members, "frozen", replace(members["frozen"], predict=fill))
    monkeypatch.setitem(members, "boosting", replace(members["boosting"], predict=fill))
    other = find_model("encoder-small") / "model.safetensors"
    runs = tmp_path / "runs"
    more = ["--members", "boosting,frozen", "--sets", "tdc_ld50_zhu"]
    program.main(arguments(data, runs, *more, "--encoder", str(SAVED_MODEL)))
    program.main(arguments(data, runs, *more, "--encoder", str(SAVED_MODEL)))
    results = {
        name: runs / "jobs" / f"tdc_ld50_zhu-own-0-{name}" / "result.json" for name in ("boosting", "frozen")
    }
    assert json.loads(results["boosting"].read_text())["encoder"] is None
    with pytest.raises(SystemExit, match=r"frozen/result\.json was made with another encoder; choose"):
        program.main(arguments(data, runs, *more, "--encoder", other))
    results["frozen"].unlink()
    program.main(arguments(data, runs, *more, "--encoder", other))
    found = json.loads(results["frozen"].read_text())
    assert found["encoder"] == file_checksum(other)
    mixed = runs / "jobs" / "tdc_ld50_zhu-own-1-frozen" / "result.json"
    mixed.parent.mkdir()
    mixed.write_text(json.dumps({**found, "seed": 1, "encoder": "0"}))
    with pytest.raises(SystemExit, match="were made with different encoders: 0, "):
        program.main(["--collect", "--runs", str(runs), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="no model 'oracle'"):
        program.main(arguments(data, runs, *more, "--encoder", "oracle"))


@pytest.mark.parametrize("changed", ["file", "DESCRIPTORS_VERSION", "version"])
def test_descriptions_of_other_files_or_versions_are_not_reused(sets, data, tmp_path, monkeypatch, changed):
    measured = sets.SETS["tdc_ld50_zhu"]
    before = sets.read_molecules(measured, data, tmp_path / "cache").canonical
    if changed == "file":
        with gzip.open(data / measured.file, "rt") as file:
            lines = file.readlines()
        place = tmp_path / measured.file
        place.parent.mkdir()
        with gzip.open(place, "wt") as file:
            file.writelines([lines[0], lines[2], lines[1], *lines[3:]])
        after = sets.read_molecules(measured, tmp_path, tmp_path / "cache").canonical
        assert after[:3] == [before[1], before[0], before[2]]
        return
    monkeypatch.setattr(sets, "describe_molecules", None)  # not called when the cache is used
    sets.read_molecules(measured, data, tmp_path / "cache")
    monkeypatch.setattr(sets, changed, -1 if changed == "DESCRIPTORS_VERSION" else lambda _: "0")
    with pytest.raises(TypeError):
        sets.read_molecules(measured, data, tmp_path / "cache")


def lines_of(name, seed=0, metric="mae", split="random", **errors):
    fixed = {"measured": name, "split": split, "seed": seed, "metric": metric, "train_rows": None}
    return [{**fixed, "label": label, "value": value} for label, value in errors.items()]


def test_ratios_and_ranks_leave_the_development_sets_out(program):
    lines = [
        *lines_of("esol", fit=9.0, forest=1.0, boosting=1.0),
        *lines_of("lipo", fit=0.4, forest=0.8, boosting=0.5),
        *lines_of("hiv", metric="roc_auc", fit=0.8, forest=0.9, boosting=0.7),
        *lines_of("tox21", fit=0.1),
    ]
    found = program.compare(lines, "fit", "best of forest and boosting")
    assert found["pairs"] == 2
    assert found["share_better"] == 0.5
    assert found["geometric_mean_ratio"] == pytest.approx(np.sqrt(0.8 * 2.0))
    assert found["median_ratio"] == pytest.approx(np.sqrt(0.8 * 2.0))
    assert found["interval"] is None
    ranks = program.mean_ranks(lines)
    assert ranks["pairs"] == 2
    assert ranks["ranks"] == {"fit": 1.5, "forest": 2.0, "boosting": 2.5}
    assert program.compare(lines, "fit", "chemprop ensemble") is None
    assert program.mean_ranks(lines_of("esol", fit=1.0)) == {"pairs": 0, "ranks": {}}


@pytest.mark.parametrize("split", ["random", "scaffold", "own"])
def test_methods_are_compared_on_the_same_test_rows(program, split):
    """Seeds of a random division have other test rows; seeds of another division have the same."""
    lines = [
        *lines_of("lipo", 0, split=split, fit=0.4, forest=0.5),
        *lines_of("lipo", 1, split=split, fit=0.5, forest=0.3),
        *lines_of("lipo", 2, split=split, fit=0.1),
    ]
    found = program.compare(lines, "fit", "forest")
    ratio = 0.45 / 0.4 if split == "random" else (1.0 / 3) / 0.4
    assert (found["pairs"], found["geometric_mean_ratio"]) == (1, pytest.approx(ratio))
    best = {"fit": 2.0, "forest": 1.0} if split == "random" else {"fit": 1.0, "forest": 2.0}
    assert program.mean_ranks(lines) == {"pairs": 1, "ranks": best}
    without = [*lines_of("lipo", 0, split=split, fit=0.4), *lines_of("lipo", 1, split=split, forest=0.5)]
    assert (program.compare(without, "fit", "forest") is None) == (split == "random")


def test_means_of_a_random_split_have_the_seeds_of_all_methods(program):
    lines = [
        *lines_of("lipo", 0, fit=0.4, forest=0.5),
        *lines_of("lipo", 1, forest=0.9),
        *lines_of("lipo", 0, split="scaffold", fit=0.4, forest=0.5),
        *lines_of("lipo", 1, split="scaffold", forest=0.7),
        *lines_of("hiv", 1, forest=0.3),
    ]
    rows = program.summarize([{**line, "processor_seconds": 1.0} for line in program.comparable(lines)])
    found = {(row["set"], row["split"], row["label"]): (row["mean"], row["seeds"]) for row in rows}
    assert found["lipo", "random", "forest"] == (0.5, 1)
    assert found["lipo", "scaffold", "forest"] == (pytest.approx(0.6), 2)
    assert found["hiv", "random", "forest"] == (0.3, 1)


def test_means_of_a_learning_curve_have_the_seeds_of_all_methods(program):
    """Seeds of a curve have other training rows, whatever the split."""
    seeds = [
        *lines_of("tdc_ames", 0, split="own", fit=0.4, forest=0.5),
        *lines_of("tdc_ames", 1, split="own", forest=0.7),
    ]
    lines = [{**line, "train_rows": rows, "processor_seconds": 1.0} for line in seeds for rows in (100, None)]
    found = {(row["train_rows"], row["label"]): row for row in program.summarize(program.comparable(lines))}
    assert (found[100, "forest"]["mean"], found[100, "forest"]["seeds"]) == (0.5, 1)
    assert (found[None, "forest"]["mean"], found[None, "forest"]["seeds"]) == (pytest.approx(0.6), 2)


def test_confidence_intervals_resample_whole_sets(program):
    draw = np.random.default_rng(1)
    one_split = [[value] for value in draw.normal(-0.1, 0.2, 50)]
    low, high = program.bootstrap_interval(one_split)
    error = np.std(one_split, ddof=1) / np.sqrt(50)
    assert np.log([low, high]) == pytest.approx(
        np.mean(one_split) + error * np.array([-1.96, 1.96]), abs=0.01
    )
    # a second division with the same errors says nothing new
    assert program.bootstrap_interval([2 * one for one in one_split]) == pytest.approx([low, high])
    assert program.bootstrap_interval(one_split[:4]) is None


def test_unknown_names_and_missing_programs_are_named(program, data, tmp_path, capsys):
    for more, reason in (
        (["--members", "oracle"], "unknown name 'oracle' in --members"),
        (["--members", "chemprop"], "the member 'chemprop' needs --chemprop"),
        (["--members", "minimol"], "the member 'minimol' needs --minimol"),
    ):
        with pytest.raises(SystemExit):
            program.main(arguments(data, tmp_path, *more))
        assert reason in capsys.readouterr().err
