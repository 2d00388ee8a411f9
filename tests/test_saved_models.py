"""Models that an earlier version saved load, and predict the same."""

import json

import numpy as np
import pytest

from molslice import load_model
from molslice.model import MODELS
from tests.real_data import REPOSITORY, SAVED_MODEL
from tests.saving import EXPECTED, predictions

SMILES = ["CCO", "c1ccccc1", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "C[C@H](N)C(=O)O", "O=[N+]([O-])c1ccc(Cl)cc1"]
PREDICTED = [11.41644, 4.48380, 3.37120, 3.32189, 2.57687]  # eV
FOLDERS = sorted(path.parent for path in (REPOSITORY / "tests/saved_models").glob(f"*/{EXPECTED}"))


def test_the_first_saved_model_predicts_what_it_predicted():
    np.testing.assert_allclose(load_model(SAVED_MODEL).predict(SMILES), PREDICTED, atol=2e-5)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_saved_model_predicts_what_it_predicted(folder):
    expected = np.array(json.loads((folder / EXPECTED).read_text()))
    np.testing.assert_allclose(predictions(folder), expected, atol=5e-5)


def test_there_is_a_saved_model_of_each_kind():
    models = [load_model(folder) for folder in FOLDERS]
    networks = [model for model in models if hasattr(model, "config")]
    assert {"softmax", "slice_sort", "flow", "singular"} <= {
        model.config.attention.name for model in networks
    }
    names = {model.config.model.name for model in networks}
    assert {*MODELS.names()} - names == {"graphormer_pretraining"}  # `encoder-small` ships with the package
    assert {model.targets.kind for model in networks} >= {
        "regression",
        "classification",
        "multiclass",
        "tokens",
    }
    fitted = [model for model in models if not hasattr(model, "config")]
    assert [model.encoder is None for model in fitted] == [True, False]
    assert len(fitted[1].networks) == 2


def test_the_saved_models_stay_small():
    files = [path for path in (REPOSITORY / "tests/saved_models").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1 << 20
