"""Attention maps of a model: how much each token depends on each other token.

`record_calls` hooks the attentions of a model and records their inputs and outputs. The forward pass is not
changed. `map_of` computes a map [B, H, N, N] from a call; row i has the weights of all tokens j for token i.
There are two kinds of map:

exact: For attentions that are linear in their values, the matrix M with M V = the input of the output
  projection, where V are the values of a head. A pair bias with `mix` is part of M. If the channels of a head
  differ, as in sorting, M is their mean. Each attention computes its own, see `Attention.exact_map`.
influence: For any attention, |d out_i / d tokens_j|, the Frobenius norm of that block of the Jacobian; one
  map for all heads. Unlike an exact map it includes the dependence of the weights on token j.

Both can be computed for some rows only, without the memory of the whole map.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from molslice.attention import Attention
from molslice.attention.base import ExactMap
from molslice.types import AttentionOutput, MolsliceError, TokenContext

LONGEST, SAMPLED = 512, 64  # with more tokens than the first number, a map has the second number of rows
COPIES = 1 << 24  # largest number of elements in the N x N tensors of the copies of a sequence
PROBES = 16  # random combinations of the output channels of which sampled rows are estimated
Kind = Literal["exact", "influence"]


class AttentionCall(NamedTuple):
    """One call of an attention.

    Attributes:
        attention: The module.
        tokens: Its input.
        context: The mask and the other inputs.
        output: Its output.
    """

    attention: Attention
    tokens: Float[Tensor, "B N D"]
    context: TokenContext
    output: AttentionOutput


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """The weight of token j (column) for token i (row); 0 in the rows and columns of padding.

    Attributes:
        name: The name of the attention.
        layer: The index of the layer, from 0.
        kind: `exact` or `influence`.
        weights: The map.
        token_mask: True for real tokens.
        parts: The factors of an exact map; see the attention's `exact_map`.
        by_token: Values [B, N] to draw beside the map, by caption.
        rows: The tokens i of the rows; None if K is N.
    """

    name: str
    layer: int
    kind: Kind
    weights: Float[Tensor, "B H K N"]
    token_mask: Bool[Tensor, "B N"]
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    by_token: Mapping[str, Tensor] = field(default_factory=dict)
    rows: Int[Tensor, " K"] | None = None


def record_calls(model: nn.Module, *inputs: Any) -> list[AttentionCall]:  # noqa: ANN401
    """Run `model(*inputs)` in evaluation mode without gradients, and record the calls of its attentions.

    Raises:
        MolsliceError: The model has no attention.
    """
    calls: list[AttentionCall] = []

    def keep(attention: nn.Module, args: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
        assert isinstance(attention, Attention)
        tokens, context = args
        if context.num_queries is not None:  # the last layer computes only what is read out
            context = replace(context, num_queries=None)
            output = attention.forward(tokens, context)
        calls.append(AttentionCall(attention, tokens, context, output))

    attentions = list(_outermost(model))
    if not attentions:
        raise MolsliceError(f"{type(model).__name__} has no attention whose maps could be read")
    handles = [attention.register_forward_hook(keep) for attention in attentions]
    try:
        with _in_evaluation(model), torch.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _outermost(module: nn.Module) -> Iterator[Attention]:
    """Yield the attentions that are not part of another attention."""
    if isinstance(module, Attention):
        yield module
        return
    for child in module.children():
        yield from _outermost(child)


def attention_maps(
    model: nn.Module,
    *inputs: Any,  # noqa: ANN401
    kind: Kind = "exact",
) -> list[AttentionMap]:
    """Compute the map of each call of an attention in `model(*inputs)`, in order.

    With the kind `exact`, an attention without an exact map gives its influence map, with `kind="influence"`.

    Raises:
        MolsliceError: The model has no attention, or attends to a separate memory.
    """
    return [map_of(call, index, kind) for index, call in enumerate(record_calls(model, *inputs))]


def sampled_rows(length: int) -> Int[Tensor, " K"] | None:
    """Return 64 evenly spaced tokens from the first to the last, or None for at most 512 tokens."""
    return None if length <= LONGEST else torch.linspace(0, length - 1, SAMPLED).round().long()


def map_of(
    call: AttentionCall, layer: int = 0, kind: Kind = "exact", rows: Int[Tensor, " K"] | None = None
) -> AttentionMap:
    """Compute the map of one call.

    Args:
        call: The call.
        layer: The index of the layer, from 0.
        kind: As in `attention_maps`.
        rows: The tokens i whose rows to compute, by differentiation; the map then has no parts and nothing by
            token, and influence is an estimate. None for all tokens.

    Raises:
        MolsliceError: The attention attends to a separate memory.
    """
    attention, mask = call.attention, call.context.token_mask
    if attention.spec.cross:
        raise MolsliceError("attention maps need self-attention; this attention has a separate memory")
    tokens = call.tokens.masked_fill(~mask[..., None], 0.0)
    with _in_evaluation(attention), torch.no_grad():
        computed = None
        if kind == "exact":
            if rows is None:
                computed = attention.exact_map(tokens, call.context)
            elif (known := attention.exact_rows(tokens, call.context, rows)) is not None:
                computed = ExactMap(known)
        if computed is None:
            kind, computed = "influence", ExactMap(influence_map(attention, tokens, call.context, rows))
    is_real = mask if rows is None else mask[:, rows]
    weights = computed.weights.masked_fill(~(is_real[:, None, :, None] & mask[:, None, None]), 0.0).detach()
    return AttentionMap(
        attention.name, layer, kind, weights, mask, dict(computed.parts), dict(computed.by_token), rows
    )


@torch.enable_grad()
def influence_map(
    attention: Attention,
    tokens: Float[Tensor, "B N D"],
    context: TokenContext,
    rows: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, "B 1 K N"]:
    """Compute |d out_i / d tokens_j| for each pair of tokens: the Frobenius norm of a block of the Jacobian.

    A sequence is copied once for each output channel, and the gradient of channel c is computed in copy c.
    One backward pass covers one token and as many channels as fit into memory. The result is exact for all
    rows. With `rows` it is an estimate by the gradients of sums of the channels with random signs, whose
    number does not depend on the width.

    Args:
        attention: The attention.
        tokens: The input of the attention.
        context: The mask and the other inputs of the attention.
        rows: Indices of the rows to estimate; None for all rows, exactly.

    Source: Hutchinson 1990 (doi 10.1080/03610919008812866), the estimate of a trace.
    """
    batch, length, dim = tokens.shape
    probes = torch.eye(dim, dtype=tokens.dtype, device=tokens.device)
    if rows is not None and dim > PROBES:
        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(2, (PROBES, dim), generator=generator) * 2 - 1
        probes = signs.to(probes) / PROBES**0.5
    wanted = range(length) if rows is None else rows.tolist()
    group = max(1, min(len(probes), COPIES // (attention.spec.num_heads * length * length)))
    square = tokens.new_zeros(batch, 1, len(wanted), length)
    for b in range(batch):
        for weights in probes.split(group):
            copies = len(weights)
            copied = tokens[b].detach().expand(copies, length, dim).clone().requires_grad_()
            mixed = attention(copied, _repeated(context, b, copies)).tokens
            asked = (mixed * weights[:, None]).sum(-1)  # [copies, N]
            for k, i in enumerate(wanted):
                (change,) = torch.autograd.grad(asked[:, i].sum(), copied, retain_graph=True)
                square[b, 0, k] += change.square().sum((0, 2))
    return square.sqrt()


def _repeated(context: TokenContext, b: int, copies: int) -> TokenContext:
    def repeat(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[b : b + 1].detach().expand(copies, *tensor.shape[1:])

    mask = context.token_mask[b : b + 1].expand(copies, -1)
    pair_bias, pair_weights = repeat(context.pair_bias), repeat(context.pair_weights)
    return TokenContext(mask, pair_bias, pair_weights, repeat(context.masked_bias), repeat(context.carry))


def mixed_tokens(call: AttentionCall) -> Float[Tensor, "B N E"] | None:
    """Return the input of the output map W_O in a call, such as SliceSort(X); zero at padding.

    Returns None if the attention does not apply one output map to all tokens once.
    """
    path = call.attention.value_path()
    if path is None:
        return None
    inputs: list[Tensor] = []
    handle = path[1].register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    try:
        with _in_evaluation(call.attention), torch.no_grad():
            call.attention(call.tokens, call.context)
    finally:
        handle.remove()
    if len(inputs) != 1 or inputs[0].shape[:2] != call.tokens.shape[:2]:
        return None
    return inputs[0].masked_fill(~call.context.token_mask[..., None], 0.0)


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in was_training.items():
            module.training = training
