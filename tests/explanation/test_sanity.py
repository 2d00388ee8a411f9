"""Contributions follow the weights, and lie on the group that a property counts."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.explanation.explain import Explainer
from molslice.inference.load import load_model
from tests.explanation.models import network

NITRO = "[N+](=O)[O-]"
RINGS = ("c1ccccc1{}", "C1CCCCC1{}", "c1ccc({})nc1", "c1cc({})oc1", "CC({})C", "OCC({})C", "NCC{}")
ALKANES = (
    "CCC",
    "CCCC",
    "CC(C)C",
    "CCC(C)C",
    "CCCC(C)C",
    "CC1CCC(C)CC1",
    "CCC1CCC(C(C)C)CC1",
    "CC(C)C1CCCC1",
)
SHOWN = ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", "CC(=O)Oc1ccccc1C(=O)O", "NS(=O)(=O)c1cc(Cl)c(NC=O)cc1Cl")
ENDS = ("C", "O", "N", "Cl", "C#N", NITRO, "C(=O)O", "F", f"CC{NITRO}", "CCl", "Br")


@pytest.fixture(scope="module")
def counting():
    """Return a network trained for some seconds to count nitro groups and chlorine atoms."""
    smiles = [ring.format(end) for ring in RINGS for end in ENDS]
    smiles += [f"c1cc({other})ccc1{end}" for end in ENDS for other in ENDS]
    smiles += ALKANES
    wanted = torch.tensor([[float(text.count(group)) for group in (NITRO, "Cl")] for text in smiles])
    predictor = network(targets=("nitro", "chlorine"))
    model = predictor.model
    store = MoleculeStore.in_memory([molecule_arrays(text) for text in smiles])
    batch = model.prepare(collate(store, np.arange(len(smiles))))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (model(batch).prediction - wanted).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.02
    return predictor


@pytest.mark.parametrize("method", ["gradients", "shapley"])
@pytest.mark.parametrize(
    ("target", "smiles", "atoms", "count"),
    [
        ("nitro", f"CCc1ccc({NITRO})cc1", [6, 7, 8], 1),
        ("nitro", f"OCC{NITRO}", [3, 4, 5], 1),
        ("nitro", f"Clc1ccc({NITRO})cc1", [5, 6, 7], 1),
        ("nitro", "CC(=O)Nc1ccccc1", [], 0),
        ("chlorine", f"Clc1ccc({NITRO})cc1", [0], 1),
        ("chlorine", "Clc1ccc(CCl)cc1", [0, 6], 2),
        ("chlorine", "NCCCl", [3], 1),
    ],
)
def test_a_property_that_counts_a_group_is_explained_by_the_group(
    counting, method, target, smiles, atoms, count
):
    values = Explainer(counting, method=method, target=target)(smiles).values
    outside = np.delete(values, atoms)
    assert values[atoms].sum() == pytest.approx(count, abs=0.35)
    assert np.abs(outside).sum() < 0.5


def test_contributions_change_when_weights_are_randomized_layer_by_layer():
    # Adebayo et al. 2018, "Sanity Checks for Saliency Maps": from the last layer to the first
    predictor = load_model("gap-xtb")
    model, trained = predictor.model, copy.deepcopy(predictor.model.state_dict())
    before = {text: Explainer(predictor)(text).values for text in SHOWN}

    def likeness():
        """Return the mean rank correlation over the atoms that are not those of the baseline."""
        found = []
        for text, values in before.items():
            chosen = values != 0
            after = Explainer(predictor)(text).values
            found.append(spearmanr(values[chosen], after[chosen]).statistic)
        return np.mean(found)

    assert likeness() == pytest.approx(1.0)
    layers = list(model.encoder.layers)
    stages = [[model.readout], layers[2:], layers[:2], [model.graph_bias, model.atom_embedding]]
    measured = np.zeros((3, len(stages)))  # molecules have few atoms, so a mean over draws
    for draw, stage in np.ndindex(measured.shape):
        if stage == 0:
            model.load_state_dict(trained)
            generator = torch.Generator().manual_seed(draw)
        for weights in (weights for part in stages[stage] for weights in part.parameters()):
            spread, mean = float(weights.detach().std(correction=0)), float(weights.detach().mean())
            weights.data.normal_(mean, spread, generator=generator)
        measured[draw, stage] = likeness()
    assert max(measured.mean(0)) < 0.6
    assert abs(measured.mean(0)[-1]) < 0.4
