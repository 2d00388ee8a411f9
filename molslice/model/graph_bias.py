"""The pair bias S + E of a molecular graph, from distances between atoms and the bonds between them.

Source: Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?", sections 3.1.2
(spatial encoding, equation 6) and 3.1.3 (edge encoding, equation 7). Details that the paper leaves open
follow the authors' code: five hops, one H x H weight per hop, division by the number of hops counted.
"""

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.model.embeddings import FeatureEmbedding
from molslice.ops.path_bias import path_bias
from molslice.ops.path_codes import HIDDEN_BOND, NUM_CODES
from molslice.ops.paths import MAX_HOPS
from molslice.ops.vocabulary import BOND_FEATURE_SIZES
from molslice.types import PathCodes, PathLevels

# The longest distance with its own slot; longer ones share it. PCQM4M has at most 52 atoms.
MAX_DISTANCE = 50
LEGACY_DISTANCES, LEGACY_HOPS = 512, 128


class GraphBias(nn.Module):
    """S + E for all pairs of tokens, with the graph token as token 0.

    S(i, j) = b[distance(i, j)], with a separate slot for pairs without a path, and one learned scalar t per
    head for each pair with the graph token.

    E(i, j) = 1 / n sum over h = 1..n of W_h e(bond h of the path), with n = min(distance, 5) and e the mean
    of the embeddings of the three features of the bond. It is computed hop by hop for all pairs of the batch
    at one distance: the sum for (i, j) is the sum for (i, previous) plus W_n e(last bond). The path among
    equally short ones is selected as in `molslice.ops.paths`, which differs from the released code.

    Args:
        num_heads: Number of heads H.
        legacy_vocab: Use the published tables: 512 rows per bond feature, 512 distances, 128 hops.

    Source: Ying et al. 2021, equations 6 and 7.
    """

    def __init__(self, num_heads: int, *, legacy_vocab: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_distances = LEGACY_DISTANCES if legacy_vocab else MAX_DISTANCE + 2
        hops = LEGACY_HOPS if legacy_vocab else MAX_HOPS
        self.bond_embedding = FeatureEmbedding(BOND_FEATURE_SIZES, num_heads, legacy_vocab=legacy_vocab)
        self.hop_weight = nn.Parameter(torch.empty(hops, num_heads, num_heads))
        self.distance_embedding = nn.Embedding(self.num_distances, num_heads)
        self.graph_token_distance = nn.Parameter(torch.empty(num_heads))
        # S and E start with a standard deviation of about 1/3. With the published 0.02 all pairs are nearly
        # equal for the first thousand steps, and a short training does not recover from that.
        nn.init.normal_(self.hop_weight, std=num_heads**-0.5)
        nn.init.normal_(self.distance_embedding.weight, std=0.3)
        nn.init.normal_(self.graph_token_distance, std=0.02)

    def forward(
        self,
        levels: PathLevels,
        bond_features: UInt8[Tensor, "M 3"],
        hidden: Bool[Tensor, " M"] | None = None,
        stand_in: Float[Tensor, " H"] | None = None,
    ) -> Float[Tensor, "B H N N"]:
        """Compute the pair bias of a batch.

        Args:
            levels: Shortest paths between the atoms.
            bond_features: Type, stereo and conjugation of each bond, indices into OGB's vocabularies.
            hidden: True at bonds whose features are replaced.
            stand_in: The mean embedding that replaces the features of hidden bonds.

        Returns:
            S + E, finite everywhere. Padding has the values of pairs without a path, which attentions ignore.
        """
        bonds = self.bond_embedding(bond_features) / len(BOND_FEATURE_SIZES)
        if hidden is not None and stand_in is not None:
            bonds = torch.where(hidden[:, None], stand_in.to(bonds.dtype), bonds)
        values = torch.cat([*self._pair_values(levels, bonds), self.graph_token_distance[None]])
        return F.embedding(levels.place, values).permute(0, 3, 1, 2)

    def look_up(
        self, codes: PathCodes, stand_in: Float[Tensor, " H"] | None = None
    ) -> Float[Tensor, "B H N N"]:
        """Compute the pair bias of a batch from the codes of its paths, by tables that are made anew.

        Returns:
            S + E as `forward`.
        """
        # half precision saves no time for tables this small
        with torch.autocast(codes.distance.device.type, enabled=False):
            bonds = self.bond_embedding.embed_combinations() / len(BOND_FEATURE_SIZES)
            none = bonds.new_zeros(1, self.num_heads)
            hidden = none if stand_in is None else stand_in[None]
            rows = torch.cat([none, bonds, hidden, none.expand(NUM_CODES - HIDDEN_BOND - 1, -1)])
            spatial = torch.cat([self.distance_embedding.weight, self.graph_token_distance[None]])
            return path_bias(codes, spatial, rows @ self.hop_weight[:MAX_HOPS])

    def _pair_values(self, levels: PathLevels, bonds: Float[Tensor, "M H"]) -> list[Float[Tensor, "_ H"]]:
        """Return S + E of the pairs of atoms in the order of `levels`, in parts.

        S is the same for all pairs at one distance, so that its gradient is a few sums.
        """
        table, last, sizes = self.distance_embedding.weight, self.num_distances - 1, levels.sizes
        spatial = [table[last], *(table[min(distance, last - 1)] for distance in range(len(sizes) - 1))]
        parts = [value.expand(size, -1) for value, size in zip(spatial, sizes, strict=True)]
        total = mean = bonds.new_zeros(0, self.num_heads)
        for hop, (shorter, bond) in enumerate(levels.steps, start=1):
            step = F.embedding(bond, bonds @ self.hop_weight[hop - 1])
            total = step if hop == 1 else F.embedding(shorter, total) + step
            mean = total / hop
            parts[1 + hop] = parts[1 + hop] + mean
        if len(sizes) > 2 + levels.hops:
            farther = torch.cat(parts[2 + levels.hops :]) + F.embedding(levels.beyond, mean)
            parts = [*parts[: 2 + levels.hops], farther]
        return parts
