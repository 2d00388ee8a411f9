"""The pair state equals its formula, ignores padding, and works with every attention."""

import itertools

import pytest
import torch

from molslice.attention import ATTENTIONS
from molslice.model import AttentionChoice
from molslice.model.encoder import Encoder
from molslice.model.graphormer import Graphormer, GraphormerSpec
from molslice.model.pair_state import PairUpdate
from molslice.types import DataSpec, MolsliceError
from tests.model.molecules import random_batch
from tests.model.references import assert_equal_in_value_and_gradient

SIZES = {"num_layers": 2, "dim": 8, "ffn_dim": 16, "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def trained(update):
    """Give all weights values, as after a training."""
    generator = torch.Generator().manual_seed(1)
    for parameter in update.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return update


def graphormer(attention, *, pair_state=True):
    torch.manual_seed(0)
    spec = GraphormerSpec(**SIZES, pair_state=pair_state, max_tokens=12)
    return Graphormer(spec, AttentionChoice(attention), DataSpec(num_outputs=1)).eval()


def test_equals_the_sum_over_all_pairs_in_value_and_gradient():
    torch.manual_seed(0)
    update = trained(PairUpdate(6, 3).double())
    tokens = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    expected = bias.clone()
    for b, h, i, j in itertools.product(range(2), range(3), range(4), range(4)):
        x, y = (
            (t - t.mean()) / (t.var(unbiased=False) + 1e-5).sqrt() * update.norm.weight + update.norm.bias
            for t in (tokens[b, i], tokens[b, j])
        )
        u, v = (update.row.weight @ x + update.row.bias, update.column.weight @ y + update.column.bias)
        expected[b, h, i, j] = bias[b, h, i, j] + (update.weight[h] * u * v).sum()
    result = update(tokens, torch.ones(2, 4, dtype=torch.bool), bias)
    assert_equal_in_value_and_gradient(result, expected, (tokens, bias, *update.parameters()))


@pytest.mark.parametrize("attention", ATTENTIONS.names())
def test_starts_as_the_model_without_it_for_every_attention(attention):
    batch = random_batch([7, 4, 1])
    model, plain = graphormer(attention), graphormer(attention, pair_state=False)
    missing = model.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert {name.split(".")[1] for name in missing} == {"pair_updates"}
    torch.testing.assert_close(model(batch).prediction, plain(batch).prediction)
    before = model(batch).prediction
    trained(model.encoder.pair_updates)
    if attention != "identity":  # its tokens are mixed by S + E alone
        assert not torch.allclose(model(batch).prediction, before)


@pytest.mark.parametrize("attention", ["softmax", "slice_sort", "flow", "singular"])
def test_padding_changes_neither_predictions_nor_gradients(attention):
    results = []
    for options in ({}, {"pad_to": 11, "garbage": True}):
        model = graphormer(attention).double()
        trained(model.encoder.pair_updates)
        prediction = model(random_batch([7, 4], **options)).prediction
        prediction.square().sum().backward()
        results.append((prediction, [p.grad for p in model.encoder.parameters()]))
    torch.testing.assert_close(*results)


def test_the_order_of_atoms_has_no_meaning():
    model = graphormer("softmax").double()
    trained(model.encoder.pair_updates)
    permutations = [
        torch.randperm(size, generator=torch.Generator().manual_seed(3)).tolist() for size in (7, 4)
    ]
    torch.testing.assert_close(
        model(random_batch([7, 4], permutations=permutations)).prediction,
        model(random_batch([7, 4])).prediction,
    )


def test_the_weights_of_slice_sort_depend_on_the_tokens():
    """The weights have no query and key, and are those of S + E alone without the pair state."""
    biases = {}
    for pair_state in (False, True):
        encoder = Encoder(AttentionChoice("slice_sort"), uses_pair_bias=True, pair_state=pair_state, **SIZES)
        trained(encoder.pair_updates)
        given = biases[pair_state] = []
        encoder.layers[1].attention.register_forward_pre_hook(
            lambda _, args, given=given: given.append(args[1].pair_bias)
        )
        bias = torch.zeros(1, 2, 3, 3)
        for seed in (0, 1):
            encoder(torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(seed)), None, bias)
    assert torch.equal(*biases[False])
    assert not torch.equal(*biases[True])


def test_needs_a_pair_bias():
    with pytest.raises(
        MolsliceError, match=r"pair_state changes the pair bias, but attention.pair_bias is none"
    ):
        Encoder(AttentionChoice("softmax", "none"), uses_pair_bias=True, pair_state=True, **SIZES)
