"""Slice-and-sort: Sliceformer's attention without query and key."""

from dataclasses import replace
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention.base import Attention, ExactMap, Projection, Traits, check_choice, check_least
from molslice.ops.derivatives import channel_maps, head_rows
from molslice.ops.masked import pair_softmax, working_dtype
from molslice.ops.mixed_sort import has_kernels, mix_and_sort
from molslice.ops.packing import real_positions
from molslice.ops.sorting import (
    permute_groups,
    permute_tokens,
    shuffle_order,
    sort_columns,
    sorted_columns,
    swap_order,
    tied_mean,
)
from molslice.types import AttentionOutput, AttentionSpec, TokenContext

Order = Literal[
    "ascending", "descending", "half", "interleave", "max_exchange", "multi_permutation", "shuffle"
]
Form = Literal["sort_of_mix", "mix_plus_sort"]
Placement = Literal["index", "aligned"]

SORTS = ("ascending", "descending", "half", "interleave")
TIE_TOLERANCE = 1e-5  # of the largest lead key; float32 noise between symmetric atoms is below 1e-6


class SliceSort(Attention):
    """out = Sort_col(U) W_O with U = softmax(S + E) V, or U = V without a pair bias; no query and no key.

    Layer n of L and column (channel) i of D count from 1. D is the width of V, which `head_dim` may set apart
    from the width of the tokens.

    Args:
        order: How each column is arranged along the tokens.

            - `ascending`, `descending`.
            - `half`: the second half of the columns is descending.
            - `interleave`: ascending where sin(2^(L - n) pi i / D) >= 0. In exact integers, it is descending
              where (i 2^(L - n)) mod 2D > D.
            - `max_exchange`: swaps the largest value with the value of the first token.
            - `multi_permutation`: sum over k = 1..K of alpha_k P^k u, where P sorts u ascending, alpha =
              softmax(permutation_logits) and K = `num_permutations`.
            - `shuffle`: one fixed random permutation for all columns, a negative control.

        form: How the pair bias is used: `sort_of_mix` is Sort(U), `mix_plus_sort` is U + Sort(V).
        placement: Which token receives rank r. With `index` it is token r. With `aligned` it is the token
            that has rank r in the lead channel, the first channel of each head; a permutation of the tokens
            then permutes the result.
        num_permutations: Number K of permutations, for `multi_permutation`.
        learned_weights: Whether alpha is learned; if false, it stays equal, for `multi_permutation`.
        seed: Seed of the permutation, for `shuffle`.

    Source: Yuan and Xu 2023 (Sliceformer). Where the authors' code differs from the paper, ours follows the
    paper: for `interleave` the code takes the signs of a Haar basis head by head, and two of its copies count
    the layers from the other end; its `half` divides the channels of each head; its `shuffle` in Long Range
    Arena draws a permutation for each column. `mix_plus_sort` is what the code computes on molecules.
    `aligned` is SWD14 and SWD15 of the code; that tied tokens share the mean of their ranks is ours.

    Without a pair bias there are no weights, so `attention_dropout` has no effect.
    """

    descending: Tensor  # bool, one per column of V
    permutation_logits: Tensor
    traits: ClassVar[Traits] = Traits(
        source="Sliceformer, arXiv 2310.17683",
        cost="log_linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        head_dim=True,
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        order: Order = "ascending",
        form: Form = "sort_of_mix",
        placement: Placement = "index",
        num_permutations: int = 2,
        learned_weights: bool = True,
        seed: int = 0,
    ) -> None:
        check_choice("slice_sort", "order", order, get_args(Order))
        check_choice("slice_sort", "form", form, get_args(Form))
        check_choice("slice_sort", "placement", placement, get_args(Placement))
        check_least("slice_sort", 2, num_permutations=num_permutations)
        is_aligned = placement == "aligned"
        is_linear = order in ("max_exchange", "shuffle") and not is_aligned
        traits = replace(
            self.traits,
            cost="linear" if is_linear else self.traits.cost,
            symmetry="equivariant" if is_aligned else "ordered",
        )
        super().__init__(spec, traits)
        self.order, self.form, self.placement = order, form, placement
        self.num_permutations, self.seed = num_permutations, seed
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)
        if order == "multi_permutation":
            logits = torch.zeros(num_permutations)
            if learned_weights:
                self.permutation_logits = nn.Parameter(logits)
            else:
                self.register_buffer("permutation_logits", logits, persistent=False)
        self.register_buffer("descending", torch.tensor(self.descending_columns()), persistent=False)

    def descending_columns(self) -> list[bool]:
        """Return which of the columns this layer sorts descending."""
        dim = self.spec.inner_dim
        if self.order == "interleave":
            # The sign of the paper's sine, computed in integers: floating point misses the zeros of a sine.
            factor = 2 ** (self.spec.num_layers - self.spec.layer - 1)
            return [i * factor % (2 * dim) > dim for i in range(1, dim + 1)]
        if self.order == "half":
            return [2 * i >= dim for i in range(dim)]
        return [self.order == "descending"] * dim

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Project to values, mix and sort them."""
        if self.ignores_padding(tokens, context):
            return self._mix_and_sort(tokens, context)
        return AttentionOutput(self.output(context.first(self._sorted(self.value(tokens), context))))

    def exact_map(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> ExactMap | None:
        """Return the mean of the maps of the channels of each head.

        Parts: `channels` [B, H, C, N, N], the map of each channel; `permutation` [B, H, C, N, N], the map of
        the sort of U, or of V with `mix_plus_sort`. The derivative of a sort is its permutation; with
        `placement: aligned`, tied tokens share entries. By token: the share of the channels that move its
        value to token 0, and the mean position of its values after sorting, from 0 at the first token to 1 at
        the last.
        """
        mask, heads = context.token_mask, self.spec.num_heads
        with torch.enable_grad():
            value = self.value(tokens).detach().requires_grad_()
            channels = channel_maps(self._sorted(value, context), value, mask, heads)
            if self.form == "sort_of_mix":
                value = self.mix_values(value, context).detach().requires_grad_()
            placed = self._place(value.transpose(1, 2), mask).transpose(1, 2)
            permutation = channel_maps(placed, value, mask, heads)
        assert channels is not None  # all orders are linear in the values, by channel
        assert permutation is not None
        positions = real_positions(mask) / (mask.sum(1, keepdim=True) - 1).clamp(min=1)
        mean_place = torch.einsum("bhcij,bi->bhcj", permutation, positions.to(permutation.dtype)).mean((1, 2))
        by_token = {
            "share of channels sent to token 0": permutation[:, :, :, 0].mean((1, 2)),
            "mean place after sorting": mean_place,
        }
        return ExactMap(channels.mean(2), {"permutation": permutation, "channels": channels}, by_token)

    def exact_rows(
        self, tokens: Float[Tensor, "B N D"], context: TokenContext, rows: Int[Tensor, " K"]
    ) -> Float[Tensor, "B H K N"] | None:
        """Return some rows of the exact attention map, with one backward pass for each row."""
        with torch.enable_grad():
            value = self.value(tokens).detach().requires_grad_()
            mixed = self._sorted(value, context)
        return head_rows(mixed, value, context.token_mask, self.spec.num_heads, rows)

    def _sorted(self, value: Float[Tensor, "B N D"], context: TokenContext) -> Float[Tensor, "B N D"]:
        """Sort the columns, views [B, H, C, N] or [B, D, N] that the sort copies block by block."""
        columns, mixed = value.transpose(1, 2), value
        if self.form == "mix_plus_sort":
            mixed = self.mix_values(value, context)
        elif self.spec.pair_bias_mode == "mix":
            columns = self.mix_pairs(self.split_heads(value), context).transpose(2, 3)
        arranged = self._place(columns, context.token_mask).transpose(1, 2)
        return arranged if self.form == "sort_of_mix" else mixed + arranged

    def ignores_padding(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> bool:
        """Return whether one kernel mixes and sorts the values."""
        spec = self.spec
        has_order = self.order in SORTS or self.order == "max_exchange"
        is_plain = self.placement == "index" and has_order and self.form == "sort_of_mix"
        return (
            is_plain
            and spec.pair_bias_mode == "mix"
            and has_kernels(tokens, spec.head_dim, working_dtype(tokens))
        )

    def _mix_and_sort(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Mix and sort in one kernel, and hand the weights on to the next layer as `carry`."""
        # the kernel sums the gradient of the bias
        bias = None if self.value.bias is None else self.value.bias.detach()
        values = functional.linear(tokens, self.value.weight, bias)
        values = values.unflatten(-1, (self.spec.num_heads, -1))
        weights = self.check_pair_carry(context)
        weights = context.pair_weights if weights is None else weights
        if weights is None:
            assert context.pair_bias is not None  # checked in `forward`
            weights = pair_softmax(context.pair_bias, context.token_mask)
        exchanges = self.order == "max_exchange"
        flags = None if exchanges or self.order == "ascending" else self.descending.view(values.shape[2:])
        columns, weights = mix_and_sort(
            values, weights, context.token_mask, flags, self.active_dropout, self.value.bias, exchanges
        )
        return self.read_out(columns.flatten(-2), context, weights)

    def _place(
        self, columns: Float[Tensor, "B *K N"], token_mask: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B D N"]:
        if self.placement == "index":
            return self._arrange(columns, token_mask)
        heads = columns if columns.ndim == 4 else columns.unflatten(1, (self.spec.num_heads, -1))
        # the lead keys decide only what is tied, which has no gradient
        lead, by_lead = sort_columns(heads[:, :, 0].detach(), token_mask, to_front=True)
        count = token_mask.sum(-1)
        if self.order in SORTS:  # the order of the input does not change a sort
            arranged = sorted_columns(heads, token_mask, self._descending(heads), to_front=True)
        else:
            is_real = torch.arange(heads.shape[-1], device=heads.device) < count[:, None]
            arranged = self._arrange(permute_groups(heads, by_lead), is_real).view(heads.shape)
        return permute_groups(self._share_ties(arranged, lead, count), by_lead, inverse=True).flatten(1, 2)

    @staticmethod
    def _share_ties(
        arranged: Float[Tensor, "B H C N"], lead: Float[Tensor, "B H N"], count: Integer[Tensor, " B"]
    ) -> Float[Tensor, "B H C N"]:
        # Breaking ties by index would make symmetric atoms depend on their indices. Instead, tokens whose
        # lead keys are equal up to rounding share the mean of the values at their ranks.
        count = count.repeat_interleave(lead.shape[1])
        shared = tied_mean(arranged.flatten(0, 1), lead.flatten(0, 1), count, TIE_TOLERANCE)
        return shared.view(arranged.shape)

    def _descending(self, columns: Float[Tensor, "B *K N"]) -> Bool[Tensor, "*K"] | None:
        return None if self.order == "ascending" else self.descending.view(columns.shape[1:-1])

    def _arrange(
        self, columns: Float[Tensor, "B *K N"], token_mask: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B D N"]:
        if self.order in SORTS:
            arranged = sorted_columns(columns, token_mask, self._descending(columns))
            return arranged if arranged.ndim == 3 else arranged.flatten(1, 2)
        columns = columns if columns.ndim == 3 else columns.flatten(1, 2)
        if self.order == "shuffle":
            return permute_tokens(columns, shuffle_order(token_mask, self.seed * 1024 + self.spec.layer))
        if self.order == "max_exchange":
            return permute_tokens(columns, swap_order(columns, token_mask))
        weights = self.permutation_logits.softmax(-1)
        columns, order = sort_columns(columns, token_mask)
        total = weights[0] * columns
        for weight in weights[1:]:
            columns = permute_tokens(columns, order)
            total = total + weight * columns
        return total
