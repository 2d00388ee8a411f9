"""The table of a fit: read it, and turn it into the rows that are fitted."""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from molslice.data.molecules.describe import describe_molecules
from molslice.data.molecules.fragments import choose_fragments, count_wildcards
from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.refusals import failure_text
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import check_decimal_mark, find_classes, open_molecules
from molslice.data.target_values import check_outliers
from molslice.files import tables
from molslice.files.urls import File
from molslice.fitting.classes import find_word_columns, read_classes
from molslice.fitting.columns import check_names, check_side_columns, checked_targets
from molslice.fitting.concentrations import UnitReader, to_p_values
from molslice.fitting.conditions import ConditionColumns
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.duplicates import merge_duplicates
from molslice.fitting.groups import join_groups
from molslice.fitting.limits import LimitReader, describe_held_out
from molslice.fitting.precision import PrecisionReader
from molslice.fitting.split import describe_forms, draw_test_rows, hold_out_latest, read_division
from molslice.fitting.target_checks import MIN_ROWS, check_kind, check_targets, count_rows, is_logarithmic
from molslice.types import MolsliceError

__all__ = ["read_fit_data"]

CHUNK_ROWS = 10_000

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
        check_names(path, table, names, split)
        conditions.check_names(names, column, split)
        check_side_columns(table, names, options)
        check_decimal_mark(table, [*names, *options.conditions], options.written.decimal)
        written = options.written
        texts: dict[str, list[str]] = {name: [] for name in find_word_columns(table, names, options)}
        if kind != "regression":
            written, meanings = find_classes(table, [name for name in names if name not in texts], written)
            findings += meanings
        precision = PrecisionReader(table, names, options)
        used = [*conditions.names, *options.side_columns.values(), *precision.columns]
        side = SideColumns(table, names, used)
        limits = LimitReader(table, names, side, options, texts)
        units = UnitReader(table, names, side, options)
        extra = dict.fromkeys([*used, *side.names, *limits.used, *units.used])
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
    check_kind(target_kind, names[0], options, path)
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
    precision.attach(data)
    data.units = options.units or ("",) * len(names)
    _convert(data, units, precision, options, path, places)
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
        if split != "all" and len(data.smiles) >= MIN_ROWS:  # `check_targets` refuses fewer rows
            data.test = draw_test_rows(data, path, split, options.seed)
    kept = conditions.describe(data)
    geometric = geometric[kept]
    geometric_noise = None if geometric_noise is None else geometric_noise[kept]
    describe_forms(data)
    data.findings += describe_held_out(data)
    check_targets(data, path)
    data.logarithmic = tuple(
        is_logarithmic(data, path, index, geometric[:, index], options.scale) for index in range(len(names))
    )
    _use_geometric_means(data, geometric, geometric_noise)
    return data


def _convert(
    data: FitData,
    units: UnitReader,
    precision: PrecisionReader,
    options: FitOptions,
    path: File,
    places: Sequence[str],
) -> None:
    """Convert targets to one unit or to p-values, and check the converted values."""
    if units.used:
        units.convert(data, options, path)
        notices = check_outliers(data.targets, data.names, str(path), places.__getitem__, options.outliers)
        data.notices += notices
        for notice in notices:
            logger.warning("%s", notice)
    precision.fill_errors(data)
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


def _choose_molecules(
    smiles: list[str], options: FitOptions, findings: list[str], workers: int
) -> tuple[list[str], int]:
    """Return the molecules to describe and the number of replaced mixtures; see `choose_fragments`."""
    chosen, replaced, changed, kept = choose_fragments(
        smiles, options.fragment, standardize=options.standardize, workers=workers
    )
    if options.standardize != "no":
        finding = (
            f"standardize: {options.standardize}, {count_rows(changed)} with another form of the molecule"
        )
        if kept:
            finding += f"; {count_rows(kept)} not completely, with too many tautomers or an invalid result"
        findings.append(finding)
    if options.fragment != "keep":
        after, before = (
            sum(isinstance(text, tables.Unreadable) for text in texts) for texts in (chosen, smiles)
        )
        done = "replaced" if options.fragment == "largest" else "refused"
        findings.append(f"mixtures: {options.fragment}, {done} in {replaced + after - before:,} rows")
    if options.wildcards == "keep" and (count := count_wildcards(chosen)):
        findings.append(
            f"wildcards: keep, {count_rows(count)} with a wildcard, an R-group or a bond of any order"
        )
    return choose_fragments(chosen, "keep", options.wildcards).smiles, replaced


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
        data.lose(f"{count_rows(failed)} of {len(data.smiles):,} left out: {listed}")
    known = np.any(data.known, axis=1)
    unlabeled = int((~known[rows]).sum())
    if unlabeled:
        data.lose(f"{count_rows(unlabeled)} left out: no value of any target")
    data.keep(rows[known[rows]])
