"""Flow attention: conservation of flow in place of softmax, in linear time."""

from dataclasses import replace
from numbers import Real
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from molslice.attention.base import ExactMap, QueryKeyValueAttention, Traits, check_choice
from molslice.ops.causal import causal_product
from molslice.ops.features import full_precision, positive_elu, precise
from molslice.ops.masked import masked_softmax, masked_sum, working_dtype
from molslice.ops.packed_attention import has_kernels, packed_attention
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, State, TokenContext

EPS = 1e-6
_LARGEST_LOG = 60.0  # of a conserved flow in the causal form; exp is finite in float32
# of O' and I' in the causal form with a bias; logcumsumexp has no precise gradient beyond
_LARGEST_FLOW = 1e4

Phi = Literal["sigmoid", "elu", "relu"]
Activation = Literal["softmax", "sigmoid", "relu"]
_PHI = {"sigmoid": torch.sigmoid, "elu": positive_elu, "relu": torch.relu}
# of each token by itself; `softmax` is over the tokens
_BY_TOKEN = {"sigmoid": torch.sigmoid, "relu": torch.relu, None: torch.ones_like}


class _Flow(NamedTuple):
    """The terms of the flow of each head.

    Attributes:
        query: phi(Q) [B, H, N, C].
        key: phi(K) [B, H, M, C].
        incoming: Incoming flow I of each sink [B, H, N, 1].
        competition: Weight of each source, the factor of V in V' [B, H, M, 1].
        allocation: Share of its flow that each sink receives, such as sigmoid(I') [B, H, N, 1].
    """

    query: Float[Tensor, "B H N C"]
    key: Float[Tensor, "B H N C"]
    incoming: Float[Tensor, "B H N 1"]
    competition: Float[Tensor, "B H N 1"]
    allocation: Float[Tensor, "B H N 1"]


class _PairFlow(NamedTuple):
    """The terms of the flow of each head that needs the capacity of each pair.

    Attributes:
        shares: Capacities over the incoming flow I of the sink [B, H, N, M].
        competition: Weight of each source, the factor of V in V' [B, H, M, 1].
        allocation: Share of its flow that each sink receives, such as sigmoid(I') [B, H, N, 1].
    """

    shares: Float[Tensor, "B H N M"]
    competition: Float[Tensor, "B H M 1"]
    allocation: Float[Tensor, "B H N 1"]


class _Past(NamedTuple):
    """The running sums of the causal form over the first t tokens, numbered from 1.

    Attributes:
        count: Number t of tokens [B, H, 1].
        keys: Sum of phi(K_j) [B, H, C].
        queries: Sum of phi(Q_i) [B, H, C].
        sources: Sum of j phi(K_j) / O_j [B, H, C].
        sinks: Sum of i phi(Q_i) / I_i [B, H, C].
        log_sources: Logarithm of the sum of exp(O'_j) [B, H, 1].
        log_sinks: Logarithm of the sum of exp(I'_i) [B, H, 1].
        key_values: Sum of phi(K_j) V'_j [B, H, C, C].
    """

    count: Float[Tensor, "B H 1"]
    keys: Float[Tensor, "B H C"]
    queries: Float[Tensor, "B H C"]
    sources: Float[Tensor, "B H C"]
    sinks: Float[Tensor, "B H C"]
    log_sources: Float[Tensor, "B H 1"]
    log_sinks: Float[Tensor, "B H 1"]
    key_values: Float[Tensor, "B H C C"]


class Flow(QueryKeyValueAttention):
    """out = (phi(Q) / I) (phi(K)^T V') * sigmoid(I') W_O, per head, with phi = sigmoid.

    Sums run over the n real tokens, and eps is added in each division:

        I = phi(Q) sum phi(K), O = phi(K) sum phi(Q)
        I' = phi(Q) sum(phi(K) / O), O' = phi(K) sum(phi(Q) / I)
        V' = V * softmax_over_tokens(O') * n

    The factor n is in the authors' code and not in algorithm 1 of the paper, where V' = V *
    softmax_over_tokens(O'): without it the output shrinks as 1 / n.

    In cross attention the sums over K run over the m memory tokens, the factor is m, and I' is replaced by I'
    n / m. The causal form sums up to the token itself, whose number t counts from 1:

        I_t = phi(Q_t) sum_{j<=t} phi(K_j), O_t = phi(K_t) sum_{i<=t} phi(Q_i)
        I'_t = phi(Q_t) sum_{j<=t} (j phi(K_j) / O_j) / t, O'_t = phi(K_t) sum_{i<=t} (i phi(Q_i) / I_i) / t
        V'_t = V_t * t exp(O'_t) / sum_{j<=t} exp(O'_j)

    One token at a time, the state is these sums, C C + 4 C + 2 numbers per head, and t. With `pair_bias:
    logits`, the capacities phi(Q) phi(K)^T become (phi(Q) phi(K)^T) * exp(S + E), all sums above run over
    them, and eps is multiplied by the largest exp(S + E) of each sum (ours); a bias of zero changes nothing.
    The causal form then limits O' and I' to 10,000. With `mix`, softmax(S + E) V replaces V (ours).

    Without competition and allocation, the attention is `linear` up to eps.

    Args:
        phi: The non-negative map of Q and K: `sigmoid`, `elu` for elu + 1, or `relu`, which has no causal
            form.
        competition: How O' becomes the factor of V.

            - `softmax`: softmax over the tokens, multiplied by their number.
            - `sigmoid`: sigmoid(O'); in cross attention sigmoid(O' m / n).
            - `relu`: O' itself, which is not negative; in cross attention O' m / n.
            - `null`: 1, without competition.

        allocation: How I' becomes the factor of the output.

            - `sigmoid`: sigmoid(I').
            - `softmax`: softmax of I' over the tokens, multiplied by their number; in the causal form over
              the tokens up to each.
            - `relu`: I' itself, which is not negative.
            - `null`: 1, without allocation.

        clamp: Limits O' to [-clamp, clamp] before the competition; None does not limit it.

    Source: Wu et al. 2022 (Flowformer), the normal and the causal algorithm of the paper. The factors j, i
    and t of the causal form are as in the authors' code. The options are for its ablations; the code has
    no form of them, so that the factors of `softmax` as an allocation and m / n of the competition are ours.
    """

    traits: ClassVar[Traits] = Traits(
        source="Flowformer, arXiv 2202.06258",
        cost="linear",
        symmetry="equivariant",
        pair_bias=("none", "logits", "mix"),
        causal=True,
        recurrent=True,
        cross=True,
        head_dim=True,
    )

    competition: Activation | None
    allocation: Activation | None

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        phi: Phi = "sigmoid",
        competition: Activation | None = "softmax",
        allocation: Activation | None = "sigmoid",
        clamp: float | None = None,
    ) -> None:
        check_choice("flow", "phi", phi, get_args(Phi))
        check_choice("flow", "competition", competition, (*get_args(Activation), None))
        check_choice("flow", "allocation", allocation, (*get_args(Activation), None))
        if clamp is not None and not (isinstance(clamp, Real) and clamp > 0):
            raise MolsliceError(f"flow takes a positive clamp or null, got {clamp}")
        if phi == "relu" and spec.causal:
            raise MolsliceError(
                "flow with phi: relu has no causal form: where a token has no capacity to earlier tokens, "
                "the flow of later ones would be divided by eps; choose phi: elu or sigmoid"
            )
        has_causal = phi != "relu"
        super().__init__(spec, replace(self.traits, causal=has_causal, recurrent=has_causal))
        self.phi, self.competition, self.allocation, self.clamp = phi, competition, allocation, clamp

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Run in linear time; with `logits`, the capacities are an N x N matrix."""
        if self.ignores_padding(tokens, context):
            return self._mix_packed(tokens, context)
        query, key, sinks, sources = self._features(tokens, context)
        value = self.split_heads(self.value(self.memory_of(tokens, context)[0]))
        value = self.mix_pairs(value, context)
        # V' is divided by m, the bound of the competition, so that it does not overflow in half precision.
        size = sources.sum(2, keepdim=True).clamp(min=1)
        if self.spec.pair_bias_mode == "logits":
            pairs = self._pair_flow(query, key, sinks, sources, self.added_bias(context))
            competing = (value * (pairs.competition / size)).to(value.dtype)
            heads = (pairs.shares * size).to(value.dtype) @ competing * pairs.allocation
        elif self.spec.causal:
            flow = self._causal_flow(query, key, sinks)
            with full_precision(query):
                mixed = causal_product(flow.query / flow.incoming, key, value * flow.competition)
            heads = mixed * flow.allocation
        else:
            flow = self._flow(query, key, sinks, sources)
            # elu and relu may be small in all channels, and phi(Q) / I then overflows in half precision.
            dtype = value.dtype if self.phi == "sigmoid" else query.dtype
            with full_precision(query):
                competing = (value * (flow.competition / size)).to(dtype)
                mixed = (query * (size / flow.incoming)).to(dtype) @ (
                    key.transpose(2, 3).to(dtype) @ competing
                )
            heads = mixed * flow.allocation
        return AttentionOutput(self.dropout(self.output(self.merge_heads(heads).to(tokens.dtype))))

    def ignores_padding(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether a kernel computes all heads of a sequence from one product."""
        spec = self.spec
        is_default = (self.phi, self.competition, self.allocation) == ("sigmoid", "softmax", "sigmoid")
        is_plain = is_default and self.clamp is None and not spec.causal and not spec.cross
        return (
            is_plain
            and spec.pair_bias_mode == "logits"
            and has_kernels(tokens, spec.head_dim, working_dtype(tokens), "flow")
        )

    def _mix_packed(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Compute Q, K and V in one product, and hand the bias on to the next layer as `carry`."""
        packed, bias = self.project_packed(tokens)
        pair_bias = self.handed_on_bias(context, packed.dtype)
        heads, pair_bias = packed_attention(packed, pair_bias, context.token_mask, 0.0, bias, "flow")
        if not self.active_dropout:
            return self.read_out(heads.flatten(-2), context, pair_bias)
        output = self.output(context.first(heads).flatten(-2))
        return AttentionOutput(self.dropout(output), carry=pair_bias)

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return (phi(Q) / I) phi(K)^T with competition on the columns and allocation on the rows.

        Parts: `competition` [B, H, M] and `allocation` [B, H, N]. By token: the competition as a source,
        which is 1 on average, and the allocation as a sink, both as means over the heads.
        """
        query, key, sinks, sources = self._features(tokens, context)
        flow = self._pair_flow(query, key, sinks, sources, self.added_bias(context))
        weights = self.mix_map(flow.shares * flow.competition.transpose(2, 3) * flow.allocation, context)
        parts = {"competition": flow.competition[..., 0], "allocation": flow.allocation[..., 0]}
        return ExactMap(weights, parts, {name: values.mean(1) for name, values in parts.items()})

    def _features(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext
    ) -> tuple[Tensor, Tensor, Bool[Tensor, "B 1 N 1"], Bool[Tensor, "B 1 M 1"]]:
        """Return phi(Q) [B, H, N, C] and phi(K) [B, H, M, C], zero at padding, and the masks of both."""
        memory, memory_mask = self.memory_of(tokens, context)
        sinks, sources = context.token_mask[:, None, :, None], memory_mask[:, None, :, None]
        query, key = self.split_heads(self.query(tokens)), self.split_heads(self.key(memory))
        # Sums of thousands of positive terms need float32, also if the model computes in half precision.
        phi = _PHI[self.phi]
        query = phi(precise(query)).masked_fill(~sinks, 0.0)
        return query, phi(precise(key)).masked_fill(~sources, 0.0), sinks, sources

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
        return _Flow(query, key, incoming, *self._compete(conserved_sink, conserved_source, sinks, sources))

    def _compete(self, sink: Tensor, source: Tensor, sinks: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Return the competition and the allocation of the conserved flows I' and O'."""
        source = self._clamped(source)
        if not self.spec.causal:
            n, m = (mask.sum(2, keepdim=True).to(sink.dtype) for mask in (sinks, sources))
            # With n sinks and m sources, a sink receives m / n of its flow in self-attention.
            sink = sink * n / m.clamp(min=1)
            source = source if self.competition == "softmax" else source * m / n.clamp(min=1)
        return self._weights(self.competition, source, sources), self._weights(self.allocation, sink, sinks)

    def _weights(self, activation: Activation | None, flow: Tensor, mask: Bool[Tensor, "B 1 N 1"]) -> Tensor:
        """Apply the activation to the flow of each token; a softmax is 1 on average."""
        if activation != "softmax":
            return _BY_TOKEN[activation](flow)
        if not self.spec.causal:
            return masked_softmax(flow, mask, 2) * mask.sum(2, keepdim=True).to(flow.dtype)
        flow = flow.masked_fill(~mask, torch.finfo(flow.dtype).min / 2)
        return (flow - flow.logcumsumexp(2)).exp().masked_fill(~mask, 0.0) * mask.cumsum(2)

    def _causal_flow(self, query: Tensor, key: Tensor, mask: Bool[Tensor, "B 1 N 1"]) -> _Flow:
        count = mask.cumsum(2).clamp(min=1)
        incoming = (query * key.cumsum(2)).sum(-1, keepdim=True) + EPS
        outgoing = (key * query.cumsum(2)).sum(-1, keepdim=True) + EPS
        sink = (query * (key * (count / outgoing)).cumsum(2)).sum(-1, keepdim=True) / count
        source = (key * (query * (count / incoming)).cumsum(2)).sum(-1, keepdim=True) / count
        return _Flow(query, key, incoming, *self._compete(sink, source, mask, mask))

    def _empty_state(self, batch: int) -> State:
        """Return empty running sums, in the order of `_Past`."""
        size, weight = self.spec.head_dim, self.key.weight
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        flat = weight.new_zeros(batch, self.spec.num_heads, size, dtype=exact)
        square = flat[..., None] * flat[..., None, :]
        lowest = torch.full_like(flat[..., :1], torch.finfo(exact).min / 2)
        return _Past(flat[..., :1], flat, flat, flat, flat, lowest, lowest, square)

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Advance each running sum of `_causal_flow` by one token."""
        past = _Past(*state)
        query, key, value = (
            f(token).unflatten(-1, (self.spec.num_heads, -1)) for f in (self.query, self.key, self.value)
        )
        query, key, value = (x.to(past.count.dtype) for x in (query, key, value))
        query, key, count = _PHI[self.phi](query), _PHI[self.phi](key), past.count + 1
        keys, queries = past.keys + key, past.queries + query
        incoming = (query * keys).sum(-1, keepdim=True) + EPS
        outgoing = (key * queries).sum(-1, keepdim=True) + EPS
        sources, sinks = past.sources + key * (count / outgoing), past.sinks + query * (count / incoming)
        sink = (query * sources).sum(-1, keepdim=True) / count
        source = self._clamped((key * sinks).sum(-1, keepdim=True) / count)
        log_sources = torch.logaddexp(past.log_sources, source)
        log_sinks = torch.logaddexp(past.log_sinks, sink)
        competing = value * _last_weight(self.competition, source, log_sources, count)
        key_values = past.key_values + key[..., None] * competing[..., None, :]
        heads = ((query / incoming)[..., None, :] @ key_values)[..., 0, :]
        heads = heads * _last_weight(self.allocation, sink, log_sinks, count)
        mixed = self.dropout(self.output(heads.flatten(1).to(token.dtype)))
        return mixed, _Past(count, keys, queries, sources, sinks, log_sources, log_sinks, key_values)

    def _clamped(self, conserved_source: Tensor) -> Tensor:
        return conserved_source if self.clamp is None else conserved_source.clamp(-self.clamp, self.clamp)

    def _pair_flow(
        self,
        query: Float[Tensor, "B H N C"],
        key: Float[Tensor, "B H M C"],
        sinks: Bool[Tensor, "B 1 N 1"],
        sources: Bool[Tensor, "B 1 M 1"],
        bias: Float[Tensor, "B H N M"] | None,
    ) -> _PairFlow:
        """Compute the flow of capacities phi(Q) phi(K)^T exp(bias).

        Only ratios of capacities to their sums appear. The largest bias of each sum is subtracted, so that a
        large bias does not overflow; eps then has the unit of the sum.
        """
        causal, seen = self.spec.causal, sinks & sources.transpose(2, 3)
        inflow, outflow = (seen.tril(), seen.triu()) if causal else (seen, seen)
        with full_precision(query):
            capacity = query @ key.transpose(2, 3)
            bias = torch.zeros_like(capacity) if bias is None else bias.to(capacity.dtype)
            by_row = bias - _largest(bias, inflow, 3)
            by_column = bias - _largest(bias, outflow, 2)
            received, sent = capacity * _exp(by_row, inflow), capacity * _exp(by_column, outflow)
            incoming = received.sum(3, keepdim=True) + EPS
            outgoing = sent.sum(2)[..., None] + EPS
            shares = received / incoming
            if causal:
                count = sinks.cumsum(2).clamp(min=1).to(capacity.dtype)
                # A capacity may be much larger than the sums that it is divided by, which end before it.
                received = capacity * _exp(by_column.clamp(max=_LARGEST_LOG), inflow)
                sent = capacity * _exp(by_row.clamp(max=_LARGEST_LOG), outflow)
                sink = (received * (count / outgoing).transpose(2, 3)).sum(3, keepdim=True) / count
                source = (sent * (count / incoming)).sum(2)[..., None] / count
                sink, source = sink.clamp(max=_LARGEST_FLOW), source.clamp(max=_LARGEST_FLOW)
            else:
                sink = (sent / outgoing.transpose(2, 3)).sum(3, keepdim=True)
                source = shares.sum(2)[..., None]
            return _PairFlow(shares, *self._compete(sink, source, sinks, sources))


def _last_weight(activation: Activation | None, flow: Tensor, log_total: Tensor, count: Tensor) -> Tensor:
    """Return the weight of the last of `count` tokens, as `Flow._weights` does for all tokens."""
    if activation == "softmax":
        return (flow - log_total).exp() * count
    return _BY_TOKEN[activation](flow)


def _largest(bias: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Return the largest bias along `dim` where `mask` is true, with that axis; zero without one."""
    largest = bias.detach().masked_fill(~mask, -torch.inf).amax(dim, keepdim=True)
    return largest.masked_fill(largest == -torch.inf, 0.0)


def _exp(logarithms: Tensor, mask: Tensor) -> Tensor:
    return logarithms.masked_fill(~mask, -torch.inf).exp()
