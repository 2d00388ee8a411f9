"""Paths as codes equal those of `ops/paths.py`."""

import pytest
import torch

from molslice.ops.path_codes import (
    CODE_BITS,
    HIDDEN_BOND,
    NUM_CODES,
    bond_codes,
    code_adjacency,
    hide_bonds,
    path_codes,
)
from molslice.ops.paths import MAX_HOPS, bond_degrees
from molslice.ops.vocabulary import BOND_FEATURE_SIZES
from tests.model.molecules import random_batch
from tests.ops.last_steps import last_steps
from tests.ops.test_paths import GRAPHS


def chain(size):
    return size, [(i, i + 1) for i in range(size - 1)]


def ladder(size):
    """Return two chains with rungs, which have many equally short paths."""
    half = size // 2
    sides = [(i, i + 1) for i in range(half - 1)] + [(half + i, half + i + 1) for i in range(half - 1)]
    return 2 * half, sides + [(i, half + i) for i in range(half)]


def shuffled(graph, seed):
    size, bonds = graph
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
    return size, [(order[i], order[j]) for i, j in bonds]


ODD = [
    *GRAPHS.values(),
    chain(7),
    chain(64),
    shuffled(chain(58), 1),
    ladder(20),
    shuffled(ladder(62), 2),
    (5, []),
    (9, [(i, j) for i in range(9) for j in range(i)]),
    (40, [(0, i) for i in range(1, 40)]),
    (64, [(i, (i + 1) % 64) for i in range(64)]),
]


def batch_of(graphs, width):
    """Return the bond list of graphs and random features of their bonds."""
    rows = [(m, i, j) for m, (_, bonds) in enumerate(graphs) for i, j in bonds]
    generator = torch.Generator().manual_seed(3)
    features = [
        torch.randint(size, (len(rows),), generator=generator, dtype=torch.uint8)
        for size in BOND_FEATURE_SIZES
    ]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3), torch.stack(features, 1), len(graphs), width


def followed(bond_index, codes, batch, atoms):
    """Return distances and packed codes, by a walk along each path of `ops/paths.py`."""
    paths = last_steps(bond_index, batch, atoms)
    packed = torch.zeros(batch, atoms, atoms, dtype=torch.long)
    last_bond, previous, codes = paths.last_bond.tolist(), paths.previous.tolist(), codes.tolist()
    for m, i, j in (paths.distance > 0).nonzero().tolist():
        bonds, atom = [], j
        while atom != i:
            bonds.insert(0, codes[last_bond[m][i][atom]])
            atom = previous[m][i][atom]
        packed[m, i, j] = sum(code << CODE_BITS * hop for hop, code in enumerate(bonds[:MAX_HOPS]))
    return paths.distance, packed


@pytest.mark.parametrize("width", [64, 70, 130])
def test_codes_equal_the_walk_along_every_path(width):
    bond_index, features, batch, atoms = batch_of(ODD, width)
    if width == 130:
        longer = [shuffled(chain(129), 4), shuffled(ladder(130), 5), chain(130)]
        bond_index, features, batch, atoms = batch_of(longer, width)
    codes = bond_codes(features)
    result = path_codes(code_adjacency(bond_index, codes, batch, atoms))
    distance, packed = followed(bond_index, codes, batch, atoms)
    assert torch.equal(result.distance.long(), distance)
    assert torch.equal(result.bonds.long(), packed)
    assert torch.equal(result.degree, bond_degrees(bond_index, batch, atoms))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_codes_do_not_depend_on_autocast(dtype):
    bond_index, features, *shape = batch_of([chain(70), shuffled(ladder(66), 6)], 70)
    adjacency = code_adjacency(bond_index, bond_codes(features), *shape)
    expected = path_codes(adjacency)
    with torch.autocast("cpu", dtype):
        result = path_codes(adjacency)
    assert torch.equal(result.distance, expected.distance)
    assert torch.equal(result.bonds, expected.bonds)


def test_codes_of_random_molecules():
    batch = random_batch([1, 2, 9, 23, 31, 40], seed=5, pad_to=45, fragments=True)
    codes = bond_codes(batch.bond_features)
    result = path_codes(code_adjacency(batch.bond_index, codes, *batch.atom_mask.shape))
    distance, packed = followed(batch.bond_index, codes, *batch.atom_mask.shape)
    assert torch.equal(result.distance.long(), distance)
    assert torch.equal(result.bonds.long(), packed)


def test_hidden_bonds_have_their_own_code():
    index = torch.tensor([[0, 0, 1], [0, 2, 1], [1, 0, 3], [1, -1, -1]])
    codes = torch.tensor([5, 60, 7], dtype=torch.uint8)
    adjacency = code_adjacency(index[:3], codes, 2, 4)
    hidden = hide_bonds(adjacency, index, torch.tensor([False, True, True, False]))
    codes[1:] = HIDDEN_BOND
    assert torch.equal(hidden, code_adjacency(index[:3], codes, 2, 4))
    assert adjacency[0, 1, 2] == 60


def test_every_combination_of_features_has_its_code():
    ranges = [torch.arange(size, dtype=torch.uint8) for size in BOND_FEATURE_SIZES]
    every = torch.cartesian_prod(*ranges)
    assert bond_codes(every).tolist() == list(range(1, 61))
    beyond = torch.tensor([[255, 255, 255]], dtype=torch.uint8)  # the unknown of each vocabulary
    assert bond_codes(beyond).tolist() == [60]
    hidden = torch.arange(60) % 2 == 0
    codes = bond_codes(every, hidden)
    assert codes[hidden].eq(HIDDEN_BOND).all()
    assert codes[~hidden].tolist() == list(range(2, 61, 2))
    assert codes.max() < NUM_CODES
