"""Errors of groups of molecules."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from molslice.chem.featurize import molecule_arrays
from molslice.chem.naming import contained_elements
from molslice.chem.scaffold import scaffolds, scaffolds_of_arrays
from molslice.cli.datasets import find_model_data
from molslice.inference.domain import TrainingDomain
from molslice.inference.load import load_model
from molslice.report.groups import by_domain, by_element, by_scaffold, by_size, score_groups, summarize
from molslice.report.measure import MeasuredModel, SplitPredictions, measure
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType
from molslice.uncertainty.similarity_rule import PLACES, SimilarityRule
from tests.inference.models import embedded_smiles

NUMBER = TargetType("regression")
SAVED = Path(__file__).parents[1] / "saved_models"
SMILES = ("CCO", "c1ccccc1", "CCCl", "c1ccncc1", "c1ccccc1C", "O", "CC(=O)Nc1ccccc1", "C1CC1")
TRAIN, TEST = np.array([1, 5]), np.array([0, 2, 3, 4, 6, 7])


class Data:
    """Molecules in memory, with what a report reads of a data set."""

    def __init__(self, smiles):
        self.store = self
        self.molecules = [molecule_arrays(text) for text in smiles]
        self.num_atoms = np.array([len(one.atoms) for one in self.molecules])
        self.splits = {"train": TRAIN, "test": TEST}

    def arrays(self, row):
        return self.molecules[row]


class Model:
    domain, types = None, (NUMBER,)
    treatment = "keep", "refuse", "no"

    def known_domain(self):
        return self.domain


@pytest.fixture
def measured():
    truth = np.array([[0.0], [1.0], [2.0], [np.nan], [4.0], [5.0]])
    predicted = np.array([[0.5], [1.0], [4.0], [9.0], [4.25], [np.nan]])
    split = SplitPredictions("test", True, 6, TEST, truth, predicted, [slice(0, 1)], np.arange(6))
    return MeasuredModel(Model(), Data(SMILES), (split,))


def scores(measured, groups):
    return {group.name: (group.count, group.error) for group in score_groups(measured, 0, groups)}


def test_the_spread_is_the_standard_error_of_the_mean():
    random = np.random.default_rng(0)
    truth, predicted = random.normal(size=20), random.normal(size=20)
    group = summarize("all", NUMBER, truth, predicted, np.arange(20), "mae")
    errors = [abs(a - b) for a, b in zip(truth, predicted, strict=True)]
    mean = sum(errors) / 20
    assert group.error == pytest.approx(mean)
    assert group.spread == pytest.approx((sum((e - mean) ** 2 for e in errors) / 19 / 20) ** 0.5)
    repeated = (values.repeat(3) for values in (truth, predicted, np.arange(20)))
    assert summarize("all", NUMBER, *repeated, "mae").spread == pytest.approx(group.spread)
    folds = summarize("all", NUMBER, truth, predicted, np.arange(20), "mae", folds=5)
    assert folds.spread == pytest.approx(group.spread * (1 + 5 / 4) ** 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(summarize("one", NUMBER, truth[:1], predicted[:1], np.arange(1), "mae").spread)


def test_classes_have_the_area_under_the_curve_with_its_standard_error():
    two = TargetType("classification")
    truth, predicted = np.array([0.0, 0, 1, 1]), np.array([0.1, 0.6, 0.5, 0.9])
    group = summarize("", two, truth, predicted, np.arange(len(truth)), "roc_auc")
    assert group.error == pytest.approx(0.75)
    influences = np.array([0.25, -0.25, -0.25, 0.25]) / 2  # shares in the right order minus the area
    assert group.spread == pytest.approx((4 / 3 * (influences**2).sum()) ** 0.5)
    alone = summarize("", two, truth[:2], predicted[:2], np.arange(2), "roc_auc")
    assert np.isnan(alone.error)
    assert np.isnan(alone.spread)


def test_several_classes_have_the_share_of_right_ones_or_the_mean_distance():
    truth, predicted = np.array([0.0, 1, 2, 2]), np.eye(3)[[0, 2, 2, 0]]
    three = SeveralClasses(("low", "medium", "high"))
    group = summarize(
        "", TargetType("multiclass", three), truth, predicted, np.arange(len(truth)), "accuracy"
    )
    assert (group.error, group.spread) == pytest.approx((0.5, (1 / 3) ** 0.5 / 2))
    ordered = TargetType("multiclass", replace(three, ordered=True))
    assert summarize(
        "", ordered, truth, predicted, np.arange(len(truth)), "class_error"
    ).error == pytest.approx(0.75)


def test_groups_of_a_fit_have_the_standard_error_of_the_whole_fit():
    model = load_model(SAVED / "fit_networks")
    record, dataset = model.model.about, find_model_data(model, model.data_config, None, [], None)
    splits = tuple(split for split in measure(model, dataset, 1_000).splits if split.name == "train")
    everything = {"all": np.ones(len(splits[0].truth), bool)}
    (group,) = score_groups(MeasuredModel(model, dataset, splits), 0, everything)
    assert group.error == pytest.approx(record["results"][0]["cross_validated"], rel=1e-4)
    assert group.spread == pytest.approx(record["results"][0]["standard_errors"]["cross_validated"], rel=1e-4)


def test_a_molecule_counts_for_each_of_its_elements(measured):
    assert scores(measured, by_element(measured)) == {
        "C": (4, (0.5 + 0 + 2 + 0.25) / 4),
        "N": (2, (2 + 0.25) / 2),
        "O": (2, (0.5 + 0.25) / 2),
        "Cl": (1, 0.0),
    }
    assert list(scores(measured, by_element(measured))) == ["C", "N", "O", "Cl"]


def test_groups_by_size_leave_rows_without_a_value_out(measured):
    assert scores(measured, by_size(measured)) == {"1 to 9": (3, 2.5 / 3), "10 to 14": (1, 0.25)}


def test_scaffolds_are_compared_with_those_of_the_training_rows(measured):
    assert scores(measured, by_scaffold(measured)) == {
        "known scaffold": (1, 0.25),
        "new scaffold": (1, 2.0),
        "no rings": (2, 0.25),
    }
    assert by_scaffold(replace(measured, is_own=False)) is None  # the rows `train` of other data


def test_scaffolds_are_compared_with_the_training_molecules_of_the_model(measured):
    measured.predictor.domain = TrainingDomain.of_smiles(["c1ccncc1C", "O"])
    for is_own in (True, False):
        groups = by_scaffold(replace(measured, is_own=is_own))
        assert scores(measured, groups) == {
            "known scaffold": (1, 2.0),
            "new scaffold": (1, 0.25),
            "no rings": (2, 0.25),
        }


def test_scaffolds_are_not_compared_with_a_sample_of_the_training_molecules(measured):
    expected = scores(measured, by_scaffold(measured))
    measured.predictor.domain = TrainingDomain.of_smiles(["c1ccncc1C", "O"])
    measured.predictor.domain.is_sample = True
    assert scores(measured, by_scaffold(measured)) == expected


def test_molecules_are_grouped_by_their_domain(measured):
    assert by_domain(measured) is None  # the training molecules are not known
    measured.predictor.domain = TrainingDomain.of_smiles([SMILES[row] for row in TRAIN])
    measured.predictor.domain.rule = SimilarityRule(0.3, 0.6)
    measured.dataset.smiles = lambda: list(SMILES)
    compared = measured.predictor.domain.compare([SMILES[row] for row in TEST], [None] * 6)
    groups = by_domain(measured)
    assert list(groups) == list(PLACES)
    for place, rows in groups.items():
        assert rows.tolist() == [one.place == place for one in compared]
    judged = replace(measured.splits[0], name="train")
    assert by_domain(replace(measured, splits=(judged,))) is None  # these are the training molecules


def test_scaffolds_of_arrays_are_those_of_the_smiles():
    smiles = [*embedded_smiles(150), *SMILES]
    assert scaffolds_of_arrays(map(molecule_arrays, smiles)) == scaffolds(smiles)


@pytest.mark.parametrize(("smiles", "symbols"), [("C*", ["*", "C"]), ("BrC(Cl)O", ["C", "O", "Cl", "Br"])])
def test_elements_are_in_the_order_of_their_numbers(smiles, symbols):
    assert sorted(contained_elements(molecule_arrays(smiles))) == sorted(symbols)
