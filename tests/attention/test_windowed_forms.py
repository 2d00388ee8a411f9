"""Tests specific to attentions over windows and blocks: `local`, `longformer`, `sparse`, `bigbird`."""

from dataclasses import replace

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing import apply_reference
from molslice.types import AttentionSpec, MolsliceError, TokenContext
from tests.attention.references import find_reference

SPEC = AttentionSpec(8, 2, layer=1, num_layers=4)


def build(name, spec=SPEC, **options):
    torch.manual_seed(0)
    attention = build_attention(name, spec, options).double().eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return attention


def everything(tokens):
    return TokenContext(torch.ones(tokens.shape[:2], dtype=torch.bool))


def dependence(attention, length):
    """Return a mask [n, n]: whether output i depends on token j."""
    tokens = torch.randn(1, length, 8, dtype=torch.float64)
    direction = torch.randn(8, dtype=torch.float64)
    context = everything(tokens)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: attention(x, context).tokens[0] @ direction, tokens
    )
    return jacobian[:, 0].abs().sum(-1) > 1e-12


LONG = [
    ("local", {"window": 5}, {}),
    ("local", {"window": 5}, {"causal": True}),
    ("longformer", {"window": 4, "num_global": 3}, {}),
    ("sparse", {"stride": 6}, {}),
    ("sparse", {"stride": 6}, {"causal": True}),
    ("sparse", {"stride": 6, "factors": "layers"}, {"layer": 0}),
    ("sparse", {"stride": 6, "factors": "layers"}, {"layer": 1, "causal": True}),
    ("sparse", {"stride": 6, "factors": "heads"}, {"num_heads": 4, "causal": True}),
    ("sparse", {"pattern": "fixed"}, {"max_tokens": 60}),
    ("sparse", {"pattern": "fixed", "stride": 5, "summary": 2}, {"num_heads": 4, "causal": True}),
    ("sparse", {"pattern": "fixed", "stride": 5, "summary": 2, "factors": "layers"}, {"causal": True}),
    ("bigbird", {"block": 3, "num_global": 2, "num_random": 3}, {}),
    ("bigbird", {"block": 4, "num_global": 0, "num_random": 2, "seed": 5}, {}),
    ("bigbird", {"block": 3, "num_global": 1, "num_random": 0}, {}),
]


@pytest.mark.parametrize("mode", ["none", "logits"])
@pytest.mark.parametrize(("name", "options", "changes"), LONG)
def test_many_blocks_are_the_dense_form_with_a_mask(name, options, changes, mode):
    attention = build(name, replace(SPEC, **changes, pair_bias_mode=mode), **options)
    length, heads = 53, attention.spec.num_heads
    mask = torch.rand(2, length) < 0.8
    mask[1, 30:] = False
    tokens = torch.randn(2, length, 8, dtype=torch.float64)
    context = TokenContext(mask, torch.randn(2, heads, length, length, dtype=torch.float64))
    with torch.no_grad():
        expected = apply_reference(find_reference(name), attention, tokens, context).tokens
        found = attention(tokens, context).tokens
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


WIDE = [
    ("local", {"window": 11}),
    ("local", {}),
    ("sparse", {"stride": 11}),
    ("sparse", {"stride": 1}),
    ("sparse", {"stride": 40, "pattern": "fixed"}),
    ("bigbird", {"block": 3, "num_global": 0}),
    ("bigbird", {}),
]


@pytest.mark.parametrize("mode", ["none", "logits", "mix"])
@pytest.mark.parametrize(
    ("name", "options", "causal"),
    [(*wide, causal) for wide in WIDE for causal in (False, True)[: 1 + (wide[0] != "bigbird")]],
)
def test_a_wide_enough_window_is_softmax(name, options, causal, mode):
    spec = replace(SPEC, pair_bias_mode=mode, causal=causal)
    attention, softmax = build(name, spec, **options), build("softmax", spec)
    softmax.load_state_dict(attention.state_dict())
    tokens = torch.randn(2, 12, 8, dtype=torch.float64)
    context = replace(everything(tokens), pair_bias=torch.randn(2, 2, 12, 12, dtype=torch.float64))
    torch.testing.assert_close(attention(tokens, context).tokens, softmax(tokens, context).tokens)


def test_longformer_starts_with_equal_projections_and_then_is_softmax_in_a_wide_window():
    longformer, softmax = (build_attention(name, SPEC).double() for name in ("longformer", "softmax"))
    state = longformer.state_dict()
    own = {
        name.removeprefix("global_"): state.pop(name) for name in list(state) if name.startswith("global_")
    }
    assert len(own) == 6
    assert all(torch.equal(value, state[name]) for name, value in own.items())
    softmax.load_state_dict(state)
    tokens = torch.randn(2, 12, 8, dtype=torch.float64)
    context = everything(tokens)
    torch.testing.assert_close(longformer(tokens, context).tokens, softmax(tokens, context).tokens)


def test_a_window_reaches_as_far_as_it_says():
    positions = torch.arange(20)
    offset = positions - positions[:, None]
    assert torch.equal(dependence(build("local", window=3), 20), offset.abs() <= 3)
    causal = build("local", replace(SPEC, causal=True), window=3)
    assert torch.equal(dependence(causal, 20), (offset <= 0) & (offset >= -3))
    is_global = positions < 2
    expected = (offset.abs() <= 3) | is_global | is_global[:, None]
    assert torch.equal(dependence(build("longformer", window=3, num_global=2), 20), expected)


@pytest.mark.parametrize("options", [{}, {"pattern": "fixed", "summary": 1}])
def test_two_sparse_layers_reach_all_of_the_past_with_few_keys_each(options):
    sparse = build("sparse", replace(SPEC, num_heads=1, causal=True, max_tokens=64), **options)
    assert sparse.stride == 8
    seen = dependence(sparse, 64)
    assert seen.sum(1).max() <= 2 * 8 + 1
    twice = (seen.double() @ seen.double()) > 0
    past = torch.ones(64, 64).tril().bool()
    if options:  # fixed: what is not among the summaries reaches a later block through the next one that is
        last = torch.arange(64) // 8 * 8 + 7
        past &= (torch.arange(64)[:, None] >= last) | (
            torch.arange(64)[:, None] // 8 == torch.arange(64) // 8
        )
    assert torch.equal(twice, past)


def test_heads_of_fixed_have_places_of_their_own():
    sparse = build("sparse", replace(SPEC, num_heads=4), pattern="fixed", stride=7, summary=2)
    assert sparse._summary_positions(torch.arange(4)).tolist() == [[5, 6], [3, 4], [1, 2], [6, 0]]


def test_the_stride_follows_from_the_longest_sequence():
    for tokens, stride in [(1, 1), (16, 4), (17, 5), (4096, 64)]:
        attention = build("sparse", replace(SPEC, max_tokens=tokens))
        assert attention.stride == stride
        assert attention.traits.cost == "n_sqrt_n"
    assert build("sparse", stride=4).traits.cost == "quadratic"


def random_blocks(count, blocks, spec=SPEC, **options):
    attention = build("bigbird", spec, **{"block": 2, "num_global": 2, "num_random": 3} | options)
    return attention._random_blocks(torch.tensor(count), blocks)


def test_random_blocks_are_others_than_those_seen_anyway_and_all_different():
    index, is_drawn = random_blocks([39, 16, 3, 0], 25)
    for b, blocks in enumerate([20, 8, 2, 0]):
        for head in range(2):
            for g in range(2, blocks):
                drawn = index[b, head, g][is_drawn[b, g]].tolist()
                others = {other for other in range(2, blocks) if abs(other - g) > 1}
                assert len(set(drawn)) == len(drawn) == min(3, len(others))
                assert set(drawn) <= others


def test_random_blocks_depend_on_the_real_tokens_the_seed_the_layer_and_the_head_alone():
    index, is_drawn = random_blocks([39], 20)
    longer, also_drawn = random_blocks([39, 60], 40)
    assert torch.equal(index, longer[:1, :, :20])
    assert torch.equal(is_drawn, also_drawn[:1, :20])
    assert not torch.equal(index[:, 0], index[:, 1])
    assert not torch.equal(index, random_blocks([39], 20, seed=1)[0])
    assert not torch.equal(index, random_blocks([39], 20, replace(SPEC, layer=2))[0])


def test_random_blocks_are_drawn_evenly():
    index, _ = random_blocks([400], 200, replace(SPEC, dim=64, num_heads=32))
    share = torch.bincount(index.flatten(), minlength=200)[2:] / index.numel() * 198
    assert share.min() > 0.7
    assert share.max() < 1.3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("local", {"window": 0}, "window of at least 1, got 0"),
        ("longformer", {"window": 0}, "window of at least 1, got 0"),
        ("longformer", {"num_global": 0}, "num_global=0.*'local'"),
        ("sparse", {}, "stride.*max_tokens"),
        ("sparse", {"stride": 0}, "stride of at least 1, got 0"),
        (
            "sparse",
            {"stride": 4, "pattern": "diagonal"},
            "invalid pattern 'diagonal'; choices: strided, fixed",
        ),
        (
            "sparse",
            {"stride": 4, "factors": "both"},
            "invalid factors 'both'; choices: merged, heads, layers",
        ),
        ("sparse", {"stride": 4, "summary": 2}, "'fixed' only"),
        ("sparse", {"stride": 4, "summary": 5, "pattern": "fixed"}, "1 to 4 positions.*got 5"),
        ("bigbird", {"block": 0}, "block of at least 1, got 0"),
        ("bigbird", {"num_global": -1}, "num_global of at least 0, got -1"),
        ("bigbird", {"num_random": -1}, "num_random of at least 0, got -1"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, SPEC, options)


def test_the_sets_of_sparse_need_a_head_each():
    with pytest.raises(MolsliceError, match="at least 2 heads"):
        build("sparse", replace(SPEC, num_heads=1), stride=4, factors="heads")
