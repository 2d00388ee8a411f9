"""The programs of the guide on leaderboards, on made archives of Polaris and OGB."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, roc_auc_score

from molslice import load_model
from molslice.cli import main
from molslice.data.molecules import leaderboard
from molslice.errors import MolsliceError
from tests.data.molecules.builders import gap_folder
from tests.inference.models import embedded_smiles
from tests.programs import load_program
from tests.real_data import GAP_XTB, REPOSITORY

polaris = load_program("polaris_benchmark", "examples/leaderboards")
ogb = load_program("ogb_submission", "examples/leaderboards")


@pytest.mark.parametrize(
    ("name", "words"), [("polaris_benchmark", []), ("ogb_submission", []), ("ogb_submission", ["files", "a"])]
)
def test_other_words_show_the_usage(name, words):
    file = REPOSITORY / "examples" / "leaderboards" / f"{name}.py"
    done = subprocess.run([sys.executable, str(file), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == {"polaris_benchmark": polaris, "ogb_submission": ogb}[name].__doc__.strip()


def embedded_table(rows):
    return pd.read_csv(GAP_XTB / "raw" / "data.csv.gz", nrows=rows)[["smiles", "homolumogap"]]


def write_archive(folder, table, targets, test, **changes):
    """Write what Polaris 0.13 writes, with paths that begin with the folder of another machine."""
    folder.mkdir()
    table.to_parquet(folder / "table.parquet")
    (folder / "made.json").write_text(json.dumps({"name": "made", "table": "elsewhere/table.parquet"}))
    about = {
        "dataset": "elsewhere/made.json",
        "input_cols": ["smiles"],
        "target_cols": [*targets],
        "target_types": targets,
        "split": [list(range(60)), test],
        "metrics": [{"label": "mean_absolute_error", "config": None}],
        **changes,
    }
    (folder / "benchmark.json").write_text(json.dumps(about))
    return str(folder / "benchmark.json")


def test_a_benchmark_of_values_is_fitted_on_its_training_rows_and_scored(tmp_path, capsys):
    table = embedded_table(80)
    first = write_archive(
        tmp_path / "first", table, {"homolumogap": "regression"}, {"near": [60, 62, 64], "far": [79, 78]}
    )
    hidden = table.copy()
    hidden.loc[60:, "homolumogap"] = np.nan  # test rows as a leaderboard hides them
    second = write_archive(
        tmp_path / "second", hidden, {"homolumogap": "regression"}, [60, 62, 64], metrics=["r2"]
    )
    for benchmark in (first, second):
        polaris.main(benchmark, str(tmp_path / "out" / benchmark.split("/")[-2]), "fast")
    answers = json.loads((tmp_path / "out/first/predictions.json").read_text())
    model = load_model(tmp_path / "out/first/model")
    expected = model.predict(table.loc[[79, 78], "smiles"])
    np.testing.assert_allclose(answers["y_pred"]["far"]["homolumogap"], expected, rtol=1e-5)
    scores = pd.read_csv(tmp_path / "out/first/scores.csv")
    assert list(scores["test set"]) == ["near", "far"]
    error = mean_absolute_error(table.loc[[79, 78], "homolumogap"], expected)
    assert scores["score"][1] == pytest.approx(error, rel=1e-5)
    assert f"far homolumogap mean_absolute_error {scores['score'][1]}" in capsys.readouterr().out
    unseen = json.loads((tmp_path / "out/second/predictions.json").read_text())
    assert unseen == {"y_pred": {"test": answers["y_pred"]["near"]}}
    assert pd.read_csv(tmp_path / "out/second/scores.csv").empty


def test_classes_have_probabilities_and_missing_values_no_score(tmp_path):
    table = embedded_table(80)
    table["wide"] = (table["homolumogap"] > table["homolumogap"].median()).astype(float)
    table.loc[::7, "wide"] = np.nan
    benchmark = write_archive(
        tmp_path / "archive",
        table,
        {"wide": "classification"},
        list(range(60, 80)),
        metrics=[{"label": "accuracy"}, {"label": "roc_auc"}, {"label": "a metric of several targets"}],
        n_classes={"wide": 2},
    )
    polaris.main(benchmark, str(tmp_path / "out"), "fast")
    answers = json.loads((tmp_path / "out/predictions.json").read_text())
    probabilities = np.array(answers["y_prob"]["test"]["wide"])
    assert answers["y_pred"]["test"]["wide"] == list(probabilities >= 0.5)
    truth = table.loc[60:, "wide"].to_numpy()
    known = ~np.isnan(truth)
    scores = dict(pd.read_csv(tmp_path / "out/scores.csv")[["metric", "score"]].to_numpy().tolist())
    assert scores == {
        "accuracy": pytest.approx(np.mean((probabilities >= 0.5)[known] == truth[known])),
        "roc_auc": pytest.approx(roc_auc_score(truth[known], probabilities[known])),
    }


def test_what_a_benchmark_may_not_have_is_named(tmp_path):
    table = embedded_table(80)
    several = write_archive(
        tmp_path / "several", table, {"homolumogap": "regression"}, [60], input_cols=["smiles", "solvent"]
    )
    with pytest.raises(MolsliceError, match="one column of SMILES"):
        polaris.main(several, str(tmp_path / "out"), "fast")
    table.loc[61, "smiles"] = "C("
    unreadable = write_archive(tmp_path / "unreadable", table, {"homolumogap": "regression"}, [60, 61])
    with pytest.raises(MolsliceError, match="row 61: not valid SMILES"):
        polaris.main(unreadable, str(tmp_path / "unreadable_out"), "fast")


SPLITS = {"train": [0, 1], "valid": [2], "test-dev": [5, 3, 4], "test-challenge": [9, 7, 8, 6]}
SIZES = {
    ("v2", "test-dev"): ("y_pred_pcqm4m-v2_test-dev", 3),
    ("v2", "test-challenge"): ("y_pred_pcqm4m-v2_test-challenge", 4),
}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    for module in (ogb, leaderboard):
        monkeypatch.setattr(module, "SUBMISSIONS", SIZES)
    return gap_folder(tmp_path / "archive", embedded_smiles(10), splits=SPLITS)


def test_predicted_tables_become_a_submission(tmp_path, archive, capsys):
    ogb.tables(archive, tmp_path / "tables")
    (tmp_path / "predicted").mkdir()
    for name in ("test-dev.csv", "test-challenge.csv"):
        words = ["predict", "gap-xtb", "--input", tmp_path / "tables" / name]
        assert main([*map(str, words), "--output", str(tmp_path / "predicted" / name), "--quiet"]) == 0
    ogb.files(archive, tmp_path / "predicted", tmp_path / "out")
    assert capsys.readouterr().out.count(".npz\n") == 2
    expected = load_model("gap-xtb").predict(embedded_smiles(10))
    for split, (stem, _) in zip(("test-dev", "test-challenge"), SIZES.values(), strict=True):
        written = np.load(tmp_path / "out" / f"{stem}.npz")["y_pred"]
        assert written.dtype == np.float32
        np.testing.assert_allclose(written, expected[SPLITS[split]], rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[::-1], "its rows are not the rows of the split test-challenge"),
        (lambda table: table.assign(error="not valid SMILES"), "4 rows have no prediction"),
    ],
)
def test_no_file_is_written_from_a_wrong_table(tmp_path, archive, change, message):
    ogb.tables(archive, tmp_path / "tables")
    for name in ("test-dev", "test-challenge"):
        table = pd.read_csv(tmp_path / "tables" / f"{name}.csv").assign(gap=1.0, error=None)
        table = change(table) if name == "test-challenge" else table
        table.to_csv(tmp_path / "tables" / f"{name}.csv", index=False)
    with pytest.raises(MolsliceError, match=message):
        ogb.files(archive, tmp_path / "tables", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_files_are_the_files_of_ogb(tmp_path, version):
    sizes = {split: rows for (known, split), (_, rows) in ogb.SUBMISSIONS.items() if known == version}
    total = sum(sizes.values())
    order = np.random.default_rng(0).permutation(total)
    splits = dict(zip(sizes, np.split(order, np.cumsum([*sizes.values()])[:-1]), strict=True))
    archive = gap_folder(tmp_path / "archive", ["C"], splits={"train": [], "valid": [], **splits})
    lsc = leaderboard.import_ogb("ogb.lsc")
    evaluator = lsc.PCQM4MEvaluator() if version == "v1" else lsc.PCQM4Mv2Evaluator()
    (tmp_path / "predicted").mkdir()
    for split, rows in splits.items():
        gaps = np.random.default_rng(1).normal(5.5, 1, len(rows)).round(6)
        table = pd.DataFrame({"idx": rows, "smiles": "C", "homolumogap_eV": gaps, "error": None})
        table.to_csv(tmp_path / "predicted" / f"{split}.csv", index=False)
        options = {} if version == "v1" else {"mode": split}
        evaluator.save_test_submission({"y_pred": gaps}, str(tmp_path / "ogb"), **options)
    ogb.files(archive, tmp_path / "predicted", tmp_path / "out")
    written, expected = (sorted((tmp_path / name).iterdir()) for name in ("out", "ogb"))
    assert [path.name for path in written] == [path.name for path in expected]
    for path, other in zip(written, expected, strict=True):
        np.testing.assert_array_equal(np.load(path)["y_pred"], np.load(other)["y_pred"])
        assert np.load(path)["y_pred"].dtype == np.load(other)["y_pred"].dtype
