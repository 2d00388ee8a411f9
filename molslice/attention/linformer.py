"""Linformer: keys and values projected along the tokens to a fixed number of rows."""

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import QueryKeyValueAttention, Traits, check_choice, check_least
from molslice.ops.masked import zero_padding
from molslice.ops.packing import pack_tokens, packed_mask, packing_order
from molslice.types import AttentionOutput, AttentionSpec, TokenContext

Share = Literal["none", "heads", "kv"]


class Linformer(QueryKeyValueAttention):
    """out = softmax(Q (E K)^T / sqrt(C)) (F V) W_O, per head, E and F of shape `rank` x max_tokens.

    Column j of E and F belongs to the j-th real token. Padding has no effect, and a sequence of n tokens uses
    the first n columns. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Args:
        rank: Number of rows of E and F; None for 128, or `max_tokens` if that is less.
        share: How heads share E and F. With `none`, each head has its own E and F. With `heads`, all heads
            share one E and one F. With `kv`, they share one matrix for both. The paper's fourth variant, one
            matrix for all layers, is not available, because each layer owns its parameters.

    Source: Wang et al. 2020, equation 7. E and F are initialized as in the authors' code. That code projects
    the tokens and then applies W_K and W_V with biases; here E and F are applied to K and V, as in the paper.
    """

    traits: ClassVar[Traits] = Traits(
        source="Linformer, arXiv 2006.04768",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        cross=True,
        fixed_length=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, rank: int | None = None, share: Share = "heads") -> None:
        check_least("linformer", 1, rank=rank)
        check_choice("linformer", "share", share, get_args(Share))
        super().__init__(spec)
        longest = spec.max_tokens or 1
        self.rank = min(128, longest) if rank is None else rank
        shape = (spec.num_heads if share == "none" else 1, self.rank, longest)
        self.project_key = _projection(*shape)
        self.project_value = None if share == "kv" else _projection(*shape)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Pack keys and values to the front, so that the j-th real token meets column j of E and F."""
        memory, memory_mask = self.memory_of(tokens, context)
        query, key, value = self.split_heads(self.query(tokens)), self.key(memory), self.value(memory)
        value = self.mix_values(value, context)
        order, mask = packing_order(memory_mask), packed_mask(memory_mask)
        key, value = (self.split_heads(zero_padding(pack_tokens(x, order), mask)) for x in (key, value))
        length = memory.shape[1]
        key_projection = self.project_key[:, :, :length]
        value_projection = key_projection if self.project_value is None else self.project_value[:, :, :length]
        heads = functional.scaled_dot_product_attention(
            query,
            key_projection.to(key.dtype) @ key,
            value_projection.to(value.dtype) @ value,
            dropout_p=self.active_dropout,
        )
        return AttentionOutput(self.output(self.merge_heads(heads)))


def _projection(heads: int, rank: int, length: int) -> nn.Parameter:
    matrices = [nn.init.xavier_uniform_(torch.empty(rank, length), gain=0.5**0.5) for _ in range(heads)]
    return nn.Parameter(torch.stack(matrices))
