"""Folds of a fit: each member has rows of both classes, and enough rows."""

from dataclasses import replace

import numpy as np
import pytest

from molslice.data.molecules.describe import describe_molecules
from molslice.fitting.data import FitData
from molslice.fitting.folds import MIN_MEMBER_ROWS, divide_into_folds
from molslice.tasks.target_types import TargetType
from molslice.types import MolsliceError

CHAINS = ["C" * length for length in range(1, 41)]
ANILINES = [f"Nc1ccc({'C' * length})cc1" for length in range(1, 21)]
RINGS = [f"C1{'C' * length}C1" for length in range(1, 21)]


def data_of(smiles, targets, kind="classification"):
    targets = np.asarray(targets, float).reshape(len(smiles), -1)
    names = tuple(f"y{index}" for index in range(targets.shape[1]))
    described = describe_molecules(list(smiles), workers=0)
    types = (TargetType(kind),) * len(names)
    return FitData(list(smiles), described, targets, np.zeros(len(smiles), bool), names, types, "smiles")


def divide_by_scaffold(data, members):
    return divide_into_folds(replace(data, grouped_by="scaffold"), members, 0)


def classes_of_members(data, folds, target=0):
    values = data.targets[:, target]
    return [set(values[(folds != fold) & np.isfinite(values)]) for fold in range(folds.max() + 1)]


@pytest.mark.parametrize("rare", [0.0, 1.0])
def test_every_member_has_rows_of_both_classes(rare):
    targets = np.full((len(CHAINS), 2), 1.0 - rare)
    targets[:5, 0] = rare
    targets[5:10, 1] = 1.0 - targets[5:10, 1]
    data = data_of(CHAINS, targets)
    divided_again = 0
    for seed in range(200):
        folds = divide_into_folds(data, 2, seed)
        assert np.bincount(folds).tolist() == [20, 20]
        for target in range(2):
            assert classes_of_members(data, folds, target) == [{0.0, 1.0}] * 2
        numbers = divide_into_folds(data_of_numbers(data), 2, seed)
        divided_again += not np.array_equal(folds, numbers)
    assert 5 < divided_again < 50  # two targets, each with a probability of 2 * C(20, 5) / C(40, 5) = 0.047


@pytest.mark.parametrize("rare", [0.0, 1.0])
def test_the_rarer_class_is_divided_first_beside_a_large_scaffold(rare):
    """By size alone, all small groups would be in the fold without the large scaffold."""
    targets = [1.0 - rare] * 26 + [rare] * 4
    data = data_of([*ANILINES, *CHAINS[:10]], targets)
    folds = divide_by_scaffold(data, 2)
    assert np.bincount(folds[26:]).tolist() == [2, 2]


def data_of_numbers(data):
    numbers = (TargetType("regression"),) * len(data.names)
    return FitData(data.smiles, data.molecules, data.targets, data.test, data.names, numbers, "smiles")


def test_a_class_within_one_scaffold_is_refused():
    data = data_of([*ANILINES, *CHAINS], [1.0] * len(ANILINES) + [0.0] * len(CHAINS))
    with pytest.raises(MolsliceError, match="trained on class 0 of 'y0' only; choose the split random"):
        divide_by_scaffold(data, 5)
    folds = divide_into_folds(data, 5, 0)
    assert classes_of_members(data, folds) == [{0.0, 1.0}] * 5


def test_a_member_with_few_rows_is_refused():
    targets = np.full((60, 2), np.nan)
    targets[:, 0] = np.arange(60)
    targets[: len(ANILINES) + 4, 1] = np.arange(len(ANILINES) + 4)
    data = data_of([*ANILINES, *CHAINS], targets, "regression")
    words = f"a member of the model has 4 training rows with a value of 'y1'; it needs {MIN_MEMBER_ROWS}"
    with pytest.raises(MolsliceError, match=words):
        divide_by_scaffold(data, 5)


def test_every_fold_has_values_of_a_sparse_target():
    targets = np.full((60, 2), np.nan)
    targets[:, 0] = np.arange(60)
    targets[40:, 1] = np.arange(20)  # without the target, these would be in the folds without anilines
    data = data_of([*ANILINES, *RINGS, *CHAINS[:20]], targets, "regression")
    folds = divide_by_scaffold(data, 5)
    assert np.bincount(folds[:20]).max() == 20
    assert np.bincount(folds[40:]).tolist() == [4] * 5


def test_values_in_fewer_scaffolds_than_folds_are_refused():
    targets = np.full((60, 2), np.nan)
    targets[:, 0] = np.arange(60)
    targets[:22, 1] = np.arange(22)
    data = data_of([*ANILINES, *CHAINS], targets, "regression")
    words = "target 'y1' has values in 3 of 5 folds; choose the split random or fewer members"
    with pytest.raises(MolsliceError, match=words):
        divide_by_scaffold(data, 5)


def test_a_scaffold_of_most_rows_is_named():
    smiles = [*ANILINES, *RINGS[:4], *CHAINS[:8]]
    data = data_of(smiles, np.arange(len(smiles)), "regression")
    folds = divide_by_scaffold(data, 3)
    assert np.bincount(folds).max() == len(ANILINES)
    others = data_of(CHAINS[:33], np.arange(33), "regression")
    assert sorted(np.bincount(divide_by_scaffold(others, 2))) == [16, 17]
    assert not others.findings
    assert data.findings == [
        "one scaffold has 20 of 32 training rows; the member without it is trained on the others only"
    ]
