"""Similarities of molecules, and the evidence of a Gaussian process over their weighted sum."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from molslice.learners.labels import Labels
from molslice.learners.truncated import limit_sites

MOST_COUNTS = 15  # larger counts of one fragment are alike
PRIOR = 0.05  # of the squared logarithms of the weights
LOG_BOUNDS = (-12.0, 5.0)  # of the weights and the noise
LEAST_NOISE = math.exp(LOG_BOUNDS[0])
LOG_NOISE = -2.0  # at the start
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


@dataclass(frozen=True, slots=True)
class Measurements:
    """Values of a Gaussian process, each with normal noise.

    The variance of the noise is `shares` times the noise of the process, plus `extra`.

    Attributes:
        values: Standardized values, float64 [n].
        shares: float64 [n]; 1 for a usual measurement.
        extra: float64 [n].
    """

    values: np.ndarray
    shares: np.ndarray | float = 1.0
    extra: np.ndarray | float = 0.0


def measure(
    labels: Labels, noise: float, covariance: np.ndarray | None = None
) -> tuple[Measurements, np.ndarray]:
    """Describe labels as measurements with normal noise.

    The noise of a row of weight w is divided by w, and its squared standard error is added. A limit is
    approximated; see `limit_sites`. Other rows are conditioned on first.

    Args:
        labels: Standardized labels of n rows.
        noise: Variance of the noise of the process.
        covariance: Covariance of the rows, float64 [n, n]; None for independent rows of variance 1.

    Returns:
        The measurements, and the labels with limits replaced by their expected values, float64 [n].

    Source: Rasmussen and Williams 2006, eq. 2.23 and 2.24 (conditioning).
    """
    if labels.is_plain:
        return Measurements(labels.values), labels.values
    shares = np.ones(len(labels)) if labels.weights is None else 1.0 / labels.weights
    extra = np.zeros(len(labels)) if labels.noise is None else labels.noise**2
    values = labels.values.copy()
    expected = values.copy()
    if labels.bounds is None or not labels.limited.any():
        return Measurements(values, shares, extra), expected
    limited, known = np.flatnonzero(labels.limited), np.flatnonzero(~labels.limited)
    bounds, variance = labels.bounds[:, limited], noise * shares + extra + JITTER
    if covariance is None:
        prior, mean = np.eye(len(limited)), np.zeros(len(limited))
    else:
        exact = covariance[np.ix_(known, known)]
        factor = _factorize(exact, variance[known] - JITTER)
        across = torch.from_numpy(covariance[np.ix_(known, limited)])
        halves = torch.linalg.solve_triangular(factor, across, upper=False)
        target = torch.from_numpy(values[known])[:, None]
        mean = (halves.T @ torch.linalg.solve_triangular(factor, target, upper=False))[:, 0].numpy()
        prior = covariance[np.ix_(limited, limited)] - (halves.T @ halves).numpy()
    values[limited], site_variances, expected[limited] = limit_sites(prior, mean, variance[limited], bounds)
    shares[limited], extra[limited] = 0.0, np.maximum(site_variances - JITTER, 0.0)
    return Measurements(values, shares, extra), expected


def fit_labels(
    kernels: np.ndarray,
    labels: Labels,
    sizes: Sequence[int],
    *,
    prior: float = PRIOR,
    least_noise: float = LEAST_NOISE,
) -> np.ndarray:
    """Fit the weights of kernels to labels, first roughly to a few rows and then finely to more.

    Limits are approximated with the weights of the step before. With these approximations, the derivatives of
    the evidence by the weights of the kernels are exact. The noise is chosen by the other rows.

    Args:
        kernels: Positive definite matrices, float64 [kernels, n, n].
        labels: Standardized labels of the n rows.
        sizes: The number of first rows of each step.
        prior: See `fit_weights`.
        least_noise: See `fit_weights`.

    Returns:
        See `fit_weights`.

    Source: Rasmussen and Williams 2006, eq. 5.27 (derivatives with fixed sites).
    """
    weights, steps = None, sizes if labels.bounds is None else (*sizes, sizes[-1])
    for size in steps:
        block, few = np.ascontiguousarray(kernels[:, :size, :size]), labels[:size]
        noise, covariance = float(np.exp(LOG_NOISE)), None
        if weights is not None and labels.bounds is not None:
            noise, covariance = float(weights[-1]), np.einsum("k,kij->ij", weights[:-1], block)
        measured, _ = measure(few, noise, covariance)
        weights = fit_weights(
            block,
            measured.values,
            start=weights,
            shares=measured.shares,
            extra=measured.extra,
            prior=prior,
            least_noise=least_noise,
        )
    assert weights is not None
    return weights


def predictive_spread(kernels: np.ndarray, weights: np.ndarray, labels: Labels) -> float:
    """Return the standard deviation of a new value without its standard error, given all other rows.

    It is the root of the mean variance of the rows without limits, each predicted from the others.

    Args:
        kernels: Positive definite matrices, float64 [kernels, n, n].
        weights: See `fit_weights`.
        labels: Standardized labels of the n rows.

    Source: Rasmussen and Williams 2006, eq. 5.12.
    """
    covariance = np.einsum("k,kij->ij", weights[:-1], kernels)
    measured, _ = measure(labels, float(weights[-1]), covariance)
    factor = _factorize(covariance, measured.shares * weights[-1] + measured.extra)
    variances = 1.0 / torch.cholesky_inverse(factor).diagonal().numpy() - measured.extra
    return float(np.sqrt(variances[measured.shares > 0].mean()))


def fit_weights(
    kernels: np.ndarray,
    values: np.ndarray,
    start: np.ndarray | None = None,
    *,
    shares: np.ndarray | float = 1.0,
    extra: np.ndarray | float = 0.0,
    prior: float = PRIOR,
    least_noise: float = LEAST_NOISE,
) -> np.ndarray:
    """Maximize the evidence of a Gaussian process over the weights of kernels and the noise.

    The covariance is sum_k w_k K_k + w_noise diag(shares) + diag(extra). A weak prior keeps the logarithms of
    the weights near zero.

    Args:
        kernels: Positive definite matrices, float64 [kernels, n, n].
        values: Standardized target [n].
        start: Weights to start from, such as a fit to fewer rows, which saves steps; None for ones.
        shares: See `Measurements`.
        extra: See `Measurements`.
        prior: How strongly the logarithms of the weights are drawn to zero.
        least_noise: Least variance of the noise.

    Returns:
        Weights of the kernels, then the variance of the noise, float64 [kernels + 1].

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 5.8.
    """
    from scipy.optimize import minimize

    stacked, target = torch.from_numpy(kernels), torch.from_numpy(values)
    noises = [torch.as_tensor(array, dtype=torch.float64) for array in (shares, extra)]

    def objective(logs: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = negative_evidence(torch.from_numpy(logs), stacked, target, *noises, prior=prior)
        return float(loss), gradient.numpy()

    logs = np.zeros(len(kernels) + 1)
    logs[-1] = LOG_NOISE
    most = MAX_EVALUATIONS
    if start is not None:
        logs, most = np.log(start), LATER_EVALUATIONS
    bounds = [*[LOG_BOUNDS] * len(kernels), (math.log(least_noise), LOG_BOUNDS[1])]
    result = minimize(objective, logs, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": most})
    return np.exp(result.x)


def negative_evidence(
    logs: Tensor,
    kernels: Tensor,
    target: Tensor,
    shares: Tensor | float = 1.0,
    extra: Tensor | float = 0.0,
    prior: float = PRIOR,
) -> tuple[Tensor, Tensor]:
    """Compute the negative logarithm of evidence and prior, but for a constant, and its gradient.

    Args:
        logs: Logarithms of the weights of the kernels and of the noise, float64 [kernels + 1].
        kernels: float64 [kernels, n, n].
        target: float64 [n].
        shares: See `Measurements`.
        extra: See `Measurements`.
        prior: See `fit_weights`.

    Returns:
        The value, and its derivatives by `logs`, float64 [kernels + 1].

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", eq. 5.8 and 5.9.
    """
    weights = logs.exp()
    covariance = torch.einsum("k,kij->ij", weights[:-1], kernels)
    covariance.diagonal().add_(shares * weights[-1] + JITTER + extra)
    factor = torch.linalg.cholesky(covariance)
    solved = torch.cholesky_solve(target[:, None], factor)[:, 0]
    value = 0.5 * (target @ solved) + factor.diagonal().log().sum() + prior * (logs**2).sum()
    # twice the derivative with respect to the covariance
    slope = torch.cholesky_inverse(factor) - solved[:, None] * solved
    by_kernel = kernels.flatten(1) @ slope.flatten()
    slopes = torch.cat([by_kernel, slope.diagonal().mul_(shares).sum()[None]])
    return value, 0.5 * weights * slopes + 2.0 * prior * logs


def solve(covariance: np.ndarray, noise: float | np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solve (covariance + diag(noise)) x = values for x [n]; `covariance` [n, n] is overwritten."""
    factor = _factorize(covariance, noise)
    return torch.cholesky_solve(torch.from_numpy(values)[:, None], factor)[:, 0].numpy()


def _factorize(covariance: np.ndarray, noise: float | np.ndarray) -> Tensor:
    """Return the Cholesky factor of covariance + diag(noise), [n, n]; `covariance` is overwritten.

    The rounding of a covariance of float32 kernels can exceed a small noise. The noise is then raised tenfold
    until the sum is positive definite.
    """
    diagonal, added = np.diag_indices_from(covariance), noise + JITTER
    covariance[diagonal] += added
    matrix = torch.from_numpy(covariance)
    while (factor := torch.linalg.cholesky_ex(matrix)).info and np.isfinite(added).all():
        covariance[diagonal] += 9.0 * added
        added = added * 10.0
    return factor.L
