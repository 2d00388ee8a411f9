"""Save one small model of each kind, with what it predicts: `python -m tests.saving FOLDER`.

The folders in `tests/saved_models/` were written by earlier versions. They are never written again: a version
that changes the format, or adds a kind of model, saves new ones beside them.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

from molslice import fit, load_model, train
from molslice.chem import DESCRIPTORS_VERSION
from molslice.config import config_from_mapping, config_to_yaml
from molslice.fitting import fold_networks
from molslice.folders.run import CHECKPOINTS, CONFIG, TENSORBOARD, write_model
from molslice.inference.precision import float32_inference
from molslice.learners import extra_trees
from molslice.model import build_model
from molslice.tasks.targets import TargetInfo
from molslice.training import duration
from molslice.training.ensemble import train_ensemble
from molslice.types import DataSpec, EpisodeBatch, SequenceBatch

EXPECTED = "expected.json"
SMILES = ["CCO", "c1ccccc1", "C[C@H](N)C(=O)O", "O=[N+]([O-])c1ccc(Cl)cc1", "[Na+].[Cl-]", "F/C=C/Br"]
GIVEN = {"temperature": [290, 310] * 3, "species": ["rat"] * 3 + ["dog"] * 3, "solvent": ["O", "CCO"] * 3}
SIZES = {"num_layers": 2, "dim": 8, "ffn_dim": 8, "num_heads": 2}
TWO = TargetInfo(("gap", "logp"), ("eV", ""), "regression", (3.0, 1.0), (1.5, 2.0))
CLASSES = TargetInfo(("toxic",), ("",), "classification", (0.0,), (1.0,))
MULTICLASS = TargetInfo(("kind",), ("",), "multiclass", (0.0,), (1.0,), ("a", "b", "c"))
TOKENS = TargetInfo(("word",), ("",), "tokens", (0.0,), (1.0,))
ACTIONS = TargetInfo(("x", "y"), ("", ""), "actions", (0.0, 0.0), (1.0, 1.0))
STATE_STATISTICS = {"state_mean": (0.0, 1.0, 2.0), "state_std": (1.0, 2.0, 3.0)}
MOLECULES = {  # attention, targets, sections of the configuration, and the data
    "softmax": ("softmax", TWO, {}, {}),
    "slice_sort": ("slice_sort", TWO, {}, {}),
    "flow": ("flow", TWO, {}, {}),
    "singular": ("singular", TWO, {}, {}),
    "classes": ("softmax", CLASSES, {"model": {"readout": "mean", "norm": "post"}}, {}),
    "input_order": ("slice_sort", TWO, {"data": {"atom_order": "input"}}, {}),
    "descriptors": ("softmax", TWO, {"data": {"descriptors": True}}, {"num_descriptors": 215}),
    "gin_virtual": ("identity", TWO, {"model": {"name": "gin_virtual"}}, {}),
}
SEQUENCES = {  # model, task, targets, and the data
    "series": ("sequence", "sequence", MULTICLASS, DataSpec(3, "values", channels=4, max_tokens=12)),
    "text": ("sequence", "sequence", MULTICLASS, DataSpec(3, "ids", vocabulary_size=11, max_tokens=12)),
    "language": ("language", "language", TOKENS, DataSpec(11, "ids", vocabulary_size=11, max_tokens=12)),
    "images": (
        "hierarchical",
        "sequence",
        MULTICLASS,
        DataSpec(3, "values", channels=4, max_tokens=64, grid=(8, 8)),
    ),
    "episodes": (
        "decision",
        "decision",
        ACTIONS,
        DataSpec(2, "steps", channels=3, max_tokens=12, timesteps=9, statistics=STATE_STATISTICS),
    ),
    "behavior_cloning": (
        "behavior_cloning",
        "decision",
        ACTIONS,
        DataSpec(2, "steps", channels=3, max_tokens=12, timesteps=9, statistics=STATE_STATISTICS),
    ),
}


def outputs(predictor):
    """Compute the output of a model of sequences for a batch that is the same in every version."""
    data = predictor.data
    length = data.max_tokens
    if data.tokens == "steps":
        count = 2 * length // 3
        draw = torch.linspace(-1, 1, count * 6).sin().view(2, -1, 6)
        steps = torch.arange(length // 3).expand(2, -1)
        batch = EpisodeBatch(draw[..., :3], draw[..., 3:5], draw[..., 5], steps)
        with float32_inference("cpu"):
            return predictor.model(batch).prediction.numpy()
    if data.tokens == "ids":
        tokens = torch.arange(2 * length).view(2, length) * 7 % data.vocabulary_size
    else:
        tokens = torch.linspace(-1, 1, 2 * length * data.channels).view(2, length, data.channels).sin()
    with float32_inference("cpu"):
        return predictor.targets.to_unit(predictor.model(SequenceBatch(tokens)).prediction).numpy()


def predictions(folder):
    """Return what a saved model predicts, float32."""
    predictor = load_model(folder)
    described = getattr(predictor, "data", None)
    if described is not None and described.tokens != "molecules":
        return outputs(predictor)
    conditions = {name: GIVEN[name] for name in predictor.condition_names} or None
    return predictor.predict_with_errors(SMILES, conditions=conditions).values


def save_network(folder, config, targets, data, extra=None):
    """Write a folder with random weights."""
    folder.mkdir(parents=True)
    torch.manual_seed(11)
    model = build_model(config.model, config.attention, data)
    for tensor in model.parameters():  # some start as zeros
        torch.nn.init.normal_(tensor, std=0.3)
    write_model(folder, model.state_dict(), targets, data, config, extra)
    (folder / CONFIG).write_text(config_to_yaml(config))


def save_networks(root):
    """Write the models that need no training."""
    for name, (attention, targets, sections, described) in MOLECULES.items():
        columns = {"name": "csv", "path": "molecules.csv", "target_columns": list(targets.names)}
        config = {"data": columns, "model": SIZES, "attention": {"name": attention}}
        config = {key: {**value, **sections.get(key, {})} for key, value in config.items()}
        if config["model"].get("name") == "gin_virtual":
            config = {**config, "model": {"name": "gin_virtual", "num_layers": 2, "dim": 8}}
        statistics = {}
        if described:
            number = described["num_descriptors"]
            for part, value in (("low", -9.0), ("high", 9.0), ("mean", 1.0), ("std", 3.0)):
                statistics[f"descriptor_{part}"] = (value,) * number
        data = DataSpec(len(targets.names), statistics=statistics, **described)
        extra = {"descriptors_version": DESCRIPTORS_VERSION} if described else None
        save_network(root / name, config_from_mapping(config), targets, data, extra)
    for name, (model, task, targets, data) in SEQUENCES.items():
        config = {
            "data": {"name": "csv", "path": "x.csv", "target_columns": "a"},
            "model": {"name": model, **SIZES},
            "attention": {"name": "softmax"},
            "task": task,
        }
        if model == "hierarchical":
            config["model"] = {
                "name": model,
                "depths": [1, 1],
                "dims": [8, 8],
                "num_heads": 2,
                "ffn_ratio": 1,
            }
        if model == "behavior_cloning":
            config["model"] = {"name": model, "num_layers": 2, "dim": 8}
        save_network(root / name, config_from_mapping(config), targets, data)


def save_trained(root, long, short):
    """Write folders of `molslice train` and `molslice fit`."""
    config = {
        "data": {"name": "csv", "path": str(long), "target_columns": "gap", "units": "eV"},
        "model": SIZES,
        "training": {"max_steps": 4, "batch_size": 8},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    train(config_from_mapping(config), root / "trained", quiet=True)
    train_ensemble(config_from_mapping(config), root / "ensemble", 2, quiet=True)
    gaussian = {**config, "training": {**config["training"], "loss": "gaussian"}}
    train(config_from_mapping(gaussian), root / "gaussian", quiet=True)
    for folder in (*root.rglob(CHECKPOINTS), *root.rglob(TENSORBOARD)):
        shutil.rmtree(folder)
    extra_trees.NUM_TREES, duration.MIN_EPOCHS, duration.MAX_EPOCHS = 2, 1, 1
    fit(short, "gap", root / "fit", units="eV", members=2, encoder=None, refit=False, quiet=True)
    fold_networks.MIN_WEIGHT = 0.0  # of networks that are trained for one epoch
    options = {"members": 2, "quality": "best", "refit": False, "quiet": True}
    fit(short, "wide", root / "fit_encoder", encoder=root / "trained", **options)
    options = {"members": 2, "encoder": None, "refit": False, "quiet": True}
    fit(short, "dose", root / "fit_log", units="mg", **options)
    given = {"conditions": ["temperature", "species"], "smiles_column": ["smiles", "solvent"]}
    fit(short, "gap", root / "fit_pairs", **given, symmetric=True, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    root = parser.parse_args().folder.resolve()
    save_networks(root)
    with tempfile.TemporaryDirectory() as name:
        lines = [
            f"{'C' * (k % 6 + 1)}{'NOS'[k % 3]}{'C' * (k // 6)},{k / 7},{k % 2},{10 ** (k / 20)},"
            f"{280 + 7 * k % 50},{('rat', 'dog')[k % 5 < 2]},{('O', 'CCO', 'CCCC')[k % 7 % 3]}"
            for k in range(60)
        ]
        long, short = Path("measured.csv"), Path("few.csv")  # a model names its data
        os.chdir(name)
        header = "smiles,gap,wide,dose,temperature,species,solvent"
        long.write_text("\n".join([header, *lines]))
        short.write_text("\n".join([header, *lines[:24]]))
        save_trained(root, long, short)
    for folder in sorted(root.iterdir()):
        expected = predictions(folder)
        assert np.isfinite(expected).all()
        (folder / EXPECTED).write_text(json.dumps(expected.round(6).tolist()))


if __name__ == "__main__":
    main()
