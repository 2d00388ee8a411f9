"""The likelihood of a normal distribution whose variance is predicted."""

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["BETA", "bound_log_variance", "gaussian_losses"]

LARGEST = 16.0  # of the log variance: standard deviations from 3e-4 to 3e3 in standardized units
BETA = 0.5


def bound_log_variance(values: Float[Tensor, "*B T"]) -> Float[Tensor, "*B T"]:
    """Map any numbers to log variances between -16 and 16; near zero they do not change.

    The variance can therefore neither overflow nor vanish, and the gradient is never cut off.
    """
    return LARGEST * torch.tanh(values / LARGEST)


def gaussian_losses(
    mean: Float[Tensor, "*B T"],
    log_variance: Float[Tensor, "*B T"],
    wanted: Float[Tensor, "*B T"],
    beta: float = BETA,
) -> Float[Tensor, "*B T"]:
    """Compute v^beta (log v + (wanted - mean)^2 / v) / 2 for each value, where v^beta has no gradient.

    With beta 0 this is the negative log likelihood without its constant. Then the gradient of the mean is
    divided by the variance, so that values that are fitted badly at first get a large variance and are
    fitted no further. With beta 1 it is the gradient of half the squared error.

    Args:
        mean: Predicted means.
        log_variance: Natural logarithms v of the predicted variances.
        wanted: Values to predict, finite.
        beta: Exponent of the weight of each value, from 0 to 1.

    Source: Seitzer et al. 2022, "On the Pitfalls of Heteroscedastic Uncertainty Estimation with Probabilistic
    Neural Networks", arXiv 2203.09168, equation 4; they recommend 0.5.
    """
    losses = 0.5 * (log_variance + (wanted - mean) ** 2 * torch.exp(-log_variance))
    return torch.exp(beta * log_variance.detach()) * losses if beta else losses
