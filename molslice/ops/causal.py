"""Products of queries with past keys and values, in linear memory."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_CHUNK = 64  # tokens per dense block


def causal_product(
    query: Float[Tensor, "B H N F"],
    key: Float[Tensor, "B H N F"],
    value: Float[Tensor, "B H N C"],
    log_decay: Float[Tensor, "B H N 1"] | None = None,
) -> Float[Tensor, "B H N C"]:
    """Return the sum over j <= i of (query_i key_j) value_j, where each token can decay the earlier terms.

    It is computed in chunks, because a plain running sum needs N C^2 memory.

    Args:
        query: Features of the queries, whose dtype the sums have.
        key: Features of the keys.
        value: Values.
        log_decay: Logarithm, at most zero, of the factor of all earlier terms at each token: the term of j
            has the factors of j + 1 to i. None for a factor of 1.
    """
    length = query.shape[2]
    chunk = min(_CHUNK, length)
    missing = -length % chunk

    def chunks_of(x: Tensor) -> Tensor:
        return functional.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, chunk))

    chunks = chunks_of(query), chunks_of(key), chunks_of(value.to(query.dtype))
    if log_decay is None:
        sums = _plain_product(*chunks)
    else:
        sums = _decayed_product(*chunks, chunks_of(log_decay))
    return sums.flatten(2, 3)[:, :, :length]


def _plain_product(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute the sums of chunks [B, H, chunks, tokens, ...]."""
    inside = (query @ key.transpose(-1, -2)).tril() @ value
    chunks = key.transpose(-1, -2) @ value
    # Shift the sums. Subtracting the chunk itself would round by future values.
    before = functional.pad(chunks.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return inside + query @ before


def _decayed_product(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Compute the sums of chunks [B, H, chunks, tokens, ...] with decay."""
    total = log_decay.cumsum(3)  # from the start of the chunk
    between = (total - total.transpose(-1, -2)).clamp(max=0.0).exp()
    inside = (query @ key.transpose(-1, -2) * between).tril() @ value
    last = total[:, :, :, -1:]
    chunks = (key * (last - total).exp()).transpose(-1, -2) @ value
    past, before = torch.zeros_like(chunks[:, :, 0]), []
    for index, decay in enumerate(last.exp().unbind(2)):
        before.append(past)
        past = past * decay + chunks[:, :, index]
    return inside + (query * total.exp()) @ torch.stack(before, 2)
