import pytest
import torch

from molslice.model.graph_bias import GraphBias
from molslice.ops.path_codes import bond_codes, code_adjacency, path_codes
from molslice.ops.paths import MAX_HOPS, bond_path_levels
from tests.model.molecules import random_batch
from tests.ops.last_steps import last_steps


def slow_bias(module, batch, molecule, size):
    """Compute the formulas of the class pair by pair, following each path back from its end."""
    paths = last_steps(batch.bond_index, *batch.atom_mask.shape)
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
    levels = bond_path_levels(batch.bond_index, *batch.atom_mask.shape)
    fast = module(levels, batch.bond_features)
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


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_tables_of_codes_give_the_same_bias(legacy, hidden):
    torch.manual_seed(0)
    module = GraphBias(3, legacy_vocab=legacy).double()
    batch = random_batch([1, 2, 9, 23, 40], seed=1, pad_to=42, garbage=True, fragments=True)
    features = batch.bond_features
    features[0] = 255  # the unknown of each vocabulary
    flags = torch.rand(len(features)) < 0.3 if hidden else None
    stand_in = torch.randn(3, dtype=torch.float64, requires_grad=True) if hidden else None
    shape = batch.atom_mask.shape
    codes = path_codes(code_adjacency(batch.bond_index, bond_codes(features, flags), *shape))
    found = module.look_up(codes, stand_in)
    expected = module(bond_path_levels(batch.bond_index, *shape), features, flags, stand_in)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn(found.shape, dtype=torch.float64)
    learned = [*module.parameters(), *([stand_in] if hidden else [])]
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), learned),
        torch.autograd.grad((expected * weight).sum(), learned),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def chain_of(size, apart):
    """Return the levels of the paths of a chain of `size` atoms and of `apart` atoms without bonds."""
    bonds = [[0, atom, atom + 1] for atom in range(size - 1)]
    return bond_path_levels(torch.tensor(bonds), 1, size + apart)


@pytest.mark.parametrize(("legacy", "longest", "unreachable"), [(False, 50, 51), (True, 510, 511)])
def test_every_distance_has_its_slot_and_far_is_not_unreachable(legacy, longest, unreachable):
    size = longest + 4
    module = GraphBias(1, legacy_vocab=legacy)
    torch.nn.init.zeros_(module.hop_weight)
    with torch.no_grad():
        module.distance_embedding.weight.copy_(torch.arange(unreachable + 1)[:, None])
    bias = module(chain_of(size, apart=1), torch.zeros(size, 3, dtype=torch.uint8))[0, 0, 1:, 1:]
    assert bias[0, :size].tolist() == [min(distance, longest) for distance in range(size)]
    assert bias[0, size] == bias[size, 0] == unreachable


@pytest.mark.parametrize("legacy", [False, True])
def test_the_first_five_bonds_of_a_path_count(legacy):
    torch.manual_seed(0)
    module = GraphBias(3, legacy_vocab=legacy)
    levels, features = chain_of(9, apart=0), torch.zeros(8, 3, dtype=torch.uint8)
    plain = module(levels, features)[0, :, 1, 1:]  # from the first atom to all
    for bond in range(8):
        changed = features.clone()
        changed[bond, 0] = 1
        moved = (module(levels, changed)[0, :, 1, 1:] - plain).abs().amax(0) > 1e-4
        assert moved.tolist() == [bond < min(length, 5) for length in range(9)]


def test_tables_start_with_their_deviations():
    torch.manual_seed(0)
    module = GraphBias(32, legacy_vocab=True)
    deviations = [module.hop_weight, module.distance_embedding.weight, module.bond_embedding.weight]
    assert [weight.std().item() for weight in deviations] == pytest.approx([32**-0.5, 0.3, 3**-0.5], rel=0.02)
    assert module.graph_token_distance.std().item() == pytest.approx(0.02, rel=0.3)


def test_no_tensor_of_five_hops_a_pair():
    batch = random_batch([30] * 4, seed=2)
    levels = bond_path_levels(batch.bond_index, 4, 30)
    pairs = sum(len(bond) for _, bond in levels.steps)
    assert len(levels.steps) == MAX_HOPS
    assert pairs <= 4 * 30 * 30
