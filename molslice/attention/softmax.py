"""Softmax attention: the Transformer's, ViT's and Graphormer's."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Attention
from molslice.ops.masked import pair_mask
from molslice.types import AttentionOutput, AttentionSpec, TokenContext, Traits


class Softmax(Attention):
    """out = softmax(Q K^T / sqrt(C) + S + E) V W_O, per head.

    Source: Vaswani et al. 2017, equation 1; with the pair bias in the scores Ying et al. 2021
    (Graphormer), equations 6 and 7. With `pair_bias: mix`, ours, softmax(S + E) V stands in for V.
    """

    traits: ClassVar[Traits] = Traits(
        source="Attention Is All You Need, arXiv 1706.03762; Graphormer, arXiv 2106.05234",
        cost="quadratic",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.query = nn.Linear(spec.dim, spec.dim)
        self.key = nn.Linear(spec.dim, spec.dim)
        self.value = nn.Linear(spec.dim, spec.dim)
        self.output = nn.Linear(spec.dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Through `scaled_dot_product_attention`, with bias and padding as its mask."""
        query, key, value = (self.split_heads(f(tokens)) for f in (self.query, self.key, self.value))
        if self.spec.pair_bias == "mix":
            value = self.mix_pairs(value, context)
        heads = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self._mask(context, query.dtype),
            dropout_p=self.spec.dropout if self.training else 0.0,
        )
        return AttentionOutput(self.output(self.merge_heads(heads)))

    def _mask(self, context: TokenContext, dtype: torch.dtype) -> Tensor:
        mask = context.token_mask
        if self.spec.pair_bias == "logits" and context.pair_bias is not None:
            # Half of the lowest number: kernels multiply scores by log2(e), which must not reach infinity.
            floor = torch.finfo(dtype).min / 2
            return context.pair_bias.to(dtype).masked_fill(~pair_mask(mask, self.spec.causal), floor)
        if self.spec.causal:
            # Padding may see itself, so that no row is without an entry and none becomes NaN.
            return pair_mask(mask, causal=True) | torch.eye(
                mask.shape[1], dtype=torch.bool, device=mask.device
            )
        # A sequence without real tokens sees its padding: finite, and zeroed in the end.
        return (mask | ~mask.any(-1, keepdim=True))[:, None, None]

    def reference_sequence(
        self, tokens: Float[Tensor, "n D"], pair_bias: Float[Tensor, "H n n"] | None, carry: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """One token and one head at a time."""
        size = self.spec.head_dim
        queries, keys, values = self.query(tokens), self.key(tokens), self.value(tokens)
        heads = []
        for h in range(self.spec.num_heads):
            part = slice(h * size, (h + 1) * size)
            query, key, value = queries[:, part], keys[:, part], values[:, part]
            rows, mixed = [], []
            for i in range(len(tokens)):
                last = i + 1 if self.spec.causal else len(tokens)
                if self.spec.pair_bias == "mix" and pair_bias is not None:
                    mixed.append(
                        pair_bias[h, i, :last].exp() @ value[:last] / pair_bias[h, i, :last].exp().sum()
                    )
                else:
                    mixed.append(value[i])
            value = torch.stack(mixed)
            for i in range(len(tokens)):
                last = i + 1 if self.spec.causal else len(tokens)
                scores = key[:last] @ query[i] / size**0.5
                if self.spec.pair_bias == "logits" and pair_bias is not None:
                    scores = scores + pair_bias[h, i, :last]
                rows.append(scores.exp() @ value[:last] / scores.exp().sum())
            heads.append(torch.stack(rows))
        return self.output(torch.cat(heads, -1)), None, None
