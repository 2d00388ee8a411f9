"""Tests of the column names of predictions."""

import pytest

from molslice.cli.predict import listed_json
from molslice.inference.base import Predictor
from molslice.inference.columns import distinct_columns, prediction_columns
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.tasks.targets import TargetInfo
from tests.inference.models import untrained


@pytest.mark.parametrize(
    ("names", "units", "columns"),
    [
        (["gap", "logp"], ["eV", ""], ("gap_eV", "logp")),
        (["error", "smiles"], ["", ""], ("error_predicted", "smiles_predicted")),
        (["a", "a_b"], ["b_c", "c"], ("a_b_c", "a_b_c_2")),
        (["error", "error_predicted"], ["", ""], ("error_predicted", "error_predicted_2")),
        (["x_2", "x", "x"], ["", "", ""], ("x_2", "x", "x_3")),
    ],
)
def test_columns_are_unique(names, units, columns):
    assert prediction_columns(names, units) == columns


def test_columns_beside_others():
    assert distinct_columns(["logS", "error"], ["smiles", " logS "]) == ["logS_predicted", "error"]
    assert distinct_columns(["logS"], ["logS", "logS_predicted"]) == ["logS_predicted_2"]
    assert distinct_columns(["", "a"], ["", ""]) == ["_predicted", "a"]


def test_json_holds_every_prediction(tmp_path):
    targets = TargetInfo(
        ("error", "smiles", "a", "a_b"), ("", "", "b_c", "c"), "regression", (0.0,) * 4, (1.0,) * 4
    )
    model = untrained(tmp_path, targets=targets)
    predictions = model.predict_with_errors(["CCO"])
    report = listed_json(model, ["CCO"], predictions, PLAIN)
    (entry,) = report["predictions"]
    assert entry["smiles"] == "CCO"
    assert entry["error"] is None
    assert [entry[target["column"]] for target in report["targets"]] == predictions.values[0].tolist()
    assert len(entry) == 6


class Model(Predictor):
    """A model whose columns are the names of its targets."""

    reader = predict_molecules = checksum = None

    def __init__(self, kind, names, members):
        count = len(names)
        self.targets = TargetInfo(names, ("",) * count, kind, (0.0,) * count, (1.0,) * count)
        self.num_members = members


def test_the_columns_of_an_interval_begin_with_that_of_the_prediction():
    options, model = PredictionOptions(level=0.9), Model("regression", ("a",), 2)
    numbers = ["a_predicted", "a_predicted_lower", "a_predicted_upper", "a_predicted_spread"]
    assert model.table_columns(options, ["smiles", "a"]) == (numbers, [])
    numbers[1] = "a_predicted_lower_predicted"
    assert model.table_columns(options, ["a", "a_predicted_lower"]) == (numbers, [])
    assert Model("classification", ("a", "b"), 1).table_columns(options, ["b"]) == (
        ["a", "b_predicted", "a_calibrated", "b_predicted_calibrated"],
        ["a_set", "b_predicted_set"],
    )
