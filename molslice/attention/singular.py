"""Singular attention: the attention matrix as a learned decomposition, in linear time."""

import math
from numbers import Real
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import Attention, ExactMap, Projection, Traits, check_least
from molslice.ops.features import precise
from molslice.ops.folded_attention import FoldingMaps, folded_attention, has_kernels
from molslice.ops.masked import masked_mean, masked_softmax, pair_mask, working_dtype, zero_padding
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class Singular(Attention):
    """out = alpha softmax((alphahat Q)(alphahat K)^T / sqrt(C) + carry) (alphahat V) W_O, softmax per head.

    One map W_a: D -> r is shared by all heads. alphahat = softmax over the real tokens of (X W_a)^T reduces n
    tokens to r pseudo-tokens, and alpha = softmax over r of X W_a expands them to n tokens. The scores before
    the softmax, [r, r] per head, are passed to the next layer as `carry`.

    With `shared_map: false` there are four maps, f_U for alpha, and f_Q, f_K and f_V for the alphahat of Q, K
    and V. The last three have no bias, because the softmax over the tokens cancels it.

    The penalty is orthogonal_weight / r^2 (|off(alpha^T alpha)|^2 + |off(alphahat alphahat^T)|^2) +
    diagonal_weight / r^2 |off(A')|^2, with off the off-diagonal entries, | | the Frobenius norm and A' the
    softmax of the scores. It is the mean over heads and over the sequences of a batch. With four maps, the
    term of alphahat is its mean over Q, K and V (ours), so that four equal maps have the penalty of one.

    With `pair_bias: logits`, alphahat (S + E) alphahat^T is added to the scores of its head (ours), with the
    alphahat of Q on the left and of K on the right. With `mix`, softmax(S + E) V replaces V (ours).

    Args:
        rank: Number r of pseudo-tokens; None for C.
        shared_map: Whether one map W_a gives alpha and each alphahat; if false, each has its own.
        scaled: Whether the product of the folded Q and K is divided by sqrt(C); if false, as in the paper.
        orthogonal_weight: Weight of the penalty on alpha and alphahat.
        diagonal_weight: Weight of the penalty on A'.

    Source: Wu et al. 2023 (Singularformer, IJCAI), whose footnote names the four maps, and whose equations do
    not divide by sqrt(C). Sharing W_a among the heads is the default of the authors' code. Its penalty on A'
    is the mean of the entries; ours is the squared norm.
    """

    traits: ClassVar[Traits] = Traits(
        source="Singularformer, doi 10.24963/ijcai.2023/493",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        head_dim=True,
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        rank: int | None = None,
        shared_map: bool = True,
        scaled: bool = True,
        orthogonal_weight: float = 0.01,
        diagonal_weight: float = 0.01,
    ) -> None:
        check_least("singular", 1, rank=rank)
        weights = {"orthogonal_weight": orthogonal_weight, "diagonal_weight": diagonal_weight}
        for option, weight in weights.items():
            if not (isinstance(weight, Real) and 0 <= weight < math.inf):
                raise MolsliceError(f"singular takes {option} of at least 0, got {weight}")
        super().__init__(spec)
        self.rank = spec.head_dim if rank is None else rank
        self.orthogonal_weight, self.diagonal_weight = orthogonal_weight, diagonal_weight
        self.shared_map, self.scaled = shared_map, scaled
        self.fold = Projection(spec.dim, self.rank)  # f_U, and also f_Q, f_K and f_V if they are shared
        if not shared_map:
            self.fold_query, self.fold_key, self.fold_value = (
                Projection(spec.dim, self.rank, bias=False) for _ in range(3)
            )
        self.query = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Apply alphahat before the projections: its rows sum to one, so biases pass through unchanged."""
        if self.ignores_padding(tokens, context):
            return self._mix_packed(tokens, context)
        mask = context.token_mask
        logits = self.fold(tokens)
        unfolding = zero_padding(logits.softmax(-1), mask)
        foldings = self._foldings(tokens, logits, mask)
        dropped = [self.dropout(folding) for folding in foldings]
        of_query, of_key, of_value = _for_each([folding @ tokens for folding in dropped])
        query, key = self.split_heads(self.query(of_query)), self.split_heads(self.key(of_key))
        if self.spec.pair_bias_mode == "mix":
            value = dropped[-1][:, None] @ self.mix_pairs(self.split_heads(self.value(tokens)), context)
        else:
            value = self.split_heads(self.value(of_value))
        scores = query @ key.transpose(2, 3)
        if self.scaled:  # the paper's equations have no 1 / sqrt(C)
            scores = scores / self.spec.head_dim**0.5
        bias = self.added_bias(context)
        if bias is not None:
            left, right, _ = _for_each(foldings)
            bias = bias.masked_fill(~pair_mask(mask), 0.0).to(left.dtype)
            scores = scores + left[:, None] @ bias @ right[:, None].transpose(2, 3)
        scores = self.add_carry(scores, context)
        weights = scores.softmax(-1)
        heads = self.dropout(weights) @ value
        unfolded = self.dropout(unfolding) @ self.output(self.merge_heads(heads))
        penalty = self._penalty(unfolding, foldings, _off_diagonal(weights), context)
        return AttentionOutput(unfolded, penalty, scores)

    def ignores_padding(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether a kernel computes all heads of a sequence from one product."""
        spec = self.spec
        return (
            self.shared_map
            and spec.pair_bias_mode != "mix"
            and has_kernels(tokens, spec.head_dim, self.rank, working_dtype(tokens))
        )

    def hands_on_pairs(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:  # noqa: ARG002
        """Return False: the carry holds the scores of pseudo-tokens."""
        return False

    def _mix_packed(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Project, then fold: the kernel adds the biases of the projections after the folding."""
        mask, spec = context.token_mask, self.spec
        maps = (self.query, self.key, self.value)
        packed = functional.linear(tokens, torch.cat([linear.weight for linear in maps]))
        packed = packed.unflatten(-1, (3, spec.num_heads, -1))
        added = torch.cat([linear.bias for linear in maps]) if spec.qkv_bias else None
        # what the fold gives at padding may be infinite in half precision
        logits = zero_padding(precise(self.fold(tokens)), mask)
        unfolding = zero_padding(logits.softmax(-1), mask)
        foldings = self._foldings(tokens, logits, mask)
        (folding,) = foldings  # one for Q, K and V, because the map is shared
        dropped = self.dropout(unfolding)
        mixed, scores, squares = folded_attention(
            packed,
            added,
            FoldingMaps(folding, self.dropout(folding), dropped),
            self.bias_for_kernel(context, packed.dtype),
            self.check_carry(context, len(mask), spec.num_heads, self.rank, self.rank),
            mask,
            self.active_dropout,
            spec.head_dim**-0.5 if self.scaled else 1.0,
        )
        penalty = self._penalty(unfolding, foldings, squares, context)
        mixed = context.first(mixed.flatten(-2))
        # the bias of the output passes through the unfolding, whose rows sum to one only without dropout
        share = context.first(dropped).sum(-1, keepdim=True).to(mixed.dtype)
        unfolded = functional.linear(mixed, self.output.weight)
        unfolded = torch.addcmul(unfolded, share, self.output.bias.to(unfolded.dtype))
        return AttentionOutput(unfolded, penalty, scores)

    def _foldings(
        self, tokens: Float[Tensor, "B N D"], logits: Float[Tensor, "B N r"], mask: Bool[Tensor, "B N"]
    ) -> list[Float[Tensor, "B r N"]]:
        """Return alphahat, one for Q, K and V, or one for each; `logits` belong to the first map."""
        if not self.shared_map:
            maps = [f(tokens) for f in (self.fold_query, self.fold_key, self.fold_value)]
        else:
            maps = [logits]
        return [masked_softmax(scores.transpose(1, 2), mask[:, None]) for scores in maps]

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return alpha A' alphahat, the alphahat of V; with `mix`, multiplied by softmax(S + E).

        Parts: `unfolding` alpha [B, N, r], `folding` alphahat [B, r, N], `scores` A' [B, H, r, r]. By token:
        its weight in the pseudo-token with the largest weight in the output of token 0.
        """
        unfolding, folding, scores = self._factors(tokens, context)
        weights = self.mix_map(unfolding[:, None] @ scores @ folding[:, None], context)
        largest = unfolding[:, 0].argmax(-1)
        by_token = {"weight in its pseudo-token": folding[torch.arange(len(largest)), largest]}
        return ExactMap(weights, {"unfolding": unfolding, "folding": folding, "scores": scores}, by_token)

    def exact_rows(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext, rows: Int[Tensor, " K"]
    ) -> Float[Tensor, "B H K N"]:
        """Return some rows of the exact attention map, by the product of its factors."""
        unfolding, folding, scores = self._factors(tokens, context)
        return self.mix_map(unfolding[:, None, rows] @ scores @ folding[:, None], context)

    def _factors(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext
    ) -> tuple[Float[Tensor, "B N r"], Float[Tensor, "B r N"], Float[Tensor, "B H r r"]]:
        """Return alpha, the alphahat of V and A'."""
        mask = context.token_mask
        logits = self.fold(tokens)
        unfolding = logits.softmax(-1).masked_fill(~mask[..., None], 0.0)
        folding = self._foldings(tokens, logits, mask)[-1]
        return unfolding, folding, self(tokens, context).carry.softmax(-1)  # the carry precedes the softmax

    def _penalty(
        self,
        unfolding: Float[Tensor, "B N r"],
        foldings: list[Float[Tensor, "B r N"]],
        squares: Float[Tensor, "B H"],
        context: TokenContext,
    ) -> Float[Tensor, ""] | None:
        """Return the penalty; `squares` are the sums of the squared entries beside the diagonal of A'."""
        if not (self.orthogonal_weight or self.diagonal_weight):
            return None
        orthogonal = _off_diagonal(unfolding.transpose(1, 2) @ unfolding)
        folded = sum(_off_diagonal(folding @ folding.transpose(1, 2)) for folding in foldings)
        orthogonal = orthogonal + folded / len(foldings)
        penalties = self.orthogonal_weight * orthogonal + self.diagonal_weight * squares.mean(1)
        return masked_mean(penalties, context.token_mask.any(-1), 0) / self.rank**2


def _for_each(shared: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tensors of Q, K and V from one for all, or from one for each."""
    of_query, of_key, of_value = shared * (3 // len(shared))
    return of_query, of_key, of_value


def _off_diagonal(square: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch"]:
    """Return the squared Frobenius norm of the off-diagonal entries."""
    return square.square().sum((-1, -2)) - square.diagonal(dim1=-2, dim2=-1).square().sum(-1)
