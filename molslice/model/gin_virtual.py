"""GIN with a virtual node: the baseline of PCQM4M-LSC published by OGB, in layers of PyG.

Source: Xu et al. 2019, "How Powerful are Graph Neural Networks?"; Gilmer et al. 2017 for the virtual node; Hu
et al. 2021, "OGB-LSC", for the form and the sizes (5 layers of 600: 6.66 M parameters).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from molslice.model.base import AttentionChoice
from molslice.model.embeddings import FeatureEmbedding
from molslice.model.graphormer import GraphormerSpec, build_variance_readout
from molslice.ops.gaussian import bound_log_variance
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.types import DataSpec, ModelOutput, MoleculeBatch, MolsliceError


@dataclass(frozen=True, slots=True)
class GinVirtualSpec(GraphormerSpec):
    """The spec of the baseline, with `dim`, `num_layers` and `dropout`.

    The other options of a Graphormer are accepted and unused, so that a comparison can use one configuration
    for both models.

    Attributes:
        name: Configuration name of the model.
    """

    needed: ClassVar[tuple[str, ...]] = ("num_layers", "dim")
    uses_attention: ClassVar[bool] = False
    learns_distances: ClassVar[bool] = False
    has_batch_norm: ClassVar[bool] = True

    name: Literal["gin_virtual"] = "gin_virtual"

    @property
    def takes_adjacency(self) -> bool:
        """False: the convolutions take the list of bonds."""
        return False

    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:  # noqa: ARG002
        """Construct the module, which has no attention; see `ModelSpec.build`.

        Raises:
            MolsliceError: The data have descriptors.
        """
        if data.num_descriptors:
            raise MolsliceError("gin_virtual does not take descriptors; remove data.descriptors")
        return GinVirtual(self, data)


class _BatchNorm(nn.BatchNorm1d):
    """Batch norm that takes the running statistics for a single row, which has no variance."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of torch
        if not self.training or len(input) > 1:
            return super().forward(input)
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


def _two_layers(dim: int, *, last_norm: bool) -> nn.Sequential:
    layers = [nn.Linear(dim, dim), _BatchNorm(dim), nn.ReLU(), nn.Linear(dim, dim)]
    return nn.Sequential(*layers, *([_BatchNorm(dim), nn.ReLU()] if last_norm else []))


class GinVirtual(nn.Module):
    """Message passing h_i <- MLP((1 + eps) h_i + sum over bonds of relu(h_j + e_ij)) with a virtual node.

    The virtual node is added to every atom before a layer and updated between layers from the sum of the
    atoms. The prediction is a linear map of the sum of the last atom states.

    Source: see the module.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "atom_embedding": "atom embedding",
            "bond_embedding": "bond embedding",
            "virtual_node": "virtual node",
            "virtual_updates": "virtual node",
            "norms": "layers",
        }
    )

    def __init__(self, spec: GinVirtualSpec, data: DataSpec) -> None:
        # importing PyG takes seconds, and reading a configuration does not need it
        from torch_geometric.nn import GINEConv, global_add_pool

        super().__init__()
        assert spec.dim is not None  # a spec sets its sizes when it is built
        assert spec.num_layers is not None
        dim, depth = spec.dim, spec.num_layers
        self.spec = spec
        self.atom_embedding = FeatureEmbedding(ATOM_FEATURE_SIZES, dim)
        self.bond_embedding = nn.ModuleList(FeatureEmbedding(BOND_FEATURE_SIZES, dim) for _ in range(depth))
        for table in (self.atom_embedding, *self.bond_embedding):
            nn.init.xavier_uniform_(table.weight)  # pyright: ignore[reportArgumentType]
        self.virtual_node = nn.Parameter(torch.zeros(dim))
        self.layers = nn.ModuleList(
            GINEConv(_two_layers(dim, last_norm=False), train_eps=True) for _ in range(depth)
        )
        self.norms = nn.ModuleList(_BatchNorm(dim) for _ in range(depth))
        self.virtual_updates = nn.ModuleList(_two_layers(dim, last_norm=True) for _ in range(depth - 1))
        self.dropout = nn.Dropout(spec.dropout)
        self.readout = nn.Linear(dim, data.num_outputs)
        self.variance_readout = None
        if data.predicts_variance:
            self.variance_readout = build_variance_readout(dim, data.num_outputs)
        self._sum_atoms = global_add_pool

    def forward(self, batch: MoleculeBatch) -> ModelOutput:
        """Predict a batch: standardized values [B, T], without unit, and their log variance."""
        molecules = len(batch)
        edges, bond_features = directed_edges(batch)
        graph = torch.arange(molecules, device=edges.device)[:, None].expand_as(batch.atom_mask)[
            batch.atom_mask
        ]
        atoms = self.atom_embedding(batch.atoms[batch.atom_mask])
        virtual = self.virtual_node.expand(molecules, -1)
        for index, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            atoms = atoms + virtual[graph]
            state = norm(layer(atoms, edges, self.bond_embedding[index](bond_features)))
            if index < len(self.virtual_updates):
                state = torch.relu(state)
                pooled = self._sum_atoms(atoms, graph, size=molecules)
                virtual = self.dropout(self.virtual_updates[index](pooled + virtual))
            atoms = self.dropout(state)
        state = self._sum_atoms(atoms, graph, size=molecules)
        if self.variance_readout is None:
            return ModelOutput(self.readout(state))
        log_variance = bound_log_variance(self.variance_readout(state))
        return ModelOutput(self.readout(state), log_variance=log_variance)


def directed_edges(batch: MoleculeBatch) -> tuple[Tensor, Tensor]:
    """Return the edges [2, 2 M] between the real atoms of all molecules, and their features [2 M, 3].

    Each bond is listed in both directions.
    """
    sizes = batch.atom_mask.sum(1)
    first = (sizes.cumsum(0) - sizes)[batch.bond_index[:, 0].long()]
    begin, end = first + batch.bond_index[:, 1], first + batch.bond_index[:, 2]
    edges = torch.stack([torch.cat([begin, end]), torch.cat([end, begin])]).long()
    return edges, batch.bond_features.repeat(2, 1)
