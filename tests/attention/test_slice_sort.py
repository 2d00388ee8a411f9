"""Tests specific to `slice_sort`: formula on small inputs, parameters, errors."""

import mpmath
import pytest
import torch

from molslice.attention import build_attention
from molslice.model.graphormer import PRESETS
from molslice.types import AttentionSpec, MolsliceError, TokenContext


def arranged(columns, pair_bias=None, mask=None, layer=0, num_layers=1, num_heads=1, **options):
    """Return the input of W_O for columns [n, D] that the value projection leaves unchanged."""
    columns = torch.tensor(columns, dtype=torch.float64)
    n, dim = columns.shape
    mode = "none" if pair_bias is None else "mix"
    spec = AttentionSpec(dim, num_heads, layer, num_layers, pair_bias_mode=mode)
    attention = build_attention("slice_sort", spec, options).double()
    with torch.no_grad():
        for linear in (attention.value, attention.output):
            linear.weight.copy_(torch.eye(dim))
            linear.bias.zero_()
    mask = torch.ones(n, dtype=torch.bool) if mask is None else torch.tensor(mask)
    bias = None if pair_bias is None else torch.tensor(pair_bias, dtype=torch.float64)[None, None]
    return attention(columns[None], TokenContext(mask[None], bias)).tokens[0].tolist()


COLUMNS = [[3.0, 1.0], [1.0, 5.0], [2.0, 4.0]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ascending", [[1, 1], [2, 4], [3, 5]]),
        ("descending", [[3, 5], [2, 4], [1, 1]]),
        ("half", [[1, 5], [2, 4], [3, 1]]),
        ("interleave", [[1, 1], [2, 4], [3, 5]]),  # in the last layer no column is descending
        ("max_exchange", [[3, 5], [1, 1], [2, 4]]),
        # P v = (1, 2, 3); P P v takes the same places again, (2, 3, 1). Then (1, 4, 5) and (1, 5, 4).
        ("multi_permutation", [[1.5, 1], [2.5, 4.5], [2, 4.5]]),
    ],
)
def test_orders_by_index(order, expected):
    assert arranged(COLUMNS, order=order) == expected
    assert arranged(COLUMNS, order=order, form="mix_plus_sort") == [
        [u + s for u, s in zip(*rows, strict=True)] for rows in zip(COLUMNS, expected, strict=True)
    ]


def test_padding_between_tokens_keeps_its_place():
    columns = [[3.0, 1.0], [99.0, -99.0], [1.0, 5.0], [2.0, 4.0]]
    mask = [True, False, True, True]
    assert arranged(columns, mask=mask) == [[1, 1], [0, 0], [2, 4], [3, 5]]
    assert arranged(columns, mask=mask, order="descending") == [[3, 5], [0, 0], [2, 4], [1, 1]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("ascending", [[3, 5], [1, 1], [2, 4]]), ("descending", [[1, 1], [3, 5], [2, 4]])],
)
def test_aligned_gives_a_rank_to_the_token_of_that_rank_in_the_lead_channel(order, expected):
    assert arranged(COLUMNS, order=order, placement="aligned") == expected


def test_each_head_leads_itself():
    assert arranged(COLUMNS, placement="aligned", num_heads=2) == COLUMNS


@pytest.mark.parametrize("noise", [1e-9, 1e-6])
def test_tied_tokens_share_their_ranks(noise):
    columns = [[2.0, 7.0], [1.0, 5.0], [2.0 + noise, 1.0]]
    found = arranged(columns, placement="aligned")
    assert found[1] == [1, 1]
    assert found[0] == found[2] == [pytest.approx(2.0), 6.0]


@pytest.mark.parametrize("gap", [1e-2, 1e-4])
def test_tokens_that_differ_by_more_than_rounding_keep_their_ranks(gap):
    columns = [[2.0, 7.0], [1.0, 5.0], [2.0 + gap, 1.0]]
    assert arranged(columns, placement="aligned") == [[2.0, 5.0], [1.0, 1.0], [2.0 + gap, 7.0]]


def test_the_pair_bias_mixes_before_sorting_or_beside_it():
    # Rows of softmax(S + E): token 0 takes all of token 1, token 1 all of token 2, token 2 the mean of all.
    bias = [[0.0, 99.0, 0.0], [0.0, 0.0, 99.0], [0.0, 0.0, 0.0]]
    mixed = [[1.0, 5.0], [2.0, 4.0], [2.0, 10 / 3]]
    assert arranged(COLUMNS, bias) == [pytest.approx(row) for row in ([1, 10 / 3], [2, 4], [2, 5])]
    beside = [
        [a + b for a, b in zip(*rows, strict=True)] for rows in zip(mixed, arranged(COLUMNS), strict=True)
    ]
    assert arranged(COLUMNS, bias, form="mix_plus_sort") == [pytest.approx(row) for row in beside]


@pytest.mark.parametrize(
    ("dim", "num_layers"), [(8, 4), *((p["dim"], p["num_layers"]) for p in PRESETS.values())]
)
def test_interleave_is_ascending_where_the_sine_is_not_negative(dim, num_layers):
    for layer in range(num_layers):
        spec = AttentionSpec(dim, 1, layer, num_layers)
        found = build_attention("slice_sort", spec, {"order": "interleave"}).descending_columns()
        with mpmath.workdps(60):
            # sinpi(x) = sin(pi x), exactly zero at integers.
            factor = 2 ** (num_layers - layer - 1)
            sines = [mpmath.sinpi(mpmath.mpf(factor * i) / dim) for i in range(1, dim + 1)]
        assert found == [sine < 0 for sine in sines]


def test_interleave_counts_the_columns_of_the_values():
    narrow, wide = (AttentionSpec(dim, 2, 1, 4, channels_per_head=4) for dim in (8, 6))
    directions = [
        build_attention("slice_sort", s, {"order": "interleave"}).descending_columns() for s in (narrow, wide)
    ]
    assert directions[0] == directions[1]
    assert [int(down) for down in directions[1]] == [0, 0, 1, 0, 0, 0, 1, 0]


def test_interleave_of_the_first_layers():
    spec = [AttentionSpec(8, 2, layer, 4) for layer in range(4)]
    found = [build_attention("slice_sort", s, {"order": "interleave"}).descending_columns() for s in spec]
    assert [[int(down) for down in columns] for columns in found] == [
        [0, 0, 0, 0, 0, 0, 0, 0],  # all at zeros of the sine
        [0, 0, 1, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("length", [32, 4096])
def test_aligned_in_bfloat16_is_close_to_float64_at_any_length(length):
    attention = build_attention("slice_sort", AttentionSpec(16, 2), {"placement": "aligned"})
    attention.reset_parameters()
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, length, 16, generator=draw)
    context = TokenContext(torch.ones(1, length, dtype=torch.bool))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = attention(tokens, context).tokens.double()
    with torch.no_grad():
        expected = attention.double()(tokens.double(), context).tokens
    assert (found - expected).norm() < 0.05 * expected.norm()


def test_parameters_are_two_maps_and_the_weights_of_the_permutations():
    def count(**options):
        attention = build_attention("slice_sort", AttentionSpec(768, 32), options)
        return sum(parameter.numel() for parameter in attention.parameters())

    assert count() == count(order="interleave", placement="aligned") == 2 * (768**2 + 768)
    assert count(order="multi_permutation", num_permutations=5) == 2 * (768**2 + 768) + 5
    assert count(order="multi_permutation", learned_weights=False) == 2 * (768**2 + 768)


def test_shuffles_differ_by_layer_and_seed_and_by_nothing_else():
    columns = [[float(i)] for i in range(40)]

    def shuffled(**options):
        return tuple(row[0] for row in arranged(columns, order="shuffle", **options))

    assert shuffled() == shuffled()
    different = [
        shuffled(),
        shuffled(seed=1),
        shuffled(layer=1, num_layers=2),
        shuffled(layer=1, num_layers=2, seed=1),
    ]
    assert len(set(different)) == 4
    assert all(sorted(each) == list(range(40)) for each in different)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "up"}, "'up'; choices: ascending, descending"),
        ({"form": "sum"}, "'sum'; choices: sort_of_mix, mix_plus_sort"),
        ({"placement": "by_index"}, "'by_index'; choices: index, aligned"),
        ({"num_permutations": 1}, "at least 2, got 1"),
        ({"oder": "half"}, "no option 'oder'; did you mean 'order'"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention("slice_sort", AttentionSpec(8, 2), options)
