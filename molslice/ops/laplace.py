"""Mixing by the Laplace kernel of keys on a line: exact, in N log N, by sorting.

On sorted keys exp(-|q - k|) splits into a product on each side of q, so two running sums suffice for all
queries.
"""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from molslice.ops.running import running_sum
from molslice.ops.sorting import sort_columns


def laplace_mix(
    query: Float[Tensor, "B H N"],
    key: Float[Tensor, "B H M"],
    potential: Float[Tensor, "B H M"],
    value: Float[Tensor, "B H M C"],
    key_mask: Bool[Tensor, "B M"],
) -> Float[Tensor, "B H N C"]:
    """Return the weighted mean of values by the Laplace kernel of queries and keys.

    The result is sum_j w_ij v_j / sum_j w_ij with w_ij = exp(potential_j - |query_i - key_j|), over the real
    j, zero without one. Time is N log N for the sort plus 64 N C, memory N C. It is computed in the dtype of
    the arguments.
    """
    # Keys are gathered below rather than taken from the sort, which has no forward-mode derivative.
    order = sort_columns(key.detach(), key_mask, to_front=True)[1].long()
    is_real = key_mask[:, None].expand(key.shape).gather(-1, order)
    key, potential = (x.gather(-1, order) for x in (key, potential))
    value = functional.pad(value, (0, 1), value=1.0)  # adds the sum of the weights as a channel
    value = value.gather(2, order[..., None].expand(value.shape)).masked_fill(~is_real[..., None], 0.0)
    floor = torch.finfo(key.dtype).min / 8
    key = key.masked_fill(~is_real, -floor)  # padding is after all queries
    below, below_top = running_sum((potential + key).masked_fill(~is_real, floor), value)
    above, above_top = (
        x.flip(2) for x in running_sum((potential - key).masked_fill(~is_real, floor).flip(-1), value.flip(2))
    )
    # Keys up to the query are at 0 to position - 1; the leading state is the empty sum.
    position = torch.searchsorted(key.detach().contiguous(), query.detach().contiguous(), right=True)
    below, below_top = _take(below, below_top, position, (1, 0), floor)
    above, above_top = _take(above, above_top, position, (0, 1), floor)
    low, high = below_top - query, above_top + query
    top = torch.maximum(low, high).detach()
    total = (low - top).exp()[..., None] * below + (high - top).exp()[..., None] * above
    return total[..., :-1] / total[..., -1:].clamp(min=torch.finfo(total.dtype).tiny)


def _take(
    state: Float[Tensor, "B H M C"],
    top: Float[Tensor, "B H M"],
    position: Integer[Tensor, "B H N"],
    no_key: tuple[int, int],
    floor: float,
) -> tuple[Float[Tensor, "B H N C"], Float[Tensor, "B H N"]]:
    state = functional.pad(state, (0, 0, *no_key))
    top = functional.pad(top, no_key, value=floor)
    return state.gather(2, position[..., None].expand(*position.shape, state.shape[-1])), top.gather(
        -1, position
    )
