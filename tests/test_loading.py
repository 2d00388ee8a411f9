"""What loading a model does not do: unpickle, read other files than its own, or fill the memory."""

import json
import os
import pickle
import shutil
import stat
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from molslice import load_model
from molslice.files import received
from molslice.pretrained import pretrained_names
from molslice.types import MolsliceError
from tests.real_data import REPOSITORY

SAVED = REPOSITORY / "tests" / "saved_models"
SMILES = ["CCO", "c1ccccc1Cl"]


def copy_of(name, tmp_path):
    return shutil.copytree(SAVED / name, tmp_path / "model")


def refusal(folder):
    with pytest.raises(MolsliceError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


@pytest.fixture
def no_pickles(monkeypatch):
    """Fail when anything is unpickled."""

    def fail(*_, **__):
        raise AssertionError("something is unpickled")

    data = pickle.dumps(1)
    for name in ("Unpickler", "_Unpickler"):
        refused = type(name, (getattr(pickle, name),), {"load": fail})
        monkeypatch.setattr(pickle, name, refused)
    for name in ("load", "loads"):
        monkeypatch.setattr(pickle, name, fail)
    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(AssertionError, match="unpickled"):
        pickle.loads(data)


@pytest.mark.parametrize("name", [*sorted(path.name for path in SAVED.iterdir()), *pretrained_names()])
def test_nothing_is_unpickled(name, tmp_path, no_pickles):
    folder = SAVED / name
    if folder.is_dir():  # with pickles beside its files, as a training leaves them for resuming
        folder = copy_of(name, tmp_path)
        (folder / "checkpoints").mkdir(exist_ok=True)
        for file in ("checkpoints/last.ckpt", "model.pt", "pytorch_model.bin", "learners.pkl", "config.pkl"):
            (folder / file).write_bytes(b"\x80\x04cos\nsystem\n.")
    model = load_model(folder if folder.is_dir() else name)
    data = getattr(model, "data", None)
    if data is None or data.tokens == "molecules":
        given = {"temperature": 300.0, "species": "rat", "solvent": "O"}
        conditions = {condition: given[condition] for condition in getattr(model, "condition_names", ())}
        assert model.predict_with_errors(SMILES, conditions=conditions).errors == [None, None]
    if (SAVED / name / "calibration.json").is_file():
        has_domain = (SAVED / name / "domain.json").is_file()
        model.predict_with_errors(SMILES, conditions=conditions, interval=0.5, domain=has_domain)


def test_files_that_differ_in_case_are_others(tmp_path):
    expected = load_model(SAVED / "fit").predict(SMILES)
    folder = copy_of("fit", tmp_path)
    for name in ("FIT.json", "Learners.safetensors", "Fit.JSON", "Calibration.json", "Ensemble.json"):
        if (folder / name).exists():
            pytest.skip("this file system does not distinguish upper and lower case")
        (folder / name).write_bytes(b"\x80\x04cos\nsystem\n.")
    np.testing.assert_array_equal(load_model(folder).predict(SMILES), expected)
    (folder / "fit.json").unlink()
    assert "fit.json; its folder is incomplete" in refusal(folder)


@pytest.mark.parametrize("name", ["learners.safetensors", "fit.json", "rows.csv"])
def test_a_device_is_not_read(name, tmp_path):
    folder = copy_of("fit", tmp_path)
    (folder / name).unlink()
    try:
        os.mknod(folder / name, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which has no end
    except OSError:
        pytest.skip("only root makes devices")
    if name == "rows.csv":  # read when molecules are compared with those of the training
        (folder / "domain.json").unlink(missing_ok=True)
        with pytest.raises(MolsliceError):
            load_model(folder).find_options(domain=True)
    else:
        refusal(folder)


def test_metadata_with_many_levels_are_refused(tmp_path):
    folder = copy_of("softmax", tmp_path)
    file = folder / "model.safetensors"
    with safe_open(file, "numpy") as opened:
        about = opened.metadata()
    for levels in (60, 100_000):
        deep = about["molslice"][:-1] + ', "more": ' + "[" * levels + "]" * levels + "}"
        save_file(load_file(SAVED / "softmax" / "model.safetensors"), file, metadata={"molslice": deep})
        assert "levels" in refusal(folder) or "recursion" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "file"), [("softmax", "model.safetensors"), ("fit", "learners.safetensors")]
)
def test_a_sparse_file_does_not_fill_the_memory(name, file, tmp_path):
    """Its header is right, and its size too, but there is nothing in it."""
    folder = copy_of(name, tmp_path)
    content = (folder / file).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    tensor = next(key for key in header if key != "__metadata__")
    size = 1 << 40
    forged = {key: value for key, value in header.items() if key == "__metadata__"}
    forged[tensor] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    text = json.dumps(forged).encode()
    with (folder / file).open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        try:
            stream.truncate(8 + len(text) + size)
        except OSError:
            pytest.skip("this file system has no file of a terabyte")
    assert file in refusal(folder)


def test_too_little_memory_for_a_file_is_a_reason(tmp_path, monkeypatch):
    for error in (MemoryError("no memory"), RuntimeError("unable to mmap")):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(received, "safe_open", fail)
        assert str(error) in refusal(SAVED / "softmax")


def test_a_zip_of_a_model_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.safetensors", bytes(1 << 26))
    before = sorted(tmp_path.iterdir())
    refusal(tmp_path / "model.zip")
    assert sorted(tmp_path.iterdir()) == before
