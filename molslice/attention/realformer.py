"""Residual attention: the scores of each layer are added to the scores of the layer below."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.features import precise
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.types import AttentionOutput, TokenContext


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

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the scores explicitly: they are returned, so a fused kernel cannot be used."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        seen = pair_mask(context.token_mask, self.spec.causal, memory_mask)
        residual = precise(query @ key.transpose(2, 3) / self.spec.head_dim**0.5)
        residual = self.add_carry(residual, context).masked_fill(~seen, 0.0)
        scores, bias = residual, self.added_bias(context)
        if bias is not None:
            scores = scores + bias.masked_fill(~seen, 0.0)
        weights = self.dropout(masked_softmax(scores, seen))
        heads = weights.to(value.dtype) @ value
        return AttentionOutput(self.output(self.merge_heads(heads)), carry=residual)
