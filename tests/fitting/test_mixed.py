"""Fits to numbers, two, several and ordered classes in one model."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from molslice.cli import main
from molslice.explanation.explain import Explainer
from molslice.explanation.score import find_score
from molslice.fitting.card import result_rows
from molslice.fitting.fit import fit
from molslice.folders.fitted import CARD, FIT, network_folder
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.serve.worker import ServedModel, answer
from molslice.types import MolsliceError
from tests.fitting.test_classes import lengths_and_thirds
from tests.inference.models import checkpoint_folder, embedded_smiles

ROWS = 90
TARGETS = ("size", "bit", "block", "grade", "shape")
COLUMNS = (
    "size",
    "bit",
    "block_inert",
    "grade_low",
    "grade_mid",
    "grade_top",
    "shape_a",
    "shape_b",
    "shape_c",
)
ORDER = ("low", "mid", "top")

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(ROWS)


@pytest.fixture(scope="module")
def rows(smiles):
    """Numbers and classes by the length of the SMILES."""
    length, third = lengths_and_thirds(smiles)
    return pd.DataFrame(
        {
            "smiles": smiles,
            "size": length + 0.5,
            "bit": (third == 2).astype(int),
            "block": np.where(third == 0, "blocker", "inert"),
            "grade": np.array(ORDER)[third],
            "shape": np.array(["c", "a", "b"])[third],
            "level": third,
            "limit": [f">{size}" if size > np.quantile(length, 0.8) else f"{size}" for size in length],
            "part": np.where(np.arange(len(smiles)) % 5 == 0, "test", "train"),
        }
    )


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    rows.to_csv(file, index=False)
    return file


def fit_table(table, target, folder, **options):
    settings = {"members": 2, "split": "part", "encoder": None, "quality": "fast", "quiet": True}
    return fit(table, target, folder, **settings | options)


@pytest.fixture(scope="module")
def mixed(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed") / "model"
    return folder, fit_table(table, TARGETS, folder, order=ORDER)


def test_each_target_is_fitted_as_alone(mixed, table, smiles, tmp_path):
    """The results of each target are the same as of a fit to the same rows without the others."""
    folder, about = mixed
    together, start = load_model(folder).predict_with_errors([*smiles, "C("], interval=0.8), 0
    assert load_model(folder).columns == COLUMNS
    for index, name in enumerate(TARGETS):
        options = {"order": ORDER} if name == "grade" else {}
        alone = fit_table(table, name, tmp_path / name, **options)
        expected = load_model(tmp_path / name).predict_with_errors([*smiles, "C("], interval=0.8)
        columns = slice(start, start + expected.values.shape[1])
        for field in ("values", "spread", "lower", "upper", "calibrated"):
            predicted, wanted = getattr(together, field)[:, columns], getattr(expected, field)
            wanted = np.full(predicted.shape, np.nan) if wanted is None else wanted
            np.testing.assert_array_equal(predicted, wanted)
        if expected.sets is None:
            assert not together.sets[:, index].any()
        else:
            np.testing.assert_array_equal(
                together.sets[:, index, : expected.sets.shape[2]], expected.sets[:, 0]
            )
        assert about["results"][index] == alone["results"][0]
        start = columns.stop
    assert start == len(COLUMNS)


def test_a_table_of_predictions_has_what_each_kind_has(mixed, table, rows, tmp_path):
    model = load_model(mixed[0])
    options = model.find_options(0.8)
    report = predict_table(model, table, tmp_path / "out.csv", options, metrics=True, progress=False)
    written = pd.read_csv(tmp_path / "out.csv", dtype={"bit_predicted_set": str}, keep_default_na=False)
    added = [name for name in written if name not in rows]
    numbers = ["size_predicted", "bit_predicted", *COLUMNS[2:]]
    assert added[: len(numbers)] == numbers
    ends = [
        "size_predicted_lower",
        "size_predicted_upper",
        "bit_predicted_calibrated",
        "block_inert_calibrated",
    ]
    labels = ["grade_predicted", "shape_predicted"]
    sets = ["bit_predicted_set", "block_inert_set", "grade_predicted_set", "shape_predicted_set"]
    spreads = [f"{name}_spread" for name in numbers]
    assert added[len(numbers) :] == [*ends, *spreads, *labels, *sets, "error"]
    assert {*written["bit_predicted_set"]} <= {"", "0", "1", "0; 1"}
    assert {*written["grade_predicted"]} <= {*ORDER}
    metrics = {(entry["name"], entry["metric"]): entry["value"] for entry in report.metrics}
    off = (written["size_predicted"] - rows["size"]).abs().mean()
    assert metrics["size", "mae"] == pytest.approx(off, rel=1e-5)
    right = (written["grade_predicted"] == rows["grade"]).mean()
    assert metrics["grade", "accuracy"] == pytest.approx(right)
    assert {name for name, _ in metrics} == {*TARGETS}


def test_classes_without_names_are_measured_in_other_words(mixed, rows, tmp_path, capsys):
    words = tmp_path / "words.csv"
    rows.assign(bit=rows["bit"].map({0: "inactive", 1: "active"})).to_csv(words, index=False)
    model = load_model(mixed[0])
    report = predict_table(model, words, tmp_path / "out.csv", metrics=True, progress=False)
    (area,) = (entry["value"] for entry in report.metrics if entry["name"] == "bit")
    command = ["evaluate", str(mixed[0]), "--split", "all", "--data.path", str(words), "--json", "--quiet"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["targets"][1]["roc_auc"] == pytest.approx(area)


def test_each_result_has_its_metric(mixed, capsys):
    folder, about = mixed
    announced = ["mae", "roc_auc", "roc_auc", "class_error", "macro_roc_auc"]
    assert [result["metric"] for result in about["results"]] == announced
    assert about["metric"] is about["metric_label"] is None
    header, lines = result_rows(about)
    assert header[2] == "metric"
    assert [line[2] for line in lines] == [
        "MAE",
        "ROC-AUC",
        "ROC-AUC",
        "mean error in classes",
        "macro ROC-AUC",
    ]
    assert "| size | - | MAE | 72 |" in (folder / CARD).read_text()
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    for target, metric, recorded in zip(result["targets"], announced, about["results"], strict=True):
        assert target[metric] == pytest.approx(recorded["test"]["molslice fit"], rel=1e-5)
    assert main(["evaluate", str(folder), "--uncertainty", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "size    MAE" in shown
    assert "width or classes in a set" in shown


def test_a_report_has_each_target(mixed, tmp_path):
    folder, _ = mixed
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "size: predictions against measurements" in page
    for name in TARGETS[1:]:
        assert f"Confusion matrix of {name}, test" in page
        assert f"Sets of {name} by class" in page
    assert "--kind regression --kind classification --kind classification --kind multiclass" in page
    assert "Confusion matrix of size" not in page
    assert "--order low,mid,top" in page


def test_the_command_in_a_report_has_the_options_of_classes(mixed, tmp_path):
    shutil.copytree(mixed[0], tmp_path / "model")
    record = json.loads((tmp_path / "model" / FIT).read_text())
    record["options"] |= {"order": [ORDER, ["b", "a", "c"]], "positive": ["inert"]}
    record["options"] |= {"class_weight": "balanced"}
    (tmp_path / "model" / FIT).write_text(json.dumps(record))
    command = ["report", str(tmp_path / "model"), "--out", str(tmp_path / "page.html"), "--quiet"]
    assert main(command) == 0
    page = (tmp_path / "page.html").read_text()
    assert "--positive inert --order low,mid,top --order b,a,c" in page
    assert "--class-weight balanced" in page


def test_all_rows_can_be_learned(rows, tmp_path):
    """After a refit, the report is about the learned rows."""
    rows.assign(size=np.where(rows["part"] == "test", np.nan, rows["size"])).to_csv(tmp_path / "a.csv")
    about = fit_table(tmp_path / "a.csv", ["size", "grade"], tmp_path / "m", split="random")
    assert [result["train_rows"] for result in about["results"]] == [72, 90]
    assert main(["report", str(tmp_path / "m"), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "The intervals and sets of these rows are computed from the out-of-fold predictions" in page


def test_the_prediction_of_a_target_is_explained(mixed):
    model = load_model(mixed[0])
    predicted = model.predict(["CCO"])[0].astype(np.float64)
    for target, value in (("size", predicted[0]), ("block", np.log(predicted[2] / (1.0 - predicted[2])))):
        explanation = Explainer(model, target=target)("CCO")
        assert explanation.prediction == pytest.approx(value, rel=1e-5)


def test_a_service_answers_for_each_target(mixed):
    served = {"model": ServedModel("model", str(mixed[0]), "cpu")}
    card = served["model"].describe()
    assert card["kind"] == "mixed"
    assert [one["name"] for one in card["targets"]][:5] == [
        "size",
        "bit",
        "block",
        "grade: low",
        "grade: mid",
    ]
    options = {"model": "model", "smiles": ["CCO"], "interval": 0.8, "domain": True}
    status, (row,) = answer(served, "predict", options, lambda progress: None)
    assert status == "done"
    assert tuple(row["values"]) == COLUMNS
    unsure = row["uncertainty"]
    assert unsure["lower"]["size"] < row["values"]["size"] < unsure["upper"]["size"]
    assert unsure["lower"]["bit"] is unsure["calibrated"]["size"] is None
    assert tuple(unsure["set"]) == COLUMNS[1:]
    measured = row["domain"]["neighbors"][0]["measured"]
    assert measured["size"] > 0
    assert tuple(measured) == COLUMNS[:3]


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (["size", "grade"], {"order": "a,b,c"}, "no target has the classes of the order a, b, c; num"),
        (["size", "level"], {"order": "0,1,2"}, "no target has the classes of the order 0, 1, 2"),
        (["size", "grade"], {"order": [ORDER, ["low", "x", "y"]]}, "several orders have some of its classes"),
        (["size", "grade"], {"order": "low,top,mad"}, r"row \d+ .*'mid' is not a class; choices: low, top"),
        (["size", "grade"], {"order": ORDER, "kind": "regression"}, "an order needs the kind multiclass"),
        (["size", "grade"], {"positive": "low"}, "no target has the two classes of which 'low' is one"),
        (["size", "bit"], {"kind": ["regression"] * 3}, r"kind must be one, or one for each target \(2\)"),
        (["size", "bit"], {"kind": ["regression", "other"]}, "unknown kind 'other'; choices: regression"),
        (["size", "grade"], {"kind": ["regression", "classification"]}, "classification takes two"),
        (["size", "limit"], {"kind": ["classification", "regression"]}, "is neither 0 nor 1"),
        (["size", "bit"], {"error": ["limit", "level"]}, "'bit': the target has classes, which have no st"),
        (["size", "bit"], {"units": ["m", "s"]}, "column 'bit': the target has classes, which have no units"),
        (["bit", "block"], {"relation": "level"}, "the targets are classes, which have no limits"),
        (["size", "bit"], {"class_weight": "heavy"}, "unknown class_weight"),
        (["size", "limit"], {"class_weight": "balanced"}, "class_weight is for classes; the targets"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(targets, options, message, table, tmp_path):
    with pytest.raises(MolsliceError, match=message) as caught:
        fit_table(table, targets, tmp_path / "model", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_limits_of_a_class_are_refused(rows, tmp_path):
    cells = ["1", "0", ">1"] * 30
    rows.assign(odd=cells).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(MolsliceError, match="column 'odd': the targets are classes, which have no"):
        fit_table(tmp_path / "a.csv", ["size", "odd"], tmp_path / "m")


@pytest.fixture
def with_relations(rows, tmp_path):
    file = tmp_path / "relations.csv"
    rows.assign(relation=np.where(rows["limit"].str.startswith(">"), ">", "=")).to_csv(file, index=False)
    return file


def test_a_column_of_relations_is_for_the_only_number(with_relations, tmp_path):
    about = fit_table(with_relations, ["size", "bit"], tmp_path / "m")
    alone = fit_table(with_relations, "size", tmp_path / "alone")
    assert about["results"][0] == alone["results"][0]
    assert about["results"][0]["train_limits"] > 0
    exact = fit_table(with_relations, ["size", "limit", "bit"], tmp_path / "two")
    assert exact["results"][0]["train_limits"] == 0


def test_options_are_for_the_targets_of_their_kind(with_relations, tmp_path, smiles):
    """Each target has its order, its kind and its unit; a relation is for the number."""
    table, orders = with_relations, [ORDER, ("2", "1", "0")]
    about = fit_table(
        table,
        ["size", "grade", "level", "bit"],
        tmp_path / "m",
        kind=[None, "multiclass", "multiclass", None],
        order=orders,
        units="nM",
        relation="relation",
        transform="p",
        class_weight="balanced",
    )
    assert about["targets"]["names"] == ("psize", "grade", "level", "bit")
    assert about["targets"]["units"] == ("-log10 mol/L", "", "", "")
    assert about["ordered"] == ["grade", "level"]
    assert about["options"]["order"] == orders
    assert about["results"][0]["train_limits"] > 0
    model = load_model(tmp_path / "m")
    assert model.types[2].several.names == ("2", "1", "0")
    np.testing.assert_allclose(model.predict(smiles)[:, 4:7].sum(1), 1.0, atol=1e-6)
    alone = fit_table(table, "bit", tmp_path / "alone", class_weight="balanced")
    assert about["results"][3] == alone["results"][0]


def test_numbers_are_learned_if_asked(table, tmp_path):
    about = fit_table(table, ["size", "bit"], tmp_path / "m", kind="regression")
    assert about["targets"]["kind"] == "regression"
    assert about["metric"] == "mae"


def test_rows_of_one_molecule_are_merged_by_kind(rows, smiles, tmp_path):
    """Numbers are averaged, limits tightened, and labels that disagree count as missing."""
    more = pd.DataFrame(
        {"smiles": smiles[:1] * 2, "size": [0.0, 4.0], "bit": [0, 1], "limit": [">3", ">1"], "part": "train"}
    )
    first = rows.assign(part=np.where(rows.index == 0, "test", rows["part"]))[1:]
    pd.concat([first, more]).to_csv(tmp_path / "a.csv", index=False)
    about = fit_table(tmp_path / "a.csv", ["size", "bit", "limit"], tmp_path / "m")
    assert any("numbers are averaged and conflicting labels count as" in text for text in about["findings"])
    kept = pd.read_csv(tmp_path / "m" / "rows.csv").set_index("smiles").loc[smiles[0]]
    assert (kept["size"], kept["limit_limit"]) == (2.0, ">3.0")
    assert np.isnan(kept["bit"])
    assert not any("contradict" in text for text in about["findings"])


@pytest.mark.slow
def test_each_kind_has_its_networks(table, tmp_path, few_epochs, smiles, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)
    options = {"encoder": checkpoint_folder(tmp_path / "encoder"), "quality": "best"}
    about = fit_table(table, ["size", "bit", "grade"], tmp_path / "m", order=ORDER, **options)
    assert all("fine_tuned" in result["weights"] for result in about["results"])
    model = load_model(tmp_path / "m")
    names = [network.targets.names for network in model.networks]
    assert names == [("size",)] * 2 + [("bit", "grade above low", "grade above mid")] * 2
    alone = fit_table(table, "size", tmp_path / "alone", **options)
    assert about["results"][0] == alone["results"][0]
    expected = load_model(tmp_path / "alone").predict(smiles[:3])
    np.testing.assert_array_equal(model.predict(smiles[:3])[:, 0], expected)
    monkeypatch.setattr("molslice.explanation.score.LEAST_WEIGHT", 0.0)
    for target, networks in (("size", model.networks[:2]), ("bit", model.networks[2:])):
        score = find_score(model, target, "gradients")
        assert (score.name, score.column, score.networks) == (target, 0, networks)
    with pytest.raises(
        MolsliceError, match="gradients does not support grade, a target of 3 classes; use the method"
    ):
        find_score(model, "grade_mid", "gradients")
    assert find_score(model, "grade_mid", "shapley").name == "grade"
    shutil.rmtree(network_folder(tmp_path / "m", 1, "classification"))
    with pytest.raises(MolsliceError, match="is incomplete: .*classification/fold1 is missing"):
        load_model(tmp_path / "m")


def test_networks_of_one_kind_may_be_left_out(table, tmp_path, few_epochs, smiles, monkeypatch):
    def weight(fits, fold, unseen, classes):
        return 0.01 if classes else 1.0

    monkeypatch.setattr("molslice.fitting.fold_networks._network_weight", weight)
    options = {"encoder": checkpoint_folder(tmp_path / "encoder"), "quality": "best"}
    about = fit_table(table, ["bit", "size"], tmp_path / "m", **options)
    assert ["fine_tuned" in result["weights"] for result in about["results"]] == [False, True]
    assert (
        "no further networks were fine-tuned for classes: the first one had a weight of only 0.01"
        in about["findings"]
    )
    assert (about["network_weight"], about["network_epochs"]) == (None, 1)
    model = load_model(tmp_path / "m")
    assert [network.target_names for network in model.networks] == [("size",)] * 2
    assert np.isfinite(model.predict(smiles[:3])).all()
    with pytest.raises(MolsliceError, match="has no fine-tuned networks"):
        find_score(model, "bit", "gradients")


def test_each_kind_is_tuned(table, tmp_path):
    about = fit_table(table, ["size", "bit"], tmp_path / "m", tune=0.02)
    assert {trial["target"] for trial in about["tuning"]} <= {"size", "bit"}
    assert load_model(tmp_path / "m").columns == ("size", "bit")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ordered": ["size"]}, "invalid ordered for targets of kind mixed"),
        ({"ordered": True}, "invalid ordered for targets of kind mixed"),
        ({"class_words": {"size": ["a", "b"]}}, "invalid class_words"),
        ({"class_words": {"grade": ["a", "b"]}}, "invalid class_words"),
        ({"stacks": []}, "weighs 0 targets, but has 8"),
    ],
)
def test_a_damaged_folder_is_refused(change, message, mixed, tmp_path):
    shutil.copytree(mixed[0], tmp_path / "model")
    record = json.loads((tmp_path / "model" / FIT).read_text())
    (tmp_path / "model" / FIT).write_text(json.dumps(record | change))
    with pytest.raises(MolsliceError, match=message):
        load_model(tmp_path / "model")


def test_networks_alone_learn_one_kind(mixed, tmp_path, capsys):
    data = {"name": "csv", "path": str(mixed[0] / "rows.csv"), "target_columns": ["shape", "size"]}
    data |= {"smiles_column": "smiles", "kind": "mixed", "cache_dir": str(tmp_path / "cache")}
    layers = {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2}
    for names, message in (
        ([["a", "b"], []], "'c' is not a class; choices: a, b"),
        ([["a"], []], "kind mixed needs the names of the classes of some targets"),
        ([["a", "b", "c"], []], "are of several kinds; networks learn one kind"),
    ):
        config = {"data": {**data, "classes": names}, "model": layers, "attention": "softmax"}
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        command = ["train", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "run")]
        assert main([*command, "--quiet"]) == 1
        assert message in capsys.readouterr().err
