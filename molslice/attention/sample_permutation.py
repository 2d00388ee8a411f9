"""Channel-wise sample permutation: shifts each channel, then sorts within groups of neighbors."""

from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from molslice.attention.base import Attention, Projection, Traits, check_choice, check_least
from molslice.ops.packing import packed_mask, packing_order, unpack_tokens
from molslice.ops.sorting import index_dtype, permute_tokens
from molslice.types import AttentionOutput, AttentionSpec, TokenContext

Shift = Literal["linear", "power"]

ROUNDING = 1e-9  # error of n to a rational power that is an integer


class SamplePermutation(Attention):
    """out = CSP(U) W_O with U = softmax(S + E) V, or U = V without a pair bias; no query and no key.

    CSP shifts each column of U cyclically along the n real tokens, then sorts groups of neighbors. Column c
    of D, counted from 0, is shifted by J_c: token i gets the value of token i - J_c mod n. Then each group of
    `group_size` consecutive tokens is sorted ascending; the last group may be shorter. Dropout is applied to
    the output.

    Args:
        shift: The shift J_c. With `linear`, J_c = group_size * c. With `power`, J_c = ceil(n^((l D + c) / (L
            D))) in layer l of L, counted from 0, which grows from the next neighbor to the whole sequence. D
            is the width of V.
        group_size: Number of tokens per group.

    Source: Yuan and Xu 2024 (channel-wise sample permutation), the successor of Sliceformer. Groups of 2 and
    both shifts are as in the authors' code. There, `linear` does not shift the second column either, and n
    must be a multiple of the group size. Code and abstract shift before they sort; the front page of the code
    states the reverse.
    """

    traits: ClassVar[Traits] = Traits(
        source="Channel-wise sample permutation, arXiv 2410.10914",
        cost="linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, shift: Shift = "linear", group_size: int = 2) -> None:
        check_choice("sample_permutation", "shift", shift, get_args(Shift))
        check_least("sample_permutation", 1, group_size=group_size)
        super().__init__(spec)
        self.shift, self.group_size = shift, group_size
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Permute columns [B, D, N]. Packing and shifting are one permutation."""
        value, mask = self.mix_values(self.value(tokens), context), context.token_mask
        order, real = packing_order(mask), packed_mask(mask)
        columns = permute_tokens(value.transpose(1, 2), self._shifted(order, real))
        arranged = self._sort_groups(columns, real).transpose(1, 2)
        return AttentionOutput(self.dropout(self.output(unpack_tokens(arranged, order))))

    def _shifted(self, order: Integer[Tensor, "B N"], real: Bool[Tensor, "B N"]) -> Integer[Tensor, "B D N"]:
        """Return the source token of each position of the packed sequence. Padding stays last."""
        count = real.sum(1).clamp(min=1)[:, None, None]
        channels = torch.arange(self.spec.inner_dim, device=order.device)[:, None]
        if self.shift == "linear":
            steps = self.group_size * channels
        else:
            below = self.spec.layer * self.spec.inner_dim + channels  # columns before this one, in all layers
            steps = count.double().pow(below / (self.spec.num_layers * self.spec.inner_dim))
            steps = (steps - ROUNDING).ceil().long()
        positions = torch.arange(order.shape[1], device=order.device)
        source = torch.where(real[:, None], (positions - steps) % count, positions)
        return order[:, None].expand(source.shape).gather(2, source).to(index_dtype(order.shape[1]))

    def _sort_groups(
        self, columns: Float[Tensor, "B D N"], real: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B D N"]:
        length = columns.shape[2]
        size = min(self.group_size, length)  # if shorter, the real tokens still form one group
        missing = -length % size
        is_real = functional.pad(real, (0, missing))[:, None].unflatten(2, (-1, size))
        groups = functional.pad(columns, (0, missing)).unflatten(2, (-1, size))
        groups = groups.masked_fill(~is_real, torch.inf)  # sorts last
        if size == 2:  # much faster than sorting many short rows
            one, other = groups.unbind(3)
            groups = torch.stack([torch.minimum(one, other), torch.maximum(one, other)], 3)
        else:
            groups = groups.sort(3).values
        # Padding is still last in its group, so the real positions are unchanged.
        return groups.masked_fill(~is_real, 0.0).flatten(2)[:, :, :length]
