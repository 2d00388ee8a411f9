"""Designs of a learnable slice-sort that were compared with `key_sort`.

Importing this module registers the attention `sort_design`. All designs have the value and output
projections of `slice_sort` and few other parameters. In the lists, their number is in parentheses.

`mixing` is the mixing of the tokens of a molecule before the sort, per head:
  bias: softmax(S + E) V (0);
  weight: softmax(S + E + b_j) V with b = x w_b (D H);
  keys: softmax(S + E - |q_i - k_j|) V (2 D H);
  keys_weight: both (3 D H);
  own: softmax(S + E + v_i diag(a) v_j) V, with values as queries and keys (D).

`after` is the operation on each channel after the mixing:
  none: unchanged (0);
  sort: ascending sort (0);
  blend: learned convex combination of the unsorted, ascending and descending channel (3 D).

`gate` multiplies the result by silu(a * v + c) (2 D). `slope` multiplies the distance of query and key.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from molslice.attention import ATTENTIONS, Attention
from molslice.attention.base import Traits
from molslice.ops.masked import masked_softmax, pair_mask
from molslice.ops.sorting import permute_tokens, place_order
from molslice.types import AttentionOutput, AttentionSpec, MolsliceError, TokenContext

MIXINGS = ("bias", "weight", "keys", "keys_weight", "own")
AFTER = ("none", "sort", "blend")


class SortDesign(Attention):
    """One of the designs above, with the pair bias added to the scores."""

    traits: ClassVar[Traits] = Traits(
        source="ours", cost="quadratic", symmetry="ordered", pair_bias=("none", "logits")
    )

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        mixing: str = "bias",
        after: str = "none",
        gate: bool = False,
        slope: float = 1.0,
    ) -> None:
        if mixing not in MIXINGS or after not in AFTER:
            raise MolsliceError(
                f"sort_design: invalid mixing or after; choices: mixing {MIXINGS}, after {AFTER}"
            )
        super().__init__(spec)
        self.mixing, self.after = mixing, after
        dim, heads = spec.dim, spec.num_heads
        self.slope = slope
        self.value = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)
        if mixing in ("weight", "keys_weight"):
            self.weight = nn.Linear(dim, heads, bias=False)
        if mixing in ("keys", "keys_weight"):
            self.query = nn.Linear(dim, heads)
            self.key = nn.Linear(dim, heads, bias=False)
        if mixing == "own":
            self.own = nn.Parameter(torch.zeros(dim))
        if after == "blend":
            self.blend = nn.Parameter(torch.tensor([[1.0], [0.0], [0.0]]).repeat(1, dim))
        self.gate = nn.Parameter(torch.stack([torch.zeros(dim), torch.ones(dim)])) if gate else None

    def mix(self, tokens: Tensor, context: TokenContext) -> AttentionOutput:
        """Mix the tokens, sort or blend each channel, and apply the gate."""
        value = self.value(tokens)
        heads = self.split_heads(value)
        shares = masked_softmax(self._scores(tokens, heads, context), pair_mask(context.token_mask))
        shares = functional.dropout(shares, self.spec.dropout, self.training)
        columns = self.merge_heads(shares @ heads).transpose(1, 2).contiguous()
        mixed = self._arrange(columns, context.token_mask).transpose(1, 2)
        if self.gate is not None:
            mixed = mixed * functional.silu(self.gate[0] * value + self.gate[1])
        return AttentionOutput(self.output(mixed))

    def _scores(self, tokens: Tensor, heads: Tensor, context: TokenContext) -> Tensor:
        batch, count, length, _ = heads.shape
        scores = heads.new_zeros(batch, count, length, length)
        if context.pair_bias is not None:
            scores = scores + context.pair_bias
        if self.mixing in ("weight", "keys_weight"):
            scores = scores + self.weight(tokens).transpose(1, 2)[:, :, None]
        if self.mixing in ("keys", "keys_weight"):
            query, key = (f(tokens).transpose(1, 2) for f in (self.query, self.key))
            scores = scores - self.slope * (query[..., None] - key[:, :, None]).abs()
        if self.mixing == "own":
            scores = scores + self.split_heads(self.merge_heads(heads) * self.own) @ heads.transpose(2, 3)
        return scores

    def _arrange(self, columns: Tensor, token_mask: Tensor) -> Tensor:
        if self.after == "none":
            return columns
        ascending = permute_tokens(columns, place_order(columns, token_mask))
        if self.after == "sort":
            return ascending
        descending = permute_tokens(columns, place_order(-columns, token_mask))
        own, up, down = self.blend.softmax(0)[..., None]
        return own * columns + up * ascending + down * descending


ATTENTIONS.add("sort_design", SortDesign)
