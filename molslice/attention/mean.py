"""Uniform mixing: a control in which each token attends to all tokens equally."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import Attention, Projection, Traits
from molslice.ops.features import precise
from molslice.ops.masked import masked_mean
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Mean(Attention):
    """out_i = (1/n) sum_j V_j W_O, the same for every token; n the real tokens, or the tokens of the memory.

    The causal form is the running mean: out_t = (1/t) sum_{j<=t} V_j W_O, with t counted from 1. With
    `pair_bias: mix`, softmax(S + E) V replaces V. Dropout is applied to the output, because there are no
    weights.

    Source: ours, as a control in comparisons. It equals softmax attention with equal scores, which is the
    limit of over-smoothing. The difference to another attention is the gain from weighting tokens.
    """

    traits: ClassVar[Traits] = Traits(
        source="a control: uniform mixing",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute one mean per sequence and project it once; in the causal form, a running sum."""
        memory, mask = self.memory_of(tokens, context)
        # Sums of thousands of terms need float32, also if the model computes in half precision.
        value = precise(self.mix_values(self.value(memory), context))
        if self.spec.causal:
            total = value.masked_fill(~mask[..., None], 0.0).cumsum(1)
            mean = total / mask.cumsum(1).clamp(min=1)[..., None]
        else:
            mean = masked_mean(value, mask[..., None], 1)[:, None]
        return AttentionOutput(self.dropout(self.output(mean.to(tokens.dtype)).expand_as(tokens)))
