"""The table of a fit: read it, and turn it into the rows that are fitted."""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from molslice.data.molecules.conditions import conditioned_rows
from molslice.data.molecules.describe import describe_molecules
from molslice.data.molecules.fragments import choose_fragments, count_wildcards
from molslice.data.molecules.identifiers import find_identifiers
from molslice.data.molecules.refusals import failure_text
from molslice.data.molecules.side_columns import SideColumns, columns_beside, find_target, split_unit
from molslice.data.molecules.tables import check_decimal_mark, find_classes, open_molecules
from molslice.data.target_values import check_outliers
from molslice.files import tables
from molslice.files.tables import trimmed
from molslice.files.urls import File
from molslice.fitting.classes import find_word_columns, read_classes
from molslice.fitting.columns import Cells, check_roles, checked_targets
from molslice.fitting.concentrations import convert_units, to_p_values
from molslice.fitting.conditions import (
    attach_conditions,
    check_conditions,
    describe_conditions,
    read_conditions,
)
from molslice.fitting.data import FitData, FitOptions, Origin
from molslice.fitting.duplicates import describe_differing, find_numeric_columns, merge_duplicates
from molslice.fitting.groups import join_groups
from molslice.fitting.limits import describe_held_out, read_targets
from molslice.fitting.precision import attach_precision, fill_errors, read_precision
from molslice.fitting.split import (
    describe_forms,
    describe_pairs,
    draw_test_rows,
    hold_out_latest,
    read_division,
)
from molslice.fitting.target_checks import (
    MIN_ROWS,
    check_targets,
    is_logarithmic,
    options_of_kinds,
)
from molslice.number_text import counted
from molslice.tasks.target_types import common_kind
from molslice.types import MolsliceError

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

    Returns:
        The rows, whose conditions are still to be described; see `cover_conditions`.

    Raises:
        MolsliceError: The table cannot be used; the message names file, column and row.
    """
    with open_molecules([path], smiles_column=options.smiles_column, delimiter=options.delimiter) as table:
        names = checked_targets([find_target(table, name) for name in checked_targets(target_columns)])
        column, findings = table.smiles_column, list(table.findings)
        check_roles(path, table, names, options)
        check_decimal_mark(table, [*names, *options.conditions], options.written.decimal)
        worded, written = find_word_columns(table, names, options), dict.fromkeys(names, options.written)
        for name, kind in zip(names, options.kinds_of(names), strict=True):
            if kind != "regression" and name not in worded:
                written[name], meanings = find_classes(table, [name], options.written)
                findings += meanings
        partner, divided = options.partner_column, options.side_columns
        others = (*options.conditions, partner, *divided.values(), options.weight, *(options.errors or ()))
        used = [name for name in others if name is not None]
        side = SideColumns(table, names, used)
        beside = [name for name in (*(options.relations or ()), *(options.unit_columns or ())) if name]
        beside += [columns[0] for columns in (side.relations, side.units) if len(columns) == 1]
        read = [column, *names, *used, *beside]
        identifiers = find_identifiers(table.names, [*read, *side.names])
        others = []
        if options.duplicates == "average" and not options.conditions and partner is None:
            others = find_numeric_columns(table, [*read, *identifiers, *side.names])
        cells = Cells.read(table, [*read, *identifiers, *others], side)
    classes = read_classes({name: cells[name] for name in worded}, names, options, path, cells.where)
    findings += classes.meanings
    values = read_targets(cells, names, side, classes, written, options)
    options = options_of_kinds(values.types, names, options, path)
    kind = common_kind(values.types)
    has_numbers = not all(target_type.has_classes for target_type in values.types)
    suited = [not (target_type.has_classes and has_numbers) for target_type in values.types]
    unit_columns = columns_beside(suited, options.unit_columns, side.units)
    precision = read_precision(cells, options.written, options)
    conditions = read_conditions(cells, options.written, options, path)
    notices = [
        *side.notices([name for name in (*values.relations, *unit_columns) if name is not None]),
        # values in several units are checked when they are converted
        *(
            []
            if any(unit_columns)
            else _check_outliers(values.exact, values.bounds, names, cells, options, path)
        ),
        *values.doubts,
        *conditions.notices,
    ]
    listed = ", ".join(names)
    if kind == "mixed":
        pairs = zip(names, values.types, strict=True)
        listed = ", ".join(f"{name} ({target_type.kind})" for name, target_type in pairs)
    given = all(options.kinds_of(names))
    findings.append(f"targets: {listed}; {kind}" + " (detected)" * (not given))
    findings += values.findings
    for notice in notices:
        logger.warning("%s", notice)
    smiles = cells[column]
    rows = smiles if partner is None else conditioned_rows(smiles, cells.columns, (), partner)
    chosen, replaced = _choose_molecules(rows, options, findings, workers)
    described = describe_molecules(chosen, workers=workers, progress=progress)
    data = FitData(smiles, described, values.exact, np.zeros(0, bool), names, values.types, column)
    data.findings, data.notices, data.replaced, data.columns = findings, notices, replaced, names
    data.bounds, data.losses = values.bounds, [*values.losses]
    data.identifiers = {name: [trimmed(cell) for cell in cells[name]] for name in identifiers}
    data.origins = [(Origin(*origin, text),) for origin, text in zip(cells.origins, smiles, strict=True)]
    attach_precision(data, precision, options)
    data.units = options.units or ("",) * len(names)
    _name_targets(data, options)
    if any(unit_columns):
        convert_units(data, unit_columns, cells, options, path)
        converted = _check_outliers(data.targets, data.bounds, names, cells, options, path)
        data.notices += converted
        for notice in converted:
            logger.warning("%s", notice)
    fill_errors(data, options)
    if options.transform == "p":
        to_p_values(data, options, path)
    attach_conditions(data, conditions, cells, options)
    dates = read_division(data, cells, options, path)
    _drop_unreadable(data, path, cells.places, strict=options.strict)
    join_groups(data, options, path)
    if dates is not None:
        data.test = hold_out_latest(data, path, options.by or "", dates.text)
    called = [*zip(*data.identifiers.values(), strict=True)] or [()] * len(data.origins)
    data.origins = [
        (origin._replace(values=tuple(of_row), names=names_of_row),)
        for (origin,), of_row, names_of_row in zip(data.origins, data.targets.tolist(), called, strict=True)
    ]
    is_divided = dates is not None or "split" in divided
    geometric, geometric_noise = merge_duplicates(
        data, path, options.duplicates, options.scale, by_column=is_divided
    )
    data.findings += describe_differing(smiles, {name: cells[name] for name in others})
    if not is_divided:
        data.test = np.zeros(len(data.smiles), bool)
        if options.split != "all" and len(data.smiles) >= MIN_ROWS:  # `check_targets` refuses fewer rows
            data.test = draw_test_rows(data, path, options.seed)
    check_conditions(data, path)
    measured = describe_conditions(data, refits=options.refit)
    describe_forms(measured)
    describe_pairs(measured)
    data.findings += describe_held_out(measured)
    check_targets(measured, path)
    data.logarithmic = tuple(
        is_logarithmic(data, path, index, geometric[:, index], options.scale) for index in range(len(names))
    )
    _use_geometric_means(data, geometric, geometric_noise)
    return data


def _name_targets(data: FitData, options: FitOptions) -> None:
    """Give numbers the names of their columns without the units in brackets, and these units, and say so."""
    names, units = [*data.names], [*data.units]
    for index, name in enumerate(options.names):
        column, written = data.names[index], split_unit(data.names[index])[1]
        if name == column or data.types[index].has_classes:
            continue
        names[index], units[index] = name, units[index] or written
        is_given = units[index] != written
        source = f"as given, not {written}" if is_given else f"by the name of column {column!r}"
        data.findings.append(f"{name}: in {units[index]}, {source}")
    data.names, data.units = tuple(names), tuple(units)


def _check_outliers(
    targets: np.ndarray,
    bounds: np.ndarray | None,
    names: Sequence[str],
    cells: Cells,
    options: FitOptions,
    path: File,
) -> list[str]:
    """Check values and limits; `bounds` are as in `FitData`."""
    limits = None if bounds is None else np.where(np.isfinite(bounds[0]), *bounds)
    return check_outliers(targets, names, str(path), cells.where, options.outliers, limits=limits)


def _use_geometric_means(data: FitData, means: np.ndarray, noise: np.ndarray | None) -> None:
    """Replace logarithmic targets and their standard errors, float64 [n, T] each, and scale the weights."""
    data.targets = np.where(data.logarithmic, means, data.targets)
    if data.noise is not None and noise is not None:
        data.noise = np.where(data.logarithmic, noise, data.noise)
    if data.weights is not None:
        data.weights = data.weights / data.weights[~data.test].mean(0)
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
        finding = f"standardize: {options.standardize}, {counted(changed)} with another form of the molecule"
        if kept:
            finding += f"; {counted(kept)} only in part, because of too many tautomers or an invalid result"
        findings.append(finding)
    if options.fragment != "keep":
        after, before = (
            sum(isinstance(text, tables.Unreadable) for text in texts) for texts in (chosen, smiles)
        )
        done = "replaced" if options.fragment == "largest" else "refused"
        findings.append(f"mixtures: {options.fragment}, {done} in {counted(replaced + after - before)}")
    if options.wildcards == "keep" and (count := count_wildcards(chosen)):
        findings.append(
            f"wildcards: keep, {counted(count)} with a wildcard, an R-group or a bond of any order"
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
        subject = f"none of the {len(data.smiles)} SMILES in column {data.smiles_column!r}"
        raise MolsliceError(f"{path}: {subject} can be read; {first}")
    if failed := len(data.smiles) - len(rows):
        listed = "; ".join(f"{kind['count']:,} {kind['reason']}" for kind in data.refusals.report())
        data.lose(f"{counted(failed)} of {len(data.smiles):,} left out: {listed}")
    known = np.any(data.known, axis=1)
    unlabeled = int((~known[rows]).sum())
    if unlabeled:
        data.lose(f"{counted(unlabeled)} left out: no value of any target")
    data.keep(rows[known[rows]])
