"""FLASH-Quad: one head of squared ReLU attention inside a gated linear unit."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits, check_least
from molslice.ops.features import precise
from molslice.ops.masked import pair_mask
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class FlashQuad(Attention):
    """out = (U * A V) W_O with A = relu(Q K^T / sqrt(s) + S + E)^2 / n, the gated attention unit.

    U = silu(X W_U) and V = silu(X W_V) have e = `expansion` D channels, Z = silu(X W_Z) has s = `key_dim`. Q
    and K are Z, scaled and shifted per channel. n is the number of real tokens. In the causal form it is the
    number t of tokens up to the query itself (ours), so that no output depends on the length of the future.
    There is one matrix A for all channels. A pair bias, one matrix per head, makes it one per head (ours):
    head h mixes the channels h e / H to (h + 1) e / H of V. With `pair_bias: mix`, softmax(S + E) V replaces
    V (ours).

    Args:
        expansion: Number of channels e of U and V, divided by the width D.
        key_dim: Number of channels s of Q and K. There is one Q for all heads, so `head_dim` is refused.

    Source: Hua et al. 2022 (FLASH), the gated attention unit; e = 2 D and s = 128 are the paper's. The paper
    writes relu^2(Q K^T + b), and its reference code divides Q K^T by n before it squares, so that the sum
    over n tokens shrinks as 1 / n. Ours divides the square by n and the product by sqrt(s), so that it does
    not shrink. The scales of Q and K are initialized near 1 (ours); near 0, as in public code, squared scores
    and their gradients vanish. The paper's relative position bias b and rotary positions are omitted.
    """

    vectors: ClassVar[tuple[str, ...]] = ("scale", "shift")
    traits: ClassVar[Traits] = Traits(
        source="FLASH, arXiv 2202.10447",
        cost="quadratic",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
    )

    def __init__(self, spec: AttentionSpec, *, expansion: int = 2, key_dim: int = 128) -> None:
        check_least("flash_quad", 1, expansion=expansion, key_dim=key_dim)
        super().__init__(spec)
        self.expansion, self.key_dim = expansion, key_dim
        self.gate = Projection(spec.dim, expansion * spec.dim)
        self.value = Projection(spec.dim, expansion * spec.dim, bias=spec.qkv_bias)
        self.shared = Projection(spec.dim, key_dim, bias=spec.qkv_bias)
        self.scale = nn.Parameter(1 + 0.02 * torch.randn(2, key_dim))  # of Q and of K
        self.shift = nn.Parameter(torch.zeros(2, key_dim))
        self.output = Projection(expansion * spec.dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute scores and their squares in float32: half precision overflows at a score of 256."""
        mask = context.token_mask
        gate, value, shared = (functional.silu(f(tokens)) for f in (self.gate, self.value, self.shared))
        value = self.mix_values(value, context)
        query, key = (shared * self.scale[i] + self.shift[i] for i in range(2))
        scores = precise(query @ key.transpose(1, 2) / self.key_dim**0.5)[:, None]
        seen, bias = pair_mask(mask, self.spec.causal), self.added_bias(context)
        if bias is not None:
            scores = scores + bias.masked_fill(~seen, 0.0)
        count = mask.cumsum(1)[:, None, :, None] if self.spec.causal else mask.sum(1)[:, None, None, None]
        weights = scores.relu().square().masked_fill(~seen, 0.0) / count.clamp(min=1)
        weights = self.dropout(weights).to(value.dtype)
        if bias is None:
            mixed = weights[:, 0] @ value
        else:
            mixed = self.merge_heads(weights @ self.split_heads(value))
        return AttentionOutput(self.output(gate * mixed))
