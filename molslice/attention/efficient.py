"""Efficient attention: softmax over the features of queries, and over the tokens for each feature of keys."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.base import QueryKeyValueAttention, Traits
from molslice.ops.features import precise, two_averages
from molslice.ops.masked import masked_softmax
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Efficient(QueryKeyValueAttention):
    """out = softmax_over_features(Q) (softmax_over_tokens(K)^T V) W_O, per head.

    Both softmaxes have no scale, as in the authors' code. The softmax over tokens runs over the real tokens,
    for each channel of K separately. The rows of the product of both sum to one. The bias of K cancels. With
    `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Source: Shen et al. 2018, section 3, with softmax as the normalization.
    """

    traits: ClassVar[Traits] = Traits(
        source="Efficient Attention, arXiv 1812.01243",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.dropout = nn.Dropout(spec.dropout)  # applied to the output: the weights are never computed

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Mix through one C x C matrix per head."""
        memory, memory_mask = self.memory_of(tokens, context)
        by_feature = precise(self.split_heads(self.query(tokens))).softmax(-1)
        key = precise(self.split_heads(self.key(memory)))
        by_token = masked_softmax(key, memory_mask[:, None, :, None], 2)
        value = self.mix_pairs(self.split_heads(self.value(memory)), context)
        heads = two_averages(by_feature, by_token, value)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))
