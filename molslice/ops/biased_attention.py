"""Softmax attention with a bias on the scores, in the form that is fastest on its device."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def biased_attention(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H M C"],
    value: Float[Tensor, "B H M C"],
    bias: Float[Tensor, "B H N M"],
    dropout: float = 0.0,
) -> Float[Tensor, "B H N C"]:
    """Compute dropout(softmax(Q K^T / sqrt(C) + bias)) V with a finite bias.

    On a CPU, the N x M weights are in memory, which for molecules is faster than
    `scaled_dot_product_attention`. That serves all other cases.
    """
    if query.device.type == "cpu" and bias.dtype.itemsize >= 4:
        return _in_memory(query, key, value, bias, dropout)
    return functional.scaled_dot_product_attention(query, key, value, bias, dropout)


def _in_memory(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> Tensor:
    channels = query.shape[-1]
    flat_query, flat_key, flat_value = (tensor.flatten(0, 1) for tensor in (query, key, value))
    scores = torch.baddbmm(bias.flatten(0, 1), flat_query, flat_key.transpose(1, 2), alpha=channels**-0.5)
    weights = functional.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.bmm(weights, flat_value).view(query.shape)
