"""A rewrite of Graphormer's published pipeline, to measure molslice beside it.

It computes what the published code computes, in the same way: each molecule is preprocessed whenever it is
drawn (shortest paths by Floyd and Warshall, the bonds on all paths), the collator pads every tensor to the
largest molecule of the batch, among them the features of bonds on paths [B, N, N, 5, 3], and the model embeds
that tensor, multiplies it hop by hop with a matrix, and sums. Tables have 512 rows for each feature.
`training_speed.py` trains it; `tests/test_graphormer_rewrite.py` compares its pair bias with molslice's.

Source: Ying et al. 2021, arXiv 2106.05234, sections 3.1 and 3.2, and the settings of the published code.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.bench.training import MODELS
from molslice.model.graphormer import PRESETS

UNREACHABLE, MAX_HOPS = 510, 5
SLOTS = 512  # rows of a table for each feature
ATOM_FEATURES, BOND_FEATURES = 9, 3
HOP_SLOTS = 128
FAR = 1024  # distances from here on are masked; no molecule has one


def graphormer_item(graph: dict[str, Any]) -> dict[str, np.ndarray]:
    """Compute what Graphormer's `preprocess_item` computes for a graph of n atoms.

    Returns:
        `x` and `attn_edge_type` with one range of indices for each feature, distances `spatial_pos` [n, n],
        `in_degree` [n], and `edge_input` [n, n, hops, 3], the features of the bonds on the paths.
    """
    num_atoms = int(graph["num_nodes"])
    ends, features = graph["edge_index"], graph["edge_feat"]
    x = graph["node_feat"] + 1 + np.arange(9) * 512
    edge_type = np.zeros((num_atoms, num_atoms, 3), np.int64)
    edge_type[ends[0], ends[1]] = features + 1 + np.arange(3) * 512 + 1
    adjacent = np.zeros((num_atoms, num_atoms), bool)
    adjacent[ends[0], ends[1]] = True
    distances, between = floyd_warshall(adjacent)
    hops = min(MAX_HOPS, int(distances[distances < UNREACHABLE].max(initial=0)))
    edge_input = -np.ones((num_atoms, num_atoms, max(hops, 1), 3), np.int64)
    for i in range(num_atoms):
        for j in range(num_atoms):
            if i == j or distances[i, j] >= UNREACHABLE:
                continue
            path = [i, *inner_path(between, i, j), j]
            for step in range(min(len(path) - 1, hops)):
                edge_input[i, j, step] = edge_type[path[step], path[step + 1]]
    return {
        "x": x,
        "attn_edge_type": edge_type,
        "spatial_pos": distances,
        "in_degree": adjacent.sum(1),
        "edge_input": edge_input,
    }


def floyd_warshall(adjacent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute all distances, `UNREACHABLE` without a path, and an inner atom of each path, -1 without one.

    Graphormer compiles these loops with Cython. Here the two inner loops are one operation of numpy, which is
    as fast for molecules of this size.
    """
    distances = np.where(adjacent, 1, UNREACHABLE)
    np.fill_diagonal(distances, 0)
    between = np.full_like(distances, -1)
    for k in range(len(adjacent)):
        through = distances[:, k, None] + distances[None, k]
        shorter = through < distances
        distances = np.where(shorter, through, distances)
        between[shorter] = k
    return np.minimum(distances, UNREACHABLE), between


def inner_path(between: np.ndarray, i: int, j: int) -> list[int]:
    """Return the atoms between i and j on the path."""
    k = int(between[i, j])
    return [] if k < 0 else [*inner_path(between, i, k), k, *inner_path(between, k, j)]


class GraphormerBatch(NamedTuple):
    """A padded batch. Indices are shifted by one, so that 0 is padding.

    Attributes:
        atoms: Indices of atom features [B, N, 9].
        degrees: Degree of each atom [B, N].
        distances: Distances of atoms [B, N, N].
        path_bonds: Indices of the features of the bonds on the paths [B, N, N, hops, 3].
        bond_types: Indices of the features of the bonds between atoms [B, N, N, 3]. The published collator
            pads them too, although the model reads only `path_bonds`.
        mask_bias: Zero, and minus infinity where one of a pair of tokens is padding, [B, 1 + N, 1 + N].
        targets: Target of each molecule [B].
    """

    atoms: Tensor
    degrees: Tensor
    distances: Tensor
    path_bonds: Tensor
    bond_types: Tensor
    mask_bias: Tensor
    targets: Tensor


class GraphormerSet(torch.utils.data.Dataset):
    """Graphs of OGB with targets, preprocessed whenever one is drawn.

    Args:
        graphs: Results of `ogb.utils.smiles2graph`.
        targets: Target of each graph.
    """

    def __init__(self, graphs: Sequence[dict[str, Any]], targets: Sequence[float]) -> None:
        self.graphs, self.targets = graphs, targets

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], float]:
        item = graphormer_item(self.graphs[index])
        return {name: torch.from_numpy(np.asarray(values)) for name, values in item.items()}, self.targets[
            index
        ]


def collate(items: Sequence[tuple[dict[str, Tensor], float]]) -> GraphormerBatch:
    """Pad preprocessed molecules to the largest one."""
    molecules = [item for item, _ in items]
    count, largest = len(items), max(len(item["x"]) for item in molecules)
    hops = min(MAX_HOPS, max(item["edge_input"].shape[2] for item in molecules))

    def padded(name: str, shape: tuple[int, ...]) -> Tensor:
        whole = torch.zeros((count, *shape), dtype=torch.long)
        for place, item in enumerate(molecules):
            values = item[name] + 1
            whole[(place, *(slice(size) for size in values.shape))] = values
        return whole

    mask = torch.zeros(count, largest + 1, largest + 1)
    for place, item in enumerate(molecules):
        atoms = len(item["x"])
        mask[place, 1 : atoms + 1, 1 : atoms + 1][item["spatial_pos"] >= FAR] = -torch.inf
        mask[place, :, atoms + 1 :] = -torch.inf
    pairs = (largest, largest)
    return GraphormerBatch(
        padded("x", (largest, ATOM_FEATURES)),
        padded("in_degree", (largest,)),
        padded("spatial_pos", pairs),
        padded("edge_input", (*pairs, hops, BOND_FEATURES)),
        padded("attn_edge_type", (*pairs, BOND_FEATURES)),
        mask,
        torch.tensor([target for _, target in items]),
    )


class PairBias(nn.Module):
    """The bias of all pairs of tokens: distances, bonds on the paths, and the graph token."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.distance = nn.Embedding(SLOTS, num_heads, padding_idx=0)
        self.bond = nn.Embedding(SLOTS * BOND_FEATURES + 1, num_heads, padding_idx=0)
        self.hops = nn.Embedding(HOP_SLOTS * num_heads * num_heads, 1)
        self.graph_token = nn.Embedding(1, num_heads)

    def forward(self, batch: GraphormerBatch) -> Tensor:
        """Return the bias [B, H, 1 + N, 1 + N]."""
        bias = batch.mask_bias[:, None].repeat(1, self.num_heads, 1, 1)
        bias[:, :, 1:, 1:] += self.distance(batch.distances).permute(0, 3, 1, 2)
        token = self.graph_token.weight.view(1, self.num_heads, 1)
        bias[:, :, 1:, 0] += token
        bias[:, :, 0, :] += token
        bias[:, :, 1:, 1:] += self.edges(batch).permute(0, 3, 1, 2)
        return bias

    def edges(self, batch: GraphormerBatch) -> Tensor:
        """Return the encoding of the bonds on the path of each pair of atoms [B, N, N, H]."""
        bonds = self.bond(batch.path_bonds).mean(-2)
        count, atoms, _, hops, heads = bonds.shape
        by_hop = bonds.permute(3, 0, 1, 2, 4).reshape(hops, -1, heads)
        by_hop = torch.bmm(by_hop, self.hops.weight.view(HOP_SLOTS, heads, heads)[:hops])
        total = by_hop.reshape(hops, count, atoms, atoms, heads).sum(0)
        # distances are shifted by one
        lengths = (batch.distances - 1).clamp(1, MAX_HOPS)
        return total / lengths[..., None].float()


class Layer(nn.Module):
    """One layer with normalization before attention and feed-forward network."""

    def __init__(self, dim: int, ffn_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.ffn = nn.Sequential(nn.Linear(dim, ffn_dim), nn.GELU(), nn.Linear(ffn_dim, dim))

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Return the tokens [B, 1 + N, D] of the next layer."""
        mixed = self.out(self.attend(self.attention_norm(tokens), bias))
        tokens = tokens + F.dropout(mixed, self.dropout, self.training)
        return tokens + F.dropout(self.ffn(self.ffn_norm(tokens)), self.dropout, self.training)

    def attend(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Return the mixed values [B, 1 + N, D]."""
        query, key, value = (
            linear(tokens).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(2, 3) + bias
        weights = F.dropout(torch.softmax(scores, dim=3), self.dropout, self.training)
        return (weights @ value).transpose(1, 2).flatten(2)


class Graphormer(nn.Module):
    """The model for one target."""

    def __init__(self, num_layers: int, dim: int, ffn_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.atom = nn.Embedding(SLOTS * ATOM_FEATURES + 1, dim, padding_idx=0)
        self.in_degree = nn.Embedding(SLOTS, dim, padding_idx=0)
        self.out_degree = nn.Embedding(SLOTS, dim, padding_idx=0)
        self.graph_token = nn.Embedding(1, dim)
        self.bias = PairBias(num_heads)
        self.layers = nn.ModuleList(Layer(dim, ffn_dim, num_heads, dropout) for _ in range(num_layers))
        self.norm, self.readout = nn.LayerNorm(dim), nn.Linear(dim, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, batch: GraphormerBatch) -> Tensor:
        """Predict the target of each molecule [B]."""
        atoms = self.atom(batch.atoms).sum(-2)
        atoms = atoms + self.in_degree(batch.degrees) + self.out_degree(batch.degrees)
        graph = self.graph_token.weight.expand(len(atoms), 1, -1)
        tokens = F.dropout(torch.cat([graph, atoms], 1), self.dropout, self.training)
        bias = self.bias(batch)
        for layer in self.layers:
            tokens = layer(tokens, bias)
        return self.readout(self.norm(tokens)[:, 0]).squeeze(-1)


def build_graphormer(size: str) -> Graphormer:
    """Build the model with a size of `molslice bench train`."""
    # presets have a dropout of 0.1 unless they state another
    given = MODELS[size]
    sizes = PRESETS[given["preset"]] if "preset" in given else given
    sizes = {"dropout": 0.1, **sizes}
    names = ("num_layers", "dim", "ffn_dim", "num_heads", "dropout")
    return Graphormer(**{name: sizes[name] for name in names})
