"""The conditions of a fit: read their columns, find their kinds, and describe what the training rows have."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from molslice.data.molecules.conditions import MAX_WORDS, Condition
from molslice.data.target_values import check_outliers
from molslice.files.tables import NumberFormat, is_missing, numbers, trimmed
from molslice.files.urls import File
from molslice.fitting.data import FitData
from molslice.folders.fitted import ROW_COLUMNS, row_columns
from molslice.types import MolsliceError

__all__ = ["check_condition_names", "describe_conditions", "read_conditions"]

SAME_ORDER = 1.0 - 1e-9  # rank correlation of a condition that is a function of a target
COMPARED_VALUES = 20  # different values; fewer may have one order by chance


def check_condition_names(
    conditions: Sequence[str], targets: Sequence[str], smiles_column: str, split: str, path: File
) -> None:
    """Check that the columns of conditions have no other role.

    Raises:
        MolsliceError: One is the column of SMILES, a target or the split, or has a name of `rows.csv`.
    """
    roles = dict.fromkeys((*ROW_COLUMNS, *row_columns(targets)), "a column of rows.csv; rename it")
    roles |= {trimmed(split): "the split", trimmed(smiles_column): "the SMILES"}
    roles |= {trimmed(name): "a target" for name in targets}
    for name in conditions:
        if role := roles.get(trimmed(name)):
            raise MolsliceError(f"{path}: the column {name!r} cannot be both a condition and {role}")


def read_conditions(
    cells: dict[str, list[str]], path: File, place: Callable[[int], str], written: NumberFormat, outliers: str
) -> tuple[np.ndarray, list[list[str] | None], list[str]]:
    """Read the columns of conditions: numbers if all cells are numbers or missing, else categories.

    Args:
        cells: The n cells of each of K columns.
        path: The table, for messages.
        place: Describes a row by its index, for messages.
        written: How numbers and missing values are written.
        outliers: Whether to `refuse` numbers far outside the others, or to `keep` them.

    Returns:
        The numbers, NaN where missing, or places of words, float64 [n, K]; the words of each category, None
        for a number; and a notice for each column with numbers far outside the others.

    Raises:
        MolsliceError: A category has too many words, or a number is far outside the others.
    """
    columns, kinds, notices = [], list[list[str] | None](), list[str]()
    for name, texts in cells.items():
        try:
            values, words = numbers(texts, name, place, replace(written, classes=False)), None
        except MolsliceError as error:
            values, words = _words(name, texts, path, written, error)
        else:
            notices += check_outliers(values[:, None], [name], str(path), place, outliers)
        columns.append(values)
        kinds.append(words)
    return np.stack(columns, axis=1), kinds, notices


def _words(
    name: str, texts: Sequence[str], path: File, written: NumberFormat, no_number: MolsliceError
) -> tuple[np.ndarray, list[str]]:
    missing = written.missing_texts
    cells = [trimmed(text) for text in texts]
    cells = ["" if is_missing(text) or text.lower() in missing else text for text in cells]
    words = sorted(set(cells))
    if len(words) > MAX_WORDS:
        raise MolsliceError(
            f"{path}, column {name!r}: {len(words):,} different words; a condition is a number, or a category "
            f"of at most {MAX_WORDS} words. It is no number because of {no_number}"
        )
    places = {word: place for place, word in enumerate(words)}
    return np.array([places[word] for word in cells], np.float64), words


def describe_conditions(data: FitData, path: File, kinds: Sequence[Sequence[str] | None]) -> np.ndarray:
    """Describe the conditions by the training rows, and leave out held-out rows with others.

    Args:
        data: The rows, with the result of `read_conditions` as the conditions of their molecules.
        path: The table, for messages.
        kinds: The words of each category; None for a number.

    Returns:
        The rows that are kept, int [k].

    Raises:
        MolsliceError: A condition has the same value in all training rows, or is the target in another form.
    """
    values, conditions = data.molecules.conditions, []
    assert values is not None
    reasons: dict[int, str] = {}
    for index, (name, words) in enumerate(zip(data.condition_names, kinds, strict=True)):
        column, where = values[:, index], f"{path}, column {name!r}"
        trained = column[~data.test]
        if len(np.unique(trained)) < 2:
            only = trained[0] if words is None else words[int(trained[0])]
            shown = "missing" if only == "" or only != only else f"{only:g}" if words is None else only  # noqa: PLR0124
            raise MolsliceError(f"{where}: the condition is {shown} in every training row; leave it out")
        _check_leak(data, column, where)
        condition = Condition.of_training(name, trained, words)
        conditions.append(condition)
        data.findings.append(condition.describe())
        for row, value in enumerate(column.tolist()):
            try:
                column[row] = condition.read(value if words is None else words[int(value)])
            except MolsliceError as error:
                reasons.setdefault(row, str(error))
    data.conditions, kept = tuple(conditions), np.setdiff1d(np.arange(len(values)), list(reasons))
    if reasons:
        first = next(iter(reasons.values()))
        data.lose(f"{len(reasons):,} held-out row{'s' * (len(reasons) > 1)} left out; the first: {first}")
        data.keep(kept)
    return kept


def _check_leak(data: FitData, column: np.ndarray, where: str) -> None:
    """Refuse a condition that is a target in another form: in another unit, or another name for each class."""
    from scipy.stats import spearmanr

    for name, target in zip(data.names, data.targets.T, strict=True):
        both = np.stack([column, target])[:, ~data.test]
        both = both[:, np.isfinite(both).all(0)]
        different = [len(np.unique(values)) for values in both]
        if data.kind == "classification":
            same = different == [2, 2] and np.unique(both, axis=1).shape[1] == 2
        else:
            same = min(different) >= COMPARED_VALUES and abs(spearmanr(*both).statistic) > SAME_ORDER
        if same:
            raise MolsliceError(
                f"{where}: the condition tells the target {name!r} of every training row, so it is the target "
                "in another form; leave it out"
            )
