"""Register your own attention and compare its number of parameters with softmax."""

import torch

from molslice import ATTENTIONS, build_attention
from molslice.attention.base import Attention, Traits
from molslice.ops.masked import masked_mean
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Average(Attention):
    """out_i = mean over the real tokens of X W, the same for every token i."""

    traits = Traits(source="an example", cost="linear", symmetry="equivariant", pair_bias=("none",))

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.value = torch.nn.Linear(spec.dim, spec.dim)

    def mix(self, tokens, context):
        """Average the values of the real tokens."""
        mean = masked_mean(self.value(tokens), context.token_mask[..., None], 1)
        return AttentionOutput(mean[:, None].expand_as(tokens))


ATTENTIONS.add("average", Average)
tokens = torch.randn(2, 5, 64)
mask = torch.tensor([[True, True, True, False, False], [True, True, True, True, True]])
for name in ("average", "softmax"):
    attention = build_attention(name, AttentionSpec(dim=64, num_heads=8))
    output = attention(tokens, TokenContext(mask)).tokens
    count = sum(parameter.numel() for parameter in attention.parameters())
    print(f"{name}: {count} parameters, padding is zero: {bool((output[0, 3:] == 0).all())}")
