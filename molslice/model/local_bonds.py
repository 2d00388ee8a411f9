"""Message passing along the bonds of a molecule, before the attention of a layer."""

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from molslice.model.embeddings import FeatureEmbedding
from molslice.ops.vocabulary import BOND_FEATURE_SIZES


class BondMessages(nn.Module):
    """For each atom W sum over its neighbors of relu(x_j + e_ij), with the embedding e of the bond.

    x are the normalized tokens. The graph token has no neighbors, so that its sum is zero.

    Args:
        dim: Width D of the tokens.

    Source: Hu et al. 2020, arXiv 1905.12265 (GINE). GPS (Rampášek et al. 2022, arXiv 2205.12454) adds it to
    the result of an attention; here the attention follows it. W is one map in place of a network of two, and
    the encoder adds the token itself.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.bond_embedding = FeatureEmbedding(BOND_FEATURE_SIZES, dim)
        self.map = nn.Linear(dim, dim, bias=False)

    def forward(
        self,
        tokens: Float[Tensor, "B N D"],
        bond_index: Int[Tensor, "M 3"],
        bond_features: UInt8[Tensor, "M 3"],
        hidden: Bool[Tensor, " M"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Return the messages that each token receives, zero at padding.

        Args:
            tokens: Tokens, the graph token first.
            bond_index: Molecule, begin atom and end atom of each bond, listed once; the atoms are -1 at
                places without a bond.
            bond_features: Features of the bonds.
            hidden: True at bonds whose embedding is replaced by zero.
        """
        molecule, begin, end = bond_index.unbind(1)
        first = molecule * tokens.shape[1] + 1  # the place of atom 0
        one, other = first + begin, first + end
        bonds = self.bond_embedding(bond_features).to(tokens.dtype)
        if hidden is not None:
            bonds = bonds.masked_fill(hidden[:, None], 0.0)
        flat = self.norm(tokens).flatten(0, 1)
        sent = flat.index_select(0, torch.cat([one, other]))
        # in place, because most of the time is for memory
        sent.view(2, *bonds.shape).add_(bonds).relu_()
        received = torch.zeros_like(flat).index_add_(0, torch.cat([other, one]), sent).view(tokens.shape)
        received[:, 0] = 0.0  # atom -1 is the graph token
        return self.map(received)
