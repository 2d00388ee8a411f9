"""Message passing along bonds equals a sum over neighbors, and ignores padding and hidden bonds."""

import pytest
import torch

from molslice.model import AttentionChoice
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.model.graphormer import Graphormer, GraphormerSpec
from molslice.model.local_bonds import BondMessages
from molslice.types import DataSpec, MolsliceError
from tests.model.molecules import random_batch
from tests.model.references import assert_equal_in_value_and_gradient

SIZES = {"num_layers": 2, "dim": 8, "ffn_dim": 16, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def graphormer(attention="softmax"):
    torch.manual_seed(0)
    spec = GraphormerSpec(**SIZES, local="gine")
    return Graphormer(spec, AttentionChoice(attention), DataSpec(num_outputs=1)).double().eval()


def test_equals_the_sum_over_neighbors_in_value_and_gradient():
    torch.manual_seed(0)
    layer = BondMessages(6).double()
    batch = random_batch([5, 3, 1])
    tokens = torch.randn(3, 6, 6, dtype=torch.float64, requires_grad=True)
    normed = torch.nn.functional.layer_norm(tokens, (6,), layer.norm.weight, layer.norm.bias)
    sums = [[torch.zeros(6, dtype=torch.float64) for _ in range(6)] for _ in range(3)]
    for (b, i, j), features in zip(batch.bond_index.tolist(), batch.bond_features, strict=True):
        bond = layer.bond_embedding(features[None])[0]
        for start, end in ((i, j), (j, i)):
            sums[b][end + 1] = sums[b][end + 1] + (normed[b, start + 1] + bond).relu()
    expected = torch.stack([torch.stack(row) for row in sums]) @ layer.map.weight.T
    result = layer(tokens, batch.bond_index, batch.bond_features)
    assert_equal_in_value_and_gradient(result, expected, (tokens, *layer.parameters()))


@pytest.mark.parametrize("attention", ["softmax", "slice_sort", "flow", "singular"])
def test_padding_changes_neither_predictions_nor_gradients(attention):
    results = []
    for options in ({}, {"pad_to": 11, "garbage": True}):
        model = graphormer(attention)
        prediction = model(random_batch([7, 4], **options)).prediction
        prediction.square().sum().backward()
        results.append((prediction, [p.grad for p in model.encoder.parameters()]))
    torch.testing.assert_close(*results)


def test_the_order_of_atoms_has_no_meaning():
    model, generator = graphormer(), torch.Generator().manual_seed(3)
    permutations = [torch.randperm(size, generator=generator).tolist() for size in (7, 4)]
    shuffled = model(random_batch([7, 4], permutations=permutations)).prediction
    torch.testing.assert_close(shuffled, model(random_batch([7, 4])).prediction)


def test_features_of_hidden_bonds_are_not_used():
    layer, batch = BondMessages(6), random_batch([5])
    tokens, others = torch.randn(1, 6, 6), batch.bond_features.roll(1, 0)
    hidden = torch.ones(len(others), dtype=torch.bool)
    first = layer(tokens, batch.bond_index, batch.bond_features, hidden)
    torch.testing.assert_close(first, layer(tokens, batch.bond_index, others, hidden))
    assert not torch.equal(first, layer(tokens, batch.bond_index, batch.bond_features))


def test_an_encoder_with_messages_needs_bonds():
    encoder = graphormer().encoder
    with pytest.raises(MolsliceError, match=r"model\.local needs the bonds"):
        encoder(torch.zeros(1, 3, 8, dtype=torch.float64), None, torch.zeros(1, 2, 3, 3, dtype=torch.float64))


def test_places_without_a_bond_change_nothing():
    layer, batch = BondMessages(6).double(), random_batch([5, 3])
    tokens = torch.randn(2, 6, 6, dtype=torch.float64)
    expected = layer(tokens, batch.bond_index, batch.bond_features)
    missing = torch.tensor([[1, -1, -1], [0, -1, -1], [1, -1, -1]])
    index = torch.cat([missing[:1], batch.bond_index, missing[1:]])
    features = torch.cat([batch.bond_features[:1], batch.bond_features, batch.bond_features[:2]])
    torch.testing.assert_close(layer(tokens, index, features), expected)


def test_models_that_take_the_adjacency():
    assert not GinVirtualSpec(**SIZES).takes_adjacency
    assert GraphormerSpec(**SIZES, local="gine").takes_adjacency
    assert GraphormerSpec(**SIZES).takes_adjacency
