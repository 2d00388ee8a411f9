"""Several models side by side."""

import csv
import json

import numpy as np
import pytest

from molslice.cli import main
from molslice.data import build_dataset
from molslice.folders.fitted import HELD_OUT, ROWS
from molslice.inference.load import load_model
from molslice.report.comparison import Difference
from molslice.report.measure import measure, read_rows
from molslice.uncertainty.rounding import rounded_error
from tests.inference.models import CLASSES, checkpoint_folder, embedded_smiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fits `a` and `b` of one target, `c` of another one, and `d` of both."""
    folder = tmp_path_factory.mktemp("fits")
    with (folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["smiles", "size", "ring"],
                *([text, len(text) % 9, "c1" in text] for text in embedded_smiles(80)),
            ]
        )
    for name, words in (
        ("a", ["--target", "size", "--unit", "nm"]),
        ("b", ["--target", "size", "--unit", "nm", "--members", "3"]),
        ("c", ["--target", "ring"]),
        ("d", ["--target", "size", "--unit", "nm", "--target", "ring", "--unit", ""]),
    ):
        words = [*words, "--out", str(folder / name), "--no-encoder", "--quality", "fast", "--quiet"]
        assert main(["fit", str(folder / "mine.csv"), *words]) == 0
    return folder


@pytest.fixture
def compare(folder, tmp_path, capsys):
    """Compare models and return the JSON and the page."""

    def call(*names):
        capsys.readouterr()
        models = [str(folder / name) if (folder / name).exists() else str(name) for name in names]
        assert main(["report", *models, "--out", str(tmp_path / "page.html"), "--json", "--quiet"]) == 0
        return json.loads(capsys.readouterr().out), (tmp_path / "page.html").read_text()

    return call


def test_the_difference_is_paired_on_the_molecules_that_both_held_out(compare, folder):
    result, page = compare("a", "b")
    (difference,) = result["differences"]
    pair = [read_rows(load_model(folder / name), folder / name / HELD_OUT) for name in "ab"]
    assert pair[0].smiles == pair[1].smiles
    errors = [np.abs(rows.truth[:, 0] - rows.predicted[:, 0]) for rows in pair]
    assert (difference["model"], difference["reference"], difference["unit"]) == ("b", "a", "nm")
    assert difference["molecules"] == len(errors[0])
    assert difference["value"] == pytest.approx(errors[1].mean())
    assert difference["reference_value"] == pytest.approx(errors[0].mean())
    recorded = [one["cross_validated"] for one in result["errors"]]
    assert recorded == [difference["reference_cross_validated"], difference["cross_validated"]]
    changes = errors[1] - errors[0]
    assert difference["standard_error"] == pytest.approx(changes.std(ddof=1) / np.sqrt(len(changes)))
    assert all(line in page for line in result["verdict"])
    assert rounded_error(changes.mean(), difference["standard_error"], signed=True) in page


def test_rows_of_one_molecule_count_as_one_in_a_difference(compare, tmp_path):
    rows = [(text, kelvin) for text in embedded_smiles(60) for kelvin in (280, 300, 320)]
    with (tmp_path / "warm.csv").open("w", newline="") as file:
        table = [(text, kelvin, len(text) % 9 + kelvin / 100) for text, kelvin in rows]
        csv.writer(file).writerows([("smiles", "kelvin", "size"), *table])
    for name, more in (("one", ["--members", "5"]), ("two", ["--members", "3", "--no-refit"])):
        words = ["--target", "size", "--condition", "kelvin", *more, "--no-encoder"]
        words += ["--quality", "fast", "--quiet", "--out", str(tmp_path / name)]
        assert main(["fit", str(tmp_path / "warm.csv"), *words]) == 0
    result, _ = compare(tmp_path / "one", tmp_path / "two")
    (difference,) = result["differences"]
    models = [load_model(tmp_path / name) for name in ("one", "two")]
    pair = [read_rows(models[0], tmp_path / "one" / HELD_OUT), read_rows(models[1], tmp_path / "two" / ROWS)]
    tests = [np.flatnonzero(kept.is_test) for kept in pair]
    names, places = np.unique(np.array(pair[0].smiles)[tests[0]], return_inverse=True)
    assert [pair[1].smiles[row] for row in tests[1]] == [pair[0].smiles[row] for row in tests[0]]
    errors = [np.abs(kept.truth - kept.predicted)[rows, 0] for kept, rows in zip(pair, tests, strict=True)]
    changes = np.bincount(places, errors[1] - errors[0]) / np.bincount(places)
    assert (difference["rows"], difference["molecules"]) == (3 * len(changes), len(changes))
    assert difference["standard_error"] == pytest.approx(changes.std(ddof=1) / np.sqrt(len(changes)))
    assert f"rows of {len(changes)} molecules that both held out" in result["verdict"][0]
    for model, judged in zip(models, (60, len(names)), strict=True):
        dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
        dataset.target_names = model.target_names
        measured = measure(model, dataset, 1_000)
        assert len(np.unique(measured.judged.molecules)) == judged
        (entry, *_) = measured.uncertainty["targets"][0]["levels"]
        assert entry["standard_error"] == pytest.approx((0.5 * 0.5 / judged) ** 0.5)
        if (kept := measured.held_out) is not None:
            assert len(np.unique(kept.molecules)) == len(names)


def test_errors_and_settings_stand_side_by_side(compare, folder):
    result, page = compare("a", "b", "c", "d")
    errors = [(one["target"], one["model"]) for one in result["errors"]]
    assert errors == [("size", "a"), ("size", "b"), ("ring", "c"), ("size", "d"), ("ring", "d")]
    record = json.loads((folder / "a" / "fit.json").read_text())["results"][0]
    assert result["errors"][0]["test_error"] == record["standard_errors"]["test"]["molslice fit"]
    assert result["settings"]["members"] == {"a": "5", "b": "3", "c": "5", "d": "5"}
    assert "quality" not in result["settings"]
    assert [one["seconds"] > 0 for one in result["models"]] == [True] * 4
    # a target that the first model lacks is compared with the next one
    assert [(one["model"], one["reference"]) for one in result["differences"]] == [("b", "a"), ("d", "c")]
    assert "size: d and a cannot be compared, because they held out 1 of the same" in " ".join(
        result["verdict"]
    )
    assert page.count("<caption>size</caption>") == 1


def test_models_with_nothing_in_common_are_said_to_have_nothing(compare):
    result, page = compare("a", "c")
    assert result["differences"] == []
    assert result["verdict"] == ["a and c have no target in common."]
    result, _ = compare("a", "b", "c")
    assert result["verdict"][1:] == ["c has no target in common with the others."]
    assert "No two models held out the same molecules." in page


def test_other_units_and_kinds_have_no_difference(compare, folder):
    words = ["--target", "size", "--no-encoder", "--quality", "fast", "--quiet"]
    for name, more in (
        ("meters", ["--unit", "m"]),
        ("classes", ["--kind", "multiclass", "--duplicates", "keep"]),
    ):
        if not (folder / name).exists():
            assert main(["fit", str(folder / "mine.csv"), *words, *more, "--out", str(folder / name)]) == 0
    result, _ = compare("a", "meters", "classes")
    assert result["verdict"] == [
        "size: meters and a cannot be compared, because their units differ: m and nm.",
        "size: classes and a cannot be compared, because one learns another kind of target, or other "
        "classes.",
    ]


def test_the_same_folder_twice_differs_by_nothing(compare):
    result, _ = compare("a", "a")
    assert [one["model"] for one in result["models"]] == ["a (1)", "a (2)"]
    assert (result["settings"], result["differences"][0]["standard_error"]) == ({}, 0.0)
    assert "no clear difference" in result["verdict"][0]


def test_runs_are_measured_on_their_test_rows(compare, tmp_path):
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["smiles", "size"], *([text, len(text)] for text in embedded_smiles(60))])
    settings = {
        "data": {"name": "csv", "path": str(tmp_path / "runs.csv"), "target_columns": ["size"]},
        "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "training": {"max_steps": 2, "valid_every_steps": 2, "batch_size": 16},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    for name, dim in (("one", 8), ("two", 16)):
        words = ["--out", str(tmp_path / name), "--model.dim", str(dim), "--quiet"]
        assert main(["train", "--config", str(tmp_path / "config.yaml"), *words]) == 0
    result, _ = compare(tmp_path / "one", tmp_path / "two")
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    (difference,) = result["differences"]
    assert difference["value"] == pytest.approx(summary["test"]["mae"]["size"], rel=1e-4)
    assert difference["molecules"] == summary["test"]["of"]
    assert result["settings"] == {"model.dim": {"one": "8", "two": "16"}}
    assert result["errors"][0]["test_error"] > 0


def test_a_model_without_data_has_the_errors_of_its_training(compare, folder, tmp_path, capsys):
    checkpoint_folder(tmp_path / "model", CLASSES)
    result, _ = compare("a", tmp_path / "model")
    assert result["errors"][1]["test"] is None
    assert (
        main(["report", str(folder / "a"), str(tmp_path / "model"), "--out", str(tmp_path / "b.html")]) == 0
    )
    assert "model: only the errors recorded in its training are shown: " in capsys.readouterr().err


def test_a_fit_that_ships_without_its_rows_has_the_errors_of_its_record(compare):
    result, _ = compare("solubility", "b")
    assert result["errors"][0]["cross_validated"] == pytest.approx(0.3631, abs=1e-4)
    assert result["differences"] == []
    assert result["verdict"] == ["solubility and b have no target in common."]


def test_a_clear_difference_names_the_better_model():
    labels = "logS", "new", "old", "nm"
    assert str(Difference(*labels, "mae", 30, 30, 0.5, 0.7, 0.05)) == (
        "logS: new is better than old by MAE 0.200 ± 0.050 nm on the 30 molecules that both held out. There "
        "are few molecules, so these numbers are rough."
    )
    assert str(Difference(*labels, "mae", 50, 50, 0.5, 0.7, 0.05, 0.6, 0.8)).endswith("both held out.")
    assert str(Difference(*labels, "roc_auc", 30, 30, 0.5, 0.7, 0.05)).startswith(
        "logS: old is better than new"
    )
    assert "no clear difference between" in str(Difference(*labels, "mae", 30, 30, 0.5, 0.55, 0.05))


@pytest.mark.parametrize(
    ("metric", "values", "against", "ahead"),
    [
        ("mae", (0.5, 0.7), (0.41, 0.36), ["new", "old", "0.3600 against 0.4100"]),
        ("mae", (0.7, 0.5), (0.36, 0.41), ["old", "new", "0.3600 against 0.4100"]),
        ("roc_auc", (0.7, 0.5), (0.6, 0.8), ["new", "old", "0.8000 against 0.6000"]),
    ],
)
def test_no_model_is_called_better_if_cross_validation_has_the_other_order(metric, values, against, ahead):
    said = str(Difference("logS", "new", "old", "", metric, 24, 24, *values, 0.05, *against))
    better, other, numbers = ahead
    assert said.startswith(f"logS: {better} is ahead of {other} by ")
    assert f", but {other} is ahead in cross-validation ({numbers}). There are few molecules, so" in said
    assert "better" not in said


@pytest.mark.parametrize("words", [["--threshold", "0.3"], ["--root", "x"], ["--data.path", "x.csv"]])
def test_options_of_one_model_are_refused(folder, words, capsys):
    assert main(["report", str(folder / "a"), str(folder / "b"), *words]) == 2
    assert f"{words[0]}: not with several models" in capsys.readouterr().err
