"""Read the table of a fit: find its columns, describe its molecules, merge duplicates, divide the rows."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from molslice.data import splits
from molslice.data.molecules.csv import check_rounding
from molslice.data.molecules.describe import DescribedMolecules, describe_molecules
from molslice.data.molecules.fragments import choose_fragments
from molslice.data.molecules.refusals import Refusals, failure_text
from molslice.data.molecules.tables import open_molecules
from molslice.files import tables
from molslice.files.urls import File
from molslice.registry import near_names
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

__all__ = ["Duplicates", "FitData", "Scale", "checked_targets", "read_fit_data"]

logger = logging.getLogger(__name__)

Duplicates = Literal["average", "keep", "refuse"]
Scale = Literal["linear", "log"]
SPLITS = ("random", "scaffold", "all")  # any other is a column
CHUNK_ROWS = 10_000
TEST_FRACTION = 0.1
MIN_ROWS = 20  # of a target; a fold of five then leaves 16 rows
MIN_OF_CLASS = 5
MIN_COMPOUNDS = 5  # if several rows of a molecule are kept
ROUNDING = 1e-14  # relative difference of means of equal values
SAME = 1e-9  # relative difference of values that count as equal
TAILS, WIDE = (0.01, 0.99), 10.0  # ratio of these quantiles beyond which a logarithm may be learned


@dataclass(slots=True)
class FitData:
    """Rows of a fit: one for each molecule, or for each measurement if duplicates are kept.

    Attributes:
        smiles: SMILES of each row as in the table.
        molecules: Descriptors, counts, canonical SMILES, scaffolds and parents of the n rows.
        targets: float64 [n, T], NaN where missing.
        test: Whether a row is held out, bool [n].
        names: Names of the targets.
        kind: `regression` or `classification`.
        smiles_column: The column of SMILES.
        findings: What was found in the table, one sentence each.
        losses: Those of the findings that say why there are fewer rows or values than in the table.
        refusals: The rows whose SMILES cannot be read, by reason.
        replaced: Number of mixtures that were replaced by their largest molecule.
        logarithmic: Whether the common logarithm of a target is learned, for each target.
    """

    smiles: list[str]
    molecules: DescribedMolecules
    targets: np.ndarray
    test: np.ndarray
    names: tuple[str, ...]
    kind: Kind
    smiles_column: str
    findings: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    replaced: int = 0
    logarithmic: tuple[bool, ...] = ()

    def scaffold_or_parent(self, row: int) -> str:
        """Return the scaffold of a row, or its parent without rings: such compounds share no scaffold."""
        return self.molecules.scaffolds[row] or self.molecules.parents[row]

    def lose(self, finding: str) -> None:
        """Add a finding that says why there are fewer rows or values than in the table."""
        self.findings.append(finding)
        self.losses.append(finding)

    @property
    def learned(self) -> np.ndarray:
        """What the model learns: `targets` or their logarithms; NaN where a held-out row has no logarithm."""
        learned = self.targets.copy()
        for index in np.flatnonzero(self.logarithmic):
            values = self.targets[:, index]
            learned[:, index] = np.log10(values, where=values > 0, out=np.full(len(values), np.nan))
        return learned


def read_fit_data(
    path: File,
    target_columns: Sequence[str],
    *,
    smiles_column: str | None,
    delimiter: str | None,
    kind: Kind | None,
    scale: Scale | None = None,
    split: str,
    duplicates: Duplicates,
    fragment: str = "keep",
    strict: bool = False,
    seed: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, rows: None,
) -> FitData:
    """Read, check and divide the rows of a table.

    Args:
        path: The table or its URL, in any format of `open_molecules`.
        target_columns: The measured columns.
        smiles_column: The column of SMILES; None finds it.
        delimiter: The character between cells; None finds it.
        kind: Kind of the targets; None finds it.
        scale: Whether the values of the targets are learned (`linear`), or their logarithms (`log`); None
            finds it for each target, from the training rows.
        split: `random`, `scaffold`, `all` (no row is held out), or the name of a column that holds train,
            valid or test.
        duplicates: What happens to several rows of one molecule.
        fragment: What happens to a mixture; see `molslice.chem.fragments.choose_fragment`.
        strict: Whether to refuse a table with a SMILES that cannot be read.
        seed: Seed of a random split.
        workers: Number of worker processes that compute descriptors.
        progress: Called with the number of described rows and of all rows.

    Raises:
        MolsliceError: The table cannot be used; the message names file, column and row.
    """
    names = checked_targets(target_columns)
    split_columns = [split] if split not in SPLITS else []
    smiles: list[str] = []
    words: list[str] = []
    numbers: list[np.ndarray] = []
    places: list[str] = []
    with open_molecules([path], smiles_column=smiles_column, delimiter=delimiter) as table:
        column, findings = table.smiles_column, list(table.findings)
        if column in names:
            raise MolsliceError(f"{path}: the column {column!r} cannot be both the SMILES and a target")
        if split not in (*SPLITS, *table.names):
            raise MolsliceError(f"unknown split {split!r}; {near_names(split, [*SPLITS, *table.names])}")
        for chunk in table.chunks(CHUNK_ROWS, [column, *names, *split_columns]):
            smiles += chunk[column]
            words += [word for name in split_columns for word in chunk[name]]
            read = tables.labels if kind == "classification" else tables.numbers
            numbers.append(
                np.stack([read(_as_numbers(chunk[name]), name, chunk.where) for name in names], axis=1)
            )
            places += [chunk.where(i) for i in range(len(chunk))]
    targets = np.concatenate(numbers).astype(np.float64)
    found = kind or _find_kind(targets)
    findings.append(f"targets: {', '.join(names)}; {found}" + ("" if kind else " (detected)"))
    if found == "regression" and not kind:
        findings += [
            f"{name}: has only 0 and 1, but is fitted as numbers, like the others; fit it alone for classes"
            for name, values in zip(names, targets.T, strict=True)
            if _find_kind(values) == "classification"
        ]
        findings += [
            f"{name}: has only {low:.15g} and {high:.15g}, but is fitted as numbers; write classes as 0 and 1"
            for name, values in zip(names, targets.T, strict=True)
            if _find_kind(values) == "regression" and len(set(values[np.isfinite(values)])) == 2
            for low, high in [(np.nanmin(values), np.nanmax(values))]
        ]
    chosen, replaced = choose_fragments(smiles, fragment)
    if fragment != "keep":
        findings.append(f"mixtures: {fragment}, replaced in {replaced:,} rows")
    described = describe_molecules(chosen, workers=workers, progress=progress)
    data = FitData(smiles, described, targets, np.zeros(0, bool), names, found, column)
    data.findings, data.replaced = findings, replaced
    if words:
        data.test = _find_test_rows(words, split, data, path, places)
    _drop_unreadable(data, path, places, strict=strict)
    geometric = _merge_duplicates(data, path, duplicates, by_column=bool(words))
    if not words:
        data.test = _hold_out(data, path, split, seed)
    _describe_forms(data, by_scaffold=split == "scaffold")
    _check_targets(data, path)
    data.logarithmic = tuple(
        _is_logarithmic(data, path, index, geometric[:, index], scale) for index in range(len(names))
    )
    data.targets = np.where(data.logarithmic, geometric, data.targets)
    return data


def checked_targets(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the measured columns.

    Raises:
        MolsliceError: There is no name, a name occurs twice, or one is not text.
    """
    names = (columns,) if isinstance(columns, str) or not isinstance(columns, Iterable) else tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise MolsliceError(f"targets must be names of columns, got {names!r}")
    if not names:
        raise MolsliceError("give at least one target column")
    if twice := [name for name, count in Counter(name.strip() for name in names).items() if count > 1]:
        raise MolsliceError(f"the target {twice[0]!r} is given twice")
    return names


def _as_numbers(cells: list[str]) -> list[str]:
    """Write true and false as 1 and 0; everything else is unchanged."""
    return [tables.TRUTH.get(cell.strip().lower(), cell) if cell else cell for cell in cells]


def _find_kind(targets: np.ndarray) -> Kind:
    known = targets[np.isfinite(targets)]
    return "classification" if len(known) and np.isin(known, (0.0, 1.0)).all() else "regression"


def _find_test_rows(
    words: Sequence[str], column: str, data: FitData, path: File, places: Sequence[str]
) -> np.ndarray:
    """Return which rows a column holds out, bool [n]; cells of rows that cannot be read are not checked."""
    readable = [row for row, reason in enumerate(data.molecules.errors) if reason is None]
    test = np.zeros(len(words), bool)
    if not readable:
        return test  # `_drop_unreadable` refuses the table
    parts = splits.column_split(
        [words[row] for row in readable],
        column,
        str(path),
        lambda i: places[readable[i]],
        trained=("train", "valid"),
    )
    test[[readable[i] for i in parts.get("test", ())]] = True
    return test


def _keep(data: FitData, rows: np.ndarray) -> None:
    data.smiles = [data.smiles[row] for row in rows]
    data.molecules = data.molecules.take(rows)
    data.targets = data.targets[rows]
    data.test = data.test[rows] if len(data.test) else data.test


def _drop_unreadable(data: FitData, path: File, places: Sequence[str], *, strict: bool) -> None:
    """Leave out the rows whose SMILES cannot be read; with `strict`, refuse the first one."""
    for place, smiles, reason in zip(places, data.smiles, data.molecules.errors, strict=True):
        if reason is not None and strict:
            raise MolsliceError(failure_text(place, smiles, reason))
        if reason is not None:
            data.refusals.add(reason, smiles, place)
    rows = np.flatnonzero([reason is None for reason in data.molecules.errors])
    if not len(rows):
        errors = data.molecules.errors
        first = (
            failure_text(places[0], data.smiles[0], errors[0] or "") if errors else "the table has no rows"
        )
        raise MolsliceError(f"{path}: none of the {len(data.smiles)} SMILES can be read; {first}")
    if failed := len(data.smiles) - len(rows):
        listed = "; ".join(f"{kind['count']:,} {kind['reason']}" for kind in data.refusals.report())
        data.lose(f"{_rows(failed)} of {len(data.smiles):,} left out: {listed}")
    known = np.any(np.isfinite(data.targets), axis=1)
    unlabeled = int((~known[rows]).sum())
    if unlabeled:
        data.lose(f"{_rows(unlabeled)} left out: no value of any target")
    _keep(data, rows[known[rows]])


def _rows(count: int, what: str = "row") -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _merge_duplicates(data: FitData, path: File, duplicates: Duplicates, *, by_column: bool) -> np.ndarray:
    """Replace the rows of each molecule by one row with their mean, unless duplicates are kept.

    Returns:
        The targets with the geometric mean instead, float64 [n, T]; the smallest value if it is not positive.
    """
    groups: dict[tuple[str, bool], list[int]] = {}
    for row, canonical in enumerate(data.molecules.canonical):
        groups.setdefault((canonical, bool(data.test[row]) if by_column else False), []).append(row)
    if by_column:
        both = {name for name, test in groups if test} & {name for name, test in groups if not test}
        if both:
            overlap = f"{len(both)} held-out molecules are also training molecules"
            if duplicates == "refuse":
                raise MolsliceError(
                    f"{path}: {overlap}; the first: {min(both)}. Remove them, or choose duplicates average "
                    "or keep"
                )
            data.findings.append(f"{overlap}; both are kept")
    several = [rows for rows in groups.values() if len(rows) > 1]
    if not several:
        return data.targets
    differing = [rows for rows in several if _differ(data.targets[rows])]
    count = f"{len(several)} molecules have several rows, {len(differing)} of them with different values"
    if duplicates == "refuse":
        first = " and ".join(dict.fromkeys(data.smiles[row] for row in several[0][:2]))
        raise MolsliceError(
            f"{path}: {count}; the first: {first}. Remove them, or choose duplicates average or keep"
        )
    if duplicates == "keep":
        data.findings.append(f"{count}; all are kept")
        return data.targets
    verb = "they are averaged" if data.kind == "regression" else "conflicting labels count as missing"
    data.lose(f"{count}; {verb}")
    merged, geometric = data.targets.copy(), data.targets.copy()
    for rows in several:
        merged[rows[0]] = _merged(data.targets[rows], data.kind)
        geometric[rows[0]] = _geometric_mean(data.targets[rows])
    data.targets = merged
    first_rows = np.array(sorted(rows[0] for rows in groups.values()))
    kept = first_rows[np.isfinite(data.targets[first_rows]).any(1)]
    _keep(data, kept)
    return geometric[kept]


def _differ(values: np.ndarray) -> bool:
    """Whether a target has two different known values in these rows [k, T]."""
    known = np.isfinite(values)
    high = np.where(known, values, -np.inf).max(0)
    low = np.where(known, values, np.inf).min(0)
    measured = known.any(0)
    largest = np.maximum(np.abs(high[measured]), np.abs(low[measured]))
    return bool((high[measured] - low[measured] > SAME * largest).any())


def _merged(values: np.ndarray, kind: Kind) -> np.ndarray:
    """Return the mean of the known values of each target; NaN for classes that disagree."""
    known = np.isfinite(values)
    counts = known.sum(0)
    mean = np.where(known, values, 0.0).sum(0) / np.maximum(counts, 1)
    agreed = counts > 0
    if kind == "classification":
        agreed &= (mean == 0.0) | (mean == 1.0)
    return np.where(agreed, mean, np.nan)


def _geometric_mean(values: np.ndarray) -> np.ndarray:
    """Return the geometric mean of the known values of each target, or the smallest if it is not positive."""
    smallest = np.fmin.reduce(values)
    logarithms = np.log(values, where=values > 0, out=np.full(values.shape, np.nan))
    return np.where(smallest > 0, np.exp(_merged(logarithms, "regression")), smallest)


def _hold_out(data: FitData, path: File, split: str, seed: int) -> np.ndarray:
    """Draw the held-out rows: all rows of a compound, or of a scaffold, are in one split."""
    if split == "all" or len(data.smiles) < MIN_ROWS:
        return np.zeros(len(data.smiles), bool)  # `_check_targets` refuses too few rows of each target
    compound = _number_compounds(data)
    count = int(compound.max()) + 1
    if count < MIN_COMPOUNDS:
        raise MolsliceError(
            f"{path}: {count} different compounds in {len(data.smiles)} rows; a fit needs at least "
            f"{MIN_COMPOUNDS}"
        )
    if split == "scaffold":  # scaffolds of one size are held out at random, not in the order of the SMILES
        compound = np.random.default_rng(seed).permutation(count)[compound]
    first = np.full(count, len(compound))
    np.minimum.at(first, compound, np.arange(len(compound)))
    groups = [data.scaffold_or_parent(row) for row in first] if split == "scaffold" else None
    test = None if groups is None else splits.draw_groups(groups, TEST_FRACTION * len(groups), seed)
    if test is None:
        division = splits.Division({"test": TEST_FRACTION}, seed)
        test = division.divide({"train": np.arange(count)}, str(path), groups=groups)["test"]
    return np.isin(compound, test)


def _number_compounds(data: FitData) -> np.ndarray:
    """Number the compound of each row in the order of their first canonical SMILES, int [n]."""
    canonical, parents = data.molecules.canonical, data.molecules.parents
    numbers: dict[str, int] = {}
    for row in sorted(range(len(canonical)), key=canonical.__getitem__):
        numbers.setdefault(parents[row], len(numbers))
    return np.array([numbers[parent] for parent in parents])


def _describe_forms(data: FitData, *, by_scaffold: bool) -> None:
    """Add a finding about molecules that differ from another one only in stereochemistry or salt form."""
    parents = dict(zip(data.molecules.canonical, data.molecules.parents, strict=True))
    sizes = Counter(parents.values())
    several = sum(size for size in sizes.values() if size > 1)
    if not several:
        return
    finding = (
        f"{several:,} of {len(parents):,} molecules differ from another one only in stereochemistry, "
        "isotopes or salt form"
    )
    if not by_scaffold:  # a counterion with rings is part of the scaffold
        finding += "; all forms of a compound are in one fold"
    trained, held_out = (
        {data.molecules.canonical[row] for row in np.flatnonzero(part)} for part in (~data.test, data.test)
    )
    known = {parents[name] for name in trained}
    divided = [name for name in held_out - trained if parents[name] in known]
    if divided:
        finding += f"; {len(divided):,} held-out molecules are forms of training molecules"
    data.findings.append(finding)


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
        if len(known) < MIN_ROWS:
            raise MolsliceError(
                f"{where}: {_rows(len(known), 'training row')} with a value; a fit needs at least "
                f"{MIN_ROWS}{because}"
            )
        if data.kind == "classification":
            if odd := [value for value in known if value not in (0.0, 1.0)]:
                raise MolsliceError(f"{where}: {odd[0]:g} is not a class; classes are 0 and 1")
            ones = int(known.sum())
            if min(ones, len(known) - ones) < MIN_OF_CLASS:
                raise MolsliceError(
                    f"{where}: {len(known) - ones} training rows of class 0 and {ones} of class 1; a fit "
                    f"needs at least {MIN_OF_CLASS} of each{because}"
                )
        elif np.ptp(known) <= ROUNDING * np.abs(known).max():
            raise MolsliceError(f"{where}: the target is {known[0]:g} in every training row")
        else:
            _check_precision(known, name, path)
        held = data.targets[data.test, index]
        held = held[np.isfinite(held)]
        if data.kind == "classification" and len(held) and np.ptp(held) == 0:
            data.findings.append(
                f"{name}: all {len(held)} held-out rows are of class {held[0]:.0f}; no ROC-AUC is defined"
            )
        missing = len(values) - len(known)
        if missing:
            data.findings.append(f"{name}: {missing} of {len(values)} training rows have no value")


def _check_precision(values: np.ndarray, name: str, path: File) -> None:
    """Check that predictions, which are float32, can tell the values of a target apart."""
    with np.errstate(over="ignore"):
        rounding = np.abs(values.astype(np.float32) - values).max()
    found = (np.array([each]) for each in (rounding, values.std(), np.abs(values).max()))
    check_rounding([name], *found, source=str(path))


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
    if scale == "linear" or (scale is None and data.kind == "classification"):
        return False
    name, values = data.names[index], np.where(data.test, np.nan, geometric)
    if scale == "log":
        where = f"{path}, column {name!r}"
        if data.kind == "classification":
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
    if not _is_log_normal(known):
        return False
    span = f"from {known.min():.4g} to {known.max():.4g}"
    data.findings.append(f"{name}: learned as its logarithm (detected: positive and skewed, {span})")
    return True


def _is_log_normal(values: np.ndarray) -> bool:
    """Whether values span a wide range and are closer to a log-normal distribution than to a normal one.

    The likelihoods of a normal distribution of the logarithms and of the values are compared, with the mean
    and the variance of each.

    Args:
        values: float64 [n].

    Source: Box and Cox 1964, "An Analysis of Transformations" (the exponents 0 and 1).
    """
    low, high = np.quantile(values, TAILS)
    if values.min() <= 0 or high < WIDE * low:
        return False
    logs = np.log(values)
    return bool(np.exp(logs.mean()) * logs.std() < values.std())
