"""Fit the learners and the networks of all targets to the training rows, and weigh them."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from molslice.data.molecules.store import MoleculeStore
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.folds import assign_folds
from molslice.fitting.learner_fits import (
    LearnerFits,
    LearnerSettings,
    TargetFit,
    completed_targets,
    join_parts,
)
from molslice.fitting.quality import QUALITIES
from molslice.folders.fitted import FINE_TUNED
from molslice.learners import Features
from molslice.learners.fold_averages import by_member
from molslice.learners.stacking import Stack
from molslice.tasks.target_types import Learned, learned_targets, part_slices
from molslice.tasks.targets import TargetInfo

MIN_WEIGHT = 0.05  # of the network of the first fold, to train the others
MIN_PROBED_ROWS = 20  # of a target in the first fold; the weights of fewer rows mean little


@dataclass(frozen=True, slots=True)
class EncoderUse:
    """The trained encoder of a fit.

    Attributes:
        model: Run folder or name.
        device: Where it is fine-tuned.
        embedding_seconds: Time in which it has embedded all rows, in seconds.
        molecules: The molecules of the rows, which are read once for all folds; None if no network is
            trained.
    """

    model: Path | str
    device: str
    embedding_seconds: float
    molecules: MoleculeStore | None = None

    def take(self, kept: np.ndarray) -> "EncoderUse":
        """Return the encoder with some of the molecules; `kept` are their places, int [k]."""
        molecules = self.molecules
        if molecules is None or len(kept) == len(molecules):
            return self
        chosen = MoleculeStore.in_memory([molecules.arrays(place) for place in kept.tolist()])
        return replace(self, molecules=chosen)


@dataclass(frozen=True, slots=True)
class Stacks:
    """The weighted learners of all targets, fitted to the same training rows.

    Attributes:
        targets: The description of the T targets.
        fitted: The learners of each target, or of each part of several classes, with their weights and
            predictions.
        outcomes: The weights and predictions of each target: `fitted`, or its parts combined.
        folds: Fold of each row in each assignment, int [A, n]; -1 for held-out rows.
        epochs: Number of epochs for which the encoder was fine-tuned; 0 if it was not.
        left_out: What was not computed for lack of time.
        network_weights: The weight that the network of the first fold would have had, if it was too small to
            train the others, by the kind of what it learns (`learned_targets`).
    """

    targets: TargetInfo
    fitted: Sequence[TargetFit]
    outcomes: Sequence[TargetFit]
    folds: np.ndarray
    epochs: int
    left_out: list[str]
    network_weights: Mapping[str, float] = field(default_factory=dict)


def fit_stacks(
    rows: FitData,
    features: Features,
    options: FitOptions,
    encoder: EncoderUse | None,
    folder: Path,
    settings: Sequence[LearnerSettings] = (),
    *,
    deadline: float,
    only_measures: bool,
    measured: Stacks | None = None,
    begin: Callable[[str], Callable[[int, int], None]] = lambda name: lambda done, total: None,
) -> Stacks:
    """Fit and weigh the learners of all targets.

    Args:
        rows: The rows.
        features: Their features.
        options: Options of the fit.
        encoder: The encoder that is fine-tuned; None without one.
        folder: The folder of the model, in which the networks are written.
        settings: See `LearnerFits`.
        deadline: Value of `time.monotonic` after which nothing is started.
        only_measures: Whether the stacks only measure the error on held-out rows. The rows are then divided
            into folds once, and the networks are not kept.
        measured: What was fitted to measure the error, so that the same learners and networks are fitted now;
            None to fit all for which there is time.
        begin: Called with the name of each phase; see `molslice.files.progress.Phases.begin`.

    Raises:
        MolsliceError: The rows cannot be divided into folds, or the encoder cannot be fine-tuned.
    """
    targets = rows.describe()
    quality = QUALITIES[options.quality]
    assignments = 1 if only_measures else quality.assignments
    folds = assign_folds(rows, options.members, options.seed, assignments)
    stage = " (measuring)" if only_measures else ""
    chosen = None if measured is None else [fit.learners for fit in measured.fitted]
    work = LearnerFits(rows, features, folds, deadline, options, begin(f"learners{stage}"), settings, chosen)
    fitted = work.fit_targets()
    left_out, folds, epochs, weights = work.left_out, work.folds, 0, dict[str, float]()
    groups = learned_targets(targets, rows.types)
    tried = groups
    if measured is not None:  # networks that were not worth it, or for which there was no time
        worthless = measured.network_weights if measured.epochs else groups
        tried = {kind: group for kind, group in groups.items() if kind not in worthless}
    if quality.fine_tunes and rows.partner is not None and encoder is not None:
        rows.findings.append("no fine-tuned networks: they take one molecule, not pairs")
    elif encoder is not None and quality.fine_tunes and tried:
        from molslice.fitting.networks import affordable_epochs  # Lightning takes long to import

        seconds = (deadline - time.monotonic()) / len(tried)
        epochs = affordable_epochs(folds[0], seconds, encoder.embedding_seconds)
        if not epochs:
            left_out.append("fine-tuned networks")
    if encoder is not None and epochs:
        kept = tempfile.TemporaryDirectory(dir=folder) if only_measures else nullcontext(folder)
        tuned = begin(f"networks{stage}")
        with kept as place:
            for number, kind in enumerate(tried):

                def show(done: int, of: int, number: int = number) -> None:
                    tuned(number * of + done, len(tried) * of)

                name = kind if len(groups) > 1 else ""
                weight = _add_networks(
                    rows, fitted, tried[kind], folds, encoder, options, Path(place), name, epochs, show
                )
                weights |= {} if weight is None else {kind: weight}
        if weights.keys() == tried.keys():
            epochs = 0
    outcomes = []
    for index, (of_target, columns) in enumerate(zip(rows.types, part_slices(rows.types), strict=True)):
        for target_fit in fitted[columns]:
            target_fit.stack_learners(
                folds[0, target_fit.rows],
                classes=of_target.has_classes,
                logarithmic=rows.logarithmic[index],
            )
        several = of_target.several
        outcomes.append(fitted[columns.start] if several is None else join_parts(fitted[columns], several))
    return Stacks(targets, fitted, outcomes, folds, epochs, left_out, weights)


def _add_networks(
    rows: FitData,
    fitted: Sequence[TargetFit],
    group: Learned,
    folds: np.ndarray,
    encoder: EncoderUse,
    options: FitOptions,
    place: Path,
    kind: str,
    epochs: int,
    progress: Callable[[int, int], None],
) -> float | None:
    """Fine-tune networks for what they learn, and add their predictions to its fits.

    Returns:
        None; or the weight that the network of the first fold would have had, if the others were not worth
        training.
    """
    from molslice.fitting.networks import fine_tune  # Lightning takes long to import

    fits, weights = [fitted[column] for column in group.columns], list[float]()
    targets = completed_targets(fitted, rows.learned, options.members)[..., group.columns]

    def pays(fold: np.ndarray, unseen: np.ndarray) -> bool:
        weights.append(_network_weight(fits, fold, unseen, group.targets.kind != "regression"))
        return weights[-1] >= MIN_WEIGHT

    assert encoder.molecules is not None
    networks = fine_tune(
        encoder.model,
        rows.molecules.canonical,
        encoder.molecules,
        targets,
        group.targets,
        folds[0],
        place,
        kind=kind,
        epochs=epochs,
        seed=options.seed,
        device=encoder.device,
        pays=pays,
        progress=progress,
    )
    if networks is None:
        return weights[-1]
    for index, target_fit in enumerate(fits):
        held_out = by_member(networks.held_out[:, :, index], options.members, len(folds))
        target_fit.add(FINE_TUNED, networks.unseen[target_fit.rows, index], held_out)
    return None


def _network_weight(
    fitted: Sequence[TargetFit], rows: np.ndarray, unseen: np.ndarray, classes: bool
) -> float:
    """Return the largest weight of a network in a stack on the rows of one fold; infinite if rows are few.

    `unseen` are predictions of these rows, int [k], by the network, float64 [k, T].
    """
    largest = 0.0
    for index, target_fit in enumerate(fitted):
        places = np.flatnonzero(np.isin(target_fit.rows, rows))
        labels = target_fit.labels[places]
        if len(labels) < MIN_PROBED_ROWS or (classes and np.ptp(labels.values) == 0):
            return float("inf")
        parts = {name: values[places] for name, values in target_fit.parts.items()}
        parts[FINE_TUNED] = unseen[np.searchsorted(rows, target_fit.rows[places]), index]
        largest = max(largest, Stack.fit(parts, labels, classes=classes).weights[-1])
    return largest
