"""The loss of a mean and a variance, against a slow float64 form."""

import math

import pytest
import torch

from molslice.ops.gaussian import LARGEST, bound_log_variance, gaussian_losses


def numbers(seed, count=40):
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance, wanted = torch.randn(3, count, dtype=torch.float64, generator=generator) * 2
    return mean.requires_grad_(), log_variance.requires_grad_(), wanted


def test_values_and_gradients_are_those_of_the_formula():
    mean, log_variance, wanted = numbers(3)
    losses = gaussian_losses(mean, log_variance, wanted)
    losses.sum().backward()
    for row, (m, s, y) in enumerate(zip(mean.tolist(), log_variance.tolist(), wanted.tolist(), strict=True)):
        variance = math.exp(s)
        likelihood = math.exp(-((y - m) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        assert losses[row].item() == pytest.approx(-math.log(likelihood * math.sqrt(2 * math.pi)), rel=1e-9)
        assert mean.grad[row].item() == pytest.approx((m - y) / variance, rel=1e-9)
        assert log_variance.grad[row].item() == pytest.approx((1 - (y - m) ** 2 / variance) / 2, rel=1e-9)


def test_float32_agrees_with_float64():
    mean, log_variance, wanted = numbers(4)
    wide = gaussian_losses(mean, log_variance, wanted)
    narrow = gaussian_losses(mean.float(), log_variance.float(), wanted.float())
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-5, atol=1e-5)


def test_the_smallest_loss_is_at_the_mean_and_the_variance_of_the_values():
    wanted = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    mean = wanted.mean().clone().requires_grad_()
    log_variance = wanted.var(correction=0).log().requires_grad_()
    gaussian_losses(mean.expand(3), log_variance.expand(3), wanted).sum().backward()
    assert mean.grad.abs() < 1e-12
    assert log_variance.grad.abs() < 1e-12


def test_a_log_variance_is_bounded_and_keeps_its_gradient():
    values = torch.tensor([-1e9, -40.0, -1.0, 0.0, 1.0, 40.0, 1e9], requires_grad=True)
    bounded = bound_log_variance(values)
    assert bounded.abs().max() <= LARGEST
    assert bounded[2:5].tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=2e-3)
    assert (bounded.diff() >= 0).all()
    bounded.sum().backward()
    assert (values.grad[1:6] > 0).all()
    assert gaussian_losses(torch.zeros(7), bounded, torch.full((7,), 1e3)).isfinite().all()
