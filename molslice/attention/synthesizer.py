"""Synthesizer: attention weights without a product of tokens."""

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.base import Attention, Projection, Traits, check_choice, check_least
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.ops.packing import pack_tokens, packed_mask, packing_order, unpack_tokens
from molslice.types import AttentionOutput, AttentionSpec, TokenContext

Kind = Literal["dense", "random", "factorized"]


class Synthesizer(Attention):
    """out = softmax(R + S + E) V W_O per head, with scores R [n, n] without a product of query and key.

    Row i and column j of R belong to the i-th and the j-th real token, of at most `max_tokens`. The causal
    form masks the scores of future tokens. With `pair_bias: logits`, S + E is added to the scores (ours).
    With `mix`, softmax(S + E) V replaces V (ours).

    Args:
        kind: How R is computed.

            - `dense`: R_i = relu(W_1 x_i + b_1)_h W_2h + b_2h, two layers from the token to the scores of its
              row.
            - `random`: R_h is learned, max_tokens x max_tokens, and equal for all sequences.
            - `factorized`: R_h = A_h B_h^T with learned A and B, max_tokens x `rank`; the factorized random
              form.

        rank: Number of columns of A and B, for `factorized`.

    Source: Tay et al. 2020 (Synthesizer). Each head has its own W_2 and b_2, which gives the d^2 + d l
    parameters of the paper's table; the authors' code shares one W_2 among the heads and has no biases. The
    paper's factorized dense form (k = a b, two tiled products) and its mixtures with dot products are
    omitted. Scores are initialized near zero, that is, with equal weights (ours).
    """

    hidden: Projection
    vectors: ClassVar[tuple[str, ...]] = ("score_bias",)
    traits: ClassVar[Traits] = Traits(
        source="Synthesizer, arXiv 2005.00743",
        cost="quadratic",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        fixed_length=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, kind: Kind = "dense", rank: int = 8) -> None:
        check_choice("synthesizer", "kind", kind, get_args(Kind))
        check_least("synthesizer", 1, rank=rank)
        super().__init__(spec)
        assert spec.max_tokens is not None  # checked above
        self.kind, self.rank = kind, rank
        heads, length = spec.num_heads, spec.max_tokens
        if kind == "dense":
            self.hidden = Projection(spec.dim, spec.inner_dim)
            self.score_weight = self._drawn(
                heads, spec.head_dim, length, std=(spec.head_dim * length) ** -0.5
            )
            self.score_bias = nn.Parameter(torch.zeros(heads, length))
        elif kind == "random":
            self.scores = self._drawn(heads, length, length, std=length**-0.5)
        else:  # the product of the factors starts with the standard deviation of the random form
            self.row_factor = self._drawn(heads, length, rank, std=(rank * length) ** -0.25)
            self.column_factor = self._drawn(heads, length, rank, std=(rank * length) ** -0.25)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    @staticmethod
    def _drawn(*shape: int, std: float) -> nn.Parameter:
        return nn.Parameter(torch.randn(shape) * std)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Pack the sequences, so that the rank of a token is its position."""
        order = packing_order(context.token_mask)
        value = self.split_heads(pack_tokens(self.mix_values(self.value(tokens), context), order))
        seen = packed_mask(context.token_mask)[:, None, None]
        if self.spec.causal:
            length = tokens.shape[1]
            seen = seen & torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        scores = self._scores(pack_tokens(tokens, order))
        bias = self.added_bias(context)
        if bias is not None:
            bias = bias.masked_fill(~pair_mask(context.token_mask), 0.0)
            bias = pack_tokens(bias.transpose(1, 2), order)  # rows, then columns
            scores = scores + pack_tokens(bias.transpose(1, 3), order).permute(0, 2, 3, 1)
        weights = self.dropout(masked_softmax(scores, seen.expand(scores.shape)))
        heads = weights.to(value.dtype) @ value
        return AttentionOutput(self.output(unpack_tokens(self.merge_heads(heads), order)))

    def _scores(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B H N N"]:
        length = tokens.shape[1]
        if self.kind == "dense":
            hidden = self.split_heads(self.hidden(tokens).relu())
            return hidden @ self.score_weight[:, :, :length] + self.score_bias[:, None, :length]
        if self.kind == "random":
            scores = self.scores[:, :length, :length]
        else:
            scores = self.row_factor[:, :length] @ self.column_factor[:, :length].transpose(1, 2)
        return scores.expand(len(tokens), -1, -1, -1)
