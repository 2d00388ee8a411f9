"""The comparison of values and logarithms in `benchmarks/fit_scales.py`."""

import csv
import gzip
import json

import numpy as np
import pytest

from tests.inference.models import embedded_smiles
from tests.programs import load_program

ROWS = 40

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def program():
    return load_program("fit_scales")


@pytest.fixture
def data(program, tmp_path):
    """Files of the three sets; the test rows of the clearances cannot be read as numbers."""
    for measured in program.SETS.values():
        file = tmp_path / "data" / measured.file
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["smiles", measured.column, "split"])
            for row, text in enumerate(embedded_smiles(ROWS)):
                value = len(text) / 10 if "pIC50" in measured.column else -len(text) / 10
                value = 3.0 + len(text) if "clint" in measured.column else value
                test = row % 8 == 0 and "clint" in measured.column
                writer.writerow([text, "unread" if test else value, "test" if test else ""])
                writer.writerow([text, "unread" if test else 2 * value, "test" if test else ""])
    return tmp_path / "data"


def test_every_set_is_measured_on_both_scales(program, data, tmp_path, capsys):
    words = ["--data", str(data), "--seeds", "1", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    program.main(words)
    first = json.loads((tmp_path / "fit_scales.json").read_text())
    assert [(one["set"], one["scale"]) for one in first["results"]] == [
        (name, scale) for name in ("esol", "bace", "clearance") for scale in ("linear", "log")
    ]
    assert [one["rows"] for one in first["results"]] == [ROWS] * 4 + [ROWS * 7 // 8] * 2
    for one in first["results"][1::2]:
        assert one["not_positive"]["mean"] == 0
    with (tmp_path / "runs" / "bace.csv").open(newline="") as file:
        row, *others = csv.DictReader(file)
    assert len(others) == ROWS - 1
    assert float(row["target"]) == pytest.approx(10.0 ** (9 - len(row["smiles"]) / 10))
    kept = (tmp_path / "runs" / "esol-log-0" / "fit.json").stat().st_mtime_ns
    program.main(words)
    assert (tmp_path / "runs" / "esol-log-0" / "fit.json").stat().st_mtime_ns == kept
    assert json.loads((tmp_path / "fit_scales.json").read_text())["results"] == first["results"]


def test_the_measures_are_those_of_their_definitions(program):
    found = program.measure(np.array([1.0, 10.0, 100.0, 50.0]), np.array([-5.0, 20.0, 50.0, 40.0]))
    assert found["spearman"] == pytest.approx(1.0)
    assert found["mae"] == pytest.approx((6 + 10 + 50 + 10) / 4)
    assert found["rmse"] == pytest.approx(((36 + 100 + 2500 + 100) / 4) ** 0.5)
    assert found["fold_error"] == pytest.approx((1.25 * 2) ** 0.5)  # of 1, 2, 2 and 1.25
    assert found["not_positive"] == 0.25
