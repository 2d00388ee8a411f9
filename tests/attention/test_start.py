"""Tests of the initialization of attentions, alone and in a model."""

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.attention.base import Traits
from molslice.model import AttentionChoice
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec
from molslice.types import AttentionOutput, AttentionSpec, DataSpec

WORDS = DataSpec(3, "ids", vocabulary_size=11, max_tokens=12)


def attention_in_a_model(name, **changes):
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "ffn_dim": 16}
    model = SequenceClassifier(SequenceSpec(**sizes, **changes), AttentionChoice(name), WORDS)
    (attention,) = (part for part in model.modules() if isinstance(part, Attention))
    return attention


class StartsInItsConstructor(Attention):
    traits = Traits(source="a test", cost="linear", symmetry="equivariant")

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.value = nn.Linear(spec.dim, spec.dim)
        nn.init.constant_(self.value.weight, 0.25)
        nn.init.constant_(self.value.bias, 0.5)

    def mix(self, tokens, context):
        return AttentionOutput(self.value(tokens))


class StartsInResetParameters(StartsInItsConstructor):
    def reset_parameters(self) -> None:
        nn.init.constant_(self.value.weight, 0.75)


@pytest.mark.parametrize(("kind", "start"), [(StartsInItsConstructor, 0.25), (StartsInResetParameters, 0.75)])
def test_the_start_of_an_own_attention_is_kept_in_a_model(kind, start, monkeypatch):
    monkeypatch.setitem(ATTENTIONS._added, kind.__name__, kind)
    value = attention_in_a_model(kind.__name__).value
    assert (value.weight == start).all()
    assert (value.bias == 0.5).all()


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_linear_maps_start_by_glorot_with_zero_biases(name):
    maps = [part for part in attention_in_a_model(name).modules() if isinstance(part, nn.Linear)]
    assert maps
    for each in maps:
        bound = (6 / sum(each.weight.shape)) ** 0.5
        assert 0.6 * bound < each.weight.abs().max() <= bound
        assert each.bias is None or not each.bias.any()


def test_the_global_projections_of_longformer_start_as_the_ordinary_ones():
    attention = attention_in_a_model("longformer")
    for name in ("query", "key", "value"):
        assert torch.equal(getattr(attention, f"global_{name}").weight, getattr(attention, name).weight)


BIASED = ("query", "key", "value", "query_key", "shared", "global_query", "global_key", "global_value")


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_without_qkv_bias_no_map_to_query_key_or_value_has_one(name):
    spec = AttentionSpec(8, 2, max_tokens=12)
    expected = {k for k, _ in build_attention(name, spec).named_parameters()}
    expected -= {f"{part}.bias" for part in BIASED}
    found = {k for k, _ in attention_in_a_model(name, qkv_bias=False).named_parameters()}
    assert found == expected
    assert "output.bias" in found
