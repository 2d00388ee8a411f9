"""Maps between tokens by differentiating an output by the values that it is computed from."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.ops.masked import pair_mask


@torch.enable_grad()
def channel_maps(
    mixed: Float[Tensor, "B N D"],
    values: Float[Tensor, "B N D"],
    token_mask: Bool[Tensor, "B N"],
    num_heads: int,
) -> Float[Tensor, "B H C N N"] | None:
    """Return the map M of each channel with `mixed` = M `values`, zero in the rows and columns of padding.

    Args:
        mixed: Output computed from `values` with gradients enabled [B, N, D].
        values: A leaf of the graph of `mixed` [B, N, D].
        token_mask: True at real tokens [B, N].
        num_heads: Number of heads H, which are consecutive groups of channels.

    Returns:
        The derivative of `mixed` by `values` for each channel [B, H, C, N, N], or None if applying it to
        `values` does not give `mixed`, that is, if `mixed` is not linear in `values` channel by channel.
    """
    rows = [
        torch.autograd.grad(mixed[:, i].sum(), values, retain_graph=True, allow_unused=True)[0]
        for i in range(mixed.shape[1])
    ]
    if any(row is None for row in rows):
        return None
    maps = torch.stack(rows, 1).masked_fill(~pair_mask(token_mask)[:, 0, :, :, None], 0.0)
    again = torch.einsum("bijd,bjd->bid", maps, values.detach())
    expected = mixed.detach().masked_fill(~token_mask[..., None], 0.0)
    tolerance = 1e3 * torch.finfo(expected.dtype).eps
    if not torch.allclose(again, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max())):
        return None
    return maps.unflatten(-1, (num_heads, -1)).permute(0, 3, 4, 1, 2)
