"""Fit the learners and the networks of all targets to the training rows, and weigh them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.encoder_use import EncoderUse
from molslice.fitting.fold_networks import FoldNetworks
from molslice.fitting.folds import assign_folds
from molslice.fitting.learner_fits import (
    LearnerFits,
    LearnerSettings,
    TargetFit,
    join_parts,
)
from molslice.fitting.quality import QUALITIES
from molslice.learners import Features
from molslice.tasks.target_types import learned_targets, part_slices
from molslice.tasks.targets import TargetInfo


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
    groups = learned_targets(targets, rows.types)
    tried = groups
    if measured is not None:  # networks that were not worth it, or for which there was no time
        worthless = measured.network_weights if measured.epochs else groups
        tried = {kind: group for kind, group in groups.items() if kind not in worthless}
    if encoder is None or not quality.fine_tunes:
        tried = {}
    elif rows.partner is not None:
        rows.findings.append("no fine-tuned networks: they take one molecule, not pairs")
        tried = {}
    epochs, weights = 0, dict[str, float]()
    with ExitStack() as exits:
        place = Path(exits.enter_context(TemporaryDirectory(dir=folder))) if only_measures else folder
        networks = None
        if encoder is not None and tried:
            networks = FoldNetworks(rows, tried, folds[0], encoder, options, place, named=len(groups) > 1)
            if deadline == float("inf"):
                networks.begin(exits)
        fitted = work.fit_targets()
        left_out, folds = work.left_out, work.folds
        if networks is not None and (epochs := networks.choose_epochs(deadline - time.monotonic())):
            weights = networks.add_to(fitted, len(folds), begin(f"networks{stage}"))
        elif networks is not None:
            left_out.append("fine-tuned networks")
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
