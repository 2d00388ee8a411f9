"""The influence between tokens, computed by differentiating an attention."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from molslice.attention import Attention
from molslice.types import TokenContext

__all__ = ["influence_map"]

COPIES = 1 << 24  # largest number of elements in the N x N tensors of the copies of a sequence


PROBES = 16  # random combinations of the output channels of which sampled rows are estimated


@torch.enable_grad()
def influence_map(
    attention: Attention,
    tokens: Float[Tensor, "B N D"],
    context: TokenContext,
    rows: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B 1 K N"]:
    """Compute |d out_i / d tokens_j| for each pair of tokens: the Frobenius norm of a block of the Jacobian.

    A sequence is copied once for each output channel, and the gradient of channel c is computed in copy c.
    One backward pass covers one token and as many channels as fit into memory. The result is exact for all
    rows. With `rows` it is an estimate by the gradients of sums of the channels with random signs, whose
    number does not depend on the width.

    Args:
        attention: The attention.
        tokens: The input of the attention.
        context: The mask and the other inputs of the attention.
        rows: Indices of the rows to estimate; None for all rows, exactly.

    Returns:
        One map for all heads, row i and column j.

    Source: Hutchinson 1990 (doi 10.1080/03610919008812866), the estimate of a trace.
    """
    batch, length, dim = tokens.shape
    probes = torch.eye(dim, dtype=tokens.dtype, device=tokens.device)
    if rows is not None and dim > PROBES:
        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(2, (PROBES, dim), generator=generator) * 2 - 1
        probes = signs.to(probes) / PROBES**0.5
    wanted = range(length) if rows is None else rows.tolist()
    group = max(1, min(len(probes), COPIES // (attention.spec.num_heads * length * length)))
    square = tokens.new_zeros(batch, 1, len(wanted), length)
    for b in range(batch):
        for weights in probes.split(group):
            copies = len(weights)
            copied = tokens[b].detach().expand(copies, length, dim).clone().requires_grad_()
            mixed = attention(copied, _repeated(context, b, copies)).tokens
            asked = (mixed * weights[:, None]).sum(-1)  # [copies, N]
            for k, i in enumerate(wanted):
                (change,) = torch.autograd.grad(asked[:, i].sum(), copied, retain_graph=True)
                square[b, 0, k] += change.square().sum((0, 2))
    return square.sqrt()


def _repeated(context: TokenContext, b: int, copies: int) -> TokenContext:
    def repeat(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[b : b + 1].detach().expand(copies, *tensor.shape[1:])

    mask = context.token_mask[b : b + 1].expand(copies, -1)
    return TokenContext(
        mask,
        repeat(context.pair_bias),
        repeat(context.pair_weights),
        repeat(context.masked_bias),
        repeat(context.carry),
    )
