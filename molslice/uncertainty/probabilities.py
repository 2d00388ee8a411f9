"""Calibration of the probability of class 1.

Source: Platt 1999, "Probabilistic Outputs for Support Vector Machines".
"""

import numpy as np

SMALLEST = 1e-7
STEPS = 100
CLOSE = 1e-12
SLOPES = (1e-3, 1e3)
RIDGE = 1e-9  # keeps Newton's step finite for separable rows


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) in float64; probabilities are kept 1e-7 away from 0 and 1."""
    bounded = np.clip(np.asarray(probabilities, np.float64), SMALLEST, 1.0 - SMALLEST)
    return np.log(bounded) - np.log1p(-bounded)


def calibrate(probabilities: np.ndarray, slope: float, intercept: float) -> np.ndarray:
    """Apply slope and intercept to the log-odds, and return probabilities, float64."""
    odds = np.clip(slope * log_odds(probabilities) + intercept, -700.0, 700.0)
    return 1.0 / (1.0 + np.exp(-odds))


def fit_platt(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Fit slope and intercept of the log-odds to held-out rows, with Platt's smoothed labels.

    The slope is positive. The probabilities of class 1 and the classes, 0 or 1, are [n] each.
    """
    positive = float(np.sum(labels))
    high, low = (positive + 1.0) / (positive + 2.0), 1.0 / (len(labels) - positive + 2.0)
    wanted = np.where(np.asarray(labels) > 0.5, high, low)
    slope, intercept = _newton(log_odds(probabilities), wanted)
    if slope < SLOPES[0]:  # held-out rows in the wrong order: only the share of the classes is known
        share = float(wanted.mean())
        return SLOPES[0], float(np.log(share / (1.0 - share)))
    return slope, intercept


def _newton(odds: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Minimize the cross entropy, which is convex, by Newton's method with halved steps."""
    columns = np.stack([odds, np.ones_like(odds)], axis=1)
    line = np.array([1.0, 0.0])

    def loss(at: np.ndarray) -> float:
        scores = columns @ at
        return float(np.mean(np.logaddexp(0.0, scores) - wanted * scores))

    best = loss(line)
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(columns @ line, -700.0, 700.0)))
        gradient = columns.T @ (chance - wanted) / len(odds)
        curvature = (columns * (chance * (1.0 - chance))[:, None]).T @ columns / len(odds)
        step = np.linalg.solve(curvature + RIDGE * np.eye(2), gradient)
        while (value := loss(line - step)) > best and np.abs(step).max() > CLOSE:
            step /= 2.0
        if value > best or np.abs(step).max() <= CLOSE or abs(line[0] - step[0]) > SLOPES[1]:
            break
        line, best = line - step, value
    return float(line[0]), float(line[1])
