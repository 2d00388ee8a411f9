"""Local attention: each token attends to a window around it."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits, check_least
from molslice.ops.packing import pack_tokens, packing_order, unpack_tokens
from molslice.ops.windows import (
    attend_blocks,
    merge_blocks,
    split_blocks,
    window_positions,
    window_reach,
    with_neighbors,
)
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Local(QueryKeyValueAttention):
    """out_i = sum_j softmax_j(Q_i K_j / sqrt(C)) V_j W_O over the j with |i - j| <= window, per head.

    Positions count the real tokens. In the causal form i attends to i - window <= j <= i. Scores are computed
    between neighboring blocks of `window` tokens. With `pair_bias: logits`, S + E is added to the scores
    within the window, and entries outside of it are unused (ours). With `mix`, softmax(S + E) V replaces V
    before the window is applied (ours).

    Args:
        window: Reach to each side in tokens; its default is ours.

    Source: Luong et al. 2015, section 3.2: the window [p - D, p + D] around a position with D = 10; here p is
    the token itself. As self-attention it is the sliding window of Beltagy et al. 2020 (Longformer), section
    3.1. The "local attention" of Long Range Arena (arXiv 2011.04006) is different: its blocks do not overlap,
    and each attends to itself only.
    """

    traits: ClassVar[Traits] = Traits(
        source="Luong et al., arXiv 1508.04025; Longformer, arXiv 2004.05150",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, window: int = 32) -> None:
        check_least("local", 1, window=window)
        super().__init__(spec)
        self.window = window

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Process blocks of `window` queries, each with the keys of its own and both neighboring blocks."""
        mask = context.token_mask
        size, before = window_reach(tokens.shape[1], self.window)
        after = 0 if self.spec.causal else before
        order = packing_order(mask)
        packed = pack_tokens(tokens, order)
        value = self.mix_values(self.value(tokens), context)
        query = split_blocks(self.query(packed), size)
        key, value = (
            with_neighbors(split_blocks(x, size), before, after)
            for x in (self.key(packed), pack_tokens(value, order))
        )
        rows, columns = window_positions(query.shape[1], size, before, after, mask.device)
        count = mask.sum(1)
        seen = (
            (columns >= 0)
            & (columns < count[:, None, None, None, None])
            & ((rows - columns).abs() <= self.window)
        )
        if self.spec.causal:
            seen = seen & (columns <= rows)
        bias = self.added_bias_at(context, order, rows, columns)
        # Padding attends to itself, so that no row is fully masked and becomes NaN.
        seen = seen | (rows == columns)
        mixed = attend_blocks(query, key, value, seen, bias, self.spec.num_heads, self.active_dropout)
        mixed = unpack_tokens(merge_blocks(mixed, tokens.shape[1]), order)
        return AttentionOutput(self.output(mixed))
