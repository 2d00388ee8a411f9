"""The verdict of a report, and what the page says about few molecules."""

import csv
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import sklearn.metrics

from molslice.cli import main
from molslice.folders.fitted import HELD_OUT
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import load_model
from molslice.report import charts, sections
from molslice.report.measure import MeasuredModel, SplitPredictions, read_rows
from molslice.report.page import share_text
from molslice.report.verdict import ROUGH, verdicts
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error
from tests.inference.models import embedded_smiles

NUMBER, TWO = TargetType("regression"), TargetType("classification", words=("inactive", "active"))
THREE = TargetType("multiclass", SeveralClasses(("low", "medium", "high")))
ORDERED = TargetType("multiclass", SeveralClasses(("low", "medium", "high"), ordered=True))


class Model:
    """What a verdict reads of a network."""

    target_names, target_units = ("logS",), ("log mol/L",)

    def __init__(self, of_target):
        self.types = (of_target,)

    def is_logarithmic(self, target):
        return False


def measured_of(of_target, truth, predicted, name="test", molecules=None, **options):
    predicted = np.asarray(predicted, float).reshape(len(truth), -1)
    split = SplitPredictions(
        name,
        name != "train",
        len(truth),
        np.arange(len(truth)),
        np.asarray(truth, float)[:, None],
        predicted,
        [slice(0, predicted.shape[1])],
        np.arange(len(truth)) if molecules is None else molecules,
    )
    measured = MeasuredModel(cast("Any", Model(of_target)), cast("Any", None), (split,), **options)
    measured.__dict__["uncertainty"] = MolsliceError("without intervals")
    return measured


@pytest.fixture(autouse=True)
def no_trained_molecules(monkeypatch):
    monkeypatch.setattr(MeasuredModel, "trained", 0)


def verdict(*args, **options):
    (line,) = verdicts(measured_of(*args, **options))
    return line


def test_rows_of_one_molecule_make_nothing_clear():
    truth = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 0.1] * 2).repeat(20)
    predicted = truth + np.array([0.0, 0.9, 0.0, -0.3, 0.0, 0.9] * 2).repeat(20)
    assert "Not useful yet" not in verdict(NUMBER, truth, predicted)
    line = verdict(NUMBER, truth, predicted, molecules=np.arange(12).repeat(20))
    assert "Not useful yet" in line
    assert line.endswith(ROUGH)


def test_numbers_are_compared_with_their_median():
    truth = np.linspace(-4, 4, 81)
    predicted = truth + np.where(np.arange(81) % 2, 0.5, -0.5)
    line = verdict(NUMBER, truth, predicted)
    below = 1 - 0.5 / np.abs(truth).mean()
    assert line.startswith(f"logS: error 0.5000 log mol/L on 81 test molecules, {below:.0%} below ")
    assert "the error of predicting the median for all (2). Useful for ranking (rank" in line
    assert line.endswith(", but not for decisions within 0.5 log mol/L of a threshold.")
    assert "rough" not in line


def test_a_model_no_better_than_the_median_is_not_useful():
    truth = np.random.default_rng(0).normal(size=100)
    line = verdict(NUMBER, truth, np.zeros(100))
    assert "not clearly below the error of predicting the median for all" in line
    assert line.endswith(". Not useful yet.")
    assert "ranking" not in line


def test_the_ranking_is_named_by_the_rank_correlation():
    truth = np.linspace(0, 10, 2_000)
    outer = np.abs(truth - 5) > 4  # only the extremes are known
    for share, words in ((1.0, "Useful for"), (0.25, "Of little use for"), (0.1, "Not useful for")):
        known = outer & (np.random.default_rng(0).random(2_000) < share)
        assert f". {words} ranking (rank correlation " in verdict(NUMBER, truth, np.where(known, truth, 5.0))


def test_few_molecules_are_said_to_be_few():
    truth = np.arange(12.0)
    assert verdict(NUMBER, truth, truth + 0.1).endswith(
        ". There are few molecules, so these numbers are rough."
    )
    assert "rough" not in verdict(NUMBER, np.arange(50.0), np.arange(50.0) + 0.1)


def test_fewer_than_ten_molecules_have_no_verdict():
    truth = np.arange(10.0)
    assert "Useful for ranking" in verdict(NUMBER, truth, truth + 0.1)
    expected = "logS: no verdict, because the molecules with a value are too few or lack a class."
    assert verdict(NUMBER, truth[:9], truth[:9] + 0.1) == expected


def test_two_classes_are_compared_with_chance():
    generator = np.random.default_rng(2)
    truth = np.repeat([0.0, 1.0], [70, 30])
    chances = np.clip(0.35 * truth + 0.6 * generator.random(100), 0, 1)
    line = verdict(TWO, truth, chances)
    area = sklearn.metrics.roc_auc_score(truth, chances)
    assert line.startswith(f"logS: ROC-AUC {area:.2f}")
    assert (
        f"PR-AUC {sklearn.metrics.average_precision_score(truth, chances):.2f} (30.0% of molecules have"
        in line
    )
    assert " of molecules have class active). Useful for ranking. At a threshold of 0.5, " in line
    calls = chances > 0.5
    for label, name, chosen in ((1, "active", calls), (0, "inactive", ~calls)):
        right = share_text(int((truth[chosen] == label).sum()), int(chosen.sum()))
        assert f"{right} of predictions of class {name}" in line
    assert line.endswith(" of predictions of class inactive are right.")
    assert "At a threshold of 0.9, " in verdict(TWO, truth, chances, threshold=0.9)
    few = verdict(TWO, truth[::6], chances[::6])
    assert "(5 of 17 molecules have class active)." in few
    assert "predictions of class active and " in few
    assert " of predictions" not in few
    line = verdict(TWO, truth, generator.random(100))
    assert line.endswith(". Not clearly above chance (0.5); not useful yet.")


def test_several_classes_have_their_own_measures():
    truth = np.repeat([0.0, 1.0, 2.0], [20, 30, 50])
    right = np.eye(3)[truth.astype(int)] * 0.7 + 0.1
    wrong = right.copy()
    wrong[:10] = [0.1, 0.8, 0.1]
    line = verdict(THREE, truth, wrong)
    assert line.startswith("logS: macro ROC-AUC ")
    assert line.endswith(
        "The predicted class is right for 90.0% of molecules, and the most common class for 50.0% of "
        "molecules."
    )
    line = verdict(ORDERED, truth, wrong)
    assert line.startswith("logS: mean error in classes 0.1")
    median = np.abs(truth - np.median(truth)).mean()
    assert (
        f"{1 - 0.1 / median:.0%} below the error of predicting the median class for all ({median:.2g})"
        in line
    )
    assert "no verdict, because the molecules with a value are too few or lack a class" in verdict(
        THREE, truth[:20], wrong[:20]
    )


def test_learned_molecules_have_no_verdict(monkeypatch):
    truth = np.arange(60.0)
    line = verdict(NUMBER, truth, truth, name="train")
    assert line == "logS: no verdict, because the model was trained on all molecules with a value."
    other = measured_of(NUMBER, truth, truth + 1, is_own=False)
    monkeypatch.setattr(MeasuredModel, "trained", 2)
    assert "trained on at least 2 of these molecules" in verdicts(other)[0]
    monkeypatch.setattr(MeasuredModel, "trained", 6)
    expected = "logS: no verdict, because the model was trained on at least 6 of these molecules."
    assert verdicts(other) == [expected]


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """A fit of a number and two classes that was measured on held-out rows and refitted."""
    folder = tmp_path_factory.mktemp("fit")
    rows = [[text, len(text), "yes" if "N" in text else "no"] for text in embedded_smiles(120)]
    with (folder / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["smiles", "size", "amine"], *rows])
    words = ["fit", str(folder / "mine.csv"), "--target", "size", "--target", "amine", "--unit", "nm"]
    words += ["--unit", "", "--no-encoder", "--members", "2", "--quality", "fast", "--quiet"]
    assert main([*words, "--out", str(folder / "model")]) == 0
    return folder / "model"


@pytest.mark.parametrize("few", [10, 100])
def test_the_error_of_more_rows_comes_first_in_the_verdict_of_a_fit(fit, tmp_path, capsys, monkeypatch, few):
    monkeypatch.setattr("molslice.report.verdict.FEW_HELD_OUT", few)
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["report", str(fit), "--out", str(page), "--json", "--quiet"]) == 0
    lines = json.loads(capsys.readouterr().out)["verdict"]
    predictor = load_model(fit)
    assert isinstance(predictor, FittedPredictor)
    kept = read_rows(predictor, fit / HELD_OUT)
    error = float(np.abs(kept.truth[:, 0] - kept.predicted[:, 0]).mean())
    record = json.loads((fit / "fit.json").read_text())["results"][0]
    assert record["test"]["molslice fit"] == pytest.approx(error)
    spreads = record["standard_errors"]
    held_out = f"{rounded_error(error, spreads['test']['molslice fit'])} nm"
    cross_validated = f"{rounded_error(record['cross_validated'], spreads['cross_validated'])} nm"
    if few > len(kept.truth):
        assert lines[0].startswith(f"size: error {cross_validated} on 120 cross-validated molecules, ")
        assert lines[0].endswith(f" The error on {len(kept.truth)} held-out molecules is {held_out}.")
        assert "rough" not in lines[0]
    else:
        assert lines[0].startswith(f"size: error {held_out} on {len(kept.truth)} held-out molecules, ")
        assert lines[0].endswith(
            f" There are few molecules, so these numbers are rough. The cross-validated error is "
            f"{cross_validated}."
        )
    text = page.read_text()
    assert all(f"<p>{line}</p>" in text for line in lines)
    assert text.index(lines[0]) < text.index("Sections")  # at the top
    assert lines[1].startswith("size: 90% intervals are ")
    assert lines[1].endswith(" nm wide on average.")
    assert "error against the width of the 90% interval; rank correlation" in text
    assert "The intervals and sets of these rows are computed from the out-of-fold" in text
    assert "ROC on cross-validated molecules; the dot is a threshold of 0.5." in text
    assert "Other thresholds of the probability of" in text


def test_drawings_have_a_dark_form(fit, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", str(fit), "--out", str(page), "--quiet"]) == 0
    text = page.read_text()
    light, dark = (text.count(f'<div class="{scheme}"><svg') for scheme in ("light", "dark"))
    assert light == dark >= 12
    start = text.index('<div class="dark"><svg')
    drawing = text[start : text.index("</svg>", start)]
    assert "#E5E5E5" in drawing  # of bonds
    assert "<rect" not in drawing  # no ground
    assert "#000000" not in drawing


def test_a_threshold_needs_two_classes(fit, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", str(fit), "--out", str(page), "--threshold", "0.2", "--quiet"]) == 0
    assert "the dot is a threshold of 0.2." in page.read_text()
    assert "amine above" not in page.read_text()
    assert main(["report", "gap-xtb", "--out", str(page), "--threshold", "0.2", "--quiet"]) == 1
    assert "a threshold is for targets of two classes; gap-xtb has none" in capsys.readouterr().err
    assert main(["report", str(fit), "--threshold", "1.5"]) == 2


def test_the_threshold_decides_the_confusion_matrix():
    truth, chances = np.repeat([0.0, 1.0], 40), np.linspace(0.0, 1.0, 80)
    for threshold in (0.25, 0.5):
        measured = measured_of(TWO, truth, chances, threshold=threshold)
        page = sections.predictions(measured)
        counts = sklearn.metrics.confusion_matrix(truth, chances > threshold)
        row = "".join(f"<td>{count}</td>" for count in counts[1])
        assert f"active above a probability of {threshold:g}" in page
        assert f'<th scope="row">active</th>{row}' in page


def test_curves_of_classes_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    is_class, chances = generator.random(60) < 0.3, generator.integers(0, 8, 60) / 8
    right, wrong = charts.operating_points(is_class, chances)
    false, true, _ = sklearn.metrics.roc_curve(is_class, chances, drop_intermediate=False)
    assert (right / right[-1]).tolist() == pytest.approx(true.tolist())
    assert (wrong / wrong[-1]).tolist() == pytest.approx(false.tolist())
    precision, recall, _ = sklearn.metrics.precision_recall_curve(is_class, chances)
    assert (right[1:] / (right + wrong)[1:]).tolist() == pytest.approx(precision[-2::-1].tolist())
    assert (right[1:] / right[-1]).tolist() == pytest.approx(recall[-2::-1].tolist())


def test_shares_of_few_molecules_are_counts():
    assert share_text(3, 4) == "3 of 4"
    assert share_text(19, 19) == "19 of 19"
    assert share_text(5, 20) == "25.0%"
    assert share_text(0, 0) == "-"
    truth = np.repeat([0.0, 1.0], [30, 5])
    measured = measured_of(TWO, truth, truth * 0.9)
    page = sections.predictions(replace(measured))
    assert "<td>5 of 5</td>" in page
    assert "<td>100.0%</td>" in page
