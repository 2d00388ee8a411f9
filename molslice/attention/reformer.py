"""Reformer attention: tokens attend within hash buckets, sorted together and cut into chunks."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits, check_least
from molslice.ops.features import precise, unit_vectors
from molslice.ops.masked import pair_mask
from molslice.ops.sorting import inverse_order
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

MAX_BUCKETS = 128  # limit of the default number, so that hashing stays linear
CAUSAL_LENGTH = 1024  # length for the default number of buckets of a causal form without max_tokens
_SELF_SCORE = -1e30  # score of a token for itself: above masked scores, below all others
_PADDING = -(2**40)  # coordinate of padding, far from all tokens


class Reformer(Attention):
    """out_i = sum_j softmax_j(q_i k_j / sqrt(C)) v_j W_O over the j that i attends to in any round, per head.

    Keys are normalized queries, k_j = q_j / |q_j|. In each of `num_rounds` rounds a token gets the bucket
    argmax [q R; -q R] with a random R. The real tokens, sorted by bucket and then by position, are cut into
    chunks of `chunk_size`. Token i attends to the tokens j of its bucket in its own chunk and in the chunk
    before. Each round has its own softmax, with the logarithm of the number of rounds in which i attends to j
    subtracted from the score. The rounds are weighted by their sums of exponentials, so that together they
    are one softmax over all tokens that i attends to. A token attends to itself only if it attends to no
    other.

    Choices:

    - R is drawn once, from `seed`, the layer, the head and the round, and is saved with the model. The paper
      draws it in every pass.
    - In the causal form i attends to the `chunk_size` tokens of its bucket before it. Chunks would leak the
      future, because their borders depend on the buckets of later tokens.
    - The number of rounds counts those in which i attends to j. The paper counts equal buckets, also if
      chunks separate the tokens.
    - The first chunk has no chunk before it. In the authors' code it attends to the last one.
    - With `pair_bias: logits`, S + E is added to the scores of the pairs. With `mix`, softmax(S + E) V
      replaces V.

    Args:
        chunk_size: Number of tokens per chunk.
        num_rounds: Number of rounds of hashing.
        num_buckets: Number of buckets, even. None for the paper's number, 2 ceil(n / chunk_size), at most
            128, for the n real tokens of each sequence, by ignoring columns of R. The causal form must not
            depend on n: It uses that number for `max_tokens`, or for 1024 if `max_tokens` is None.
        seed: Seed of R, together with the layer.

    Source: Kitaev et al. 2020 (Reformer), section 2; four rounds, where the paper studies 1 to 8.
    """

    traits: ClassVar[Traits] = Traits(
        source="Reformer, arXiv 2001.04451",
        cost="log_linear",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        head_dim=True,
    )
    rotations: Float[Tensor, "H R C K"]

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        chunk_size: int = 64,
        num_rounds: int = 4,
        num_buckets: int | None = None,
        seed: int = 0,
    ) -> None:
        check_least("reformer", 1, chunk_size=chunk_size, num_rounds=num_rounds)
        if num_buckets is not None and (num_buckets < 2 or num_buckets % 2):
            raise MolsliceError(
                f"reformer takes an even number of buckets, two for each axis, got num_buckets={num_buckets}"
            )
        super().__init__(spec)
        self.chunk_size, self.num_rounds = chunk_size, num_rounds
        self.is_adaptive = num_buckets is None and not spec.causal
        if num_buckets is None:
            length = spec.max_tokens or CAUSAL_LENGTH
            num_buckets = min(2 * -(-length // chunk_size), MAX_BUCKETS) if spec.causal else MAX_BUCKETS
        self.query_key = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)
        generator = torch.Generator().manual_seed(seed * 1024 + spec.layer)
        shape = (spec.num_heads, num_rounds, spec.head_dim, num_buckets // 2)
        self.register_buffer("rotations", torch.randn(shape, generator=generator))

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Score pairs as [B, H, R, G, chunk, 2 chunk], with R rounds and G chunks."""
        value = self.mix_pairs(self.split_heads(self.value(tokens)), context)
        query = precise(self.split_heads(self.query_key(tokens)))
        order, coordinate = self._sort(self._buckets(query, context.token_mask), context.token_mask)
        queries = self._chunks(_take(query, order))
        keys = self._with_previous(unit_vectors(queries))
        values = self._with_previous(self._chunks(_take(value, order)))
        scores = (queries @ keys.transpose(4, 5)).to(query.dtype) / self.spec.head_dim**0.5
        numbers = self._chunks(order[..., None], -1)
        bias = self.added_bias(context)
        if bias is not None:
            scores = scores + self._biases(numbers, bias, context.token_mask)
        scores = self._masked(scores, numbers, self._attended_pairs(coordinate, order))
        sums = scores.logsumexp(5, keepdim=True)
        heads = self.dropout((scores - sums).exp()).to(value.dtype) @ values
        ranks = inverse_order(order.flatten(1, 2)).view(order.shape)[..., None]
        sums, heads = (
            x.flatten(3, 4).gather(3, ranks.expand(*ranks.shape[:4], x.shape[5])) for x in (sums, heads)
        )
        mixed = (sums.softmax(2).to(heads.dtype) * heads).sum(2)
        return AttentionOutput(self.output(self.merge_heads(mixed).to(tokens.dtype)))

    def _buckets(
        self, query: Float[Tensor, "B H N C"], token_mask: Bool[Tensor, "B N"]
    ) -> Int[Tensor, "B H R N"]:
        rotated = query.detach()[:, :, None] @ self.rotations.to(query.dtype)
        if self.is_adaptive:
            # The number of columns of R, one for two buckets, for a sequence of this length.
            count = -(-token_mask.sum(1) // self.chunk_size)[:, None, None, None, None]
            is_unused = torch.arange(rotated.shape[-1], device=rotated.device) >= count
            is_unused = torch.cat([is_unused, is_unused], -1)
        ends = torch.cat([rotated, -rotated], -1)
        return (ends.masked_fill(is_unused, -torch.inf) if self.is_adaptive else ends).argmax(-1)

    def _sort(
        self, buckets: Int[Tensor, "B H R N"], token_mask: Bool[Tensor, "B N"]
    ) -> tuple[Int[Tensor, "B H R N"], Int[Tensor, "B H R N"]]:
        """Return the tokens sorted by bucket and position, padding last, and the coordinate of each token.

        i attends to j if and only if coordinate_i - coordinate_j is from 0 to the reach, which is 1 chunk or,
        in the causal form, `chunk_size` tokens. Different buckets are farther apart.
        """
        length = buckets.shape[-1]
        padding_bucket = 2 * self.rotations.shape[-1]
        mask = token_mask[:, None, None]
        order = (
            buckets.masked_fill(~mask, padding_bucket) * length + torch.arange(length, device=buckets.device)
        ).argsort(-1)
        rank = inverse_order(order.flatten(1, 2)).view(order.shape)
        within = rank if self.spec.causal else rank // self.chunk_size
        coordinate = buckets * (length + self.chunk_size + 1) + within
        return order, coordinate.masked_fill(~mask, _PADDING)

    def _attended_pairs(
        self, coordinate: Int[Tensor, "B H R N"], order: Int[Tensor, "B H R N"]
    ) -> list[Bool[Tensor, "B H R G S K"]]:
        """Return for each round which pairs attend in it. Row r holds the pairs of round r."""
        reach = self.chunk_size if self.spec.causal else 1
        attended = []
        for r in range(self.num_rounds):
            coordinates = coordinate[:, :, r : r + 1].expand(order.shape).gather(3, order)
            chunks = self._chunks(coordinates[..., None], _PADDING)
            distance = chunks - self._with_previous(chunks, _PADDING).transpose(4, 5)
            attended.append((distance >= 0) & (distance <= reach))
        return attended

    def _masked(
        self,
        scores: Float[Tensor, "B H R G S K"],
        numbers: Int[Tensor, "B H R G S 1"],
        attended: list[Tensor],
    ) -> Float[Tensor, "B H R G S K"]:
        """Return the scores of round r for its pairs, less the log of the number of rounds of each pair."""
        rounds = torch.zeros_like(scores)
        for pairs in attended:
            rounds = rounds + pairs
        seen = torch.stack([pairs[:, :, r] for r, pairs in enumerate(attended)], 2)
        is_self = numbers == self._with_previous(numbers, -2).transpose(4, 5)
        scores = (scores - rounds.clamp(min=1).log()).masked_fill(is_self, _SELF_SCORE)
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min / 2)

    def _biases(
        self,
        numbers: Int[Tensor, "B H R G S 1"],
        bias: Float[Tensor, "B H N N"],
        token_mask: Bool[Tensor, "B N"],
    ) -> Float[Tensor, "B H R G S K"]:
        length = token_mask.shape[1]
        entries = numbers.clamp(min=0) * length + self._with_previous(numbers, 0).clamp(min=0).transpose(4, 5)
        bias = bias.masked_fill(~pair_mask(token_mask), 0.0)
        return bias.flatten(2).gather(2, entries.flatten(2)).view(entries.shape)

    def _chunks(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Cut [B, H, R, N, C] into chunks, with the last one filled up."""
        missing = -values.shape[3] % self.chunk_size
        return functional.pad(values, (0, 0, 0, missing), value=fill).unflatten(3, (-1, self.chunk_size))

    def _with_previous(self, chunks: Tensor, fill: float = 0.0) -> Tensor:
        """Append each chunk to the one before it, and the first to `fill`."""
        previous = functional.pad(chunks, (0, 0, 0, 0, 1, 0), value=fill)[:, :, :, :-1]
        return torch.cat([previous, chunks], 4)


def _take(values: Float[Tensor, "B H N C"], order: Int[Tensor, "B H R N"]) -> Float[Tensor, "B H R N C"]:
    """Return the values of each head in the order of each round."""
    index = order[..., None].expand(*order.shape, values.shape[-1])
    return values[:, :, None].expand(index.shape).gather(3, index)
