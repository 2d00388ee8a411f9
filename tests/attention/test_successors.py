"""Tests specific to `sample_permutation` and `soft_sort`."""

import pytest
import torch

from molslice.attention import build_attention
from molslice.types import AttentionSpec, MolsliceError, TokenContext


def arranged(name, columns, mask=None, layer=0, num_layers=1, **options):
    """Return the input of W_O for columns [n, D] that the value projection leaves unchanged."""
    columns = torch.as_tensor(columns, dtype=torch.float64)
    n, dim = columns.shape
    attention = build_attention(name, AttentionSpec(dim, 1, layer, num_layers), options).double()
    with torch.no_grad():
        for linear in (attention.value, attention.output):
            linear.weight.copy_(torch.eye(dim))
            linear.bias.zero_()
    mask = torch.ones(n, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return attention(columns[None], TokenContext(mask[None])).tokens[0].detach()


def same(columns, count):
    """Return `count` equal columns."""
    return torch.tensor(columns, dtype=torch.float64)[:, None].expand(-1, count)


def test_columns_are_shifted_by_a_group_each_then_sorted_in_groups():
    found = arranged("sample_permutation", same([5.0, 1.0, 4.0, 2.0, 3.0, 0.0], 3))
    # Shifted by 0, 2 and 4: (5 1 4 2 3 0), (3 0 5 1 4 2), (4 2 3 0 5 1).
    assert found.T.tolist() == [[1, 5, 2, 4, 0, 3], [0, 3, 1, 5, 2, 4], [2, 4, 0, 3, 1, 5]]


def test_shifts_go_around_the_real_tokens_and_the_last_group_is_what_is_left():
    columns = same([5.0, 99.0, 1.0, 4.0, -99.0, 2.0, 3.0], 2)
    mask = [True, False, True, True, False, True, True]
    found = arranged("sample_permutation", columns, mask).T
    # The five real ones shifted by 0 and 2: (5 1 4 2 3) and (2 3 5 1 4).
    assert found[:, torch.tensor(mask)].tolist() == [[1, 5, 2, 4, 3], [2, 3, 1, 5, 4]]
    assert not found[:, ~torch.tensor(mask)].any()


def test_powers_shift_from_the_next_neighbor_to_all_around():
    """The powers 9^(0/4), 9^(1/4), 9^(2/4), 9^(3/4) over two layers of two columns give 1, 2, 3 and 6."""
    column = [float(i) for i in range(9)]
    for layer, steps in ((0, (1, 2)), (1, (3, 6))):
        found = arranged(
            "sample_permutation", same(column, 2), layer=layer, num_layers=2, shift="power", group_size=1
        )
        assert found.T.tolist() == [[(i - step) % 9 for i in range(9)] for step in steps]


@pytest.mark.parametrize("options", [{}, {"group_size": 3}, {"shift": "power"}])
def test_every_column_is_permuted(options):
    torch.manual_seed(0)
    columns = torch.randn(11, 8, dtype=torch.float64)
    found = arranged("sample_permutation", columns, layer=1, num_layers=3, **options)
    assert torch.equal(found.sort(0).values, columns.sort(0).values)
    assert not torch.equal(found, columns)


@pytest.mark.parametrize("shift", ["linear", "power"])
def test_one_group_of_all_is_slice_sort(shift):
    torch.manual_seed(0)
    columns = torch.randn(11, 8, dtype=torch.float64)
    found = arranged("sample_permutation", columns, shift=shift, group_size=11)
    assert torch.equal(found, arranged("slice_sort", columns))
    assert torch.equal(found, arranged("sample_permutation", columns, shift=shift, group_size=64))


def test_a_soft_sort_goes_from_the_sort_to_the_mean():
    torch.manual_seed(0)
    columns = torch.randn(11, 8, dtype=torch.float64)
    cold, hot = (arranged("soft_sort", columns, temperature=t) for t in (1e-4, 1e6))
    torch.testing.assert_close(cold, arranged("slice_sort", columns), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(hot, columns.mean(0).expand(11, 8), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_a_soft_sort_stays_in_order_and_within_the_column(temperature):
    torch.manual_seed(0)
    columns = torch.randn(300, 4, dtype=torch.float64)
    found = arranged("soft_sort", columns, temperature=temperature)
    assert (found.diff(dim=0) >= -1e-12).all()
    assert (found.amax(0) <= columns.amax(0)).all()
    assert (found.amin(0) >= columns.amin(0)).all()


def test_the_running_sums_of_a_soft_sort_are_the_full_matrix_also_far_from_zero():
    torch.manual_seed(0)
    columns = 1000 + 50 * torch.randn(500, 2, dtype=torch.float64)
    ordered = columns.sort(0).values
    weights = (-(ordered[:, None] - columns[None]).abs() / 0.5).softmax(1)
    expected = (weights * columns[None]).sum(1)
    torch.testing.assert_close(arranged("soft_sort", columns, temperature=0.5), expected)


def test_a_soft_sort_has_a_gradient_by_every_token():
    """In a hard sort the gradient of a value has one source; in a soft sort it has several."""
    columns = torch.randn(6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    attention = build_attention("soft_sort", AttentionSpec(1, 1)).double()
    context = TokenContext(torch.ones(1, 6, dtype=torch.bool))

    def columns_of(tokens):
        return attention(tokens[None], context).tokens[0, :, 0]

    by_tokens = torch.autograd.functional.jacobian(columns_of, columns)
    assert (by_tokens.abs() > 1e-6).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sample_permutation", {"shift": "random"}, "'random'; choices: linear, power"),
        ("sample_permutation", {"group_size": 0}, "at least 1, got 0"),
        ("soft_sort", {"temperature": 0.0}, "positive temperature, got 0.0"),
        ("soft_sort", {"temperature": float("nan")}, "positive temperature, got nan"),
        ("key_sort", {"slope": 0.0}, "positive slope, got 0.0"),
    ],
)
def test_bad_options_are_refused_by_name(name, options, message):
    with pytest.raises(MolsliceError, match=message):
        build_attention(name, AttentionSpec(8, 2), options)


def test_both_have_two_maps():
    for name in ("sample_permutation", "soft_sort"):
        attention = build_attention(name, AttentionSpec(768, 32))
        assert sum(parameter.numel() for parameter in attention.parameters()) == 2 * (768**2 + 768)
