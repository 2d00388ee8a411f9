"""Pseudo-inverses of small square matrices by iterated products, differentiable and without branches.

Both iterations start from Z = A^T / (|A|_1 |A|_inf), with the largest absolute column and row sums of each
matrix, from which both converge for every A (Ben-Israel and Cohen 1966; Razavi et al. 2014). A matrix that is
zero outside the rows and columns of a block has the pseudo-inverse of that block, and zeros elsewhere. Unused
landmarks are therefore masked by zeros. Both are computed in at least float32 and without autocast, which
would round each product to half precision; the inverse would amplify the error.
"""

from jaxtyping import Float
from torch import Tensor

from molslice.ops.features import full_precision, precise


def newton_schulz_inverse(
    matrix: Float[Tensor, "*batch K K"], iterations: int
) -> Float[Tensor, "*batch K K"]:
    """Approximate the pseudo-inverse by Z <- Z (2 I - A Z), an iteration of second order.

    Source: Schulz 1933; for kernels without softmax Lu et al. 2021, arXiv 2110.11945.
    """
    with full_precision(matrix):
        matrix = precise(matrix)
        inverse = _start(matrix)
        for _ in range(iterations):
            inverse = 2 * inverse - inverse @ (matrix @ inverse)
        return inverse


def razavi_inverse(matrix: Float[Tensor, "*batch K K"], iterations: int) -> Float[Tensor, "*batch K K"]:
    """Approximate the pseudo-inverse by Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, of third order.

    Source: Razavi et al. 2014; for landmarks Xiong et al. 2021 (Nystromformer), arXiv 2102.03902.
    """
    with full_precision(matrix):
        matrix = precise(matrix)
        inverse = _start(matrix)
        for _ in range(iterations):
            product = matrix @ inverse
            inner = 7 * product - product @ product
            inner = 15 * product - product @ inner
            inverse = 0.25 * (13 * inverse - inverse @ inner)
        return inverse


def _start(matrix: Tensor) -> Tensor:
    sizes = matrix.abs()
    scale = sizes.sum(-1).amax(-1) * sizes.sum(-2).amax(-1)
    # A zero matrix, where no token is real, is its own pseudo-inverse.
    scale = scale.masked_fill(scale == 0, 1.0)
    return matrix.transpose(-1, -2) / scale[..., None, None]
