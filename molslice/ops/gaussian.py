"""The likelihood of a normal distribution whose variance is predicted."""

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST = 16.0  # of the log variance: standard deviations from 3e-4 to 3e3 in standardized units


def bound_log_variance(values: Float[Tensor, "*B T"]) -> Float[Tensor, "*B T"]:
    """Map any numbers to log variances between -16 and 16; near zero they do not change.

    The variance can therefore neither overflow nor vanish, and the gradient is never cut off.
    """
    return LARGEST * torch.tanh(values / LARGEST)


def gaussian_losses(
    mean: Float[Tensor, "*B T"], log_variance: Float[Tensor, "*B T"], wanted: Float[Tensor, "*B T"]
) -> Float[Tensor, "*B T"]:
    """Compute (log v + (wanted - mean)^2 / v) / 2, the negative log likelihood but for a constant.

    Source: Nix and Weigend 1994, "Estimating the mean and variance of the target probability distribution".
    """
    return 0.5 * (log_variance + (wanted - mean) ** 2 * torch.exp(-log_variance))
