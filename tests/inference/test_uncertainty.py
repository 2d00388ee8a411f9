"""Coverage, width and ranking of intervals on held-out rows."""

import copy
import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from molslice.chem.scaffold import scaffolds
from molslice.cli import main
from molslice.data import build_dataset
from molslice.fitting.fit import fit
from molslice.inference import groups
from molslice.inference.load import load_model
from molslice.inference.predictions import NOT_FINITE
from molslice.inference.uncertainty import (
    error_text,
    evaluate_uncertainty,
    rank_texts,
    score_intervals,
    score_sets,
    size_label,
    size_text,
)
from molslice.inference.uncertainty_figure import draw_uncertainty, write_uncertainty
from molslice.number_text import format_metric
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")
OF_TARGETS = ("names", "units", "mean", "std")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A fit to two numbers, one of them with missing values, and a fit to a class."""
    place = tmp_path_factory.mktemp("fits")
    generator, file = np.random.default_rng(0), place / "measured.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size", "half", "big", "split"])
        for row, text in enumerate(embedded_smiles(200)):
            size = len(text) + generator.normal(0, 4)
            half = size * 2 if row % 3 else ""
            writer.writerow([text, size, half, int(size > 38), "test" if row % 2 else "train"])
    fit(file, ["size", "half"], place / "numbers", split="split", members=3, encoder=None, quiet=True)
    fit(file, "big", place / "classes", split="split", members=3, encoder=None, quiet=True)
    return place


def load(folder):
    model = load_model(folder)
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    dataset.target_names = model.target_names
    return model, dataset


@pytest.fixture(scope="module")
def numbers(folders):
    model, dataset = load(folders / "numbers")
    return model, dataset, evaluate_uncertainty(model, dataset)


def held_out(dataset):
    rows, smiles = dataset.rows("test"), dataset.smiles()
    return np.asarray(dataset.targets)[rows].astype(float), [smiles[row] for row in rows], rows


def test_coverage_and_width_are_those_of_the_predicted_intervals(numbers):
    model, dataset, result = numbers
    truth, smiles, _ = held_out(dataset)
    assert result["rows"] == 100
    for index, target in enumerate(result["targets"]):
        known = np.isfinite(truth[:, index])
        assert target["count"] == known.sum()
        # the target with missing values has 66 rows of 100
        assert [entry["level"] for entry in target["levels"]] == [0.5, 0.8, 0.9, 0.95]
        for entry in target["levels"]:
            found = model.predict_with_errors(smiles, interval=entry["level"])
            low, high = found.lower[:, index], found.upper[:, index]
            inside = (low <= truth[:, index]) & (truth[:, index] <= high)
            assert entry["coverage"] == inside[known].mean()
            assert entry["width"] == pytest.approx((high - low)[known].mean(), rel=1e-5)
            level = entry["level"]
            assert entry["standard_error"] == pytest.approx((level * (1 - level) / known.sum()) ** 0.5)


def test_a_prediction_that_is_not_finite_is_an_error(numbers, monkeypatch, tmp_path):
    model, dataset, result = numbers
    predict = type(model).predict_dataset

    def without_the_first(self, *given, **named):
        predictions = predict(self, *given, **named)
        members = predictions.members
        for values in (predictions.values, members.models, members.spread):
            values[0] = np.nan
        return replace(predictions, errors=[NOT_FINITE, *predictions.errors[1:]])

    monkeypatch.setattr(type(model), "predict_dataset", without_the_first)
    broken = evaluate_uncertainty(model, dataset)
    assert broken["rows"] == result["rows"]
    for index, (target, before) in enumerate(zip(broken["targets"], result["targets"], strict=True)):
        is_known = np.isfinite(held_out(dataset)[0][0, index])
        assert target["count"] == before["count"]
        assert np.isnan(target["error"]) == is_known
        for level, complete in zip(target["levels"], before["levels"], strict=True):
            lost = complete["coverage"] - level["coverage"]
            assert lost == pytest.approx(0.0) or lost == pytest.approx(1 / before["count"])
    write_uncertainty(broken, tmp_path)


def test_the_ranking_is_that_of_error_and_spread(numbers):
    model, dataset, result = numbers
    truth, smiles, _ = held_out(dataset)
    found = model.predict_with_errors(smiles, interval=0.9)
    for index, target in enumerate(result["targets"]):
        known = np.isfinite(truth[:, index])
        errors = np.abs(truth - found.values)[known, index]
        expected = spearmanr(errors, found.spread[known, index]).statistic
        assert target["rank_correlation"]["spread"] == pytest.approx(expected, abs=1e-6)
        assert target["error"] == pytest.approx(errors.mean(), rel=1e-6)
        order = np.argsort(found.spread[known, index])
        first = errors[order[: -(-known.sum() // 5)]].mean()
        assert target["bins"][0]["error"] == pytest.approx(first, rel=1e-6)


def test_groups_are_by_size_and_by_scaffold(numbers):
    model, dataset, result = numbers
    truth, smiles, rows = held_out(dataset)
    with (model.folder / "rows.csv").open(newline="") as stream:
        train = [row["smiles"] for row in csv.DictReader(stream) if row["split"] == "train"]
    seen, frames = set(scaffolds(train)), scaffolds(smiles)
    groups = {entry["group"]: entry for entry in result["targets"][0]["groups"]}
    assert sum(entry["count"] for entry in groups.values() if entry["by"] == "size") == 100
    expected = [frame in seen and frame != "" for frame in frames]
    assert groups["known scaffold"]["count"] == sum(expected)
    assert groups["new scaffold"]["count"] == sum(frame not in seen for frame in frames)
    found = model.predict_with_errors(smiles, interval=0.9)
    inside = (found.lower[:, 0] <= truth[:, 0]) & (truth[:, 0] <= found.upper[:, 0])
    entry = groups["known scaffold"]
    assert entry["coverage"] == inside[expected].mean()
    sizes = np.asarray(dataset.store.num_atoms)[rows]
    small = next(entry for entry in groups.values() if entry["by"] == "size")
    limit = int(small["group"].split()[2])
    assert small["count"] == (sizes <= limit).sum()
    assert small["coverage"] == inside[sizes <= limit].mean()


def test_each_target_of_a_fit_has_its_own_expected_error(numbers):
    model, _, _ = numbers
    smiles = embedded_smiles(20, start=1)
    both = model.predict_with_errors(smiles, interval=0.8)
    assert not np.allclose(both.members.difficulty[..., 0], both.members.difficulty[..., 1])
    for index, name in enumerate(model.target_names):
        single = copy.copy(model)
        single.model = replace(
            model.model,
            targets=replace(
                model.targets, **{key: getattr(model.targets, key)[index : index + 1] for key in OF_TARGETS}
            ),
            **{key: getattr(model.model, key)[index : index + 1] for key in ("learners", "stacks", "scales")},
        )
        single.targets = single.model.targets
        held_out = model.find_calibration()
        calibration = replace(held_out, targets=held_out.targets[index : index + 1])
        single.find_calibration = lambda found=calibration: found
        alone = single.predict_with_errors(smiles, interval=0.8)
        assert single.target_names == (name,)
        np.testing.assert_array_equal(alone.values[:, 0], both.values[:, index])
        np.testing.assert_array_equal(alone.members.difficulty[..., 0], both.members.difficulty[..., index])
        np.testing.assert_array_equal(alone.lower[:, 0], both.lower[:, index])
        np.testing.assert_array_equal(alone.upper[:, 0], both.upper[:, index])


def test_classes_have_coverage_of_each_class(folders):
    model, dataset = load(folders / "classes")
    result = evaluate_uncertainty(model, dataset)
    truth, smiles, _ = held_out(dataset)
    (target,) = result["targets"]
    for entry in target["levels"]:
        found = model.predict_with_errors(smiles, interval=entry["level"])
        inside = found.sets[np.arange(len(smiles)), 0, truth[:, 0].astype(int)]
        assert entry["coverage"] == inside.mean()
        for label in (0, 1):
            assert entry[f"coverage_class_{label}"] == inside[truth[:, 0] == label].mean()
        assert entry["set_size"] == found.sets.sum() / len(smiles)
        assert entry["empty_sets"] == (found.sets[:, 0].sum(1) == 0).mean()
        assert entry["double_sets"] == found.sets[:, 0].all(1).mean()
    assert target["class_counts"] == [int((truth == label).sum()) for label in (0, 1)]
    assert set(target["calibration_error"]) == {"predicted", "calibrated"}
    for name, values in (("predicted", found.values), ("calibrated", found.calibrated)):
        assert target["brier_score"][name] == pytest.approx(((values - truth) ** 2).mean(), rel=1e-5)
    errors, unsure = np.abs(found.values - truth)[:, 0], 0.5 - np.abs(found.calibrated[:, 0] - 0.5)
    assert target["rank_correlation"]["width"] == pytest.approx(spearmanr(errors, unsure).statistic, abs=1e-6)
    assert target["bins"][0]["uncertainty"] == pytest.approx(np.sort(unsure)[:20].mean(), rel=1e-5)


def test_a_sample_of_the_training_molecules_has_no_scaffold_groups(numbers, monkeypatch):
    """The scaffold of a molecule outside of the sample would look new."""
    model, dataset, _ = numbers
    domain = copy.copy(model.find_domain())
    domain.is_sample = True
    monkeypatch.setattr(model, "_domain", domain)
    kinds = set(groups.find_groups(model, dataset, dataset.rows("test")))
    assert kinds == {"size"}
    domain.is_sample = False
    assert set(groups.find_groups(model, dataset, dataset.rows("test"))) == {"size", "scaffold"}


def test_coverage_counts_the_bounds_and_leaves_missing_values_out():
    truth = np.array([0.0, 1.0, 2.0, np.nan, 5.0])
    lower, upper = np.array([0.0, 0.0, 2.5, 0.0, np.nan]), np.array([1.0, 1.0, 3.0, 9.0, np.nan])
    result = score_intervals(truth, np.zeros(5), {0.9: (lower, upper)})
    assert (result["count"], result["by_level"]) == (4, [{"level": 0.9, "coverage": 0.5}])
    nothing = score_intervals(truth[3:4], np.zeros(1), {0.9: (lower[3:4], upper[3:4])})
    assert np.isnan(nothing["by_level"][0]["coverage"])


@pytest.mark.parametrize("count", [2, 3])
def test_rows_without_a_class_do_not_change_the_scores_of_sets(count):
    generator = np.random.default_rng(0)
    truth = generator.integers(0, count, 60).astype(float)
    guesses = generator.dirichlet(np.ones(count), 60)
    spread = 1.0 - guesses[np.arange(60), truth.astype(int)] + generator.normal(0, 0.1, 60)
    known = np.arange(60) % 3 > 0
    names = [str(label) for label in range(count)]

    def score(truth, rows):
        sets = {level: guesses[rows] > 0.5 * (1 - level) for level in (0.5, 0.9)}
        groups = {"size": {"small": (np.arange(60) < 30)[rows]}}
        return score_sets(truth[rows], {"predicted": guesses[rows]}, sets, names, spread[rows], groups)

    expected = score(truth, known)
    assert score(np.where(known, truth, np.nan), np.ones(60, bool)) == expected
    assert expected["rank_correlation"]["spread"] > 0.8


def test_intervals_from_elsewhere_are_scored_alike(numbers):
    model, dataset, result = numbers
    truth, smiles, _ = held_out(dataset)
    bounds = {}
    for level in [entry["level"] for entry in result["targets"][0]["by_level"]]:
        found = model.predict_with_errors(smiles, interval=level)
        bounds[level] = found.lower[:, 0].astype(float), found.upper[:, 0].astype(float)
    scored = score_intervals(
        truth[:, 0], found.values[:, 0].astype(float), bounds, found.spread[:, 0].astype(float)
    )
    own = result["targets"][0]
    assert scored == {**{key: own[key] for key in scored}, "groups": []}


@pytest.mark.parametrize("split", ["train", "valid"])
def test_rows_that_trained_or_calibrated_the_model_are_refused(numbers, split):
    model, dataset, _ = numbers
    with pytest.raises(MolsliceError, match="it trained or calibrated the model"):
        evaluate_uncertainty(model, dataset, split)


@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_the_command_writes_result_and_plots(folders, name, tmp_path, capsys):
    folder, out = folders / name, tmp_path / "out"
    assert main(["evaluate", str(folder), "--uncertainty", "--out", str(out), "--json", "--quiet"]) == 0
    printed = json.loads(capsys.readouterr().out)["uncertainty"]
    assert json.loads((out / "uncertainty.json").read_text()) == printed
    pictures = sorted(file.name for file in out.glob("*.png"))
    assert pictures == (
        ["uncertainty_1.png", "uncertainty_2.png"] if name == "numbers" else ["uncertainty.png"]
    )
    assert main(["evaluate", str(folder), "--uncertainty", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "coverage" in text
    assert "miscalibration area" in text
    assert "new scaffold" in text


def test_plots_of_an_earlier_result_are_removed(numbers, tmp_path):
    _, _, result = numbers
    kept = [tmp_path / "uncertainty_mine.png", tmp_path / "notes.txt"]
    for path in (tmp_path / "uncertainty_3.png", tmp_path / "uncertainty.png", *kept):
        path.touch()
    files = write_uncertainty({**result, "targets": result["targets"] * 2}, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*files, *kept])


def test_results_of_classes_are_named_as_such(numbers, folders):
    (target,) = evaluate_uncertainty(*load(folders / "classes"))["targets"]
    _, middle, _ = draw_uncertainty(target).axes
    assert middle.get_ylabel() == "mean of 1 - probability of the class"
    assert size_label(target) == "classes in a set"
    ranks = {"spread": 0.5, "width": 0.25}
    target["rank_correlation"] = ranks
    assert rank_texts(target) == ["spread 0.50", "1 - largest probability 0.25"]
    target = {**numbers[2]["targets"][0], "unit": "eV"}
    _, middle, _ = draw_uncertainty(target).axes
    assert middle.get_ylabel() == "mean absolute error (eV)"
    assert size_label(target) == "width"
    assert rank_texts({**target, "rank_correlation": ranks}) == ["spread 0.50", "width 0.25"]


def test_names_with_dollar_signs_are_drawn(numbers, tmp_path):
    targets = [{**target, "name": r"$\frac$", "unit": "$x$"} for target in numbers[2]["targets"]]
    assert len(write_uncertainty({**numbers[2], "targets": targets}, tmp_path)) > 1


def test_the_picture_of_a_result_does_not_change(numbers, tmp_path):
    files = [write_uncertainty(numbers[2], tmp_path / name) for name in "ab"]
    for one, other in zip(*files, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["--out", "x"],
        ["--uncertainty", "--split", "all"],
        ["--uncertainty", "--split", "all", "--data.fragment", "keep"],
        ["--uncertainty", "--shuffle-atoms", "1"],
    ],
)
def test_options_that_do_not_fit_are_refused(folders, words):
    assert main(["evaluate", str(folders / "numbers"), *words]) == 2


def test_intervals_of_equal_width_have_no_ranking(tmp_path):
    from molslice.inference.held_out import calibrate
    from tests.inference.models import checkpoint_folder

    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "gap", "part"])
        for row, text in enumerate(embedded_smiles(60)):
            writer.writerow([text, 3.0 + row % 7, ("train", "valid", "test")[row % 3]])
    data = {"path": str(file), "units": "eV", "split": {"kind": "column", "column": "part"}}
    model = load_model(checkpoint_folder(tmp_path / "run", data=data))
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    calibrate(model, dataset).write(model.folder)
    (target,) = evaluate_uncertainty(model, dataset)["targets"]
    assert target["rank_correlation"] == {"spread": None, "width": None}
    assert target["count"] == 20


@pytest.mark.parametrize("repeats", [1, 4])
def test_rows_of_one_molecule_count_as_one_in_the_standard_error_of_the_coverage(repeats):
    truth = np.random.default_rng(0).normal(size=50).repeat(repeats)
    bounds = {0.9: (np.full(len(truth), -1.0), np.full(len(truth), 1.0))}
    molecules = np.arange(50).repeat(repeats)
    (entry,) = score_intervals(truth, truth, bounds, molecules=molecules)["levels"]
    assert (entry["count"], entry["standard_error"]) == (50 * repeats, pytest.approx((0.9 * 0.1 / 50) ** 0.5))
    sets = {0.9: np.stack([truth < 0.5, truth > -0.5], axis=1)}
    guesses = {"predicted": np.full((len(truth), 2), 0.5)}
    classes = (truth > 0).astype(float)
    (entry,) = score_sets(classes, guesses, sets, ("no", "yes"), molecules=molecules)["levels"]
    assert entry["standard_error"] == pytest.approx((0.9 * 0.1 / 50) ** 0.5)


def test_intervals_of_a_logarithm_have_a_factor_and_wide_ones_their_errors():
    truth, width = np.array([1.0, 10.0, 100.0, 1000.0]), np.array([2.0, 4.0, 2.0, 4.0])
    bounds = {0.9: (truth / width, truth * width)}
    result = score_intervals(truth, truth, bounds, logarithmic=True)
    assert result["levels"][0]["factor"] == pytest.approx(8.0)  # of 4 and 16
    assert "factor" not in score_intervals(truth, truth, bounds)["levels"][0]
    errors = np.arange(10.0)
    result = score_intervals(np.zeros(10), errors, {0.9: (errors * 0 - 9, errors * 3)})
    assert [entry["error"] for entry in result["width_bins"]] == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert result["width_bins"][0]["uncertainty"] == 9 + 3 * 0.5
    equal = score_intervals(np.zeros(10), errors, {0.9: (errors * 0 - 9, errors * 0 + 9)})
    assert equal["width_bins"] == []


def test_errors_and_widths_of_a_logarithm_are_compared_on_its_scale():
    draw = np.random.default_rng(0)
    truth, half = 10.0 ** draw.normal(size=300), draw.uniform(0.1, 1.0, 300)
    predicted = truth * 10.0 ** draw.normal(0, half / 1.645)
    bounds = {0.9: (predicted / 10.0**half, predicted * 10.0**half)}
    spread = predicted * half**2
    truth[:2] = 0.0, np.nan  # without a logarithm, and not measured
    small = {"size": {"small": np.arange(300) < 100}}
    result = score_intervals(truth, predicted, bounds, spread, small, logarithmic=True)
    off = np.abs(np.log10(predicted[2:] / truth[2:]))
    ranks = {name: spearmanr(off, value[2:])[0] for name, value in (("width", half), ("spread", half**2))}
    assert result["rank_correlation"] == pytest.approx(ranks)
    assert 0.2 < ranks["width"] < 0.7  # of the values alone it is 0.9
    places = np.array_split(np.argsort(half[2:]), 5)
    assert [entry["error"] for entry in result["width_bins"]] == pytest.approx(
        [off[at].mean() for at in places]
    )
    assert [entry["uncertainty"] for entry in result["width_bins"]] == pytest.approx(
        [2 * half[2:][at].mean() for at in places]
    )
    assert [entry["error"] for entry in result["bins"]] == pytest.approx([off[at].mean() for at in places])
    (entry,) = result["groups"]
    assert entry["fold_error"] == pytest.approx(10.0 ** off[:98].mean())
    assert entry["factor"] == pytest.approx(10.0 ** (2 * np.delete(half[:100], 1).mean()))
    assert error_text(entry) == f"factor {format_metric(entry['fold_error'])}"
    assert size_text(entry) == f"factor {format_metric(entry['factor'])}"
