"""The fine-tuned networks of a fit, on a GPU trained in a process of their own beside the learners."""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from molslice.files.processes import WorkerPool
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.encoder_use import EncoderUse
from molslice.fitting.learner_fits import TargetFit, completed_targets
from molslice.folders.fitted import FINE_TUNED
from molslice.learners.fold_averages import by_member
from molslice.learners.stacking import Stack
from molslice.tasks.target_types import Learned

if TYPE_CHECKING:
    from molslice.fitting.networks import FineTuning

logger = logging.getLogger(__name__)

MIN_WEIGHT = 0.05  # of the network of the first fold, to train the others
MIN_PROBED_ROWS = 20  # of a target in the first fold; the weights of fewer rows mean little


class FoldNetworks:
    """The networks of all folds, for each kind of what they learn.

    Args:
        rows: The rows of the fit.
        groups: What networks learn, by its kind.
        folds: Fold of each row in the first assignment, int [n]; -1 for held-out rows.
        encoder: The encoder that is fine-tuned.
        options: Options of the fit.
        folder: The folder of the model, in which the networks are written.
        named: Whether the networks of a kind have a folder of its name.
    """

    def __init__(
        self,
        rows: FitData,
        groups: Mapping[str, Learned],
        folds: np.ndarray,
        encoder: EncoderUse,
        options: FitOptions,
        folder: Path,
        *,
        named: bool,
    ) -> None:
        self.rows, self.groups, self.folds, self.encoder = rows, groups, folds, encoder
        self.options, self.folder, self.named = options, folder, named
        self._epochs: int | None = None
        self._scores: dict[str, Generator[np.ndarray]] = {}

    def begin(self, exits: ExitStack) -> None:
        """Begin the training in another process, if the encoder has one; `exits` ends the process.

        With limits, the networks learn what the learners expect of them, and wait for the learners.
        """
        if not self.encoder.has_process or self.rows.bounds is not None:
            return
        from molslice.fitting.networks import FineTuning

        self.choose_epochs(float("inf"))
        torch.cuda.empty_cache()  # the other process needs memory
        pool = exits.enter_context(WorkerPool(1, "train networks"))
        for kind, group in self.groups.items():
            training = self._training(kind, self.rows.learned[:, group.columns])
            calls = [(training, fold) for fold in range(training.num_folds)]
            self._scores[kind] = pool.begin(FineTuning.train, calls)

    def choose_epochs(self, seconds: float) -> int:
        """Return the number of epochs of each network for which there is time; 0 for none."""
        if self._epochs is None:
            from molslice.fitting.networks import affordable_epochs  # Lightning takes long to import

            of_kind = seconds / len(self.groups)
            self._epochs = affordable_epochs(self.folds, of_kind, self.encoder.embedding_seconds)
        return self._epochs

    def add_to(
        self, fitted: Sequence[TargetFit], assignments: int, progress: Callable[[int, int], None]
    ) -> dict[str, float]:
        """Train the networks, and add their predictions to the fits of the targets.

        Args:
            fitted: The fits of all targets.
            assignments: Number of divisions of the rows into folds.
            progress: Called with the number of trained networks and of all networks.

        Returns:
            The weight that the network of the first fold would have had, by kind, where the others were not
            worth training.
        """
        weights: dict[str, float] = {}
        learned = completed_targets(fitted, self.rows.learned, self.options.members)
        for number, (kind, group) in enumerate(self.groups.items()):

            def show(done: int, of: int, number: int = number) -> None:
                progress(number * of + done, len(self.groups) * of)

            training = self._training(kind, learned[..., group.columns])
            fits = [fitted[column] for column in group.columns]
            weight = self._add_kind(kind, training, fits, assignments, show)
            weights |= {} if weight is None else {kind: weight}
        return weights

    def _add_kind(
        self,
        kind: str,
        training: "FineTuning",
        fits: Sequence[TargetFit],
        assignments: int,
        progress: Callable[[int, int], None],
    ) -> float | None:
        """Add the networks of a kind to the fits of what they learn; return the weight if it is too small."""
        from molslice.fitting.networks import fine_tune

        weights: list[float] = []

        def pays(rows: np.ndarray, unseen: np.ndarray) -> bool:
            weights.append(_network_weight(fits, rows, unseen, training.info.kind != "regression"))
            return weights[-1] >= MIN_WEIGHT

        scores = None if kind not in self._scores else _or_here(self._scores[kind], training)
        smiles = self.rows.molecules.canonical
        networks = fine_tune(training, smiles, scores, pays=pays, progress=progress)
        if networks is None:
            return weights[-1]
        for index, target_fit in enumerate(fits):
            held_out = by_member(networks.held_out[:, :, index], self.options.members, assignments)
            target_fit.add(FINE_TUNED, networks.unseen[target_fit.rows, index], held_out)
        return None

    def _training(self, kind: str, targets: np.ndarray) -> "FineTuning":
        from molslice.fitting.networks import FineTuning

        assert self.encoder.molecules is not None
        return FineTuning(
            encoder=self.encoder.model,
            molecules=self.encoder.molecules,
            targets=targets,
            info=self.groups[kind].targets,
            folds=self.folds,
            folder=self.folder,
            epochs=self._epochs or 0,
            seed=self.options.seed,
            kind=kind if self.named else "",
            device=self.encoder.device,
        )


def _or_here(scores: Generator[np.ndarray], training: "FineTuning") -> Generator[np.ndarray]:
    """Yield the results of another process, and train here what it cannot, such as for lack of memory."""
    done = 0
    with closing(scores):
        try:
            for predicted in scores:
                yield predicted
                done += 1
        except RuntimeError as error:  # of torch
            reason = str(error).partition("\n")[0]
            logger.warning("networks are trained after the learners, not beside them: %s", reason)
    for fold in range(done, training.num_folds):
        yield training.train(fold)


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
