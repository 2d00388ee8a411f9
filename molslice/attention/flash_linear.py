"""FLASH: gated attention that is quadratic within chunks and linear across them."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits, check_least
from molslice.ops.features import full_precision, precise
from molslice.ops.packing import pack_tokens, packed_mask, packing_order, unpack_tokens
from molslice.types import AttentionOutput, AttentionSpec, TokenContext


class FlashLinear(Attention):
    """out = (U * (V_quad + V_lin)) W_O, the gated attention unit with mixed chunk attention.

    U = silu(X W_U) and V = silu(X W_V) have e = `expansion` D channels, Z = silu(X W_Z) has s = `key_dim`.
    Two pairs of Q and K are Z, each scaled and shifted per channel. The real tokens are cut into chunks of c
    = `chunk_size`; the last one may be shorter:

        V_quad = relu(Q_quad K_quad^T / sqrt(s))^2 V / c_g within chunk g of c_g tokens
        V_lin = Q_lin (K_lin^T V) / n over all n tokens

    In the causal form, V_quad runs over the tokens of the chunk up to the query, divided by their number
    (ours), and V_lin over the chunks before, divided by the number of their tokens; it is zero in the first
    chunk. The causal form stores an s x e matrix for each chunk, N s e / c numbers in all. Dropout is applied
    to the output, for both parts. A pair bias can only be used with `pair_bias: mix` (ours): softmax(S + E) V
    replaces V, with head h on channels h e / H to (h + 1) e / H.

    Args:
        chunk_size: Number of tokens per chunk c.
        expansion: Number of channels e of U and V, divided by the width D.
        key_dim: Number of channels s of Q and K. There is one Q for all heads, so `head_dim` is refused.

    Source: Hua et al. 2022 (FLASH), mixed chunk attention; e = 2 D, s = 128 and c = 256 are the paper's. The
    scale of the squared ReLU and the initial scales of Q and K are as in `flash_quad`. The paper's
    relative position bias and rotary positions are omitted: within a chunk tokens have no order.
    """

    vectors: ClassVar[tuple[str, ...]] = ("scale", "shift")
    traits: ClassVar[Traits] = Traits(
        source="FLASH, arXiv 2202.10447",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        causal=True,
    )

    def __init__(
        self, spec: AttentionSpec, *, chunk_size: int = 256, expansion: int = 2, key_dim: int = 128
    ) -> None:
        check_least("flash_linear", 1, chunk_size=chunk_size, expansion=expansion, key_dim=key_dim)
        super().__init__(spec)
        self.chunk_size, self.expansion, self.key_dim = chunk_size, expansion, key_dim
        self.gate = Projection(spec.dim, expansion * spec.dim)
        self.value = Projection(spec.dim, expansion * spec.dim, bias=spec.qkv_bias)
        self.shared = Projection(spec.dim, key_dim, bias=spec.qkv_bias)
        # Of Q_quad, K_quad, Q_lin and K_lin
        self.scale = nn.Parameter(1 + 0.02 * torch.randn(4, key_dim))
        self.shift = nn.Parameter(torch.zeros(4, key_dim))
        self.output = Projection(expansion * spec.dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Process packed tokens in chunks [B, G, c, channels], with scores and sums in at least float32."""
        order = packing_order(context.token_mask)
        gate, value, shared = (functional.silu(f(tokens)) for f in (self.gate, self.value, self.shared))
        value = self.mix_values(value, context)
        real = self._chunks(packed_mask(context.token_mask)[..., None])
        value = precise(self._chunks(pack_tokens(value, order))).masked_fill(~real, 0.0)
        shared = precise(self._chunks(pack_tokens(shared, order)))
        with full_precision(shared):
            quad_query, quad_key, query, key = (shared * self.scale[i] + self.shift[i] for i in range(4))
            mixed = self._within(quad_query, quad_key, value, real) + self._across(query, key, value, real)
        mixed = unpack_tokens(mixed.flatten(1, 2)[:, : tokens.shape[1]], order)
        return AttentionOutput(self.dropout(self.output(gate * mixed.to(gate.dtype))))

    def _chunks(self, values: Tensor) -> Tensor:
        length = values.shape[1]
        # A chunk is at most as long as the padded sequence: the real tokens are then still in one chunk.
        chunk = min(self.chunk_size, length)
        return functional.pad(values, (0, 0, 0, -length % chunk)).unflatten(1, (-1, chunk))

    def _within(
        self,
        query: Float[Tensor, "B G c s"],
        key: Float[Tensor, "B G c s"],
        value: Float[Tensor, "B G c e"],
        real: Bool[Tensor, "B G c 1"],
    ) -> Float[Tensor, "B G c e"]:
        weights = (query @ key.transpose(2, 3) / self.key_dim**0.5).relu().square()
        weights = weights.masked_fill(~real.transpose(2, 3), 0.0)
        if not self.spec.causal:
            return (weights @ value) / real.sum(2, keepdim=True).clamp(min=1)
        count = torch.arange(1, query.shape[2] + 1, device=query.device)[:, None]
        return (weights.tril() @ value) / count

    def _across(
        self,
        query: Float[Tensor, "B G c s"],
        key: Float[Tensor, "B G c s"],
        value: Float[Tensor, "B G c e"],
        real: Bool[Tensor, "B G c 1"],
    ) -> Float[Tensor, "B G c e"]:
        if not self.spec.causal:
            key, value = key.masked_fill(~real, 0.0).flatten(1, 2), value.flatten(1, 2)
            count = real.sum((1, 2)).clamp(min=1)[..., None]
            return query @ (key.transpose(1, 2) / count @ value)[:, None]
        chunks = key.masked_fill(~real, 0.0).transpose(2, 3) @ value
        # Shift the sums. Subtracting the chunk itself would round by future values.
        # Chunks before one with real tokens are full.
        before = functional.pad(chunks.cumsum(1)[:, :-1], (0, 0, 0, 0, 1, 0))
        count = torch.arange(query.shape[1], device=query.device)[:, None, None] * query.shape[2]
        return query @ (before / count.clamp(min=1))
