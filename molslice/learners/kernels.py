"""Similarities of molecules, and the evidence of a Gaussian process over their weighted sum."""

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "fit_weights",
    "min_max_kernel",
    "negative_evidence",
    "rational_quadratic_kernel",
    "solve",
    "squared_distances",
]

MOST_COUNTS = 15  # larger counts of one fragment are alike
PRIOR = 0.05  # of the squared logarithms of the weights
JITTER = 1e-4  # of the variance of the target; also keeps the matrix positive definite
MAX_EVALUATIONS, LATER_EVALUATIONS = 60, 20  # of the evidence, from the first weights and from given ones


def min_max_kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compute the generalized Tanimoto similarity of counts: sum of minima over sum of maxima.

    Args:
        left: Counts, uint8 [n, P].
        right: Counts, uint8 [m, P].

    Returns:
        float64 [n, m] in [0, 1]; 1 for two rows without any count. Positive definite.

    Source: Ralaivola et al. 2005, "Graph kernels for chemical informatics", the MinMax kernel.
    """
    left, right = np.minimum(left, MOST_COUNTS), np.minimum(right, MOST_COUNTS)
    common = np.zeros((len(left), len(right)), np.float32)
    for count in range(1, int(min(left.max(initial=0), right.max(initial=0))) + 1):
        # min(a, b) is the number of thresholds that both reach
        columns = np.flatnonzero((left >= count).any(0) & (right >= count).any(0))
        common += (left[:, columns] >= count).astype(np.float32) @ (right[:, columns] >= count).astype(
            np.float32
        ).T
    totals = left.sum(1, dtype=np.float64)[:, None] + right.sum(1, dtype=np.float64)[None]
    maxima = totals - common
    return np.where(maxima > 0, common / np.where(maxima > 0, maxima, 1.0), 1.0)


def squared_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compute squared Euclidean distances of rows [n, C] and [m, C]: float64 [n, m]."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None] - 2.0 * (left @ right.T)
    return np.maximum(squares, 0.0)


def rational_quadratic_kernel(distances: np.ndarray, scale: float) -> np.ndarray:
    """Compute 1 / (1 + d^2 / (2 scale)) of squared distances d^2.

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 4.19 with alpha = 1.
    """
    return 1.0 / (1.0 + distances / (2.0 * scale))


def fit_weights(kernels: np.ndarray, values: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """Maximize the evidence of a Gaussian process over the weights of kernels and the noise.

    The covariance is sum_k w_k K_k + w_noise I. A weak prior keeps the logarithms of the weights near zero.

    Args:
        kernels: Positive definite matrices, float64 [kernels, n, n].
        values: Standardized target [n].
        start: Weights to start from, such as a fit to fewer rows, which saves steps; None for ones.

    Returns:
        Weights of the kernels, then the variance of the noise, float64 [kernels + 1].

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 5.8.
    """
    from scipy.optimize import minimize

    stacked, target = torch.from_numpy(kernels), torch.from_numpy(values)

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = negative_evidence(torch.from_numpy(logs), stacked, target)
        return float(loss), gradient.numpy()

    logs = np.zeros(len(kernels) + 1)
    logs[-1] = -2.0
    most = MAX_EVALUATIONS
    if start is not None:
        logs, most = np.log(start), LATER_EVALUATIONS
    bounds = [(-12.0, 5.0)] * len(logs)
    result = minimize(objective, logs, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": most})
    return np.exp(result.x)


def negative_evidence(logs: Tensor, kernels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the negative logarithm of evidence and prior, but for a constant, and its gradient.

    Args:
        logs: Logarithms of the weights of the kernels and of the noise, float64 [kernels + 1].
        kernels: float64 [kernels, n, n].
        target: float64 [n].

    Returns:
        The value, and its derivatives by `logs`, float64 [kernels + 1].

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 5.8 and 5.9.
    """
    weights = logs.exp()
    covariance = torch.einsum("k,kij->ij", weights[:-1], kernels)
    covariance.diagonal().add_(weights[-1] + JITTER)
    factor = torch.linalg.cholesky(covariance)
    solved = torch.cholesky_solve(target[:, None], factor)[:, 0]
    value = 0.5 * (target @ solved) + factor.diagonal().log().sum() + PRIOR * (logs**2).sum()
    # twice the derivative with respect to the covariance
    slope = torch.cholesky_inverse(factor) - solved[:, None] * solved
    slopes = torch.cat([kernels.flatten(1) @ slope.flatten(), slope.diagonal().sum()[None]])
    return value, 0.5 * weights * slopes + 2.0 * PRIOR * logs


def solve(covariance: np.ndarray, noise: float | np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solve (covariance + diag(noise)) x = values for x [n]; `covariance` [n, n] is overwritten.

    The rounding of a covariance of float32 kernels can exceed a small noise. The noise is then raised tenfold
    until the sum is positive definite.
    """
    diagonal, added = np.diag_indices_from(covariance), noise + JITTER
    covariance[diagonal] += added
    matrix = torch.from_numpy(covariance)
    while (factor := torch.linalg.cholesky_ex(matrix)).info and np.isfinite(added).all():
        covariance[diagonal] += 9.0 * added
        added *= 10.0
    return torch.cholesky_solve(torch.from_numpy(values)[:, None], factor.L)[:, 0].numpy()
