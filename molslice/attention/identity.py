"""No mixing: a control in which each token is processed by itself."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import Attention, Projection, Traits
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Identity(Attention):
    """out_i = V_i W_O: two linear maps of each token, without mixing.

    With `pair_bias: mix`, the output is softmax(S + E) V W_O: only the pair bias mixes tokens. This is
    Graphormer's attention without queries and keys, and `slice_sort` without its sort. Dropout is applied to
    the output, because there are no weights. A causal form and a memory are refused, because they would have
    no effect.

    Source: ours, as a control in comparisons. The difference to another attention is the gain from mixing.
    """

    traits: ClassVar[Traits] = Traits(
        source="a control: no mixing",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Mix by the pair bias if there is one."""
        value = self.mix_values(self.value(tokens), context)
        return AttentionOutput(self.dropout(self.output(value)))
