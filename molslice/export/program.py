"""A trained model as one function of plain arrays, in operators that can be exported."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from molslice.export.paths import bond_counts, dense_bias, dense_paths
from molslice.model.embeddings import MAX_DEGREE, AtomEmbedding
from molslice.model.graphormer import Graphormer
from molslice.ops.column_ops import AXES, BY_COLUMN, BY_TOKEN, permute_by_torch, sort_by_torch
from molslice.ops.masked import masked_mean
from molslice.tasks.targets import TargetInfo


class MoleculeProgram(nn.Module):
    """Predict padded molecules in the units of the targets, equal to the model up to rounding.

    Args:
        networks: One or several trained models, whose mean is predicted, each with its targets.
    """

    def __init__(self, networks: Sequence[tuple[Graphormer, TargetInfo]]) -> None:
        super().__init__()
        self.models = nn.ModuleList(model.eval() for model, _ in networks)
        self.targets = [targets for _, targets in networks]

    def forward(
        self, atoms: UInt8[Tensor, "B A 9"], atom_mask: Bool[Tensor, "B A"], bonds: UInt8[Tensor, "B M 5"]
    ) -> Float[Tensor, "B T"]:
        """Predict a batch.

        Args:
            atoms: Features of the atoms, indices into OGB's vocabularies, arbitrary at padding [B, A, 9].
            atom_mask: True at real atoms [B, A].
            bonds: Begin atom, end atom, type, stereo and conjugation of each bond, zero at padding [B, M, 5].

        Returns:
            Values in the units of the targets, or probabilities of class 1 [B, T].
        """
        predictions = [
            targets.to_unit(_predict(model, atoms, atom_mask, bonds))
            for model, targets in zip(self.models, self.targets, strict=True)
        ]
        return predictions[0] if len(predictions) == 1 else torch.stack(predictions).mean(0)


def _predict(model: Any, atoms: Tensor, atom_mask: Tensor, bonds: Tensor) -> Tensor:  # noqa: ANN401
    """Predict a batch with one Graphormer."""
    # one more row of padding, so that a molecule without bonds has a list too
    table = functional.pad(bonds.long(), (0, 0, 0, 1))
    ends, features = table[..., :2], table[..., 2:]
    bias = None
    if model.encoder.pair_bias_mode != "none":
        bias = dense_bias(model.graph_bias, dense_paths(ends, atoms.shape[1]), features)
    mask = functional.pad(atom_mask, (1, 0), value=True)
    listed = _list_bonds(ends, features) if model.spec.local else None
    embedded = _embed(model.atom_embedding, atoms, ends)
    tokens = model.encoder(embedded, mask, bias, bonds=listed, num_queries=model.spec.tokens_read).tokens
    state = tokens[:, 0]
    if model.spec.readout == "mean":
        state = masked_mean(tokens[:, 1:], atom_mask[..., None], 1)
    return model.readout(state)


def _list_bonds(ends: Tensor, features: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return the bonds of all molecules [B M, 3] and their features, as `BondMessages` takes them."""
    rows, places, _ = ends.shape
    molecule = torch.arange(rows, device=ends.device)[:, None, None].expand(rows, places, 1)
    is_bond = ends[..., :1] != ends[..., 1:]
    index = torch.cat([molecule, torch.where(is_bond, ends, -1)], -1)
    return index.flatten(0, 1), features.flatten(0, 1).byte(), None


def _embed(embedding: AtomEmbedding, atoms: Tensor, ends: Tensor) -> Tensor:
    """Return the tokens of `AtomEmbedding.forward`, by lookups instead of a bag of embeddings."""
    features = embedding.features
    slots = torch.minimum(atoms.long(), features.sizes - 1) + features.starts
    tokens = features.weight[slots].sum(2)
    degree = bond_counts(ends, atoms.shape[1]).clamp(max=MAX_DEGREE)
    for table in embedding.degree:
        tokens = tokens + table(degree)
    return torch.cat([embedding.graph_token.expand(atoms.shape[0], 1, -1), tokens], 1)


def plain_forms() -> dict[Any, Callable]:
    """Return the sorts of `molslice.ops.column_ops` in torch's own operators, which ONNX has too.

    A file with an operator of molslice could be used only where molslice is installed.

    Returns:
        The form of each operator, for `ExportedProgram.run_decompositions`.
    """
    operators = torch.ops.molslice
    return {
        operators.sort_columns.default: _sort,
        operators.sorted_columns.default: lambda *given: _sort(*given)[0],
        operators.permute_columns.default: lambda values, order, inverse, layout: _arrange(
            permute_by_torch(values, order, inverse), layout
        ),
    }


def _sort(
    values: Tensor,
    token_mask: Tensor,
    descending: Tensor | None,
    to_front: bool,
    order_dtype: torch.dtype = torch.int32,
) -> tuple[Tensor, Tensor]:
    # ONNX does not say where NaN is sorted, so padding is infinite here.
    ranked, order = sort_by_torch(values, token_mask, descending, to_front, torch.inf)
    return _arrange(ranked, BY_TOKEN), _arrange(order.to(order_dtype), BY_COLUMN)


def _arrange(columns: Tensor, layout: str) -> Tensor:
    """Give columns [B, G, C, N] the memory layout that the operator has."""
    places = [AXES.index(axis) for axis in layout]
    return columns.permute(places).contiguous().permute([layout.index(axis) for axis in AXES])
