"""Tests of studies of image models."""

import csv

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from molslice.config import config_from_mapping
from molslice.inference import maps
from molslice.inference.maps import map_of, record_calls, sampled_rows
from molslice.studies import run_study
from molslice.studies.untrained import read_choice, seeded_encoder
from molslice.training.run import train
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
    with found.files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["input"] for row in rows} == {"image"}
    shares = np.array([float(row["value"]) for row in rows if row["quantity"] == "map"])
    assert shares.shape == (tokens**2,)
    assert np.allclose(shares.reshape(tokens, tokens).sum(1), 1, atol=1e-5)
    assert found.files["png"].stat().st_size > 1000


@pytest.mark.parametrize(("causal", "symmetry"), [(False, "equivariant"), (True, "ordered")])
def test_a_causal_attention_is_not_called_equivariant(causal, symmetry, train_run, tmp_path):
    run = train_run(f"causal_{causal}", readout="mean", causal=causal)
    study = run_study("permutation", tmp_path, runs=(run,), quiet=True)
    with study.files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["symmetry"] for row in rows} == {symmetry}


def test_maps_of_pixels_are_drawn_along_the_sequence(train_run, tmp_path):
    run = train_run("pixels", {"tokens": "pixels", "patch": 1})
    found = run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
    with found.files["csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["input"] for row in rows} == {"sequence"}
    assert sum(row["quantity"] == "map" for row in rows) == 65**2
    assert found.files["png"].stat().st_size > 1000


def test_long_sequences_and_images_have_maps_of_some_rows(train_run, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "LONGEST", 15)
    monkeypatch.setattr(maps, "SAMPLED", 4)
    for name, tokens in (("pixels", 64), ("patches", 16)):
        data = {"tokens": "pixels", "patch": 1} if name == "pixels" else {}
        run = train_run(f"long_{name}", data, readout="mean")
        findings = run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
        with findings.files["csv"].open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(findings.notes["rows_of_map"].values()) == [f"4 of {tokens}, evenly spaced"]
        chosen = [row for row in rows if row["quantity"] == "map"]
        assert sorted({int(row["token_i"]) for row in chosen}) == np.linspace(0, tokens - 1, 4).tolist()
        shares = np.array([float(row["value"]) for row in chosen]).reshape(4, tokens)
        assert np.allclose(shares.sum(1), 1, atol=1e-5)
        taken = [float(row["value"]) for row in rows if row["quantity"] == "taken by 4 tokens"]
        assert np.allclose(taken, shares.mean(0), atol=1e-7)
        assert sum(row["quantity"] == "input of W_O" for row in rows) == 4 * 8


class _Work(TorchDispatchMode):
    """Counts the entries of all tensors that operations return."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        outputs = output if isinstance(output, tuple | list) else [output]
        self.entries += sum(value.numel() for value in outputs if isinstance(value, torch.Tensor))
        return output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slice_sort", "flow", "singular", "flash_linear"])
def test_the_work_of_a_map_does_not_grow_with_the_square_of_the_length(name):
    """At 3,136 tokens, a map costs a constant times the 64 rows and the tokens."""
    work, dim = {}, 8
    for tokens in (784, 3136):
        encoder = seeded_encoder(
            read_choice(name), 0, dim=dim, num_layers=1, num_heads=2, uses_pair_bias=False, max_tokens=tokens
        )
        (call,) = record_calls(encoder, torch.randn(1, tokens, dim), torch.ones(1, tokens, dtype=torch.bool))
        with _Work() as counted:
            attention_map = map_of(call, rows=sampled_rows(tokens))
        assert attention_map.weights.shape[2:] == (64, tokens)
        work[tokens] = counted.entries
    assert work[3136] < 4.5 * work[784]  # linear in the tokens, with the rows fixed
