"""The program that compares pretrained encoders with random weights, on few rows of the embedded data."""

import csv
import gzip
import json

import numpy as np
import pytest
import torch
import yaml

from molslice.inference.load import find_model
from tests.programs import ROOT, load_program
from tests.real_data import SAVED_MODEL

EMBEDDED = ROOT / "data" / "gap_xtb" / "raw" / "data.csv.gz"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The first 60 molecules of the embedded data in its layout."""
    folder = tmp_path_factory.mktemp("data") / "gap_xtb"
    (folder / "raw").mkdir(parents=True)
    with gzip.open(EMBEDDED, "rt") as source, gzip.open(folder / "raw" / "data.csv.gz", "wt") as target:
        rows = csv.reader(source)
        csv.writer(target).writerows(row for _, row in zip(range(61), rows, strict=False))
    splits = np.split(np.arange(60), [40, 50])
    torch.save(dict(zip(("train", "valid", "test"), splits, strict=True)), folder / "split_dict.pt")
    return folder


def test_both_starts_are_trained_with_the_same_settings(data, tmp_path, monkeypatch, capsys):
    program = load_program("pretraining_embedded")
    command = [SAVED_MODEL, "--data", data, "--steps", 3, "--seeds", 2, "--runs", tmp_path, "--out", tmp_path]
    program.main([str(word) for word in command])
    found = json.loads((tmp_path / "pretraining_embedded.json").read_text())
    assert [(row["attention"], row["start"], row["seeds"]) for row in found["results"]] == [
        ("softmax", "random weights", 2),
        ("softmax", "pretrained", 2),
    ]
    random, pretrained = (row["test_mae_eV"]["mean"] for row in found["results"])
    assert pretrained < 0.5 * random  # the saved model has been trained on gaps
    configs = [
        yaml.safe_load((tmp_path / "softmax" / start / "seed1" / "config.yaml").read_text())
        for start in ("random_weights", "pretrained")
    ]
    assert configs[1]["start"]["model"] == str(SAVED_MODEL)
    assert configs[1]["optimizer"].pop("layer_decay") == 0.9
    assert configs[0]["optimizer"].pop("layer_decay") is None
    del configs[0]["start"], configs[1]["start"]
    assert configs[0] == configs[1]
    assert configs[0]["model"]["dim"] == 64
    monkeypatch.setattr(
        program, "train", lambda config, run, **options: json.loads((run / "summary.json").read_text())
    )
    program.main(
        [str(word) for word in [find_model(str(SAVED_MODEL / "model.safetensors")), *command[1:]]]
    )  # nothing is trained again
    again = json.loads((tmp_path / "pretraining_embedded.json").read_text())
    assert again["results"] == found["results"]
    assert str(tmp_path) not in (tmp_path / "pretraining_embedded.json").read_text()
