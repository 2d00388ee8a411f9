"""Tests of the embedding rows of features and degrees."""

import pytest
import torch

from molslice.model.embeddings import AtomEmbedding, FeatureEmbedding
from molslice.ops.paths import bond_degrees
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES


def count_rows(weight):
    """Set the embedding of each row to its index."""
    with torch.no_grad():
        weight.copy_(torch.arange(len(weight))[:, None].expand_as(weight))


@pytest.mark.parametrize(("legacy", "starts", "rows"), [(False, (0, 3, 7), 12), (True, (1, 513, 1025), 1537)])
def test_each_feature_has_rows_of_its_own(legacy, starts, rows):
    table = FeatureEmbedding((3, 4, 5), 1, legacy_vocab=legacy).double()
    assert len(table.weight) == rows
    count_rows(table.weight)
    features = torch.tensor([[0, 0, 0], [2, 1, 4], [0, 3, 1], [2, 3, 4], [255, 255, 255]], dtype=torch.uint8)
    # what is beyond a vocabulary takes its last entry
    inside = torch.tensor([[0, 0, 0], [2, 1, 4], [0, 3, 1], [2, 3, 4], [2, 3, 4]])
    expected = (inside + torch.tensor(starts)).sum(1)
    assert table(features)[:, 0].tolist() == expected.tolist()


@pytest.mark.parametrize("legacy", [False, True])
def test_degrees_up_to_eleven_have_rows_of_their_own(legacy):
    bonds = [(star, 0, leaf) for star in range(14) for leaf in range(1, star + 1)]
    degree = bond_degrees(torch.tensor(bonds), 14, 14)
    embedding = AtomEmbedding(1, legacy_vocab=legacy)
    torch.nn.init.zeros_(embedding.features.weight)
    for table in embedding.degree:
        count_rows(table.weight)
    tokens = embedding(torch.zeros(14, 14, 9, dtype=torch.uint8), degree)
    tables = 2 if legacy else 1
    assert tokens[:, 1, 0].tolist() == [tables * min(degree, 11) for degree in range(14)]
    assert len(embedding.degree) == tables


def test_tables_start_with_their_deviations():
    torch.manual_seed(0)
    embedding = AtomEmbedding(256, legacy_vocab=True)
    deviations = [embedding.features.weight, *(table.weight for table in embedding.degree)]
    expected = [len(ATOM_FEATURE_SIZES) ** -0.5, 0.1, 0.1]
    assert [weight.std().item() for weight in deviations] == pytest.approx(expected, rel=0.02)
    assert embedding.graph_token.std().item() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("hides", [False, True])
def test_one_table_for_all_tokens_gives_the_same(legacy, hides):
    torch.manual_seed(0)
    embedding = AtomEmbedding(12, legacy_vocab=legacy).double()
    atoms = torch.randint(0, 256, (4, 7, 9), dtype=torch.uint8)
    atoms[1:] %= 6
    degree = torch.randint(0, 20, (4, 7))
    hidden = torch.rand(4, 7) < 0.3 if hides else None
    stand_in = torch.randn(12, dtype=torch.float64).requires_grad_() if hides else None
    leaves = [*embedding.parameters(), *([stand_in] if stand_in is not None else [])]
    expected = embedding(atoms, degree, hidden, stand_in)
    tokens = embedding._sum_rows(atoms, degree.clamp(max=11), hidden, stand_in)
    torch.testing.assert_close(tokens, expected, rtol=0, atol=1e-12)
    slope = torch.randn_like(tokens)
    gradients = [torch.autograd.grad(one, leaves, slope) for one in (tokens, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
