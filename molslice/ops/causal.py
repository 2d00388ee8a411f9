"""Products of queries with past keys and values, in linear memory."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_CHUNK = 64  # tokens per dense block


def causal_product(
    query: Float[Tensor, "B H N F"], key: Float[Tensor, "B H N F"], value: Float[Tensor, "B H N C"]
) -> Float[Tensor, "B H N C"]:
    """Return the sum over j <= i of (query_i key_j) value_j.

    It is computed in chunks, because a plain running sum needs N C^2 memory.

    Args:
        query: Features of the queries [B, H, N, F].
        key: Features of the keys [B, H, N, F].
        value: Values [B, H, N, C].

    Returns:
        The sums [B, H, N, C], in the dtype of `query`.
    """
    length = query.shape[2]
    chunk = min(_CHUNK, length)
    missing = -length % chunk
    query, key, value = (
        functional.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, chunk))
        for x in (query, key, value.to(query.dtype))
    )
    inside = (query @ key.transpose(-1, -2)).tril() @ value
    chunks = key.transpose(-1, -2) @ value
    # Shift the sums. Subtracting the chunk itself would round by future values.
    before = functional.pad(chunks.cumsum(2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return (inside + query @ before).flatten(2, 3)[:, :, :length]
