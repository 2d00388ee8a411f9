"""Models that an earlier version saved load, and predict the same."""

import numpy as np
import pytest

from molslice import load_model
from tests.real_data import SAVED_MODEL

SMILES = ["CCO", "c1ccccc1", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "C[C@H](N)C(=O)O", "O=[N+]([O-])c1ccc(Cl)cc1"]
PREDICTED = {SAVED_MODEL: [11.41644, 4.48380, 3.37120, 3.32189, 2.57687]}  # eV


@pytest.mark.parametrize("folder", PREDICTED, ids=lambda folder: folder.name)
def test_a_saved_model_predicts_what_it_predicted(folder):
    np.testing.assert_allclose(load_model(folder).predict(SMILES), PREDICTED[folder], atol=2e-5)
