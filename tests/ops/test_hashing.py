"""Tests of hash codes, of table lookups against all pairs, and of kernel gradients."""

import pytest
import torch
from torch.nn import functional

from molslice.ops.hashing import expected_kernel, sampled_kernel, sign_codes, sum_collisions


def unit_vectors(*shape: int) -> torch.Tensor:
    return functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def collisions(at: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Return the fraction of rounds with equal codes, [B, H, N, M]."""
    return (at[..., :, None] == of[..., None, :]).double().mean(2)


def test_codes_fall_together_with_the_chance_that_the_angle_gives():
    vectors = unit_vectors(1, 2, 5, 3)
    codes = sign_codes(vectors, torch.randn(2, 20_000, 3, 2))
    assert codes.min() == 0
    assert codes.max() == 3
    found = collisions(codes, codes)
    expected = (1 - (vectors @ vectors.transpose(2, 3)).clamp(-1, 1).acos() / torch.pi) ** 2
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_tables_give_what_all_pairs_give():
    at, of = torch.randint(0, 4, (3, 2, 5, 6)), torch.randint(0, 4, (3, 2, 5, 8))
    values = torch.randn(3, 2, 8, 4, dtype=torch.float64)
    torch.testing.assert_close(sum_collisions(at, of, values, 4), collisions(at, of) @ values)


@pytest.mark.parametrize("channels", [3, 20])  # in one pass, and in two
def test_the_sampled_kernel_has_the_gradient_of_its_lower_bound(channels):
    query, key = unit_vectors(2, 2, 6, channels), unit_vectors(2, 2, 7, channels)
    value = torch.randn(2, 2, 7, channels, dtype=torch.float64)
    planes = torch.randn(2, 5, channels, 2)
    leaves = [x.requires_grad_() for x in (query, key, value)]
    found = sampled_kernel(query, key, value, planes)
    share = collisions(sign_codes(query, planes), sign_codes(key, planes))
    products = query @ key.transpose(2, 3)
    expected = (share * (1 + 2 / 2 * (products - products.detach()))) @ value
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_gradient_of_the_expected_kernel_is_a_lower_bound_and_finite():
    products = torch.linspace(-1, 1, 41, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(expected_kernel(products, 3).sum(), products)
    (true,) = torch.autograd.grad(((1 - products.acos() / torch.pi) ** 3).sum(), products)
    assert torch.isfinite(found).all()
    assert (found[1:-1] <= true[1:-1]).all()
    assert found[-1] == 3 / 2
    assert torch.isfinite(expected_kernel(torch.tensor([1.0 + 1e-6]), 3)).all()
