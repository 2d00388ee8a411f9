"""Mixing by cumulative sums of sorted tokens equals the full matrix."""

import pytest
import torch

from molslice.ops.laplace import laplace_mix


def dense(query, key, potential, value, key_mask):
    scores = potential[:, :, None] - (query[..., None] - key[:, :, None]).abs()
    scores = scores.masked_fill(~key_mask[:, None, None], -torch.inf)
    return scores.softmax(-1) @ value


def draw(n, m, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    mask = torch.rand(2, m, generator=generator) < 0.7
    mask[:, 0] = True
    return scale * normal(2, 3, n), scale * normal(2, 3, m), scale * normal(2, 3, m), normal(2, 3, m, 4), mask


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 1), (1, 7), (64, 64), (65, 63), (200, 333)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_equals_the_full_matrix_in_value_and_gradient(n, m, scale):
    *inputs, mask = draw(n, m, scale)
    results = []
    for mix in (laplace_mix, dense):
        leaves = [x.clone().requires_grad_() for x in inputs]
        output = mix(*leaves, mask)
        loss = (output * torch.linspace(-1, 2, output.numel()).view_as(output)).sum()
        results.append([output, *torch.autograd.grad(loss, leaves)])
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)


def test_forward_mode_equals_the_full_matrix():
    *inputs, mask = draw(5, 7)
    tangents = tuple(torch.randn_like(x) for x in inputs)
    result, expected = (
        torch.func.jvp(lambda *args: mix(*args, mask), tuple(inputs), tangents)[1]  # noqa: B023
        for mix in (laplace_mix, dense)
    )
    torch.testing.assert_close(result, expected)


def test_keys_equal_to_queries_count_once():
    _, key, potential, value, mask = draw(9, 9)
    key = key.round()
    torch.testing.assert_close(
        laplace_mix(key, key, potential, value, mask), dense(key, key, potential, value, mask)
    )


def test_padding_may_hold_anything():
    query, key, potential, value, mask = draw(20, 90)
    expected = laplace_mix(query, key, potential, value, mask)
    hidden = ~mask[:, None].expand(key.shape)
    found = laplace_mix(
        query,
        key.masked_fill(hidden, torch.nan),
        potential.masked_fill(hidden, torch.inf),
        value.masked_fill(hidden[..., None], torch.nan),
        mask,
    )
    torch.testing.assert_close(found, expected)


def test_no_real_key_gives_zero():
    query, key, potential, value, mask = draw(5, 70)
    for count in (70, 0):
        keys = key[..., :count], potential[..., :count], value[:, :, :count]
        mixed = laplace_mix(query, *keys, torch.zeros_like(mask)[:, :count])
        assert mixed.shape == (2, 3, 5, 4)
        assert not mixed.any()


def test_single_precision_holds_over_a_wide_range():
    *inputs, mask = draw(50, 3000, 300.0)
    exact = laplace_mix(*inputs, mask)
    found = laplace_mix(*(x.float() for x in inputs), mask).double()
    assert (found - exact).abs().median() < 1e-3
    assert torch.isfinite(found).all()
