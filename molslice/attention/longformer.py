"""Longformer attention: a sliding window, and a few global tokens that see and are seen by all tokens."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from molslice.attention.base import Attention, Projection, Traits, check_least
from molslice.ops.packing import pack_tokens, packing_order, unpack_tokens
from molslice.ops.windows import (
    attend_blocks,
    merge_blocks,
    split_blocks,
    window_positions,
    window_reach,
    with_neighbors,
)
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class Longformer(Attention):
    """out_i = softmax_j(Q_i K_j / sqrt(C)) V_j W_O over the j in the window of i and the global j.

    The window of i is |i - j| <= window, with positions counting the real tokens. The first `num_global` real
    tokens are global. Their outputs attend to all tokens with their own projections, which are initialized
    equal to Q, K and V:

        out_i = softmax_j(Qg_i Kg_j / sqrt(C)) Vg_j W_O

    A key that is global and in the window counts once. In the paper the task determines which tokens are
    global; taking the first ones is ours (a graph token or a class token is first). With `pair_bias: logits`,
    S + E is added to the scores that are computed, also the scores of the global tokens (ours). With `mix`,
    softmax(S + E) V replaces V, and softmax(S + E) Vg replaces Vg (ours).

    Args:
        window: Reach to each side in tokens, half of the paper's w: 256 for its 512.
        num_global: Number of global tokens.

    Source: Beltagy et al. 2020, section 3.1: sliding window, global attention, and linear projections for
    global attention. That other tokens attend to the global ones through Q, K and V follows the authors'
    code.
    """

    traits: ClassVar[Traits] = Traits(
        source="Longformer, arXiv 2004.05150",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, window: int = 256, num_global: int = 1) -> None:
        check_least("longformer", 1, window=window)
        if num_global < 1:
            raise MolsliceError(
                f"longformer takes at least one global token, got num_global={num_global}; "
                "for a window only, use attention 'local'"
            )
        super().__init__(spec)
        self.window, self.num_global = window, num_global
        self.query = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.global_query = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.global_key = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.global_value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)
        self._copy_projections()

    def reset_parameters(self) -> None:
        """Initialize the weights, with the global projections equal to the others."""
        super().reset_parameters()
        self._copy_projections()

    def _copy_projections(self) -> None:
        for name in ("query", "key", "value"):
            getattr(self, f"global_{name}").load_state_dict(getattr(self, name).state_dict())

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the rows of the global tokens, packed first, by one product, and the others by windows."""
        order = packing_order(context.token_mask)
        packed = pack_tokens(tokens, order)
        value, global_value = (
            pack_tokens(self.mix_values(f(tokens), context), order) for f in (self.value, self.global_value)
        )
        rows = self._global_rows(packed, global_value, order, context)
        others = self._window_rows(packed, value, order, context)
        mixed = torch.cat([rows, others[:, rows.shape[1] :]], 1)
        return AttentionOutput(self.output(unpack_tokens(mixed, order)))

    def _window_rows(
        self,
        packed: Float[Tensor, "B N D"],
        value: Float[Tensor, "B N E"],
        order: Int[Tensor, "B N"],
        context: TokenContext,
    ) -> Float[Tensor, "B N E"]:
        length = packed.shape[1]
        first, (size, reach) = min(self.num_global, length), window_reach(length, self.window)
        count = context.token_mask.sum(1)[:, None, None, None, None]
        query = split_blocks(self.query(packed), size)

        def seen_by_blocks(x: Tensor) -> Tensor:
            near = with_neighbors(split_blocks(x, size), reach, reach)
            return torch.cat([near, x[:, None, :first].expand(-1, near.shape[1], -1, -1)], 2)

        rows, near = window_positions(query.shape[1], size, reach, reach, packed.device)
        everywhere = torch.arange(first, device=packed.device).expand(1, 1, near.shape[2], 1, first)
        # The window omits the global tokens, which follow it. Padding attends to itself, so that no row
        # is fully masked and becomes NaN.
        in_window = (near >= first) & (near < count) & ((rows - near).abs() <= self.window) | (rows == near)
        is_real = (everywhere < count).expand(*in_window.shape[:-1], first)
        return merge_blocks(
            attend_blocks(
                query,
                seen_by_blocks(self.key(packed)),
                seen_by_blocks(value),
                torch.cat([in_window, is_real], -1),
                self.added_bias_at(context, order, rows, torch.cat([near, everywhere], -1)),
                self.spec.num_heads,
                self.active_dropout,
            ),
            length,
        )

    def _global_rows(
        self,
        packed: Float[Tensor, "B N D"],
        value: Float[Tensor, "B N E"],
        order: Int[Tensor, "B N"],
        context: TokenContext,
    ) -> Float[Tensor, "B F E"]:
        first, length = min(self.num_global, packed.shape[1]), packed.shape[1]
        positions = torch.arange(length, device=packed.device)
        rows, columns = positions[None, None, None, :first, None], positions[None, None, None, None]
        # The first position is real unless the sequence is empty; then its rows need one key.
        seen = (columns < context.token_mask.sum(1)[:, None, None, None, None]) | (columns == 0)
        query, key = self.global_query(packed[:, :first]), self.global_key(packed)
        bias, heads = self.added_bias_at(context, order, rows, columns), self.spec.num_heads
        blocks = query[:, None], key[:, None], value[:, None]
        return attend_blocks(*blocks, seen, bias, heads, self.active_dropout)[:, 0]
