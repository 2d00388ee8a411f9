"""Models that an earlier version saved load, and predict the same."""

import json

import numpy as np
import pytest

from molslice import load_model
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.fitted import FittedPredictor
from molslice.model import MODELS
from tests import saving
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


INTERVALS = {  # lower and upper bounds at 0.8: of one width, following the expected error, and of a logarithm
    "fit": (
        [-0.550804, 0.412309, 0.262342, 0.554716, -0.08801, 0.058033],
        [1.142258, 2.054008, 2.002849, 2.36019, 1.605053, 1.711155],
    ),
    "fit_scale": (
        [-0.367305, 0.358618, 0.311927, 0.476397, 0.245802, 0.137581],
        [0.924624, 2.154047, 2.002852, 2.578225, 1.271241, 1.636853],
    ),
    "fit_log": (
        [0.765578, 1.265734, 1.272064, 1.46563, 1.21172, 1.158116],
        [2.177503, 6.474519, 5.720896, 9.544913, 2.958837, 4.32001],
    ),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_a_saved_model_has_the_intervals_that_it_had(name):
    model = load_model(REPOSITORY / "tests/saved_models" / name)
    found = model.predict_with_errors(saving.SMILES, interval=0.8)
    np.testing.assert_allclose((found.lower[:, 0], found.upper[:, 0]), INTERVALS[name], atol=5e-5)


def test_a_saved_model_of_classes_has_the_sets_that_it_had():
    model = load_model(REPOSITORY / "tests/saved_models/fit_encoder")
    found = model.predict_with_errors(saving.SMILES, interval=0.7)
    assert found.sets[:, 0].tolist() == [[k != 1 and k != 3, True] for k in range(6)]
    calibrated = [0.503124, 0.54174, 0.480408, 0.535139, 0.507278, 0.495447]
    np.testing.assert_allclose(found.calibrated[:, 0], calibrated, atol=5e-5)


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
    assert any(network.data.predicts_variance for network in networks)
    (ensemble,) = (model for model in models if isinstance(model, EnsemblePredictor))
    assert len(ensemble.members) == 2
    fitted = [model for model in models if isinstance(model, FittedPredictor)]
    assert [model.encoder is None for model in fitted] == [True, False, True, False, True, True]
    assert [model.condition_names for model in fitted if model.conditions] == [
        ["temperature", "species", "solvent"]
    ]
    assert len(fitted[1].networks) == len(fitted[3].networks) == 2


def test_the_saved_models_stay_small():
    files = [path for path in (REPOSITORY / "tests/saved_models").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1 << 21
