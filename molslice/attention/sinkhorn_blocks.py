"""Sparse Sinkhorn attention: each block of queries attends to its own keys and to a softly sorted block."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import Projection, QueryKeyValueAttention, Traits, check_least
from molslice.ops.features import full_precision, precise
from molslice.ops.masked import masked_softmax
from molslice.ops.packing import pack_tokens, packed_mask, packing_order, unpack_tokens
from molslice.ops.sinkhorn import causal_sinkhorn_log, sinkhorn_log
from molslice.ops.windows import merge_blocks, split_blocks
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

MIN_MASS = 1e-6  # lower bound of the share of R of a sorted key


class SinkhornBlocks(QueryKeyValueAttention):
    """out = softmax(Q [K; K']^T / sqrt(C)) [V; V'] W_O in each block and head, K' and V' a sorted block.

    The n real tokens are cut into blocks of `block_size`; the last one may be shorter. A sorting network, one
    linear map for all heads, scores block j for position i: S_ij = (W_S sum_{p in block j} K_jp + b_S)_i. R
    is exp(S / temperature) after `iterations` Sinkhorn iterations in log space, each of which divides first
    the columns, then the rows by their sums. Position i gets K'_ip = sum_j R_ij K_jp and V'_ip = sum_j R_ij
    V_jp.

    Choices:

    - The missing tokens of a short last block are not part of K' and V': these are means over the blocks that
      have a token at p, and the logarithm of the share of R of these blocks is added to the score. A hard
      permutation thus moves the short block unchanged, and a single block is plain softmax attention.
    - The Gumbel noise that the paper adds to S in training is omitted.
    - The causal form moves only blocks j < i to position i, which are complete and past. It divides an entry
      of a column by the sum of the column down to it, and masks the later tokens of the own block. The first
      block attends to itself only. No result depends on a later token.
    - With `pair_bias: mix`, softmax(S + E) V replaces V.

    Cost: R is a matrix of (N / block_size)^2 entries and K' its product with all keys. Both are quadratic in
    N for a fixed block size. The network has one output for each position, ceil(max_tokens / block_size), and
    one less in the causal form, because nothing moves to the first position.

    Args:
        block_size: Number of tokens per block.
        iterations: Number of Sinkhorn iterations.
        temperature: Divisor of the scores of the sorting network.

    Source: Tay et al. 2020 (Sparse Sinkhorn Attention), section 3. The network is from the authors' code for
    Long Range Arena: sums of keys, head by head, one linear map. That code adds the outputs of two
    softmaxes, over the own and over the sorted block; ours is one softmax over both. `temperature` and
    `iterations` are the best of the paper's experiments, as the package sinkhorn-transformer reports them.
    """

    traits: ClassVar[Traits] = Traits(
        source="Sparse Sinkhorn Attention, arXiv 2002.11296",
        cost="quadratic",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        causal=True,
        fixed_length=True,
        head_dim=True,
    )

    def __init__(
        self, spec: AttentionSpec, *, block_size: int = 64, iterations: int = 7, temperature: float = 0.75
    ) -> None:
        check_least("sinkhorn_blocks", 1, block_size=block_size, iterations=iterations)
        if temperature <= 0:
            raise MolsliceError(f"sinkhorn_blocks takes a positive temperature, got {temperature}")
        super().__init__(spec)
        assert spec.max_tokens is not None  # checked, because of `fixed_length`
        self.block_size, self.iterations, self.temperature = block_size, iterations, temperature
        positions = -(-spec.max_tokens // block_size)
        self.sort = Projection(spec.head_dim, max(1, positions - 1) if spec.causal else positions)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Process blocks [B, G, S, D]: G blocks of S tokens each."""
        order = packing_order(context.token_mask)
        real = split_blocks(packed_mask(context.token_mask), self.block_size)
        value = self.mix_values(self.value(tokens), context)
        query, key, value = (
            split_blocks(pack_tokens(x, order), self.block_size)
            for x in (self.query(tokens), self.key(tokens), value)
        )
        key, value = (x.masked_fill(~real[..., None], 0.0) for x in (key, value))
        sorting = self._sorting(key, real.any(2))
        mass = (sorting @ real.to(sorting.dtype)[:, None]).to(sorting.dtype)
        shares = torch.cat([torch.zeros_like(mass), mass.clamp(min=MIN_MASS).log()], 3)
        query, key, value = (self._split_blocks(x) for x in (query, key, value))
        key, value = (torch.cat([x, self._sorted(x, sorting, mass)], 3) for x in (key, value))
        scores = (query @ key.transpose(3, 4)).to(shares.dtype) / self.spec.head_dim**0.5
        weights = self.dropout(masked_softmax(scores + shares[:, :, :, None], self._seen(real)))
        mixed = (weights.to(value.dtype) @ value).permute(0, 2, 3, 1, 4).flatten(3)
        mixed = unpack_tokens(merge_blocks(mixed, tokens.shape[1]), order)
        return AttentionOutput(self.output(mixed))

    def _split_blocks(self, blocks: Float[Tensor, "B G S D"]) -> Float[Tensor, "B H G S C"]:
        return blocks.unflatten(-1, (self.spec.num_heads, -1)).permute(0, 3, 1, 2, 4)

    def _sorting(
        self, key: Float[Tensor, "B G S D"], is_block: Bool[Tensor, "B G"]
    ) -> Float[Tensor, "B H G G"]:
        """Return R [B, H, G, G]. Row i holds the shares of position i; blocks without tokens have zeros."""
        # Long sums become exponents and need float32, also if the model or autocast uses half precision.
        with full_precision(key):
            sums = precise(key).sum(2)
            weight, bias = (x.to(sums.dtype) for x in (self.sort.weight, self.sort.bias))
            scores = functional.linear(sums.unflatten(-1, (self.spec.num_heads, -1)), weight, bias)
        scores = scores.permute(0, 2, 3, 1) / self.temperature
        mask, count = is_block[:, None], key.shape[1]
        if self.spec.causal:
            scores = functional.pad(scores, (0, 0, 1, 0))[:, :, :count]
            return causal_sinkhorn_log(scores, mask, 2 * self.iterations).exp()
        return sinkhorn_log(scores[:, :, :count], mask, mask, 2 * self.iterations).exp()

    @staticmethod
    def _sorted(
        blocks: Float[Tensor, "B H G S C"], sorting: Float[Tensor, "B H G G"], mass: Float[Tensor, "B H G S"]
    ) -> Float[Tensor, "B H G S C"]:
        moved = (sorting @ blocks.flatten(3).to(sorting.dtype)).to(sorting.dtype)
        moved = moved.unflatten(3, blocks.shape[3:]) / mass.clamp(min=MIN_MASS)[..., None]
        return moved.to(blocks.dtype)

    def _seen(self, real: Bool[Tensor, "B G S"]) -> Bool[Tensor, "B 1 G S K"]:
        size = self.block_size
        positions = torch.arange(size, device=real.device)
        block_mask = real[:, :, None]
        if self.spec.causal:
            block_mask = block_mask & (positions <= positions[:, None])
        # Padding attends to itself, so that no row is fully masked and becomes NaN.
        block_mask = block_mask | (positions == positions[:, None])
        # The first block is the longest: where it has no token, no sorted block has one.
        moved = real[:, :1] & real.any(2, keepdim=True)
        if self.spec.causal:
            moved = moved & (torch.arange(real.shape[1], device=real.device) > 0)[:, None]
        return torch.cat([block_mask, moved[:, :, None].expand(block_mask.shape)], 3)[:, None]
