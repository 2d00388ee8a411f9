"""Sparse attention: the strided and the fixed factorization of the Sparse Transformer."""

from dataclasses import replace
from math import isqrt
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits, check_choice, check_least
from molslice.ops.features import precise
from molslice.ops.masked import masked_softmax
from molslice.ops.packing import pack_tokens, packing_order, unpack_tokens
from molslice.ops.windows import (
    gather_pairs,
    merge_blocks,
    split_blocks,
    window_positions,
    window_reach,
    with_neighbors,
)
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

Pattern = Literal["strided", "fixed"]
Factors = Literal["merged", "heads", "layers"]


class _Scored(NamedTuple):
    """The scores of the queries of each block for one of the two sets of keys.

    Attributes:
        scores: The scores [B, H, G, S, K].
        seen: True for keys in the set [B, H, G, S, K].
    """

    scores: Float[Tensor, "B H G S K"]
    seen: Bool[Tensor, "B H G S K"]


class _Blocks(NamedTuple):
    """Some heads of the packed sequence, cut into G blocks of S positions.

    Attributes:
        query: Queries divided by sqrt(C) [B, H, G, S, C].
        key: Keys [B, H, G, S, C].
        value: Values [B, H, G, S, C].
        head: Index of each head [H].
        order: Result of `packing_order` [B, N].
        count: Number of real tokens of each sequence [B].
        bias: S + E of these heads [B, H, N, N]; None if it is not added to the scores.
    """

    query: Float[Tensor, "B H G S C"]
    key: Float[Tensor, "B H G S C"]
    value: Float[Tensor, "B H G S C"]
    head: Int[Tensor, " H"]
    order: Int[Tensor, "B N"]
    count: Int[Tensor, " B"]
    bias: Float[Tensor, "B H N N"] | None

    def only(self, heads: slice) -> "_Blocks":
        """Return the same blocks for some of the heads."""
        return self._replace(
            query=self.query[:, heads],
            key=self.key[:, heads],
            value=self.value[:, heads],
            head=self.head[heads],
            bias=None if self.bias is None else self.bias[:, heads],
        )


class Sparse(QueryKeyValueAttention):
    """out_i = softmax_j(Q_i K_j / sqrt(C)) V_j W_O over the j in A1(i) and A2(i), per head; l = `stride`.

    Positions count the real tokens from 0. The causal form, as in the paper, restricts both sets to j <= i;
    the form without it is ours. A token whose set is empty (only A2 of `fixed`, causal, without A1) gets the
    bias of W_O. With `pair_bias: logits`, S + E is added to the scores that are computed (ours). With `mix`,
    softmax(S + E) V replaces V (ours).

    Args:
        pattern: The two sets of keys.

            - `strided`: A1(i) = {j: |i - j| <= l}, A2(i) = {j: (i - j) mod l = 0}.
            - `fixed`: A1(i) = {j: floor(j / l) = floor(i / l)}, A2(i) = {j: j mod l in R}. R is `summary`
              positions of each block: The last ones for head 0, the ones before for head 1, and so on,
              cyclically.

        stride: Distance l in tokens; the cost is then n^2 / l. None for ceil(sqrt(max_tokens)), for which
            `max_tokens` must be set; the cost is then n sqrt(n).
        summary: Number of positions in R, at most `stride`, for `fixed`. None for 8, or the stride if that is
            less.
        factors: How the sets are used. With `merged`, each head attends to both, and a key in both counts
            once. With `heads`, the first half of the heads uses A1 and the others A2. With `layers`, even
            layers use A1 and odd ones A2.

    Source: Child et al. 2019, sections 4.2, 4.3 and 5.1: A1, A2 and the three ways to use them. The paper
    prefers different positions for the heads; counting them from the end of the block follows its code.
    `summary` is 8, 16 or 32 for strides of 128 and 256. The strided A1 has l + 1 positions in the paper and l
    in its code; ours follows the paper.
    """

    traits: ClassVar[Traits] = Traits(
        source="Sparse Transformer, arXiv 1904.10509",
        cost="n_sqrt_n",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        fixed_length=True,  # the default stride depends on max_tokens
        head_dim=True,
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        pattern: Pattern = "strided",
        stride: int | None = None,
        summary: int | None = None,
        factors: Factors = "merged",
    ) -> None:
        check_choice("sparse", "pattern", pattern, get_args(Pattern))
        check_choice("sparse", "factors", factors, get_args(Factors))
        if factors == "heads" and spec.num_heads < 2:
            raise MolsliceError("sparse with factors 'heads' takes at least 2 heads, one for each set")
        super().__init__(spec, self._traits_with(spec, stride))
        self.pattern, self.factors = pattern, factors
        self.stride = isqrt((spec.max_tokens or 1) - 1) + 1 if stride is None else stride  # rounded up
        self.summary = self._checked_summary(pattern, summary, self.stride)

    @classmethod
    def _traits_with(cls, spec: AttentionSpec, stride: int | None) -> Traits:
        if stride is None:
            if spec.max_tokens is None:
                raise MolsliceError(
                    "sparse needs max_tokens for its default stride, ceil(sqrt(max_tokens)); "
                    "set max_tokens or the option stride"
                )
            return cls.traits
        check_least("sparse", 1, stride=stride)
        return replace(cls.traits, cost="quadratic", fixed_length=False)

    @staticmethod
    def _checked_summary(pattern: str, summary: int | None, stride: int) -> int:
        if summary is None:
            return min(8, stride)
        if pattern != "fixed":
            raise MolsliceError("sparse takes summary with pattern 'fixed' only")
        if not 1 <= summary <= stride:
            raise MolsliceError(
                f"sparse takes a summary of 1 to {stride} positions, its stride, got {summary}"
            )
        return summary

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Process blocks of `stride` positions: A1 is in neighboring blocks, A2 in a column of all blocks."""
        order, length = packing_order(context.token_mask), tokens.shape[1]
        packed = pack_tokens(tokens, order)
        value = self.mix_values(self.value(tokens), context)
        size = window_reach(length, self.stride)[0] if self.pattern == "strided" else self.stride

        def by_block(x: Tensor) -> Tensor:
            return split_blocks(x, size).unflatten(-1, (self.spec.num_heads, -1)).movedim(3, 1)

        blocks = _Blocks(
            by_block(self.query(packed)) / self.spec.head_dim**0.5,
            by_block(self.key(packed)),
            by_block(pack_tokens(value, order)),
            torch.arange(self.spec.num_heads, device=order.device),
            order,
            context.token_mask.sum(1),
            self.added_bias(context),
        )
        mixed = merge_blocks(self._attend(blocks).movedim(1, 3).flatten(-2), length)
        return AttentionOutput(self.output(unpack_tokens(mixed, order)))

    def _attend(self, blocks: _Blocks) -> Float[Tensor, "B H G S C"]:
        heads = self.spec.num_heads
        if self.factors == "merged":
            near, far = self._near(blocks), self._far(blocks)
            weights = self._weights(*(torch.cat(parts, -1) for parts in zip(near, far, strict=True)))
            weights = weights.to(blocks.value.dtype)
            by_near, by_far = weights.split([near.scores.shape[-1], far.scores.shape[-1]], -1)
            return self._near_values(by_near, blocks.value) + self._far_values(by_far, blocks)
        with_near = heads // 2 if self.factors == "heads" else heads * (self.spec.layer % 2 == 0)
        mixed = []
        if with_near > 0:
            near_blocks = blocks.only(slice(with_near))
            weights = self._weights(*self._near(near_blocks)).to(near_blocks.value.dtype)
            mixed.append(self._near_values(weights, near_blocks.value))
        if with_near < heads:
            far_blocks = blocks.only(slice(with_near, None))
            weights = self._weights(*self._far(far_blocks)).to(far_blocks.value.dtype)
            mixed.append(self._far_values(weights, far_blocks))
        return torch.cat(mixed, 1)

    def _weights(
        self, scores: Float[Tensor, "B H G S K"], seen: Bool[Tensor, "B H G S K"]
    ) -> Float[Tensor, "B H G S K"]:
        return self.dropout(masked_softmax(precise(scores), seen))

    def _scored(
        self, scores: Tensor, rows: Tensor, columns: Tensor, wanted: Tensor, blocks: _Blocks
    ) -> _Scored:
        seen = wanted & (columns >= 0) & (columns < blocks.count[:, None, None, None, None])
        if self.spec.causal:
            seen = seen & (columns <= rows)
        if blocks.bias is not None:
            scores = scores + gather_pairs(blocks.bias, blocks.order, blocks.count, rows, columns)
        return _Scored(scores, seen.expand(scores.shape))

    def _neighbors(self, x: Float[Tensor, "B H G S C"]) -> Float[Tensor, "B H G K C"]:
        if self.pattern == "fixed" or x.shape[2] == 1:
            return x
        after = 0 if self.spec.causal else self.stride
        return with_neighbors(x.flatten(0, 1), self.stride, after).unflatten(0, x.shape[:2])

    def _near(self, blocks: _Blocks) -> _Scored:
        count, size = blocks.query.shape[2:4]
        key = self._neighbors(blocks.key)
        before = size if key.shape[3] > size else 0
        rows, columns = window_positions(count, size, before, key.shape[3] - size - before, key.device)
        wanted = (rows - columns).abs() <= self.stride
        return self._scored(blocks.query @ key.transpose(-1, -2), rows, columns, wanted, blocks)

    def _near_values(
        self, weights: Float[Tensor, "B H G S K"], value: Float[Tensor, "B H G S C"]
    ) -> Float[Tensor, "B H G S C"]:
        return weights @ self._neighbors(value)

    def _far(self, blocks: _Blocks) -> _Scored:
        count, size = blocks.query.shape[2:4]
        rows = window_positions(count, size, 0, 0, blocks.query.device)[0]
        starts = torch.arange(count, device=rows.device) * size
        if self.pattern == "strided":
            query, key = blocks.query.transpose(2, 3), blocks.key.transpose(2, 3)
            scores = (query @ key.transpose(-1, -2)).transpose(2, 3)
            columns = starts + torch.arange(size, device=rows.device)[:, None]
            columns = columns[None, None, None]
            is_near = (rows - columns).abs() <= self.stride
        else:
            key = self._summaries(blocks.key, blocks.head)
            scores = (blocks.query.flatten(2, 3) @ key.transpose(-1, -2)).unflatten(2, (count, size))
            columns = (starts[:, None] + self._summary_positions(blocks.head)[:, None]).flatten(1)
            columns = columns[None, :, None, None]
            is_near = rows // size == columns // size
        wanted = ~is_near | (self.factors != "merged")  # a key in both sets counts once
        return self._scored(scores, rows, columns, wanted, blocks)

    def _far_values(self, weights: Float[Tensor, "B H G S K"], blocks: _Blocks) -> Float[Tensor, "B H G S C"]:
        if self.pattern == "strided":
            return (weights.transpose(2, 3) @ blocks.value.transpose(2, 3)).transpose(2, 3)
        value = self._summaries(blocks.value, blocks.head)
        return (weights.flatten(2, 3) @ value).unflatten(2, weights.shape[2:4])

    def _summary_positions(self, head: Int[Tensor, " H"]) -> Int[Tensor, "H R"]:
        """Return the summary positions of a block for each head."""
        inside = torch.arange(self.summary, device=head.device)
        return (inside - (head[:, None] + 1) * self.summary) % self.stride

    def _summaries(self, x: Float[Tensor, "B H G S C"], head: Int[Tensor, " H"]) -> Float[Tensor, "B H K C"]:
        index = self._summary_positions(head)[None, :, None, :, None]
        return x.gather(3, index.expand(x.shape[0], -1, x.shape[2], -1, x.shape[4])).flatten(2, 3)
