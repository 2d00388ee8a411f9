"""Division of the rows of a fit: the held-out rows, and the forms of a compound on both sides."""

from collections import Counter
from collections.abc import Callable
from itertools import chain

import numpy as np

from molslice.data import splits
from molslice.data.dates import Dates, read_dates
from molslice.files.urls import File
from molslice.fitting.columns import Cells
from molslice.fitting.data import SPLITS, FitData, FitOptions
from molslice.fitting.groups import number_words
from molslice.fitting.target_checks import MIN_OF_CLASS
from molslice.number_text import counted
from molslice.types import MolsliceError

TEST_FRACTION = 0.1
MIN_COMPOUNDS = 5  # if several rows of a molecule are kept
HELD_OUT_CLASS = 10  # rows of a class of which one is held out if a draw can do it
DRAWS = 20
MOST_HELD_OUT = 0.5  # of the compounds, by dates


def read_division(data: FitData, cells: Cells, options: FitOptions, path: File) -> Dates | None:
    """Read the columns that divide all rows of a table: `test`, `dates` and the numbers of `groups`.

    Returns:
        The dates, if there are some.

    Raises:
        MolsliceError: A cell has no meaning, or there are no training rows.
    """
    missing = options.written.missing_texts
    if options.split not in SPLITS:
        data.test = _find_test_rows(data, cells, options.split, path)
    if options.groups is not None:
        data.groups = number_words(cells[options.groups], missing)
    if options.by is None:
        return None
    dates = read_dates(cells[options.by], options.by, cells.where, missing)
    data.dates = dates.values
    return dates


def _find_test_rows(data: FitData, cells: Cells, column: str, path: File) -> np.ndarray:
    """Find which rows a column holds out. Cells of rows whose SMILES cannot be read are not checked.

    Raises:
        MolsliceError: A cell is not train, valid or test, or there are no training rows.
    """
    words = cells[column]
    readable = [row for row, reason in enumerate(data.molecules.errors) if reason is None]
    test = np.zeros(len(words), bool)
    if not readable:
        return test  # a table without readable rows is refused later
    parts = splits.column_split(
        [words[row] for row in readable],
        column,
        str(path),
        lambda i: cells.where(readable[i]),
        trained=("train", "valid"),
    )
    test[[readable[i] for i in parts.get("test", ())]] = True
    if meanings := splits.numbered_words([words[row] for row in readable]):
        data.findings.append(f"column {column!r}: {meanings}")
    return test


def hold_out_latest(data: FitData, path: File, column: str, text_of: Callable[[float], str]) -> np.ndarray:
    """Hold out the compounds, or groups, whose first measurement is latest: those from one date on.

    The date is the one that holds out the number of compounds closest to a tenth, at most half of them. A row
    without a date is dated by the other rows of its compound or group; without any date, these are earliest.
    The date of each row in `data` becomes the first one of its compound or group.

    Returns:
        Whether a row is held out, bool [n].

    Raises:
        MolsliceError: The dates do not divide the compounds.
    """
    where = f"{path}, column {column!r}"
    measured, groups = data.dates, data.number_groups()
    first = np.full(int(groups.max()) + 1, np.inf)
    np.fmin.at(first, groups, measured)
    data.dates = np.where(np.isinf(first), -np.inf, first)[groups]
    compounds = data.dates[np.unique(data.molecules.parents, return_index=True)[1]]
    dates = np.unique(compounds[np.isfinite(compounds)])
    dates = dates[dates > compounds.min()]
    if not len(dates):
        known = "no row has a date" if np.isnan(measured).all() else "all compounds have the same first date"
        raise MolsliceError(f"{where}: {known}, so none can be held out as the latest")
    held_out = len(compounds) - np.searchsorted(np.sort(compounds), dates)
    place = int(np.abs(held_out - TEST_FRACTION * len(compounds)).argmin())
    if held_out[place] > MOST_HELD_OUT * len(compounds):
        raise MolsliceError(
            f"{where}: {held_out[place]:,} of {len(compounds):,} compounds have the latest first date, "
            f"{text_of(dates[place])}; a split by time needs more different dates"
        )
    test = data.dates >= dates[place]
    data.findings.append(
        f"time: {held_out[place]:,} of {len(compounds):,} compounds, first measured on or after "
        f"{text_of(dates[place])} (column {column!r}), are held out"
    )
    if moved := int((~test & (measured >= dates[place])).sum()):
        data.findings.append(
            f"time: {counted(moved)} of this date or later in training, because the {data.grouped_by} was "
            "first measured before"
        )
    if undated := int(np.isnan(measured).sum()):
        data.findings.append(
            f"time: {counted(undated)} without a date, dated by other rows of the {data.grouped_by} or as "
            "the earliest"
        )
    return test


def draw_test_rows(data: FitData, path: File, seed: int) -> np.ndarray:
    """Draw the held-out rows: all rows of a compound, scaffold, cluster or group are in one split.

    Rows are drawn again if they lack a class that has ten rows or more, or leave fewer than five training
    rows of a class that has as many. Of 20 such draws, the first one that leaves enough is taken, or the
    first one.

    Returns:
        Whether a row is held out, bool [n].

    Raises:
        MolsliceError: There are too few different compounds, scaffolds, clusters or groups.
    """
    compound = _number_compounds(data)
    count = int(compound.max()) + 1
    if count < MIN_COMPOUNDS:
        raise MolsliceError(
            f"{path}: {count} different compounds in {len(data.smiles)} rows; a fit needs at least "
            f"{MIN_COMPOUNDS}"
        )
    first = _draw(data, path, compound, seed)
    others = np.random.SeedSequence(seed).generate_state(DRAWS - 1).tolist()
    draws = chain([first], (_draw(data, path, compound, other) for other in others))
    counts, fallback = _count_classes(data, data.targets), None
    for test in draws:
        held_out = _count_classes(data, data.targets[test])
        if ((counts >= MIN_OF_CLASS) & (counts - held_out < MIN_OF_CLASS)).any():
            continue  # too few training rows of a class
        if not ((counts >= HELD_OUT_CLASS) & (held_out == 0)).any():
            return test
        fallback = test if fallback is None else fallback
    return first if fallback is None else fallback


def _count_classes(data: FitData, targets: np.ndarray) -> np.ndarray:
    """Count the rows of each class of each target, int64 [classes]; `targets` are float64 [n, T]."""
    counts = [
        (values == label).sum()
        for of_target, values in zip(data.types, targets.T, strict=True)
        for label in range(len(of_target.class_names))
    ]
    return np.array(counts, np.int64)


def _draw(data: FitData, path: File, compound: np.ndarray, seed: int) -> np.ndarray:
    count = int(compound.max()) + 1
    grouped = data.grouped_by != "compound"
    if grouped:  # groups of one size are held out at random, not in the order of the SMILES
        compound = np.random.default_rng(seed).permutation(count)[compound]
    first = np.full(count, len(compound))
    np.minimum.at(first, compound, np.arange(len(compound)))
    groups = _name_groups(data, first) if grouped else None
    test = None if groups is None else splits.draw_groups(groups, TEST_FRACTION * len(groups), seed)
    if test is None:
        drawn = np.arange(count) if groups is not None else _find_small(compound)
        division = splits.Division({"test": TEST_FRACTION}, seed)
        test = division.divide({"train": drawn}, str(path), groups=groups, noun=data.grouped_by)["test"]
    return np.isin(compound, test)


def _name_groups(data: FitData, first: np.ndarray) -> list[str]:
    """Name the group or scaffold of each compound, of which `first` has a row, by its molecules.

    The names do not depend on the order of the rows.
    """
    if data.grouped_by == "scaffold":
        return [data.scaffold_or_parent(row) for row in first]
    names: dict[int, str] = {}
    for row in first:
        group, parent = int(data.groups[row]), data.molecules.parents[row]
        names[group] = min(names.get(group) or parent, parent)
    return [names[int(group)] for group in data.groups[first]]


def _find_small(compound: np.ndarray) -> np.ndarray:
    """Return the compounds with at most a tenth of the rows; all compounds if these are too few."""
    rows = np.bincount(compound)
    small = np.flatnonzero(rows <= max(1.0, TEST_FRACTION * len(compound)))
    return small if len(small) >= MIN_COMPOUNDS else np.arange(len(rows))


def _number_compounds(data: FitData) -> np.ndarray:
    """Number the compound of each row in the order of their first canonical SMILES, int [n]."""
    canonical, parents = data.molecules.canonical, data.molecules.parents
    numbers: dict[str, int] = {}
    for row in sorted(range(len(canonical)), key=canonical.__getitem__):
        numbers.setdefault(parents[row], len(numbers))
    return np.array([numbers[parent] for parent in parents])


def describe_forms(data: FitData) -> None:
    """Add a finding about molecules that differ from another one only in stereochemistry or salt form."""
    parents = dict(zip(data.molecules.canonical, data.molecules.parents, strict=True))
    sizes = Counter(parents.values())
    several = sum(size for size in sizes.values() if size > 1)
    if not several:
        return
    finding = (
        f"{several:,} of {len(parents):,} molecules differ from another one only in stereochemistry "
        "or salt form; all forms of a compound are in one fold"
    )
    trained, held_out = (
        {data.molecules.canonical[row] for row in np.flatnonzero(rows)} for rows in (~data.test, data.test)
    )
    known = {parents[name] for name in trained}
    divided = [name for name in held_out - trained if parents[name] in known]
    if divided:
        finding += f"; {len(divided):,} held-out molecules are forms of training molecules"
    data.findings.append(finding)


def describe_pairs(data: FitData) -> None:
    """Add a finding about held-out pairs without order of which training rows have both molecules."""
    second = data.molecules.partners
    if not data.symmetric or second is None:
        return
    pairs = [*zip(data.molecules.parents, second.parents, strict=True)]
    trained = {name for row in np.flatnonzero(~data.test) for name in pairs[row]}
    held_out = np.flatnonzero(data.test)
    known = sum(trained.issuperset(pairs[row]) for row in held_out)
    if known:
        data.findings.append(
            f"both molecules of {known:,} of {len(held_out):,} held-out pairs are in training rows, with "
            "other partners; for new molecules the error is larger"
        )
