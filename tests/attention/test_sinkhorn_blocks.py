"""Tests specific to `sinkhorn_blocks`: hard permutations, a single block, exact causal form."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing.subjects import LONGEST, SPEC, Inputs, Subject
from molslice.types import MolsliceError, TokenContext
from tests.attention.references import find_reference


def subject(**options) -> Subject:
    spec = replace(SPEC, max_tokens=LONGEST)
    return Subject(
        "sinkhorn_blocks",
        lambda spec: build_attention("sinkhorn_blocks", spec, options),
        spec,
        reference=find_reference("sinkhorn_blocks"),
    )


def result(attention, tokens: torch.Tensor) -> torch.Tensor:
    return attention(tokens[None], TokenContext(torch.ones(1, len(tokens), dtype=torch.bool))).tokens[0]


@pytest.mark.parametrize("causal", [False, True])
def test_a_single_block_is_softmax_attention(causal):
    attention = subject(block_size=9).attention(causal=causal)
    plain = build_attention("softmax", replace(SPEC, causal=causal)).double().eval()
    kept = {name: x for name, x in attention.state_dict().items() if not name.startswith("sort")}
    plain.load_state_dict(kept)
    tokens = Inputs.draw(9).tokens[0]
    torch.testing.assert_close(result(attention, tokens), result(plain, tokens))


def test_a_hard_permutation_moves_blocks_as_they_are(monkeypatch):
    attention = subject(block_size=3).attention()
    tokens = Inputs.draw(8).tokens[0]  # blocks of 3, 3 and 2 tokens
    comes = [2, 0, 1]  # the block that comes to each place: the short one first
    moves = torch.eye(3, dtype=torch.float64)[comes]
    monkeypatch.setattr(attention, "_sorting", lambda key, is_block: moves.expand(1, 2, 3, 3))
    query, key, value = (
        f(tokens).view(8, 2, 4).transpose(0, 1) for f in (attention.query, attention.key, attention.value)
    )
    rows = []
    for i in range(8):
        block, other = i // 3, comes[i // 3]
        seen = [j for place in (block, other) for j in range(8) if j // 3 == place]
        weights = (query[:, i, None] @ key[:, seen].transpose(1, 2) / 2).softmax(-1)
        rows.append((weights @ value[:, seen]).flatten())
    expected = attention.output(torch.stack(rows))
    # What the short block lacks counts with the least mass, next to nothing.
    torch.testing.assert_close(result(attention, tokens), expected, rtol=1e-3, atol=1e-4)


def test_sorting_is_doubly_stochastic_after_many_iterations():
    attention = subject(block_size=2, iterations=200).attention()
    key = torch.randn(3, 4, 2, 8, dtype=torch.float64)
    is_block = torch.tensor([[True] * 4, [True] * 3 + [False], [True] + [False] * 3])
    sorting = attention._sorting(key, is_block)
    for sums in (sorting.sum(2), sorting.sum(3)):
        expected = is_block.double()[:, None].expand(sums.shape)
        torch.testing.assert_close(sums, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("block_size", [2, 3])
def test_the_causal_form_does_not_know_how_long_the_sequence_is(block_size):
    attention = subject(block_size=block_size, iterations=2).attention(causal=True)
    tokens = Inputs.draw(9).tokens[0]
    for count in (1, 4, 8):
        torch.testing.assert_close(result(attention, tokens[:count]), result(attention, tokens)[:count])


def test_the_network_has_an_output_for_each_place_that_a_block_can_come_to():
    assert subject(block_size=4).attention().sort.weight.shape == (5, 4)  # 18 tokens: 5 places
    assert subject(block_size=4).attention(causal=True).sort.weight.shape == (4, 4)


@pytest.mark.parametrize("options", [{"block_size": 0}, {"iterations": 0}, {"temperature": 0.0}], ids=str)
def test_a_bad_option_is_refused_by_name(options):
    with pytest.raises(MolsliceError, match=next(iter(options))):
        subject(**options).attention()


def test_an_open_length_is_refused():
    with pytest.raises(MolsliceError, match="max_tokens"):
        build_attention("sinkhorn_blocks", SPEC)
