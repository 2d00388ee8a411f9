"""Soft sort: slice-and-sort by a sort that is differentiable everywhere."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from molslice.attention.base import Attention, Projection, Traits
from molslice.ops.features import precise
from molslice.ops.laplace import laplace_mix
from molslice.ops.sorting import sorted_columns
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext


class SoftSort(Attention):
    """out = SoftSort_col(U) W_O with U = softmax(S + E) V, or U = V without a pair bias; no query and no key.

    Each column u (channel) is softly sorted along the n real tokens, ascending, with rank r at the r-th real
    token:

        SoftSort(u)_r = sum_j P_rj u_j, P_r = softmax_j(-|sort(u)_r - u_j| / temperature)

    For a temperature of zero it converges to `slice_sort`, for a large one each token gets the mean of the
    column. P would be n x n in every channel. On a sorted column the exponents split into two products, so
    that sorting and two running sums give the exact result in N log N (`ops.laplace`). They store about
    min(N, 64) numbers for each value: as much as P for molecules, much less for long sequences, and always
    more than `slice_sort`. Dropout is applied to the output.

    Args:
        temperature: Softness of the sort, in the unit of the values.

    Source: Prillo and Eisenschlos 2020 (SoftSort) with the distance |x - y|; the paper sorts descending. Its
    use in place of Sliceformer's sort and the algorithm in N log N are ours.
    """

    traits: ClassVar[Traits] = Traits(
        source="SoftSort, arXiv 2006.16038; in the place of the sort of Sliceformer, arXiv 2310.17683",
        cost="log_linear",
        symmetry="ordered",
        pair_bias=("none", "mix"),
        head_dim=True,
    )

    def __init__(self, spec: AttentionSpec, *, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise MolsliceError(f"soft_sort takes a positive temperature, got {temperature}")
        super().__init__(spec)
        self.temperature = temperature
        self.value = Projection(spec.dim, spec.inner_dim, bias=spec.qkv_bias)
        self.output = Projection(spec.inner_dim, spec.dim)

    def mix(self, tokens: Float[Tensor, "B N D"], context: TokenContext) -> AttentionOutput:
        """Sort the columns as [B, D, N], in at least float32."""
        value, mask = self.mix_values(self.value(tokens), context), context.token_mask
        columns = precise(value.transpose(1, 2).contiguous())
        ordered = sorted_columns(columns, mask)
        # A value has distance zero to itself on both sides of the kernel, so the slopes there cancel.
        query, key = ordered / self.temperature, columns / self.temperature
        mixed = laplace_mix(query, key, torch.zeros_like(key), columns[..., None], mask)[..., 0]
        return AttentionOutput(self.dropout(self.output(mixed.transpose(1, 2).to(tokens.dtype))))
