"""Tests of studies of image models."""

import csv

import numpy as np
import pytest

from molslice.config import config_from_mapping
from molslice.studies import maps, run_study
from molslice.training.run import train
from molslice.types import MolsliceError
from tests.data.images.pictures import pixels, write_idx


@pytest.fixture(scope="module")
def train_run(tmp_path_factory):
    """Train for two steps on random images of 8 x 8 pixels."""
    root = tmp_path_factory.mktemp("digits")
    for part, count in (("train", 40), ("t10k", 10)):
        write_idx(root / f"{part}-images-idx3-ubyte", pixels(count, 8, 8, 1)[..., 0])
        write_idx(root / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)

    def build(name, data=(), **model):
        sizes = {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2, "readout": "cls", **model}
        mapping = {
            "data": {"name": "mnist", "root": str(root), "patch": 2, **dict(data)},
            "model": {"name": "sequence", **sizes},
            "task": "sequence",
            "training": {"max_steps": 2, "batch_size": 8},
            "trainer": {"accelerator": "cpu", "num_threads": 1},
        }
        folder = root / "runs" / name
        train(config_from_mapping(mapping), folder, quiet=True)
        return folder

    return build


@pytest.mark.parametrize(("readout", "tokens"), [("cls", 17), ("mean", 16)])
def test_maps_are_drawn_on_an_image_of_the_data(readout, tokens, train_run, tmp_path):
    run = train_run(readout, readout=readout)
    found = run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
    with found.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["input"] for row in rows} == {"image"}
    shares = np.array([float(row["value"]) for row in rows if row["quantity"] == "map"])
    assert shares.shape == (tokens**2,)
    assert np.allclose(shares.reshape(tokens, tokens).sum(1), 1, atol=1e-5)
    assert found.png.stat().st_size > 1000


def test_maps_of_pixels_are_drawn_along_the_sequence(train_run, tmp_path):
    run = train_run("pixels", {"tokens": "pixels", "patch": 1})
    found = run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
    with found.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["input"] for row in rows} == {"sequence"}
    assert sum(row["quantity"] == "map" for row in rows) == 65**2
    assert found.png.stat().st_size > 1000


def test_no_map_is_drawn_of_sequences_that_are_too_long(train_run, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "MAX_TOKENS", 15)
    run = train_run("long", {"tokens": "pixels", "patch": 1})
    with pytest.raises(MolsliceError, match="every row of .* has 64 tokens or more; .* at most 15"):
        run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
    patched = train_run("patched", readout="mean")
    assert run_study("maps", tmp_path, runs=(patched,), options={"layer": 1}, quiet=True).rows > 0
