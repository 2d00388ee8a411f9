"""Shapley values of a game, exactly or by sampling permutations in antithetic pairs.

The players are atoms, and the value of a coalition is the score of the molecule in which all other atoms are
masked. The Shapley value of a player is the mean, over all orders of the players, of the change of the value
when the player joins those before it. For each order the changes add up to the value of all minus that of
nobody, so the estimates add up too.

Source: Shapley 1953; Castro, Gomez and Tejada 2009, "Polynomial calculation of the Shapley value based on
sampling"; Mitchell et al. 2022, "Sampling Permutations for Shapley Value Estimation" (an order and its
reverse).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["ShapleyValues", "exact_shapley", "sampled_shapley", "shapley_values"]

EXACT_PLAYERS = 11  # up to 2,048 coalitions, about as many as sampling needs
TOLERANCE = 0.01  # of the largest standard error, in standard deviations of the target
PAIRS, MAX_PAIRS = 8, 128  # pairs of permutations of a round, and of all rounds
MAX_COALITIONS = 8_192  # about, so that large molecules have fewer pairs

Game = Callable[[np.ndarray], np.ndarray]  # bool [K, m] to float64 [K]


@dataclass(frozen=True, slots=True)
class ShapleyValues:
    """The Shapley values of m players.

    Attributes:
        values: float64 [m], in the unit of the game.
        standard_errors: Standard error of each value, float64 [m]; zero for exact values.
        coalitions: Number of coalitions that were evaluated.
        pairs: Number of pairs of permutations; 0 for exact values.
    """

    values: np.ndarray
    standard_errors: np.ndarray
    coalitions: int
    pairs: int


def shapley_values(game: Game, players: int, limit: float, seed: int = 0) -> ShapleyValues:
    """Compute Shapley values, exactly for at most `EXACT_PLAYERS` players.

    Otherwise sampling stops at `MAX_PAIRS` pairs or about `MAX_COALITIONS` coalitions.

    Args:
        game: The value of each coalition.
        players: Number of players m.
        limit: Largest standard error at which sampling stops, in the unit of the game.
        seed: Seed of the permutations.
    """
    if players <= EXACT_PLAYERS:
        return exact_shapley(game, players)
    pairs = max(PAIRS, min(MAX_PAIRS, MAX_COALITIONS // (2 * players)))
    return sampled_shapley(game, players, limit, seed, pairs)


def exact_shapley(game: Game, players: int) -> ShapleyValues:
    """Compute Shapley values from the values of all 2^m coalitions; see `shapley_values`."""
    numbers = np.arange(1 << players)
    members = (numbers[:, None] >> np.arange(players)) & 1 == 1
    values = game(members)
    sizes = members.sum(1)
    found = np.zeros(players)
    for player in range(players):
        without = numbers[~members[:, player]]
        weights = np.array([_weight(int(size), players) for size in sizes[without]])
        found[player] = weights @ (values[without | (1 << player)] - values[without])
    return ShapleyValues(found, np.zeros(players), len(numbers), 0)


def _weight(size: int, players: int) -> float:
    """Return the share of the orders in which a player joins a given coalition."""
    return 1.0 / (players * math.comb(players - 1, size))


def sampled_shapley(
    game: Game, players: int, limit: float, seed: int = 0, max_pairs: int = MAX_PAIRS
) -> ShapleyValues:
    """Estimate Shapley values from random permutations and their reverses; see `shapley_values`.

    The mean over a permutation and its reverse is one sample. The standard error of a value is the standard
    deviation of its samples, divided by the root of their number.
    """
    generator = np.random.default_rng(seed)
    seen = _Remembered(game)
    samples: list[np.ndarray] = []
    errors = np.full(players, np.inf)
    while len(samples) < max_pairs:
        orders = [generator.permutation(players) for _ in range(min(PAIRS, max_pairs - len(samples)))]
        both = np.stack([order for one in orders for order in (one, one[::-1])])
        changes = _changes(seen, both)
        samples += list((changes[::2] + changes[1::2]) / 2)
        stacked = np.stack(samples)
        errors = stacked.std(0, ddof=1) / math.sqrt(len(stacked))
        if errors.max() <= limit:
            break
    return ShapleyValues(np.mean(samples, axis=0), errors, seen.count, len(samples))


def _changes(game: Game, orders: np.ndarray) -> np.ndarray:
    """Return the change of the value when each player joins, float64 [K, m], for K orders [K, m]."""
    count, players = orders.shape
    ranks = np.argsort(orders, axis=1)
    coalitions = ranks[:, None, :] < np.arange(players + 1)[None, :, None]  # [K, m + 1, m]
    values = game(coalitions.reshape(-1, players)).reshape(count, players + 1)
    return np.take_along_axis(np.diff(values, axis=1), ranks, axis=1)


class _Remembered:
    """A game that evaluates each coalition once."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.known: dict[bytes, float] = {}

    @property
    def count(self) -> int:
        """Number of coalitions that were evaluated."""
        return len(self.known)

    def __call__(self, members: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in np.packbits(members, axis=1)]
        new = {key: place for place, key in enumerate(keys) if key not in self.known}
        if new:
            self.known.update(zip(new, self.game(members[list(new.values())]).tolist(), strict=True))
        return np.array([self.known[key] for key in keys])
