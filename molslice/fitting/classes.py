"""The classes of targets whose cells are words, or that the user names."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables.cells import TRUTH, class_words, is_missing
from molslice.files.tables.classes import (
    KNOWN_CLASSES,
    class_key,
    class_numbers,
    count_classes,
    has_words,
    known_numbers,
)
from molslice.files.urls import File
from molslice.fitting.data import FitOptions
from molslice.number_text import counted
from molslice.tasks.several_classes import SeveralClasses
from molslice.tasks.target_types import TargetType
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

MAX_CLASSES = 20
SHOWN = 5  # of more classes in a message
FIRST_ROWS, MORE_ROWS = 50, 10_000  # the second if the first have no value
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")
NONE = "none"  # missing, unless it is named
NEGATION = r"(?:(?:non|not|no)[-_ ]+(?:an? )?|non|in|un)"  # before the other word: `nonblocker`, `insoluble`


@dataclass(slots=True)
class ReadClasses:
    """The targets that are read as words.

    Attributes:
        values: Index of the class of each row, NaN where missing, float64 [n], by target.
        types: Their types, by target.
        meanings: What the words mean, one sentence each.
    """

    values: dict[str, np.ndarray] = field(default_factory=dict)
    types: dict[str, TargetType] = field(default_factory=dict)
    meanings: list[str] = field(default_factory=list)


def listed_words(option: str, words: str | Sequence[str]) -> tuple[str, ...]:
    """Return words of a list, or of a text with commas, without blanks around them.

    Raises:
        MolsliceError: They are neither, or a word is empty.
    """
    listed = words.split(",") if isinstance(words, str) else words
    if not isinstance(listed, Sequence) or not all(isinstance(word, str) and word.strip() for word in listed):
        raise MolsliceError(f"{option} must be names of classes, got {words!r}")
    return tuple(word.strip() for word in listed)


def listed_orders(order: str | Sequence[str] | Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the orders of classes: one, as a text with commas or a list of words, or a list of several.

    Raises:
        MolsliceError: They are neither, or a word is empty.
    """
    if isinstance(order, list | tuple) and not any(isinstance(item, str) for item in order):
        return tuple(listed_words("order", words) for words in order)
    return (listed_words("order", order),)  # type: ignore[arg-type]


def words_of_classes(classes: Sequence[Any]) -> list[str] | None:
    """Return the words for classes in a table.

    None if the classes are 0 and 1, or a table does not keep them apart: two that differ in upper case only,
    a word for a missing value, or a number among words.
    """
    words = [str(value).strip() for value in classes]
    keys = {*map(class_key, words)}
    if set(classes) == {0, 1} or keys == {"0", "1"}:  # also False and True, or texts
        return None
    numbers = sum(_NUMBER.fullmatch(key) is not None for key in keys)
    if len(keys) < len(words) or 0 < numbers < len(words):
        return None
    return None if any(is_missing(word) or class_key(word) == NONE for word in words) else words


def find_word_columns(table: MoleculeTable, names: Sequence[str], options: FitOptions) -> list[str]:
    """Find the targets that are read as words, by the first rows of a table or by the options.

    `true` and `false` are numbers, also beside other numbers.

    Raises:
        MolsliceError: The options contradict each other.
    """
    _check_options(options, alone=len(names) == 1)
    places = [table.find(name) for name in names]

    def cells(size: int) -> dict[str, list[str]]:
        rows = table.peek(size)
        return {name: [row[place] for row in rows] for name, place in zip(names, places, strict=True)}

    numbers = any(map(_is_number, options.positive))
    first = cells(sys.maxsize if numbers else FIRST_ROWS)
    if not numbers and any(not count_classes(texts, options.written) for texts in first.values()):
        first = cells(MORE_ROWS)
    return [
        name
        for (name, texts), kind in zip(first.items(), options.kinds_of(names), strict=True)
        if _has_names_of_classes(texts, kind, options, alone=len(names) == 1)
    ]


def _has_names_of_classes(
    texts: Sequence[str], kind: Kind | None, options: FitOptions, *, alone: bool
) -> bool:
    """Return whether the cells of a target are read as words; `alone` is whether it is the only one.

    So are two numbers such as 1 and 2, if the kind is classification and `positive` has one of them.
    """
    if kind == "multiclass" or (options.order and alone):
        return True
    if kind == "regression":
        return False
    keys = {*map(class_key, count_classes(texts, options.written))}
    if kind == "classification" and not keys <= {"0", "1"} and keys & {*map(class_key, options.positive)}:
        return True
    return has_words(texts, options.written) and (bool(options.positive) or not keys <= TRUTH.keys())


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(class_key(word)) is not None and class_key(word) not in TRUTH


def _check_options(options: FitOptions, *, alone: bool) -> None:
    kinds = {*(options.kinds or (None,))}
    given = ", ".join(sorted(filter(None, kinds)))
    if options.order and not kinds & {None, "multiclass"}:
        raise MolsliceError(f"an order needs the kind multiclass, got {given}")
    if options.order and options.positive and alone:
        raise MolsliceError("positive names class 1 of two classes, and does not go with an order")
    if options.positive and not kinds & {None, "classification"}:
        raise MolsliceError(f"positive needs the kind classification, got {given}")
    for order in options.order:
        if not 3 <= len({class_key(word) for word in order}) == len(order) <= MAX_CLASSES:
            raise MolsliceError(
                f"an order must name 3 to {MAX_CLASSES} different classes, got {', '.join(order)}; for two "
                "classes, name class 1 with positive"
            )


def read_classes(
    texts: Mapping[str, Sequence[str]],
    names: Sequence[str],
    options: FitOptions,
    path: File,
    where: Callable[[int], str],
) -> ReadClasses:
    """Find the classes of columns, and read their cells.

    `texts` has the cells of each target that is read as words, of all targets with `names`; `where` describes
    a row for messages.

    Raises:
        MolsliceError: A column has too few or too many classes, a cell is not one of them, a word of
            `positive` is not a class, or no target has the classes of an order.
    """
    result, named = ReadClasses(), [class_key(word) for word in options.positive]
    unused = [*named]
    kinds, waiting = dict(zip(names, options.kinds_of(names), strict=True)), [*options.order]
    for name, cells in texts.items():
        counts, column = _count_classes(cells, options), f"{path}, column {name!r}"
        unread = "" if NONE in map(class_key, counts) else _describe_none(cells, len(counts))
        if unread and len(counts) < (3 if kinds[name] == "multiclass" else 2):
            raise MolsliceError(f"{column} has {' and '.join(counts) or 'no value'}; {unread}")
        result.meanings += [f"{name}: {unread}"] if unread else []
        known = {word: KNOWN_CLASSES.get(class_key(word)) for word in counts}
        spelled = {class_key(word): word for word in counts}
        chosen = [spelled[key] for key in (*unused, *named) if key in spelled]
        order = () if kinds[name] == "classification" else _find_order(counts, options.order, names, column)
        waiting = [other for other in waiting if other != order]
        asked = bool(order) or kinds[name] == "multiclass"
        if not chosen and not asked and None not in known.values():
            result.values[name] = known_numbers(cells, options.written)
            result.types[name] = TargetType("classification")
            meanings = class_words({name: cells}, options.written)
            result.meanings += [f"{name}: {', '.join(meaning)}" for meaning in meanings.values()]
            continue
        if not asked:
            _refuse_numbers(name, cells, counts, where)
        alone = len(names) == 1
        classes = order or _choose_classes(name, counts, chosen, kinds[name], column, alone=alone)
        if len(classes) > 2:
            result.types[name] = TargetType("multiclass", SeveralClasses(classes, ordered=bool(order)))
        else:
            result.types[name] = TargetType("classification", words=classes)
            if (key := class_key(classes[-1])) in unused:
                unused.remove(key)
        result.values[name] = class_numbers(cells, name, where, classes, options.written)
        result.meanings.append(_describe(name, classes, counts, ordered=bool(order)))
    if unused:
        listed = ", ".join(word for target_type in result.types.values() for word in target_type.words)
        word = next(word for word in options.positive if class_key(word) == unused[0])
        raise MolsliceError(
            f"{path}: no target has the two classes of which {word!r} is one"
            + (f"; classes: {listed}" if listed else "")
        )
    if waiting:
        raise MolsliceError(
            f"{path}: no target has the classes of the order {', '.join(waiting[0])}; numbers need the kind "
            "multiclass of their target"
        )
    return result


def _count_classes(cells: Sequence[str], options: FitOptions) -> dict[str, int]:
    """Count the cells of each class; the words of the options are classes, also `none`.

    So is `none` if there is only one other class, and it is named.
    """
    named = {class_key(word) for words in (options.positive, *options.order) for word in words}
    counts = count_classes(cells, options.written, named)
    if len(counts) == 1 and class_key(*counts) in named:
        return count_classes(cells, options.written, {*named, NONE})
    return counts


def _describe_none(cells: Sequence[str], others: int) -> str:
    """Say in how many cells `none` counts as missing beside other classes; empty without such a cell."""
    if not (count := sum(class_key(cell) == NONE for cell in cells)):
        return ""
    option = "--positive" if others < 2 else "--order"
    return f"'none' counts as missing in {counted(count)}; name it with {option} to learn it as a class"


def _find_order(
    counts: Mapping[str, int], orders: Sequence[tuple[str, ...]], names: Sequence[str], where: str
) -> tuple[str, ...]:
    """Return the order of the classes of a target: the one that has some of them; empty without one.

    The only order is for the only target in any case.

    Raises:
        MolsliceError: Several orders have some of the classes.
    """
    if len(names) == len(orders) == 1:
        return orders[0]
    keys = {*map(class_key, counts)}
    suited = [order for order in orders if keys & {*map(class_key, order)}]
    if len(suited) > 1:
        listed = " and ".join(", ".join(order) for order in suited)
        raise MolsliceError(f"{where}: several orders have some of its classes: {listed}")
    return suited[0] if suited else ()


def _refuse_numbers(
    name: str, cells: Sequence[str], counts: Mapping[str, int], where: Callable[[int], str]
) -> None:
    """Refuse a number among words, which is a value in another column or a limit rather than a class.

    Raises:
        MolsliceError: There is one; the message names its row.
    """
    numbers = {word for word in counts if _is_number(word)}
    if numbers and len(numbers) < len(counts):
        row = next(place for place, cell in enumerate(cells) if cell.strip() in numbers)
        raise MolsliceError(
            f"{where(row)}, column {name!r}: {cells[row].strip()!r} is neither 0 nor 1, but a number among "
            "words; with --kind multiclass it is a class"
        )


def _choose_classes(
    name: str,
    counts: Mapping[str, int],
    chosen: Sequence[str],
    kind: Kind | None,
    where: str,
    *,
    alone: bool,
) -> tuple[str, ...]:
    """Return the names of the classes of a target; `alone` is whether it is the only one.

    Raises:
        MolsliceError: There are too few or too many.
    """
    shown = SHOWN if len(counts) > MAX_CLASSES else MAX_CLASSES
    listed = ", ".join(sorted(counts, key=str.lower)[:shown])
    if len(counts) == 2 and kind != "multiclass":
        return _order_two(counts, chosen)
    if len(counts) == 2:
        raise MolsliceError(f"{where} has two classes: {listed}; leave out the kind multiclass")
    if len(counts) < 2:
        raise MolsliceError(f"{where} has {listed or 'no value'} in every row; a fit needs two classes")
    if len(counts) > MAX_CLASSES:
        raise MolsliceError(
            f"{where} has {len(counts)} different classes, such as {listed}; a fit takes at most "
            f"{MAX_CLASSES}"
        )
    if kind == "classification":
        raise MolsliceError(
            f"{where} has {len(counts)} classes: {listed}; classification takes two, and multiclass several"
        )
    if chosen and alone:
        raise MolsliceError(
            f"{where} has {len(counts)} classes: {listed}; positive is for two, but got {name} {chosen[0]!r}"
        )
    try:
        return tuple(sorted(counts, key=float))
    except ValueError:
        return tuple(sorted(counts, key=str.lower))


def _order_two(counts: Mapping[str, int], chosen: Sequence[str]) -> tuple[str, str]:
    """Return the words of class 0 and class 1.

    Class 1 is the chosen word; else a known one such as `active`, the word without a negation, `+` beside
    `-`, or the last one in alphabetical order.
    """
    zero, one = sorted(counts, key=str.lower)
    known = {word: KNOWN_CLASSES.get(class_key(word)) for word in counts}
    if chosen:
        exchanged = chosen[0] == zero
    elif set(known.values()) != {None}:
        exchanged = known[zero] == 1.0 or known[one] == 0.0
    elif set(zero) | set(one) <= {"+", "-"}:
        exchanged = "+" in zero and "-" in one
    else:
        exchanged = re.fullmatch(NEGATION + re.escape(zero.lower()), one.lower()) is not None
    return (one, zero) if exchanged else (zero, one)


def _describe(name: str, classes: Sequence[str], counts: Mapping[str, int], *, ordered: bool) -> str:
    by_key = {class_key(word): count for word, count in counts.items()}
    if len(classes) == 2:
        return (
            f"{name}: class 1 is {classes[1]!r} and class 0 is {classes[0]!r}; --positive {classes[0]!r} "
            "exchanges them"
        )
    separator = " < " if ordered else ", "
    listed = separator.join(f"{word} ({by_key.get(class_key(word), 0):,} rows)" for word in classes)
    hint = (
        ""
        if ordered
        else "; --order with their names if they have an order, --missing-value to leave one out"
    )
    return f"{name}: {len(classes)} {'ordered ' * ordered}classes: {listed}{hint}"
