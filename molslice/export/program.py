"""A trained model as one function of plain arrays, in operators that can be exported."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from molslice.export.paths import bond_counts, dense_bias, dense_paths
from molslice.model.embeddings import MAX_DEGREE
from molslice.model.graphormer import Graphormer
from molslice.ops.masked import masked_mean
from molslice.tasks.targets import TargetInfo

__all__ = ["MeanProgram", "MoleculeProgram"]


class MoleculeProgram(nn.Module):
    """Predict padded molecules in the units of the targets, equal to the model up to rounding.

    Args:
        model: The trained model.
        targets: The description of its targets.
    """

    def __init__(self, model: Graphormer, targets: TargetInfo) -> None:
        super().__init__()
        self.model, self.targets = model.eval(), targets

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
        model = self.model
        # one more row of padding, so that a molecule without bonds has a list too
        table = functional.pad(bonds.long(), (0, 0, 0, 1))
        ends, features = table[..., :2], table[..., 2:]
        bias = None
        if model.encoder.pair_bias_mode != "none":
            bias = dense_bias(model.graph_bias, dense_paths(ends, atoms.shape[1]), features)
        mask = functional.pad(atom_mask, (1, 0), value=True)
        tokens = model.encoder(self._embed(atoms, ends), mask, bias).tokens
        state = tokens[:, 0]
        if model.spec.readout == "mean":
            state = masked_mean(tokens[:, 1:], atom_mask[..., None], 1)
        return self.targets.to_unit(model.readout(state))

    def _embed(self, atoms: Tensor, ends: Tensor) -> Tensor:
        """Return the tokens of `AtomEmbedding.forward`, by lookups instead of a bag of embeddings."""
        embedding = self.model.atom_embedding
        features = embedding.features
        slots = torch.minimum(atoms.long(), features.sizes - 1) + features.starts
        tokens = features.weight[slots].sum(2)
        degree = bond_counts(ends, atoms.shape[1]).clamp(max=MAX_DEGREE)
        for table in embedding.degree:
            tokens = tokens + table(degree)
        return torch.cat([embedding.graph_token.expand(atoms.shape[0], 1, -1), tokens], 1)


class MeanProgram(nn.Module):
    """Predict the mean of one or several programs.

    Args:
        programs: The programs, which have the same targets.
    """

    def __init__(self, programs: Sequence[MoleculeProgram]) -> None:
        super().__init__()
        self.programs = nn.ModuleList(programs)

    def forward(
        self, atoms: UInt8[Tensor, "B A 9"], atom_mask: Bool[Tensor, "B A"], bonds: UInt8[Tensor, "B M 5"]
    ) -> Float[Tensor, "B T"]:
        """Predict a batch; see `MoleculeProgram.forward`."""
        predictions = [program(atoms, atom_mask, bonds) for program in self.programs]
        return predictions[0] if len(predictions) == 1 else torch.stack(predictions).mean(0)
