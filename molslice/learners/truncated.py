"""Truncated normal distributions, and limits of the values of Gaussian processes."""

import numpy as np
import torch

FARTHEST = 1e8  # standard deviations at which a bound is infinite
LEAST_PRECISION = 1e-8  # of a site, relative to the variance of the noise; a limit far away tells nothing
TOLERANCE = 1e-4  # of the change of a mean in the last step, in standard deviations of the noise
MAX_STEPS = 60
SHARE, LOWERED = 0.7, 0.7  # of a step; whole steps of all sites at once may oscillate


def truncated_moments(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean and the variance of a standard normal variable between two bounds.

    Args:
        lower: Lower bounds, float64 [...], -inf for no bound.
        upper: Upper bounds, above the lower ones, float64 [...], inf for no bound.

    Returns:
        Mean and variance, float64 [...] each.

    Source: Johnson, Kotz and Balakrishnan 1994, "Continuous Univariate Distributions", volume 1, section
    10.1.
    """
    from scipy.special import erfcx

    mirrored = lower > -upper  # the tail below has more digits than the tail above
    low, high = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    low, high = np.clip(low, -FARTHEST, FARTHEST), np.clip(high, -FARTHEST, FARTHEST)
    # erfcx(-x / sqrt(2)) is the tail below x relative to the density at x, but for a constant
    tail, ratio = erfcx(-high / np.sqrt(2.0)), np.exp(0.5 * (high - low) * (high + low))
    with np.errstate(divide="ignore", invalid="ignore"):
        at_high = np.sqrt(2.0 / np.pi) / (tail - ratio * erfcx(-low / np.sqrt(2.0)))
        at_low = at_high * ratio
        mean = at_low - at_high
        variance = 1.0 + low * at_low - high * at_high - mean**2
    # between bounds that are close to each other, the density is even, and differences have no digits
    width, middle = high - low, 0.5 * (low + high)
    even = width * np.maximum(np.abs(middle), 1.0) < 1e-4
    mean, variance = np.where(even, middle, mean), np.where(even, width**2 / 12.0, variance)
    mean = np.clip(mean, low, high)
    return np.where(mirrored, -mean, mean), np.clip(variance, 0.0, 1.0)


def limit_sites(
    covariance: np.ndarray, mean: np.ndarray, noise: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Approximate the limits of values of a Gaussian process by measurements with normal noise.

    The prior is f ~ N(mean, covariance). Of f + e with e ~ N(0, noise), only bounds are known. Expectation
    propagation finds the values and the variances of measurements of f that give nearly the same posterior.
    All of them are updated at once.

    Args:
        covariance: float64 [m, m], positive definite up to rounding.
        mean: float64 [m].
        noise: Variance of the noise of each value, positive, float64 [m].
        bounds: Lower and upper bounds, float64 [2, m].

    Returns:
        The values and the variances of the measurements, and the expected f + e given everything, float64 [m]
        each.

    Source: Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", section 3.6, with the
    moments of a truncated normal distribution for f + e; Groot and Lucas 2012, "Gaussian Process Regression
    with Censored Data Using Expectation Propagation".
    """
    prior, start = torch.from_numpy(covariance), torch.from_numpy(mean)
    precision, shift = np.zeros(len(mean)), np.zeros(len(mean))
    centers, variances = mean.copy(), np.diagonal(covariance).copy()
    expected, share, largest = mean, 1.0, np.inf
    for _ in range(MAX_STEPS):
        # the cavity is the posterior without the site of the row itself
        variance = variances / np.maximum(1.0 - precision * variances, 1e-12)
        center = variance * (centers / variances - shift)
        total = variance + noise
        deviation = np.sqrt(total)
        means, shares = truncated_moments(*((bounds - center) / deviation))
        expected = np.clip(center + deviation * means, *bounds)
        removed = np.clip(1.0 - shares, 0.0, 1.0)  # share of the variance
        wanted = np.maximum(removed / (noise + variance * shares), LEAST_PRECISION / noise)
        moved = center + variance / deviation * means  # mean of f
        wanted_shift = wanted * moved + means / deviation
        precision = precision + share * (wanted - precision)
        shift = shift + share * (wanted_shift - shift)
        before, previous = centers, largest
        centers, variances = _posterior(prior, start, precision, shift)
        largest = float((np.abs(centers - before) / np.sqrt(noise)).max())
        if largest <= TOLERANCE:
            break
        share = min(share, SHARE) * (LOWERED if largest > previous else 1.0)
    return shift / precision, 1.0 / precision, expected


def _posterior(
    prior: torch.Tensor, start: torch.Tensor, precision: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of f given sites, float64 [m] each.

    Source: Rasmussen and Williams 2006, eq. 3.53 and 3.68.
    """
    weights, roots = torch.from_numpy(precision), torch.from_numpy(np.sqrt(precision))
    system = roots[:, None] * prior * roots
    system.diagonal().add_(1.0)
    factor = torch.linalg.cholesky(system)
    scaled = torch.linalg.solve_triangular(factor, roots[:, None] * prior, upper=False)
    pull = torch.from_numpy(shift) - weights * start
    solved = torch.linalg.solve_triangular(factor, (roots * (prior @ pull))[:, None], upper=False)
    centers = start + prior @ pull - (scaled.T @ solved)[:, 0]
    variances = prior.diagonal() - (scaled**2).sum(0)
    return centers.numpy(), variances.clamp_min(1e-12).numpy()
