"""The model GPS of the benchmarks: random walks, padding, and independence of the order of atoms."""

import numpy as np
import pytest
import torch

from molslice.model.base import AttentionChoice
from molslice.types import DataSpec
from tests.model.molecules import random_batch
from tests.programs import load_program

SIZES = (7, 1, 12, 2)


@pytest.fixture(scope="module")
def program():
    return load_program("gps")


@pytest.fixture
def model(program):
    torch.manual_seed(0)
    spec = program.GpsSpec(num_layers=2, dim=16, num_heads=2)
    return spec.build(AttentionChoice(), DataSpec(1)).double().eval()


def test_padding_and_the_order_of_atoms_change_nothing(model):
    expected = model(random_batch(SIZES)).prediction
    assert expected.std() > 1e-3
    padded = model(random_batch(SIZES, pad_to=30, garbage=True)).prediction
    torch.testing.assert_close(padded, expected, rtol=0, atol=1e-8)
    alone = model(random_batch(SIZES[:1])).prediction
    torch.testing.assert_close(alone, expected[:1], rtol=0, atol=1e-8)
    random = np.random.default_rng(0)
    moved = model(random_batch(SIZES, permutations=[random.permutation(size) for size in SIZES])).prediction
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-8)


def test_walks_return_as_often_as_simulated_walks(program):
    batch = random_batch((6,))
    adjacency = np.zeros((6, 6))
    for _, one, other in batch.bond_index.tolist():
        adjacency[one, other] = adjacency[other, one] = 1
    step = adjacency / adjacency.sum(1, keepdims=True)
    expected = np.stack([np.linalg.matrix_power(step, k).diagonal() for k in range(1, 21)], 1)
    torch.testing.assert_close(
        program.return_probabilities(batch)[0].double(), torch.tensor(expected), rtol=1e-5, atol=1e-6
    )


def test_an_atom_without_bonds_returns_nowhere(program):
    assert program.return_probabilities(random_batch((1,))).abs().max() == 0
