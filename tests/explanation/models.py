"""Molecules and models for the tests of explanations."""

import torch

from molslice.chem.featurize import molecule_arrays
from molslice.config import config_from_mapping
from molslice.data.molecules.store import MoleculeStore
from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.folders.run import LoadedRun
from molslice.inference.network import NetworkPredictor
from molslice.model import build_model
from molslice.tasks.targets import TargetInfo
from molslice.types import DataSpec

ODD = (
    "C",
    "O",
    "[Na+].[Cl-]",
    "FS(F)(F)(F)(F)F",
    "*c1ccccc1",
    "[2H]OC",
    "C[C@H](N)C(=O)O",
    "F/C=C/Cl",
    "[Fe]",
)
SIZES = {"num_layers": 2, "dim": 32, "ffn_dim": 32, "num_heads": 4, "dropout": 0.0}


def masked(smiles, **options):
    """Return the molecule, with its atoms in the order of the SMILES."""
    return MaskedMolecule(MoleculeStore.in_memory([molecule_arrays(smiles, atom_order="input")]), **options)


def network(model=SIZES, targets=("y",), descriptors=0):
    """Return the predictor of an untrained network, which is in no folder; its targets have no unit."""
    source = {"name": "csv", "path": "m.csv", "target_columns": list(targets), "descriptors": descriptors > 0}
    config = config_from_mapping({"data": source, "model": model})
    data, count = DataSpec(len(targets), num_descriptors=descriptors), len(targets)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = build_model(config.model, config.attention, data)
    info = TargetInfo(targets, ("",) * count, "regression", (0.0,) * count, (1.0,) * count)
    return NetworkPredictor(LoadedRun(module, config, info, data, {}, {}), "network")
