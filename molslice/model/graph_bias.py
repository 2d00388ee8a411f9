"""The pair bias S + E of a molecular graph: how far two atoms are, and over which bonds.

Source: Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?", sections 3.1.2
(spatial encoding, equation 6) and 3.1.3 (edge encoding, equation 7), and the authors' released code where
the paper is silent (five hops, one H x H weight a hop, division by the number of hops counted).
"""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.model.embeddings import FeatureEmbedding
from molslice.ops.paths import ShortestPaths
from molslice.ops.vocabulary import BOND_FEATURE_SIZES

MAX_HOPS = 5
# The longest distance with a slot of its own; PCQM4M has at most 52 atoms. Longer ones share the last.
MAX_DISTANCE = 50
LEGACY_DISTANCES, LEGACY_HOPS = 512, 128


class PathTable:
    """The pairs of a batch that bonds connect, sorted by distance; integers only, nothing to differentiate.

    `levels[d - 1]` holds the pairs at distance d = 1..5: the position of the pair one step shorter within
    the level before, and the last bond of the path. `lookup` says for every pair [B, A, A] which row of the
    concatenated levels holds its first five hops; row 0 is "no path".
    """

    def __init__(self, paths: ShortestPaths, max_hops: int = MAX_HOPS) -> None:
        distance = paths.distance.flatten()
        atoms = paths.distance.shape[-1]
        column = torch.arange(atoms, device=distance.device).expand_as(paths.distance)
        parent = torch.arange(len(distance), device=distance.device) + (paths.previous - column).flatten()
        bond = paths.last_bond.flatten()
        order = torch.argsort(distance.short(), stable=True)
        ends = torch.bincount(distance + 1).cumsum(0).tolist()  # of the levels -1, 0, 1, 2, ...
        lookup = torch.zeros_like(distance)
        self.levels: list[tuple[Tensor, Tensor]] = []
        first_row = 1
        for hop in range(1, len(ends) - 1):
            pairs = order[ends[hop] : ends[hop + 1]]
            if hop > max_hops:  # bonds beyond the last hop counted add nothing
                lookup[pairs] = lookup[parent[pairs]]
                continue
            shorter = lookup[parent[pairs]] - (first_row - self._rows(hop - 1))
            self.levels.append((shorter, bond[pairs]))
            lookup[pairs] = torch.arange(first_row, first_row + len(pairs), device=distance.device)
            first_row += len(pairs)
        self.lookup: Int[Tensor, "B A A"] = lookup.view_as(paths.distance)

    def _rows(self, hop: int) -> int:
        return len(self.levels[hop - 1][1]) if hop else 0


class GraphBias(nn.Module):
    """S + E for all pairs of tokens, the graph token being token 0.

    S(i, j) = b[distance(i, j)], a slot of its own for pairs without a path, and one learned scalar t a head
    for every pair with the graph token.
    E(i, j) = 1 / n sum over h = 1..n of W_h e(bond h of the path), n = min(distance, 5), e the mean of the
    embeddings of the bond's three features. Computed hop by hop along E(i, j) = E(i, previous) + W_n e(last bond).
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
        for weight in (self.hop_weight, self.distance_embedding.weight, self.graph_token_distance):
            nn.init.normal_(weight, std=0.02)

    def forward(
        self, paths: ShortestPaths, bond_features: UInt8[Tensor, "M 3"]
    ) -> Float[Tensor, "B H N N"]:
        """The pair bias [B, H, N, N], N = 1 + A. Finite everywhere; at padding it holds the slot of
        pairs without a path, which no attention reads.
        """
        bias = self._spatial(paths.distance) + self._edges(PathTable(paths), bond_features)
        bias = F.pad(bias.permute(0, 3, 1, 2), (1, 0, 1, 0))
        with_token = torch.zeros_like(bias[0, 0])
        with_token[0, :], with_token[:, 0] = 1.0, 1.0
        return bias + with_token * self.graph_token_distance[:, None, None]

    def _spatial(self, distance: Int[Tensor, "B A A"]) -> Float[Tensor, "B A A H"]:
        slot = distance.clamp(max=self.num_distances - 2)
        return self.distance_embedding(torch.where(distance < 0, self.num_distances - 1, slot))

    def _edges(self, table: PathTable, bond_features: Tensor) -> Float[Tensor, "B A A H"]:
        bonds = self.bond_embedding(bond_features) / len(BOND_FEATURE_SIZES)
        rows = [bonds.new_zeros(1, self.num_heads)]
        total = bonds.new_zeros(0, self.num_heads)
        for hop, (shorter, bond) in enumerate(table.levels, start=1):
            last = F.embedding(bond, bonds @ self.hop_weight[hop - 1])
            total = last if hop == 1 else F.embedding(shorter, total) + last
            rows.append(total / hop)
        return F.embedding(table.lookup, torch.cat(rows))
