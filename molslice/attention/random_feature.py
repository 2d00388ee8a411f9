"""Random feature attention: a Gaussian kernel of unit queries and keys, estimated by sines and cosines."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.attention.base import Attention, Projection, Traits
from molslice.ops.features import (
    fourier_features,
    gaussian_projection,
    kernel_average,
    layer_generator,
    precise,
    unit_vectors,
)
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

FLOOR = 0.1  # lower bound of the mean of estimated weights, which is at least exp(-2) = 0.135 for s = 1


class RandomFeature(Attention):
    """out_i = sum_j phi(q_i) phi(k_j) V_j / max(sum_j phi(q_i) phi(k_j), 0.1 n) W_O, per head.

    q = Q / |Q| and k = K / |K| per head. phi(x) = [sin(w_f (s x)), cos(w_f (s x))] / sqrt(F), f = 1 .. F, so
    that phi(q) phi(k) is an unbiased estimate of exp(-|s (q - k)|^2 / 2), which is exp(q k - 1) for s = 1. s
    is the `scale` of the head, C numbers. The w_f are standard normal and separate for each head. They are
    drawn once and stored as a buffer; the authors redraw them in training. Sums run over the real tokens, and
    over j <= i in the causal form; n is their number of terms. Estimates may be negative. The bound 0.1 n of
    their sum is ours; the authors' code clamps at values between 0.01 and 1 that depend on the scale of its
    features, with which outputs can grow with n. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    Args:
        spec: Settings that the model passes to each attention.
        num_features: Number of vectors F for each head; None for C.
        learned_scale: Whether s is learned, from an initial value of 1; if false, it stays 1.
        seed: Seed of the w_f, together with the layer.

    Raises:
        MolsliceError: An option is invalid, or `traits` exclude what the spec asks for.

    Source: Peng et al. 2021, section 3, without the gate of the causal form.
    """

    traits: ClassVar[Traits] = Traits(
        source="Random Feature Attention, arXiv 2103.02143",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        causal=True,
        cross=True,
    )
    projection: Tensor

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        num_features: int | None = None,
        learned_scale: bool = True,
        seed: int = 0,
    ) -> None:
        if num_features is not None and num_features < 1:
            raise MolsliceError(f"random_feature takes num_features of at least 1, got {num_features}")
        if seed < 0:
            raise MolsliceError(f"random_feature takes a seed of at least 0, got {seed}")
        super().__init__(spec)
        self.num_features = spec.head_dim if num_features is None else num_features
        self.query = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.output = Projection(spec.dim, spec.dim)
        self.scale = nn.Parameter(torch.ones(spec.num_heads, 1, spec.head_dim)) if learned_scale else None
        shape = (spec.num_heads, self.num_features, spec.head_dim)
        projection = gaussian_projection(shape, layer_generator(seed, spec.layer))
        self.register_buffer("projection", projection)  # trained weights depend on these features
        self.dropout = nn.Dropout(spec.dropout)  # applied to the output: the weights are never computed

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Sum over keys and values first, then apply the queries."""
        memory, memory_mask = self.memory_of(tokens, context)
        query, key = self._features(self.query(tokens)), self._features(self.key(memory))
        key = key.masked_fill(~memory_mask[:, None, :, None], 0.0)
        value = self.split_heads(self.value(memory))
        if self.spec.pair_bias_mode == "mix":
            value = self.mix_pairs(value, context)
        count = memory_mask.cumsum(1) if self.spec.causal else memory_mask.sum(1, keepdim=True)
        floor = FLOOR * count.clamp(min=1)[:, None, :, None].to(query.dtype)
        heads = kernel_average(query, key, value, floor, self.spec.causal)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    def _features(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B H N F"]:
        x = unit_vectors(precise(self.split_heads(x)))
        return fourier_features(x if self.scale is None else x * self.scale, self.projection)
