"""What the targets of a model are: numbers, two and several classes, and their columns."""

import json

import numpy as np
import pytest

from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import (
    TargetType,
    column_slices,
    common_kind,
    learned_targets,
    part_slices,
    types_of,
)
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError

NAMES = ("low", "medium", "high")
NUMBER = TargetInfo(("logD",), ("log",), "regression", (2.0,), (0.5,))
BITS = TargetInfo(("active",), ("",), "classification", (0.0,), (1.0,))
GRADES = TargetInfo(("grade",), ("",), "multiclass", (0.0,), (1.0,), NAMES)
MIXED = TargetInfo.mixed([GRADES, NUMBER, BITS])


def test_mixed_targets_are_described_one_by_one():
    assert MIXED.names == ("grade", "logD", "active")
    assert (MIXED.units, MIXED.mean, MIXED.std) == (("", "log", ""), (0.0, 2.0, 0.0), (1.0, 0.5, 1.0))
    assert MIXED.each == (GRADES, NUMBER, BITS)
    assert TargetInfo.from_mapping(json.loads(json.dumps(MIXED.to_mapping()))) == MIXED
    assert "parts" not in NUMBER.to_mapping()  # as in folders of older versions
    two = TargetInfo(("a", "b"), ("m", "s"), "regression", (0.0, 1.0), (1.0, 2.0))
    assert [one.names + one.units for one in two.each] == [("a", "m"), ("b", "s")]


@pytest.mark.parametrize(
    "change", [{"parts": []}, {"names": ["a", "b", "c"]}, {"std": [1.0, 1.0, 1.0]}, {"kind": "regression"}]
)
def test_contradicting_descriptions_of_mixed_targets_are_refused(change):
    with pytest.raises(MolsliceError, match="mixed targets need a description of each"):
        TargetInfo.from_mapping(MIXED.to_mapping() | change)


def test_types_have_columns_and_parts():
    types = types_of(MIXED, ["grade"], {"active": ["no", "yes"]})
    assert types == (
        TargetType("multiclass", SeveralClasses(NAMES, ordered=True)),
        TargetType("regression"),
        TargetType("classification", words=("no", "yes")),
    )
    assert [*column_slices(types)] == [slice(0, 3), slice(3, 4), slice(4, 5)]
    assert [*part_slices(types)] == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert [one.class_names for one in types] == [NAMES, (), ("no", "yes")]
    assert [one.metric for one in types] == ["class_error", "mae", "roc_auc"]
    assert [*map(common_kind, (types, types[:1], types[:1] * 2, types[1:2] * 2))] == [
        *("mixed", "multiclass", "mixed", "regression")
    ]


def test_a_type_measures_its_columns():
    predicted, truth = np.array([[0.2], [0.9], [0.4]]), np.array([0.0, 1.0, 0.5])
    assert TargetType("regression").measure(predicted, truth) == {"mae": pytest.approx(0.4 / 3)}
    assert TargetType("classification").measure(predicted[:2], truth[:2]) == {"roc_auc": 1.0}
    several = TargetType("multiclass", SeveralClasses(NAMES))
    assert several.measure(np.eye(3), np.arange(3.0))["accuracy"] == 1.0


def test_networks_learn_numbers_and_parts_of_classes():
    ordered = learned_targets(MIXED, types_of(MIXED, ["grade"]))
    assert {kind: group.columns for kind, group in ordered.items()} == {
        "classification": [0, 1, 3],
        "regression": [2],
    }
    assert ordered["classification"].targets.names == ("grade above low", "grade above medium", "active")
    assert ordered["regression"].targets == NUMBER
    (plain,) = learned_targets(GRADES, types_of(GRADES)).values()
    assert plain.targets.names == tuple(f"grade {name}" for name in NAMES)
    assert plain.targets.kind == "classification"
    two = TargetInfo(("a", "b"), ("m", "s"), "regression", (0.0, 1.0), (1.0, 2.0))
    assert learned_targets(two, types_of(two))["regression"] == ([0, 1], two)
