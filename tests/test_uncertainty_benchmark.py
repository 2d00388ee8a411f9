"""The program that measures intervals."""

import csv

import numpy as np
import pytest

from molslice.inference.load import load_model
from tests.inference.models import embedded_smiles
from tests.programs import load_program


@pytest.fixture
def program(few_trees, monkeypatch, tmp_path):
    found = load_program("uncertainty")
    generator, file = np.random.default_rng(0), tmp_path / "small.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "size"])
        writer.writerows([text, len(text) + generator.normal(0, 3)] for text in embedded_smiles(120))
    monkeypatch.setattr("molslice.fitting.learner_fits.BASELINES", {})
    monkeypatch.setattr(found, "SETS", {"Small": ("small.csv", "size", "bits", None)})
    return found


def test_a_model_is_fitted_and_measured_on_its_held_out_rows(program, tmp_path):
    program.fit_set(tmp_path, tmp_path / "models", "Small", "random", 1)
    folder = program.model_folder(tmp_path / "models", "Small", "random", 1)
    about = load_model(folder).model.about
    assert about["options"]["split"] == "random"
    assert about["options"]["seed"] == 1
    measured = program.measure(folder)
    assert (measured["count"], measured["calibration_rows"]) == (12, 108)
    assert [entry["level"] for entry in measured["levels"]] == [0.5, 0.8, 0.9, 0.95]
