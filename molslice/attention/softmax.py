"""Softmax attention, as in the Transformer, ViT and Graphormer."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import ExactMap, QueryKeyValueAttention, Traits
from molslice.ops.biased_attention import biased_attention
from molslice.ops.features import precise
from molslice.ops.masked import masked_pair_bias, masked_softmax, pair_mask, working_dtype
from molslice.ops.packed_attention import has_kernels, packed_attention
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, State, TokenContext


class Softmax(QueryKeyValueAttention):
    """out = softmax(Q K^T / sqrt(C) + S + E) V W_O, per head.

    One token at a time, the state holds all keys and values. With `pair_bias: mix`, softmax(S + E) V replaces
    V (ours).

    Args:
        fused: Whether to use `scaled_dot_product_attention`, which avoids N x N tensors where its kernels
            can, or with a pair bias `biased_attention`. If false, matmul, softmax, dropout and matmul run
            separately, as in the Transformers that the papers compare with. Both compute the same function.

    Source: Vaswani et al. 2017, equation 1; Ying et al. 2021 (Graphormer), equations 6 and 7, for the pair
    bias in the scores.
    """

    traits: ClassVar[Traits] = Traits(
        source="Attention Is All You Need, arXiv 1706.03762; Graphormer, arXiv 2106.05234",
        cost="quadratic",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, fused: bool = True) -> None:
        if not isinstance(fused, bool):
            raise MolsliceError(f"softmax: fused must be true or false, got {fused!r}")
        super().__init__(spec)
        self.fused = fused

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Pass bias and padding to the kernel as one mask."""
        if self.ignores_padding(tokens, context):
            return self._mix_packed(tokens, context)
        query = self.split_heads(self.query(context.first(tokens)))
        key, value, _ = self.project_memory(tokens, context)
        dropout = self.active_dropout
        if not self.fused:
            heads = _attend_unfused(query, key, value, self._needed_mask(context, query.dtype), dropout)
        elif context.all_real and not self.spec.cross and self.spec.pair_bias_mode != "logits":
            # Without a mask, PyTorch can choose a flash kernel.
            heads = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self.spec.causal
            )
        else:
            mask = self._needed_mask(context, query.dtype)
            attend = biased_attention if mask.is_floating_point() else functional.scaled_dot_product_attention
            heads = attend(query, key, value, mask, dropout)
        return AttentionOutput(self.output(self.merge_heads(heads)))

    def ignores_padding(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether a kernel computes all heads of a sequence from one product."""
        spec = self.spec
        return (
            self.fused
            and spec.pair_bias_mode == "logits"
            and not spec.causal
            and has_kernels(tokens, spec.head_dim, working_dtype(tokens))
        )

    def _mix_packed(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute Q, K and V in one product, and hand the bias on to the next layer as `carry`."""
        packed, bias = self.project_packed(tokens)
        pair_bias = self.handed_on_bias(context, packed.dtype)
        heads, pair_bias = packed_attention(packed, pair_bias, context.token_mask, self.active_dropout, bias)
        return self.read_out(heads.flatten(-2), context, pair_bias)

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return softmax(Q K^T / sqrt(C) + S + E); with `mix`, multiplied by softmax(S + E)."""
        return ExactMap(self.exact_rows(tokens, context, torch.arange(tokens.shape[1], device=tokens.device)))

    def exact_rows(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext, rows: Int[Tensor, " K"]
    ) -> Float[Tensor, "B H K M"]:
        """Return some rows of the exact attention map, by its formula."""
        memory, memory_mask = self.memory_of(tokens, context)
        query, key = self.split_heads(self.query(tokens[:, rows])), self.split_heads(self.key(memory))
        scores = query @ key.transpose(2, 3) / self.spec.head_dim**0.5
        bias = self.added_bias(context)
        if bias is not None:
            scores = scores + bias[:, :, rows]
        seen = context.token_mask[:, rows, None] & memory_mask[:, None]
        if self.spec.causal:
            place = torch.arange(seen.shape[-1], device=seen.device)
            seen = seen & (place <= rows.to(seen.device)[:, None])
        return self.mix_map(masked_softmax(scores, seen[:, None]), context)

    def _empty_state(self, batch: int) -> State:
        """Return empty keys and values."""
        empty = self.key.weight.new_zeros(batch, self.spec.num_heads, 0, self.spec.head_dim)
        return empty, empty

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Append one key and value, then apply the query to all of them."""
        query, key, value = (self.split_heads(f(token)[:, None]) for f in (self.query, self.key, self.value))
        keys, values = torch.cat([state[0], key], 2), torch.cat([state[1], value], 2)
        heads = functional.scaled_dot_product_attention(query, keys.to(query.dtype), values.to(query.dtype))
        return self.output(self.merge_heads(heads))[:, 0], (keys, values)

    def _needed_mask(self, context: TokenContext, dtype: torch.dtype) -> Tensor:
        """Return the rows of the mask for the tokens that the caller needs."""
        mask = self._mask(context, dtype)
        return mask if mask.shape[2] == 1 else context.first(mask, 2)  # one row stands for all

    def _mask(self, context: TokenContext, dtype: torch.dtype) -> Tensor:
        mask, bias = context.token_mask, self.added_bias(context)
        if bias is not None:
            masked = context.masked_bias
            if masked is None or masked.dtype != dtype:
                masked = masked_pair_bias(bias.to(dtype), mask, self.spec.causal)
            return masked
        if self.spec.causal:
            # Padding attends to itself, so that no row is fully masked and becomes NaN.
            return pair_mask(mask, causal=True) | torch.eye(
                mask.shape[1], dtype=torch.bool, device=mask.device
            )
        if context.memory_mask is not None:
            mask = context.memory_mask
        # A sequence without real tokens attends to its padding: finite, and zeroed at the end.
        return (mask | ~mask.any(-1, keepdim=True))[:, None, None]


def _attend_unfused(
    query: Float[Tensor, "B H N C"],
    key: Float[Tensor, "B H M C"],
    value: Float[Tensor, "B H M C"],
    mask: Tensor,
    dropout: float,
) -> Float[Tensor, "B H N C"]:
    """Compute `scaled_dot_product_attention` with the N x M scores and weights in memory."""
    scores = precise(query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2))
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    else:
        scores = scores + mask
    weights = functional.dropout(scores.softmax(-1), dropout)
    return weights.to(value.dtype) @ value
