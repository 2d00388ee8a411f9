"""The program that compares networks trained together and one after the other."""

import json

import pytest
import torch

from molslice.model import graphormer
from tests.programs import load_program


@pytest.fixture
def program(monkeypatch):
    monkeypatch.setattr(graphormer, "path_codes", graphormer.path_codes)  # the program replaces it
    threads = torch.get_num_threads()
    yield load_program("fold_axis")
    torch.set_num_threads(threads)


def test_both_forms_are_recorded(program, tmp_path):
    path = program.main(
        ["--folds", "2", "--rows", "4", "--steps", "1", "--rounds", "2", "--out", str(tmp_path)]
    )
    result = json.loads(path.read_text())
    assert result["ratio"] == pytest.approx(result["together"]["median"] / result["apart"]["median"], rel=0.5)


def test_both_forms_have_the_same_losses_and_gradients(program):
    folds = program.Folds(2, 4)
    torch.testing.assert_close(folds.compute_together(), folds.compute_apart(), rtol=1e-4, atol=1e-5)
    for name, weight in folds.weights.items():
        for place, model in enumerate(folds.models):
            expected = model.get_parameter(name).grad
            if expected is not None:
                torch.testing.assert_close(weight.grad[place], expected, rtol=1e-3, atol=1e-5)
