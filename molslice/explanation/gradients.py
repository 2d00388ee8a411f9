"""Integrated gradients over the embeddings of atoms and bonds.

The path leads from the baseline to the molecule. At position t, each atom has the features' embedding
x0 + t (x1 - x0), from x0 of the baseline to x1 of the molecule; likewise each bond in the edge encoding and
in the messages along bonds. The contribution of an atom is the integral of the gradient along its own
difference x1 - x0, and half of the contribution of each of its bonds. The graph (distances, degrees, the
graph token) is the same along the path.

The integral is computed by Gauss-Legendre quadrature in intervals of t. In each interval, the sum of all
contributions must be the change of the score; intervals with the largest errors are halved until the sum of
the errors, and the root of the sum of their squares, are below the tolerance. A jump of the score has no
gradient and cannot be integrated. Messages along bonds have a kink in each channel (relu), whose small errors
have any sign, so that a sum of absolute errors would need ten times the steps.

Source: Sundararajan, Taly and Yan 2017, "Axiomatic Attribution for Deep Networks".
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from molslice.explanation.masked_molecule import MaskedMolecule
from molslice.explanation.score import Score
from molslice.inference.precision import float32_inference
from molslice.inference.predictions import NOT_FINITE
from molslice.model.graphormer import Graphormer
from molslice.ops.paths import bond_path_levels
from molslice.types import MolsliceError

TOLERANCE = 1e-3  # of the completeness error, in standard deviations of the target; for classes in log-odds
NODES = 4  # of the quadrature in an interval
INTERVALS = 4  # at the start
MAX_STEPS = 8_192
SHORTEST = 2.0**-12  # an interval in which the score changes by more than the tolerance is a jump


def integrated_gradients(
    score: Score, molecule: MaskedMolecule, tolerance: float = TOLERANCE
) -> tuple[np.ndarray, np.ndarray, int]:
    """Compute the contribution of each atom; see the module.

    Args:
        score: The number to explain.
        molecule: The molecule and its baseline.
        tolerance: Largest difference between the sum of the contributions and the score of the molecule minus
            the score of the baseline, in standard deviations of the target.

    Returns:
        The contribution of each of n atoms in the unit of the score, float64 [n], the part of it that comes
        from bonds, float64 [n], and the number of gradients.

    Raises:
        MolsliceError: A gradient is not finite, or the difference is above the tolerance because the score
            jumps along the path.
    """
    limit = tolerance * score.spread
    totals, steps = np.zeros(molecule.num_atoms + molecule.num_bonds), 0
    for index in range(len(score.networks)):
        integral, gradients = _Path(score, index, molecule).integrate(limit)
        totals += integral / len(score.networks)
        steps += gradients
    atoms, bonds = np.split(totals, [molecule.num_atoms])
    of_bonds = np.zeros(molecule.num_atoms)
    np.add.at(of_bonds, molecule.bond_ends, bonds[:, None] / 2)
    return atoms + of_bonds, of_bonds, steps


def check_gradients(score: Score) -> None:
    """Check that `integrated_gradients` supports the networks."""
    for network in score.networks:
        if not isinstance(network.model, Graphormer):
            raise MolsliceError(
                f"{network.name} is a {network.config.model.name}; integrated gradients need a graphormer. "
                "Use the method shapley"
            )


class _Path:
    """The straight path from the baseline to the molecule through one network."""

    def __init__(self, score: Score, index: int, molecule: MaskedMolecule) -> None:
        self.score, self.index, self.molecule = score, index, molecule
        self.name = score.networks[index].name
        model = score.networks[index].model
        assert isinstance(model, Graphormer)
        self.model = model
        with float32_inference(score.device, gradients=True), torch.no_grad():
            visible, masked = molecule.copies(1), molecule.baseline
            atoms, bonds = model.atom_embedding.features, _bond_tables(model)
            self.atom_ends = atoms(masked.atoms), atoms(visible.atoms)
            self.bond_ends = [(table(masked.bond_features), table(visible.bond_features)) for table in bonds]

    def integrate(self, limit: float) -> tuple[np.ndarray, int]:
        """Return the integral for each atom and bond, float64 [n + m], and the number of gradients."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        nodes, weights = (nodes + 1) / 2, weights / 2
        pending = [(i / INTERVALS, (i + 1) / INTERVALS) for i in range(INTERVALS)]
        done: dict[tuple[float, float], tuple[np.ndarray, float]] = {}
        values: dict[float, float] = {}
        steps = 0
        while pending:
            positions = np.concatenate([low + (high - low) * nodes for low, high in pending])
            gradients = self._gradients(positions).reshape(len(pending), NODES, -1)
            steps += len(positions)
            edges = sorted({edge for interval in pending for edge in interval} - values.keys())
            values.update(zip(edges, self._values(np.array(edges)), strict=True))
            for (low, high), at_nodes in zip(pending, gradients, strict=True):
                integral = (high - low) * np.einsum("k,ki->i", weights, at_nodes)
                done[low, high] = integral, integral.sum() - (values[high] - values[low])
            errors = [error for _, error in done.values()]
            missing = _total(errors)
            if missing <= limit:
                break
            final = _total([error for (low, high), (_, error) in done.items() if high - low <= SHORTEST])
            if final > limit or steps >= MAX_STEPS:
                raise MolsliceError(
                    f"integrated gradients of {self.name} do not add up: after {steps} steps {missing:.2g} "
                    f"{self.score.unit or 'of the target'} are missing, more than {limit:.2g}, because the "
                    "model jumps between the baseline and the molecule. Use the method shapley"
                )
            open_intervals = [interval for interval in done if interval[1] - interval[0] > SHORTEST]
            worst = sorted(open_intervals, key=lambda interval: abs(done[interval][1]), reverse=True)
            # with errors below these limits, what is missing would be half of the limit at most
            is_noisy = math.hypot(*errors) > limit
            least = limit / (2 * (math.sqrt(len(done)) if is_noisy else len(done)))
            worst = [interval for interval in worst if abs(done[interval][1]) > least]
            pending = []
            for low, high in worst[: max(1, (MAX_STEPS - steps) // (2 * NODES))]:
                del done[low, high]
                middle = (low + high) / 2
                pending += [(low, middle), (middle, high)]
        return np.sum([integral for integral, _ in done.values()], axis=0), steps

    def _values(self, positions: np.ndarray) -> np.ndarray:
        """Return the score at positions, float64 [K]."""
        scores = [torch.zeros(0)]
        with float32_inference(self.score.device, gradients=True), torch.no_grad():
            for batch in self._split(positions):
                scores.append(self._score_at(*self._gates(batch)).cpu())
        return _finite(torch.cat(scores))

    def _gradients(self, positions: np.ndarray) -> np.ndarray:
        """Return the derivative of the score by the position of each atom and bond, float64 [K, n + m]."""
        gradients = []
        with float32_inference(self.score.device, gradients=True):
            for batch in self._split(positions):
                gates = self._gates(batch)
                total = self._score_at(*gates).sum()
                derivatives = torch.autograd.grad(total, gates, allow_unused=True, materialize_grads=True)
                gradients.append(torch.cat(derivatives, 1).cpu())
        return _finite(torch.cat(gradients))

    def _split(self, positions: np.ndarray) -> Iterator[Tensor]:
        yield from torch.from_numpy(positions).float().split(self.molecule.copies_at_once)

    def _gates(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of each atom [K, n] and of each bond [K, m] of each copy, as leaves."""
        widths = (self.molecule.num_atoms, self.molecule.num_bonds)
        along = positions.to(self.score.device)[:, None]
        atoms, bonds = (along.expand(-1, width).clone().requires_grad_() for width in widths)
        return atoms, bonds

    def _score_at(self, atoms: Tensor, bonds: Tensor) -> Tensor:
        """Return the score of copies with embeddings at positions of the path, float64 [K]."""
        start, end = self.atom_ends
        tokens = start + atoms[..., None] * (end - start)
        edges = [(old + bonds[..., None] * (new - old)).flatten(0, 1) for old, new in self.bond_ends]
        model = _with_embeddings(self.model, tokens, edges)
        copies = self.molecule.copies(len(atoms))
        # each bond has an embedding, where the codes of a GPU need a table of their kinds
        levels = bond_path_levels(copies.bond_index, *copies.atom_mask.shape)
        return self.score.of_network(self.index, replace(copies, levels=levels), model)


class _Constant(nn.Module):
    """A table that returns given embeddings for any features."""

    def __init__(self, embedding: Tensor) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, features: Tensor) -> Tensor:  # noqa: ARG002
        return self.embedding


def _total(errors: Sequence[float]) -> float:
    """Return the absolute sum of errors, or the root of the sum of their squares, whichever is larger."""
    return max(abs(math.fsum(errors)), math.hypot(*errors))


def _bond_tables(model: Any) -> list[nn.Module]:  # noqa: ANN401
    """Return the embeddings of bonds of a Graphormer: of the edge encoding, then of each layer's messages."""
    return [model.graph_bias.bond_embedding, *(layer.bond_embedding for layer in model.encoder.messages)]


def _with_embeddings(model: Graphormer, atoms: Tensor, bonds: Sequence[Tensor]) -> nn.Module:
    """Return the model with other embeddings of atoms and bonds; other threads may use the model itself.

    Args:
        model: The model.
        atoms: Embeddings of the atoms.
        bonds: Embeddings of the bonds for each table of `_bond_tables`.
    """
    edges, *others = map(_Constant, bonds)
    messages = nn.ModuleList(
        _replaced(layer, bond_embedding=table)
        for layer, table in zip(model.encoder.messages, others, strict=True)
    )
    return _replaced(
        model,
        atom_embedding=_replaced(model.atom_embedding, features=_Constant(atoms)),
        graph_bias=_replaced(model.graph_bias, bond_embedding=edges),
        encoder=_replaced(model.encoder, messages=messages),
    )


def _replaced(module: nn.Module, **children: nn.Module) -> nn.Module:
    """Return a module that shares everything with another one, except for some children."""
    other = copy.copy(module)
    other.__dict__["_modules"] = {**module._modules, **children}
    return other


def _finite(values: Tensor) -> np.ndarray:
    if not bool(values.isfinite().all()):
        raise MolsliceError(NOT_FINITE)
    return values.detach().double().numpy()
