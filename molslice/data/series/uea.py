"""Time series of the UEA, UCR and Monash archives: pairs of `.ts` files, classes or numbers to predict."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from molslice.data.sequences import SequenceDataset, Sequences
from molslice.data.series.ts_file import TsFile, read_ts_file
from molslice.data.splits import Division, consecutive_rows
from molslice.files.lines import find_any
from molslice.registry import check_choice, near_names
from molslice.types import DataSpec, MolsliceError

# channels, longest series and classes of the ten data sets of the Flowformer paper (Wu et al. 2022, section
# 4.3), as in the archive (Bagnall et al. 2018, arXiv 1811.00075)
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
VARIANTS = ("_eq", "_nmv")  # copies with equal lengths, or without missing values
SIMILAR = 10  # training cases with neighboring targets, of which each split has its fraction
Filling = Literal["interpolate", "zero"]


class Uea(SequenceDataset):
    """One problem of an archive: `<problem>_TRAIN.ts` and `<problem>_TEST.ts`, plain or as `.ts.gz`.

    A time step is a token with one value per channel. Series may differ in length. A case without known
    values keeps its row, without tokens.

    Args:
        root: Folder of the files, or its parent with a folder named after the problem.
        problem: Name of the problem, for instance JapaneseVowels.
        valid_fraction: Fraction of the training cases for validation, stratified by class or target. With 0,
            the test cases are used for validation, as in published results; the test error is then biased,
            because the best step is chosen by it.
        split_seed: Seed of the draw.
        standardize: Whether to subtract the mean of each channel and divide by its standard deviation, both
            over all steps of the training cases.
        missing: How to fill missing values: `interpolate` linearly in time (constant before the first and
            after the last known value), or `zero`, which is the channel's mean with `standardize`. A channel
            without values is zero. After the end of a shorter channel, its values are missing.
        missing_indicator: Whether to add one channel per channel: 1 for a missing value, otherwise 0.
    """

    row_name = "cases"
    instructions = "By hand: download the problem from https://timeseriesclassification.com"

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
        division = Division({"valid": valid_fraction} if valid_fraction != 0 else {}, split_seed)
        check_choice("missing", missing, get_args(Filling))
        train, test = (_read(Path(root), problem, suffix) for suffix in ("TRAIN", "TEST"))
        self.source = f"{root} ({problem})"
        self._set_targets(train, test)
        cases = train.cases + test.cases
        channels = train.cases[0].shape[1]
        if test.cases[0].shape[1] != channels:
            raise MolsliceError(
                f"{self.source}: {channels} channels in training, {test.cases[0].shape[1]} in test cases"
            )
        parts = consecutive_rows({"train": len(train.cases), "test": len(test.cases)})
        if valid_fraction == 0:
            parts["valid"] = parts["test"]
        self.splits = division.divide(parts, self.source, strata=self._strata(len(train.cases)))
        mean, spread = np.zeros(channels), np.ones(channels)
        meaning = problem if missing == "interpolate" else f"{problem}, missing {missing}"
        if standardize:
            mean, spread = _statistics([cases[row] for row in self.splits["train"]], channels)
            # a model is not used with another standardization
            meaning += f", standardized {_fingerprint(mean, spread)}"
        filled = (_filled((case - mean) / spread, missing, missing_indicator) for case in cases)
        self.sequences = Sequences.pack(filled, np.float32)
        empty = np.flatnonzero(self.sequences.lengths == 0)
        self._errors = {int(row): "the case has no known value" for row in empty}
        outputs, longest = len(self.class_names) or 1, int(self.sequences.lengths.max(initial=1))
        self._spec = _spec(outputs, channels, longest, meaning, missing_indicator)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the spec of the ten problems of the Flowformer paper, without the standardization.

        Returns:
            None for other problems.
        """
        problem = options.get("problem")
        if problem not in SIZES:
            return None
        channels, longest, classes = SIZES[problem]
        return _spec(classes, channels, longest, problem, bool(options.get("missing_indicator", False)))

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the problem into `<root>/<problem>` with aeon, unless both files exist."""
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
            if not _is_there(Path(root), problem):  # aeon also reads the file, which may fail
                raise MolsliceError(f"cannot download {problem} to {root} with aeon: {error}") from error

    def _strata(self, num_train: int) -> np.ndarray:
        """Return the class of each case, or for numbers the group of training cases with similar targets."""
        strata = self.labels[:, 0].astype(np.float64)
        if self.kind == "regression":
            targets = strata[:num_train]
            ranks = np.argsort(np.argsort(targets))
            strata[:num_train] = np.where(np.isnan(targets), np.nan, ranks // SIMILAR)
        return strata

    def _set_targets(self, train: TsFile, test: TsFile) -> None:
        if train.regression != test.regression or (train.classes is None) != (test.classes is None):
            raise MolsliceError(f"{self.source}: one file has classes, the other does not")
        targets = test.targets.copy()
        if train.regression:
            self.kind, self.target_names = "regression", ("target",)
        elif train.classes is not None and test.classes is not None:
            self.kind, self.target_names = "multiclass", ("class",)
            # the test file may list classes in another order, or further ones, which training does not have
            self.class_names = tuple(dict.fromkeys(train.classes + test.classes))
            place = np.array([self.class_names.index(name) for name in test.classes])
            known = ~np.isnan(targets)
            targets[known] = place[targets[known].astype(np.int64)]
        else:
            raise MolsliceError(f"{self.source} has neither classes nor targets (@classLabel false)")
        self.target_units = ("",)
        self.labels = np.concatenate([train.targets, targets]).astype(np.float32)[:, None]


def _spec(outputs: int, channels: int, longest: int, meaning: str, indicator: bool) -> DataSpec:
    width = channels * (2 if indicator else 1)
    return DataSpec(outputs, "values", channels=width, max_tokens=longest, vocabulary=meaning)


def _original(problem: str) -> str:
    """Return the name of the original of a variant; otherwise the name itself."""
    for variant in reversed(VARIANTS):
        problem = problem.removesuffix(variant)
    return problem


def _find(root: Path, problem: str, suffix: str) -> Path | None:
    folders = (root / problem, root / _original(problem), root)
    paths = (find_any(folder, f"{problem}_{suffix}.ts") for folder in folders)
    return next((path for path in paths if path is not None), None)


def _is_there(root: Path, problem: str) -> bool:
    return all(_find(root, problem, suffix) is not None for suffix in ("TRAIN", "TEST"))


def _read(root: Path, problem: str, suffix: str) -> TsFile:
    path = _find(root, problem, suffix)
    if path is not None:
        return read_ts_file(path)
    name = f"{problem}_{suffix}.ts"
    files = [file.name for pattern in ("*", "*/*") for file in root.glob(f"{pattern}_{suffix}.ts*")]
    problems = {file.split(f"_{suffix}.ts")[0] for file in files}
    raise MolsliceError(
        f"{root} has neither {name} nor {name}.gz; {near_names(problem, problems)}. {Uea.advice()}"
    )


def _statistics(cases: Sequence[np.ndarray], channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute mean and standard deviation (1 instead of 0) of each channel, float64 [channels]."""
    count, total, squares = np.zeros(channels), np.zeros(channels), np.zeros(channels)
    for case in cases:  # one by one, because the largest data set needs half a gigabyte
        count += (~np.isnan(case)).sum(0)
        total += np.nansum(case, 0)
    mean = total / np.maximum(count, 1)
    for case in cases:
        squares += np.nansum((case - mean) ** 2, 0)
    spread = np.sqrt(squares / np.maximum(count, 1))
    spread[spread <= 1e-12 * np.abs(mean)] = 1.0
    return mean, spread


def _fingerprint(mean: np.ndarray, spread: np.ndarray) -> str:
    """Compute a short name of the statistics, which rounding on another machine does not change."""
    return sha256(" ".join(f"{value:.6g}" for value in (*mean, *spread)).encode()).hexdigest()[:12]


def _filled(case: np.ndarray, missing: Filling, indicator: bool) -> np.ndarray:
    """Fill missing values: [n, channels], or [n, 2 channels] with the indicator; n = 0 without values."""
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
