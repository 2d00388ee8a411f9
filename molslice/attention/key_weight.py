"""Key weight: softmax attention without queries, with 2 D^2 + D H parameters."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits
from molslice.ops.features import precise
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.ops.running import running_sum
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class KeyWeight(Attention):
    """out_i = sum_j softmax_j(b_j + S_ij + E_ij) V_j W_O, per head, with one learned number b_j = x_j w_b.

    The weight of a token depends on the token by b_j and on the position of the pair by the pair bias. There
    is no query, and the key is one number per head. Without a pair bias all tokens get the same weighted
    mean, in linear time. The causal form is the weighted mean over j <= i. With `pair_bias: logits`, S + E is
    added to the exponents as above. With `mix`, softmax(S + E) V replaces V.

    Source: AFT-full (Zhai et al. 2021, arXiv 2105.14103, equation 2) with S + E as its position biases, one
    key per head instead of one per channel, and without its gate by the query.
    """

    traits: ClassVar[Traits] = Traits(
        source="after An Attention Free Transformer, arXiv 2105.14103",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.weight = Projection(spec.dim, spec.num_heads, bias=False)  # softmax cancels a bias
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute exponents in at least float32. Dropout is on the weights, or on the running mean."""
        memory, mask = self.memory_of(tokens, context)
        value = self.mix_pairs(self.split_heads(self.value(memory)), context)
        logit, bias = precise(self.weight(memory)).transpose(1, 2), self.added_bias(context)
        if bias is not None:
            seen = pair_mask(mask, self.spec.causal)
            weights = self.dropout(masked_softmax(logit[:, :, None] + bias, seen))
            heads = weights.to(value.dtype) @ value
        elif self.spec.causal:
            limits = torch.finfo(logit.dtype)
            # A column of ones next to the values sums the weights.
            extended = functional.pad(value.to(logit.dtype), (0, 1), value=1.0)
            extended = extended.masked_fill(~mask[:, None, :, None], 0.0)
            total, _ = running_sum(logit.masked_fill(~mask[:, None], limits.min / 8), extended)
            heads = self.dropout(total[..., :-1] / total[..., -1:].clamp(min=limits.tiny))
        else:
            weights = self.dropout(masked_softmax(logit, mask[:, None]))
            heads = weights[:, :, None].to(value.dtype) @ value
            heads = heads.expand(-1, -1, tokens.shape[1], -1)
        return AttentionOutput(self.output(self.merge_heads(heads).to(tokens.dtype)))
