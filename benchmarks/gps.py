"""GPS as a model of molslice: PyG's `GPSConv` with GINE messages, attention and random-walk encodings.

Source: Rampasek et al. 2022, "Recipe for a General, Powerful, Scalable Graph Transformer"; layers, norms and
head as in PyG's example for ZINC, with the atoms and bonds of OGB.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

from molslice.model.base import AttentionChoice
from molslice.model.embeddings import FeatureEmbedding
from molslice.model.gin_virtual import GinVirtualSpec, directed_edges
from molslice.ops.path_codes import NO_BOND, bond_codes, code_adjacency
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.types import DataSpec, ModelOutput, MoleculeBatch

WALK_STEPS = 20
WALK_DIM = 8


@dataclass(frozen=True, slots=True)
class GpsSpec(GinVirtualSpec):
    """The spec of the model, with `dim`, `num_layers`, `num_heads` and the dropouts.

    Attributes:
        name: Configuration name of the model.
    """

    name: Literal["gps"] = "gps"

    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:  # noqa: ARG002
        """Construct the module; see `ModelSpec.build`."""
        return Gps(self, data)


class Gps(nn.Module):
    """Layers of messages along bonds beside attention over the atoms; the sum of the atoms is the readout."""

    def __init__(self, spec: GpsSpec, data: DataSpec) -> None:
        super().__init__()
        dim = spec.dim
        assert dim is not None
        assert spec.num_layers is not None
        assert spec.num_heads is not None
        self.atom_embedding = FeatureEmbedding(ATOM_FEATURE_SIZES, dim - WALK_DIM)
        self.bond_embedding = FeatureEmbedding(BOND_FEATURE_SIZES, dim)
        for table in (self.atom_embedding, self.bond_embedding):
            nn.init.xavier_uniform_(table.weight)  # pyright: ignore[reportArgumentType]
        self.walk_norm = nn.BatchNorm1d(WALK_STEPS)
        self.walk = nn.Linear(WALK_STEPS, WALK_DIM)
        self.layers = nn.ModuleList(
            GPSConv(
                dim,
                GINEConv(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))),
                heads=spec.num_heads,
                dropout=spec.dropout,
                attn_kwargs={"dropout": spec.attention_dropout},
            )
            for _ in range(spec.num_layers)
        )
        head = [nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, dim // 4), nn.ReLU()]
        self.readout = nn.Sequential(*head, nn.Linear(dim // 4, data.num_outputs))

    def forward(self, batch: MoleculeBatch) -> ModelOutput:
        """Predict a batch: standardized values [B, T], without unit."""
        real, molecules = batch.atom_mask, len(batch)
        number = torch.arange(molecules, device=real.device)[:, None].expand_as(real)[real]
        edges, bond_features = directed_edges(batch)
        bonds = self.bond_embedding(bond_features)
        walks = self.walk(self.walk_norm(return_probabilities(batch)[real].to(self.walk.weight)))
        atoms = torch.cat([self.atom_embedding(batch.atoms[real]), walks], 1)
        for layer in self.layers:
            atoms = layer(atoms, edges, number, edge_attr=bonds)
        return ModelOutput(self.readout(global_add_pool(atoms, number, size=molecules)))


def return_probabilities(batch: MoleculeBatch) -> Tensor:
    """Return the probability that a random walk is back at its atom after 1 to 20 steps, [B, A, 20]."""
    codes = code_adjacency(batch.bond_index, bond_codes(batch.bond_features), *batch.atom_mask.shape)
    adjacency = (codes != NO_BOND).float()
    step = adjacency / adjacency.sum(2, keepdim=True).clamp(min=1)
    walk, probabilities = step, []
    for _ in range(WALK_STEPS):
        probabilities.append(walk.diagonal(dim1=1, dim2=2))
        walk = walk @ step
    return torch.stack(probabilities, 2)
