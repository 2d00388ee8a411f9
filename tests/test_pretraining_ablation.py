"""The programs that compare labels of pretraining and sizes of encoders, on tiny data."""

import gzip
import json
import math

import numpy as np
import pytest
import yaml

from molslice.chem.featurize import molecule_arrays
from molslice.config import load_config
from molslice.training.run import train
from tests.data.molecules.corpora import make_corpus
from tests.programs import load_program
from tests.real_data import REPOSITORY, embedded_smiles

RESULTS = REPOSITORY / "benchmarks" / "results"


@pytest.fixture(scope="module")
def program():
    return load_program("pretraining_ablation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, a configuration of a small encoder, and two measured sets of 60 molecules."""
    folder = tmp_path_factory.mktemp("ablation")
    make_corpus(folder / "corpus", rows=400)
    smiles = embedded_smiles()[5::200][:60]
    rings = [int(molecule_arrays(text).atoms[:, 8].sum()) for text in smiles]
    for name, column, values in (
        ("freesolv", "expt", np.array(rings) * 0.5),
        ("bace", "Class", (np.array(rings) > np.median(rings)).astype(int)),
    ):
        rows = "".join(f"{text},{value}\n" for text, value in zip(smiles, values, strict=True))
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(f"smiles,{column}\n{rows}".encode()))
    mapping = {
        "data": {"name": "corpus", "path": "none", "valid_fraction": 0.1, "test_fraction": 0.1},
        "model": {
            "name": "graphormer_pretraining",
            "num_layers": 1,
            "dim": 16,
            "ffn_dim": 16,
            "num_heads": 2,
        },
        "task": "pretraining",
        "training": {"max_epochs": 1, "batch_size": 32, "token_budget": 2048},
    }
    (folder / "encoder.yaml").write_text(yaml.safe_dump(mapping))
    return folder


def arguments(folder, out, *more):
    given = {
        "--corpus": folder / "corpus",
        "--data": folder,
        "--config": folder / "encoder.yaml",
        "--entries": "none,descriptors,all",
        "--sets": "freesolv,bace",
        "--steps": 3,
        "--epochs": 1,
        "--seeds": 1,
        "--runs": out / "runs",
        "--out": out,
    }
    return [str(word) for pair in given.items() for word in pair] + [str(word) for word in more]


def test_each_entry_is_measured_on_each_set_and_kept(program, folder, tmp_path, monkeypatch):
    program.main(arguments(folder, tmp_path))
    found = json.loads((tmp_path / "pretraining_ablation.json").read_text())
    assert found["steps"] == 3
    keys = {(row["labels"], row["set"], row["how"]) for row in found["results"]}
    assert len(found["results"]) == len(keys) == 3 * 2 * 2
    assert all(math.isfinite(row["mean"]) for row in found["results"])
    assert {row["metric"] for row in found["results"] if row["set"] == "bace"} == {"roc_auc"}
    assert [row["error_over_none"] for row in found["ratios"] if row["labels"] == "none"] == [1.0, 1.0]
    weights = (tmp_path / "runs" / "descriptors" / "seed0" / "encoder" / "config.yaml").read_text()
    assert yaml.safe_load(weights)["training"]["label_weights"] == {"descriptors": 1.0}
    tuned = (tmp_path / "runs" / "all" / "seed0" / "bace" / "config.yaml").read_text()
    assert yaml.safe_load(tuned)["start"]["model"] == str(tmp_path / "runs" / "all" / "seed0" / "encoder")
    scratch = (tmp_path / "runs" / "none" / "seed0" / "bace" / "config.yaml").read_text()
    assert yaml.safe_load(scratch)["start"] is None
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(arguments(folder, tmp_path))
    again = json.loads((tmp_path / "pretraining_ablation.json").read_text())
    assert again["results"] == found["results"]
    with pytest.raises(SystemExit, match="was made with other settings"):
        program.main(arguments(folder, tmp_path, "--steps", 4))
    elsewhere = ("--runs", tmp_path / "elsewhere", "--restore")
    program.main(arguments(folder, tmp_path, *elsewhere))
    restored = json.loads((tmp_path / "pretraining_ablation.json").read_text())
    assert restored["jobs"] == found["jobs"]
    with pytest.raises(SystemExit, match="was made with other settings: steps differs"):
        program.main(arguments(folder, tmp_path, *elsewhere, "--steps", 4))


def test_attentions_are_compared_with_their_own_random_weights(program, folder, tmp_path):
    options = ("--entries", "none,all", "--sets", "freesolv", "--attentions", "softmax,slice_sort")
    program.main(arguments(folder, tmp_path, *options))
    found = json.loads((tmp_path / "pretraining_attentions.json").read_text())
    keys = {(row["attention"], row["labels"], row["how"]) for row in found["results"]}
    assert len(found["results"]) == len(keys) == 2 * 2 * 2
    for attention in ("softmax", "slice_sort"):
        run = tmp_path / "runs" / attention / "all" / "seed0"
        for name in ("encoder", "freesolv"):
            assert yaml.safe_load((run / name / "config.yaml").read_text())["attention"]["name"] == attention
        values = {
            row["labels"]: row["mean"]
            for row in found["results"]
            if (row["attention"], row["how"]) == (attention, "frozen")
        }
        ratio = next(
            row["error_over_none"]
            for row in found["ratios"]
            if (row["attention"], row["how"], row["labels"]) == (attention, "frozen", "all")
        )
        assert ratio == pytest.approx(values["all"] / values["none"])
    with pytest.raises(SystemExit):
        program.main(arguments(folder, tmp_path, "--attentions", "softmix"))


def test_an_interrupted_run_continues(program, folder, tmp_path, monkeypatch):
    original, calls = program.probe, []

    def cut(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(program, "probe", cut)
    small = ("--entries", "descriptors", "--steps", 2)
    with pytest.raises(KeyboardInterrupt):
        program.main(arguments(folder, tmp_path, *small))
    program.main(arguments(folder, tmp_path, *small))
    assert len(calls) == 3  # the first result was kept
    found = json.loads((tmp_path / "pretraining_ablation.json").read_text())
    assert len(found["results"]) == 4


def test_results_of_other_sets_do_not_count_as_those_that_are_wanted(program, folder, tmp_path):
    small = ("--entries", "descriptors", "--steps", 2)
    for name in ("freesolv", "bace"):
        program.main(arguments(folder, tmp_path, *small, "--sets", name))
        found = json.loads((tmp_path / "pretraining_ablation.json").read_text())
        assert {row["set"] for row in found["results"]} == {name}
        assert len(found["results"]) == 2
    kept = json.loads((tmp_path / "runs" / "descriptors" / "seed0" / "results.json").read_text())
    assert len(kept["results"]) == 4


def test_ratios_are_geometric_means_of_errors(program):
    rows = [
        {
            "attention": "softmax",
            "labels": labels,
            "seed": seed,
            "set": name,
            "how": "frozen",
            "metric": metric,
            "value": value,
        }
        for labels, seed, name, metric, value in (
            ("none", 0, "esol", "mae", 1.0),
            ("none", 0, "bace", "roc_auc", 0.8),
            ("all", 0, "esol", "mae", 0.5),
            ("all", 0, "bace", "roc_auc", 0.9),
            ("none", 1, "esol", "mae", 1.0),
            ("none", 1, "bace", "roc_auc", 0.6),
            ("all", 1, "esol", "mae", 0.125),
            ("all", 1, "bace", "roc_auc", 0.8),
            ("all", 2, "esol", "mae", 9.0),  # without random weights of this seed
        )
    ]
    one = {row["labels"]: row for row in program.compare([row for row in rows if row["seed"] == 0])}
    assert one["all"]["error_over_none"] == pytest.approx(0.5)
    assert (one["all"]["pairs"], one["all"]["sd"]) == (2, None)
    both = {row["labels"]: row for row in program.compare(rows)}
    assert both["all"]["error_over_none"] == pytest.approx((0.5 * 0.5 * 0.125 * 0.5) ** 0.25)
    assert both["all"]["sd"] == pytest.approx(np.std([0.5, 0.25], ddof=1))
    assert both["all"]["pairs"] == 4


def test_unknown_names_are_refused(program, folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        program.main(arguments(folder, tmp_path, "--entries", "descriptor"))
    assert "unknown name 'descriptor'; choices: none, descriptors" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pretraining_ablation", "pretraining_attentions"])
def test_the_recorded_results_can_be_extended(program, name, tmp_path, monkeypatch):
    recorded = json.loads((RESULTS / f"{name}.json").read_text())
    (tmp_path / f"{name}.json").write_text(json.dumps(recorded))
    monkeypatch.setattr(program, "pretrain", None)  # all results are there
    given = {
        "--corpus": tmp_path / "corpus",
        "--data": tmp_path,
        "--entries": ",".join(dict.fromkeys(job["labels"] for job in recorded["jobs"])),
        "--steps": recorded["steps"],
        "--epochs": recorded["epochs"],
        "--seeds": 1 + max(job["seed"] for job in recorded["jobs"]),
        "--runs": tmp_path / "runs",
        "--out": tmp_path,
    }
    if recorded["config"]["attention"]:
        given["--attentions"] = ",".join(recorded["config"]["attention"])
    program.main([str(word) for pair in given.items() for word in pair] + ["--restore"])
    again = json.loads((tmp_path / f"{name}.json").read_text())
    assert sorted(map(json.dumps, again["jobs"])) == sorted(map(json.dumps, recorded["jobs"]))


def test_sizes_are_compared_with_the_first_and_with_random_weights(folder, tmp_path, capsys):
    program = load_program("pretraining_sizes")
    settings = [
        ("data.path", str(folder / "corpus")),
        ("training.max_epochs", "null"),
        ("training.max_steps", "2"),
    ]
    for dim in ("16", "32"):
        config = load_config(folder / "encoder.yaml", [*settings, ("model.dim", dim)])
        train(config, tmp_path / f"width{dim}", quiet=True)
    words = [tmp_path / "width16", tmp_path / "width32", "--corpus", folder / "corpus", "--data", folder]
    words += ["--sets", "freesolv,bace", "--epochs", 1, "--seeds", 1]
    words += ["--runs", tmp_path / "runs", "--out", tmp_path]
    program.main([str(word) for word in words])
    found = json.loads((tmp_path / "pretraining_sizes.json").read_text())
    small, wide = found["encoders"]
    assert (small["model"]["dim"], wide["model"]["dim"]) == (16, 32)
    assert small["parameters"] < wide["parameters"]
    assert small["steps"] == wide["steps"] == 2
    assert all(one["descriptors_mae_std"] > 0 and one["gap_mae"] > 0 for one in found["encoders"])
    names = [one["encoder"] for one in found["encoders"]]
    keys = {(row["labels"], row["how"], row["set"]) for row in found["results"]}
    assert keys == {
        (f"{name}{end}", how, measured)
        for name in names
        for end, uses in (("", ("frozen", "fine-tuned")), (", random weights", ("frozen",)))
        for how in uses
        for measured in ("freesolv", "bace")
    }
    values = {(row["labels"], row["set"]): row["value"] for row in found["jobs"] if row["how"] == "frozen"}
    (ratio,) = (
        row["ratio"] for row in found["ratios"] if (row["labels"], row["how"]) == (names[1], "frozen")
    )
    on_values, on_classes = (
        error(values[names[1], name]) / error(values[names[0], name])
        for name, error in (("freesolv", float), ("bace", lambda area: max(1 - area, 1e-9)))
    )
    assert ratio == pytest.approx((on_values * on_classes) ** 0.5)
    capsys.readouterr()
    program.main([str(word) for word in words])
    assert "seed" not in capsys.readouterr().out  # all results were kept
    other = tmp_path / "other" / "width16"
    train(load_config(folder / "encoder.yaml", [*settings, ("seed", "1")]), other, quiet=True)
    with pytest.raises(SystemExit, match=r"width16/results\.json was made with another encoder"):
        program.main([str(word) for word in [other, *words[1:]]])
