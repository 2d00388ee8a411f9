import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

import molslice
from molslice.inference.load import load_model, name_device
from molslice.inference.smiles_reader import SmilesReader
from molslice.types import MolsliceError
from tests.inference.models import CLASSES, FORMS, TWO, checkpoint_folder, embedded_smiles, untrained

BAD = ["CCO", "not a molecule", "c1ccccc1", "", "C1CC", "CC(=O)O"]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=FORMS)
def each_form(request, tmp_path):
    return untrained(tmp_path / "model", attention=FORMS[request.param])


def test_one_target_is_a_vector_several_are_a_table(predictor, tmp_path):
    smiles = embedded_smiles(12)
    one = predictor.predict(smiles)
    assert one.shape == (12,)
    assert one.dtype == np.float32
    assert len(set(one.tolist())) == 12  # an untrained model tells molecules apart
    both = untrained(tmp_path, targets=TWO)
    assert both.predict(smiles).shape == (12, 2)
    assert both.columns == ("gap_eV", "logp")


def test_values_are_in_the_unit_of_the_target(predictor):
    store_values = predictor.predict(["CCO"])
    with SmilesReader(256, "canonical") as reader:
        (store,) = reader.read([["CCO"]])
    from molslice.data.molecules.collate import collate

    with torch.no_grad():
        standardized = predictor.model(collate(store, [0])).prediction
    assert store_values[0] == pytest.approx(float(standardized) * 1.5 + 3.0, abs=1e-6)


def test_a_bad_row_keeps_its_place_and_says_why(predictor):
    predictions = predictor.predict_with_errors(BAD)
    assert np.isnan(predictions.values[:, 0]).tolist() == [False, True, False, True, True, False]
    assert [reason is None for reason in predictions.errors] == [True, False, True, False, False, True]
    good = predictor.predict(["CCO", "c1ccccc1", "CC(=O)O"])
    np.testing.assert_allclose(predictions.values[[0, 2, 5], 0], good, atol=1e-5)


@pytest.mark.parametrize("row", [None, float("nan"), 7, b"CCO", "C C"])
def test_a_value_that_is_not_text_is_an_unreadable_row(predictor, row):
    predictions = predictor.predict_with_errors(["CCO", row])
    assert np.isfinite(predictions.values[0, 0])
    assert np.isnan(predictions.values[1, 0])
    assert predictions.errors[1]


def test_only_bad_rows_and_no_rows(predictor):
    assert np.isnan(predictor.predict(["x", "y"])).all()
    assert predictor.predict([]).shape == (0,)
    assert predictor.predict_with_errors([]).values.shape == (0, 1)


def test_series_and_arrays_are_lists_too(predictor):
    smiles = ["CCO", "CCN"]
    expected = predictor.predict(smiles)
    np.testing.assert_array_equal(predictor.predict(pd.Series(smiles, index=[5, 3])), expected)
    np.testing.assert_array_equal(predictor.predict(np.array(smiles)), expected)


@pytest.mark.parametrize(
    "smiles",
    [b"CCO", bytearray(b"CCO"), {"CCO": 1}, {"CCO"}, 7, None],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_a_list_is_refused(predictor, smiles):
    with pytest.raises(MolsliceError, match=f"DataFrame of them, got {type(smiles).__name__}"):
        predictor.predict(smiles)


def test_neighbors_order_and_repetition_do_not_matter(each_form):
    smiles = embedded_smiles(8)
    together = each_form.predict(smiles)
    alone = np.array([each_form.predict([text])[0] for text in smiles])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    order = np.random.default_rng(0).permutation(8)
    np.testing.assert_allclose(each_form.predict([smiles[i] for i in order]), together[order], atol=1e-5)
    twice = each_form.predict(smiles + smiles)
    np.testing.assert_allclose(twice, np.tile(together, 2), atol=1e-5)


def test_the_same_call_gives_the_same_bits(each_form):
    smiles = embedded_smiles(40)
    np.testing.assert_array_equal(each_form.predict(smiles), each_form.predict(smiles))


def spread_over_spellings(predictor, molecules, spellings):
    """Return the largest difference between predictions for spellings of the same molecule."""
    written = []
    for number, text in enumerate(molecules):
        mol = Chem.MolFromSmiles(text)
        written += Chem.MolToRandomSmilesVect(mol, spellings, randomSeed=number + 1)
    values = predictor.predict(written).reshape(len(molecules), spellings)
    assert np.isfinite(values).all()
    return np.ptp(values, axis=1).max()


def test_the_spelling_does_not_matter(each_form):
    assert spread_over_spellings(each_form, embedded_smiles(20), 5) < 1e-5


@pytest.mark.exhaustive
def test_a_thousand_molecules_in_ten_spellings(each_form):
    assert spread_over_spellings(each_form, embedded_smiles(1000), 10) < 1e-5


def test_the_spelling_matters_for_a_model_of_the_input_order(tmp_path):
    """The check above can fail: with `atom_order: input`, predictions depend on the spelling."""
    model = untrained(
        tmp_path, attention={"name": "slice_sort", "placement": "index"}, data={"atom_order": "input"}
    )
    assert spread_over_spellings(model, embedded_smiles(20), 5) > 1e-3


def test_chunks_and_workers_change_nothing(predictor, monkeypatch):
    smiles = [*embedded_smiles(50), "bad", *embedded_smiles(20, start=3)]
    expected = predictor.predict_with_errors(smiles)
    monkeypatch.setattr(predictor, "chunk_rows", 7)
    chunked = predictor.predict_with_errors(smiles)
    parallel = predictor.predict_with_errors(smiles, workers=2)
    np.testing.assert_allclose(chunked.values, expected.values, atol=1e-5)
    np.testing.assert_array_equal(parallel.values, chunked.values)
    assert chunked.errors == parallel.errors == expected.errors


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_stays_a_few_chunks_ahead(workers):
    asked = []

    def chunks():
        for number in range(40):
            asked.append(number)
            yield ["CCO", "CCN"]

    with SmilesReader(256, "canonical", workers) as reader:
        stores = reader.read(chunks())
        for done in range(1, 41):
            assert len(next(stores)) == 2
            assert len(asked) <= done + 2 * workers
    assert len(asked) == 40


def test_workers_must_not_be_negative(predictor):
    with pytest.raises(MolsliceError, match="workers"):
        predictor.predict(["C"], workers=-1)


def test_classes_are_probabilities(tmp_path):
    model = untrained(tmp_path, targets=CLASSES)
    values = model.predict(embedded_smiles(20))
    assert ((values > 0) & (values < 1)).all()
    assert model.columns == ("toxic",)


def test_dropout_is_off(predictor):
    assert any(isinstance(module, torch.nn.Dropout) for module in predictor.model.modules())
    assert not any(module.training for module in predictor.model.modules())


def test_a_large_molecule_is_predicted_and_a_larger_one_refused(predictor):
    predictions = predictor.predict_with_errors(["C" * 256, "C" * 257])
    assert np.isfinite(predictions.values[0, 0])
    assert "256" in predictions.errors[1]


def test_load_model_is_exported_from_the_package(tmp_path):
    assert molslice.load_model(checkpoint_folder(tmp_path)).target_units == ("eV",)


@pytest.mark.parametrize("name", ["", "nothing", "runs/nothing", "/no/such/place", "../gap-xtb"])
def test_a_model_that_is_not_there(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MolsliceError, match=r"no folder of that path, and the models that ship"):
        load_model(name)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(MolsliceError, match=r"model\.safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize("device", ["frog", "cuda:99", "meta2", "hpu", "privateuseone", "mkldnn"])
def test_a_device_that_is_not_there(tmp_path, device):
    folder = checkpoint_folder(tmp_path)
    with pytest.raises(MolsliceError, match=device):
        load_model(folder, device)


@pytest.mark.parametrize(
    ("has_gpu", "computes", "expected"),
    [(False, True, "cpu"), (True, True, "cuda"), (True, False, "cpu")],
)
def test_a_device_that_is_chosen_automatically(has_gpu, computes, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert name_device("auto", computes=computes) == expected
    assert name_device("mps", computes=computes) == "mps"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would be chosen")
def test_the_cpu_computes_without_a_gpu():
    assert load_model("gap-xtb", "auto").device == torch.device("cpu")
