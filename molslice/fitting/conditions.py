"""What a fit has beside the SMILES: the columns of conditions, their kinds, and the second molecule."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from molslice.data.molecules.conditions import MAX_WORDS, Condition, conditioned_rows
from molslice.data.target_values import check_outliers
from molslice.files.tables import Chunk, NumberFormat, is_missing, numbers, trimmed
from molslice.files.urls import File
from molslice.fitting.data import FitData, FitOptions
from molslice.folders.fitted import ROW_COLUMNS, ROWS, row_columns
from molslice.types import MolsliceError

__all__ = ["ConditionColumns"]

SAME_ORDER = 1.0 - 1e-9  # rank correlation of a condition that is a function of a target
COMPARED_VALUES = 20  # different values; fewer may have one order by chance


class ConditionColumns:
    """The columns of the conditions and of the second molecule of a table; without any, nothing is changed.

    A column whose cells are all numbers or missing is a number, any other a category.

    Args:
        options: The names of the K conditions and of the column of the second molecule.
        path: The table, for messages.

    Attributes:
        cells: The cells of each condition by name.
        partners: The cells of the second molecule by its column, if there is one.
        values: The numbers, NaN where missing, or places of words, float64 [n, K].
        kinds: The words of each category; None for a number.
    """

    values: np.ndarray

    def __init__(self, options: FitOptions, path: File) -> None:
        self.path, self.partner, self.symmetric = path, options.partner_column, options.symmetric
        self.cells = {name: list[str]() for name in options.conditions}
        self.partners = {name: list[str]() for name in [self.partner] if name is not None}
        self.kinds: list[list[str] | None] = []

    def check_names(self, targets: Sequence[str], smiles_column: str, split: str) -> None:
        """Check that no column has another role.

        Raises:
            MolsliceError: One is the column of SMILES, a target or the split, or has a name of `rows.csv`.
        """
        roles = dict.fromkeys((*ROW_COLUMNS, *row_columns(targets)), f"a column of {ROWS}; rename it")
        roles |= {trimmed(split): "the split", trimmed(smiles_column): "the SMILES"}
        roles |= {trimmed(name): "a target" for name in targets}
        for kind, names in (("the second molecule", self.partners), ("a condition", self.cells)):
            for name in names:
                if role := roles.get(trimmed(name)):
                    raise MolsliceError(f"{self.path}: the column {name!r} cannot be both {kind} and {role}")
                roles[trimmed(name)] = kind

    @property
    def names(self) -> list[str]:
        """The columns, which `add` needs."""
        return [*self.cells, *self.partners]

    def rows(self, smiles: list[str]) -> list[str]:
        """Return the rows to describe: the SMILES, with the second molecule if there is one."""
        return conditioned_rows(smiles, self.partners, (), self.partner) if self.partners else smiles

    def add(self, chunk: Chunk) -> None:
        """Keep the cells of a chunk."""
        for name, texts in {**self.cells, **self.partners}.items():
            texts += chunk[name]

    def read(self, place: Callable[[int], str], written: NumberFormat, outliers: str) -> list[str]:
        """Read the cells.

        Args:
            place: Describes a row by its index, for messages.
            written: How numbers and missing values are written.
            outliers: Whether to `refuse` numbers far outside the others, or to `keep` them.

        Returns:
            A notice for each column with numbers far outside the others.

        Raises:
            MolsliceError: A category has too many words, or a number is far outside the others.
        """
        columns, notices = [], list[str]()
        for name, texts in self.cells.items():
            try:
                values, words = numbers(texts, name, place, replace(written, classes=False)), None
            except MolsliceError as error:
                values, words = _words(name, texts, self.path, written, error)
            else:
                notices += check_outliers(values[:, None], [name], str(self.path), place, outliers)
            columns.append(values)
            self.kinds.append(words)
        if columns:
            self.values = np.stack(columns, axis=1)
        return notices

    def attach(self, data: FitData) -> None:
        """Make the conditions a part of the rows, which are all rows of the table."""
        for name, texts in self.partners.items():
            data.partner, data.partners, data.symmetric = name, texts, self.symmetric
            order = "first in the alphabet" if self.symmetric else f"of the column {data.smiles_column!r}"
            data.findings.append(
                f"second molecule: column {name!r}; rows with one first molecule, {order}, are in one fold"
            )
            if self.symmetric:
                data.molecules = data.molecules.in_order()
        if self.cells:
            data.molecules = replace(data.molecules, conditions=self.values)

    def describe(self, data: FitData) -> np.ndarray:
        """Describe the conditions by the training rows, and leave out held-out rows with others.

        Args:
            data: The rows, divided and merged.

        Returns:
            The rows that are kept, int [k].

        Raises:
            MolsliceError: A condition has the same value in all training rows, or is the target in another
                form.
        """
        values, everything = data.molecules.conditions, np.arange(len(data.smiles))
        if values is None or data.test.all():  # a fit without training rows is refused later
            return everything
        reasons: dict[int, str] = {}
        conditions = []
        for name, words, column in zip(self.cells, self.kinds, values.T, strict=True):
            conditions.append(_describe(data, name, words, column, f"{self.path}, column {name!r}"))
            data.findings.append(conditions[-1].describe())
            for row, value in enumerate(column.tolist()):
                try:
                    column[row] = conditions[-1].read(value if words is None else words[int(value)])
                except MolsliceError as error:
                    reasons.setdefault(row, str(error))
        data.conditions, kept = tuple(conditions), np.setdiff1d(everything, list(reasons))
        if reasons:
            first = next(iter(reasons.values()))
            data.lose(f"{len(reasons):,} held-out row{'s' * (len(reasons) > 1)} left out; the first: {first}")
            data.keep(kept)
        return kept


def _describe(
    data: FitData, name: str, words: Sequence[str] | None, column: np.ndarray, where: str
) -> Condition:
    """Describe a condition by its values in the training rows."""
    trained = column[~data.test]
    if len(np.unique(trained)) < 2:
        only = f"{trained[0]:g}" if words is None else words[int(trained[0])]
        only = "missing" if only in ("", "nan") else only
        raise MolsliceError(f"{where}: the condition is {only} in every training row; leave it out")
    _check_leak(data, column, where)
    return Condition.of_training(name, trained, words)


def _words(
    name: str, texts: Sequence[str], path: File, written: NumberFormat, no_number: MolsliceError
) -> tuple[np.ndarray, list[str]]:
    missing = written.missing_texts
    cells = [trimmed(text) for text in texts]
    cells = ["" if is_missing(text) or text.lower() in missing else text for text in cells]
    words = sorted(set(cells))
    if len(words) > MAX_WORDS:
        raise MolsliceError(
            f"{path}, column {name!r}: {len(words):,} different words; a condition is a number, or a "
            f"category of at most {MAX_WORDS} words. It is no number because of {no_number}"
        )
    places = {word: place for place, word in enumerate(words)}
    return np.array([places[word] for word in cells], np.float64), words


def _check_leak(data: FitData, column: np.ndarray, where: str) -> None:
    """Refuse a condition that is a target in another form: another unit, or other words for the classes."""
    from scipy.stats import rankdata

    for name, target in zip(data.names, data.targets.T, strict=True):
        both = np.stack([column, target])[:, ~data.test]
        both = both[:, np.isfinite(both).all(0)]
        different = [len(np.unique(values)) for values in both]
        if data.kind != "regression":
            pairs = np.unique(both, axis=1).shape[1]  # each class has its own word
            same = different == [pairs, pairs] and pairs >= 2
        else:
            same = (
                min(different) >= COMPARED_VALUES
                and abs(np.corrcoef(rankdata(both, axis=1))[0, 1]) > SAME_ORDER
            )
        if same:
            raise MolsliceError(
                f"{where}: the condition tells the target {name!r} of every training row, so it is the "
                "target in another form; leave it out"
            )
