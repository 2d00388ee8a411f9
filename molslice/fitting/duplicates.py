"""Rows of a fit with the same molecule and conditions: merge them to one row, keep them, or refuse them."""

import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.tables import MoleculeTable
from molslice.data.target_values import is_log_normal
from molslice.files.tables import is_missing
from molslice.files.urls import File
from molslice.fitting.data import Duplicates, FitData, Scale
from molslice.fitting.limits import merged_bounds
from molslice.number_text import counted
from molslice.types import MolsliceError

SHOWN_CONFLICTS = 5
LEAST_CONFLICT = 0.25  # of the standard deviation of the target
PROBED_ROWS, MOST_VALUES, MOST_COLUMNS = 1_000, 50, 10
SAME = 1e-9  # relative difference of values that count as equal


def merge_duplicates(
    data: FitData, path: File, duplicates: Duplicates, scale: Scale | None, *, by_column: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Replace the rows of each molecule in the same conditions by one with their mean, unless they are kept.

    With standard errors, the mean has the smallest possible standard error. The weight of the row is the sum
    of the weights of the rows that have a value of the target, or a limit if none has a value.

    If a column divides the rows (`by_column`), training and held-out rows are not merged. Differences are
    judged on `scale`; see `find_conflicts`.

    Returns:
        The targets with the geometric mean instead, float64 [n, T]; the smallest value if it is not positive.
        Their standard errors, float64 [n, T]; None without any.

    Raises:
        MolsliceError: There are duplicates, and they are refused.
    """
    groups: dict[tuple[tuple[str, ...], bool, bytes], list[int]] = {}
    given = data.molecules.conditions
    for row, canonical in enumerate(data.names_of_molecules):
        test = bool(data.test[row]) if by_column else False
        conditions = b"" if given is None else (given[row] + 0.0).tobytes()  # -0.0 + 0.0 is 0.0
        groups.setdefault((canonical, test, conditions), []).append(row)
    if by_column:
        both = {name for name, test, _ in groups if test} & {name for name, test, _ in groups if not test}
        if both:
            overlap = (
                "1 held-out molecule is also a training molecule"
                if len(both) == 1
                else f"{len(both):,} held-out molecules are also training molecules"
            )
            if duplicates == "refuse":
                first = " and ".join(min(both))
                raise MolsliceError(
                    f"{path}: {overlap}; the first: {first}. Remove them, or choose duplicates average or "
                    "keep"
                )
            data.findings.append(f"{overlap}; both are kept")
    several = [rows for rows in groups.values() if len(rows) > 1]
    if not several:
        return data.targets, data.noise
    values = _with_contradicting_limits(data, several)
    differing = [rows for rows in several if _differ(values[rows])]
    alike = " with one second molecule" if data.partner else ""
    alike += "" if given is None else " in the same conditions"
    count = f"{_molecules_have(len(several))} several rows{alike}, " + (
        f"with {'different' if differing else 'equal'} values"
        if len(several) == 1
        else f"{len(differing):,} of them with different values"
    )
    if duplicates == "refuse":
        first = " and ".join(dict.fromkeys(data.smiles[row] for row in several[0][:2]))
        raise MolsliceError(
            f"{path}: {count}; the first: {first}. Remove them, or choose duplicates average or keep"
        )
    if duplicates == "keep":
        data.findings.append(f"{count}; all are kept")
        data.findings += _conflicts(data, values, differing, scale)
        return data.targets, data.noise
    data.lose(f"{count}; {_describe_merging(data.has_classes)}")
    data.findings += _conflicts(data, values, differing, scale)
    merged, geometric = data.targets.copy(), data.targets.copy()
    noise = None if data.noise is None else data.noise.copy()
    for rows in several:
        merged[rows[0]], geometric[rows[0]], errors = _merge_rows(data, rows)
        if noise is not None and errors is not None:
            noise[rows[0]] = errors
    if data.bounds is not None:
        _merge_limits(data, several, merged, geometric)
    data.targets = merged
    _merge_identifiers(data, several)
    for rows in several if data.origins else ():
        data.origins[rows[0]] = tuple(origin for row in rows for origin in data.origins[row])
    first_rows = np.array(sorted(rows[0] for rows in groups.values()))
    is_known = data.known[first_rows].any(1)
    kept = first_rows[is_known]
    data.lost = [data.origins[row] for row in first_rows[~is_known] if data.origins]
    data.keep(kept)
    return geometric[kept], None if noise is None else noise[kept]


def find_numeric_columns(table: MoleculeTable, used: Iterable[str]) -> list[str]:
    """Find columns of numbers, few different ones in the first rows, that may be conditions of a target."""
    rows, columns, taken = table.peek(PROBED_ROWS), list[str](), {table.find(name) for name in used}
    for place, name in enumerate(table.names):
        if place in taken:
            continue
        cells = {row[place].strip() for row in rows if not is_missing(row[place])}
        if 1 < len(cells) <= MOST_VALUES and table.names.count(name) == 1 and all(map(_is_number, cells)):
            columns.append(name)
    return columns[:MOST_COLUMNS]


def describe_differing(smiles: Sequence[str], columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Name the columns that differ within most molecules with several rows, a sentence for each."""
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(smiles):
        rows_of.setdefault(text, []).append(row)
    several, sentences = [rows for rows in rows_of.values() if len(rows) > 1], []
    for name, cells in columns.items():
        differing = sum(len({cells[row].strip() for row in rows}) > 1 for rows in several)
        if 2 * differing > len(several):
            sentences.append(
                f"column {name!r} differs between the rows of a molecule; if the target depends on it, give "
                f"--condition {shlex.quote(name)}"
            )
    return sentences


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _describe_merging(has_classes: np.ndarray) -> str:
    if not has_classes.any():
        return "they are averaged"
    averaged = "" if has_classes.all() else "numbers are averaged and "
    return f"{averaged}conflicting labels count as missing"


def _merge_identifiers(data: FitData, several: Sequence[Sequence[int]]) -> None:
    """Give the first row of each molecule the identifiers of all its rows."""
    for cells in data.identifiers.values():
        for rows in several:
            cells[rows[0]] = "; ".join(dict.fromkeys(filter(None, (cells[row] for row in rows))))


class Conflict(NamedTuple):
    """Values of one molecule that differ by much.

    Attributes:
        target: Number of the target.
        rows: The rows of the molecule.
        size: The difference relative to the standard deviation of the target, on the scale of
            `find_conflicts`; infinite for classes.
    """

    target: int
    rows: Sequence[int]
    size: float


def find_conflicts(
    values: np.ndarray, has_classes: np.ndarray, molecules: Iterable[Sequence[int]], scale: Scale | None
) -> list[Conflict]:
    """Find the molecules whose values contradict each other the most, the largest difference first.

    At most `SHOWN_CONFLICTS` are found, each with the target that differs the most. Classes that differ come
    first; numbers differ by at least `LEAST_CONFLICT`.

    Args:
        values: The values of all rows, float64 [n, T], NaN where missing.
        has_classes: Whether a target is no number, bool [T].
        molecules: The rows of each molecule that has several.
        scale: `log` compares logarithms of numbers, `linear` the numbers; None chooses by the values as the
            fit does.
    """
    conflicts, values = [], values.copy()
    for column, of_classes in zip(values.T, has_classes, strict=True):
        known = column[np.isfinite(column)]
        if not of_classes and len(known) and (scale == "log" or (scale is None and is_log_normal(known))):
            column[:] = np.log10(column, out=np.full(len(column), np.nan), where=column > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a target without a value
        spreads = np.where(has_classes, 0.0, [np.nanstd(column) for column in values.T])
        listed = [(rows, np.nanmax(values[rows], 0) - np.nanmin(values[rows], 0)) for rows in molecules]
    for rows, ranges in listed:
        relative = np.divide(ranges, spreads, out=np.where(ranges > 0, np.inf, 0.0), where=spreads > 0)
        target = int(np.nan_to_num(relative, posinf=np.inf).argmax())
        if relative[target] >= LEAST_CONFLICT:
            conflicts.append(Conflict(target, rows, float(relative[target])))
    return sorted(conflicts, key=lambda conflict: -conflict.size)[:SHOWN_CONFLICTS]


def _with_contradicting_limits(data: FitData, molecules: Iterable[Sequence[int]]) -> np.ndarray:
    """Return the values of all rows, and of a limit that no exact value of its molecule meets, the limit.

    Args:
        data: The rows.
        molecules: The rows of each molecule that has several.

    Returns:
        float64 [n, T], NaN where missing.
    """
    values, limited = data.targets.copy(), data.limited
    if data.bounds is None:
        return values
    for rows in molecules:
        exact = np.isfinite(data.targets[rows])
        smallest = np.where(exact, data.targets[rows], np.inf).min(0)
        largest = np.where(exact, data.targets[rows], -np.inf).max(0)
        lower, upper = data.bounds[:, rows]
        compared = limited[rows] & exact.any(0) & ~data.has_classes
        for limits, contradicts in ((lower, lower > largest), (upper, upper < smallest)):
            values[rows] = np.where(compared & contradicts, limits, values[rows])
    return values


def _conflicts(
    data: FitData, values: np.ndarray, differing: Sequence[Sequence[int]], scale: Scale | None
) -> list[str]:
    """List the largest differences between values of one molecule, with its name, the values and the rows.

    `values` are the values as `_with_contradicting_limits` returns them.
    """
    several_files = len({origin.file for origin, *_ in data.origins}) > 1
    largest, lines = find_conflicts(values, data.has_classes, differing, scale), []
    for index, rows, _ in largest:
        known = [row for row in rows if np.isfinite(values[row, index])]
        texts = [_text(data, row, index, values[row, index]) for row in known]
        target = f", {data.names[index]}" if len(data.names) > 1 else ""
        origins = [data.origins[row][0] for row in known if data.origins]
        if several_files:
            places = ", ".join(f"{origin.file}, row {origin.row}" for origin in origins)
        else:
            places = "rows " + ", ".join(str(origin.row) for origin in origins)
        where = f" ({places})" if origins else ""
        lines.append(f"{data.name_of(rows[0])}{target}: {', '.join(texts)}{where}")
    if len(differing) > len(largest) > 0:
        smaller = len(differing) - len(largest)
        lines.append(f"differences like these, but smaller: {counted(smaller, 'molecule')}")
    return lines


def _text(data: FitData, row: int, index: int, value: float) -> str:
    """Return a value of a row as text: a class, a number, or a limit such as `>10`."""
    if names := data.types[index].class_names:
        return names[int(value)]
    if data.bounds is None or np.isfinite(data.targets[row, index]):
        return f"{value:g}"
    return f"{'>' if data.bounds[0, row, index] == value else '<'}{value:g}"


def _molecules_have(count: int) -> str:
    return "1 molecule has" if count == 1 else f"{count:,} molecules have"


def _merge_rows(data: FitData, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Merge values, and write the weight and the standard errors of the mean into the first row.

    A value counts by its weight, divided by its squared standard error; in a geometric mean by the relative
    one.

    Returns:
        Mean, geometric mean and its standard error, float64 [T] each; None without standard errors.
    """
    values, first, weights = data.targets[rows], rows[0], None
    if data.weights is not None:
        weights, exact = data.weights[rows], np.isfinite(values)
        limited = exact if data.bounds is None else np.isfinite(data.bounds[:, rows]).any(0)
        merged = np.where(exact.any(0), exact, limited)
        data.weights[first] = np.where(merged.any(0), (weights * merged).sum(0), weights[0])
    if data.noise is None:
        return _merged(values, data.has_classes, weights), _geometric_mean(values, weights), None
    errors, weights = data.noise[rows], np.ones(values.shape) if weights is None else weights
    known = np.where(errors > 0, errors, 1.0)
    shares = weights / known**2
    relative = weights * np.where(errors > 0, values / known, 1.0) ** 2
    data.noise[first] = _merged_error(errors, shares, values)
    geometric = _geometric_mean(values, relative)
    with np.errstate(divide="ignore", invalid="ignore"):  # logarithms are of positive values only
        error = np.abs(geometric) * _merged_error(errors / np.abs(values), relative, values)
    error = np.where(np.isfinite(geometric), error, np.fmin.reduce(errors))
    return _merged(values, data.has_classes, shares), geometric, error


def _merge_limits(
    data: FitData, several: Sequence[Sequence[int]], merged: np.ndarray, geometric: np.ndarray
) -> None:
    """Merge the limits of each molecule into its first row; see `merged_bounds`."""
    assert data.bounds is not None
    limited, exact, contradicting = data.limited, np.isfinite(data.targets), dict[str, str]()
    has_classes = data.has_classes
    both = sum(bool((limited[rows].any(0) & exact[rows].any(0)).any()) for rows in several)
    for rows in several:
        first = rows[0]
        bounds, values, wrong = merged_bounds(data.bounds[:, rows], merged[first])
        wrong &= ~has_classes  # these disagree, and have no limits
        values = np.where(has_classes, merged[first], values)
        data.bounds[:, first] = np.where(has_classes, values, bounds)
        single = np.isnan(merged[first]) & np.isfinite(values)
        merged[first], geometric[first] = values, np.where(single, values, geometric[first])
        if wrong.any():
            contradicting[data.smiles[first]] = data.names[int(wrong.argmax())]
    if both:
        data.findings.append(f"{_molecules_have(both)} exact values and limits; the exact values are learned")
    if contradicting:
        smiles, name = next(iter(contradicting.items()))
        data.lose(
            f"{_molecules_have(len(contradicting))} limits that contradict each other, which count as "
            f"missing; the first: {smiles}, {name}"
        )


def _differ(values: np.ndarray) -> bool:
    """Whether a target has two different known values in these rows [k, T]."""
    known = np.isfinite(values)
    high = np.where(known, values, -np.inf).max(0)
    low = np.where(known, values, np.inf).min(0)
    measured = known.any(0)
    largest = np.maximum(np.abs(high[measured]), np.abs(low[measured]))
    return bool((high[measured] - low[measured] > SAME * largest).any())


def _merged(
    values: np.ndarray, has_classes: np.ndarray | bool, shares: np.ndarray | None = None
) -> np.ndarray:
    """Return the mean of the known values of each target; NaN for classes that disagree.

    Args:
        values: Values of k rows, float64 [k, T].
        has_classes: Whether a target is no number, bool [T].
        shares: Weights of the values, float64 [k, T]; None for equal ones, as for classes.
    """
    known = np.isfinite(values)
    counts = known.sum(0)
    mean = np.where(known, values, 0.0).sum(0) / np.maximum(counts, 1)
    if shares is not None:
        sums = np.where(known, shares, 0.0).sum(0)
        weighted = np.where(known, shares * values, 0.0).sum(0) / np.where(sums > 0, sums, 1.0)
        mean = np.where(has_classes, mean, weighted)
    agreed = (counts > 0) & (~np.asarray(has_classes) | (~known | (values == mean)).all(0))
    return np.where(agreed, mean, np.nan)


def _merged_error(errors: np.ndarray, shares: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean with weights `shares` of independent values, float64 [T].

    The arrays are float64 [k, T]. Without a known value, it is the smallest of the errors of the limits.
    """
    known = np.isfinite(values)
    sums = np.where(known, shares, 0.0).sum(0)
    error = np.sqrt(np.where(known, (shares * errors) ** 2, 0.0).sum(0)) / np.where(sums > 0, sums, 1.0)
    return np.where(sums > 0, error, np.fmin.reduce(errors))


def _geometric_mean(values: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    """Return the geometric mean of the known values of each target, or the smallest if it is not positive.

    See `_merged` for the arguments.
    """
    smallest = np.fmin.reduce(values)
    logarithms = np.log(values, where=values > 0, out=np.full(values.shape, np.nan))
    return np.where(smallest > 0, np.exp(_merged(logarithms, False, shares)), smallest)
