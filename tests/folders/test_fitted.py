"""Tests of the folder of a fit: what is written is read again, and damage is named."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from molslice.fitting.fit import fit
from molslice.folders.fitted import ENCODER, FIT, LEARNER_FILE, read_fitted, save_encoder
from molslice.folders.run import model_file, read_run, write_in_half
from molslice.pretrained import find_pretrained
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def test_the_encoder_is_stored_in_half_of_its_bytes(tmp_path):
    folder = find_pretrained("encoder-small")
    save_encoder(tmp_path, model_file(folder))
    (copy,) = (tmp_path / ENCODER).iterdir()
    assert copy.stat().st_size < 0.51 * model_file(folder).stat().st_size
    stored, given = read_run(copy), read_run(folder)
    assert stored.config == given.config
    for name, weights in stored.model.state_dict().items():
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights, given.model.state_dict()[name], rtol=1e-3, atol=1e-6)


def test_numbers_that_float16_cannot_hold_stay(tmp_path):
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(find_pretrained("encoder-small"), source)
    out.mkdir()
    tensors = load_file(model_file(source))
    with safe_open(model_file(source), "pt") as opened:
        metadata = opened.metadata()
    name = next(iter(tensors))
    tensors[name].view(-1)[0] = 1e6
    save_file(tensors, model_file(source), metadata)
    write_in_half(source, out)
    assert read_run(out).model.state_dict()[name].view(-1)[0] == 1e6


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    rows = "".join(f"{text},{len(text)}\n" for text in embedded_smiles(40))
    (folder / "t.csv").write_text(f"smiles,length\n{rows}")
    fit(folder / "t.csv", "length", folder / "model", members=2, encoder=None, refit=False, quiet=True)
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
