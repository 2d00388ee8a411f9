"""Tests specific to `reformer`: union of the rounds, number of buckets, exact causal form."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing import CHECKS, traits
from molslice.testing.subjects import SPEC, Inputs, Subject
from molslice.types import MolsliceError, TokenContext
from tests.attention.references import find_reference

KEPT = [check for check in CHECKS if check is not traits.check_causal]


def subject(**options) -> Subject:
    return Subject(
        "reformer",
        lambda spec: build_attention("reformer", spec, options),
        SPEC,
        reference=find_reference("reformer"),
    )


def result(attention, tokens: torch.Tensor) -> torch.Tensor:
    return attention(tokens[None], TokenContext(torch.ones(1, len(tokens), dtype=torch.bool))).tokens[0]


@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("mode", ["none", "logits", "mix"])
def test_the_contract_with_a_number_of_buckets_from_the_length(mode, check):
    check(subject(chunk_size=2, num_rounds=2).with_spec(pair_bias_mode=mode))


@pytest.mark.parametrize("causal", [False, True])
def test_with_rounds_enough_a_token_sees_all_others_once(causal):
    attention = subject(chunk_size=9, num_rounds=300, num_buckets=2).attention(causal=causal)
    tokens = Inputs.draw(9).tokens[0]
    query, value = (
        x.view(9, 2, 4).transpose(0, 1) for x in (attention.query_key(tokens), attention.value(tokens))
    )
    scores = query @ (query / query.norm(dim=-1, keepdim=True)).transpose(1, 2) / 2
    hidden = torch.eye(9, dtype=torch.bool)
    hidden = hidden | torch.ones(9, 9).triu().bool() if causal else hidden
    hidden[0, 0] &= not causal  # the first has nobody else
    heads = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value
    expected = attention.output(heads.transpose(0, 1).flatten(1))
    torch.testing.assert_close(result(attention, tokens), expected)


def test_a_round_that_comes_twice_counts_once():
    once = subject(chunk_size=2, num_rounds=1, num_buckets=4).attention()
    twice = subject(chunk_size=2, num_rounds=3, num_buckets=4).attention()
    twice.load_state_dict(once.state_dict() | {"rotations": once.rotations.expand(-1, 3, -1, -1)})
    tokens = Inputs.draw(9).tokens[0]
    torch.testing.assert_close(result(twice, tokens), result(once, tokens))


def test_who_meets_nobody_keeps_its_own_value():
    attention = subject(chunk_size=4, num_rounds=2, num_buckets=2).attention()
    with torch.no_grad():
        attention.query_key.bias.zero_()
    tokens = Inputs.draw(1).tokens[0] * torch.tensor([[1.0], [-1.0]])  # opposite, so never in one bucket
    torch.testing.assert_close(result(attention, tokens), attention.output(attention.value(tokens)))


@pytest.mark.parametrize("options", [{}, {"chunk_size": 2, "num_buckets": 4}])
def test_the_causal_form_does_not_know_how_long_the_sequence_is(options):
    attention = subject(**options).attention(causal=True)
    tokens = Inputs.draw(9).tokens[0]
    for count in (1, 4, 8):
        torch.testing.assert_close(result(attention, tokens[:count]), result(attention, tokens)[:count])


def test_the_number_of_buckets():
    spec = replace(SPEC, causal=True)
    assert subject().make(spec).rotations.shape == (2, 4, 4, 16)  # for 1024 tokens in chunks of 64
    assert subject().make(replace(spec, max_tokens=130)).rotations.shape[-1] == 3
    assert subject(chunk_size=2).make(spec).rotations.shape[-1] == 64  # at most 128 buckets
    assert subject(num_buckets=6).make(SPEC).rotations.shape[-1] == 3


def test_rotations_depend_on_seed_and_layer_and_are_saved():
    one, same = subject().make(SPEC), subject().make(SPEC)
    assert torch.equal(one.rotations, same.rotations)
    assert not torch.equal(one.rotations, subject(seed=1).make(SPEC).rotations)
    assert not torch.equal(one.rotations, subject().make(replace(SPEC, layer=2)).rotations)
    assert "rotations" in one.state_dict()


@pytest.mark.parametrize(
    "options", [{"chunk_size": 0}, {"num_rounds": 0}, {"num_buckets": 3}, {"num_buckets": 0}], ids=str
)
def test_a_bad_option_is_refused_by_name(options):
    with pytest.raises(MolsliceError, match=next(iter(options))):
        subject(**options).make(SPEC)
