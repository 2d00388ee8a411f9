"""The encoder of molecules, sequences, images and series: L layers of attention and feed-forward network."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from molslice.attention import ATTENTIONS, Attention, build_attention
from molslice.attention.base import initialize_map
from molslice.model.base import AttentionChoice
from molslice.model.local_bonds import BondMessages
from molslice.model.pair_state import PairUpdate
from molslice.ops.layer_steps import (
    add_and_norm,
    gelu_and_drop,
    has_kernels,
    seeds_drawn_at_once,
)
from molslice.ops.masked import masked_pair_bias, pair_softmax, working_dtype
from molslice.types import AttentionOutput, AttentionSpec, Initialization, MolsliceError, State, TokenContext


class FeedForward(nn.Module):
    """W_2 gelu(W_1 x), applied to each token."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden_dim)
        self.outer = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Return a tensor of the same shape."""
        return self.outer(self.dropout(nn.functional.gelu(self.inner(tokens))))

    def without_last_bias(self, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        """Return the result without the bias of the outer map, which the next step adds in its own pass."""
        hidden = nn.functional.linear(tokens, self.inner.weight)
        hidden = gelu_and_drop(hidden, self.inner.bias, active_rate(self.dropout))
        return nn.functional.linear(hidden, self.outer.weight)


def active_rate(dropout: nn.Dropout) -> float:
    """Return the rate that a dropout module applies now."""
    return dropout.p if dropout.training else 0.0


class EncoderLayer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)); with `norm="post"` norm(x + f(x)) instead.

    Args:
        attention: The attention.
        dim: Width of the tokens.
        ffn_dim: Hidden width of the feed-forward network.
        dropout: Dropout rate of tokens.
        norm: Whether layer norm is before (`pre`) or after (`post`) attention and feed-forward network.
        drop_path: Probability that a row skips f in training; the other rows add f / (1 - drop_path).
        ffn_scale: Initial value of a learned factor for each channel of the feed-forward network; None for no
            factor.

    Source: stochastic depth (`drop_path`), Huang et al. 2016, arXiv 1603.09382; LayerScale (`ffn_scale`),
    Touvron et al. 2021, arXiv 2103.17239.
    """

    def __init__(
        self,
        attention: Attention,
        dim: int,
        ffn_dim: int,
        dropout: float,
        norm: Literal["pre", "post"],
        drop_path: float = 0.0,
        ffn_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.drop_path = drop_path
        self.ffn_scale = None if ffn_scale is None else nn.Parameter(torch.full((dim,), ffn_scale))
        self.norm_first = norm == "pre"
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_dim, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Return the tokens of the next layer [B, N, D], with the penalty and carry of the attention.

        Only the first tokens are returned with `TokenContext.num_queries`.
        """
        mixed = self.attention(self.attention_norm(tokens) if self.norm_first else tokens, context)
        return mixed.with_tokens(self._add(context.first(tokens), mixed.tokens))

    @property
    def is_plain(self) -> bool:
        """Whether a call is x + attention(norm(x)), then x + ffn(norm(x)), without hooks and not compiled."""
        if not self.norm_first or self.ffn_scale is not None or (self.training and self.drop_path):
            return False
        is_whole = not hasattr(self.attention_norm.weight, "device_mesh")  # not a part of a sharded model
        is_watched = self._forward_hooks or self._forward_pre_hooks or self._compiled_call_impl
        known = type(self.dropout) is type(self.ffn.dropout) is nn.Dropout
        return is_whole and known and not is_watched

    def step(self, token: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Compute the layer for the next token; see `Attention.step`."""
        mixed, state = self.attention.step(self.attention_norm(token) if self.norm_first else token, state)
        return self._add(token[:, None], mixed[:, None])[:, 0], state

    def _add(self, tokens: Float[Tensor, "B N D"], mixed: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        tokens = tokens + self._apply_drop_path(self.dropout(mixed))
        if not self.norm_first:
            tokens = self.attention_norm(tokens)
        change = self.ffn(self.ffn_norm(tokens) if self.norm_first else tokens)
        if self.ffn_scale is not None:
            change = change * self.ffn_scale
        tokens = tokens + self._apply_drop_path(self.dropout(change))
        return tokens if self.norm_first else self.ffn_norm(tokens)

    def _apply_drop_path(self, change: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        if not self.training or not self.drop_path:
            return change
        kept = torch.rand(len(change), 1, 1, device=change.device) >= self.drop_path
        return change * (kept / (1.0 - self.drop_path)).to(change.dtype)


class Encoder(nn.Module):
    """L layers with one attention, and a final norm. Independent of task and data set.

    Args:
        attention: The attention, its options and its pair bias mode.
        dim: Width of the tokens.
        num_layers: Number of layers.
        num_heads: Number of heads of the attention.
        ffn_dim: Hidden width of the feed-forward network.
        head_dim: Width of a head of the attention; None for `dim` / `num_heads`.
        dropout: Dropout rate of tokens.
        attention_dropout: Dropout rate in the attention.
        norm: Whether layer norm is before (`pre`) or after (`post`) attention and feed-forward network.
        uses_pair_bias: Whether `forward` gets a pair bias. With `mix`, softmax(S + E) is computed once per
            batch.
        causal: Whether a token depends only on itself and tokens before it.
        max_tokens: Upper limit of N, for attentions whose parameters depend on it; None for no limit.
        activation_checkpointing: Whether to recompute layers in the backward pass to save memory.
        drop_path: Rate of stochastic depth of each layer; None for no stochastic depth.
        ffn_scale: Initial value of LayerScale; None for no LayerScale.
        last_norm: Whether there is a final norm.
        qkv_bias: Whether the maps to query, key and value have a bias.
        input_dropout: Dropout rate of the tokens before the first layer; None for `dropout`.
        initialization: How the attention initializes its linear maps.
        pair_state: Whether each layer first changes the pair bias by its tokens; see `PairUpdate`.
        local: `gine` if each layer first adds the messages of bonded atoms; see `BondMessages`.

    Raises:
        MolsliceError: The attention or an option is unknown, or the attention does not support these
            settings.
    """

    def __init__(
        self,
        attention: AttentionChoice,
        *,
        dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        head_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        uses_pair_bias: bool = False,
        causal: bool = False,
        max_tokens: int | None = None,
        activation_checkpointing: bool = False,
        drop_path: Sequence[float] | None = None,
        ffn_scale: float | None = None,
        last_norm: bool = True,
        qkv_bias: bool = True,
        input_dropout: float | None = None,
        initialization: Initialization = "glorot",
        pair_state: bool = False,
        local: Literal["gine"] | None = None,
    ) -> None:
        super().__init__()
        rates = [0.0] * num_layers if drop_path is None else drop_path
        preferred = ATTENTIONS.find(attention.name).traits.preferred_pair_bias
        if attention.pair_bias not in (None, "none") and not uses_pair_bias:
            raise MolsliceError(
                f"attention.pair_bias is {attention.pair_bias}, but only the model graphormer has a pair bias"
            )
        self.pair_bias_mode = (attention.pair_bias or preferred) if uses_pair_bias else "none"
        if pair_state and self.pair_bias_mode == "none":
            raise MolsliceError("model.pair_state changes the pair bias, but attention.pair_bias is none")
        updates = num_layers if pair_state else 0
        self.pair_updates = nn.ModuleList(PairUpdate(dim, num_heads) for _ in range(updates))
        self.messages = nn.ModuleList(BondMessages(dim) for _ in range(num_layers if local else 0))
        self.activation_checkpointing, self.causal = activation_checkpointing, causal
        self.layers = nn.ModuleList()
        for layer in range(num_layers):
            spec = AttentionSpec(
                dim=dim,
                num_heads=num_heads,
                layer=layer,
                num_layers=num_layers,
                dropout=attention_dropout,
                causal=causal,
                pair_bias_mode=self.pair_bias_mode,
                max_tokens=max_tokens,
                qkv_bias=qkv_bias,
                channels_per_head=head_dim,
                initialization=initialization,
            )
            mixer = build_attention(attention.name, spec, attention.options)
            self.layers.append(EncoderLayer(mixer, dim, ffn_dim, dropout, norm, rates[layer], ffn_scale))
        self.last_norm = nn.LayerNorm(dim) if last_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout if input_dropout is None else input_dropout)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        token_mask: Bool[Tensor, "B N"] | None = None,
        pair_bias: Float[Tensor, "B H N N"] | None = None,
        bonds: tuple[Tensor, Tensor, Tensor | None] | None = None,
        num_queries: int | None = None,
    ) -> AttentionOutput:
        """Encode tokens.

        Args:
            tokens: Tokens.
            token_mask: True at real tokens. None if all are real, which allows kernels without a mask.
            pair_bias: S + E, if `uses_pair_bias`.
            bonds: `bond_index`, `bond_features` and `hidden_bonds` of the molecules, if `local`.
            num_queries: Number of first tokens that the caller needs, such as 1 for a readout of the graph
                token; None for all. The last layer then leaves out the others, which takes less time.

        Returns:
            Encoded tokens [B, N, D], or [B, num_queries, D], arbitrary at padding, and the sum of the
            penalties of the layers.

        Raises:
            MolsliceError: The encoder has `local` messages, and there are no bonds.
        """
        if self.messages and bonds is None:
            raise MolsliceError("model.local needs the bonds of the molecules, which were not given")
        all_real, weights, masked_bias = token_mask is None, None, None
        if token_mask is None:
            token_mask = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        given, stored = tokens.dtype, self._dtype_of_layers(tokens)
        dtype = working_dtype(tokens, stored)
        by_kernels = self._uses_kernels(tokens, dtype)
        if pair_bias is not None and not self.pair_updates:  # otherwise each layer computes its own
            if self.pair_bias_mode == "mix":
                weights = pair_softmax(pair_bias, token_mask)
                weights = weights.to(dtype) if by_kernels else weights
            elif self.pair_bias_mode == "logits" and not by_kernels:
                masked_bias = masked_pair_bias(pair_bias.to(dtype), token_mask, self.causal)
        context = TokenContext(
            token_mask,
            pair_bias,
            weights,
            masked_bias,
            all_real=all_real,
            padding_is_unread=by_kernels,
            is_checked=True,
        )
        for layer in self._typed_layers()[:1]:
            layer.attention.check_input(tokens, context)
        if by_kernels:
            seeds = 1 + 4 * len(self.layers) if self.training else 0
            with seeds_drawn_at_once(tokens, seeds):
                return self._encode_by_kernels(tokens, context, stored, dtype, num_queries)
        output = self._encode_by_layers(self.dropout(tokens.to(stored)), context, bonds, num_queries)
        return output.with_tokens(self.last_norm(output.tokens.to(given)))

    def _encode_by_layers(
        self,
        tokens: Float[Tensor, "B N D"],
        context: TokenContext,
        bonds: tuple[Tensor, Tensor, Tensor | None] | None,
        num_queries: int | None,
    ) -> AttentionOutput:
        """Apply the layers. The last one returns only the first `num_queries` tokens, if it is given."""
        penalty = None
        for index, layer in enumerate(self.layers):
            if self.messages and bonds is not None:
                tokens = tokens + self.dropout(self.messages[index](tokens, *bonds))
            if self.pair_updates and context.pair_bias is not None:
                pairs = self.pair_updates[index](tokens, context.token_mask, context.pair_bias)
                context = replace(context, pair_bias=pairs)
            if index == len(self.layers) - 1:
                context = replace(context, num_queries=num_queries)
            if self.activation_checkpointing and torch.is_grad_enabled():
                output = checkpoint(layer, tokens, context, use_reentrant=False)
            else:
                output = layer(tokens, context)
            # kernels hand on their pair bias, which the next layer changes
            attention = layer.attention
            assert isinstance(attention, Attention)
            is_changed = bool(self.pair_updates) and attention.hands_on_pairs(tokens, context)
            tokens, context = output.tokens, context.with_carry(None if is_changed else output.carry)
            penalty = add_penalties(penalty, output.penalty)
        return AttentionOutput(tokens, penalty)

    def _dtype_of_layers(self, tokens: Tensor) -> torch.dtype:
        """Return the type of the tokens between layers: bfloat16 for layers in bfloat16, else as `tokens`."""
        dtype = next(self.layers.parameters(), tokens).dtype
        return dtype if dtype == torch.bfloat16 else tokens.dtype

    def _uses_kernels(self, tokens: Tensor, dtype: torch.dtype) -> bool:
        if dtype not in (torch.bfloat16, torch.float16) or self.activation_checkpointing:
            return False
        if self.pair_updates or self.messages:
            return False
        is_plain = isinstance(self.last_norm, nn.LayerNorm) and all(
            layer.is_plain for layer in self._typed_layers()
        )
        return is_plain and has_kernels(tokens)

    def _encode_by_kernels(
        self,
        tokens: Float[Tensor, "B N D"],
        context: TokenContext,
        stored: torch.dtype,
        dtype: torch.dtype,
        num_queries: int | None,
    ) -> AttentionOutput:
        """Apply the layers as `_encode_by_layers`, each norm in one pass with the addition before it."""
        layers, given, penalty = self._typed_layers(), tokens.dtype, None
        rate = active_rate(self.dropout)
        tokens, normed = add_and_norm(None, tokens, None, layers[0].attention_norm, rate, dtype, stored)
        if self.pair_bias_mode == "logits" and context.pair_bias is not None:
            bias = context.pair_bias.to(dtype)
            if not all(layer.attention.ignores_padding(normed, context) for layer in layers):
                bias = masked_pair_bias(bias, context.token_mask, self.causal)
            context = replace(context, masked_bias=bias)
        norms = [*(layer.attention_norm for layer in layers[1:]), self.last_norm]
        for layer, norm in zip(layers, norms, strict=True):
            if norm is self.last_norm:
                context = replace(context, num_queries=num_queries)
            mixed = layer.attention(normed, context)
            context, penalty = context.with_carry(mixed.carry), add_penalties(penalty, mixed.penalty)
            rate, tokens = active_rate(layer.dropout), context.first(tokens)
            change, bias = mixed.tokens, mixed.output_bias
            tokens, normed = add_and_norm(tokens, change, bias, layer.ffn_norm, rate, dtype)
            change = layer.ffn.without_last_bias(normed)
            last = given if norm is self.last_norm else dtype
            tokens, normed = add_and_norm(tokens, change, layer.ffn.outer.bias, norm, rate, last)
        return AttentionOutput(normed, penalty)

    @property
    def has_steps(self) -> bool:
        """Whether the encoder, if causal, also runs one token at a time; see `Attention.step`."""
        return all(layer.attention.has_steps for layer in self._typed_layers())

    def init_state(self, batch: int) -> tuple[State, ...]:
        """Return the state of `step` before the first token of `batch` sequences, one entry per layer.

        Raises:
            MolsliceError: The encoder is not causal, or its attention has no steps.
        """
        return tuple(layer.attention.init_state(batch) for layer in self._typed_layers())

    def step(
        self, token: Float[Tensor, "B D"], states: tuple[State, ...]
    ) -> tuple[Float[Tensor, "B D"], tuple[State, ...]]:
        """Encode the next token. The result equals `forward` in evaluation mode.

        Returns:
            The encoded token [B, D], and the next states.
        """
        token, following = self.dropout(token), []
        for layer, state in zip(self._typed_layers(), states, strict=True):
            token, state = layer.step(token, state)
            following.append(state)
        return self.last_norm(token), tuple(following)

    def _typed_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, EncoderLayer)]


def add_penalties(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return the sum of two penalties, of which each may be None."""
    return other if one is None else one if other is None else one + other


def drop_path_rates(last: float, num_layers: int) -> list[float]:
    """Return the rate of stochastic depth of each layer, growing evenly from 0 to `last`.

    Source: Huang et al. 2016, arXiv 1603.09382, the linear rule, as in DeiT and Flowformer.
    """
    return [last * layer / max(1, num_layers - 1) for layer in range(num_layers)]


def initialize_linear(module: nn.Module, initialization: Initialization = "glorot") -> None:
    """Initialize linear maps by `initialize_map`; an attention initializes itself as its spec says."""
    if isinstance(module, Attention):
        module.reset_parameters()
        return
    if isinstance(module, nn.Linear):
        initialize_map(module, initialization)
    for child in module.children():
        initialize_linear(child, initialization)
