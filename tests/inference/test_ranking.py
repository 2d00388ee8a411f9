"""Goals, the order of molecules, the diverse choice, and `molslice rank`."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import molslice
from molslice.chem.neighbors import CountIndex, describe
from molslice.cli import main
from molslice.data.molecules.conditions import Conditioned
from molslice.fitting.fit import fit
from molslice.inference.goals import models_of, read_goals
from molslice.inference.load import load_model
from molslice.inference.ranking import Ranker, choose_diverse, describe_row, rank
from molslice.inference.tables.ranked import rank_table
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

SAVED = Path(__file__).parents[1] / "saved_models"
NAMES, UNITS = ("logS", "log > x", "toxic", "grade"), ("log mol/L", "", "", "")
TYPES = (
    TargetType("regression"),
    TargetType("regression"),
    TargetType("classification", words=("no", "yes")),
    TargetType("multiclass", SeveralClasses(("low", "mid", "top"))),
)
GAP = "homolumogap < 3"


def read(*texts):
    return read_goals(texts, NAMES, UNITS, TYPES)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("logS > -4", (-4, np.inf)),
        ("logS [log mol/L] > -4", (-4, np.inf)),
        ("-4 < logS (log mol/L) < 1 log mol/L", (-4, 1)),
        ("logS>=-4", (-4, np.inf)),
        (" logS ≤ −4 log mol/L ", (-np.inf, -4)),  # noqa: RUF001
        ("-1 < logS < 3e0", (-1, 3)),
        ("3 >= logS > -1", (-1, 3)),
        ("1 < log > x < 2", (1, 2)),
        ("log > x > 2", (2, np.inf)),
        ("-2 < logS", (-2, np.inf)),
        ("-2 log mol/L>=logS", (-np.inf, -2)),
        ("1 < log > x", (1, np.inf)),
    ],
)
def test_goals_of_numbers(text, limits):
    (goal,) = read(text)
    assert (goal.lower, goal.upper) == limits
    assert goal.target == ("log > x" if "x" in text else "logS")


def test_goals_of_classes():
    toxic, grade = read("toxic = no", "grade==top")
    assert (toxic.label, toxic.class_name, toxic.column, toxic.has_several) == (0, "no", 2, False)
    assert (grade.label, grade.class_name, grade.column, grade.has_several) == (2, "top", 3, True)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["logD > 1"], "no target 'logD'; did you mean 'logS'"),
        (["logS"], "give a target and a limit or class"),
        (["logS = 1"], "logS is a number; give a limit"),
        (["3 < logS < 1"], "no number is in this range"),
        (["1 < logS > 1"], "no number is in this range"),
        (["low < logS"], "the limit of logS is a number in log mol/L, got 'low'"),
        (["logS > low"], "the limit of logS is a number in log mol/L, got 'low'"),
        (["logS > nan"], "is a number"),
        (["logS > 1_0"], "is a number"),
        (["logS > 1 uM"], "is a number in log mol/L"),
        (["toxic > 0"], "toxic has classes; give one"),
        (["toxic = maybe"], "toxic has no class 'maybe'; choices: no, yes"),
        (["logS > 1", "logS < 2"], "'logS' has two goals"),
        ([], "no goal is given"),
        ([3], "invalid goal 3"),
    ],
)
def test_goals_that_are_refused(texts, reason):
    with pytest.raises(MolsliceError, match=reason):
        read(*texts)


@pytest.fixture(scope="module")
def smiles():
    return embedded_smiles(60)


@pytest.fixture(scope="module")
def gap():
    return load_model("gap-xtb")


def test_probability_comes_first_and_agrees_with_the_intervals(gap, smiles):
    ranking = rank(gap, [*smiles, "nonsense"], GAP, interval=0.9)
    probability, found = ranking.scores.probability, ranking.predictions
    assert len(ranking.order) == 60
    assert np.isnan(probability[60])
    assert (np.diff(probability[ranking.order]) <= 0).all()
    upper, lower = found.upper[:60, 0], found.lower[:60, 0]
    assert (probability[:60][upper < 3] >= 0.95 - 1e-6).all()
    assert (probability[:60][lower > 3] <= 0.05 + 1e-6).all()
    between = (lower < 3) & (upper > 3)
    assert ((probability[:60][between] > 0.049) & (probability[:60][between] < 0.951)).all()
    assert 0 < between.sum() < 60
    plain = gap.predict(smiles)
    np.testing.assert_array_equal(found.values[:60, 0], plain)
    assert rank(gap, smiles, GAP, top=5).order.tolist() == ranking.order[:5].tolist()


def test_molecules_of_equal_probability_are_ordered_by_value(gap, smiles):
    ranking = rank(gap, smiles, "homolumogap < 1000")
    assert len({*ranking.scores.probability}) == 1
    assert (np.diff(ranking.predictions.values[ranking.order, 0]) >= 0).all()


@pytest.mark.parametrize(("goal", "sign"), [("homolumogap < 3", -1), ("homolumogap > 3", 1)])
def test_other_orders(gap, smiles, goal, sign):
    by_value = rank(gap, smiles, goal, by="value")
    values = sign * by_value.predictions.values[by_value.order, 0]
    assert (np.diff(values) <= 0).all()
    improved = rank(gap, smiles, goal, by="improvement").scores
    assert (improved.improvements >= 0).all()
    assert (improved.improvements > 0).any() == (sign < 0)  # no molecule is near the largest measured gap
    first = rank(gap, smiles, goal, by="improvement", top=1).order
    assert first == by_value.order[0]
    widths = rank("solubility", smiles[:9], "log_solubility > 1", by="uncertainty")
    sizes = (widths.predictions.upper - widths.predictions.lower)[widths.order, 0]
    assert (np.diff(sizes) <= 0).all()
    assert sizes[0] > sizes[-1]


@pytest.fixture(scope="module")
def mixed(smiles, few_trees, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    length = np.array([len(text) for text in smiles])
    third = np.searchsorted(np.quantile(length, [0.33, 0.67]), length)
    columns = {
        "size": length + 0.5,
        "long": np.where(length > np.median(length), "long", "short"),
        "shape": np.array(["a", "b", "c"])[third],
    }
    pd.DataFrame({"smiles": smiles, **columns}).to_csv(folder / "table.csv", index=False)
    fit(folder / "table.csv", [*columns], folder / "model", members=3, encoder=None, refit=False, quiet=True)
    return load_model(folder / "model")


def test_several_goals_multiply_their_probabilities(mixed, smiles):
    goals = ["size > 30", "long = short", "shape = c"]
    ranking = rank(mixed, smiles, goals, interval=0.5)
    of_goals, found = ranking.scores.probabilities, ranking.predictions
    np.testing.assert_allclose(ranking.scores.probability, of_goals[:, 0] * of_goals[:, 1] * of_goals[:, 2])
    np.testing.assert_array_equal(of_goals[:, 1], found.calibrated[:, 1])
    np.testing.assert_array_equal(of_goals[:, 2], found.values[:, 4])
    other = rank(mixed, smiles, ["long = long"], interval=0.5)
    np.testing.assert_allclose(other.scores.probability, 1 - of_goals[:, 1])
    unsure = rank(mixed, smiles, "long = long", by="uncertainty", interval=0.5)
    nearness = np.abs(other.scores.probability[unsure.order] - 0.5)
    assert (np.diff(nearness) >= -1e-12).all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"by": "best"}, "invalid order 'best'"),
        ({"by": "value", "goal": "1 < homolumogap < 3"}, "needs a goal with one limit"),
        ({"top": 3, "diverse": 3}, "top and diverse are both given"),
        ({"diverse": 0}, "invalid diverse 0"),
        ({"interval": 2}, "invalid interval 2"),
    ],
)
def test_options_that_are_refused(gap, options, reason):
    with pytest.raises(MolsliceError, match=reason):
        rank(gap, ["CCO"], **{"goal": GAP, **options})


def test_a_model_without_held_out_rows_is_refused():
    with pytest.raises(MolsliceError, match=r"has no calibration.json"):
        rank(SAVED / "gap_xtb_4x64", ["CCO"], GAP)


def test_a_diverse_choice_is_the_greedy_one(smiles):
    described = [describe(text) for text in [*smiles, smiles[0], smiles[3]]]
    weights = np.sort(np.random.default_rng(0).uniform(0, 1, len(described)))[::-1]
    places, similarities = choose_diverse(
        weights, lambda row: (described[row].smiles, described[row].counts), 12
    )
    index = CountIndex.from_counts(np.stack([one.counts for one in described]))
    chosen, nearest = [], np.zeros(len(described))
    for _ in range(12):
        products = weights * (1 - nearest)
        products[chosen] = -1
        chosen.append(int(products.argmax()))
        assert similarities[len(chosen) - 1] == pytest.approx(nearest[chosen[-1]])
        nearest = np.maximum(nearest, index.similarities(described[chosen[-1]].counts))
    assert places.tolist() == chosen
    assert chosen != [*range(12)]


def test_a_diverse_choice_has_each_molecule_once_and_no_training_molecule(gap):
    trained = load_model("gap-xtb").find_domain().smiles[:3]
    molecules = [*trained, "CCO", "OCC", "CCCCCCCCN"]
    ranking = rank(gap, molecules, "homolumogap > 1", diverse=10)
    assert sorted(ranking.order) == [3, 5] or sorted(ranking.order) == [5]
    assert ranking.scores.is_trained[:3].all()
    assert len(rank(gap, molecules, "homolumogap > 1").order) == 6


@pytest.fixture
def library(smiles, tmp_path):
    file = tmp_path / "library.csv"
    rows = [*((f"m{row}", text) for row, text in enumerate(smiles)), ("bad", "C1CC"), ("metal", "[Hg]")]
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([("name", "smiles"), *rows])
    return file


def read_rows(file):
    with file.open(newline="") as stream:
        return [*csv.DictReader(stream)]


def test_a_table_has_the_order_of_the_list(gap, smiles, library, tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.inference.tables.ranked.ROWS_AT_ONCE", 7)
    monkeypatch.setattr(type(gap), "chunk_rows", 16)
    ranking = rank(gap, [*smiles, "C1CC", "[Hg]"], GAP)
    out = tmp_path / "out.csv"
    ranked = rank_table(Ranker(gap, GAP), [library], out, listed=2)
    rows = read_rows(out)
    names = [f"m{row}" if row < 60 else "metal" for row in ranking.order]
    assert [row["name"] for row in rows] == [*names, "bad"]
    assert rows[-1]["error"]
    assert {row["error"] for row in rows[:-1]} == {""}
    np.testing.assert_allclose(
        [float(row["probability"]) for row in rows[:-1]], ranking.scores.probability[ranking.order], rtol=1e-6
    )
    assert [one.cells["name"] for one in ranked.best] == names[:2]
    assert ranked.report.failed == 1
    inside = rank_table(Ranker(gap, GAP, in_domain=True), [library], out)
    assert inside.outside > 0
    assert {row["domain"] for row in read_rows(out)} <= {"like the training molecules", "at the edge", ""}
    assert inside.ranked + inside.outside == 61
    diverse = rank_table(Ranker(gap, GAP), [library], out, diverse=5)
    chosen = rank(gap, [*smiles, "C1CC", "[Hg]"], GAP, diverse=5)
    rows = read_rows(out)
    assert [row["name"] for row in rows] == [f"m{row}" for row in chosen.order]
    np.testing.assert_allclose(
        [float(row["similarity_before"]) for row in rows], chosen.similarities, rtol=1e-6
    )
    assert diverse.report.columns[-1] == "in_training"


def test_values_of_json_stay_values(tmp_path):
    file, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    rows = [{"smiles": "CCO", "n": 1, "more": {"a": [1, 2]}, "text": None}, {"smiles": "CC", "text": "1"}]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert (
        main(["rank", "gap-xtb", "--input", str(file), "--goal", "homolumogap > 5", "--output", str(out)])
        == 0
    )
    ranked = {row["smiles"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert [ranked["CCO"][name] for name in ("n", "more", "text")] == [1, {"a": [1, 2]}, None]
    assert [ranked["CC"][name] for name in ("n", "more", "text")] == [None, None, "1"]


def test_the_command(library, tmp_path, capsys):
    words = ["rank", "gap-xtb", "--input", str(library), "--goal", GAP]
    assert main([*words, "--diverse", "4"]) == 0
    captured = capsys.readouterr()
    header, *lines = captured.out.splitlines()
    assert header.split()[:5] == ["row", "name", "SMILES", "homolumogap", "[eV]"]
    assert len(lines) == 4
    assert "by probability of homolumogap < 3" in captured.err
    assert "1 failed" in captured.err
    assert main([*words, "--top", "3", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["goals"][0] == {
        "goal": GAP, "target": "homolumogap", "unit": "eV", "lower": None, "upper": 3.0, "class": None
    }  # fmt: skip
    assert [entry["rank"] for entry in result["best"]] == [1, 2, 3]
    assert (result["rows"], result["ranked"], result["failed"]) == (62, 3, 1)
    assert result["asked"] == 3
    out = tmp_path / "ranked.jsonl"
    assert main([*words, "--output", str(out), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == []
    first = json.loads(out.read_text().splitlines()[0])
    assert first["name"] == result["best"][0]["cells"]["name"]
    assert isinstance(first["in_training"], bool)
    assert (
        main(["rank", "gap-xtb", "--smiles", "CCO", "c1ccccc1", "x", "--goal", GAP, "--json", "--quiet"]) == 0
    )
    listed = json.loads(capsys.readouterr().out)
    assert [entry["smiles"] for entry in listed["best"]] == ["c1ccccc1", "CCO"]
    assert listed["asked"] is None


@pytest.mark.parametrize("option", ["--top", "--diverse"])
def test_a_number_beyond_the_molecules_is_named(option, capsys):
    words = ["rank", "gap-xtb", "--smiles", "CCO", "c1ccccc1", "x", "--goal", GAP]
    assert main([*words, option, "500"]) == 0
    warning = f"molslice: warning: {option} 500: there are only 2 molecules to choose from\n"
    assert warning in capsys.readouterr().err
    assert main([*words, option, "500", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "warning" not in captured.err
    result = json.loads(captured.out)
    assert (result["asked"], result["ranked"]) == (500, 2)
    assert main([*words, option, "2"]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--goal", "gap < 3"], 1, "the model has no target 'gap'"),
        (["--goal", GAP, "--goal", "homolumogap > 1"], 1, "has two goals"),
        (["--goal", GAP, "--top", "2", "--diverse", "2"], 2, "not allowed with"),
        (["--goal", GAP, "--strict", "--output", "OUT"], 1, "is not written"),
        (["--goal", GAP, "--output", "LIBRARY"], 1, "the output would replace the input"),
        (["--goal", GAP, "--condition", "a=1"], 2, "--condition needs --smiles"),
        ([], 2, "--goal"),
    ],
)
def test_wrong_commands(library, tmp_path, capsys, more, code, message):
    out = tmp_path / "out.csv"
    more = [{"OUT": str(out), "LIBRARY": str(library)}.get(word, word) for word in more]
    assert main(["rank", "gap-xtb", "--input", str(library), *more]) == code
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_no_molecule_is_left(tmp_path, capsys):
    words = ["rank", "gap-xtb", "--goal", GAP, "--in-domain", "--smiles", "[Hg]"]
    assert main(words) == 1
    assert "none of the 1 molecules is left; left out: 1 outside the domain" in capsys.readouterr().err
    empty = tmp_path / "empty.csv"
    empty.write_text("smiles\n")
    assert (
        main(["rank", "gap-xtb", "--goal", GAP, "--input", str(empty), "--output", str(tmp_path / "o.csv")])
        == 0
    )
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 1


def test_pairs_and_conditions_are_ranked_too(capsys):
    words = ["rank", str(SAVED / "fit_pairs"), "--goal", "gap > 2", "--diverse", "2", "--json"]
    conditions = {"temperature": "300", "species": "rat", "solvent": "O"}
    for name, value in conditions.items():
        words += ["--condition", f"{name}={value}"]
    code = main([*words, "--interval", "0.5", "--smiles", "CCO", "c1ccccc1", "CCO"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert len(result["best"]) == 2
    assert result["in_training"] is None


PAIRS = [("CCO", "O"), ("OCC", "[OH2]"), ("O", "CCO"), ("CCO", "c1ccccc1"), ("c1ccccc1", "CCO")]


@pytest.mark.parametrize(("symmetric", "distinct"), [(False, [0, 2, 3, 4]), (True, [0, 3])])
def test_a_pair_is_chosen_once(symmetric, distinct, monkeypatch):
    model = load_model(SAVED / "fit_pairs")
    monkeypatch.setattr(model, "symmetric", symmetric)
    first, second = zip(*PAIRS, strict=True)
    conditions = {"temperature": "300", "species": "rat", "solvent": second}
    ranking = rank(model, first, "gap > 2", diverse=9, interval=0.5, conditions=conditions)
    of_kind = {0: 0, 1: 0, 2: 0 if symmetric else 2, 3: 3, 4: 3 if symmetric else 4}
    assert sorted(of_kind[row] for row in ranking.order.tolist()) == distinct


def test_both_molecules_of_a_pair_are_compared(monkeypatch):
    model = load_model(SAVED / "fit_pairs")
    monkeypatch.setattr(model, "symmetric", False)
    molecules = {text: describe(text) for text in ("CCO", "c1ccccc1", "CCCN")}

    def counts_of(first, second):
        return describe_row(model, Conditioned(first, (300.0, 0.0), second))[1]

    forward, backward = counts_of("CCO", "CCCN"), counts_of("CCCN", "CCO")
    assert forward.tolist() == [*molecules["CCO"].counts, *molecules["CCCN"].counts]
    assert backward.tolist() == [*molecules["CCCN"].counts, *molecules["CCO"].counts]
    pairs = [("CCO", "CCCN"), ("CCO", "c1ccccc1"), ("CCCN", "CCO")]
    rows = [Conditioned(first, (300.0, 0.0), second) for first, second in pairs]
    _, similarities = choose_diverse(np.ones(3), lambda place: describe_row(model, rows[place]), 3)
    assert 0.0 < similarities.max() < 1.0  # the second molecules differ
    monkeypatch.setattr(model, "symmetric", True)
    assert describe_row(model, rows[0])[0] == describe_row(model, rows[2])[0]
    np.testing.assert_array_equal(counts_of("CCO", "CCCN"), counts_of("CCCN", "CCO"))
    assert counts_of("C" * 200, "C" * 200).max() > 255


def test_a_single_molecule_is_described_as_before(gap):
    name, counts = describe_row(gap, "OCC")
    assert name == "CCO"
    assert counts.dtype == np.uint8
    np.testing.assert_array_equal(counts, describe("CCO").counts)


def test_it_is_in_the_package():
    assert molslice.rank is rank


def test_a_goal_in_another_unit_than_the_model_is_refused():
    with pytest.raises(MolsliceError, match=r"no target 'logS \[g/L\]'"):
        read("logS [g/L] > 4")


def test_the_best_measured_value_is_of_all_rows_that_the_model_keeps(gap, monkeypatch):
    calibration, domain = gap.find_calibration(), gap.known_domain()
    held_out = calibration.targets[0].truth.max()
    kept = domain.values[:, 0].copy()
    kept[0] = held_out + 1.0
    monkeypatch.setattr(domain, "values", kept[:, None])
    scores = rank(gap, ["CC", "CCC"], "homolumogap > 3", by="improvement").scores.improvements
    predictions = gap.predict_with_errors(["CC", "CCC"], options=gap.find_options(0.9))
    models, difficulty = models_of(predictions)
    expected = calibration.expected_improvements("homolumogap", models - 1.0, difficulty, 1)
    assert (expected > 0).any()
    np.testing.assert_allclose(scores, expected, rtol=1e-3)


def test_limits_are_no_training_values_of_a_goal(smiles, tmp_path):
    most = int(np.median([len(text) for text in smiles]))
    rows = [[text, f">{most}" if len(text) > most else str(len(text))] for text in smiles]
    pd.DataFrame(rows, columns=["smiles", "size"]).to_csv(tmp_path / "a.csv", index=False)
    fit(tmp_path / "a.csv", "size", tmp_path / "model", members=2, encoder=None, quality="fast", quiet=True)
    (note,) = Ranker(load_model(tmp_path / "model"), f"size > {most + 1}").notes
    assert note.startswith(f"no exact training value meets size > {most + 1}; they are from ")
    assert Ranker(load_model(tmp_path / "model"), f"size > {most - 5}").notes == []


def test_a_published_fit_has_no_domain(smiles, tmp_path):
    pd.DataFrame({"smiles": smiles, "size": [len(text) for text in smiles]}).to_csv(tmp_path / "a.csv")
    fit(tmp_path / "a.csv", "size", tmp_path / "m", members=2, encoder=None, quality="fast", quiet=True)
    for name in ("rows.csv", "domain.json", "domain.safetensors"):
        (tmp_path / "m" / name).unlink(missing_ok=True)
    with pytest.raises(MolsliceError, match=r"m has no rows\.csv, the training molecules to compare with"):
        rank(tmp_path / "m", ["CC"], "size > 3", in_domain=True)


def test_a_goal_that_no_training_value_meets_is_named(capsys):
    words = ["rank", "solubility", "--smiles", "CCO", "--goal"]
    assert main([*words, "log_solubility > 200"]) == 0
    note = "molslice: no training value meets log_solubility > 200; they are from -1 to 2.179 log ug/mL\n"
    assert note in capsys.readouterr().err
    assert main([*words, "log_solubility > 2"]) == 0
    assert "no training value" not in capsys.readouterr().err
    assert main([*words, "log_solubility > 200", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["notes"]
    assert note == f"molslice: {said}\n"
