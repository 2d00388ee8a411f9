"""Untrained models in checkpoint folders, and real molecules."""

import csv
import functools
import gzip
import json
from pathlib import Path

import torch

from molslice.config import config_from_mapping, config_to_yaml
from molslice.folders.run import CONFIG, write_model
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec

EMBEDDED = Path(__file__).parents[2] / "data" / "gap_xtb" / "raw" / "data.csv.gz"
GAP = TargetInfo(("gap",), ("eV",), "regression", (3.0,), (1.5,))
TWO = TargetInfo(("gap", "logp"), ("eV", ""), "regression", (3.0, 1.0), (1.5, 2.0))
CLASSES = TargetInfo(("toxic",), ("",), "classification", (0.0,), (1.0,))
FORMS = {
    "softmax": {"name": "softmax"},
    "slice_sort": {"name": "slice_sort"},
    "slice_sort aligned": {"name": "slice_sort", "form": "mix_plus_sort", "placement": "aligned"},
    "flow": {"name": "flow"},
    "singular": {"name": "singular"},
}


TINY = {
    "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2, "dropout": 0.0},
    "training": {"max_steps": 3, "batch_size": 16, "token_budget": 1024},
    "trainer": {"accelerator": "cpu", "num_threads": 1},
}


def write_tiny_config(folder, target, scale, **options):
    """Write a table of 60 molecules whose target grows with their SMILES, and a configuration for it."""
    table = folder / "molecules.csv"
    rows = "".join(f"{text},{len(text) * scale}\n" for text in embedded_smiles(60))
    table.write_text(f"smiles,{target}\n{rows}")
    data = {"name": "csv", "path": str(table), "target_columns": [target], **options}
    (folder / "config.yaml").write_text(json.dumps({"data": data, **TINY}))  # JSON is YAML
    return folder / "config.yaml"


def embedded_smiles(count, start=0):
    """Return SMILES spread evenly over the embedded data."""
    smiles = _all_smiles()
    step = len(smiles) // count
    return list(smiles[start :: max(step, 1)][:count])


@functools.cache
def _all_smiles():
    with gzip.open(EMBEDDED, "rt") as file:
        return tuple(row["smiles"] for row in csv.DictReader(file))


def checkpoint_folder(folder, targets=GAP, attention=None, **sections):
    """Write `model.safetensors` and `config.yaml` with random weights, large enough to affect predictions."""
    mapping = {
        "data": {"name": "csv", "path": "molecules.csv", "target_columns": list(targets.names)},
        "model": {"num_layers": 2, "dim": 16, "ffn_dim": 16, "num_heads": 4, "dropout": 0.3},
        "attention": attention or {"name": "softmax"},
    }
    for name, section in sections.items():
        mapping[name] = {**mapping.get(name, {}), **section}
    config = config_from_mapping(mapping)
    torch.manual_seed(7)
    data = config.model_data(DataSpec(len(targets.names)))
    model = build_model(config.model, config.attention, data)
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder, model.state_dict(), targets, data, config)
    (folder / CONFIG).write_text(config_to_yaml(config))
    return folder


def untrained(folder, *, wildcards=None, **options):
    """Return a predictor for such a folder."""
    return load_model(checkpoint_folder(folder, **options), wildcards=wildcards)
