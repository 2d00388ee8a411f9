"""Untrained models in checkpoint folders, and real molecules."""

import csv
import functools
import gzip
from pathlib import Path

import torch

from molslice.config import config_from_mapping, config_to_yaml
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.run_folder import CONFIG, write_model
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


def untrained(folder, **options):
    """Return a predictor for such a folder."""
    return load_model(checkpoint_folder(folder, **options))
