"""Masked reductions equal those of the real tokens, for any padding."""

import pytest
import torch

from molslice.ops.masked import (
    masked_max,
    masked_mean,
    masked_pair_bias,
    masked_softmax,
    masked_sum,
    pair_softmax,
    zero_padding,
)

MASK = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
PLAIN = {
    masked_sum: lambda x: x.sum(0),
    masked_mean: lambda x: x.mean(0),
    masked_max: lambda x: x.amax(0),
    masked_softmax: lambda x: x.softmax(0),
}


def test_the_mean_of_many_values_does_not_overflow_in_half_precision():
    values = torch.full((4000, 2), 40.0, dtype=torch.float16)
    mean = masked_mean(values, torch.ones(4000, 1, dtype=torch.bool), 0)
    assert mean.dtype == torch.float16
    assert mean.tolist() == [40.0, 40.0]


@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("function", PLAIN, ids=lambda function: function.__name__)
def test_equals_the_plain_one_on_real_entries(function, garbage):
    values = -1 - torch.rand(3, 5, 2, dtype=torch.float64)  # a zero at padding would be the largest
    values = torch.where(MASK[..., None], values, garbage).requires_grad_()
    result = function(values, MASK[..., None], 1)
    for b in (0, 2):
        found = result[b, MASK[b]] if function is masked_softmax else result[b]
        torch.testing.assert_close(found, PLAIN[function](values[b, MASK[b]]))
    assert not result[1].any()
    (gradient,) = torch.autograd.grad((result * torch.randn_like(result)).sum(), values)
    assert torch.isfinite(gradient).all()
    assert not gradient[~MASK].any()
    assert gradient[0, MASK[0]].any()


@pytest.mark.parametrize("causal", [False, True])
def test_pair_weights_are_rows_that_sum_to_one_over_real_tokens(causal):
    bias = torch.randn(3, 2, 5, 5)
    bias[~(MASK[:, :, None] & MASK[:, None, :])[:, None].expand_as(bias)] = torch.nan
    weights = pair_softmax(bias, MASK, causal)
    torch.testing.assert_close(weights.sum(-1), MASK[:, None].expand(3, 2, 5).float())
    assert not weights[0, :, :, ~MASK[0]].any()
    if causal:
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights[0, :, 1, :2], bias[0, :, 1, :2].softmax(-1))
    else:
        torch.testing.assert_close(
            weights[0][:, MASK[0]][:, :, MASK[0]], bias[0][:, MASK[0]][:, :, MASK[0]].softmax(-1)
        )


@pytest.mark.parametrize("causal", [False, True])
def test_a_masked_bias_is_finite_and_excludes_padding_and_future(causal):
    bias = torch.randn(3, 2, 5, 5)
    real = (MASK[:, :, None] & MASK[:, None, :])[:, None].expand_as(bias)
    masked = masked_pair_bias(bias.masked_fill(~real, torch.nan).transpose(2, 3), MASK, causal)
    assert masked.isfinite().all()
    assert masked.is_contiguous()
    seen = real.tril() if causal else real
    torch.testing.assert_close(masked[seen], bias.transpose(2, 3)[seen])
    assert masked[~seen].max() < -1e37


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 2), (3, 5, 2, 4)])
def test_zero_padding_keeps_real_tokens(shape):
    tokens = torch.full(shape, torch.nan)
    tokens[MASK] = 2.0
    assert zero_padding(tokens, MASK).sum() == 2.0 * tokens[MASK].numel()
