"""Sinkhorn iterations equal repeated divisions by sums."""

import pytest
import torch

from molslice.ops.sinkhorn import causal_sinkhorn_log, sinkhorn_log

ROWS = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]], dtype=torch.bool)
COLUMNS = torch.tensor(
    [[0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [0] * 6], dtype=torch.bool
)


def draw(garbage=0.0):
    seen = ROWS[:, None, :, None] & COLUMNS[:, None, None]
    return torch.where(seen, torch.randn(4, 2, 5, 6, dtype=torch.float64), garbage)


@pytest.mark.parametrize("garbage", [0.0, 1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_divides_rows_and_columns_in_turn_rows_last(garbage, iterations):
    scores = draw(garbage).requires_grad_()
    found = sinkhorn_log(scores, ROWS[:, None], COLUMNS[:, None], iterations).exp()
    for b, h in ((0, 0), (0, 1), (1, 0)):
        expected = scores[b, h][ROWS[b]][:, COLUMNS[b]].exp()
        for left in range(iterations, 0, -1):
            expected = expected / expected.sum(left % 2, keepdim=True)
        torch.testing.assert_close(found[b, h][ROWS[b]][:, COLUMNS[b]], expected)
    outside = ~(ROWS[:, None, :, None] & COLUMNS[:, None, None]).expand_as(found)
    assert not found[outside].any()
    (gradient,) = torch.autograd.grad((found * torch.randn_like(found)).sum(), scores)
    assert torch.isfinite(gradient).all()
    assert not gradient[outside].any()


def test_columns_tend_to_the_ratio_of_the_sides():
    found = sinkhorn_log(draw(), ROWS[:, None], COLUMNS[:, None], 101).exp()
    torch.testing.assert_close(found[0].sum(-1)[:, ROWS[0]], torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(
        found[0].sum(-2)[:, COLUMNS[0]], torch.full((2, 4), 3 / 4, dtype=torch.float64)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    found = sinkhorn_log(100 * draw(torch.inf).to(dtype), ROWS[:, None], COLUMNS[:, None], 5)
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_the_causal_one_divides_by_the_column_so_far(iterations):
    scores = torch.randn(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    found = causal_sinkhorn_log(scores, torch.ones(1, 1, 4, dtype=torch.bool), iterations).exp()
    matrix = scores[0, 0].exp().tril(-1)
    for left in range(iterations, 0, -1):
        total = matrix.sum(1, keepdim=True) if left % 2 else matrix.cumsum(0)
        matrix = torch.where(torch.ones(4, 4).tril(-1) > 0, matrix / total.clamp(min=1e-30), 0.0)
    torch.testing.assert_close(found[0, 0], matrix)
    assert not found[0, 0, 0].any()
    (gradient,) = torch.autograd.grad(found[0, 0, 2].square().sum(), scores)
    assert not gradient[0, 0, 3].any(), "a row depends on a later one"
