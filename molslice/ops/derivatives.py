"""Maps between tokens by differentiating an output by the values that it is computed from."""

import torch
from jaxtyping import Bool, Float, Int
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

    `values` is a leaf of the graph of `mixed`. Heads are consecutive groups of channels.

    Returns:
        The derivative of `mixed` by `values` for each channel, or None if applying it to `values` does not
        give `mixed`, that is, if `mixed` is not linear in `values` channel by channel.
    """
    rows = [
        torch.autograd.grad(mixed[:, i].sum(), values, retain_graph=True, allow_unused=True)[0]
        for i in range(mixed.shape[1])
    ]
    if any(row is None for row in rows):
        return None
    maps = torch.stack(rows, 1).masked_fill(~pair_mask(token_mask)[:, 0, :, :, None], 0.0)
    again = torch.einsum("bijd,bjd->bid", maps, values.detach())
    if not _are_equal(again, mixed.detach().masked_fill(~token_mask[..., None], 0.0)):
        return None
    return maps.unflatten(-1, (num_heads, -1)).permute(0, 3, 4, 1, 2)


@torch.enable_grad()
def head_rows(
    mixed: Float[Tensor, "B N D"],
    values: Float[Tensor, "B N D"],
    token_mask: Bool[Tensor, "B N"],
    num_heads: int,
    rows: Int[Tensor, " K"],
) -> Float[Tensor, "B H K N"] | None:
    """Return some rows of the mean over a head of `channel_maps`, with one backward pass for each row.

    Memory grows with K N and not with N^2, so it suits long sequences.

    Returns:
        The rows, or None if applying them to `values` does not give the rows of `mixed`.
    """
    means, applied = [], []
    for i in rows.tolist():
        (row,) = torch.autograd.grad(mixed[:, i].sum(), values, retain_graph=True, allow_unused=True)
        if row is None:
            return None
        row = row.masked_fill(~(token_mask & token_mask[:, i, None])[..., None], 0.0)
        applied.append((row * values.detach()).sum(1))
        means.append(row.unflatten(-1, (num_heads, -1)).mean(-1).transpose(1, 2))
    expected = mixed.detach()[:, rows].masked_fill(~token_mask[:, rows, None], 0.0)
    return torch.stack(means, 2) if _are_equal(torch.stack(applied, 1), expected) else None


def _are_equal(again: Tensor, expected: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    tolerance = 1e3 * torch.finfo(expected.dtype).eps
    return torch.allclose(again, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))
