"""Truncated normal distributions, and limits of a Gaussian process, against numerical integration."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from molslice.learners import truncated
from molslice.learners.truncated import limit_sites, truncated_moments

INF = np.inf


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(-1.0, INF), (-INF, 2.0), (3.0, INF), (-INF, -8.0), (-1.0, 1.0), (5.0, 5.5), (-6.0, -5.0), (0.3, 0.4)],
)
def test_moments_are_those_of_numerical_integration(lower, upper):
    ends = max(lower, -12.0), min(upper, 12.0)
    mass, first, second = (
        quad(lambda x, k=k: x**k * norm.pdf(x), *ends, epsabs=0, limit=200)[0] for k in range(3)
    )
    mean, variance = truncated_moments(np.array([lower]), np.array([upper]))
    assert mean[0] == pytest.approx(first / mass, rel=1e-8)
    assert variance[0] == pytest.approx(second / mass - (first / mass) ** 2, rel=1e-6)


def test_moments_far_outside_and_without_bounds():
    lower = np.array([-INF, 40.0, -INF, 1e6, -1e9, 30.0])
    upper = np.array([INF, INF, -1e5, INF, INF, 30.0 + 1e-9])
    mean, variance = truncated_moments(lower, upper)
    # beyond a far bound, the distance from it is exponential with the rate of the bound
    np.testing.assert_allclose(mean, [0.0, 40.0 + 1 / 40, -1e5, 1e6, 0.0, 30.0], rtol=2e-5, atol=1e-12)
    np.testing.assert_allclose(variance[:3], [1.0, 1 / 1600, 0.0], rtol=5e-3, atol=1e-6)
    assert variance[4] == 1.0
    assert ((variance >= 0) & (variance <= 1)).all()


def test_one_limit_has_the_exact_posterior():
    """f ~ N(0.3, 0.8), and f + e > 1.2 with e ~ N(0, 0.25)."""
    prior, noise, bound = norm(0.3, np.sqrt(0.8)), 0.25, 1.2
    density = lambda f: prior.pdf(f) * norm.sf((bound - f) / np.sqrt(noise))  # noqa: E731
    mass, first, second = (quad(lambda f, k=k: f**k * density(f), -8, 10)[0] for k in range(3))
    bounds = np.array([[bound], [INF]])
    values, variances, expected = limit_sites(np.array([[0.8]]), np.array([0.3]), np.array([noise]), bounds)
    precision = 1 / 0.8 + 1 / variances[0]
    assert (0.3 / 0.8 + values[0] / variances[0]) / precision == pytest.approx(first / mass, rel=1e-5)
    assert 1 / precision == pytest.approx(second / mass - (first / mass) ** 2, rel=1e-5)
    total = norm(0.3, np.sqrt(0.8 + noise))
    mean = quad(lambda y: y * total.pdf(y), bound, 12)[0] / total.sf(bound)
    assert expected[0] == pytest.approx(mean, rel=1e-5)


def test_two_limits_have_nearly_the_exact_posterior():
    """A lower limit and an interval of correlated values, on a grid."""
    covariance, mean = np.array([[1.0, 0.7], [0.7, 1.5]]), np.array([0.2, -0.3])
    noise, bounds = np.array([0.1, 0.3]), np.array([[1.0, -2.0], [INF, -1.0]])
    x, y = np.meshgrid(*[np.linspace(-8, 8, 801)] * 2, indexing="ij")
    density = multivariate_normal(mean, covariance).pdf(np.stack([x, y], -1))
    for place, f in enumerate((x, y)):
        lower, upper = ((bound - f) / np.sqrt(noise[place]) for bound in bounds[:, place])
        density *= norm.cdf(upper) - norm.cdf(lower)
    density /= density.sum()
    values, variances, _ = limit_sites(covariance, mean, noise, bounds)
    posterior = np.linalg.inv(np.linalg.inv(covariance) + np.diag(1 / variances))
    centers = posterior @ (np.linalg.solve(covariance, mean) + values / variances)
    exact = [(density * f).sum() for f in (x, y)]
    np.testing.assert_allclose(centers, exact, atol=1e-3)
    spread = [(density * f**2).sum() - center**2 for f, center in zip((x, y), exact, strict=True)]
    np.testing.assert_allclose(np.diag(posterior), spread, rtol=1e-2)


def test_many_limits_of_a_smooth_function_converge(monkeypatch):
    """Whole steps oscillate here forever."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(150, 2))
    covariance = np.exp(-0.5 * ((points[:, None] - points) ** 2).sum(-1))
    hidden = draw.multivariate_normal(np.zeros(150), covariance)
    bounds = np.stack([hidden - 0.1 * draw.random(150), np.full(150, INF)])
    steps, posterior = [], truncated._posterior
    monkeypatch.setattr(truncated, "_posterior", lambda *given: steps.append(0) or posterior(*given))
    values, variances, expected = limit_sites(covariance, np.zeros(150), np.full(150, 0.01), bounds)
    assert len(steps) < truncated.MAX_STEPS
    assert (variances >= 0.01).all()
    assert (expected >= bounds[0]).all()
    centers = covariance @ np.linalg.solve(covariance + np.diag(variances), values)
    assert (centers >= bounds[0] - 0.3).all()
    monkeypatch.setattr(truncated, "SHARE", 1.0)
    monkeypatch.setattr(truncated, "LOWERED", 1.0)
    steps.clear()
    limit_sites(covariance, np.zeros(150), np.full(150, 0.01), bounds)
    assert len(steps) == truncated.MAX_STEPS


def test_a_limit_far_away_tells_nothing():
    bounds = np.array([[-1e12], [INF]])
    _, variances, expected = limit_sites(np.array([[1.0]]), np.array([0.5]), np.array([0.1]), bounds)
    assert variances[0] > 1e6
    assert expected[0] == pytest.approx(0.5)
