"""Embedding tables for the integer features of a store."""

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.ops.table_sums import NO_SLOT, table_sums
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
    first: Tensor
    last: Tensor

    def __init__(self, sizes: tuple[int, ...], dim: int, *, legacy_vocab: bool = False) -> None:
        super().__init__()
        starts = [1 + LEGACY_SLOTS * k if legacy_vocab else sum(sizes[:k]) for k in range(len(sizes))]
        rows = 1 + LEGACY_SLOTS * len(sizes) if legacy_vocab else sum(sizes)
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.register_buffer("sizes", torch.tensor(sizes), persistent=False)
        self._is_sparse = legacy_vocab
        firsts = [sum(sizes[:k]) for k in range(len(sizes))]
        # whole numbers below 256 in place of slots where there are few
        self.register_buffer("first", torch.tensor(firsts).to(torch.uint8), persistent=False)
        last = torch.tensor([size - 1 for size in sizes], dtype=torch.uint8)
        self.register_buffer("last", last, persistent=False)
        self._ranges = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        self.weight = nn.Parameter(torch.empty(rows, dim))
        nn.init.normal_(self.weight, std=len(sizes) ** -0.5)

    def forward(self, features: UInt8[Tensor, "*rows F"]) -> Float[Tensor, "*rows D"]:
        """Embed features. Indices beyond a vocabulary use its last entry, the unknown."""
        slots = torch.minimum(features.long(), self.sizes - 1) + self.starts
        flat = F.embedding_bag(slots.flatten(0, -2), self.weight, mode="sum")
        return flat.unflatten(0, slots.shape[:-1])

    def slots(self, features: UInt8[Tensor, "*rows F"]) -> UInt8[Tensor, "*rows F"]:
        """Return the rows of `used_rows` that features select, for at most 255 rows."""
        return torch.minimum(features, self.last) + self.first

    def used_rows(self) -> Float[Tensor, "R D"]:
        """Return the rows of the table that features can select, grouped by feature."""
        return torch.cat([self.weight[rows] for rows in self._ranges]) if self._is_sparse else self.weight

    def embed_combinations(self) -> Float[Tensor, "combinations D"]:
        """Embed all combinations of the features; the last feature varies fastest."""
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
        """Embed the graph token and the atoms.

        Args:
            atoms: Features of the atoms, indices into OGB's vocabularies.
            degree: Number of bonds of each atom.
            hidden: True at atoms whose features are replaced; their degree stays.
            stand_in: The embedding that replaces the features of hidden atoms.
        """
        degree = degree.clamp(max=MAX_DEGREE)
        if atoms.is_cuda:
            return self._sum_rows(atoms, degree, hidden, stand_in)
        tokens = self.features(atoms)
        if hidden is not None and stand_in is not None:
            tokens = torch.where(hidden[..., None], stand_in.to(tokens.dtype), tokens)
        for table in self.degree:
            tokens = tokens + table(degree)
        graph_token = self.graph_token.expand(len(atoms), 1, -1)
        return torch.cat([graph_token, tokens], dim=1)

    def _sum_rows(
        self, atoms: Tensor, degree: Tensor, hidden: Tensor | None, stand_in: Tensor | None
    ) -> Float[Tensor, "B N D"]:
        """Compute all tokens as sums of rows of one table, whose gradient has a fixed order of additions."""
        features = self.features.used_rows()
        tables: list[Any] = list(self.degree)
        centrality = torch.stack([table.weight[: MAX_DEGREE + 1] for table in tables]).sum(0)
        single: list[Tensor] = [self.graph_token]
        if stand_in is not None:
            single.append(stand_in.to(features.dtype))
        rows = torch.cat([features, centrality, torch.stack(single)])
        slots = self.features.slots(atoms)
        graph_token = len(features) + len(centrality)
        if hidden is not None and stand_in is not None:
            slots = slots.masked_fill(hidden[..., None], NO_SLOT)
            slots[..., 0].masked_fill_(hidden, graph_token + 1)
        slots = torch.cat([slots, (degree + len(features)).to(torch.uint8)[..., None]], -1)
        slots = F.pad(slots, (0, 0, 1, 0), value=NO_SLOT)
        slots[:, 0, 0] = graph_token
        return table_sums(rows, slots)
