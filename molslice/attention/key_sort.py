"""Key sort: learnable slice-and-sort with weights from sorted keys, with 2 D^2 + 3 D H parameters."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits
from molslice.ops.features import precise
from molslice.ops.laplace import laplace_mix
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class KeySort(Attention):
    """out = (gate * softmax(b_j - slope |q_i - k_j| + S + E) V) W_O, per head with numbers q_i, k_j, b_j.

    Each head computes three numbers for each token: the query position q = x w_q + shift, the key position k
    = x w_k, and the weight b = x w_b. These 3 D H parameters replace the 2 D^2 of query and key. On sorted
    keys the weights exp(b_j - slope |q_i - k_j|) split into two products. Without a pair bias, a sort and two
    running sums then give the exact result in N log N, without an N x N matrix. Unlike in `slice_sort`, the
    sort has a gradient: the result is continuous when two keys change order.

    With `pair_bias: logits`, S + E is added to the exponents, which needs an N x N matrix, as large as the
    bias. With `mix`, softmax(S + E) V replaces V.

    Args:
        gate: Whether to multiply the output of a token by silu(a * v + c) of its own values v, with learned a
            and c for each channel.
        slope: Scale of the distances at the start, and of the learning speed of the positions. Of 1 and 0.1,
            0.1 had the smaller error on molecules (benchmarks/results/learnable_sort.json).

    Source: ours, for the learnable slicing-and-sorting that Sliceformer (arXiv 2310.17683) leaves open. The
    weights that a token assigns sum to one, but those that it receives need not, so the mixing is not doubly
    stochastic. The file benchmarks/results/learnable_sort.json compares it with the other designs.
    """

    vectors: ClassVar[tuple[str, ...]] = ("gate",)
    traits: ClassVar[Traits] = Traits(
        source="ours; the learnable sort that Sliceformer, arXiv 2310.17683, leaves open",
        cost="log_linear",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        cross=True,
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, gate: bool = True, slope: float = 0.1) -> None:
        if not 0 < slope < float("inf"):
            raise MolsliceError(f"key_sort takes a positive slope, got {slope}")
        super().__init__(spec)
        self.slope = slope
        self.query = Projection(spec.dim, spec.num_heads, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.num_heads, bias=False)  # only q - k matters: one shift is enough
        self.weight = Projection(spec.dim, spec.num_heads, bias=False)  # softmax cancels a bias
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)
        self.gate = (
            nn.Parameter(torch.stack([torch.zeros(spec.inner_dim), torch.ones(spec.inner_dim)]))
            if gate
            else None
        )

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute exponents in at least float32. Dropout is on the weights, or on the output of the sort."""
        memory, memory_mask = self.memory_of(tokens, context)
        given = self.value(tokens)
        value = self.split_heads(self.value(memory) if self.spec.cross else given)
        value = self.mix_pairs(value, context)
        given = context.first(given)
        query = precise(self.query(context.first(tokens))).transpose(1, 2) * self.slope
        key = precise(self.key(memory)).transpose(1, 2) * self.slope
        logit, bias = precise(self.weight(memory)).transpose(1, 2), self.added_bias(context)
        if bias is not None:
            scores = logit[:, :, None] - (query[..., None] - key[:, :, None]).abs() + context.first(bias, 2)
            seen = context.first(pair_mask(context.token_mask), 2)
            weights = self.dropout(masked_softmax(scores, seen))
            heads = weights.to(value.dtype) @ value
        else:
            heads = self.dropout(laplace_mix(query, key, logit, precise(value), memory_mask))
        mixed = self.merge_heads(heads).to(given.dtype)
        if self.gate is not None:
            mixed = mixed * functional.silu(self.gate[0] * given + self.gate[1])
        return AttentionOutput(self.output(mixed.to(tokens.dtype)))
