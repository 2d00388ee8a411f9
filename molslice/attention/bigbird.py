"""BigBird attention: global blocks, a window of blocks, and a few random blocks."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from molslice.attention.base import QueryKeyValueAttention, Traits, check_least
from molslice.ops.packing import pack_tokens, packing_order, unpack_tokens
from molslice.ops.windows import (
    attend_blocks,
    gather_blocks,
    hash_words,
    merge_blocks,
    split_blocks,
    window_positions,
    with_neighbors,
)
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class Bigbird(QueryKeyValueAttention):
    """out_i = softmax_j(Q_i K_j / sqrt(C)) V_j W_O over the j in the blocks that the block of i attends to.

    The real tokens are cut into blocks of `block`. A block attends to the first `num_global` blocks, to
    itself, to the block on each side, and to `num_random` others. The global blocks attend to all blocks. A
    key counts once. The random blocks of each head and block are drawn without replacement from the blocks
    not attended otherwise, by a hash of (`seed`, layer, head, block, draw) modulo the number of remaining
    blocks. They therefore depend on the real tokens only. If fewer than `num_random` blocks remain, all of
    them are used: a sequence of at most `num_global` + 3 + `num_random` blocks has the result of `softmax`.
    With `pair_bias: logits`, S + E is added to the scores that are computed (ours). With
    `mix`, softmax(S + E) V replaces V (ours).

    Args:
        block: Number of tokens per block.
        num_global: Number of global blocks.
        num_random: Number of random blocks for each block and head.
        seed: Seed of the random blocks.

    Source: Zaheer et al. 2020, section 2 and appendix D, the form with internal global tokens (ITC), with its
    sizes: blocks of 64, two global ones, a window of three, three random ones. Taking the first blocks as
    global is ours; the authors' code takes the first and the last one.
    """

    traits: ClassVar[Traits] = Traits(
        source="Big Bird, arXiv 2007.14062",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "logits", "mix"),
        head_dim=True,
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        block: int = 64,
        num_global: int = 2,
        num_random: int = 3,
        seed: int = 0,
    ) -> None:
        check_least("bigbird", 1, block=block)
        check_least("bigbird", 0, num_global=num_global, num_random=num_random)
        super().__init__(spec)
        self.block, self.num_global, self.num_random, self.seed = block, num_global, num_random, seed

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the rows of the global blocks, packed first, by one product, and the others by blocks."""
        order = packing_order(context.token_mask)
        packed = pack_tokens(tokens, order)
        value = self.mix_values(self.value(tokens), context)
        query, key, value = self.query(packed), self.key(packed), pack_tokens(value, order)
        first = min(self.num_global * self.block, tokens.shape[1])
        parts = []
        if first > 0:
            parts.append(self._global_rows(query[:, :first], key, value, order, context))
        if first < tokens.shape[1]:
            parts.append(self._block_rows(query, key, value, order, context)[:, first:])
        return AttentionOutput(self.output(unpack_tokens(torch.cat(parts, 1), order)))

    def _global_rows(
        self,
        query: Float[Tensor, "B F D"],
        key: Float[Tensor, "B N D"],
        value: Float[Tensor, "B N D"],
        order: Int[Tensor, "B N"],
        context: TokenContext,
    ) -> Float[Tensor, "B F D"]:
        positions = torch.arange(key.shape[1], device=key.device)
        rows, columns = positions[None, None, None, : query.shape[1], None], positions[None, None, None, None]
        # The first position is real unless the sequence is empty; then its rows need one key.
        seen = (columns < context.token_mask.sum(1)[:, None, None, None, None]) | (columns == 0)
        bias, heads = self.added_bias_at(context, order, rows, columns), self.spec.num_heads
        blocks = query[:, None], key[:, None], value[:, None]
        return attend_blocks(*blocks, seen, bias, heads, self.active_dropout)[:, 0]

    def _block_rows(
        self,
        query: Float[Tensor, "B N D"],
        key: Float[Tensor, "B N D"],
        value: Float[Tensor, "B N D"],
        order: Int[Tensor, "B N"],
        context: TokenContext,
    ) -> Float[Tensor, "B N D"]:
        """Compute the rows by blocks, including the rows of the global blocks, which are unused."""
        length, size, first = query.shape[1], self.block, self.num_global * self.block
        blocks = split_blocks(query, size)
        count = context.token_mask.sum(1)
        index, is_drawn = self._random_blocks(count, blocks.shape[1])

        def seen_by_blocks(x: Tensor) -> Tensor:
            everywhere = x[:, None, :first].expand(-1, blocks.shape[1], -1, -1)
            x = split_blocks(x, size)
            random = gather_blocks(x.unflatten(-1, (self.spec.num_heads, -1)), index).flatten(-2)
            return torch.cat([with_neighbors(x, size, size), everywhere, random], 2)

        rows, near = window_positions(blocks.shape[1], size, size, size, query.device)
        positions = torch.arange(size, device=query.device)
        everywhere = torch.arange(first, device=query.device).view(1, 1, 1, 1, first)
        random = (index[..., None] * size + positions).flatten(-2)[:, :, :, None]
        drawn = is_drawn.repeat_interleave(size, -1)[:, None, :, None]
        real = count[:, None, None, None, None]
        # The window omits the global blocks, which follow it. A block of padding attends to its first
        # position, so that no row is fully masked and becomes NaN.
        in_window = (near >= first) & (near < real) | (near == rows[..., :1, :])
        seen = _concatenate_keys(in_window, everywhere < real, drawn & (random < real))
        columns = _concatenate_keys(near, everywhere, random)
        bias, heads = self.added_bias_at(context, order, rows, columns), self.spec.num_heads
        key, value = seen_by_blocks(key), seen_by_blocks(value)
        return merge_blocks(attend_blocks(blocks, key, value, seen, bias, heads, self.active_dropout), length)

    def _random_blocks(
        self, count: Int[Tensor, " B"], blocks: int
    ) -> tuple[Int[Tensor, "B H G R"], Bool[Tensor, "B G R"]]:
        """Return the drawn blocks, and a mask of the draws for which a block remained."""
        device = count.device
        block = torch.arange(blocks, device=device)
        real = (count[:, None] + self.block - 1) // self.block
        # Candidates are the blocks after the global ones, without the consecutive blocks of the window.
        start = (block - 1).clamp(min=self.num_global)
        window = (torch.minimum(block + 1, real - 1) - start + 1).clamp(min=0)
        candidates = (real - self.num_global - window).clamp(min=0)
        head = torch.arange(self.spec.num_heads, device=device)[:, None]
        drawn: list[Tensor] = []
        for k in range(self.num_random):
            number = hash_words(self.seed, self.spec.layer, head, block, k)
            rank = number % (candidates - k).clamp(min=1)[:, None]
            # Convert the rank among the remaining candidates to the rank among all.
            for earlier in torch.stack(drawn).sort(0).values.unbind(0) if drawn else ():
                rank = rank + (rank >= earlier)
            drawn.append(rank)
        if not drawn:
            shape = (count.shape[0], self.spec.num_heads, blocks, 0)
            return block.new_zeros(shape), block.new_zeros((shape[0], blocks, 0), dtype=torch.bool)
        index = torch.stack(drawn, -1) + self.num_global
        index = index + torch.where(index >= start[:, None], window[:, None, :, None], 0)
        is_drawn = candidates[..., None] > torch.arange(self.num_random, device=device)
        return index.clamp(max=blocks - 1), is_drawn


def _concatenate_keys(*tensors: Shaped[Tensor, "#B #H #G #S _"]) -> Shaped[Tensor, "B H G S L"]:
    """Concatenate the values for the keys in the window, in the global blocks and in the random blocks."""
    shape = torch.broadcast_shapes(*(tensor.shape[:-1] for tensor in tensors))
    return torch.cat([tensor.expand(*shape, -1) for tensor in tensors], -1)
