"""Flow attention: conservation of flow in place of softmax, in linear time."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from molslice.attention.base import Attention, ExactMap, Projection, Traits
from molslice.ops.causal import causal_product
from molslice.ops.masked import masked_softmax, masked_sum, pair_mask
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, State, TokenContext

EPS = 1e-6


class _Flow(NamedTuple):
    """The terms of the flow of each head.

    Attributes:
        query: phi(Q) [B, H, N, C].
        key: phi(K) [B, H, M, C].
        incoming: Incoming flow I of each sink [B, H, N, 1].
        competition: Weight of each source, the factor of V in V' [B, H, M, 1].
        allocation: Share of its flow that each sink receives, sigmoid(I') [B, H, N, 1].
    """

    query: Float[Tensor, "B H N C"]
    key: Float[Tensor, "B H N C"]
    incoming: Float[Tensor, "B H N 1"]
    competition: Float[Tensor, "B H N 1"]
    allocation: Float[Tensor, "B H N 1"]


class _Past(NamedTuple):
    """The running sums of the causal form over the first t tokens, numbered from 1.

    Attributes:
        count: Number t of tokens [B, H, 1].
        keys: Sum of phi(K_j) [B, H, C].
        queries: Sum of phi(Q_i) [B, H, C].
        sources: Sum of j phi(K_j) / O_j [B, H, C].
        sinks: Sum of i phi(Q_i) / I_i [B, H, C].
        log_total: Logarithm of the sum of exp(O'_j) [B, H, 1].
        key_values: Sum of phi(K_j) V'_j [B, H, C, C].
    """

    count: Float[Tensor, "B H 1"]
    keys: Float[Tensor, "B H C"]
    queries: Float[Tensor, "B H C"]
    sources: Float[Tensor, "B H C"]
    sinks: Float[Tensor, "B H C"]
    log_total: Float[Tensor, "B H 1"]
    key_values: Float[Tensor, "B H C C"]


class Flow(Attention):
    """out = (phi(Q) / I) (phi(K)^T V') * sigmoid(I') W_O, per head, with phi = sigmoid.

    Sums run over the n real tokens, and eps is added in each division:

        I = phi(Q) sum phi(K), O = phi(K) sum phi(Q)
        I' = phi(Q) sum(phi(K) / O), O' = phi(K) sum(phi(Q) / I)
        V' = V * softmax_over_tokens(O') * n

    In cross attention the sums over K run over the m memory tokens, the factor is m, and I' is replaced by I'
    n / m. The causal form sums up to the token itself, whose number t counts from 1:

        I_t = phi(Q_t) sum_{j<=t} phi(K_j), O_t = phi(K_t) sum_{i<=t} phi(Q_i)
        I'_t = phi(Q_t) sum_{j<=t} (j phi(K_j) / O_j) / t, O'_t = phi(K_t) sum_{i<=t} (i phi(Q_i) / I_i) / t
        V'_t = V_t * t exp(O'_t) / sum_{j<=t} exp(O'_j)

    One token at a time, the state is these sums, C C + 4 C + 1 numbers per head, and t. With `pair_bias:
    logits`, the capacities phi(Q) phi(K)^T become (phi(Q) phi(K)^T) * exp(S + E), and all sums above run over
    them (ours); a bias of zero changes nothing. With `mix`, softmax(S + E) V replaces V (ours).

    Args:
        spec: Settings that the model passes to each attention.
        clamp: Limits O' to [-clamp, clamp] before the competition; None does not limit it.

    Raises:
        MolsliceError: An option is invalid, or `traits` exclude what the spec asks for.

    Source: Wu et al. 2022 (Flowformer), the normal and the causal algorithm of the paper. The factors j, i
    and t of the causal form are those of the authors' code.
    """

    traits: ClassVar[Traits] = Traits(
        source="Flowformer, arXiv 2202.06258",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        recurrent=True,
        cross=True,
    )

    def __init__(self, spec: AttentionSpec, *, clamp: float | None = None) -> None:
        if clamp is not None and clamp <= 0:
            raise MolsliceError(f"flow takes a positive clamp or null, got {clamp}")
        super().__init__(spec)
        self.clamp = clamp
        self.query = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.key = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.value = Projection(spec.dim, spec.dim, bias=spec.qkv_bias)
        self.output = Projection(spec.dim, spec.dim)
        self.dropout = nn.Dropout(spec.dropout)  # applied to the output, as in the authors' code

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Run in linear time; with `logits`, the capacities are an N x N matrix."""
        memory, memory_mask = self.memory_of(tokens, context)
        query = self.split_heads(self.query(tokens))
        key, value = (self.split_heads(f(memory)) for f in (self.key, self.value))
        if self.spec.pair_bias_mode == "mix":
            value = self.mix_pairs(value, context)
        mask, memory_mask = context.token_mask[:, None, :, None], memory_mask[:, None, :, None]
        # Sums of thousands of positive terms need float32, also if the model computes in half precision.
        query, key = (x.float() if x.dtype != torch.float64 else x for x in (query, key))
        query = query.sigmoid().masked_fill(~mask, 0.0)
        key = key.sigmoid().masked_fill(~memory_mask, 0.0)
        if self.spec.pair_bias_mode == "logits":
            heads = self._capacities(query, key, value, mask, context)
        elif self.spec.causal:
            flow = self._causal_flow(query, key, mask)
            heads = (
                causal_product(flow.query / flow.incoming, key, value * flow.competition) * flow.allocation
            )
        else:
            flow = self._flow(query, key, mask, memory_mask)
            sources = key.transpose(2, 3).to(value.dtype) @ (value * flow.competition).to(value.dtype)
            heads = (query / flow.incoming).to(value.dtype) @ sources * flow.allocation
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return (phi(Q) / I) phi(K)^T with competition on the columns and allocation on the rows.

        Parts: `competition` and `allocation` [B, H, N]. By token: the competition as a source, which is 1 on
        average, and the allocation as a sink, both as means over the heads.
        """
        causal, mask = self.spec.causal, context.token_mask[:, None, :, None]
        query, key = (
            self.split_heads(f(tokens)).sigmoid().masked_fill(~mask, 0.0) for f in (self.query, self.key)
        )
        capacity = query @ key.transpose(2, 3)
        if self.spec.pair_bias_mode == "logits" and context.pair_bias is not None:
            bias = context.pair_bias.masked_fill(~pair_mask(context.token_mask), -torch.inf)
            # eps is not scaled with the capacities, so subtract exactly what the attention subtracts
            largest = 0.0 if causal else bias.amax((2, 3), keepdim=True).nan_to_num(0, 0, 0)
            capacity = capacity * (bias - largest).exp()
        inflow, outflow = (capacity.tril(), capacity.triu()) if causal else (capacity, capacity)
        count = mask.cumsum(2).clamp(min=1) if causal else torch.ones_like(mask, dtype=capacity.dtype)
        incoming = inflow.sum(3, keepdim=True) + EPS
        outgoing = outflow.sum(2)[..., None] + EPS
        allocation = (inflow @ (count / outgoing).masked_fill(~mask, 0.0) / count).sigmoid()
        source = outflow.transpose(2, 3) @ (count / incoming).masked_fill(~mask, 0.0) / count
        if self.clamp is not None:
            source = source.clamp(-self.clamp, self.clamp)
        if causal:
            source = source.masked_fill(~mask, torch.finfo(source.dtype).min / 2)
            competition = (source - source.logcumsumexp(2)).exp().masked_fill(~mask, 0.0) * count
        else:
            competition = masked_softmax(source, mask, 2) * mask.sum(2, keepdim=True)
        weights = inflow / incoming * competition.transpose(2, 3) * allocation
        mixing = self.pair_mixing(context)
        weights = weights if mixing is None else weights @ mixing
        parts = {"competition": competition[..., 0], "allocation": allocation[..., 0]}
        return ExactMap(weights, parts, {name: part.mean(1) for name, part in parts.items()})

    def _flow(
        self,
        query: Float[Tensor, "B H N C"],
        key: Float[Tensor, "B H M C"],
        sinks: Bool[Tensor, "B 1 N 1"],
        sources: Bool[Tensor, "B 1 M 1"],
    ) -> _Flow:
        def total(x: Tensor, mask: Tensor) -> Tensor:
            return masked_sum(x, mask, 2)[:, :, None]

        incoming = (query * total(key, sources)).sum(-1, keepdim=True) + EPS
        outgoing = (key * total(query, sinks)).sum(-1, keepdim=True) + EPS
        conserved_sink = (query * total(key / outgoing, sources)).sum(-1, keepdim=True)
        conserved_source = (key * total(query / incoming, sinks)).sum(-1, keepdim=True)
        # The factor n is in the authors' code, not in algorithm 1; without it the output shrinks as 1 / n.
        competition = masked_softmax(self._clamped(conserved_source), sources, 2)
        # With n sinks and m sources and the factor m, a sink receives m / n of its flow in self-attention.
        n, m = (mask.sum(2, keepdim=True).to(query.dtype) for mask in (sinks, sources))
        allocation = (conserved_sink * n / m.clamp(min=1)).sigmoid()
        return _Flow(query, key, incoming, competition * m, allocation)

    def _causal_flow(self, query: Tensor, key: Tensor, mask: Bool[Tensor, "B 1 N 1"]) -> _Flow:
        count = mask.cumsum(2).clamp(min=1)
        incoming = (query * key.cumsum(2)).sum(-1, keepdim=True) + EPS
        outgoing = (key * query.cumsum(2)).sum(-1, keepdim=True) + EPS
        sink = (query * (key * (count / outgoing)).cumsum(2)).sum(-1, keepdim=True) / count
        source = (key * (query * (count / incoming)).cumsum(2)).sum(-1, keepdim=True) / count
        return _Flow(query, key, incoming, self._causal_competition(source, mask, count), sink.sigmoid())

    def _causal_competition(self, source: Tensor, mask: Bool[Tensor, "B 1 N 1"], count: Tensor) -> Tensor:
        floor = torch.finfo(source.dtype).min / 2
        source = self._clamped(source).masked_fill(~mask, floor)
        return (source - source.logcumsumexp(2)).exp().masked_fill(~mask, 0.0) * count

    def _empty_state(self, batch: int) -> State:
        """Return empty running sums, in the order of `_Past`."""
        size, weight = self.spec.head_dim, self.key.weight
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        flat = weight.new_zeros(batch, self.spec.num_heads, size, dtype=exact)
        square, lowest = flat[..., None] * flat[..., None, :], torch.finfo(exact).min / 2
        return _Past(flat[..., :1], flat, flat, flat, flat, torch.full_like(flat[..., :1], lowest), square)

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Advance each running sum of `_causal_flow` by one token."""
        past = _Past(*state)
        query, key, value = (
            f(token).unflatten(-1, (self.spec.num_heads, -1)) for f in (self.query, self.key, self.value)
        )
        query, key, value = (x.to(past.count.dtype) for x in (query, key, value))
        query, key, count = query.sigmoid(), key.sigmoid(), past.count + 1
        keys, queries = past.keys + key, past.queries + query
        incoming = (query * keys).sum(-1, keepdim=True) + EPS
        outgoing = (key * queries).sum(-1, keepdim=True) + EPS
        sources, sinks = past.sources + key * (count / outgoing), past.sinks + query * (count / incoming)
        sink = (query * sources).sum(-1, keepdim=True) / count
        source = self._clamped((key * sinks).sum(-1, keepdim=True) / count)
        log_total = torch.logaddexp(past.log_total, source)
        competing = value * (source - log_total).exp() * count
        key_values = past.key_values + key[..., None] * competing[..., None, :]
        heads = ((query / incoming)[..., None, :] @ key_values)[..., 0, :] * sink.sigmoid()
        mixed = self.dropout(self.output(heads.flatten(1).to(token.dtype)))
        return mixed, _Past(count, keys, queries, sources, sinks, log_total, key_values)

    def _clamped(self, conserved_source: Tensor) -> Tensor:
        return conserved_source if self.clamp is None else conserved_source.clamp(-self.clamp, self.clamp)

    def _capacities(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Bool[Tensor, "B 1 N 1"], context: TokenContext
    ) -> Tensor:
        assert context.pair_bias is not None  # checked in `forward`
        seen = pair_mask(context.token_mask)
        bias = context.pair_bias.to(query.dtype).masked_fill(~seen, 0.0)
        if not self.spec.causal:
            # Scaling all capacities of a head does not change the flow, so the largest bias is subtracted and
            # exp does not overflow. The causal form cannot do this: its largest bias may be in the future.
            bias = bias - bias.detach().masked_fill(~seen, -torch.inf).amax((2, 3), keepdim=True).nan_to_num(
                0, 0, 0
            )
        capacity = (query @ key.transpose(2, 3)) * bias.exp()
        inflow, outflow = capacity, capacity
        count = torch.ones_like(mask, dtype=query.dtype)
        if self.spec.causal:
            inflow, outflow = capacity.tril(), capacity.triu()
            count = mask.cumsum(2).clamp(min=1).to(query.dtype)
        incoming = inflow.sum(3, keepdim=True) + EPS
        outgoing = outflow.sum(2)[..., None] + EPS
        sink = inflow @ (count / outgoing).masked_fill(~mask, 0.0) / count
        source = outflow.transpose(2, 3) @ (count / incoming).masked_fill(~mask, 0.0) / count
        if self.spec.causal:
            competition = self._causal_competition(source, mask, count)
        else:
            competition = masked_softmax(self._clamped(source), mask, 2) * mask.sum(2, keepdim=True)
        return ((inflow / incoming).to(value.dtype) @ (value * competition).to(value.dtype)) * sink.sigmoid()
