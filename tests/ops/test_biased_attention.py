"""Attention with a bias equals the definition, and torch's own."""

import torch
from torch.nn import functional

from molslice.ops.biased_attention import biased_attention
from molslice.ops.masked import masked_pair_bias

MASK = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]], dtype=torch.bool)


def draw():
    torch.manual_seed(0)
    parts = [torch.randn(3, 6, 2, 4, dtype=torch.float64).transpose(1, 2) for _ in range(3)]
    return [part.requires_grad_() for part in (*parts, torch.randn(3, 2, 6, 6, dtype=torch.float64))]


def test_values_and_gradients_are_those_of_the_definition():
    inputs = draw()
    weight = torch.randn(3, 2, 6, 4, dtype=torch.float64)

    def attend(query, key, value, bias):
        return biased_attention(query, key, value, masked_pair_bias(bias, MASK))

    def define(query, key, value, bias):
        rows = torch.zeros_like(weight)
        for b, h, i in torch.cartesian_prod(torch.arange(3), torch.arange(2), torch.arange(6)).tolist():
            if MASK[b, i]:
                scores = [
                    query[b, h, i] @ key[b, h, j] / 2 + bias[b, h, i, j] for j in range(6) if MASK[b, j]
                ]
                rows[b, h, i] = torch.stack(scores).softmax(0) @ value[b, h, MASK[b]]
        return rows

    real = MASK[:, None, :, None]
    found, expected = attend(*inputs) * real, define(*inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    gradients = [torch.autograd.grad((each * weight).sum(), inputs) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_dropout_is_that_of_the_weights():
    query, key, value, bias = (part.detach().float() for part in draw())
    torch.manual_seed(3)
    dropped = biased_attention(query, key, torch.eye(6, 4).expand(3, 2, 6, 4), bias, dropout=0.5)
    full = functional.scaled_dot_product_attention(query, key, torch.eye(6, 4).expand(3, 2, 6, 4), bias)
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * full[kept])
    assert value.shape == full.shape
