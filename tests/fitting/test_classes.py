"""Fits to classes that are words, to several and ordered classes, and to a rare class."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

from molslice.cli import main
from molslice.explanation.explain import explain
from molslice.explanation.score import find_score
from molslice.fitting.card import further_rows
from molslice.fitting.classes import read_classes
from molslice.fitting.data import FitOptions
from molslice.fitting.fit import fit
from molslice.fitting.table import read_fit_data
from molslice.folders.fitted import CARD, FIT, ROWS
from molslice.inference.load import load_model
from molslice.inference.tables.table import predict_table
from molslice.inference.uncertainty import score_learned_rows
from molslice.tasks.metrics import format_metric
from molslice.types import MolsliceError
from molslice.uncertainty.conformal import quantile_rank
from molslice.uncertainty.scores import calibration_error
from tests.inference.models import checkpoint_folder, embedded_smiles

ROWS_OF_TABLE = 90
THREE = ("low", "medium", "high")

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(ROWS_OF_TABLE)


def lengths_and_thirds(smiles):
    """Return the length of each SMILES and its third, 0 to 2, of all lengths."""
    length = np.array([len(text) for text in smiles])
    return length, np.searchsorted(np.quantile(length, [0.33, 0.67]), length)


@pytest.fixture(scope="module")
def table(smiles, tmp_path_factory):
    """Classes by the length of the SMILES, as words and as numbers, and other columns."""
    length, third = lengths_and_thirds(smiles)
    big = third == 2
    rows = pd.DataFrame(
        {
            "smiles": smiles,
            "three": np.array(THREE)[third],
            "level": third - 1,
            "block": np.where(big, "nonblocker", "Blocker"),
            "herg": np.where(big, "strong", "weak"),
            "sign": np.where(big, "+", "-"),
            "active": np.where(big, "active", "inactive"),
            "bit": big.astype(int),
            "number": length + 0.5,
            "one": "same",
            "many": [f"word{row}" for row in range(len(smiles))],
            "part": np.where(np.arange(len(smiles)) % 5 == 0, "test", "train"),
        }
    )
    file = tmp_path_factory.mktemp("table") / "measured.csv"
    rows.to_csv(file, index=False)
    return file


def fit_table(table, target, folder, **options):
    return fit(
        table, target, folder, **{"members": 2, "split": "part", "encoder": None, "quiet": True, **options}
    )


@pytest.fixture(scope="module")
def words(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words") / "model"
    return folder, fit_table(table, "block", folder)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "ordered"])
def several(request, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several") / "model"
    return folder, fit_table(table, "three", folder, order=THREE if request.param else ())


def read_rows(folder):
    with (folder / ROWS).open(newline="") as stream:
        return list(csv.DictReader(stream))


def named(about, text):
    return [finding for finding in about["findings"] if text in finding]


def test_two_words_are_two_classes_and_kept(words, smiles):
    folder, about = words
    assert about["targets"]["kind"] == "classification"
    assert about["class_words"] == {"block": ["nonblocker", "Blocker"]}  # the one without a negation is 1
    assert named(about, "class 1 is 'Blocker' and class 0 is 'nonblocker'; --positive 'nonblocker'")
    assert about["results"][0]["classes"]["Blocker"] > about["results"][0]["classes"]["nonblocker"]
    assert {row["block"] for row in read_rows(folder)} == {"Blocker", "nonblocker"}
    model = load_model(folder)
    assert model.columns == ("block_Blocker",)
    predictions = model.predict_with_errors([*smiles[:6], "C("], interval=0.7)
    assert predictions.table_rows().texts[-1] == [""]
    texts = {text for row in predictions.table_rows().texts[:-1] for text in row}
    assert texts <= {"Blocker", "nonblocker", "nonblocker; Blocker", ""}


@pytest.mark.parametrize(
    ("target", "options", "pair"),
    [
        ("block", {"positive": "nonblocker"}, ["Blocker", "nonblocker"]),
        ("herg", {}, ["strong", "weak"]),  # alphabetical
        ("herg", {"positive": ["Strong"]}, ["weak", "strong"]),
        ("sign", {}, ["-", "+"]),
        ("active", {"positive": "inactive"}, ["active", "inactive"]),
    ],
)
def test_which_word_is_class_1(target, options, pair, table, tmp_path):
    assert fit_table(table, target, tmp_path / "model", **options)["class_words"] == {target: pair}


@pytest.mark.parametrize(
    ("positive", "pairs"),
    [
        (["no"], (["yes", "no"], ["yes", "no"])),
        (["no", "no"], (["yes", "no"], ["yes", "no"])),
        (["no", "yes"], (["yes", "no"], ["no", "yes"])),
        (["yes", "no"], (["no", "yes"], ["yes", "no"])),
    ],
)
def test_the_words_of_class_1_of_two_targets_with_the_same_classes(positive, pairs):
    cells = {"a": ["yes", "no", "yes"], "b": ["no", "yes", ""]}
    read = read_classes(cells, ["a", "b"], FitOptions(positive=tuple(positive)), "in.csv", str)
    assert tuple([*one.words] for one in read.types.values()) == pairs


def test_two_numbers_are_classes_if_one_is_named(table, tmp_path, smiles):
    rows = [f"{text},{1 + (place >= 55)}" for place, text in enumerate((smiles * 5)[:80])]
    written = tmp_path / "in.csv"
    written.write_text("smiles,label\n" + "\n".join(dict.fromkeys(rows)) + "\n")
    options = {"kind": "classification", "positive": "1", "duplicates": "keep", "split": "random"}
    about = fit_table(written, "label", tmp_path / "model", **options)
    assert about["class_words"] == {"label": ["2", "1"]}
    with pytest.raises(MolsliceError, match="neither 0 nor 1"):
        fit_table(written, "label", tmp_path / "other", **(options | {"positive": ()}))


def test_the_chosen_word_only_exchanges_the_classes(words, table, tmp_path, smiles):
    other = tmp_path / "model"
    fit_table(table, "block", other, positive="nonblocker")
    error = np.abs(load_model(words[0]).predict(smiles) + load_model(other).predict(smiles) - 1.0)
    assert error.max() < 0.1  # the smoothing of the calibration treats both classes alike


def test_known_words_are_fitted_as_zeros_and_ones(table, tmp_path, smiles):
    about = fit_table(table, "active", tmp_path / "words")
    assert named(about, "active: active is 1, inactive is 0")
    assert "class_words" not in about
    fit_table(table, "bit", tmp_path / "bits")
    models = [load_model(tmp_path / name) for name in ("words", "bits")]
    np.testing.assert_array_equal(*(model.predict(smiles) for model in models))
    assert models[0].columns == ("active",)


def test_the_command_says_which_class_a_probability_is_of(words, capsys):
    folder, _ = words
    assert main(["predict", str(folder), "--smiles", "CCO", "--quiet"]) == 0
    assert "block: probability of 'Blocker'" in capsys.readouterr().out
    assert "class 1 is 'Blocker'" in (folder / CARD).read_text()


def test_another_table_with_the_words_is_measured(words, table, tmp_path, capsys):
    folder, about = words
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)["targets"][0]
    assert result["roc_auc"] == pytest.approx(about["results"][0]["test"]["molslice fit"])
    assert main(["evaluate", str(folder), "--split", "all", "--data.path", str(table), "--quiet"]) == 0
    report = predict_table(load_model(folder), table, tmp_path / "out.csv", metrics=True, progress=False)
    assert report.metrics[0]["count"] == ROWS_OF_TABLE
    odd = tmp_path / "odd.csv"
    odd.write_text(table.read_text().replace("Blocker", "inert", 1))
    with pytest.raises(
        MolsliceError, match=r"column 'block': 'inert' is not a class; choices: nonblocker, Bl"
    ):
        predict_table(load_model(folder), odd, tmp_path / "out2.csv", metrics=True, progress=False)


def test_several_classes_have_probabilities_that_add_up_to_one(several, smiles, tmp_path, table):
    folder, about = several
    assert about["ordered"] is bool(about["options"]["order"])
    model = load_model(folder)
    names = about["targets"]["classes"]
    assert sorted(names) == sorted(THREE)
    assert model.columns == tuple(f"three_{name}" for name in names)
    probable = model.predict([*smiles, "C("])
    np.testing.assert_allclose(probable[:-1].sum(1), 1.0, atol=1e-6)
    assert np.isnan(probable[-1]).all()
    report = predict_table(model, table, tmp_path / "out.csv", metrics=True, progress=False)
    rows = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(rows[list(model.columns)], probable[:-1], rtol=1e-6)
    chosen = model.types[0].several.choose(probable[:-1])
    assert rows["three_predicted"].tolist() == [names[place] for place in chosen]
    metrics = {entry["metric"]: entry["value"] for entry in report.metrics}
    assert metrics["accuracy"] == pytest.approx((rows["three_predicted"] == rows["three"]).mean())
    assert metrics["accuracy"] > 0.6


def test_rows_have_the_classes_and_the_probabilities_of_models_without_the_row(several):
    folder, about = several
    rows = pd.read_csv(folder / ROWS)
    columns = [f"three_{name}" for name in about["targets"]["classes"]]
    np.testing.assert_allclose(rows[columns].sum(1), 1.0)
    model, test = load_model(folder), rows[rows["split"] == "test"]
    np.testing.assert_allclose(model.predict(test["smiles"].tolist()), test[columns], atol=1e-6)
    classes = model.types[0].several
    trained = rows[rows["split"] == "train"]
    truth = np.array([classes.names.index(word) for word in trained["three"]])
    result = about["results"][0]
    first = classes.measure(about["metric"], trained[columns].to_numpy(), truth)
    assert result["cross_validated"] == pytest.approx(first)
    assert {about["metric"], *result["metrics"]} == {*classes.metrics}
    assert result["standard_errors"]["test"]["molslice fit"] > 0
    assert further_rows(about)[1]
    assert sum(result["weights"].values()) == pytest.approx(1.0)


def test_evaluate_repeats_the_errors_of_several_classes(several, table, capsys):
    folder, about = several
    assert main(["evaluate", str(folder), "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)["targets"][0]
    assert result[about["metric"]] == pytest.approx(about["results"][0]["test"]["molslice fit"])
    assert result["log_loss"] == pytest.approx(
        about["results"][0]["metrics"]["log_loss"]["test"]["molslice fit"], rel=1e-4
    )
    assert main(["evaluate", str(folder), "--split", "all", "--data.path", str(table), "--quiet"]) == 0


def test_sets_of_several_classes(several, smiles):
    folder, _ = several
    model = load_model(folder)
    wide, narrow = (model.predict_with_errors([*smiles, "C("], interval=level) for level in (0.9, 0.5))
    assert wide.sets.shape == (ROWS_OF_TABLE + 1, 1, 3)
    assert (wide.sets | ~narrow.sets).all()
    assert wide.sets.sum() > narrow.sets.sum()
    _, texts = model.table_columns(model.find_options(0.9))
    assert texts == ["three", "three_set"]
    label, members = wide.table_rows().texts[0]
    assert label in THREE
    assert set(members.split("; ")) <= {*THREE, ""}
    assert wide.table_rows().texts[-1] == ["", ""]
    with pytest.raises(
        MolsliceError, match=r"interval 0.99 needs 99 calibration rows of class \w+ of target"
    ):
        model.find_options(0.99)
    empty = model.predict_with_errors([], interval=0.9)
    assert empty.table_rows().values.shape == (0, 6)


def held_out_rows(folder):
    """Return the test rows: SMILES, index of the class [n], and probabilities [n, K] of their columns."""
    names = load_model(folder).types[0].several.names
    rows = pd.read_csv(folder / ROWS)
    test = rows[rows["split"] == "test"]
    truth = np.array([names.index(word) for word in test["three"]])
    return test["smiles"].tolist(), truth, test[[f"three_{name}" for name in names]].to_numpy()


def test_the_sets_of_several_classes_are_measured(several, capsys, tmp_path):
    folder, _ = several
    smiles, truth, probable = held_out_rows(folder)
    model, places = load_model(folder), np.arange(len(truth))
    command = ["evaluate", str(folder), "--uncertainty", "--out", str(tmp_path / "out"), "--quiet"]
    assert main([*command, "--json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["uncertainty"]["targets"]
    for entry in target["levels"]:
        sets = model.predict_with_errors(smiles, interval=entry["level"]).sets[:, 0]
        assert entry["coverage"] == pytest.approx(sets[places, truth].mean())
        assert entry["set_size"] == pytest.approx(sets.sum(1).mean())
        counts = np.bincount(sets.sum(1), minlength=4)
        np.testing.assert_allclose(entry["set_sizes"], counts / len(truth))
        of_level = [one for one in target["classes"] if one["level"] == entry["level"]]
        assert [one["class"] for one in of_level] == list(model.types[0].several.names)
        for label, one in enumerate(of_level):
            of_class = truth == label
            assert one["count"] == of_class.sum()
            assert one["coverage"] == pytest.approx(sets[of_class, label].mean())
            assert one["set_size"] == pytest.approx(sets[of_class].sum(1).mean())
    wanted = np.eye(3)[truth]
    brier = ((probable - wanted) ** 2).sum(1).mean()
    assert target["brier_score"] == {"predicted": pytest.approx(brier, rel=1e-5)}
    errors = [calibration_error(probable[:, label], wanted[:, label]) for label in range(3)]
    assert target["calibration_error"]["predicted"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert target["error"] == pytest.approx(1 - probable[places, truth].mean(), rel=1e-5)
    assert (tmp_path / "out" / "uncertainty.png").exists()
    assert main(command) == 0
    assert "Brier score" in capsys.readouterr().out


def cells_of(page, caption):
    """Return the cells of the table of a page with a caption."""
    _, text = page.split(f"<caption>{caption}</caption>", 1)
    rows = text.split("</table>", 1)[0].split("<tr>")[1:]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_several_classes_are_reported(several, tmp_path):
    folder, about = several
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    page, classes = (tmp_path / "page.html").read_text(), load_model(folder).types[0].several
    _, truth, probable = held_out_rows(folder)
    chosen = classes.choose(probable)
    _, *rows = cells_of(page, "Confusion matrix of three, test")
    counts = sklearn.metrics.confusion_matrix(truth, chosen)
    assert [list(map(int, row[1:4])) for row in rows] == [*counts.tolist(), counts.sum(0).tolist()]
    _, *rows = cells_of(page, "Errors by class")
    recalls = [f"{count[label]} of {count.sum()}" for label, count in enumerate(counts)]  # of few rows
    assert [(row[0], row[2]) for row in rows] == [*zip(classes.names, recalls, strict=True)]
    log_loss = about["results"][0]["metrics"]["log_loss"]["test"]["molslice fit"]
    assert format_metric(log_loss) in page
    assert page.count("share of class") >= 3
    _, *rows = cells_of(page, "Measured classes")
    assert sum(int(row[-2]) for row in rows) == ROWS_OF_TABLE
    assert "Sets of three by class" in page
    assert f"probability of {classes.names[0]}" in page


def test_the_sets_of_learned_rows_are_reported(table, tmp_path):
    fit_table(table, "three", tmp_path / "model", split="all", quality="fast")
    model = load_model(tmp_path / "model")
    held_out = model.find_calibration().targets[0]
    rows = np.arange(len(held_out.truth))
    (target,) = score_learned_rows(model, [rows], rows // 2)["targets"]
    assert target["levels"][0]["standard_error"] == pytest.approx(0.5 / (len(rows) / 2) ** 0.5, rel=0.01)
    for entry in target["levels"]:
        # a class of n rows is in the sets of all but the least probable ones
        counts = np.bincount(held_out.truth.astype(int))
        covered = [min(quantile_rank(count, entry["level"]), count) for count in counts]
        assert entry["coverage"] == pytest.approx(sum(covered) / len(held_out.truth))
    assert main(["report", str(tmp_path / "model"), "--out", str(tmp_path / "page.html"), "--quiet"]) == 0
    assert "sets of these rows are computed from the out-of-fold" in (tmp_path / "page.html").read_text()


def test_what_has_no_meaning_for_several_classes_is_refused(several, tmp_path, capsys):
    folder, _ = several
    for command in (
        [
            "explain",
            str(folder),
            "--smiles",
            "CCO",
            "--method",
            "gradients",
            "--out",
            str(tmp_path / "e.svg"),
        ],
        ["export", str(folder), "--out", str(tmp_path / "m.pt2")],
    ):
        assert main([*command, "--quiet"]) == 1
        error = capsys.readouterr().err
        assert "error:" in error
        assert len(error.splitlines()) == 1
    with pytest.raises(
        MolsliceError, match="gradients does not support three, a target of 3 classes; use the method"
    ):
        find_score(load_model(folder))


def test_a_class_is_explained_by_its_log_odds(several, smiles):
    folder, _ = several
    model = load_model(folder)
    (row,) = model.predict_with_errors(smiles[:1]).values
    classes = model.types[0].several
    for label, name in enumerate(classes.names):
        found = explain(model, smiles[0], class_name=name)
        assert (found.class_name, found.unit) == (name, "log-odds")
        assert found.probability == pytest.approx(float(row[label]), abs=1e-5)
        assert found.headline.value == pytest.approx(float(row[label]))
        assert found.values.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-6)
        assert found.to_dict()["class"] == name
    assert explain(model, smiles[0]).class_name == classes.names[int(classes.choose(row))]
    assert explain(model, smiles[0], target=model.columns[1]).class_name == classes.names[1]
    with pytest.raises(MolsliceError, match=r"three has no class 'x'; choices: "):
        explain(model, smiles[0], class_name="x")


def test_the_class_of_a_global_view_is_named(several, tmp_path, capsys):
    folder, _ = several
    words = ["explain", str(folder), "--global", "--out", str(tmp_path / "view"), "--quiet"]
    assert main(words) == 1
    assert "--global needs a class of three: give --class; choices: " in capsys.readouterr().err
    assert main([*words, "--class", "low", "--background", "dark"]) == 0
    figure = (tmp_path / "view" / "global.svg").read_text()
    assert "mean change of three, class low (log-odds)" in figure
    assert "#1b2326" in figure


def test_numbers_are_classes_if_asked(table, tmp_path, smiles):
    about = fit_table(table, "level", tmp_path / "model", kind="multiclass")
    assert list(about["targets"]["classes"]) == ["-1", "0", "1"]
    again = fit_table(table, "level", tmp_path / "ordered", order="-1, 0, 1")
    assert again["ordered"]
    assert again["metric"] == "class_error"
    assert load_model(tmp_path / "ordered").predict(smiles[:3]).shape == (3, 3)


def test_several_classes_have_fine_tuned_networks(table, tmp_path, few_epochs, smiles, monkeypatch):
    monkeypatch.setattr("molslice.fitting.fold_networks.MIN_WEIGHT", 0.0)
    options = {"encoder": checkpoint_folder(tmp_path / "encoder"), "quality": "best"}
    about = fit_table(table, "three", tmp_path / "m", order=THREE, **options)
    assert about["networks"] == 2
    assert "fine_tuned" in about["results"][0]["weights"]
    model = load_model(tmp_path / "m")
    assert model.networks[0].targets.names == ("three above low", "three above medium")
    rows = pd.read_csv(tmp_path / "m" / ROWS)
    test = rows[rows["split"] == "test"]
    expected = test[[f"three_{name}" for name in THREE]]
    np.testing.assert_allclose(model.predict(test["smiles"].tolist()), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("cells", "options", "classes", "said"),
    [
        (
            "none mild severe",
            {"order": (("none", "mild", "severe"),)},
            "none mild severe",
            "none (2 rows) < ",
        ),
        (
            "None mild severe",
            {"order": (("none", "mild", "severe"),)},
            "none mild severe",
            "none (2 rows) < ",
        ),
        (
            "none mild severe",
            {},
            "mild severe",
            "y: 'none' counts as missing in 2 rows; name it with --order",
        ),
        ("none mild severe", {"positive": ("mild",)}, "severe mild", "counts as missing in 2 rows"),
        ("none hit", {"positive": ("hit",)}, "none hit", "class 1 is 'hit'"),
        ("none hit", {"positive": ("none",)}, "hit none", "class 1 is 'none'"),
        (
            "none hit",
            {},
            None,
            "a.csv, column 'y' has hit; 'none' counts as missing in 2 rows; .* --positive",
        ),
        ("none active", {}, None, "column 'y' has active; 'none' counts as missing"),
        (
            "none mild severe",
            {"kinds": ("multiclass",)},
            None,
            "has mild and severe; 'none' counts as missing",
        ),
        ("na mild severe", {}, "mild severe", "class 1 is 'severe'"),
    ],
)
def test_none_is_a_class_if_it_is_named(cells, options, classes, said):
    cells = cells.split() * 2

    def read():
        return read_classes({"y": cells}, ["y"], FitOptions(**options), Path("a.csv"), str)

    if classes is None:
        with pytest.raises(MolsliceError, match=said):
            read()
        return
    result = read()
    assert result.types["y"].class_names == tuple(classes.split())
    assert said in " ".join(result.meanings)
    names = [cell.lower() if cell.lower() in classes.split() else None for cell in cells]
    known = [None if np.isnan(value) else classes.split()[int(value)] for value in result.values["y"]]
    assert known == names


def test_words_for_missing_values_are_no_class(table, tmp_path):
    about = fit_table(table, "three", tmp_path / "model", missing_values="medium")
    assert about["class_words"] == {"three": ["high", "low"]}
    assert about["results"][0]["train_rows"] < 60


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (["three", "bit"], {"kind": "multiclass"}, "column 'bit' has two classes: 0, 1; leave out the kind"),
        ("three", {"kind": "classification"}, "has 3 classes: high, low, medium; classification takes two"),
        ("three", {"positive": "low"}, "has 3 classes: high, low, medium; positive is for two"),
        ("three", {"order": "low,high"}, "an order must name 3 to 20 different classes, got low"),
        ("three", {"order": "low,low,high"}, "an order must name 3 to 20 different classes"),
        ("three", {"order": "low,,high"}, "order must be names of classes, got 'low,,high'"),
        ("three", {"order": "low,mid,high"}, r"row \d+ .*'medium' is not a class; choices: low, mid"),
        ("three", {"order": "low,medium,high,top"}, "0 training rows of the class 'top'"),
        ("three", {"order": THREE, "kind": "regression"}, "an order needs the kind multiclass"),
        ("three", {"kind": "regression"}, "is not a number"),
        ("block", {"kind": "multiclass"}, "has two classes: Blocker, nonblocker; leave out the kind"),
        ("block", {"positive": "inert"}, "no target has the two classes of which 'inert'"),
        ("bit", {"positive": "1"}, "no target has the two classes of which '1' is one"),
        ("number", {"positive": "x", "kind": "regression"}, "positive needs the kind classification"),
        ("one", {}, "has same in every row; a fit needs two classes"),
        ("many", {}, "has 90 different classes, such as word0, word1, word10, word11, word12;"),
        ("number", {"class_weight": "balanced"}, "class_weight is for classes; the targets"),
        ("bit", {"class_weight": "heavy"}, "unknown class_weight 'heavy'; choices: balanced"),
        ("three", {"scale": "log"}, "the scale log is for numbers"),
        ("three", {"relation": "block"}, "column 'three': the targets are classes, which have no limits"),
        ("bit", {"unit_column": "block"}, "column 'bit': the targets are classes, which have no units"),
    ],
)  # fmt: skip
def test_classes_that_cannot_be_fitted_are_refused(target, options, message, table, tmp_path):
    with pytest.raises(MolsliceError, match=message) as caught:
        fit_table(table, target, tmp_path / "model", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_a_rare_class_is_refused_with_what_to_do(smiles, tmp_path):
    cells = ["a", "b"] * 44 + ["typo"] * 2
    pd.DataFrame({"smiles": smiles, "y": cells}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        MolsliceError, match="2 training rows of the class 'typo'.*--missing-value 'typo' leaves"
    ):
        fit(tmp_path / "a.csv", "y", tmp_path / "model", split="all", encoder=None, members=2, quiet=True)


def read_rare(smiles, folder, classes, rare=5, **options):
    """Read rows of which the first ones have the class `rare`."""
    cells = ["rare"] * rare + [classes[row % len(classes)] for row in range(len(smiles) - rare)]
    rows = {"smiles": smiles, "y": cells, "n": range(len(smiles)), "part": ["test", *["train"] * 89]}
    pd.DataFrame(rows).to_csv(folder / "a.csv", index=False)
    return [
        read_fit_data(folder / "a.csv", (target,), FitOptions(**options), workers=0) for target in ("y", "n")
    ]


@pytest.mark.parametrize("classes", [["a", "b"], ["a"]])
def test_no_draw_takes_the_training_rows_that_a_class_needs(classes, smiles, tmp_path):
    redrawn = 0
    for seed in range(12):
        data, numbers = read_rare(smiles, tmp_path, classes, seed=seed)
        label = data.types[0].class_names.index("rare")
        is_rare = data.targets[:, 0] == label
        assert is_rare.sum() == 5
        assert not (is_rare & data.test).any()
        assert data.test.sum() == 9
        if (is_rare & numbers.test).any():  # numbers have the first draw
            redrawn += 1
        else:
            np.testing.assert_array_equal(data.test, numbers.test)
    assert 0 < redrawn < 12


@pytest.mark.parametrize(
    ("classes", "advice"),
    [
        (["a", "b"], r"held out\). --split all holds out no row; --missing-value 'rare' leaves them out$"),
        (["a"], r"held out\). --split all holds out no row$"),
    ],
)
def test_a_class_with_too_few_rows_because_of_the_split_is_refused_with_what_to_do(
    classes, advice, smiles, tmp_path
):
    with pytest.raises(MolsliceError, match=f"4 (training rows )?of (the )?class .*rare.*{advice}"):
        read_rare(smiles, tmp_path, classes, split="part")
    with pytest.raises(MolsliceError, match="of (the )?class .*rare") as caught:
        read_rare(smiles, tmp_path, classes, rare=4, split="part")
    assert "--split all" not in str(caught.value)


def test_rows_of_one_molecule_in_different_classes_are_missing(smiles, tmp_path):
    length = np.argsort(np.argsort([len(text) for text in smiles]))
    rows = [*zip(smiles, np.array(THREE)[length // 30], strict=True), (smiles[0], "low"), (smiles[0], "high")]
    pd.DataFrame(rows, columns=["smiles", "y"]).to_csv(tmp_path / "a.csv", index=False)
    about = fit(tmp_path / "a.csv", "y", tmp_path / "m", split="all", encoder=None, members=2, quiet=True)
    assert about["rows"]["train"] == ROWS_OF_TABLE - 1
    assert named(about, "conflicting labels count as missing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ordered": None}, "invalid ordered for targets of kind multiclass: None"),
        ({"stacks": []}, "weighs 0 targets, but has"),
        ({"class_words": {"three": ["a", "b"]}}, "invalid class_words"),
    ],
)
def test_a_damaged_folder_of_several_classes_is_refused(change, message, several, tmp_path):
    shutil.copytree(several[0], tmp_path / "model")
    record = json.loads((tmp_path / "model" / FIT).read_text())
    (tmp_path / "model" / FIT).write_text(json.dumps(record | change))
    with pytest.raises(MolsliceError, match=message):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("pair", [["a"], ["a", "a"], ["a", 1], "ab"])
def test_damaged_words_are_refused(pair, words, tmp_path):
    shutil.copytree(words[0], tmp_path / "model")
    record = json.loads((tmp_path / "model" / FIT).read_text())
    (tmp_path / "model" / FIT).write_text(json.dumps(record | {"class_words": {"block": pair}}))
    with pytest.raises(MolsliceError, match="invalid class_words"):
        load_model(tmp_path / "model")


def test_the_pr_auc_is_recorded_and_printed_for_a_rare_class(smiles, tmp_path, capsys):
    rare = np.argsort(np.argsort([len(text) for text in smiles])) >= 78
    pd.DataFrame({"smiles": smiles, "y": rare.astype(int)}).to_csv(tmp_path / "a.csv", index=False)
    command = ["fit", str(tmp_path / "a.csv"), "--target", "y", "--out", str(tmp_path / "m"), "--no-encoder"]
    assert main([*command, "--members", "2", "--quiet", "--class-weight", "balanced"]) == 0
    printed = capsys.readouterr().out
    assert "PR-AUC (0.1" in printed
    assert "at random)" in printed
    about = json.loads((tmp_path / "m" / FIT).read_text())
    errors = about["results"][0]["metrics"]["pr_auc"]
    assert 0 < errors["cross_validated"] <= 1
    assert errors["standard_errors"]["cross_validated"] > 0
    assert set(errors["test"]) == {"molslice fit", "random forest", "boosting"}
    assert "PR-AUC" in (tmp_path / "m" / CARD).read_text()
    assert about["options"]["class_weight"] == "balanced"


def test_balanced_weights_change_the_model_and_keep_the_probabilities_calibrated(table, tmp_path, smiles):
    fit_table(table, "bit", tmp_path / "plain")
    fit_table(table, "bit", tmp_path / "balanced", class_weight="balanced")
    plain, balanced = (load_model(tmp_path / name).predict(smiles) for name in ("plain", "balanced"))
    assert np.abs(plain - balanced).max() > 1e-4
    assert balanced.mean() == pytest.approx(plain.mean(), abs=0.05)


def test_units_and_relations_beside_classes_are_not_used(table, tmp_path):
    rows = pd.read_csv(table)
    rows["unit"], rows["relation"] = [["nM", "uM"][row % 2] for row in range(len(rows))], ">"
    rows.to_csv(tmp_path / "t.csv", index=False)
    about = fit_table(tmp_path / "t.csv", "three", tmp_path / "model", order=THREE)
    assert [*about["targets"]["units"]] == [""]
    assert set(about["results"][0]["classes"]) == set(THREE)
    assert not any("converted" in text or "limits" in text for text in about["findings"])


def test_a_condition_that_is_the_class_in_other_words_is_refused(table, tmp_path):
    rows = pd.read_csv(table)
    rows["word"] = rows["three"].map(dict(zip(THREE, "xyz", strict=True)))
    rows.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(
        MolsliceError, match="determines the class of the target 'three' in all training rows"
    ):
        fit_table(tmp_path / "t.csv", "three", tmp_path / "model", order=THREE, conditions="word")


@pytest.mark.parametrize("word", ["nonblocker", "Non-blocker", "non blocker", "non_blocker", "not a blocker"])
def test_class_1_is_the_word_without_a_negation(word):
    result = read_classes({"y": [word, "Blocker"] * 20}, ["y"], FitOptions(), Path("a.csv"), str)
    assert result.types["y"].class_names == (word, "Blocker")
