"""The rows of a fit: molecules, targets, and which of them are held out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from molslice.data.molecules.conditions import Condition, encode
from molslice.data.molecules.describe import DescribedMolecules
from molslice.data.molecules.refusals import Refusals
from molslice.files.tables import DEFAULT_FORMAT, NumberFormat, place_of
from molslice.fitting.first_checks import SPLITS
from molslice.learners import Features, Labels
from molslice.tasks.target_types import TargetType, common_kind, targets_of_parts
from molslice.tasks.targets import Kind, TargetInfo

Duplicates = Literal["average", "keep", "refuse"]
Limits = Literal["learn", "drop", "exact"]
Transform = Literal["p"]
Scale = Literal["linear", "log"]
ELSEWHERE = (
    *("smiles_column", "partner_column", "written", "kinds", "names"),
    *("fragment", "wildcards", "standardize", "strict"),
)


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a table is read, divided and fitted; see the arguments of `molslice.fitting.fit.fit`.

    Attributes:
        partner_column: The column of the second molecule of a pair; None for single molecules.
        written: How the numbers of the targets are written.
        kinds: The kind of each target, None to find it; empty to find all.
        order: The classes of targets from the lowest to the highest, for each scale of classes.
        relations: The column of relations of each target, None for one without; None finds it.
        units: The unit of each target, "" for one without; empty for no units.
        names: The name of each target, which differs from its column if this has the unit in brackets; empty
            for the names of the columns.
        unit_columns: The column of units of each target, None for one without; None finds it.
        errors: The column of standard errors of each target, None for one without; None for no errors.
    """

    smiles_column: str | None = None
    partner_column: str | None = None
    symmetric: bool = False
    delimiter: str | None = None
    written: NumberFormat = DEFAULT_FORMAT
    outliers: str = "refuse"
    kinds: tuple[Kind | None, ...] = ()
    positive: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    class_weight: str | None = None
    scale: Scale | None = None
    split: str = "random"
    by: str | None = None
    groups: str | None = None
    conditions: tuple[str, ...] = ()
    duplicates: Duplicates = "average"
    limits: Limits = "learn"
    relations: tuple[str | None, ...] | None = None
    units: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    unit_columns: tuple[str | None, ...] | None = None
    transform: Transform | None = None
    weight: str | None = None
    errors: tuple[str | None, ...] | None = None
    fragment: str = "keep"
    wildcards: str = "refuse"
    standardize: str = "no"
    strict: bool = False
    members: int = 5
    minutes: float | None = None
    seed: int = 0
    refit: bool = True
    quality: str = "good"
    tune: float | None = None

    @property
    def side_columns(self) -> dict[str, str]:
        """The columns that only divide the rows: their names by what each is for."""
        split = None if self.split in SPLITS else self.split
        columns = {"split": split, "dates": self.by, "groups": self.groups}
        return {use: name for use, name in columns.items() if name is not None}

    def kinds_of(self, names: Sequence[str]) -> tuple[Kind | None, ...]:
        """Return the kind of each target, None where it is to be found."""
        return self.kinds or (None,) * len(names)

    def to_mapping(self) -> dict[str, Any]:
        """Return the options that `fit.json` lists; others are beside them, or in its descriptions."""
        options = {**asdict(self), "decimal": self.written.decimal, "missing_values": self.written.missing}
        if len(self.order) == 1:
            options["order"] = self.order[0]
        hidden = {*ELSEWHERE, *(name for name in ("by", "groups", "tune") if options[name] is None)}
        if self.partner_column is None:
            hidden.add("symmetric")
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in options.items()
            if name not in hidden
        }


class Origin(NamedTuple):
    """A row of the table.

    Attributes:
        file: Name of its file.
        row: Its number, from 1 after the column names.
        line: Its line in the file, of a workbook the row in Excel; None for a format without lines.
        smiles: Its SMILES.
        values: Its values or indices of classes, one for each target, NaN where missing or a limit.
        names: What the table calls it, one cell for each column of `FitData.identifiers`.
    """

    file: str
    row: int
    line: int | None
    smiles: str
    values: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class FitData:
    """Rows of a fit: one for each molecule in its conditions, or for each measurement if duplicates are kept.

    Attributes:
        smiles: SMILES of each row as in the table.
        molecules: Descriptors, counts, canonical SMILES, parents and their scaffolds of the n rows.
        targets: Exact values, float64 [n, T], NaN where missing or a limit; for classes, their indices.
        test: Whether a row is held out, bool [n].
        grouped_by: Which rows are in one fold or held out together: rows of a `compound`, of a `scaffold`, or
            of a `cluster` or a `group` in `groups`.
        groups: Number of the cluster or the group of each row, int [n]; empty for compounds and scaffolds.
            While the table is read, the number of the word in the column of groups; -1 for an empty cell.
        dates: Date of each row, of the first measurement of its group once the rows are divided, float64 [n];
            negative infinity without a date. Empty if dates do not divide the rows.
        names: Names of the targets.
        types: What each target is.
        smiles_column: The column of SMILES.
        findings: What was found in the table, one sentence each.
        notices: What may be wrong with the targets, one sentence each.
        losses: Findings that say why there are fewer rows or values than in the table.
        refusals: The rows whose SMILES cannot be read, by reason.
        replaced: Number of mixtures that were replaced by their largest molecule.
        logarithmic: Whether the common logarithm of a target is learned, for each target.
        bounds: Least and largest possible value of each target, float64 [2, n, T]: equal to `targets` where
            these are known, infinite where there is no bound; None if the table has no limits.
        units: Unit of each target, "" for one without.
        weights: How much a row counts for each target, positive, float64 [n, T]; None if all rows count
            alike.
        noise: Standard error of each value, in its unit, float64 [n, T], 0 for a target without any; None if
            there are no standard errors.
        condition_words: The words of each condition by its column, which `molecules.conditions` number until
            they are described; None for a number.
        conditions: What the training rows have of each condition, once they are described; see
            `molslice.fitting.conditions.cover_conditions`.
        partner: The column of the second molecule; None for single molecules.
        partners: SMILES of the second molecule of each row as in the table; empty for single molecules.
        symmetric: Whether the order of a pair has no meaning. `molecules` have fewer partners than
            `partners` then.
        columns: The columns of the targets in the table.
        identifiers: What the table calls each row, by column, for each of the n rows; see `find_identifiers`.
        origins: The rows of the table that each row was made of; empty if they are not known.
        places: The place of each row before the rows were sorted, int [n]; empty until then.
        lost: The rows of the table, of each molecule whose classes disagree in all targets.
    """

    smiles: list[str]
    molecules: DescribedMolecules
    targets: np.ndarray
    test: np.ndarray
    names: tuple[str, ...]
    types: tuple[TargetType, ...]
    smiles_column: str
    findings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    replaced: int = 0
    logarithmic: tuple[bool, ...] = ()
    groups: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    grouped_by: str = "compound"
    dates: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bounds: np.ndarray | None = None
    units: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    noise: np.ndarray | None = None
    condition_words: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    partner: str | None = None
    partners: list[str] = field(default_factory=list)
    symmetric: bool = False
    columns: tuple[str, ...] = ()
    identifiers: dict[str, list[str]] = field(default_factory=dict)
    origins: list[tuple[Origin, ...]] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    lost: list[tuple[Origin, ...]] = field(default_factory=list)

    @property
    def known(self) -> np.ndarray:
        """Whether a target has a value or a limit, bool [n, T]."""
        finite = np.isfinite(self.targets[None] if self.bounds is None else self.bounds)
        return np.asarray(finite.any(0))

    @property
    def limited(self) -> np.ndarray:
        """Whether only limits of a target are known, bool [n, T]."""
        return np.asarray(self.known & np.isnan(self.targets))

    def name_of(self, row: int) -> str:
        """Return what the table calls a row, or its SMILES."""
        return next(filter(None, (cells[row] for cells in self.identifiers.values())), self.smiles[row])

    def where(self, row: int) -> str:
        """Describe a row by the first row of the table that it was made of, for messages."""
        origin = self.origins[row][0]
        return place_of(Path(origin.file), origin.row, origin.line)

    @property
    def names_of_molecules(self) -> list[tuple[str, ...]]:
        """The canonical SMILES of the molecule of each row, or of both molecules."""
        second = [] if self.molecules.partners is None else [self.molecules.partners.canonical]
        return [*zip(self.molecules.canonical, *second, strict=True)]

    def features(self, embed: Callable[[list[str]], np.ndarray | None]) -> Features:
        """Return what the learners take; `embed` returns embeddings of SMILES, None without an encoder."""
        first, second = self.molecules, self.molecules.partners
        features = Features(first.descriptors, first.counts, embed(first.canonical), self.encoded_conditions)
        if second is None:
            return features
        others = Features(second.descriptors, second.counts, embed(second.canonical))
        return features.joined(others, symmetric=self.symmetric)

    @property
    def has_classes(self) -> np.ndarray:
        """Whether a target is no number, bool [T]."""
        return np.array([target_type.has_classes for target_type in self.types])

    def metrics(self, index: int) -> tuple[str, ...]:
        """Return the metrics of a target, the primary one first."""
        of_target = self.types[index]
        if of_target.several is not None:
            return of_target.several.metrics
        if of_target.has_classes:
            return of_target.metric, "pr_auc"
        return (of_target.metric, *(("fold_error",) if self.logarithmic[index] else ()))

    def scaffold_or_parent(self, row: int) -> str:
        """Return the scaffold of a row, or its parent without rings: such compounds share no scaffold."""
        return self.molecules.scaffolds[row] or self.molecules.parents[row]

    def group_names(self, grouped_by: str) -> Sequence[str]:
        """Return the parent of each row, or with `scaffold` its scaffold."""
        if grouped_by == "scaffold":
            return [self.scaffold_or_parent(row) for row in range(len(self.smiles))]
        return self.molecules.parents

    def number_groups(self, grouped_by: str | None = None) -> np.ndarray:
        """Number the rows that stay together, or by another value of `grouped_by`: int [n]."""
        grouped_by = grouped_by or self.grouped_by
        if grouped_by not in ("compound", "scaffold"):
            return self.groups
        names = self.group_names(grouped_by)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names])

    def keep(self, rows: np.ndarray) -> None:
        """Keep only these rows, int [k], in their order."""
        self.smiles = [self.smiles[row] for row in rows]
        self.partners = [self.partners[row] for row in rows if self.partners]
        self.identifiers = {name: [cells[row] for row in rows] for name, cells in self.identifiers.items()}
        self.origins = [self.origins[row] for row in rows if self.origins]
        self.molecules = self.molecules.take(rows)
        self.targets = self.targets[rows]
        self.test, self.groups, self.dates, self.places = (
            values[rows] if len(values) else values
            for values in (self.test, self.groups, self.dates, self.places)
        )
        self.bounds = None if self.bounds is None else self.bounds[:, rows]
        self.weights = None if self.weights is None else self.weights[rows]
        self.noise = None if self.noise is None else self.noise[rows]

    def scale(self, index: int, factors: np.ndarray) -> None:
        """Multiply the values, limits and standard errors of a target by positive factors, float64 [n]."""
        self.targets[:, index] *= factors
        if self.bounds is not None:
            self.bounds[..., index] *= factors
        if self.noise is not None:
            self.noise[:, index] *= factors

    def sort(self) -> None:
        """Sort the rows by canonical SMILES, and rows of one molecule by split, targets and conditions."""
        blocks = [self.targets, *([] if self.bounds is None else self.bounds)]
        blocks += [
            block.reshape(len(self.test), -1)
            for block in (self.weights, self.noise, self.molecules.conditions)
            if block is not None
        ]
        values = np.concatenate(blocks, axis=1)
        values = np.where(np.isnan(values), np.inf, values)
        keys = [*zip(self.names_of_molecules, self.test.tolist(), values.tolist(), strict=True)]
        rows = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        self.keep(rows)
        self.places = rows

    @property
    def encoded_conditions(self) -> np.ndarray | None:
        """The conditions as learners take them, float64 [n, C]; None without any."""
        values = self.molecules.conditions
        return None if values is None else encode(self.conditions, values)

    def condition_cells(self, row: int) -> list[str]:
        """Return the cells of the conditions of a row, as `Condition.read` takes them."""
        values = self.molecules.conditions
        pairs = zip(self.conditions, () if values is None else values[row].tolist(), strict=True)
        return [condition.cell(value) for condition, value in pairs]

    def lose(self, finding: str) -> None:
        """Add a finding that says why there are fewer rows or values than in the table."""
        self.findings.append(finding)
        self.losses.append(finding)

    def describe(self) -> TargetInfo:
        """Describe the targets of the model by the training rows; see `TargetInfo.of_training`."""
        kind, numbers = common_kind(self.types), self._in_learned_unit(self.targets)[~self.test]
        if kind not in ("mixed", "multiclass"):
            return TargetInfo.of_training(self.names, self.units, kind, numbers)
        parts = [
            TargetInfo.of_training(
                (name,),
                (unit,),
                of_target.kind,
                numbers[:, [index]],
                () if of_target.several is None else of_target.several.names,
            )
            for index, (name, unit, of_target) in enumerate(
                zip(self.names, self.units, self.types, strict=True)
            )
        ]
        return TargetInfo.mixed(parts) if kind == "mixed" else parts[0]

    @property
    def learned(self) -> np.ndarray:
        """What the model learns, float64 [n, P]: `targets`, their logarithms or the parts of classes.

        NaN where a held-out row has no logarithm.
        """
        numbers = self._in_learned_unit(self.targets)
        blocks = [
            numbers[:, [index]]
            if target_type.several is None
            else target_type.several.split(numbers[:, index])
            for index, target_type in enumerate(self.types)
        ]
        return np.concatenate(blocks, axis=1)

    @property
    def is_learnable(self) -> np.ndarray:
        """Whether a row has something to learn, bool [n]: not if its only value has no logarithm."""
        known = np.isfinite(self.learned).any(1)
        if self.bounds is not None:
            known = known | np.isfinite(self._in_learned_unit(self.bounds)).any((0, 2))
        return np.asarray(known)

    @property
    def learned_names(self) -> list[str]:
        """Name what the model learns: P names."""
        pairs = zip(self.names, self.types, strict=True)
        return [
            learned_name for name, target_type in pairs for learned_name in target_type.names_of_parts(name)
        ]

    def _in_learned_unit(self, values: np.ndarray) -> np.ndarray:
        """Return values [..., T] with logarithms for logarithmic targets; NaN for one without a logarithm."""
        learned = values.copy()
        for index in np.flatnonzero(self.logarithmic):
            numbers = values[..., index]
            learned[..., index] = np.log10(numbers, where=numbers > 0, out=np.full(numbers.shape, np.nan))
        return learned

    def labels(self, column: int) -> Labels:
        """Return what learners are fitted to, for all rows of a column of `learned`.

        A lower limit that has no logarithm is infinite. The standard error of a logarithm is the error of the
        value, divided by the value and ln 10 (the delta method).
        """
        values, bounds, noise = self.learned[:, column], None, None
        index = targets_of_parts(self.types)[column]
        weights = None if self.weights is None else self.weights[:, index]
        if self.types[index].has_classes:
            return Labels(values, None, weights)
        if self.bounds is not None:
            bounds = self._in_learned_unit(self.bounds)[..., index]
            bounds[0] = np.where(np.isnan(bounds[0]), -np.inf, bounds[0])
        if self.noise is not None and self.noise[:, index].any():
            noise = self.noise[:, index]
            if self.logarithmic[index]:
                noise = self.noise_of_logarithms(index)
        return Labels(values, bounds, weights, noise)

    def noise_of_logarithms(self, index: int) -> np.ndarray:
        """Return the standard errors of common logarithms, float64 [n]: error / (value ln 10).

        The value of a limit is its bound. A lower limit that is not positive has no logarithm, and 0 here.
        """
        assert self.noise is not None
        sizes = self.targets[:, index]
        if self.bounds is not None:
            lower, upper = self.bounds[..., index]
            sizes = np.where(np.isfinite(sizes), sizes, np.where(np.isfinite(lower), lower, upper))
        errors, positive = self.noise[:, index], sizes > 0
        return np.where(positive, errors / (np.where(positive, sizes, 1.0) * np.log(10.0)), 0.0)

    def nearest(self, predicted: np.ndarray, rows: np.ndarray, index: int) -> np.ndarray:
        """Return measured values, or for limits the possible values that are nearest to predictions.

        A limit that is met thus has no error, and the error of another one is the distance to the limit.

        Args:
            predicted: Predictions of the rows in the unit of the target, float64 [k]; not used for classes.
            rows: The rows, int [k] or bool [n].
            index: Number of the target.

        Returns:
            float64 [k], NaN where missing.
        """
        values = self.targets[rows, index]
        if self.bounds is None or self.types[index].has_classes:
            return values
        limited = self.limited[rows, index]
        return np.where(limited, np.clip(predicted, *self.bounds[:, rows, index]), values)

    def informative(self, predicted: np.ndarray, rows: np.ndarray, index: int) -> np.ndarray:
        """Return `nearest`, NaN for a limit that is met: it does not tell how large the error is."""
        nearest = self.nearest(predicted, rows, index)
        if self.bounds is None or self.types[index].has_classes:
            return nearest
        return np.where(self.limited[rows, index] & (nearest == predicted), np.nan, nearest)
