"""Several kinds of labels of molecules at once, to pretrain an encoder."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from torch import Tensor, nn

from molslice.model.graphormer_pretraining import GraphormerPretraining
from molslice.ops.draws import uniform_of
from molslice.ops.path_codes import hide_bonds
from molslice.registry import near_names
from molslice.tasks.base import Measure, MicroBatch, Task
from molslice.tasks.metrics import mean_absolute_error, weighted_mean
from molslice.tasks.molecule import REGRESSION_LOSSES
from molslice.tasks.targets import Standardizer, TargetInfo
from molslice.types import ModelOutput, MoleculeBatch, MolsliceError, PretrainingOutput

logger = logging.getLogger(__name__)

FAMILIES = ("descriptors", "quantum", "charges", "atoms", "bonds")
OF_MOLECULES = ("descriptors", "quantum")
# for each part of the model that not all families use, those that do
PART_FAMILIES = {
    "readout": OF_MOLECULES,
    "descriptor_state": OF_MOLECULES,
    "atom_readout": ("charges",),
    "atom_head": ("atoms",),
    "hidden_atom": ("atoms",),
    "bond_head": ("bonds",),
    "hidden_bond": ("bonds",),
}
VALIDATION_SALTS = {"atoms": 1, "bonds": 2}  # hide the same atoms and bonds in every validation

Measured = Callable[[Tensor, Tensor], Tensor]  # of logits and classes


class Pretraining(Task):
    """Weighted sum of the losses of five families of labels.

    - `descriptors` and `quantum`: targets of molecules, as the data set assigns them.
    - `charges`: targets of atoms.
    - `atoms` and `bonds`: features of hidden atoms and bonds, by cross-entropy.

    The loss of a family is the mean over the known labels of a molecule, averaged over the molecules of a
    batch; a molecule without a label of the family counts as zero. Targets are standardized. In each training
    step a random share of the targets of molecules is left out. What is hidden depends on the seed, the step
    and the molecule. In validation no target is left out, the targets are predicted from whole molecules, and
    the same atoms and bonds are hidden every time.

    Args:
        model: The model to train: `graphormer_pretraining`, or any model of molecules if `charges`, `atoms`
            and `bonds` have the weight 0.
        targets: The description of the targets.
        loss: The loss of targets.
        label_weights: The weight of each family. Families that are not named have the weight 0. None gives
            each the weight 1.
        hidden_targets: Share of the targets of molecules that is left out in each step.
        hidden_atoms: Share of the atoms whose features are hidden.
        hidden_bonds: Share of the bonds whose features are hidden.

    Raises:
        MolsliceError: The targets are not of kind regression, a weight is invalid, all weights are zero, or
            the model lacks a head.

    Source: Burns et al. 2025, arXiv 2506.15792 (CheMeleon), for descriptors of which a part is left out; its
    code leaves out 85% in each step. Hu et al. 2020, arXiv 1905.12265, for hidden atoms and bonds, 15% of
    them.
    """

    kinds: ClassVar = ("regression",)
    has_fixed_steps: ClassVar[bool] = True

    def __init__(
        self,
        model: nn.Module,
        targets: TargetInfo,
        *,
        loss: Literal["mae", "mse", "huber"] = "mae",
        label_weights: Mapping[str, float] | None = None,
        hidden_targets: float = 0.15,
        hidden_atoms: float = 0.15,
        hidden_bonds: float = 0.15,
    ) -> None:
        super().__init__(model, targets)
        if loss not in REGRESSION_LOSSES:
            raise MolsliceError(f"unknown loss {loss!r}; {near_names(loss, REGRESSION_LOSSES)}")
        self.elementwise = REGRESSION_LOSSES[loss]
        self.weights = _checked_weights(label_weights)
        self.shares = {"targets": hidden_targets, "atoms": hidden_atoms, "bonds": hidden_bonds}
        families = targets.families or ("descriptors",) * len(targets.names)
        self.columns = {
            family: [place for place, name in enumerate(families) if name == family]
            for family in OF_MOLECULES
        }
        for family, columns in self.columns.items():  # an index on the host would be copied in each step
            index = torch.tensor(columns, dtype=torch.long)
            self.register_buffer(f"columns_of_{family}", index, persistent=False)
        self._leave_out_missing_families()
        self._freeze_unused()
        self.standardize = Standardizer(targets)
        self.standardize_atoms = None if targets.atoms is None else Standardizer(targets.atoms)

    def _leave_out_missing_families(self) -> None:
        """Check that the model has the heads, and drop families without labels in the data."""
        heads = [family for family in ("charges", "atoms", "bonds") if self.weights[family]]
        if heads and not isinstance(self.model, GraphormerPretraining):
            raise MolsliceError(
                f"task pretraining with {', '.join(heads)} needs model.name graphormer_pretraining; another "
                "model needs training.label_weights without them, such as {descriptors: 1}"
            )
        missing = [family for family in OF_MOLECULES if not self.columns[family]]
        if self.targets.atoms is None:
            missing.append("charges")
        reasons = {family: f"the data have no labels of the family {family}" for family in missing}
        for family in ("atoms", "bonds"):
            if not self.shares[family]:
                reasons[family] = f"the family {family} has no labels, because hidden_{family} is 0"
        for family, reason in reasons.items():
            if self.weights[family]:
                logger.warning(reason)
                self.weights[family] = 0.0
        if not any(self.weights.values()):
            raise MolsliceError("no family in training.label_weights has labels in these data")

    def _freeze_unused(self) -> None:
        """Freeze the parts of the model that no family uses; DDP needs a gradient for each other weight."""
        for name, families in PART_FAMILIES.items():
            module = getattr(self.model, name, None)
            if module is not None and not any(self.weights[family] for family in families):
                module.requires_grad_(False)

    def training_step(self, micro_batch: MicroBatch) -> Float[Tensor, ""]:
        """Compute the share of a micro-batch in the loss of its batch; see `Task.training_step`."""
        batch = self.hide(micro_batch.batch, self.salts_of(micro_batch.draw))
        output = self.model(batch)
        loss = self.output_loss_sum(output, batch) / micro_batch.rows
        if output.penalty is not None:
            loss = loss + output.penalty * micro_batch.share
        return loss

    def salts_of(self, draw: int | Tensor) -> dict[str, int | Tensor]:
        """Return a number for each of targets, atoms and bonds that is hidden, from the seed of a step."""
        on = {
            "targets": any(self.weights[family] for family in OF_MOLECULES),
            "atoms": self.weights["atoms"] > 0,
            "bonds": self.weights["bonds"] > 0,
        }
        return {
            name: draw * len(on) + place
            for place, (name, is_on) in enumerate(on.items())
            if is_on and self.shares[name]
        }

    def hide(self, batch: MoleculeBatch, salts: Mapping[str, int | Tensor]) -> MoleculeBatch:
        """Hide targets, atoms and bonds of a batch."""
        rows, changes = batch.rows, dict[str, Tensor]()
        assert rows is not None
        if "targets" in salts and batch.targets is not None:
            places = torch.arange(batch.targets.shape[1], device=rows.device)
            hidden = uniform_of(salts["targets"], rows[:, None], places) < self.shares["targets"]
            changes["targets"] = batch.targets.masked_fill(hidden, math.nan)
        if "atoms" in salts:
            places = torch.arange(batch.atom_mask.shape[1], device=rows.device)
            hidden = uniform_of(salts["atoms"], rows[:, None], places) < self.shares["atoms"]
            changes["hidden_atoms"] = hidden & batch.atom_mask
        if "bonds" in salts:
            molecule, begin, end = batch.bond_index.unbind(1)
            hidden = uniform_of(salts["bonds"], rows[molecule], begin, end) < self.shares["bonds"]
            changes["hidden_bonds"] = hidden = hidden & (begin >= 0)
            if batch.adjacency is not None:
                changes["adjacency"] = hide_bonds(batch.adjacency, batch.bond_index, hidden)
        return replace(batch, **changes)

    def output_loss_sum(self, output: ModelOutput, batch: MoleculeBatch) -> Float[Tensor, ""]:
        """Return the weighted sum of the losses of all families, summed over the molecules."""
        losses = self.family_losses(output, batch)
        return torch.stack([self.weights[family] * loss for family, loss in losses.items()]).sum()

    def loss_sum(self, prediction: Float[Tensor, "B T"], batch: MoleculeBatch) -> Float[Tensor, ""]:
        """Return the loss of the targets of molecules only; see `Task.loss_sum`."""
        return self.output_loss_sum(ModelOutput(prediction), batch)

    def family_losses(self, output: ModelOutput, batch: MoleculeBatch) -> dict[str, Float[Tensor, ""]]:
        """Sum the loss of each family with a weight over the molecules."""
        losses = self._losses_of_molecules(output.prediction.float(), batch)
        details = output.pretraining
        if details is None:
            return losses
        if self.weights["charges"] and details.atom_targets is not None and batch.atom_targets is not None:
            losses["charges"] = self._loss_of_charges(details.atom_targets.float(), batch)
        for family, sums in self._sums_of_hidden(details, batch, _cross_entropy):
            total, count = sums.unbind(1)
            losses[family] = (total / count.clamp(min=1)).sum()
        return losses

    def _losses_of_molecules(
        self, prediction: Float[Tensor, "B T"], batch: MoleculeBatch
    ) -> dict[str, Tensor]:
        assert batch.targets is not None
        present = ~batch.targets.isnan()
        wanted = self.standardize(batch.targets, present, prediction.dtype)
        loss = self.elementwise(prediction, wanted, reduction="none")
        losses = {}
        for family in OF_MOLECULES:
            if self.weights[family]:
                chosen = self.get_buffer(f"columns_of_{family}")
                known = present[:, chosen]
                count = known.sum(1).clamp(min=1)
                losses[family] = ((loss[:, chosen] * known).sum(1) / count).sum()
        return losses

    def _loss_of_charges(self, prediction: Float[Tensor, "B A K"], batch: MoleculeBatch) -> Float[Tensor, ""]:
        assert batch.atom_targets is not None
        assert self.standardize_atoms is not None
        known = batch.atom_mask[..., None] & ~batch.atom_targets.isnan()
        wanted = self.standardize_atoms(batch.atom_targets, known, prediction.dtype)
        loss = self.elementwise(prediction.masked_fill(~known, 0.0), wanted, reduction="none")
        return ((loss * known).sum((1, 2)) / known.sum((1, 2)).clamp(min=1)).sum()

    def _sums_of_hidden(
        self, details: PretrainingOutput, batch: MoleculeBatch, measure: Measured
    ) -> Iterator[tuple[str, Float[Tensor, "B 2"]]]:
        """Measure what is predicted of the atoms and the bonds that the batch hides.

        Yields:
            The family, and for each molecule the sum of the measure over its hidden atoms or bonds, with
            their number.
        """
        model = self.model
        assert isinstance(model, GraphormerPretraining)
        if details.atom_logits is not None and batch.hidden_atoms is not None:
            columns = batch.atoms.unbind(-1)
            features = [columns[column] for column in model.atom_columns]
            values = _mean_over_features(measure, details.atom_logits, features, model.atom_sizes)
            hidden = batch.hidden_atoms
            yield "atoms", torch.stack([(values * hidden).sum(1), hidden.sum(1)], 1)
        if details.bond_logits is not None and batch.hidden_bonds is not None:
            features = batch.bond_features.unbind(-1)
            values = _mean_over_features(measure, details.bond_logits, features, model.bond_sizes)
            hidden, molecule = batch.hidden_bonds, batch.bond_index[:, 0].long()
            both = torch.stack([values * hidden, hidden.to(values.dtype)], 1)
            # on a GPU, the order of the additions is fixed, unlike in `index_add`
            yield "bonds", both.new_zeros(len(batch), 2).index_put((molecule,), both, accumulate=True)

    @property
    def num_results(self) -> int:
        """Number of values of a row: its predictions, then sum and count for charges, atoms and bonds."""
        return len(self.targets.names) + 6

    def evaluate_batch(self, model: nn.Module, batch: MoleculeBatch) -> Float[Tensor, "B R"]:
        """Predict the targets from whole molecules, and the features of the same hidden atoms every time."""
        output: ModelOutput = model(batch)
        zeros = output.prediction.new_zeros(len(batch), 2)
        sums = {"charges": self._errors_of_charges(output, batch), "atoms": zeros, "bonds": zeros}
        salts = {name: salt for name, salt in VALIDATION_SALTS.items() if self.weights[name]}
        hidden = self.hide(batch, salts)
        details = model(hidden).pretraining if salts else None
        if details is not None:
            sums.update(self._sums_of_hidden(details, hidden, _is_right))
        return torch.cat([self.targets.to_unit(output.prediction), *sums.values()], 1)

    def _errors_of_charges(self, output: ModelOutput, batch: MoleculeBatch) -> Float[Tensor, "B 2"]:
        """Return the sum of the absolute errors of each molecule, and their number."""
        details, truth = output.pretraining, batch.atom_targets
        if not self.weights["charges"] or details is None or details.atom_targets is None or truth is None:
            return output.prediction.new_zeros(len(batch), 2)
        known = batch.atom_mask[..., None] & ~truth.isnan()
        assert self.standardize_atoms is not None
        charges = details.atom_targets.double() * self.standardize_atoms.std + self.standardize_atoms.mean
        error = (charges - truth).abs().masked_fill(~known, 0.0)
        return torch.stack([error.sum((1, 2)), known.sum((1, 2))], 1).float()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Mean error of standardized descriptors, errors of other targets, and shares of right features."""
        errors = [Measure("descriptors", "mae", "")] if self.weights["descriptors"] else []
        if self.weights["quantum"]:
            for place in self.columns["quantum"]:
                errors.append(Measure(self.targets.names[place], "mae", self.targets.units[place]))
        if self.weights["charges"] and self.targets.atoms is not None:
            errors.append(Measure("charges", "mae", self.targets.atoms.units[0]))
        return (
            *errors,
            *(Measure(name, "accuracy", "") for name in ("atoms", "bonds") if self.weights[name]),
        )

    def metrics(self, results: np.ndarray, truth: np.ndarray) -> dict[str, float]:
        """Compute the measures; see `Task.metrics`."""
        values: dict[str, float] = {}
        if self.weights["descriptors"]:
            columns, std = self.columns["descriptors"], np.array(self.targets.std)
            errors = [
                mean_absolute_error(results[:, place], truth[:, place]) / std[place] for place in columns
            ]
            values["descriptors"] = float(np.nanmean(errors)) if np.isfinite(errors).any() else math.nan
        if self.weights["quantum"]:
            for place in self.columns["quantum"]:
                values[self.targets.names[place]] = mean_absolute_error(results[:, place], truth[:, place])
        sums = results[:, len(self.targets.names) :]
        for place, name in enumerate(("charges", "atoms", "bonds")):
            if self.weights[name]:
                total, count = sums[:, 2 * place], sums[:, 2 * place + 1]
                values[name] = weighted_mean(total / np.maximum(count, 1), count)
        return values

    def score(self, metrics: dict[str, float]) -> float:
        """Return the weighted mean of the standardized errors and the shares of wrong features."""
        errors = {"descriptors": metrics.get("descriptors", math.nan)}
        quantum = [
            metrics[self.targets.names[place]] / self.targets.std[place]
            for place in self.columns["quantum"]
            if self.weights["quantum"]
        ]
        errors["quantum"] = float(np.nanmean(quantum)) if np.isfinite(quantum).any() else math.nan
        if self.targets.atoms is not None:
            errors["charges"] = metrics.get("charges", math.nan) / self.targets.atoms.std[0]
        for name in ("atoms", "bonds"):
            errors[name] = 1.0 - metrics.get(name, math.nan)
        known = {family: error for family, error in errors.items() if not math.isnan(error)}
        total = sum(self.weights[family] for family in known)
        if not total:
            return math.nan
        return sum(self.weights[family] * error for family, error in known.items()) / total


def _checked_weights(given: Mapping[str, float] | None) -> dict[str, float]:
    if given is None:
        return dict.fromkeys(FAMILIES, 1.0)
    for family, weight in given.items():
        if family not in FAMILIES:
            raise MolsliceError(
                f"training.label_weights: unknown family {family!r}; {near_names(family, FAMILIES)}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise MolsliceError(f"training.label_weights.{family} is {weight!r}, expected zero or more")
    weights = {family: float(given.get(family, 0.0)) for family in FAMILIES}
    if not any(weights.values()):
        raise MolsliceError(f"training.label_weights are all zero; families: {', '.join(FAMILIES)}")
    return weights


def _mean_over_features(
    measure: Measured, logits: Float[Tensor, "*P S"], features: Sequence[Tensor], sizes: tuple[int, ...]
) -> Float[Tensor, "*P"]:
    """Return the mean of a measure over the features of each atom or bond."""
    columns = zip(logits.float().split(sizes, -1), features, sizes, strict=True)
    values = [measure(scores, column.long().clamp(max=size - 1)) for scores, column, size in columns]
    return torch.stack(values).mean(0)


def _cross_entropy(logits: Float[Tensor, "*P S"], classes: Int[Tensor, "*P"]) -> Float[Tensor, "*P"]:
    losses = F.cross_entropy(logits.flatten(0, -2), classes.flatten(), reduction="none")
    return losses.view_as(classes)


def _is_right(logits: Float[Tensor, "*P S"], classes: Int[Tensor, "*P"]) -> Float[Tensor, "*P"]:
    return (logits.argmax(-1) == classes).float()
