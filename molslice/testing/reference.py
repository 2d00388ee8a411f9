"""References: slow, obvious float64 forms that share no code with the fast form, which they check."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention import Attention
from molslice.types import AttentionOutput, TokenContext

Reference = Callable[
    [Any, Tensor, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor | None, Tensor | None]
]
"""A formula for one sequence without padding.

It takes the attention, the tokens [n, D], the source of keys and values [m, D] (the tokens themselves without
`spec.cross`), the pair bias [H, n, n] or None, and the carry of the layer below or None. It returns the mixed
tokens [n, D], the penalty or None, and the carry or None. A reference whose carry [B, H, N, M] holds pairs of
tokens has a true attribute `carries_pairs`.
"""


def apply_reference(
    reference: Reference, attention: Attention, tokens: Float[Tensor, "B N D"], context: TokenContext
) -> AttentionOutput:
    """Compute `attention(tokens, context)` by the reference, sequence by sequence, from the real tokens only.

    Intended for float64, evaluation and short sequences. The result is differentiable.

    Args:
        reference: The formula for one sequence.
        attention: The attention, in evaluation mode.
        tokens: Tokens [B, N, D].
        context: The context of `tokens`.

    Returns:
        The output that the attention must equal, zero at padding.
    """
    carries_pairs = getattr(reference, "carries_pairs", False)
    memories, memory_mask = tokens, context.token_mask
    if context.memory is not None and context.memory_mask is not None:
        memories, memory_mask = context.memory, context.memory_mask
    rows: list[Tensor] = []
    penalties: list[Tensor] = []
    carries: list[Tensor] = []
    for b in range(len(tokens)):
        real, seen = (mask[b].nonzero()[:, 0] for mask in (context.token_mask, memory_mask))
        row = torch.zeros_like(tokens[b])
        if len(real) and len(seen):
            bias = None if context.pair_bias is None else context.pair_bias[b][:, real][:, :, real]
            below = None if context.carry is None else context.carry[b]
            if below is not None and carries_pairs:
                below = below[:, real][:, :, seen]
            mixed, penalty, carry = reference(attention, tokens[b, real], memories[b, seen], bias, below)
            row = row.index_copy(0, real, mixed)
            if carry is not None and carries_pairs:
                whole = tokens.new_zeros(len(carry), tokens.shape[1], memories.shape[1])
                carry = whole.index_put((torch.arange(len(carry))[:, None, None], real[:, None], seen), carry)
            penalties += [] if penalty is None else [penalty]
            carries += [] if carry is None else [carry]
        rows.append(row)
    return AttentionOutput(
        torch.stack(rows),
        torch.stack(penalties).mean() if penalties else None,
        torch.stack(carries) if len(carries) == len(rows) else None,
    )
