"""Softmax attention with a bias on the scores, for short sequences on a CPU."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def biased_attention(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H N C"],
    value: Float[Tensor, "B H N C"],
    bias: Float[Tensor, "B H N N"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H N C"]:
    """Compute softmax(Q K^T / sqrt(C) + bias) V, with the N x N weights in memory.

    For short sequences on a CPU it takes about half of the time of `scaled_dot_product_attention`, whose form
    with gradients for the mask copies and checks the scores several times.

    Args:
        query: Queries Q.
        key: Keys K.
        value: Values V.
        bias: What is added to the scores, finite.
        dropout: Dropout rate of the weights.
    """
    batch, heads, length, channels = query.shape
    flat_query, flat_key, flat_value = (
        part.reshape(batch * heads, length, channels) for part in (query, key, value)
    )
    flat_bias = bias.reshape(batch * heads, length, length)
    scores = torch.baddbmm(flat_bias, flat_query, flat_key.transpose(1, 2), alpha=channels**-0.5)
    weights = functional.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.bmm(weights, flat_value).view(batch, heads, length, channels)
