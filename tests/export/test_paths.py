"""Paths and biases of an exported program equal those of the model."""

import networkx
import numpy as np
import pytest
import torch

from molslice.chem.featurize import molecule_arrays
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.export.exported_file import padded_arrays
from molslice.export.paths import bond_counts, dense_bias, dense_paths
from molslice.model.graph_bias import GraphBias
from molslice.ops.paths import bond_degrees, bond_path_levels
from tests.ops.last_steps import last_steps
from tests.real_data import embedded_smiles

LONG = ["C" * 70, "C1" + "C" * 118 + "C1", "CCO.C", "C", "[Na+].[Cl-]", "C1CC2CCC1C2"]


def both(smiles):
    """Return a batch of the model, and the padded bonds of the program, with a row of padding."""
    molecules = [molecule_arrays(each) for each in smiles]
    batch = collate(MoleculeStore.in_memory(molecules), np.arange(len(molecules)))
    bonds = torch.from_numpy(padded_arrays(molecules)["bonds"]).long()
    return batch, torch.nn.functional.pad(bonds, (0, 0, 0, 1))


def chosen_bonds(batch, found, expected):
    """Return whether the last bonds are the same rows of the bond list."""
    start = torch.bincount(batch.bond_index[:, 0], minlength=len(batch)).cumsum(0)
    first = torch.cat([start.new_zeros(1), start[:-1]])
    has_path = found.distance > 0
    flat = found.last_bond + first[:, None, None]
    return torch.equal(flat[has_path], expected.last_bond[has_path])


@pytest.mark.parametrize("smiles", [LONG, embedded_smiles()[::600], ["C"], ["CC", "O"]], ids=len)
def test_paths_are_those_of_the_model(smiles):
    batch, bonds = both(smiles)
    atoms = batch.atoms.shape[1]
    found = dense_paths(bonds[..., :2], atoms)
    expected = last_steps(batch.bond_index, len(batch), atoms)
    assert torch.equal(found.distance, expected.distance)
    assert torch.equal(found.previous[found.distance > 0], expected.previous[found.distance > 0])
    assert chosen_bonds(batch, found, expected)
    counts = bond_degrees(batch.bond_index, len(batch), atoms)
    assert torch.equal(bond_counts(bonds[..., :2], atoms), counts)


def test_paths_of_a_graph_of_256_atoms_are_those_of_networkx():
    graph = networkx.random_regular_graph(3, 40, seed=1)
    graph = networkx.disjoint_union(graph, networkx.path_graph(216))
    ends = torch.tensor([list(graph.edges)])
    found = dense_paths(torch.cat([ends, torch.zeros_like(ends)], 1), 256)
    lengths = dict(networkx.all_pairs_shortest_path_length(graph))
    expected = [[lengths[i].get(j, -1) for j in range(256)] for i in range(256)]
    assert found.distance[0].tolist() == expected
    for i, j in ((0, 39), (41, 255), (255, 41)):
        if expected[i][j] > 0:
            neighbors = [k for k in graph[j] if expected[i][k] == expected[i][j] - 1]
            assert found.previous[0, i, j] == min(neighbors)


@pytest.mark.parametrize("legacy_vocab", [False, True])
@pytest.mark.parametrize("smiles", [LONG, embedded_smiles()[::600]], ids=len)
def test_biases_are_those_of_the_model(smiles, legacy_vocab):
    batch, bonds = both(smiles)
    atoms = batch.atoms.shape[1]
    bias = GraphBias(4, legacy_vocab=legacy_vocab)
    paths = dense_paths(bonds[..., :2], atoms)
    found = dense_bias(bias, paths, bonds[..., 2:])
    levels = bond_path_levels(batch.bond_index, len(batch), atoms)
    torch.testing.assert_close(found, bias(levels, batch.bond_features), atol=1e-6, rtol=0)
