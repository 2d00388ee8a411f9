"""Time series of the UEA, UCR and Monash archives: pairs of `.ts` files, classes or numbers to predict."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from molslice.data.lines import find_any
from molslice.data.sequences import SequenceDataset, Sequences
from molslice.data.ts_file import TsFile, read_ts_file
from molslice.registry import near_names
from molslice.types import DataSpec, MolsliceError

# channels, longest series and classes of the ten sets of the Flowformer paper (Wu et al. 2022, section 4.3),
# as the archive has them (Bagnall et al. 2018, arXiv 1811.00075)
SIZES = {
    "EthanolConcentration": (3, 1751, 4),
    "FaceDetection": (144, 62, 2),
    "Handwriting": (3, 152, 26),
    "Heartbeat": (61, 405, 2),
    "JapaneseVowels": (12, 29, 9),
    "PEMS-SF": (963, 144, 7),
    "SelfRegulationSCP1": (6, 896, 2),
    "SelfRegulationSCP2": (7, 1152, 2),
    "SpokenArabicDigits": (13, 93, 10),
    "UWaveGestureLibrary": (3, 315, 8),
}
VARIANTS = ("_eq", "_nmv")  # made of equal length, without missing values; they lie beside their original
Filling = Literal["interpolate", "zero"]


class Uea(SequenceDataset):
    """One problem of an archive: `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, plain or as `.ts.gz`.

    A step of a series is a token of as many values as there are channels. Series may differ in length. A case
    of which no value is known keeps its row, without tokens.

    Args:
        root: the folder of the files, or one that holds a folder named after the problem.
        problem: which one, for instance JapaneseVowels.
        valid_fraction: share of the training cases that are held out for validation, spread evenly over the
            classes (or targets). With 0 the test cases validate, as for the published numbers: where the best
            step is chosen by them, that is no honest test error.
        split_seed: of the choice of those cases.
        standardize: subtract the mean of each channel and divide by its spread, both over all steps of the
            training cases.
        missing: a missing value is interpolated linearly between its neighbors in time (before the first and
            after the last known one it is theirs), or `zero`, with `standardize` the channel's mean. A
            channel without any value is zero either way, and one that ends early has missing values there.
        missing_indicator: as many channels more, 1 where a value was missing and 0 elsewhere.

    Raises:
        MolsliceError: no such files, whatever is wrong in them, or options that do not go.
    """

    noun = "cases"
    how_to_get = "By hand: a problem comes from https://timeseriesclassification.com"

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        problem: str,
        valid_fraction: float = 0.2,
        split_seed: int = 0,
        standardize: bool = True,
        missing: Filling = "interpolate",
        missing_indicator: bool = False,
    ) -> None:
        if not 0 <= valid_fraction < 1:
            raise MolsliceError(f"valid_fraction must lie in [0, 1), got {valid_fraction}")
        if missing not in ("interpolate", "zero"):
            raise MolsliceError(f"unknown missing {missing!r}; choices: interpolate, zero")
        self.problem, self.missing_indicator = problem, missing_indicator
        train, test = (_read(Path(root), problem, part) for part in ("TRAIN", "TEST"))
        self.source = f"{root} ({problem})"
        self._set_targets(train, test)
        cases = train.cases + test.cases
        self.channels = train.cases[0].shape[1]
        if test.cases[0].shape[1] != self.channels:
            raise MolsliceError(
                f"{self.source}: {self.channels} channels to train on, {test.cases[0].shape[1]} to test on"
            )
        self._divide(len(train.cases), valid_fraction, split_seed)
        mean, spread = _statistics([cases[row] for row in self.splits["train"]], self.channels)
        if not standardize:
            mean, spread = np.zeros_like(mean), np.ones_like(spread)
        filled = (_filled((case - mean) / spread, missing, missing_indicator) for case in cases)
        self.sequences = Sequences.pack(filled, np.float32)
        empty = np.flatnonzero(self.sequences.lengths == 0)
        self._errors = {int(row): "no value of the case is known" for row in empty}

    @property
    def spec(self) -> DataSpec:
        """Classes or one number; the longest series bounds the tokens."""
        longest = int(self.sequences.lengths.max(initial=1))
        outputs = len(self.class_names) or 1
        return _spec(outputs, self.channels, longest, self.problem, self.missing_indicator)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Of the ten sets of the Flowformer paper by their name; others have to be read."""
        problem = options.get("problem")
        if problem not in SIZES:
            return None
        channels, longest, classes = SIZES[problem]
        return _spec(classes, channels, longest, problem, bool(options.get("missing_indicator", False)))

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Fetch the problem into `<root>/<problem>` through aeon; nothing is done where both files are there.

        Raises:
            MolsliceError: aeon is not installed, does not know the problem, or cannot fetch it.
        """
        root, problem = options.get("root"), options.get("problem")
        if root is None or problem is None:
            raise MolsliceError("a download needs data.root, the folder to put it in, and data.problem")
        if _is_there(Path(root), problem):
            return
        try:
            from aeon.datasets import (  # pyright: ignore[reportMissingImports]
                load_classification,
                load_regression,
            )
            from aeon.datasets.tser_datasets import tsr_zenodo  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise MolsliceError(
                f"downloading {problem} needs the package aeon: pip install 'molslice[series]' ({error})"
            ) from error
        load = load_regression if _original(problem) in tsr_zenodo else load_classification
        try:
            load(problem, split="test", extract_path=str(root))
        except (OSError, ValueError) as error:
            if not _is_there(Path(root), problem):  # what aeon fetches it also reads, and may refuse then
                raise MolsliceError(f"aeon could not fetch {problem} into {root}: {error}") from error

    def _set_targets(self, train: TsFile, test: TsFile) -> None:
        if train.regression != test.regression or (train.classes is None) != (test.classes is None):
            raise MolsliceError(f"{self.source}: one of the files has classes, the other has not")
        if train.regression:
            self.kind, self.target_names = "regression", ("target",)
            labels = np.concatenate([train.targets, test.targets])
        elif train.classes is not None and test.classes is not None:
            self.kind, self.target_names = "multiclass", ("class",)
            # the test file may name them in another order, or further ones, which no model can have learned
            self.class_names = tuple(dict.fromkeys(train.classes + test.classes))
            place = np.array([self.class_names.index(name) for name in test.classes], np.float64)
            known = ~np.isnan(test.targets)
            renumbered = np.full(len(test.targets), np.nan)
            renumbered[known] = place[test.targets[known].astype(np.int64)]
            labels = np.concatenate([train.targets, renumbered])
        else:
            raise MolsliceError(f"{self.source} has neither classes nor targets (@classLabel false)")
        self.target_units = ("",)
        self.labels = labels.astype(np.float32)[:, None]

    def _divide(self, num_train: int, valid_fraction: float, seed: int) -> None:
        """Of the training cases, ordered by target and at random within one, every n-th validates."""
        test = np.arange(num_train, len(self.labels), dtype=np.int64)
        if not valid_fraction:
            self.splits = {"train": np.arange(num_train, dtype=np.int64), "valid": test, "test": test}
            return
        count = round(valid_fraction * num_train)
        if not 0 < count < num_train:
            raise MolsliceError(
                f"valid_fraction={valid_fraction} of {num_train} training cases of {self.source} leaves none "
                "to validate on, or none to train on"
            )
        shuffled = np.random.default_rng(seed).permutation(num_train)
        order = shuffled[np.argsort(self.labels[shuffled, 0], kind="stable")]
        held_out = np.zeros(num_train, dtype=bool)
        held_out[order[((np.arange(count) + 0.5) * num_train / count).astype(np.int64)]] = True
        self.splits = {"train": np.flatnonzero(~held_out), "valid": np.flatnonzero(held_out), "test": test}


def _spec(outputs: int, channels: int, longest: int, problem: str, indicator: bool) -> DataSpec:
    width = channels * (2 if indicator else 1)
    return DataSpec(outputs, "values", channels=width, max_tokens=longest, vocabulary=problem)


def _original(problem: str) -> str:
    """The problem that a variant is made of, itself if it is none."""
    for variant in reversed(VARIANTS):
        problem = problem.removesuffix(variant)
    return problem


def _find(root: Path, problem: str, part: str) -> Path | None:
    folders = (root / problem, root / _original(problem), root)
    found = (find_any(folder, f"{problem}_{part}.ts") for folder in folders)
    return next((path for path in found if path is not None), None)


def _is_there(root: Path, problem: str) -> bool:
    return all(_find(root, problem, part) is not None for part in ("TRAIN", "TEST"))


def _read(root: Path, problem: str, part: str) -> TsFile:
    path = _find(root, problem, part)
    if path is not None:
        return read_ts_file(path)
    name = f"{problem}_{part}.ts"
    files = [file.name for pattern in ("*", "*/*") for file in root.glob(f"{pattern}_{part}.ts*")]
    there = {file.split(f"_{part}.ts")[0] for file in files}
    raise MolsliceError(
        f"{root} holds neither {name} nor {name}.gz; {near_names(problem, there)}. {Uea.advice()}"
    )


def _statistics(cases: Sequence[np.ndarray], channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of each channel over all known steps, float64 [channels]; the spread is never zero."""
    count, total, squares = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    for case in cases:  # one by one: the largest set takes half a gigabyte
        count += (~np.isnan(case)).sum(0)
        total += np.nansum(case, 0)
    mean = total / np.maximum(count, 1)
    for case in cases:
        squares += np.nansum((case - mean) ** 2, 0)
    spread = np.sqrt(squares / np.maximum(count, 1))
    spread[spread <= 1e-12 * np.abs(mean)] = 1.0
    return mean, spread


def _filled(case: np.ndarray, missing: Filling, indicator: bool) -> np.ndarray:
    """[n, channels] without NaN, [n, 2 channels] with the indicator; [0, ...] where no value is known."""
    absent = np.isnan(case)
    if absent.all():
        return np.zeros((0, case.shape[1] * (2 if indicator else 1)))
    if absent.any() and missing == "interpolate":
        steps = np.arange(len(case))
        for channel in np.flatnonzero(absent.any(0) & ~absent.all(0)):
            known = ~absent[:, channel]
            case[:, channel] = np.interp(steps, steps[known], case[known, channel])
    filled = np.where(np.isnan(case), 0.0, case)
    return np.hstack([filled, absent]) if indicator else filled
