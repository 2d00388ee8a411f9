"""The influence between tokens, computed by differentiating an attention."""

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention import Attention
from molslice.types import TokenContext

__all__ = ["influence_map"]

COPIES = 1 << 24  # largest number of elements in the N x N tensors of the copies of a sequence


@torch.enable_grad()
def influence_map(
    attention: Attention, tokens: Float[Tensor, "B N D"], context: TokenContext
) -> Float[Tensor, "B 1 N N"]:
    """Compute |d out_i / d tokens_j| for each pair of tokens: the Frobenius norm of a block of the Jacobian.

    The result is exact. A sequence is copied once for each output channel, and the gradient of channel c is
    computed in copy c. One backward pass covers one token and as many channels as fit into memory.

    Args:
        attention: The attention.
        tokens: The input of the attention.
        context: The mask and the other inputs of the attention.

    Returns:
        One map for all heads, row i and column j.
    """
    batch, length, dim = tokens.shape
    group = max(1, min(dim, COPIES // (attention.spec.num_heads * length * length)))
    square = tokens.new_zeros(batch, 1, length, length)
    for b in range(batch):
        for channels in torch.arange(dim, device=tokens.device).split(group):
            copies = len(channels)
            own = tokens[b].detach().expand(copies, length, dim).clone().requires_grad_()
            mixed = attention(own, _repeated(context, b, copies)).tokens
            asked = mixed[torch.arange(copies, device=tokens.device), :, channels]  # [copies, N]
            for i in range(length):
                (change,) = torch.autograd.grad(asked[:, i].sum(), own, retain_graph=True)
                square[b, 0, i] += change.square().sum((0, 2))
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
