"""Embedding tables for the integer features of a store."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.ops.vocabulary import ATOM_FEATURE_SIZES

LEGACY_SLOTS = 512
MAX_DEGREE = 11


class FeatureEmbedding(nn.Module):
    """The sum of one embedding for each categorical feature, in one table.

    With exact vocabularies the table has sum(sizes) rows. Rows are initialized with variance 1 / F, so that
    the sum of F rows has variance one.

    Args:
        sizes: Size of the vocabulary of each of F features.
        dim: Width D.
        legacy_vocab: Use the published table, with 512 rows per feature and one for padding. Feature k uses
            only `sizes[k]` of its 512 rows.
    """

    lookup_tables: ClassVar[tuple[str, ...]] = ("weight",)

    starts: Tensor
    sizes: Tensor

    def __init__(self, sizes: tuple[int, ...], dim: int, *, legacy_vocab: bool = False) -> None:
        super().__init__()
        starts = [1 + LEGACY_SLOTS * k if legacy_vocab else sum(sizes[:k]) for k in range(len(sizes))]
        rows = 1 + LEGACY_SLOTS * len(sizes) if legacy_vocab else sum(sizes)
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)
        self._ranges = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        self.weight = nn.Parameter(torch.empty(rows, dim))
        nn.init.normal_(self.weight, std=len(sizes) ** -0.5)

    def forward(self, features: UInt8[Tensor, "*rows F"]) -> Float[Tensor, "*rows D"]:
        """Embed features.

        Args:
            features: Indices into the vocabularies [..., F]. Values beyond a vocabulary use its last entry,
                the unknown.

        Returns:
            The sums of the embeddings [..., D].
        """
        slots = torch.minimum(features.long(), self.sizes - 1) + self.starts
        flat = F.embedding_bag(slots.flatten(0, -2), self.weight, mode="sum")
        return flat.unflatten(0, slots.shape[:-1])

    def embed_combinations(self) -> Float[Tensor, "combinations D"]:
        """Embed all combinations of the features, those of the last feature next to each other."""
        embedded = self.weight.new_zeros(1, self.weight.shape[1])
        for rows in self._ranges:
            embedded = (embedded[:, None] + self.weight[rows]).flatten(0, 1)
        return embedded


class AtomEmbedding(nn.Module):
    """One token per atom, after the graph token: the sum of atom features and degree (centrality encoding).

    Args:
        dim: Width D.
        legacy_vocab: Use the published tables.

    Source: Ying et al. 2021, section 3.1.1. Molecular graphs are undirected, so one degree table is
    equivalent to the two of the published code; `legacy_vocab` keeps both. Degrees above `MAX_DEGREE` share
    its row, also with `legacy_vocab`.
    """

    lookup_tables: ClassVar[tuple[str, ...]] = ("graph_token",)

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

    def forward(
        self,
        atoms: UInt8[Tensor, "B A 9"],
        degree: Int[Tensor, "B A"],
        hidden: Bool[Tensor, "B A"] | None = None,
        stand_in: Float[Tensor, " D"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Embed the atoms of a batch.

        Args:
            atoms: Features of the atoms, indices into OGB's vocabularies [B, A, 9].
            degree: Number of bonds of each atom [B, A].
            hidden: True at atoms whose features are replaced [B, A]; their degree stays.
            stand_in: The embedding that replaces the features of hidden atoms [D].

        Returns:
            The graph token and one token per atom [B, 1 + A, D].
        """
        degree = degree.clamp(max=MAX_DEGREE)
        tokens = self.features(atoms)
        if hidden is not None and stand_in is not None:
            tokens = torch.where(hidden[..., None], stand_in.to(tokens.dtype), tokens)
        for table in self.degree:
            tokens = tokens + table(degree)
        graph_token = self.graph_token.expand(len(atoms), 1, -1)
        return torch.cat([graph_token, tokens], dim=1)
