"""Performer: softmax attention estimated by positive orthogonal random features (FAVOR+)."""

import math
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import QueryKeyValueAttention, Traits, check_least
from molslice.ops.features import (
    full_precision,
    layer_generator,
    log_exponential_features,
    orthogonal_projection,
    two_averages,
)
from molslice.ops.masked import masked_softmax
from molslice.ops.running import running_product
from molslice.types import AttentionOutput, AttentionSpec, TokenContext

_LOWEST = -1e30  # exponent of padding
_TINY = 1e-30  # replaces a divisor of zero; its inverse is finite in float32


class Performer(QueryKeyValueAttention):
    """out_i = sum_j phi(q_i) phi(k_j) V_j / sum_j phi(q_i) phi(k_j) W_O, per head, q, k = Q, K / C^(1/4).

    phi_f(x) = exp(w_f x - |x|^2 / 2), f = 1 .. F. The mean over f of phi_f(q) phi_f(k) is an unbiased
    estimate of exp(q k). The w_f are standard normal and orthogonal in blocks of C. They are drawn once, are
    shared by all heads, and are stored as a buffer; they are not redrawn in training. Sums run over the real
    tokens, and over j <= i in the causal form. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    The stabilizer is ours. The paper's code subtracts from the exponents of the keys their maximum over all
    tokens, including padding and future tokens, and adds eps to the features; both leak information. The full
    form here is softmax_f(log phi_f(q) + L_f) softmax_j(log phi_f(k_j)) V with L_f = logsumexp_j(log
    phi_f(k_j)). It is equal in exact arithmetic, without eps. The causal form subtracts the maximum over f
    from the exponents of each query and of each key. The maxima of the keys are weights of the running sums,
    relative to the largest one so far.

    Args:
        num_features: Number of features F; None for C ceil(ln C).
        seed: Seed of the w_f, together with the layer.

    Source: Choromanski et al. 2021, sections 2.3 and 2.4.
    """

    traits: ClassVar[Traits] = Traits(
        source="Performer, arXiv 2009.14794",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        causal=True,
        cross=True,
        head_dim=True,
    )
    projection: Tensor

    def __init__(self, spec: AttentionSpec, *, num_features: int | None = None, seed: int = 0) -> None:
        check_least("performer", 1, num_features=num_features)
        check_least("performer", 0, seed=seed)
        super().__init__(spec)
        size = spec.head_dim
        if num_features is None:
            num_features = size * max(1, math.ceil(math.log(size)))
        self.num_features = num_features
        projection = orthogonal_projection(num_features, size, layer_generator(seed, spec.layer))
        self.register_buffer("projection", projection)  # trained weights depend on these features

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute the attention from the logarithms of the features."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        query, key = (
            log_exponential_features(x / self.spec.head_dim**0.25, self.projection) for x in (query, key)
        )
        mask = memory_mask[:, None, :, None]
        if self.spec.causal:
            heads = self._causal(query, key, value, mask)
        else:
            by_token = masked_softmax(key, mask, 2)
            total = key.masked_fill(~mask, torch.finfo(key.dtype).min).logsumexp(2, keepdim=True)
            heads = two_averages((query + total).softmax(-1), by_token, value)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    def _causal(
        self,
        query: Float[Tensor, "B H N F"],
        key: Float[Tensor, "B H N F"],
        value: Float[Tensor, "B H N C"],
        mask: Bool[Tensor, "B 1 N 1"],
    ) -> Float[Tensor, "B H N C"]:
        with full_precision(query):
            query, top = ((query - query.detach().amax(-1, keepdim=True)).exp(), key.detach().amax(-1))
            key = (key - top[..., None]).exp().masked_fill(~mask, 0.0)
            # A column of ones next to the values, so that divisor and dividend are rounded alike.
            value = functional.pad(value.to(query.dtype), (0, 1), value=1.0)
            sums = running_product(query, key, value, top.masked_fill(~mask[..., 0], _LOWEST))
            return sums[..., :-1] / sums[..., -1:].clamp(min=_TINY)
