"""What a fit has beside the SMILES: the columns of conditions, their kinds, and the second molecule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from molslice.data.molecules.conditions import MAX_WORDS, Condition
from molslice.data.target_values import check_outliers
from molslice.files.tables import NumberFormat, is_missing, numbers, trimmed
from molslice.files.urls import File
from molslice.fitting.columns import Cells
from molslice.fitting.data import FitData, FitOptions
from molslice.number_text import counted, read_number
from molslice.types import MolsliceError

SAME_ORDER = 1.0 - 1e-9  # rank correlation of a condition that is a function of a target
COMPARED_VALUES = 20  # different values; fewer may have one order by chance


class ReadConditions(NamedTuple):
    """The cells of K conditions. If all cells of a column are numbers or missing, it is a number.

    Attributes:
        kinds: The words of each category by its column; None for a number.
        values: The numbers, NaN where missing, or places of words, float64 [n, K]; None without conditions.
        notices: A sentence for each column with numbers far outside the others, and for each category whose
            words may be numbers or spellings of one word.
    """

    kinds: Mapping[str, Sequence[str] | None]
    values: np.ndarray | None
    notices: Sequence[str]


def read_conditions(cells: Cells, written: NumberFormat, options: FitOptions, path: File) -> ReadConditions:
    """Read the conditions of all rows of a table.

    Raises:
        MolsliceError: A category has too many words, or a number is far outside the others.
    """
    kinds, columns, notices = dict[str, Sequence[str] | None](), [], list[str]()
    for name in options.conditions:
        try:
            values, words = (
                numbers(cells[name], name, cells.where, replace(written, classes=False), of_target=False),
                None,
            )
        except MolsliceError as error:
            values, words = _words(name, cells[name], path, written, error)
            notices += _doubts(name, words, error)
        else:
            notices += check_outliers(values[:, None], [name], str(path), cells.where, options.outliers)
        columns.append(values)
        kinds[name] = words
    return ReadConditions(kinds, np.stack(columns, axis=1) if columns else None, notices)


def attach_conditions(data: FitData, read: ReadConditions, cells: Cells, options: FitOptions) -> None:
    """Make the conditions and the second molecules a part of the rows, which are all rows of the table."""
    data.partner, data.symmetric = options.partner_column, options.symmetric
    if data.partner is not None:
        data.partners = cells[data.partner]
        first = "with fewer partners" if data.symmetric else f"of the column {data.smiles_column!r}"
        data.findings.append(
            f"second molecule: column {data.partner!r}; rows with one first molecule, {first}, are in one "
            "fold"
        )
        if data.symmetric:
            data.molecules = data.molecules.fewer_partners_first()
    if read.values is not None:
        data.molecules = replace(data.molecules, conditions=read.values)
        data.condition_words = read.kinds


def check_conditions(data: FitData, path: File) -> None:
    """Check that each condition can be learned from the training rows.

    Raises:
        MolsliceError: A condition has the same value in all training rows, or is the target in another form.
    """
    values = data.molecules.conditions
    if values is None or data.test.all():  # a fit without training rows is refused later
        return
    for (name, words), column in zip(data.condition_words.items(), values.T, strict=True):
        trained, where = column[~data.test], f"{path}, column {name!r}"
        if len(np.unique(trained)) < 2:
            only = f"{trained[0]:g}" if words is None else words[int(trained[0])]
            only = "missing" if only in ("", "nan") else only
            raise MolsliceError(f"{where}: the condition is {only} in every training row; leave it out")
        _check_leak(data, column, where)


class Covered(NamedTuple):
    """Rows whose conditions the training rows have.

    Attributes:
        rows: The training rows, and the held-out rows with such conditions.
        kept: Which rows these are, int [k].
        reasons: Why the others are not among them.
    """

    rows: FitData
    kept: np.ndarray
    reasons: list[str]


def cover_conditions(data: FitData) -> Covered:
    """Describe the conditions by the training rows, and return the rows with such conditions."""
    values, kept = data.molecules.conditions, np.arange(len(data.smiles))
    if values is None or data.test.all():
        return Covered(data, kept, [])
    conditions, values, reasons = _conditions_of(data, ~data.test), values.copy(), dict[int, str]()
    for condition, words, column in zip(conditions, data.condition_words.values(), values.T, strict=True):
        for row, value in enumerate(column.tolist()):
            try:
                column[row] = condition.read(value if words is None else words[int(value)])
            except MolsliceError as error:
                reasons.setdefault(row, str(error))
    rows = replace(data, molecules=replace(data.molecules, conditions=values), conditions=conditions)
    if reasons:
        kept = np.delete(kept, [*reasons])
        rows.keep(kept)
    return Covered(rows, kept, [*reasons.values()])


def _conditions_of(data: FitData, rows: np.ndarray) -> tuple[Condition, ...]:
    """Describe the conditions, which are numbered by `condition_words`, by some rows, bool [n]."""
    values = data.molecules.conditions
    if values is None or not rows.any():
        return ()
    pairs = zip(data.condition_words.items(), values[rows].T, strict=True)
    return tuple(Condition.of_training(name, column, words) for (name, words), column in pairs)


def describe_conditions(data: FitData, *, refits: bool) -> FitData:
    """Say what the conditions are, and which held-out rows have others than the training rows.

    With `refits`, the model learns these rows after the others are measured, and its conditions are described
    by all rows.

    Returns:
        The rows that are learned or measured at first.
    """
    covered = cover_conditions(data)
    conditions = _conditions_of(data, np.ones_like(data.test)) if refits else covered.rows.conditions
    data.findings += [condition.describe() for condition in conditions]
    if covered.reasons:
        rows, first = counted(len(covered.reasons), "held-out row"), covered.reasons[0]
        if not refits:
            data.lose(f"{rows} left out; the first: {first}")
        elif covered.rows.test.any():
            data.findings.append(f"{rows} learned, but not measured; the first: {first}")
        else:
            data.findings.append(f"no error on held-out rows; the first: {first}")
    return covered.rows


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
            f"category of at most {MAX_WORDS} words. It is not numeric: {no_number}"
        )
    places = {word: place for place, word in enumerate(words)}
    return np.array([places[word] for word in cells], np.float64), words


def _doubts(name: str, words: Sequence[str], no_number: MolsliceError) -> list[str]:
    """Return why the words of a category may not be meant as a category; `no_number` says why it is one."""
    doubts, known = list[str](), [word for word in words if word]
    numeric = [word for word in known if np.isfinite(read_number(word.replace(",", ".")))]
    if 2 * len(numeric) > len(known):
        doubts.append(f"{name}: learned as a category, because one cell is not a number: {no_number}")
    spellings: dict[str, list[str]] = {}
    for word in known:
        spellings.setdefault(word.casefold(), []).append(word)
    doubts += [
        f"{name}: {', '.join(map(repr, alike))} are different categories, because their spelling differs"
        for alike in spellings.values()
        if len(alike) > 1
    ]
    return doubts


def _check_leak(data: FitData, column: np.ndarray, where: str) -> None:
    """Refuse a condition that is a target in another form: another unit, or other words for the classes."""
    from scipy.stats import rankdata

    for name, of_target, target in zip(data.names, data.types, data.targets.T, strict=True):
        both = np.stack([column, target])[:, ~data.test]
        both = both[:, np.isfinite(both).all(0)]
        different = [len(np.unique(values)) for values in both]
        if of_target.has_classes:
            pairs = np.unique(both, axis=1).shape[1]  # each class has its own word
            same = different == [pairs, pairs] and pairs >= 2
        else:
            same = (
                min(different) >= COMPARED_VALUES
                and abs(np.corrcoef(rankdata(both, axis=1))[0, 1]) > SAME_ORDER
            )
        if same:
            raise MolsliceError(
                f"{where}: the condition determines the {'class' if of_target.has_classes else 'order'} of "
                f"the target {name!r} in all training rows, so it is the target in another form; leave it out"
            )
