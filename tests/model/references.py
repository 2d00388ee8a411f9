"""Comparison of a module with a slow reference."""

import torch


def assert_equal_in_value_and_gradient(result, expected, inputs):
    """Compare two results, and the gradients of a random sum of their numbers."""
    torch.testing.assert_close(result, expected)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((result * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
    )
