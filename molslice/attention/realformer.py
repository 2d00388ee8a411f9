"""Residual attention: the scores of each layer are added to the scores of the layer below."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.masked import masked_softmax
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class Realformer(QueryKeyValueAttention):
    """out = softmax(R + S + E) V W_O per head, with R = Q K^T / sqrt(C) + R of the layer below.

    R, before the softmax, is passed to the next layer as `carry`, [B, H, N, N] ([B, H, N, M] in cross
    attention), zero at padding and, in the causal form, for future tokens. It is in at least float32, because
    it is a sum over layers. The first layer has no carry and is softmax attention.

    S + E is not part of R and is added in each layer (ours), so that each softmax sees it once. The paper's
    code gives the same result if the bias is added to the scores of the first layer only; added to R in every
    layer, it would count once for each layer below. With `pair_bias: mix`, softmax(S + E) V replaces V
    (ours).

    Source: He et al. 2020 (RealFormer), residual attention: softmax(Q K^T / sqrt(d) + Prev) V.
    """

    traits: ClassVar[Traits] = Traits(
        source="RealFormer, arXiv 2012.11747",
        cost="quadratic",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the scores explicitly: they are returned, so a fused kernel cannot be used."""
        memory, memory_mask = self.memory_of(tokens, context)
        query = self.split_heads(self.query(tokens))
        key, value = (self.split_heads(f(memory)) for f in (self.key, self.value))
        value = self.mix_pairs(value, context)
        seen = self._seen(context.token_mask, memory_mask)
        residual = (query @ key.transpose(2, 3) / self.spec.head_dim**0.5).masked_fill(~seen, 0.0)
        residual = residual if residual.dtype == torch.float64 else residual.float()
        if context.carry is not None:
            residual = residual + self._checked(context.carry, residual).masked_fill(~seen, 0.0)
        scores = residual
        if self.spec.pair_bias_mode == "logits" and context.pair_bias is not None:
            scores = scores + context.pair_bias.masked_fill(~seen, 0.0)
        weights = self.dropout(masked_softmax(scores, seen))
        heads = weights.to(value.dtype) @ value
        return AttentionOutput(self.output(self.merge_heads(heads)), carry=residual)

    def _seen(
        self, token_mask: Bool[Tensor, "B N"], memory_mask: Bool[Tensor, "B M"]
    ) -> Bool[Tensor, "B 1 N M"]:
        pairs = token_mask[:, :, None] & memory_mask[:, None]
        return (pairs.tril() if self.spec.causal else pairs)[:, None]

    def _checked(self, carry: Tensor, scores: Tensor) -> Tensor:
        if carry.shape != scores.shape:
            raise MolsliceError(
                f"{self.name} takes a carry of shape {list(scores.shape)} from the layer below, "
                f"got {list(carry.shape)}"
            )
        return carry
