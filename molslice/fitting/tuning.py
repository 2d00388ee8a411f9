"""Choose the settings of the learners of each target by cross-validated trials within the training rows.

The first trial of a target is the stack of its learners with their defaults. Each further one fits one
learner with other settings, drawn at random, and weighs it with the other learners as they are chosen so far.
It is chosen if the cross-validated error of the stack is smaller by more than the standard error of the
difference: most differences of good settings are noise. All trials have the same folds, and no held-out row
is used.
"""

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from molslice.files.atomic import write_atomically
from molslice.files.cache import file_checksum
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.folds import assign_folds
from molslice.fitting.learner_fits import PROCESS, LearnerSettings, TargetFit, fit_learner, join_parts
from molslice.fitting.quality import QUALITIES
from molslice.fitting.standard_errors import cross_validation_factor, measure_target
from molslice.folders.run import model_file
from molslice.inference.load import find_model
from molslice.learners import Features
from molslice.learners.stacking import Stack
from molslice.tasks.standard_errors import MeasuredMetric
from molslice.tasks.target_types import part_slices
from molslice.version import __version__

MAX_TRIALS = 40  # of a learner of a target; more would mostly fit the noise of the cross-validated error
ERRORS = ("mae", "class_error")  # the other primary metrics grow with the quality


@dataclass(frozen=True, slots=True)
class Tuning:
    """The settings that are chosen.

    Attributes:
        settings: Settings of the learners of each column of `FitData.learned`; empty for the defaults.
        trials: The trials of all targets in order, for `fit.json`.
    """

    settings: Sequence[LearnerSettings] = ()
    trials: Sequence[Mapping[str, Any]] = ()


NOT_TUNED = Tuning()


def log_file(folder: Path) -> Path:
    """Return the file beside the folder of a model that keeps the trials until the model is written."""
    final = Path(os.path.realpath(folder))
    return final.with_name(f"{final.name}.trials.jsonl")


def log_key(checksum: str, names: Sequence[str], options: FitOptions, encoder: Path | str | None) -> str:
    """Return a text that is the same for fits with the same trials; it does not depend on the time for them.

    `checksum` is of the table.
    """
    weights = None if encoder is None else file_checksum(model_file(find_model(encoder)))
    given = asdict(replace(options, minutes=None, tune=None, refit=True))
    identity = [__version__, checksum, names, given, weights]
    return hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()


class TrialLog:
    """The out-of-fold predictions of finished fits of learners, one in each line of a file.

    Args:
        path: The file. One that does not begin with the key belongs to another fit, and is replaced.
        key: The first line; see `log_key`.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.entries: dict[str, tuple[np.ndarray, float]] = {}
        self._is_open = False
        with contextlib.suppress(OSError, ValueError):  # none, or the last line is not complete
            lines = path.read_text(encoding="utf-8").split("\n")
            for line in lines[1:] if lines[0] == key else ():
                name, unseen, seconds = json.loads(line)
                self.entries[name] = np.array(unseen), float(seconds)

    def add(self, name: str, unseen: np.ndarray, seconds: float) -> None:
        """Write a fit to the file."""
        self.entries[name] = unseen, seconds
        if not self._is_open:
            lines = [self.key, *(self._line(*entry) for entry in self.entries.items())]
            write_atomically(self.path, "\n".join(lines) + "\n")
            self._is_open = True
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self._line(name, self.entries[name]) + "\n")

    def _line(self, name: str, entry: tuple[np.ndarray, float]) -> str:
        return json.dumps([name, entry[0].tolist(), entry[1]])


def tune_learners(
    rows: FitData,
    features: Features,
    options: FitOptions,
    log: TrialLog,
    *,
    progress: Callable[[int, int], None],
) -> Tuning:
    """Choose the settings of the learners of each target, in the minutes of `options.tune`.

    The learners of all targets take turns. A trial that is expected to end later is left out, and with it all
    further trials of this learner. `progress` is called with the seconds that are over and all of them.

    Raises:
        MolsliceError: The rows cannot be divided into folds.
        KeyboardInterrupt: Stopped by Ctrl-C; the message says how to continue.
    """
    assert options.tune is not None
    quality = QUALITIES[options.quality]
    folds = assign_folds(replace(rows, findings=[]), options.members, options.seed, 1)[0]
    queues = {
        (name, classes): draw_settings(quality.choices(name, features, classes=classes), options.seed)
        for name in quality.learners
        for classes in {*rows.has_classes.tolist()}
    }
    left = 60.0 * options.tune  # the fits of an earlier call count too, so that the trials are the same
    targets = [_Target(rows, features, folds, options, index, log) for index in range(len(rows.names))]
    waiting = [(target, name) for target in targets for name in target.learners]
    try:
        for number in range(MAX_TRIALS):
            going = []
            for target, name in waiting:
                queue = queues[name, target.classes]
                if number < len(queue) and target.slowest.get(name, 0.0) <= left:
                    left -= target.try_settings(name, queue[number])
                    going.append((target, name))
                    progress(int(60.0 * options.tune - left), int(60.0 * options.tune) or 1)
            waiting = [(target, name) for target, name in going if target.trials]
    except KeyboardInterrupt as stop:
        kept = f"stopped; the trials that have ended are in {log.path}; the same command continues"
        raise KeyboardInterrupt(kept) from stop
    settings = [chosen for target in targets for chosen in [target.chosen] * len(target.fits)]
    return Tuning(settings, [trial for target in targets for trial in target.listed()])


def draw_settings(choices: Mapping[str, Sequence[Any]], seed: int) -> list[dict[str, Any]]:
    """Return the defaults and at most `MAX_TRIALS` - 1 other settings, drawn at random without repetition."""
    every = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    order = 1 + np.random.default_rng(seed).permutation(len(every) - 1)
    return [every[0], *(every[place] for place in order[: MAX_TRIALS - 1])]


@dataclass(frozen=True, slots=True)
class _Trial:
    settings: Mapping[str, Mapping[str, Any]]  # of the learners that were fitted
    measured: MeasuredMetric
    seconds: float


class _Target:
    """The trials of one target.

    Args:
        rows: The rows.
        features: Their features.
        folds: Fold of each row, int [n]; -1 for held-out rows.
        options: Options of the fit.
        index: Number of the target.
        log: The fits that are done.

    Attributes:
        fits: The rows and labels of the target, or of each part of several classes.
        trials: The trials in order; empty until all learners are fitted with their defaults.
        chosen: The settings of each learner.
        slowest: Seconds of the longest fit of each learner.
    """

    def __init__(
        self,
        rows: FitData,
        features: Features,
        folds: np.ndarray,
        options: FitOptions,
        index: int,
        log: TrialLog,
    ) -> None:
        self.rows, self.features, self.folds, self.options = rows, features, folds, options
        self.index, self.log, self.quality = index, log, QUALITIES[options.quality]
        self.classes, self.metric = rows.types[index].has_classes, rows.metrics(index)[0]
        self.groups, self.factor = rows.number_groups(), cross_validation_factor(options.members)
        self.fits: list[TargetFit] = []
        columns = [*part_slices(rows.types)][index]
        for column in range(columns.start, columns.stop):
            labels = rows.labels(column)
            known = np.flatnonzero(~rows.test & labels.known)
            self.fits.append(TargetFit(known, labels[known]))
        self.trials: list[_Trial] = []
        self.chosen: dict[str, Mapping[str, Any]] = {}
        self.slowest: dict[str, float] = {}
        self._unseen: dict[str, np.ndarray] = {}  # of the chosen settings, by learner
        self._best = 0

    @property
    def needs_process(self) -> bool:
        """Whether the next fit must be one of the Gaussian process, which completes limits for all trials."""
        return any(fit.labels.needs_process for fit in self.fits)

    @property
    def learners(self) -> list[str]:
        """The learners in the order of their first trials."""
        return sorted(self.quality.learners, key=lambda name: self.needs_process and name != PROCESS)

    def try_settings(self, name: str, settings: Mapping[str, Any]) -> float:
        """Fit a learner, choose the settings if the stack is better with them, and return the seconds."""
        unseen, seconds = self._fit(name, settings)
        self.slowest[name] = max(seconds, self.slowest.get(name, 0.0))
        tried, unseen_by_name = {name: settings}, {**self._unseen, name: unseen}
        if not self.trials:
            tried = self.chosen | tried
            self.chosen, self._unseen = tried, unseen_by_name
            if len(tried) < len(self.quality.learners):
                return seconds
        measured = self._measure(unseen_by_name)
        total = seconds if self.trials else sum(self.slowest.values())
        self.trials.append(_Trial(tried, measured, total))
        best = self.trials[self._best].measured
        gain = (best.value - measured.value) * (1.0 if self.metric in ERRORS else -1.0)
        if gain > 0.0 and gain > self.factor * measured.difference_error(best):
            self._best = len(self.trials) - 1
            self.chosen, self._unseen = self.chosen | tried, unseen_by_name
        return seconds

    def _fit(self, name: str, settings: Mapping[str, Any]) -> tuple[np.ndarray, float]:
        """Return out-of-fold predictions by a learner, float64 [columns, n], and the seconds they took."""
        entry = json.dumps([self.rows.names[self.index], name, settings])
        if entry not in self.log.entries or self.needs_process:  # the log does not keep completed labels
            start = time.monotonic()
            features, unseen = self.quality.features_of(name, self.features, settings), []
            for fit in self.fits:
                _, out_of_fold, fit.labels = fit_learner(
                    name,
                    features[fit.rows],
                    fit.labels,
                    self.folds[fit.rows],
                    self.options,
                    settings,
                    classes=self.classes,
                )
                unseen.append(out_of_fold)
            if entry not in self.log.entries:
                self.log.add(entry, np.stack(unseen), time.monotonic() - start)
        return self.log.entries[entry]

    def _measure(self, unseen: Mapping[str, np.ndarray]) -> MeasuredMetric:
        """Weigh the learners by their out-of-fold predictions, and measure the predictions of the stack."""
        rows = self.rows
        several, logarithmic = rows.types[self.index].several, rows.logarithmic[self.index]
        for place, fit in enumerate(self.fits):
            parts = {name: unseen[name][place] for name in self.quality.learners}
            fit.stack = Stack.fit(parts, fit.labels, classes=self.classes, logarithmic=logarithmic)
            fit.unseen = fit.stack.combine(parts)
        outcome = self.fits[0] if several is None else join_parts(self.fits, several)
        groups = self.groups[outcome.rows]
        return measure_target(rows, self.index, outcome.unseen, outcome.rows, groups, self.metric)

    def listed(self) -> list[dict[str, Any]]:
        """Return the trials as JSON values."""
        return [
            {
                "target": self.rows.names[self.index],
                "settings": trial.settings,
                "cross_validated": trial.measured.value,
                "standard_error": trial.measured.standard_error * self.factor,
                "seconds": round(trial.seconds, 2),
                "chosen": all(self.chosen[name] is value for name, value in trial.settings.items()),
            }
            for trial in self.trials
        ]
