"""Tests of the folder of a fit: what is written is read again, and damage is named."""

import json

import pytest

from molslice.fitting.fit import fit
from molslice.folders.fitted import ENCODER, FIT, LEARNER_FILE, read_fitted, save_encoder
from molslice.folders.run import model_file
from molslice.pretrained import find_pretrained
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def test_the_encoder_is_copied(tmp_path):
    file = model_file(find_pretrained("encoder-small"))
    save_encoder(tmp_path, file)
    (copy,) = (tmp_path / ENCODER).iterdir()
    assert copy.read_bytes() == file.read_bytes()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    rows = "".join(f"{text},{len(text)}\n" for text in embedded_smiles(40))
    (folder / "t.csv").write_text(f"smiles,length\n{rows}")
    fit(folder / "t.csv", "length", folder / "model", members=2, encoder=None, quiet=True)
    return folder / "model"


def test_a_fit_is_read_again(fitted):
    model = read_fitted(fitted)
    assert model.targets.names == ("length",)
    assert model.about == json.loads((fitted / FIT).read_text())
    assert (model.num_networks, model.num_folds) == (0, 2)
    assert [set(learners) for learners in model.learners] == [set(stack.names) for stack in model.stacks]


def test_damage_is_named(fitted):
    record = (fitted / FIT).read_text()
    for content, message in [
        (record.replace('"format": "', '"format": "x'), "has format 'x"),
        (record[: len(record) // 2], FIT),
    ]:
        (fitted / FIT).write_text(content)
        with pytest.raises(MolsliceError, match=message):
            read_fitted(fitted)
    (fitted / FIT).write_text(record)
    (fitted / LEARNER_FILE).rename(fitted / "elsewhere")
    with pytest.raises(MolsliceError, match=LEARNER_FILE):
        read_fitted(fitted)
