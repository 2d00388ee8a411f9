"""Running sums weighted by exponentials, without overflow or loss of small past terms.

Each sum is relative to the running maximum of its exponents, so every exponential is at most one.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_CHUNK = 64  # tokens per dense block


def running_sum(
    exponent: Float[Tensor, "B H M"], value: Float[Tensor, "B H M C"]
) -> tuple[Float[Tensor, "B H M C"], Float[Tensor, "B H M"]]:
    """Return running sums of exp(exponent) value, each relative to the running maximum of the exponents.

    Sum t is sum_{s <= t} exp(exponent_s - top_t) value_s, with top_t the maximum of the exponents up to t.
    The plain sums are exp(top_t) times the result; the factor cancels in a ratio of two sums. Exponents are
    finite: where no token is real, use a very low one and a value of zero. Time is 64 M C, memory M C.

    Returns:
        The sums, and top.
    """
    length = exponent.shape[-1]
    if not length:
        return value, exponent
    top = exponent.detach().cummax(-1).values  # a shift that cancels, so it needs no gradient
    chunk = min(_CHUNK, length)
    missing = -length % chunk
    # Pad by repeating the last exponent; the values there are zero.
    steps, tops = (
        torch.cat([x, x[..., -1:].expand(*x.shape[:-1], missing)], -1).unflatten(-1, (-1, chunk))
        for x in (exponent, top)
    )
    value = functional.pad(value, (0, 0, 0, missing)).unflatten(2, (-1, chunk))
    seen = torch.ones(chunk, chunk, dtype=torch.bool, device=value.device).tril()
    weights = (steps[..., None, :] - tops[..., None]).masked_fill(~seen, -torch.inf).exp()
    inside = weights @ value
    before = _sum_before(inside[..., -1, :], tops[..., -1])
    before_top = torch.cat([tops[..., :1, 0], tops[..., :-1, -1]], -1)
    carried = (before_top[..., None] - tops).exp()[..., None] * before[..., None, :]
    return (inside + carried).flatten(2, 3)[:, :, :length], top


def running_product(
    query: Float[Tensor, "B H N F"],
    key: Float[Tensor, "B H N F"],
    value: Float[Tensor, "B H N C"],
    exponent: Float[Tensor, "B H N"],
) -> Float[Tensor, "B H N C"]:
    """Return sum_{j <= i} exp(exponent_j - top_i) (query_i key_j) value_j, top_i the maximum up to i.

    The plain sums are exp(top_i) times the result; the factor cancels in a ratio of two sums. Where
    no token is real, keys are zero and exponents very low, but finite.
    """
    length = exponent.shape[-1]
    if not length:
        return value
    top = exponent.detach().cummax(-1).values
    chunk = min(_CHUNK, length)
    missing = -length % chunk
    steps, tops = (
        torch.cat([x, x[..., -1:].expand(*x.shape[:-1], missing)], -1).unflatten(-1, (-1, chunk))
        for x in (exponent, top)
    )
    query, key, value = (
        functional.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, chunk)) for x in (query, key, value)
    )
    seen = torch.ones(chunk, chunk, dtype=torch.bool, device=value.device).tril()
    decay = (steps[..., None, :] - tops[..., None]).masked_fill(~seen, -torch.inf).exp()
    inside = (decay * (query @ key.transpose(-1, -2))) @ value
    chunk_sums = ((steps - tops[..., -1:]).exp()[..., None] * key).transpose(-1, -2) @ value
    before = _sum_before(chunk_sums.flatten(3), tops[..., -1]).unflatten(3, chunk_sums.shape[3:])
    before_top = torch.cat([tops[..., :1, 0], tops[..., :-1, -1]], -1)
    carried = (before_top[..., None] - tops).exp()[..., None] * (query @ before)
    return (inside + carried).flatten(2, 3)[:, :, :length]


def _sum_before(last: Float[Tensor, "B H K C"], top: Float[Tensor, "B H K"]) -> Float[Tensor, "B H K C"]:
    """Return the sums of all chunks before each one, by doubling, relative to the maximum there."""
    step = 1
    while step < last.shape[2]:
        decay = (top[..., :-step] - top[..., step:]).exp()[..., None]
        last = torch.cat([last[:, :, :step], last[:, :, step:] + decay * last[:, :, :-step]], 2)
        step *= 2
    return functional.pad(last[:, :, :-1], (0, 0, 1, 0))
