"""Checks of the targets of a fit: whether each can be learned, and whether as its logarithm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from molslice.data.molecules.report import TargetStatistics
from molslice.data.target_values import is_log_normal
from molslice.files.urls import File
from molslice.fitting.data import FitData, FitOptions, Scale
from molslice.number_text import counted
from molslice.tasks.target_types import TargetType, part_slices
from molslice.types import MolsliceError

MIN_ROWS = 20  # of a target; a fold of five then leaves 16 rows
MIN_OF_CLASS = 5
HOLD_OUT_NO_ROW = "--split all holds out no row"
ROUNDING = 1e-14  # relative difference of means of equal values


def options_of_kinds(
    types: Sequence[TargetType], names: Sequence[str], options: FitOptions, path: File
) -> FitOptions:
    """Check that the options are for the kinds of the targets; return options for these targets.

    What is given for numbers does not apply to classes beside them.

    Raises:
        MolsliceError: An option is for numbers, but all targets are classes, or the other way round; or an
            option names something for numbers for a target of classes.
    """
    numbers = [not target_type.has_classes for target_type in types]
    if all(numbers) and options.class_weight is not None:
        raise MolsliceError(f"class_weight is for classes; the targets of {path} are numbers")
    if not any(numbers):
        no_limits = "the targets are classes, which have no limits"
        for given, reason in (
            (any(options.relations or ()), f"{no_limits}; give --kind regression"),
            (any(options.unit_columns or ()), "the targets are classes, which have no units"),
            (any(options.errors or ()), "the targets are classes, which have no standard errors"),
            (
                options.transform is not None,
                "the targets are classes, and classes have no negative logarithm",
            ),
            (options.scale == "log", "the scale log is for numbers, but the targets are classes"),
        ):
            if given:
                raise MolsliceError(f"{path}, column {names[0]!r}: {reason}")
    if all(numbers) or not any(numbers):
        return options
    changed: dict[str, Any] = {}
    for field, what, empty in (
        ("relations", "limits", None),
        ("units", "units", ""),
        ("unit_columns", "units", None),
        ("errors", "standard errors", None),
    ):
        given = getattr(options, field) or ()
        for name, is_number, value in zip(names, numbers, given, strict=bool(given)):
            if value and not is_number and len({*given}) > 1:  # not one for all targets
                raise MolsliceError(
                    f"{path}, column {name!r}: the target has classes, which have no {what}, got {value!r}"
                )
        if given:
            pairs = zip(numbers, given, strict=True)
            changed[field] = tuple(value if is_number else empty for is_number, value in pairs)
    return replace(options, **changed)


def check_targets(data: FitData, path: File) -> None:
    """Check that each target can be learned.

    Raises:
        MolsliceError: A target has too few values, or they do not differ.
    """
    held_out = int(data.test.sum())
    reasons = [*data.losses, *([f"{counted(held_out)} held out"] if held_out else [])]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    for index, name in enumerate(data.names):
        values = data.targets[~data.test, index]
        known = values[np.isfinite(values)]
        where = f"{path}, column {name!r}"
        limits = int(data.limited[~data.test, index].sum())
        if len(known) < MIN_ROWS:
            beside = f" and {limits:,} with a limit" if limits else ""
            raise MolsliceError(
                f"{where}: {counted(len(known), 'training row')} with a value{beside}; a fit needs at "
                f"least {MIN_ROWS}{' exact values' if limits else ''}{because}"
            )
        of_target = data.types[index]
        if of_target.several is not None:
            _check_class_sizes(known, data.targets[:, index], of_target.class_names, where, because)
        elif of_target.has_classes:
            if odd := [value for value in known if value not in (0.0, 1.0)]:
                raise MolsliceError(f"{where}: {odd[0]:g} is not a class; classes are 0 and 1")
            ones = int(known.sum())
            if min(ones, len(known) - ones) < MIN_OF_CLASS:
                zero, one = of_target.class_names
                enough = all((data.targets[:, index] == label).sum() >= MIN_OF_CLASS for label in (0, 1))
                raise MolsliceError(
                    f"{where}: {len(known) - ones} training rows of class {zero} and {ones} of class {one}; "
                    f"a fit needs at least {MIN_OF_CLASS} of each{because}{f'. {HOLD_OUT_NO_ROW}' * enough}"
                )
        elif np.ptp(known) <= ROUNDING * np.abs(known).max():
            raise MolsliceError(f"{where}: the target is {known[0]:g} in every training row")
        else:
            _check_precision(known, name, path)
        held = data.targets[data.test, index]
        held = held[np.isfinite(held)]
        if of_target.kind == "classification" and len(held) and np.ptp(held) == 0:
            word = of_target.class_names[int(held[0])]
            data.findings.append(
                f"{name}: all {len(held)} held-out rows are of class {word}; no ROC-AUC is defined"
            )
        if len(held) and (absent := of_target.absent_class(held)) is not None:
            data.findings.append(
                f"{name}: no held-out row has the class {absent!r}; metrics that are means over the classes "
                "are not defined for them"
            )
        missing = len(values) - len(known) - limits
        if missing:
            data.findings.append(f"{name}: {missing} of {len(values)} training rows have no value")


def _check_class_sizes(
    known: np.ndarray, values: np.ndarray, names: Sequence[str], where: str, because: str
) -> None:
    """Check that each of several classes has enough training rows.

    `known` are the classes of the training rows, float64 [k], and `values` of all rows, float64 [n].
    """
    counts = np.bincount(known.astype(np.int64), minlength=len(names))
    rarest = int(counts.argmin())
    if counts[rarest] < MIN_OF_CLASS:
        enough = bool((values == rarest).sum() >= MIN_OF_CLASS)
        raise MolsliceError(
            f"{where}: {counted(int(counts[rarest]), 'training row')} of the class {names[rarest]!r}; a "
            f"fit needs at least {MIN_OF_CLASS} of each{because}. {f'{HOLD_OUT_NO_ROW}; ' * enough}"
            f"--missing-value {names[rarest]!r} leaves them out"
        )


def _check_precision(values: np.ndarray, name: str, path: File) -> None:
    """Check that predictions, which are float32, can tell the values of a target apart."""
    statistics = TargetStatistics([name])
    with np.errstate(over="ignore"):
        statistics.add(values[:, None])
    statistics.check_rounding(str(path))


def is_logarithmic(data: FitData, path: File, index: int, geometric: np.ndarray, scale: Scale | None) -> bool:
    """Find whether the logarithm of a target is learned.

    `geometric` are its values, with the geometric mean of several rows, float64 [n].

    Raises:
        MolsliceError: `scale` is `log`, and a value is not positive.
    """
    if scale == "linear" or data.types[index].has_classes:
        return False
    name, values = data.names[index], np.where(data.test, np.nan, geometric)
    if scale == "log":
        if data.bounds is not None:  # an upper limit must be positive too
            values = np.where(data.limited[:, index] & ~data.test, data.bounds[1, :, index], values)
        where = f"{path}, column {name!r}"
        if (not_positive := np.flatnonzero(values <= 0)).size:
            row = int(not_positive[0])
            raise MolsliceError(
                f"{where}: the value {values[row]:g} of {data.smiles[row]} has no logarithm; choose the "
                "scale linear"
            )
        data.findings.append(f"{name}: learned as its logarithm")
        return True
    known = values[np.isfinite(values)]
    upper = np.array([]) if data.bounds is None else data.bounds[1, ~data.test, index]
    if (upper <= 0).any() or not is_log_normal(known):
        return False
    span = f"from {known.min():.4g} to {known.max():.4g}"
    data.findings.append(f"{name}: learned as its logarithm (detected: positive and skewed, {span})")
    return True


def describe_without_logarithm(data: FitData, *, refits: bool) -> list[str]:
    """Say how many held-out values have no logarithm, a sentence for each target with some.

    Whether the logarithm is learned is found in the training rows, so a held-out value may have none.
    `refits` is whether a fit to all rows follows, which leaves them out too.
    """
    sentences, columns = [], [*part_slices(data.types)]
    for index in np.flatnonzero(data.logarithmic).tolist():
        without = data.test & data.known[:, index] & ~data.labels(columns[index].start).known
        if count := int(without.sum()):
            values = counted(count, "held-out value")
            sentences.append(
                f"{data.names[index]}: {values} without a logarithm, left out of the mean fold error"
                + " and of the fit to all rows" * refits
            )
    return sentences
