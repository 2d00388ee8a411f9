"""Tables that turn integers of the store into vectors."""

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.ops.paths import Neighbors
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES

LEGACY_SLOTS = 512
MAX_DEGREE = 11


class FeatureEmbedding(nn.Module):
    """The sum of one embedding for each categorical feature, all in one table.

    With exact vocabularies the table has sum(sizes) rows. `legacy_vocab` rebuilds the published one: 512
    slots a feature and one for padding, of which molecules can reach 9 to 32 in a hundred at most.
    Rows start normal with variance 1 / F, so that a sum of F of them has variance one.
    """

    starts: Tensor
    sizes: Tensor

    def __init__(self, sizes: tuple[int, ...], dim: int, *, legacy_vocab: bool = False) -> None:
        super().__init__()
        starts = [1 + LEGACY_SLOTS * k if legacy_vocab else sum(sizes[:k]) for k in range(len(sizes))]
        rows = 1 + LEGACY_SLOTS * len(sizes) if legacy_vocab else sum(sizes)
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)
        self.weight = nn.Parameter(torch.empty(rows, dim))
        nn.init.normal_(self.weight, std=len(sizes) ** -0.5)

    def forward(self, features: UInt8[Tensor, "*rows F"]) -> Float[Tensor, "*rows D"]:
        """Embed features; entries beyond a vocabulary count as its unknown, the last entry."""
        slots = torch.minimum(features.long(), self.sizes - 1) + self.starts
        flat = F.embedding_bag(slots.flatten(0, -2), self.weight, mode="sum")
        return flat.unflatten(0, slots.shape[:-1])


class AtomEmbedding(nn.Module):
    """One token an atom: atom features and degree (centrality encoding), after the graph token.

    Source: Ying et al. 2021, section 3.1.1. Molecular graphs are undirected, so one degree table does what
    the published code does with two; `legacy_vocab` keeps both.
    """

    def __init__(self, dim: int, *, legacy_vocab: bool = False) -> None:
        super().__init__()
        self.features = FeatureEmbedding(ATOM_FEATURE_SIZES, dim, legacy_vocab=legacy_vocab)
        slots = LEGACY_SLOTS if legacy_vocab else MAX_DEGREE + 1
        tables = 2 if legacy_vocab else 1
        self.degree = nn.ModuleList(nn.Embedding(slots, dim) for _ in range(tables))
        self.graph_token = nn.Parameter(torch.empty(dim))
        for table in self.degree:
            nn.init.normal_(table.weight, std=0.1)  # pyright: ignore[reportArgumentType]
        nn.init.normal_(self.graph_token, std=0.1)

    def forward(self, atoms: UInt8[Tensor, "B A 9"], neighbors: Neighbors) -> Float[Tensor, "B N D"]:
        """Tokens [B, 1 + A, D]."""
        degree: Int[Tensor, "B A"] = (neighbors.atom >= 0).sum(-1).clamp(max=MAX_DEGREE)
        tokens = self.features(atoms)
        for table in self.degree:
            tokens = tokens + table(degree)
        graph_token = self.graph_token.expand(len(atoms), 1, -1)
        return torch.cat([graph_token, tokens], dim=1)
