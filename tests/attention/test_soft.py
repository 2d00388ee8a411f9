"""Tests specific to `soft`: more landmarks approximate the full kernel better, enough are exact."""

import pytest
import torch

from molslice.attention import build_attention
from molslice.testing.subjects import SPEC, Inputs, Subject
from molslice.types import MolsliceError, TokenContext
from tests.attention.references import find_reference


def subject(**options) -> Subject:
    return Subject(
        "soft", lambda spec: build_attention("soft", spec, options), SPEC, reference=find_reference("soft")
    )


def result(attention, tokens: torch.Tensor) -> torch.Tensor:
    return attention(tokens[None], TokenContext(torch.ones(1, len(tokens), dtype=torch.bool))).tokens[0]


def full(attention, tokens: torch.Tensor) -> torch.Tensor:
    """Return the attention with the Gaussian kernel of all pairs."""
    query, value = (
        x.view(-1, 2, 4).transpose(0, 1) for x in (attention.query(tokens), attention.value(tokens))
    )
    kernel = (-torch.cdist(query, query).square() / (2 * 4**0.5)).exp()
    return attention.output((kernel @ value).transpose(0, 1).flatten(1))


@pytest.mark.parametrize("count", [1, 6, 9])
def test_with_landmarks_enough_it_is_the_full_kernel(count):
    attention = subject(num_landmarks=9, iterations=30).attention()
    tokens = Inputs.draw(count).tokens[0]
    torch.testing.assert_close(result(attention, tokens), full(attention, tokens), rtol=1e-6, atol=1e-6)


def test_more_landmarks_come_nearer_to_the_full_kernel():
    steps = torch.linspace(0, 3, 48, dtype=torch.float64)[:, None]
    tokens = torch.sin(steps * torch.arange(1, 9) / 4)  # a smooth path: what segments are good for
    errors = []
    for num in (2, 6, 24):
        attention = subject(num_landmarks=num, iterations=40).attention()
        expected = full(attention, tokens)
        errors.append((result(attention, tokens) - expected).norm() / expected.norm())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_equal_tokens_give_a_singular_kernel_and_a_finite_result():
    attention = subject(num_landmarks=8).attention(torch.float32)
    tokens = torch.randn(1, 8).expand(20, 8).clone().requires_grad_()
    found = result(attention, tokens)
    torch.testing.assert_close(found, full(attention, tokens), rtol=1e-3, atol=1e-3)
    (gradient,) = torch.autograd.grad(found.sum(), tokens)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("options", [{"num_landmarks": 0}, {"iterations": 0}], ids=str)
def test_a_bad_option_is_refused_by_name(options):
    with pytest.raises(MolsliceError, match=next(iter(options))):
        subject(**options).make(SPEC)
