"""The program that compares embeddings in the stack of `molslice fit`, on a tiny table."""

import csv
import gzip
import json
import shutil
import stat
import sys

import numpy as np
import pytest

from molslice.inference.load import load_encoder
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained
from tests.programs import load_program
from tests.real_data import embedded_smiles

COLUMN = "measured log solubility in mols per litre"
MINIMOL = """#!{python}
import sys
import numpy as np
smiles = open(sys.argv[2]).read().split("\\n")
np.save(sys.argv[3], np.array([[len(text), text.count("C"), text.count("N")] for text in smiles], float))
"""


@pytest.fixture
def program(monkeypatch):
    program = load_program("fit_embeddings")
    monkeypatch.setattr(program, "COMPARED", {"esol": None})
    return program


@pytest.fixture
def data(tmp_path):
    smiles = embedded_smiles()[5::100][:60]
    (tmp_path / "moleculenet").mkdir()
    with gzip.open(tmp_path / "moleculenet" / "esol.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([["smiles", COLUMN], *((text, len(text) / 10) for text in smiles)])
    minimol = tmp_path / "minimol"
    minimol.write_text(MINIMOL.format(python=sys.executable))
    minimol.chmod(minimol.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def test_each_set_is_measured_once_and_recorded(program, data, monkeypatch):
    words = ["fit_embeddings.py", "--data", data, "--minimol", data / "minimol"]
    words += ["--runs", data / "runs", "--out", data / "results"]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    program.main()
    monkeypatch.setattr(program, "measure", None)  # nothing is measured again
    program.main()
    result = json.loads((data / "results" / "fit_embeddings.json").read_text())
    assert [candidate["candidate"] for candidate in result["candidates"]] == [
        "encoder-small",
        "without embedding",
        "random weights",
        "and the states of layer 4",
        "MiniMol",
        "and MiniMol",
    ]
    assert result["candidates"][0]["ratio"] == 1.0
    errors = result["results"][0]["errors"]
    assert len(set(errors.values())) == len(errors)
    assert min(errors.values()) > 0


def test_another_encoder_is_compared_in_place_of_the_shipped_one_and_beside_it(program, data, monkeypatch):
    shutil.copytree(find_pretrained(DEFAULT_ENCODER), data / "other")
    words = ["fit_embeddings.py", "--data", data, "--encoder", data / "other"]
    words += ["--runs", data / "runs", "--out", data / "results"]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    program.main()
    assert [path.name for path in data.glob("fit_embeddings*")] == ["fit_embeddings_other"]
    errors = json.loads((data / "results" / "fit_embeddings_other.json").read_text())["results"][0]["errors"]
    assert list(errors) == ["encoder-small", "other", "and other", "other, random weights"]
    assert errors["encoder-small"] == errors["other"] != errors["and other"]


def test_states_of_a_layer_and_of_random_weights(program):
    encoder = load_encoder(find_pretrained(DEFAULT_ENCODER))
    smiles = ["CCO", "c1ccccc1C(=O)O"]
    expected = encoder.embed(smiles)
    states = {number: program.states_of_layer(encoder, smiles, number) for number in (4, 6)}
    random = program.with_random_weights(encoder).embed(smiles)
    np.testing.assert_array_equal(encoder.embed(smiles), expected)
    # after the last layer, only the norm of the encoder follows
    token = states[6][:, : expected.shape[1] // 2]
    norm = encoder.model.encoder.last_norm
    scaled = (token - token.mean(1, keepdims=True)) / np.sqrt(token.var(1, keepdims=True) + norm.eps)
    normed = scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()
    np.testing.assert_allclose(normed, expected[:, : expected.shape[1] // 2], rtol=1e-4, atol=1e-4)
    for other in (states[4], random):
        assert other.shape == expected.shape
        assert np.abs(other - expected).max() > 0.1
