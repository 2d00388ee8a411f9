"""Iterative pseudoinverses equal those by singular value decomposition."""

import pytest
import torch

from molslice.ops.inverse import newton_schulz_inverse, razavi_inverse

BOTH = pytest.mark.parametrize("inverse", [newton_schulz_inverse, razavi_inverse])


def well_conditioned() -> torch.Tensor:
    return torch.eye(6, dtype=torch.float64) + 0.3 * torch.randn(2, 3, 6, 6, dtype=torch.float64)


@BOTH
def test_converges_to_the_inverse(inverse):
    matrix = well_conditioned()
    torch.testing.assert_close(inverse(matrix, 30), matrix.inverse(), rtol=1e-6, atol=1e-6)


@BOTH
def test_converges_to_the_pseudo_inverse_of_a_singular_matrix(inverse):
    matrix = well_conditioned()
    matrix[..., 5] = matrix[..., 4]
    torch.testing.assert_close(inverse(matrix, 14), torch.linalg.pinv(matrix), rtol=1e-6, atol=1e-6)


@BOTH
def test_zeros_around_a_block_stay_and_change_nothing(inverse):
    used = torch.tensor([0, 2, 3])
    matrix = torch.zeros(5, 5, dtype=torch.float64)
    matrix[used[:, None], used] = block = torch.randn(3, 3, dtype=torch.float64)
    found = inverse(matrix, 4)
    torch.testing.assert_close(found[used[:, None], used], inverse(block, 4))
    assert found.count_nonzero() == 9


@BOTH
def test_gradient(inverse):
    matrix = well_conditioned()[0, :2, :3, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: inverse(x, 5), matrix)
    zeros = torch.zeros(3, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(inverse(zeros, 5).sum(), zeros)
    assert torch.isfinite(gradient).all()


@BOTH
def test_half_precision_is_computed_in_single_under_autocast_too(inverse):
    matrix = well_conditioned().bfloat16()
    expected = inverse(matrix.double(), 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = inverse(matrix, 8)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
