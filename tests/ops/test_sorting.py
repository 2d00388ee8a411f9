"""Sorting along tokens equals Python's sort."""

import pytest
import torch

from molslice.ops.sorting import (
    front_order,
    index_dtype,
    inverse_order,
    permute_tokens,
    shuffle_order,
    sort_columns,
    sorted_columns,
    swap_order,
    tied_mean,
)


def some_columns(length, dtype=torch.float32, batch=3, columns=4):
    """Return columns with many ties and with 0.0 and -0.0, and masks with padding anywhere."""
    keys = torch.randn(batch, columns, length, dtype=torch.float64).mul(3).round().div(3).to(dtype)
    mask = torch.rand(batch, length) > 0.3
    mask[0] = True
    mask[-1] = torch.arange(length) < (length + 1) // 2
    keys[~mask[:, None].expand_as(keys)] = -1e4
    return keys, mask


def sorted_tokens(keys, mask):
    real = mask.nonzero()[:, 0].tolist()
    return sorted(real, key=keys.tolist().__getitem__)


# Lengths on both sides of each index size and of the block in which a sort is cut.
@pytest.mark.parametrize("length", [1, 2, 17, 256, 257, 40_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_orders_equal_a_stable_sort_of_the_real_tokens(length, dtype):
    keys, mask = some_columns(length, dtype, batch=2 if length > 1000 else 3, columns=2)
    ranked, placed = sort_columns(keys, mask, to_front=True)[1], sort_columns(keys, mask)[1]
    assert ranked.dtype == placed.dtype == index_dtype(length)
    for b in range(len(keys)):
        real, padding = mask[b].nonzero()[:, 0], (~mask[b]).nonzero()[:, 0]
        for c in range(keys.shape[1]):
            expected = sorted_tokens(keys[b, c], mask[b])
            assert ranked[b, c].tolist() == [*expected, *padding.tolist()]
            assert placed[b, c, real].tolist() == expected
            assert placed[b, c, padding].tolist() == padding.tolist()


def test_infinities_sort_as_numbers_and_padding_behind_them():
    keys = torch.tensor([[[torch.inf, 1.0, -torch.inf, 5.0]]])
    mask = torch.tensor([[True, True, True, False]])
    for dtype in (torch.float32, torch.float64):
        assert sort_columns(keys.to(dtype), mask, to_front=True)[1][0, 0].tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("length", [1, 9, 300])
def test_permuting_backward_returns_each_gradient_to_its_token(length):
    keys, mask = some_columns(length, torch.float64)
    order = sort_columns(keys, mask)[1]
    values = torch.randn_like(keys).requires_grad_()
    result = permute_tokens(values, order)
    torch.testing.assert_close(result, values.gather(-1, order.long()))
    weight = torch.randn_like(values)
    (found,) = torch.autograd.grad((result * weight).sum(), values)
    (expected,) = torch.autograd.grad((values.gather(-1, order.long()) * weight).sum(), values)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(permute_tokens(result, inverse_order(order)), values)


def test_the_backward_pass_keeps_one_byte_an_index():
    keys, mask = some_columns(200)
    order = sort_columns(keys, mask)[1]
    values = keys.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        permute_tokens(values, order)
        sorted_columns(values, mask)
        sort_columns(values, mask)
    assert [x.dtype for x in kept] == [torch.uint8] * 3


def test_one_order_for_all_columns():
    values, mask = some_columns(12)
    order = shuffle_order(mask, seed=4)
    assert order.shape == (3, 1, 12)
    torch.testing.assert_close(permute_tokens(values, order)[1, 2], values[1, 2][order[1, 0].long()])
    gradient = torch.autograd.functional.jacobian(lambda x: permute_tokens(x, order).sum(), values)
    assert torch.equal(gradient, torch.ones_like(values))


@pytest.mark.parametrize("length", [1, 6, 300])
def test_front_order_moves_real_tokens_to_the_front(length):
    _, mask = some_columns(length)
    for row, order in zip(mask, front_order(mask)[:, 0], strict=True):
        assert order.tolist() == [*row.nonzero()[:, 0].tolist(), *(~row).nonzero()[:, 0].tolist()]


@pytest.mark.parametrize("garbage", [-1e4, 0.0, torch.inf, torch.nan])
def test_swap_order_moves_only_the_largest_and_the_first_real_token(garbage):
    keys, mask = some_columns(11)
    mask[1, 0] = False
    keys = torch.where(mask[:, None], keys - 10, garbage)  # every real key is negative
    order = swap_order(keys, mask)
    for b, c in [(b, c) for b in range(3) for c in range(4)]:
        real = mask[b].nonzero()[:, 0].tolist()
        largest = max(real, key=keys[b, c].tolist().__getitem__)
        expected = list(range(11))
        expected[real[0]], expected[largest] = largest, real[0]
        assert order[b, c].tolist() == expected


def test_shuffle_order_depends_on_seed_and_count_alone():
    mask = torch.tensor([[True] * 7 + [False] * 3, [False, True] * 2 + [True] * 5 + [False]])
    state = torch.get_rng_state()
    order = shuffle_order(mask, seed=1)[:, 0].long()
    assert torch.equal(torch.get_rng_state(), state)
    alone = shuffle_order(torch.ones(1, 7, dtype=torch.bool), seed=1)[0, 0].long()
    for row, found in zip(mask, order, strict=True):
        real = row.nonzero()[:, 0]
        assert torch.equal(found[real], real[alone])
        assert torch.equal(found[~row], (~row).nonzero()[:, 0])
    assert sorted(alone.tolist()) == list(range(7))
    # The order itself stays: trained models depend on it.
    assert alone.tolist() == [0, 3, 4, 6, 5, 1, 2]
    long = torch.ones(1, 500, dtype=torch.bool)
    orders = [shuffle_order(long, seed)[0, 0].long() for seed in range(20)]
    assert len({tuple(order.tolist()) for order in orders}) == 20
    fixed = sum((order == torch.arange(500)).sum().item() for order in orders)
    assert fixed < 60, "20 random permutations leave about 20 entries where they are"
    drift = torch.stack(orders).float().mean(0) - 249.5
    assert drift.abs().mean() < 60, "every place is reached from everywhere"


def test_tied_mean_shares_within_a_run_and_leaves_padding_alone():
    values = torch.tensor([[[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]]], dtype=torch.float64, requires_grad=True)
    keys = torch.tensor([[-3.0, -3.0 + 1e-6, -3.0 + 2e-6, 2.0, 2.0, torch.nan]], dtype=torch.float64)
    count = torch.tensor([4])
    shared = tied_mean(values, keys, count, 1e-6)  # a chain: the ends are farther apart than the tolerance
    torch.testing.assert_close(shared[0, 0].tolist(), [7 / 3, 7 / 3, 7 / 3, 8.0, 16.0, 32.0])
    (gradient,) = torch.autograd.grad(shared[0, 0, 0], values)
    torch.testing.assert_close(gradient[0, 0].tolist(), [1 / 3, 1 / 3, 1 / 3, 0.0, 0.0, 0.0])
    single = tied_mean(values[..., :1], keys[:, :1], torch.tensor([1]), 1e-6)
    torch.testing.assert_close(single, values[..., :1])


def test_small_keys_in_half_precision_are_not_tied_by_a_large_one():
    values = torch.tensor([[[1.0, 2.0, 4.0, 8.0]]])
    keys = torch.tensor([[0.25, 0.5, 0.50195, 100.0]]).bfloat16()
    assert tied_mean(values, keys, torch.tensor([4]), 1e-5).tolist() == [[[1.0, 3.0, 3.0, 8.0]]]


def test_a_chain_of_ties_is_limited():
    """At 4,096 tokens neighboring keys in bfloat16 are hardly ever distinct, so that all would be one run."""
    keys = torch.linspace(1.0, 2.0, 4096).bfloat16()[None]
    values = keys.float()[None]
    shared = tied_mean(values, keys, torch.tensor([4096]), 1e-5)
    assert 20 < len(shared.unique()) < 129
    assert (shared - values).abs().max() <= 4 * 2**-7


def test_many_tied_values_in_half_precision_have_their_mean():
    values = torch.full((1, 1, 8192), 9.0, dtype=torch.float16)
    keys = torch.ones(1, 8192, dtype=torch.float16)
    shared = tied_mean(values, keys, torch.tensor([8192]), 1e-5)
    assert shared.dtype == torch.float16
    assert (shared == 9.0).all()


def test_what_ties_does_not_depend_on_batch_mates():
    values = torch.tensor([[[1.0, 2.0, 4.0]], [[1.0, 2.0, 4.0]]])
    keys = torch.tensor([[1.0, 1.5, 2.0], [1e6, 2e6, 3e6]])
    together = tied_mean(values, keys, torch.tensor([3, 3]), 1e-5)
    assert torch.equal(together, values)
