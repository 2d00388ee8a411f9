"""The table of a fit: read it, find its columns and the kind of its targets, and check them."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from molslice.data.molecules.csv import check_rounding
from molslice.data.molecules.describe import describe_molecules
from molslice.data.molecules.fragments import choose_fragments, count_wildcards, standardize_rows
from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.refusals import failure_text
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import MoleculeTable, check_decimal_mark, find_classes, open_molecules
from molslice.data.target_values import check_outliers, is_log_normal
from molslice.files import tables
from molslice.files.urls import File
from molslice.fitting.classes import find_word_columns, read_classes
from molslice.fitting.concentrations import UnitReader, to_p_values
from molslice.fitting.conditions import ConditionColumns
from molslice.fitting.data import SPLITS, FitData, FitOptions, Scale
from molslice.fitting.duplicates import merge_duplicates
from molslice.fitting.groups import join_groups
from molslice.fitting.limits import LimitReader, describe_held_out
from molslice.fitting.precision import PrecisionReader
from molslice.fitting.split import describe_forms, draw_test_rows, hold_out_latest, read_division
from molslice.registry import near_names
from molslice.types import MolsliceError

__all__ = ["MIN_ROWS", "checked_columns", "checked_targets", "columns_of_targets", "read_fit_data"]

CHUNK_ROWS = 10_000
MIN_ROWS = 20  # of a target; a fold of five then leaves 16 rows
MIN_OF_CLASS = 5
ROUNDING = 1e-14  # relative difference of means of equal values

logger = logging.getLogger(__name__)


def read_fit_data(
    path: File,
    target_columns: Sequence[str],
    options: FitOptions,
    *,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, rows: None,
) -> FitData:
    """Read, check and divide the rows of a table.

    Args:
        path: The table or its URL, in any format of `open_molecules`.
        target_columns: The measured columns.
        options: How to read and divide the table.
        workers: Number of worker processes that compute descriptors.
        progress: Called with the number of described rows and of all rows.

    Raises:
        MolsliceError: The table cannot be used; the message names file, column and row.
    """
    names, kind, split = checked_targets(target_columns), options.kind, options.split
    smiles: list[str] = []
    cells: dict[str, list[str]] = {use: [] for use in options.side_columns}
    places: list[str] = []
    conditions = ConditionColumns(options, path)
    with open_molecules([path], smiles_column=options.smiles_column, delimiter=options.delimiter) as table:
        column, findings = table.smiles_column, list(table.findings)
        _check_names(path, table, names, split)
        conditions.check_names(names, column, split)
        _check_side_columns(table, names, options)
        check_decimal_mark(table, [*names, *options.conditions], options.written.decimal)
        written = options.written
        texts: dict[str, list[str]] = {name: [] for name in find_word_columns(table, names, options)}
        if kind != "regression":
            written, meanings = find_classes(table, [name for name in names if name not in texts], written)
            findings += meanings
        side = SideColumns(table, names, conditions.names)
        limits = LimitReader(table, names, side, options, texts)
        precision = PrecisionReader(table, names, options)
        units = UnitReader(table, names, side, options)
        needed = [*options.side_columns.values(), *conditions.names, *side.names]
        extra = dict.fromkeys([*needed, *limits.used, *precision.columns, *units.used])
        for chunk in table.chunks(CHUNK_ROWS, [column, *names, *extra]):
            side.add(chunk)
            smiles += chunk[column]
            conditions.add(chunk)
            for use, name in options.side_columns.items():
                cells[use] += chunk[name]
            for name, column_texts in texts.items():
                column_texts.extend(chunk[name])
            limits.add(chunk, written)
            precision.add(chunk, written)
            units.add(chunk)
            places += [chunk.where(i) for i in range(len(chunk))]
        if not smiles:
            raise MolsliceError(f"{name_of(table.paths)} has no rows")
    classes = read_classes(texts, options, path, places.__getitem__)
    findings += classes.meanings
    values = limits.targets(classes, path)
    targets, target_kind = values.exact, values.kind
    notices = [
        *side.notices([*limits.used, *units.used]),
        # values in several units are checked when they are converted
        *(
            []
            if units.used
            else check_outliers(targets, names, str(path), places.__getitem__, options.outliers)
        ),
        *values.doubts,
        *conditions.read(places.__getitem__, written, options.outliers),
    ]
    findings.append(f"targets: {', '.join(names)}; {target_kind}" + ("" if kind else " (detected)"))
    findings += values.findings
    for notice in notices:
        logger.warning("%s", notice)
    chosen, replaced = _choose_molecules(conditions.rows(smiles), options, findings, workers)
    described = describe_molecules(chosen, workers=workers, progress=progress)
    data = FitData(smiles, described, targets, np.zeros(0, bool), names, target_kind, column)
    data.findings, data.notices, data.replaced = findings, notices, replaced
    data.standardize = options.standardize
    data.classes, data.words = classes.several, classes.words
    data.bounds, data.losses = values.bounds, [*values.losses]
    data.weights, data.noise, precision_findings = precision.values(data.known, target_kind)
    data.findings += precision_findings
    data.units = options.units or ("",) * len(names)
    _convert(data, units, options, path, places)
    conditions.attach(data)
    dates = read_division(data, cells, options, path, places)
    _drop_unreadable(data, path, places, strict=options.strict)
    join_groups(data, options, path)
    if dates is not None:
        data.test = hold_out_latest(data, path, options.by or "", dates.text)
    is_divided = dates is not None or "split" in cells
    geometric, geometric_noise = merge_duplicates(data, path, options.duplicates, by_column=is_divided)
    if not is_divided:
        data.test = np.zeros(len(data.smiles), bool)
        if split != "all" and len(data.smiles) >= MIN_ROWS:  # `_check_targets` refuses fewer rows
            data.test = draw_test_rows(data, path, split, options.seed)
    kept = conditions.describe(data)
    geometric = geometric[kept]
    geometric_noise = None if geometric_noise is None else geometric_noise[kept]
    describe_forms(data)
    data.findings += describe_held_out(data)
    _check_targets(data, path)
    data.logarithmic = tuple(
        _is_logarithmic(data, path, index, geometric[:, index], options.scale) for index in range(len(names))
    )
    _use_geometric_means(data, geometric, geometric_noise)
    return data


def _convert(
    data: FitData, units: UnitReader, options: FitOptions, path: File, places: Sequence[str]
) -> None:
    """Convert targets to one unit or to p-values, and check the converted values."""
    if units.used:
        units.convert(data, options, path)
        notices = check_outliers(data.targets, data.names, str(path), places.__getitem__, options.outliers)
        data.notices += notices
        for notice in notices:
            logger.warning("%s", notice)
    if options.transform == "p":
        to_p_values(data, path)


def _use_geometric_means(data: FitData, means: np.ndarray, noise: np.ndarray | None) -> None:
    """Replace logarithmic targets and their standard errors, float64 [n, T] each, and scale the weights."""
    data.targets = np.where(data.logarithmic, means, data.targets)
    if data.noise is not None and noise is not None:
        data.noise = np.where(data.logarithmic, noise, data.noise)
    if data.weights is not None:
        data.weights = data.weights / data.weights[~data.test].mean()
    if data.bounds is not None:
        data.bounds = np.where(np.isfinite(data.targets), data.targets, data.bounds)


def _check_names(path: File, table: MoleculeTable, names: Sequence[str], split: str) -> None:
    """Refuse targets that are the column of SMILES, and a split that is no column."""
    if (column := table.smiles_column) in names:
        raise MolsliceError(
            f"{path}: the column {column!r} cannot be both the SMILES and a target; name the column of "
            "SMILES with --smiles-column"
        )
    known = [tables.trimmed(name) for name in table.names]
    if split not in SPLITS and tables.trimmed(split) not in known:
        raise MolsliceError(f"unknown split {split!r}; {near_names(split, [*SPLITS, *known])}")


def _choose_molecules(
    smiles: list[str], options: FitOptions, findings: list[str], workers: int
) -> tuple[list[str], int]:
    """Return the molecules to describe and the number of replaced mixtures; see `choose_fragments`."""
    if options.standardize == "no":
        chosen, replaced = choose_fragments(smiles, options.fragment)
    else:
        chosen, replaced, changed, kept = standardize_rows(
            smiles, options.standardize, options.fragment, workers
        )
        finding = f"standardize: {options.standardize}, {_rows(changed)} with another form of the molecule"
        if kept:
            finding += f"; {_rows(kept)} not completely, with too many tautomers or an invalid result"
        findings.append(finding)
    if options.fragment != "keep":
        after, before = (
            sum(isinstance(text, tables.Unreadable) for text in texts) for texts in (chosen, smiles)
        )
        done = "replaced" if options.fragment == "largest" else "refused"
        findings.append(f"mixtures: {options.fragment}, {done} in {replaced + after - before:,} rows")
    if options.wildcards == "keep" and (count := count_wildcards(chosen)):
        findings.append(f"wildcards: keep, {_rows(count)} with a wildcard, an R-group or a bond of any order")
    return choose_fragments(chosen, "keep", options.wildcards)[0], replaced


def _check_side_columns(table: MoleculeTable, targets: Sequence[str], options: FitOptions) -> None:
    """Check the columns of dates and groups.

    Raises:
        MolsliceError: A column is missing, is used for something else, or is given without need.
    """
    if options.split == "time" and options.by is None:
        raise MolsliceError("the split time needs the column of the dates: --by COLUMN (by)")
    if options.by is not None and options.split != "time":
        raise MolsliceError(f"--by (by) is for the split time, but the split is {options.split!r}")
    for use, name in options.side_columns.items():
        if use == "split":  # it may be a target, as in older versions
            continue
        place = table.find(name)
        if place in (table.find(target) for target in targets) or place == table.find(table.smiles_column):
            other = "the SMILES" if place == table.find(table.smiles_column) else "a target"
            raise MolsliceError(
                f"{name_of(table.paths)}: the column {name!r} cannot be both {other} and the {use}"
            )


def checked_targets(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the measured columns.

    Raises:
        MolsliceError: There is no name, a name occurs twice, or one is not text.
    """
    names = checked_columns("target", columns)
    if not names:
        raise MolsliceError("give at least one target column")
    return names


def checked_columns(role: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, which have the role `target` or `condition`.

    Raises:
        MolsliceError: A name occurs twice, or one is not text.
    """
    names = (columns,) if isinstance(columns, str) or not isinstance(columns, Iterable) else tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise MolsliceError(f"{role}s must be names of columns, got {names!r}")
    if twice := [name for name, count in Counter(name.strip() for name in names).items() if count > 1]:
        raise MolsliceError(f"the {role} {twice[0]!r} is given twice")
    return names


def columns_of_targets(
    option: str, columns: str | Sequence[str | None] | None, names: Sequence[str]
) -> tuple[str | None, ...] | None:
    """Return the column beside each target that an option names; None if it is not given.

    Raises:
        MolsliceError: It is not one column, or one for each target.
    """
    if columns is None:
        return None
    given = (columns,) * len(names) if isinstance(columns, str) else tuple(columns)
    if len(given) == 1:
        given *= len(names)
    if len(given) != len(names) or not all(column is None or isinstance(column, str) for column in given):
        raise MolsliceError(
            f"{option} must be one column, or one for each target ({len(names)}), got {columns!r}"
        )
    return given


def _drop_unreadable(data: FitData, path: File, places: Sequence[str], *, strict: bool) -> None:
    """Leave out the rows whose SMILES cannot be read; with `strict`, refuse the first one."""
    for place, smiles, reason in zip(places, data.smiles, data.molecules.errors, strict=True):
        if reason is not None and strict:
            raise MolsliceError(failure_text(place, smiles, reason))
        if reason is not None:
            data.refusals.add(reason, smiles, place)
    rows = np.flatnonzero([reason is None for reason in data.molecules.errors])
    if not len(rows):
        first = failure_text(places[0], data.smiles[0], data.molecules.errors[0] or "")
        which = f"none of the {len(data.smiles)} SMILES in column {data.smiles_column!r}"
        raise MolsliceError(f"{path}: {which} can be read; {first}")
    if failed := len(data.smiles) - len(rows):
        listed = "; ".join(f"{kind['count']:,} {kind['reason']}" for kind in data.refusals.report())
        data.lose(f"{_rows(failed)} of {len(data.smiles):,} left out: {listed}")
    known = np.any(data.known, axis=1)
    unlabeled = int((~known[rows]).sum())
    if unlabeled:
        data.lose(f"{_rows(unlabeled)} left out: no value of any target")
    data.keep(rows[known[rows]])


def _rows(count: int, what: str = "row") -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _check_targets(data: FitData, path: File) -> None:
    """Check that each target can be learned.

    Raises:
        MolsliceError: A target has too few values, or they do not differ.
    """
    held_out = int(data.test.sum())
    reasons = [*data.losses, *([f"{_rows(held_out)} held out"] if held_out else [])]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    for index, name in enumerate(data.names):
        values = data.targets[~data.test, index]
        known = values[np.isfinite(values)]
        where = f"{path}, column {name!r}"
        limits = int(data.limited[~data.test, index].sum())
        if len(known) < MIN_ROWS:
            beside = f" and {limits:,} with a limit" if limits else ""
            raise MolsliceError(
                f"{where}: {_rows(len(known), 'training row')} with a value{beside}; a fit needs at least "
                f"{MIN_ROWS}{' exact values' if limits else ''}{because}"
            )
        if data.classes is not None:
            _check_class_sizes(known, data.classes.names, where, because)
        elif data.kind == "classification":
            if odd := [value for value in known if value not in (0.0, 1.0)]:
                raise MolsliceError(f"{where}: {odd[0]:g} is not a class; classes are 0 and 1")
            ones = int(known.sum())
            if min(ones, len(known) - ones) < MIN_OF_CLASS:
                zero, one = data.class_names(index)
                raise MolsliceError(
                    f"{where}: {len(known) - ones} training rows of class {zero} and {ones} of class {one}; "
                    f"a fit needs at least {MIN_OF_CLASS} of each{because}"
                )
        elif np.ptp(known) <= ROUNDING * np.abs(known).max():
            raise MolsliceError(f"{where}: the target is {known[0]:g} in every training row")
        else:
            _check_precision(known, name, path)
        held = data.targets[data.test, index]
        held = held[np.isfinite(held)]
        if data.kind == "classification" and len(held) and np.ptp(held) == 0:
            word = data.class_names(index)[int(held[0])]
            data.findings.append(
                f"{name}: all {len(held)} held-out rows are of class {word}; no ROC-AUC is defined"
            )
        if data.classes is not None and len(held) and len(set(held)) < len(data.classes.names):
            absent = data.classes.names[min({*range(len(data.classes.names))} - {*held.astype(int)})]
            data.findings.append(
                f"{name}: no held-out row has the class {absent!r}; metrics that are means over the classes "
                "are not defined for them"
            )
        missing = len(values) - len(known) - limits
        if missing:
            data.findings.append(f"{name}: {missing} of {len(values)} training rows have no value")


def _check_class_sizes(known: np.ndarray, names: Sequence[str], where: str, because: str) -> None:
    """Check that each of several classes has enough training rows."""
    counts = np.bincount(known.astype(np.int64), minlength=len(names))
    rarest = int(counts.argmin())
    if counts[rarest] < MIN_OF_CLASS:
        raise MolsliceError(
            f"{where}: {_rows(int(counts[rarest]), 'training row')} of the class {names[rarest]!r}; a fit "
            f"needs at least {MIN_OF_CLASS} of each{because}. --missing-value {names[rarest]!r} leaves them "
            "out"
        )


def _check_precision(values: np.ndarray, name: str, path: File) -> None:
    """Check that predictions, which are float32, can tell the values of a target apart."""
    with np.errstate(over="ignore"):
        rounding = np.abs(values.astype(np.float32) - values).max()
    sizes = (np.array([number]) for number in (rounding, values.std(), np.abs(values).max()))
    check_rounding([name], *sizes, source=str(path))


def _is_logarithmic(
    data: FitData, path: File, index: int, geometric: np.ndarray, scale: Scale | None
) -> bool:
    """Find whether the logarithm of a target is learned.

    Args:
        data: The rows.
        path: The table, for messages.
        index: Number of the target.
        geometric: Its values, with the geometric mean of several rows, float64 [n].
        scale: The scale that the user asks for; None finds it.

    Raises:
        MolsliceError: `scale` is `log`, and a target is a class or a value is not positive.
    """
    if scale == "linear" or (scale is None and data.kind != "regression"):
        return False
    name, values = data.names[index], np.where(data.test, np.nan, geometric)
    if scale == "log":
        if data.bounds is not None and data.kind == "regression":  # an upper limit must be positive too
            values = np.where(data.limited[:, index] & ~data.test, data.bounds[1, :, index], values)
        where = f"{path}, column {name!r}"
        if data.kind != "regression":
            raise MolsliceError(f"{where}: the scale log is for numbers, but the targets are classes")
        if (bad := np.flatnonzero(values <= 0)).size:
            row = int(bad[0])
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
