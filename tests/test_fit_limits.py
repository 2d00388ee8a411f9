"""The program that measures what limits are worth to `molslice fit`."""

import json

import numpy as np
import pytest

from tests.programs import load_program
from tests.real_data import embedded_smiles


@pytest.mark.parametrize("scheme", ["threshold", "random"])
def test_limits_are_below_their_values(scheme):
    values = np.random.default_rng(0).normal(size=200)
    cells = load_program("fit_limits").censor(values, scheme, np.random.default_rng(1))
    limits = [cell.startswith(">") for cell in cells]
    assert sum(limits) == 60
    bounds = np.array([float(cell.removeprefix(">")) for cell in cells])
    assert (bounds[limits] < values[limits]).all()
    np.testing.assert_array_equal(bounds[~np.array(limits)], values[~np.array(limits)])
    assert (len(set(bounds[limits])) == 1) == (scheme == "threshold")


def test_the_same_rows_are_fitted_in_all_ways(tmp_path, monkeypatch):
    monkeypatch.setattr("molslice.learners.extra_trees.NUM_TREES", 20)
    rows = "".join(f"{smiles},{len(smiles) / 10}\n" for smiles in embedded_smiles()[3::50][:90])
    (tmp_path / "lengths.csv").write_text(f"smiles,length\n{rows}")
    program = load_program("fit_limits")
    options = program.argparse.Namespace(known=60, new=30)
    scores = program.measure(f"{tmp_path / 'lengths.csv'}:length", 0, options)
    assert set(scores) == {"threshold", "random"}
    summary = program.summarize([scores["threshold"]] * 2)
    assert set(summary["mae"]) == {"known", "learn", "drop", "exact"}
    errors = {way: one["mae"] for way, one in scores["threshold"].items()}
    excess = (errors["learn"] - errors["known"]) / (errors["drop"] - errors["known"])
    assert summary["excess"] == pytest.approx(excess)
    assert json.dumps(summary)
