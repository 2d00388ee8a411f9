"""A smooth approximation of a game, whose Shapley values are known exactly.

The odd part of a game is half of the difference between the value of a coalition and the value of its
complement. It has all of the Shapley values: the even part has none. A Gaussian process is fitted to it. The
covariance of two coalitions halves with each player that is in only one of them, so the process learns the
actions of single players from few coalitions, and of larger groups from more.

Source: Witter, Liu and Musco 2025, "Regression-adjusted Monte Carlo Estimators for Shapley Values and
Probabilistic Values" (the values of an approximation, corrected by an estimate of the rest). The covariance
and its Shapley values are ours.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

RHO = 1.0 / 3.0  # the covariance is the product of 1 + RHO for equal players and 1 - RHO for others
NOISE = 1e-3  # of the process, as a share of its variance
MOST_COALITIONS = 3_072  # to which the process is fitted, in about a second
BLOCK = 4_096  # coalitions that are evaluated at once


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The odd part of a game of m players as a sum over K coalitions.

    Attributes:
        signs: 1 for members of a coalition and -1 for others, float64 [K, m].
        weights: Weight of each coalition, float64 [K].
    """

    signs: np.ndarray
    weights: np.ndarray

    @classmethod
    def fit(cls, members: np.ndarray, values: np.ndarray) -> Self:
        """Fit the surrogate to the first `MOST_COALITIONS` different coalitions of bool [K, m]."""
        from scipy.linalg import solve

        first = members[:, :1]
        signs, values = _signs(members == first), np.where(first[:, 0], values, -values)  # f(-z) = -f(z)
        _, rows = np.unique(signs, axis=0, return_index=True)
        rows = np.sort(rows)[:MOST_COALITIONS]
        signs = signs[rows]
        covariance = _covariance(signs, signs)
        covariance[np.diag_indices(len(rows))] *= 1.0 + NOISE
        return cls(signs, solve(covariance, values[rows], assume_a="pos"))

    def __call__(self, members: np.ndarray) -> np.ndarray:
        """Return the odd part of the value of coalitions bool [K, m], float64 [K]."""
        blocks = [members[start : start + BLOCK] for start in range(0, len(members), BLOCK)]
        return np.concatenate([_covariance(_signs(block), self.signs) @ self.weights for block in blocks])

    def shapley_values(self) -> np.ndarray:
        """Return the Shapley value of each player, float64 [m].

        The covariance with a coalition is a sum of products: RHO^k times the signs of each k players. The
        product of k signs has the Shapley value 2 / k for each of its players if k is odd. The sum of
        RHO^k / k is the integral of t^(k - 1) from 0 to RHO, and the sum of products is a product again.
        """
        players = self.signs.shape[1]
        nodes, widths = np.polynomial.legendre.leggauss(players // 2 + 1)  # exact for these polynomials
        nodes, widths = (nodes[:, None] + 1) * RHO / 2, widths * RHO / 2
        equal = np.arange(players)  # number of other players with sign 1
        products = [
            ((1 + t) / (1 + RHO)) ** equal * ((1 - t) / (1 + RHO)) ** (players - 1 - equal)
            for t in (nodes, -nodes)
        ]
        integrals = widths @ (products[0] + products[1]) / (1 + RHO)
        others = (self.signs > 0).sum(1)[:, None] - (self.signs > 0)
        return self.weights @ (self.signs * integrals[others])


def _signs(members: np.ndarray) -> np.ndarray:
    return np.where(members, 1.0, -1.0)


def _covariance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the odd part of the covariance of coalitions, relative to the variance."""
    players = first.shape[1]
    different = ((players - first @ second.T) / 2).astype(np.intp)
    powers = ((1 - RHO) / (1 + RHO)) ** np.arange(players + 1)
    return ((powers - powers[::-1]) / 2)[different]
