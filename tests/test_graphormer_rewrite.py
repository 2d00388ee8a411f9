"""The rewrite of Graphormer in `benchmarks/`, against molslice with the published tables."""

import numpy as np
import pytest
import torch
from ogb.utils import smiles2graph

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.model import AttentionChoice
from molslice.model.graph_bias import MAX_DISTANCE
from molslice.model.graphormer import GraphormerSpec
from molslice.types import DataSpec
from tests.programs import load_program

# every path between two atoms is the only shortest one, because rings have an odd size; two fragments
SMILES = ("CC(C)CC(=O)NCCCCCCCO", "OC1CCCC1c1cccn1C", "[Na+].CC(=O)[O-]", "C")
HEADS = 4


@pytest.fixture(scope="module")
def program():
    return load_program("graphormer_rewrite")


@pytest.fixture(scope="module")
def batch(program):
    items = program.GraphormerSet([smiles2graph(text) for text in SMILES], [1.0, 2.0, 3.0, 4.0])
    return program.collate([items[place] for place in range(len(SMILES))])


def test_batches_are_padded_to_the_largest_molecule(batch):
    assert batch.atoms.shape == (4, 15, 9)
    assert batch.path_bonds.shape == (4, 15, 15, 5, 3)
    assert batch.targets.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (batch.atoms[3, 1:] == 0).all()
    assert (batch.path_bonds[3] == 0).all()
    assert batch.mask_bias[3].isinf().sum() == 16 * 14


def test_the_pair_bias_is_that_of_molslice(program, batch):
    torch.manual_seed(0)
    sizes = {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": HEADS}
    model = GraphormerSpec(**sizes, legacy_vocab=True).build(AttentionChoice("softmax"), DataSpec(1))
    own, other = program.PairBias(HEADS), model.graph_bias
    with torch.no_grad():
        # row k of the table of molslice is distance k, here it is k + 1; the last row has no path in both
        for table in (own.distance.weight, own.bond.weight, own.hops.weight, own.graph_token.weight):
            table.zero_()
        own.distance.weight[1 : MAX_DISTANCE + 1] = other.distance_embedding.weight[:MAX_DISTANCE]
        own.distance.weight[511] = other.distance_embedding.weight[511]
        own.bond.weight[3:] = other.bond_embedding.weight[1:-2]  # indices start at 3, there at 1
        own.hops.weight.copy_(other.hop_weight.reshape(-1, 1))
        own.graph_token.weight.copy_(other.graph_token_distance[None])
    molecules = [molecule_arrays(text, atom_order="input") for text in SMILES]
    arrays = collate(MoleculeStore.in_memory(molecules), np.arange(len(SMILES)))
    biases = []
    other.register_forward_hook(lambda module, inputs, output: biases.append(output))
    model(arrays)
    expected, found = biases[0], own(batch)
    for place, molecule in enumerate(molecules):
        tokens = slice(len(molecule.atoms) + 1)
        torch.testing.assert_close(
            found[place][:, tokens, tokens], expected[place][:, tokens, tokens], atol=1e-6, rtol=1e-5
        )


def test_it_has_the_parameters_of_the_published_model(program):
    with torch.device("meta"):
        model = program.Graphormer(12, 768, 768, 32, 0.1)
    assert sum(one.numel() for one in model.parameters()) == 47_085_377


def test_padding_does_not_change_a_prediction(program, batch):
    torch.manual_seed(0)
    model = program.Graphormer(2, 8, 8, 2, 0.0).eval()
    alone = program.GraphormerSet([smiles2graph(SMILES[1])], [2.0])
    with torch.no_grad():
        together = model(batch)
        torch.testing.assert_close(model(program.collate([alone[0]])), together[1:2], atol=1e-6, rtol=1e-5)
    model.train()(batch).sum().backward()
    assert all(one.grad is not None for one in model.parameters())
