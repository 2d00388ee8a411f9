"""What is explained of a fitted model is what it predicts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from molslice import explain, fit, load_model
from molslice.cli import main
from molslice.explanation.explain import METHODS, Explainer
from molslice.inference.fitted import FittedPredictor
from molslice.inference.predictions import NOT_FINITE
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_interval
from tests.explanation.test_sanity import ENDS, NITRO, RINGS

SAVED = Path(__file__).parents[1] / "saved_models"
SMILES = [ring.format(end) for ring in RINGS for end in ENDS]
COUNTS = [float(smiles.count(NITRO)) for smiles in SMILES]
SHOWN = f"CCOC(=O)c1cc(Cl)cc({NITRO})c1"  # whose nitro group has the atoms 11 to 13
GIVEN = {"solvent": "CCO", "temperature": "300", "species": "rat"}


def fit_to(folder, values, **more):
    """Fit a small model to values of `SMILES`."""
    rows = "".join(f"{smiles},{value}\n" for smiles, value in zip(SMILES, values, strict=True))
    folder.mkdir()
    (folder / "measured.csv").write_text("smiles,count\n" + rows)
    options = {"members": 2, "encoder": None, "quality": "fast", "split": "all", "quiet": True}
    fit(folder / "measured.csv", "count", folder / "model", outliers="keep", **options, **more)
    return load_model(folder / "model")


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """Return a model that was fitted to the number of nitro groups."""
    return fit_to(tmp_path_factory.mktemp("counting") / "nitro", COUNTS, kind="regression")


@pytest.mark.parametrize("name", ["fit", "fit_log", "fit_encoder", "fit_networks", "fit_pairs"])
def test_the_sum_is_the_prediction(name):
    predictor = load_model(SAVED / name)
    conditions = GIVEN if name == "fit_pairs" else None
    predicted = float(predictor.predict(["OCc1ccncc1"], conditions=conditions)[0])
    explanation = explain(predictor, "OCc1ccncc1", conditions=conditions)
    total = explanation.baseline + explanation.values.sum()
    if predictor.targets.kind == "classification":
        assert explanation.unit == "log-odds"
        total = 1.0 / (1.0 + np.exp(-total))
        assert explanation.probability == pytest.approx(predicted, abs=1e-6)
    if name == "fit_log":
        assert explanation.unit == "log10(mg)"
        total = 10.0**total
    assert total == pytest.approx(predicted, abs=1e-5)
    assert explanation.headline.value == predicted
    assert (explanation.method, explanation.note, explanation.warning) == ("shapley", "", "")
    assert explanation.values[2:5] == pytest.approx(explanation.values[[2, 7, 6]])  # the ring may be mirrored


def test_the_headline_is_the_prediction_with_its_interval(tmp_path):
    predictor = load_model(SAVED / "fit_log")
    predicted = predictor.predict_with_errors(["CCO"], interval=0.9)
    explanation = explain(predictor, "CCO")
    low, high = predicted.lower[0, 0], predicted.upper[0, 0]
    value, lower, upper = rounded_interval(*map(float, (predicted.values[0, 0], low, high)))
    assert str(explanation.headline) == f"dose: {value} mg (90%: {lower} to {upper})"
    assert explanation.equation.startswith(
        f"{explanation.prediction:.4g} log10(mg) = {explanation.baseline:.4g} for the"
    )
    fields = explanation.to_dict()["headline"]
    assert (fields["value"], fields["unit"]) == (predicted.values[0, 0], "mg")
    assert fields["interval"] == {"level": 0.9, "lower": low, "upper": high}
    assert str(replace(explanation.headline, interval=(-np.inf, 2.0))).endswith("(90%: unlimited to 2.00)")
    classes = explain(SAVED / "fit_encoder", "CCO")
    assert str(classes.headline) == f"wide, probability of class 1: {classes.headline.value:.4g}"


def test_a_counted_group_gets_its_weight(counting):
    explanation = Explainer(counting)(SHOWN)
    atoms = [11, 12, 13]
    assert "".join(explanation.elements[atom] for atom in atoms) == "NOO"
    assert explanation.values[atoms].sum() == pytest.approx(1, abs=0.3)
    assert np.abs(np.delete(explanation.values, atoms)).max() < 0.1
    assert explanation.values[0] == explanation.values[1] == 0  # saturated carbons
    without = Explainer(counting)("CCOC(=O)c1cccc(Cl)c1")
    assert np.abs(without.values).max() < 0.15


def test_random_values_have_another_picture(counting, tmp_path):
    values = np.random.default_rng(0).permutation(COUNTS)
    shuffled = fit_to(tmp_path / "shuffled", values, kind="regression")
    before, after = (Explainer(model)(SHOWN).values for model in (counting, shuffled))
    assert abs(after[[11, 12, 13]].sum()) < 0.3
    assert spearmanr(before, after).statistic < 0.8


def test_classes_of_numbers_and_of_two_classes_are_refused(counting):
    with pytest.raises(MolsliceError, match="count is a number and has no class 'high'"):
        explain(counting, "CCO", class_name="high")
    two = load_model(SAVED / "fit")
    if two.targets.kind == "classification":
        with pytest.raises(MolsliceError, match="has two classes, whose contributions differ by their sign"):
            explain(two, "CCO", class_name=two.types[0].class_names[0])


def test_classes_have_log_odds_that_favor_the_group(tmp_path):
    words = ["toxic" if NITRO in smiles else "safe" for smiles in SMILES]
    model = fit_to(tmp_path / "words", words, positive="toxic")
    explanation = Explainer(model)(SHOWN)
    predicted = float(model.predict([SHOWN])[0])
    assert str(explanation.headline) == f"count, probability of 'toxic': {predicted:.4g}"
    assert np.argmax(explanation.values) in (11, 12, 13)


def test_equal_atoms_have_equal_values_and_the_error_is_told(counting, monkeypatch):
    for exact in (True, False):
        monkeypatch.setattr("molslice.explanation.shapley.EXACT_PLAYERS", 11 if exact else 0)
        explanation = Explainer(counting, max_evaluations=2_000 if exact else 200)(
            "OCCN(CCO)c1cc(Cl)ncc1C(=O)N(CCF)CCF"
        )
        assert explanation.values.sum() == pytest.approx(
            explanation.prediction - explanation.baseline, abs=1e-6
        )
        assert (explanation.largest_standard_error == 0) == exact
        error = 4 * explanation.largest_standard_error + 1e-9
        assert explanation.values[0] == pytest.approx(explanation.values[6], abs=error)
        assert explanation.values[-1] == pytest.approx(explanation.values[-4], abs=error)
        shared = {tuple(group) for group in explanation.groups if len(group) > 1}
        assert shared == {(7, 8, 9, 12, 13), (14, 15)}
        assert explanation.to_dict()["atoms"][14]["group"] == explanation.to_dict()["atoms"][15]["group"]


def test_a_molecule_is_predicted_once_for_all_choices_that_look_the_same(counting, monkeypatch):
    asked, predict = [], FittedPredictor.predict_molecules

    def count(self, molecules, *options):
        asked.extend(molecules.canonical)
        return predict(self, molecules, *options)

    monkeypatch.setattr(FittedPredictor, "predict_molecules", count)
    explanation = Explainer(counting)("Oc1ccncc1")
    assert explanation.evaluations == len(asked) - 1 < 2**3  # the first is the headline
    assert len(set(asked[1:])) == len(asked) - 1


def test_networks_are_shown_alone_by_gradients_unless_their_weight_is_small():
    explanation = explain(SAVED / "fit_networks", "OC=CF", method="gradients")
    assert explanation.note == "the fine-tuned networks alone, which have the weight 0.26 in the prediction"
    assert explanation.headline.value == pytest.approx(
        float(load_model(SAVED / "fit_networks").predict("OC=CF")[0])
    )
    with pytest.raises(MolsliceError, match="fit has no fine-tuned networks; use the method shapley"):
        explain(SAVED / "fit", "CCO", method="gradients")


def test_a_prediction_that_is_not_finite_is_the_reason(monkeypatch):
    def infinite(self, molecules, *, needs_spread):
        return np.full((2, self.num_members, len(molecules), 1), np.inf)

    monkeypatch.setattr(FittedPredictor, "member_predictions", infinite)
    with pytest.raises(MolsliceError, match=f"^{NOT_FINITE}$"):
        explain(SAVED / "fit", "CCO")


@pytest.mark.parametrize("method", METHODS)
def test_conditions_that_the_model_does_not_take_are_refused(method):
    with pytest.raises(MolsliceError, match="gap-xtb takes no conditions, got temperature"):
        explain("gap-xtb", "CCO", method=method, conditions={"temperature": 300})


def test_the_shell_takes_conditions_of_molecules_and_of_files(tmp_path, capsys):
    model = str(SAVED / "fit_pairs")
    words = [word for name, value in GIVEN.items() for word in ("--condition", f"{name}={value}")]
    assert main(["explain", model, "--smiles", "CCO", "--json", *words]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["explanations"]
    assert listed["prediction"] == pytest.approx(explain(model, "CCO", conditions=GIVEN).prediction)
    (tmp_path / "in.csv").write_text("smiles,solvent,temperature,species\nCCO,CCO,300,rat\nCCO,O,300,dog\n")
    smiles = ["--smiles-column", "smiles"]
    out = tmp_path / "out"
    assert main(["explain", model, "--input", str(tmp_path / "in.csv"), "--out", str(out), *smiles]) == 0
    rows = [json.loads(line) for line in (out / "explanations.jsonl").read_text().splitlines()]
    assert rows[0]["prediction"] == pytest.approx(listed["prediction"])
    assert rows[1]["prediction"] != rows[0]["prediction"]
    capsys.readouterr()
    assert main(["explain", model, "--smiles", "CCO"]) == 1
    assert "takes the conditions temperature, species, solvent" in capsys.readouterr().err


def test_the_table_has_the_prediction_and_the_sum(counting, capsys):
    assert main(["explain", str(counting.folder), "--smiles", "CC[N+](=O)[O-]"]) == 0
    lines = capsys.readouterr().out.splitlines()
    explanation = Explainer(counting)("CC[N+](=O)[O-]")
    assert lines[:2] == ["CC[N+](=O)[O-]", str(explanation.headline)]
    assert lines[2].startswith(
        f"= {explanation.baseline:.4g} for the saturated hydrocarbon with this skeleton"
    )
    assert main(["explain", str(counting.folder), "--smiles", "c1cc"]) == 1
    assert "cannot read the SMILES 'c1cc': not valid SMILES" in capsys.readouterr().err
