"""Predicted distances of pairs of atoms, which a model learns beside its targets."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.ops.distances import NUM_BINS, pair_indices

RANK = 32


class DistanceHead(nn.Module):
    """Logits of the distance of atoms i and j: a linear map of u_i u_j and |u_i - u_j|, with u = W norm(x).

    The distances come from a conformer of each training molecule. Predictions of targets do not use it.

    Args:
        dim: Width D of the tokens.

    Source: the target is from TGT (Hussain et al. 2024, arXiv 2402.04538), whose pair channels predict it;
    this form needs tokens only.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.atom = nn.Linear(dim, RANK)
        self.pair = nn.Linear(2 * RANK, NUM_BINS)

    def forward(self, atoms: Float[Tensor, "B A D"]) -> Float[Tensor, "B P K"]:
        """Return the logits of the bins, arbitrary for pairs with padding."""
        states = self.atom(self.norm(atoms))
        one, other = pair_indices(atoms.shape[1], atoms.device)
        first, second = states.index_select(1, one), states.index_select(1, other)
        return self.pair(torch.cat([first * second, (first - second).abs()], -1))
