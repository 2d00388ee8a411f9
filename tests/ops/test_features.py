"""Tests of feature maps: expectation, error, and weighted averages."""

import pytest
import torch

from molslice.ops.features import (
    fourier_features,
    gaussian_projection,
    kernel_average,
    layer_generator,
    log_exponential_features,
    orthogonal_projection,
    positive_average,
    positive_elu,
    unit_vectors,
)

DRAWS = 2000


def exponential_errors(features, orthogonal=True):
    """Return relative errors of exp(x y) for one pair of vectors and many projections."""
    x, y = 0.5 * torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    generator, estimates = layer_generator(5, 0), []
    for _ in range(DRAWS):
        if orthogonal:
            projection = orthogonal_projection(features, 4, generator)
        else:
            projection = gaussian_projection((features, 4), generator)
        one, other = (log_exponential_features(v, projection).exp() for v in (x, y))
        estimates.append((one * other).mean())
    return torch.stack(estimates) / (x @ y).exp() - 1


def test_exponential_features_have_no_bias_and_less_variance_the_more_they_are():
    few, many = exponential_errors(4), exponential_errors(64)
    for errors in (few, many):
        assert errors.mean().abs() < 4 * errors.std() / DRAWS**0.5
    assert many.std() < 0.5 * few.std()


def test_orthogonal_features_have_less_variance_than_independent_ones():
    assert exponential_errors(4).std() < exponential_errors(4, orthogonal=False).std()


def test_fourier_features_have_no_bias_and_less_variance_the_more_they_are():
    x, y = 0.4 * torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    expected = (-(x - y).square().sum() / 2).exp()
    spread = []
    for features in (8, 64):
        generator = layer_generator(0, 0)
        found = []
        for _ in range(DRAWS):
            projection = gaussian_projection((1, features, 8), generator)
            found.append((fourier_features(x, projection) * fourier_features(y, projection)).sum())
        errors = torch.stack(found) - expected
        assert errors.mean().abs() < 4 * errors.std() / DRAWS**0.5
        spread.append(errors.std())
    assert spread[1] < 0.5 * spread[0]


@pytest.mark.parametrize(("features", "dim"), [(8, 4), (6, 4), (3, 4), (5, 1)])
def test_projections_are_orthogonal_in_blocks(features, dim):
    projection = orthogonal_projection(features, dim, layer_generator(0, 0))
    assert projection.shape == (features, dim)
    for block in projection.split(dim):
        products = block @ block.T
        torch.testing.assert_close(products, products.diagonal().diag(), rtol=1e-5, atol=1e-5)


def test_each_orthogonal_vector_is_standard_normal():
    drawn = torch.cat([orthogonal_projection(4, 4, layer_generator(seed, 0)) for seed in range(500)])
    torch.testing.assert_close(drawn.mean(0), torch.zeros(4), rtol=0, atol=0.1)
    torch.testing.assert_close(drawn.T @ drawn / len(drawn), torch.eye(4), rtol=0, atol=0.1)
    assert (drawn > 0).float().mean(0).sub(0.5).abs().max() < 0.05


def test_layers_and_seeds_draw_different_numbers_and_repeat_them():
    state = torch.get_rng_state()
    draws = {
        key: gaussian_projection((3,), layer_generator(*key)) for key in [(0, 0), (0, 1), (1, 0), (1, 1)]
    }
    assert len({tuple(draw.tolist()) for draw in draws.values()}) == 4
    assert torch.equal(draws[1, 1], gaussian_projection((3,), layer_generator(1, 1)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 300.0])
def test_vectors_of_any_size_get_the_length_one_and_zeros_stay_zero(size, dtype):
    vectors = torch.full((2, 16), size, dtype=dtype, requires_grad=True)
    units = unit_vectors(vectors)
    assert units.dtype == dtype
    torch.testing.assert_close(
        units.float().norm(dim=-1), torch.full((2,), float(size > 0)), rtol=1e-2, atol=0
    )
    (gradient,) = torch.autograd.grad(units.sum(), vectors)
    assert gradient.isfinite().all()


def test_positive_elu_stays_positive_where_elu_plus_one_rounds_to_zero():
    x = torch.tensor([-60.0, -20.0, -1.0, 0.0, 2.0])
    torch.testing.assert_close(positive_elu(x), torch.nn.functional.elu(x) + 1, rtol=0, atol=1e-7)
    assert (positive_elu(x) > 0).all()
    assert torch.autograd.gradcheck(positive_elu, torch.randn(9, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("length", [1, 7, 150])
def test_averages_equal_their_quadratic_form(length):
    query, key = torch.rand(2, 2, 3, length, 5, dtype=torch.float64)
    value = torch.randn(2, 3, length, 4, dtype=torch.float64)
    weights = query @ key.transpose(2, 3)
    full = weights @ value / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(positive_average(query, key, value), full)
    torch.testing.assert_close(kernel_average(query, key, value), full)
    past = weights.tril() @ value / weights.tril().sum(-1, keepdim=True)
    torch.testing.assert_close(kernel_average(query, key, value, causal=True), past)


@pytest.mark.parametrize("average", [positive_average, kernel_average])
def test_the_floor_holds_small_divisors(average):
    query, key = torch.full((1, 1, 2, 3), 0.1), torch.full((1, 1, 4, 3), 0.1)
    found = average(query, key, torch.ones(1, 1, 4, 2), 1.0)
    torch.testing.assert_close(found, torch.full((1, 1, 2, 2), 0.12))
    empty = torch.zeros_like(key).requires_grad_()
    found = average(query, empty, torch.ones(1, 1, 4, 2), 1e-6)
    assert not found.any()
    assert torch.isfinite(torch.autograd.grad(found.sum(), empty)[0]).all()


@pytest.mark.parametrize("average", [positive_average, kernel_average])
def test_sums_of_thousands_of_tokens_do_not_overflow_in_half_precision(average):
    query, key = torch.ones(1, 1, 3, 4), 100 * torch.ones(1, 1, 4000, 4)
    value = torch.full((1, 1, 4000, 2), 5.0, dtype=torch.float16)
    with torch.autocast("cpu", torch.float16):
        found = average(query, key, value)
    torch.testing.assert_close(found.float(), torch.full((1, 1, 3, 2), 5.0), rtol=5e-3, atol=0)
