import pytest
import torch

from molslice.model.graph_bias import MAX_DISTANCE, MAX_HOPS, GraphBias, PathLevels
from molslice.ops.paths import list_neighbors, shortest_paths
from tests.model.molecules import random_batch


def slow_bias(module, batch, molecule, size):
    """The formulas of the class, one pair after the other, walking each path back from its end."""
    paths = shortest_paths(list_neighbors(batch.bond_index, *batch.atom_mask.shape))
    bias = torch.zeros(module.num_heads, size + 1, size + 1, dtype=torch.float64)
    bias[:, 0, :] = module.graph_token_distance[:, None]
    bias[:, :, 0] = module.graph_token_distance[:, None]
    starts = module.bond_embedding.starts
    for i in range(size):
        for j in range(size):
            length = int(paths.distance[molecule, i, j])
            slot = module.num_distances - 1 if length < 0 else min(length, module.num_distances - 2)
            value = module.distance_embedding.weight[slot]
            bonds, atom = [], j
            while length > 0 and atom != i:
                bonds.insert(0, int(paths.last_bond[molecule, i, atom]))
                atom = int(paths.previous[molecule, i, atom])
            for hop, bond in enumerate(bonds[:MAX_HOPS]):
                rows = starts + batch.bond_features[bond].long()
                embedded = module.bond_embedding.weight[rows].mean(0)
                value = value + embedded @ module.hop_weight[hop] / min(length, MAX_HOPS)
            bias[:, i + 1, j + 1] = value
    return bias


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("fragments", [False, True])
def test_bias_equals_the_walk_along_every_path(legacy, fragments):
    sizes = [1, 2, 9, 23]
    torch.manual_seed(0)
    module = GraphBias(3, legacy_vocab=legacy).double()
    batch = random_batch(sizes, seed=1, pad_to=25, garbage=True, fragments=fragments)
    paths = shortest_paths(list_neighbors(batch.bond_index, *batch.atom_mask.shape))
    fast = module(paths, batch.bond_features)
    assert fast.isfinite().all()
    weight = torch.randn(fast.shape, dtype=torch.float64)
    slow_loss = fast_loss = torch.zeros((), dtype=torch.float64)
    for molecule, size in enumerate(sizes):
        slow = slow_bias(module, batch, molecule, size)
        real = (molecule, slice(None), slice(size + 1), slice(size + 1))
        torch.testing.assert_close(fast[real], slow, rtol=0, atol=1e-12)
        slow_loss = slow_loss + (slow * weight[real]).sum()
        fast_loss = fast_loss + (fast[real] * weight[real]).sum()
    parameters = list(module.parameters())
    for fast_grad, slow_grad in zip(
        torch.autograd.grad(fast_loss, parameters), torch.autograd.grad(slow_loss, parameters), strict=True
    ):
        torch.testing.assert_close(fast_grad, slow_grad, rtol=0, atol=1e-10)


def test_a_chain_longer_than_the_table():
    size = MAX_DISTANCE + 12
    batch = random_batch([size], seed=0)
    chain = torch.tensor([[0, i, i + 1] for i in range(size - 1)])
    paths = shortest_paths(list_neighbors(chain, 1, size))
    assert int(paths.distance.max()) == size - 1
    module = GraphBias(2)
    bias = module(paths, batch.bond_features[:1].expand(size - 1, -1))
    torch.testing.assert_close(bias[0, :, 1, -1], bias[0, :, 1, -2])


def test_no_tensor_of_five_hops_a_pair():
    batch = random_batch([30] * 4, seed=2)
    levels = PathLevels(shortest_paths(list_neighbors(batch.bond_index, 4, 30)))
    pairs = sum(len(bond) for _, bond in levels.steps)
    assert len(levels.steps) == MAX_HOPS
    assert pairs <= 4 * 30 * 30
