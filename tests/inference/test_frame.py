"""Models and predictions as Python shows them: `repr` of a model, and predictions as a DataFrame."""

import numpy as np
import pandas as pd
import pytest

from molslice import fit, load_model
from molslice.cli import main
from molslice.inference.predictions import Predictions
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frame")
    rows = [
        f"{text},{len(text)},{['low', 'mid', 'high'][k % 3]},{k % 7}"
        for k, text in enumerate(embedded_smiles(60))
    ]
    (folder / "t.csv").write_text("\n".join(["smiles,size [m],class,T", *rows]) + "\n")
    options = {"encoder": None, "quality": "fast", "members": 2, "split": "all", "workers": 0, "quiet": True}
    fit(folder / "t.csv", ["size [m]", "class"], folder / "two", **options)
    fit(folder / "t.csv", "size [m]", folder / "warm", conditions="T", **options)
    return folder


def test_a_model_says_what_it_predicts(model):
    text = repr(load_model(model / "two"))
    assert text == f"<FittedPredictor {model / 'two'}: mixed of size [m], class; fitted to 60 rows>"
    text = repr(load_model(model / "warm"))
    assert text.startswith(
        f"<FittedPredictor {model / 'warm'}: regression of size [m] with T; fitted to 60 rows"
    )
    assert "; cross-validated MAE " in text
    assert repr(load_model("gap-xtb")) == "<NetworkPredictor gap-xtb: regression of homolumogap [eV]>"
    many = "<NetworkPredictor tox21: classification of NR-AR, NR-AR-LBD, NR-AhR and 9 other targets>"
    assert repr(load_model("tox21")) == many


def test_predictions_are_a_table_as_the_command_writes_it(model, tmp_path):
    predictor, smiles = load_model(model / "two"), ["CCO", "bad", embedded_smiles(1)[0]]
    frame = predictor.predict_with_errors(smiles, interval=0.9, domain=True).to_frame()
    (tmp_path / "in.smi").write_text("\n".join(smiles) + "\n")
    command = ["predict", str(model / "two"), "--input", str(tmp_path / "in.smi"), "--output"]
    assert main([*command, str(tmp_path / "out.csv"), "--interval", "0.9", "--domain", "--quiet"]) == 0
    written = pd.read_csv(tmp_path / "out.csv")
    assert [*frame] == [*written]
    assert frame["smiles"].tolist() == smiles
    assert frame["error"].isna().tolist() == [True, False, True]
    for name in frame:
        if frame[name].dtype.kind == "f":
            np.testing.assert_allclose(frame[name], written[name], rtol=1e-5)
        else:
            assert (
                frame[name].fillna("").astype(str).tolist() == written[name].fillna("").astype(str).tolist()
            )


def test_the_index_of_pandas_is_kept(model):
    predictor = load_model(model / "warm")
    table = pd.DataFrame({"smiles": ["CCO", "CCN"], "T": [1.0, 2.0]}, index=["a", "b"])
    frame = predictor.predict_with_errors(table).to_frame()
    assert frame.index.tolist() == ["a", "b"]
    assert [*frame] == ["smiles", "size_m", "error"]
    plain = predictor.predict_with_errors(["CCO"], conditions={"T": 1.0}).to_frame()
    assert plain.index.tolist() == [0]
    assert plain["size_m"][0] == frame["size_m"]["a"]
    assert predictor.predict_with_errors([], conditions={"T": 1.0}).to_frame().empty


def test_a_row_that_a_condition_refuses_keeps_its_smiles(model):
    table = pd.DataFrame({"smiles": ["CCO", "CCN"], "T": [1.0, 999.0]})
    frame = load_model(model / "warm").predict_with_errors(table).to_frame()
    assert frame["smiles"].tolist() == ["CCO", "CCN"]
    assert frame["error"].fillna("").tolist() == ["", "T 999 is far outside the training rows, 0 to 6"]


def test_a_chunk_is_no_table():
    with pytest.raises(MolsliceError, match="no SMILES; take the result of predict_with_errors"):
        Predictions(np.zeros((1, 1), np.float32), [None]).to_frame()
