"""Random feature attention: a Gaussian kernel of unit queries and keys, estimated by sines and cosines."""

from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Projection, QueryKeyValueAttention, Traits, check_least
from molslice.ops.features import (
    fourier_features,
    gaussian_projection,
    kernel_average,
    kernel_step,
    layer_generator,
    precise,
    unit_vectors,
)
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, State, TokenContext

FLOOR = 0.1  # lower bound of the mean of estimated weights, which is at least exp(-2) = 0.135 for s = 1
GATE_BIAS = 3.0  # of the gate at the start: g is 0.95, a memory of about 20 tokens (ours)
_TINY = 1e-30  # replaces a sum of no terms


class RandomFeature(QueryKeyValueAttention):
    """out_i = sum_j phi(q_i) phi(k_j) V_j / max(sum_j phi(q_i) phi(k_j), 0.1 n) W_O, per head.

    q = Q / |Q| and k = K / |K| per head. phi(x) = [sin(w_f (s x)), cos(w_f (s x))] / sqrt(F), f = 1 .. F, so
    that phi(q) phi(k) is an unbiased estimate of exp(-|s (q - k)|^2 / 2), which is exp(q k - 1) for s = 1. s
    is the `scale` of the head, C numbers. The w_f are standard normal and separate for each head. They are
    drawn once and stored as a buffer; the authors redraw them in training. Sums run over the real tokens, and
    over j <= i in the causal form; n is their number of terms. Estimates may be negative. The bound 0.1 n of
    their sum is ours; the authors' code clamps at values between 0.01 and 1 that depend on the scale of its
    features, with which outputs can grow with n. With `pair_bias: mix`, softmax(S + E) V replaces V (ours).

    With `gate`, token i of the causal form has g_i = sigmoid(x_i w_g + b_g), one number per head, and both
    sums forget: s_i = g_i s_(i-1) + (1 - g_i) phi(k_i) [V_i, 1], so that the term of j has the factor (1 -
    g_j) g_(j+1) ... g_i. n is then the sum of these factors, 1 - g_1 ... g_i.

    One token at a time, the state is these sums, 2 F (C + 1) numbers per head, and n.

    Args:
        num_features: Number of vectors F for each head; None for C.
        learned_scale: Whether s is learned, from an initial value of 1; if false, it stays 1.
        gate: Whether the sums forget earlier tokens. It needs the causal form.
        seed: Seed of the w_f, together with the layer.

    Source: Peng et al. 2021, section 3; the gate is RFA-Gate.
    """

    vectors: ClassVar[tuple[str, ...]] = ("scale",)
    traits: ClassVar[Traits] = Traits(
        source="Random Feature Attention, arXiv 2103.02143",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "mix"),
        causal=True,
        recurrent=True,
        cross=True,
        head_dim=True,
    )
    projection: Tensor

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        num_features: int | None = None,
        learned_scale: bool = True,
        gate: bool = False,
        seed: int = 0,
    ) -> None:
        check_least("random_feature", 1, num_features=num_features)
        check_least("random_feature", 0, seed=seed)
        if gate and not spec.causal:
            raise MolsliceError(
                "random_feature with gate: true forgets earlier tokens, which only the causal form has; "
                "use a causal task or gate: false"
            )
        super().__init__(spec, replace(self.traits, cross=not gate))
        self.num_features = spec.head_dim if num_features is None else num_features
        self.scale = nn.Parameter(torch.ones(spec.num_heads, 1, spec.head_dim)) if learned_scale else None
        self.gate = Projection(spec.dim, spec.num_heads) if gate else None
        shape = (spec.num_heads, self.num_features, spec.head_dim)
        projection = gaussian_projection(shape, layer_generator(seed, spec.layer))
        self.register_buffer("projection", projection)  # trained weights depend on these features

    def reset_parameters(self) -> None:
        """Initialize the weights, and the gate so that it remembers."""
        super().reset_parameters()
        if self.gate is not None:
            nn.init.constant_(self.gate.bias, GATE_BIAS)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Sum over keys and values first, then apply the queries."""
        query, key, value, memory_mask = self.project_heads(tokens, context)
        query = self._features(query)
        key = self._features(key).masked_fill(~memory_mask[:, None, :, None], 0.0)
        if self.gate is None:
            count = memory_mask.cumsum(1) if self.spec.causal else memory_mask.sum(1, keepdim=True)
            floor = FLOOR * count.clamp(min=1)[:, None, :, None].to(query.dtype)
            heads = kernel_average(query, key, value, floor, self.spec.causal)
        else:
            heads = self._forget(query, key, value, self.gate(tokens), memory_mask)
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    @staticmethod
    def _forget(
        query: Float[Tensor, "B H N F"],
        key: Float[Tensor, "B H N F"],
        value: Float[Tensor, "B H N C"],
        gate: Float[Tensor, "B N H"],
        mask: Bool[Tensor, "B N"],
    ) -> Float[Tensor, "B H N C"]:
        gate = precise(gate).transpose(1, 2)[..., None]
        log_decay = functional.logsigmoid(gate).masked_fill(~mask[:, None, :, None], 0.0)
        size = -log_decay.cumsum(2).expm1()
        floor = FLOOR * size.clamp(min=_TINY)
        return kernel_average(query, key * (-gate).sigmoid(), value, floor, True, log_decay)

    def _empty_state(self, batch: int) -> State:
        """Return the empty sum of phi(K_j) [V_j, 1], and n."""
        size, weight = self.spec.head_dim, precise(self.key.weight)
        past = weight.new_zeros(batch, self.spec.num_heads, 2 * self.num_features, size + 1)
        return past, weight.new_zeros(batch, self.spec.num_heads, 1)

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Add one key and value, after the gate has forgotten, then apply the query."""
        past, size = state
        query, key = (
            self._features(self.split_heads(f(token)[:, None]))[:, :, 0] for f in (self.query, self.key)
        )
        value = self.value(token).unflatten(-1, (self.spec.num_heads, -1))
        if self.gate is None:
            size = size + 1
        else:
            gate = precise(self.gate(token))[..., None]
            remembered, added = gate.sigmoid(), (-gate).sigmoid()
            key, past, size = key * added, past * remembered[..., None], size * remembered + added
        heads, past = kernel_step(query, key, value, past, FLOOR * size.clamp(min=_TINY))
        return self.dropout(self.output(heads.flatten(1).to(token.dtype))), (past, size)

    def _features(self, x: Float[Tensor, "B H N C"]) -> Float[Tensor, "B H N F"]:
        x = unit_vectors(precise(x))
        return fourier_features(x if self.scale is None else x * self.scale, self.projection)
