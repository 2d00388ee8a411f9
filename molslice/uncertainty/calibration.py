"""Held-out predictions of a model, used to compute its intervals, in a file of the model folder.

`calibration.json` describes the rows, and `calibration.safetensors` holds them. Nothing in them can run code.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import save

from molslice.errors import MolsliceError
from molslice.files.atomic import write_atomically
from molslice.files.parsing import read_json_object
from molslice.files.received import read_arrays
from molslice.uncertainty.conformal import check_level, check_rows, class_sets, intervals
from molslice.uncertainty.distribution import expected_excess, probability_below
from molslice.uncertainty.probabilities import calibrate, fit_platt

CALIBRATION, ARRAYS = "calibration.json", "calibration.safetensors"
FORMAT = "molslice-calibration-1"
KINDS = ("regression", "classification", "multiclass", "mixed")
FEWEST = 9  # held-out rows that can show whether errors follow the difficulty
FLOORS = (1.0, 0.25)  # shares of the median difficulty
NARROWER = 0.99  # scaled intervals are used if their typical error is below this share of constant ones
FIELDS = ("truth", "predicted", "folds", "difficulty")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The n held-out rows of one target that have a measured value.

    Attributes:
        name: Name of the target.
        truth: Measured values, or indices of classes, float64 [n].
        predicted: Predictions by models that have not seen the row, or probabilities of class 1, float64 [n];
            the probability of each class, float64 [n, C], if there are more than two.
        folds: The fold whose model predicts the row, int64 [n].
        difficulty: A number that tends to grow with the error, not negative, from the same model, float64
            [n]; None without one.
        floor: What is added to the difficulty for the scale of the error, 0 if the difficulty is the scale;
            None for intervals of equal width.
        line: Slope and intercept that calibrate the log-odds of a class; None for a number.
        logarithmic: Whether errors, their scales and the difficulty belong to the common logarithm.
        classes: Names of the C classes if there are more than two; else empty.
    """

    name: str
    truth: np.ndarray
    predicted: np.ndarray
    folds: np.ndarray
    difficulty: np.ndarray | None = None
    floor: float | None = None
    line: tuple[float, float] | None = None
    logarithmic: bool = False
    classes: tuple[str, ...] = ()

    @classmethod
    def of_rows(
        cls,
        name: str,
        kind: str,
        truth: np.ndarray,
        predicted: np.ndarray,
        folds: np.ndarray,
        difficulty: np.ndarray | None = None,
        *,
        scale: np.ndarray | None = None,
        logarithmic: bool = False,
        classes: tuple[str, ...] = (),
    ) -> Self:
        """Describe the rows that have a measured value and a prediction.

        A difficulty is used if the errors follow it; see `_choose_floor`. A scale is always used.

        Args:
            name: Name of the target.
            kind: `regression`, `classification` or `multiclass`.
            truth: Measured values, float [n], NaN where missing.
            predicted: Predictions, float [n] or [n, C].
            folds: Fold of each row, int [n].
            difficulty: See the class, float [n].
            scale: The scale of the error, positive, float [n]; then there is no difficulty.
            logarithmic: See the class. Rows whose truth or prediction has no logarithm are left out.
            classes: See the class.
        """
        known = np.isfinite(truth) & np.isfinite(predicted).reshape(len(predicted), -1).all(1)
        if difficulty is not None:
            known &= np.isfinite(difficulty)
        if logarithmic:
            known &= (np.asarray(truth) > 0) & (np.asarray(predicted) > 0)
        measured, guess = (np.asarray(values)[known].astype(np.float64) for values in (truth, predicted))
        known_folds = np.asarray(folds)[known].astype(np.int64)
        if kind == "classification":
            line = fit_platt(guess, measured) if len(known_folds) else (1.0, 0.0)
            return cls(name, measured, guess, known_folds, line=line)
        held_out = cls(name, measured, guess, known_folds, logarithmic=logarithmic)
        if kind == "multiclass":
            return replace(held_out, classes=classes)
        if scale is not None:
            return replace(held_out, difficulty=np.asarray(scale)[known].astype(np.float64), floor=0.0)
        hard = None if difficulty is None else np.asarray(difficulty)[known].astype(np.float64)
        floor = None if hard is None else _choose_floor(held_out.errors, hard)
        return held_out if floor is None else replace(held_out, difficulty=hard, floor=floor)

    @property
    def kind(self) -> str:
        """What the target is: `regression`, `classification` or `multiclass`."""
        return "multiclass" if self.classes else "regression" if self.line is None else "classification"

    def measured_width(self, level: float) -> float | None:
        """Return the width of the central part of the measured values that holds a share `level` of them.

        It is the width of an interval that knows nothing of a molecule. None for classes, without rows, and
        for a target whose logarithm was learned.
        """
        if self.kind != "regression" or self.logarithmic or not len(self.truth):
            return None
        low, high = np.quantile(self.truth, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        return float(high - low)

    @property
    def errors(self) -> np.ndarray:
        """Absolute errors, float64 [n]."""
        return np.abs(self.transform(self.truth) - self.transform(self.predicted))

    @property
    def scores(self) -> np.ndarray:
        """Errors relative to their scales, float64 [n]."""
        return self.errors / self.scale(self.difficulty)

    def transform(self, values: np.ndarray) -> np.ndarray:
        """Return values, or their common logarithms if errors belong to the logarithm."""
        return np.log10(values) if self.logarithmic else values

    def transform_limit(self, limit: float) -> float:
        """Return a limit as `transform` does; one that is not positive has the logarithm minus infinity."""
        if not self.logarithmic or np.isposinf(limit):
            return limit
        return float(np.log10(limit)) if limit > 0 else -np.inf

    def invert(self, numbers: np.ndarray) -> np.ndarray:
        """Invert `transform`."""
        return 10.0**numbers if self.logarithmic else numbers

    def scale(self, difficulty: np.ndarray | None) -> np.ndarray:
        """Return the scale of the error of rows of a difficulty; 1 for intervals of equal width."""
        if self.floor is None:
            return np.ones(1)
        assert difficulty is not None
        return difficulty + self.floor

    def check(self, level: float) -> None:
        """Refuse a level for which there are too few rows."""
        if self.kind == "regression":
            check_rows(len(self.truth), level, f"target {self.name!r}")
            return
        for label, name in enumerate(self.classes or ("0", "1")):
            count = int((self.truth == label).sum())
            check_rows(count, level, f"class {name} of target {self.name!r}")


def _choose_floor(errors: np.ndarray, difficulty: np.ndarray) -> float | None:
    """Return a share of the median difficulty, or None where one width for all rows fits about as well.

    The likelihood of all errors decides, not the width at one level: intervals whose width has been minimized
    on their own held-out rows cover too little.
    """
    median = float(np.median(difficulty)) if len(errors) else 0.0
    if median <= 0.0 or len(errors) < FEWEST:
        return None
    best, least = None, NARROWER * _typical_error(errors, np.ones(1))
    for share in FLOORS:
        size = _typical_error(errors, difficulty + share * median)
        if size < least:
            best, least = share * median, size
    return best


def _typical_error(errors: np.ndarray, scales: np.ndarray) -> float:
    """Return the geometric mean of the expected errors: small where the likelihood is large.

    The errors have Laplace's distribution, with expected values proportional to `scales`.
    """
    return float(np.exp(np.log(scales).mean()) * (errors / scales).mean())


@dataclass(frozen=True, slots=True)
class Calibration:
    """Held-out rows of a model with T targets and K models, one for each fold.

    Attributes:
        kind: One of `KINDS`; `mixed` for targets of several kinds, or several targets of several classes.
        num_folds: K; 1 if all held-out rows are predicted by the model itself.
        source: What the held-out rows are, for the reader.
        targets: The held-out rows of each target.
        dropout_passes: Number of passes with dropout over which the difficulty was computed; 0 without.
    """

    kind: str
    num_folds: int
    source: str
    targets: tuple[HeldOut, ...]
    dropout_passes: int = 0

    @property
    def needs_difficulty(self) -> bool:
        """Whether the width of an interval depends on the difficulty of the row."""
        return any(target.floor is not None for target in self.targets)

    def check(self, level: float) -> None:
        """Check that a level is valid and that every target has enough held-out rows for it."""
        check_level(level)
        for target in self.targets:
            target.check(level)

    def intervals(
        self, predictions: np.ndarray, difficulty: np.ndarray | None, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the intervals of m new rows.

        Args:
            predictions: Predictions by the model of each fold, float [K, m, C].
            difficulty: Difficulty of each row for the model of each fold, float [K, m, C]; None without one.
            level: The probability that an interval covers the truth, for which there are enough rows; see
                `check`.

        Returns:
            Lower and upper bounds in the units of the targets, float64 [m, C] each, NaN for classes. They
            enclose the mean over the folds.
        """
        lower, upper = np.full((2, *predictions.shape[1:]), np.nan)
        for target, columns in self._columns("regression"):
            _, rows = self._number(target.name, predictions, difficulty)
            ends = intervals(*rows, level)
            lower[:, columns.start], upper[:, columns.start] = map(target.invert, ends)
        middle = np.asarray(predictions, np.float64).mean(0)
        return np.minimum(lower, middle), np.maximum(upper, middle)

    def probabilities_between(
        self,
        name: str,
        predictions: np.ndarray,
        difficulty: np.ndarray | None,
        lower: float,
        upper: float,
    ) -> np.ndarray:
        """Compute the probability that a number of m new rows is between two limits, float64 [m].

        The intervals are quantiles of the same distribution; see `molslice.uncertainty.distribution`.

        Args:
            name: The target.
            predictions: As in `intervals`.
            difficulty: As in `intervals`.
            lower: The lower limit in the unit of the target; it may be infinite.
            upper: The upper limit; it may be infinite.
        """
        target, rows = self._number(name, predictions, difficulty)
        ends = (target.transform_limit(limit) for limit in (lower, upper))
        below_lower, below_upper = (probability_below(end, *rows) for end in ends)
        return np.maximum(below_upper - below_lower, 0.0)

    def expected_improvements(
        self,
        name: str,
        predictions: np.ndarray,
        difficulty: np.ndarray | None,
        sign: int,
        measured: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute by how much m new rows are expected to improve on the best measured value, float64 [m].

        It is the expected value of max(value - best, 0), in the unit of the target, or of its logarithm if
        errors belong to the logarithm. Infinite without a measured value.

        Args:
            name: The target.
            predictions: As in `intervals`.
            difficulty: As in `intervals`.
            sign: 1 if larger values are better, -1 if smaller ones are.
            measured: Measured values of other rows, float [k], NaN where missing.
        """
        target, (centers, *rows) = self._number(name, predictions, difficulty)
        known = target.truth if measured is None else np.concatenate([target.truth, measured])
        known = known[known > 0] if target.logarithmic else known[np.isfinite(known)]
        best = float((sign * target.transform(known)).max(initial=-np.inf))
        return expected_excess(best, sign * centers, *rows)

    def _number(
        self, name: str, predictions: np.ndarray, difficulty: np.ndarray | None
    ) -> tuple[HeldOut, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Return a target that is a number, and centers, scales, scores and folds; see `intervals`."""
        target, columns = next(pair for pair in self._columns("regression") if pair[0].name == name)
        centers = target.transform(predictions[:, :, columns.start])
        scales = target.scale(None if difficulty is None else difficulty[:, :, columns.start])
        return target, (centers, np.broadcast_to(scales, centers.shape), target.scores, target.folds)

    def sets(self, probabilities: np.ndarray, level: float) -> np.ndarray:
        """Find the classes that each of m new rows may have.

        Args:
            probabilities: Predictions by the model of each fold, float [K, m, C].
            level: The probability that a set holds the true class, for which there are enough rows.

        Returns:
            Whether the set of a target has a class, bool [m, T, L] for at most L classes; False for numbers.
        """
        most = max(len(target.classes) or 2 for target in self.targets)
        sets = np.zeros((probabilities.shape[1], len(self.targets), most), bool)
        for index, (target, columns) in enumerate(self._columns()):
            if target.kind != "regression":
                given = probabilities[:, :, columns if target.classes else columns.start]
                of_target = class_sets(given, target.predicted, target.truth, target.folds, level)
                sets[:, index, : of_target.shape[1]] = of_target
        return sets

    def calibrated(self, probabilities: np.ndarray) -> np.ndarray:
        """Calibrate probabilities of class 1 among predictions, float [m, C]; see `fit_platt`.

        Returns:
            float64 [m, C], NaN for others.
        """
        calibrated = np.full(probabilities.shape, np.nan)
        for target, columns in self._columns("classification"):
            assert target.line is not None
            calibrated[:, columns.start] = calibrate(probabilities[:, columns.start], *target.line)
        return calibrated

    def _columns(self, kind: str | None = None) -> Iterator[tuple[HeldOut, slice]]:
        """Yield the targets of a kind with their columns of a prediction; all targets without a kind."""
        start = 0
        for target in self.targets:
            stop = start + (len(target.classes) or 1)
            if kind in (None, target.kind):
                yield target, slice(start, stop)
            start = stop

    def checksum(self) -> str:
        """Return a checksum of everything that an interval depends on."""
        total = hashlib.sha256(f"{self.kind} {self.num_folds} {self.dropout_passes}".encode())
        for target in self.targets:
            total.update(repr((target.name, target.floor, target.line)).encode())
            total.update(b"logarithmic" if target.logarithmic else b"")
            for field in FIELDS:
                values = getattr(target, field)
                total.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        return total.hexdigest()

    def write(self, folder: Path) -> None:
        """Write the files of the model folder."""
        arrays = {
            f"{index}/{field}": np.ascontiguousarray(values)
            for index, target in enumerate(self.targets)
            for field in FIELDS
            if (values := getattr(target, field)) is not None
        }
        write_atomically(folder / ARRAYS, save(arrays))
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "folds": self.num_folds,
            "source": self.source,
            "dropout_passes": self.dropout_passes,
            "targets": [
                {
                    "name": target.name,
                    "rows": len(target.truth),
                    "floor": target.floor,
                    "line": target.line,
                    "logarithmic": target.logarithmic,
                    **({"classes": list(target.classes)} if target.classes else {}),
                }
                for target in self.targets
            ],
        }
        write_atomically(folder / CALIBRATION, json.dumps(header, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path, kind: str, names: Sequence[str]) -> Self | None:
        """Read the calibration of a model with named targets of a kind from its folder; None if it has none.

        Raises:
            MolsliceError: A file is damaged, or belongs to a model with other targets.
        """
        file = folder / CALIBRATION
        if not file.is_file():
            return None
        header = read_json_object(file)
        try:
            calibration = cls._from_parts(header, read_arrays(folder / ARRAYS))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MolsliceError(f"{file} is damaged: {error}") from error
        if (calibration.kind, [target.name for target in calibration.targets]) != (kind, list(names)):
            stated = ", ".join(target.name for target in calibration.targets)
            raise MolsliceError(
                f"{file} belongs to a model of {stated} ({calibration.kind}), but this one predicts "
                f"{', '.join(names)} ({kind})"
            )
        return calibration

    @classmethod
    def _from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        if header.get("format") != FORMAT:
            raise ValueError(f"format {header.get('format')!r}; this version reads {FORMAT!r}")
        folds, kind, passes = header["folds"], header["kind"], header.get("dropout_passes", 0)
        if type(folds) is not int or folds < 1 or kind not in KINDS:
            raise ValueError(f"folds {folds!r} of kind {kind!r}")
        if type(passes) is not int or passes < 0:
            raise ValueError(f"dropout_passes {passes!r}")
        targets = []
        for index, entry in enumerate(header["targets"]):
            parts = {field: arrays.get(f"{index}/{field}") for field in FIELDS}
            floor = None if entry["floor"] is None else float(entry["floor"])
            line = None if entry["line"] is None else (float(entry["line"][0]), float(entry["line"][1]))
            classes = tuple(map(str, entry.get("classes", ())))
            if len(classes) in (1, 2):
                raise ValueError(f"classes {classes} of kind {kind}")
            _check_parts(parts, entry["rows"], folds, floor, line, len(classes))
            logarithmic = entry.get("logarithmic", False)
            if not isinstance(logarithmic, bool):
                raise ValueError(f"logarithmic {logarithmic!r}")
            fields = {**parts, "floor": floor, "line": line, "logarithmic": logarithmic, "classes": classes}
            target = HeldOut(str(entry["name"]), **fields)  # type: ignore[arg-type]
            if logarithmic and min(target.truth.min(initial=1.0), target.predicted.min(initial=1.0)) <= 0:
                raise ValueError("a value of a logarithmic target is not positive")
            targets.append(target)
        if not targets:
            raise ValueError("no targets")
        kinds = {target.kind for target in targets}
        alone = kinds == {kind} and (kind != "multiclass" or len(targets) == 1)
        if kind != "mixed" and not alone:
            raise ValueError(f"targets of kind {', '.join(sorted(kinds))} in a model of kind {kind}")
        return cls(kind, folds, str(header["source"]), tuple(targets), passes)


def _check_parts(
    parts: Mapping[str, np.ndarray | None],
    rows: Any,  # noqa: ANN401
    folds: int,
    floor: float | None,
    line: tuple[float, float] | None,
    classes: int,
) -> None:
    for field, values in parts.items():
        if values is None and field != "difficulty":
            raise ValueError(f"{field} is missing")
        kind = np.int64 if field == "folds" else np.float64
        shape = (rows, classes) if field == "predicted" and classes else (rows,)
        if values is not None and (values.shape != shape or values.dtype != kind):
            raise ValueError(f"{field} has shape {values.shape} and type {values.dtype} for {rows} rows")
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{field} has values that are not finite")
    truth = parts["truth"]
    assert truth is not None
    if classes and not np.isin(truth, np.arange(classes)).all():
        raise ValueError(f"a class is not one of {classes}")
    numbers, hard = parts["folds"], parts["difficulty"]
    assert numbers is not None
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= folds):
        raise ValueError(f"folds from {numbers.min()} to {numbers.max()}, of {folds}")
    if (floor is None) != (hard is None) or (hard is not None and len(hard) and hard.min() < 0):
        raise ValueError("the difficulty does not fit its floor")
    smallest = hard.min() if hard is not None and len(hard) else 1.0
    if floor is not None and not (np.isfinite(floor) and floor >= 0 and floor + smallest > 0):
        raise ValueError(f"invalid floor {floor}")
    if line is not None and not (np.isfinite(line).all() and line[0] > 0):
        raise ValueError(f"invalid line {line}")
