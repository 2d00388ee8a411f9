"""Columns that say what a number means, such as its relation (`>`) or its unit, and units in their names."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from molslice.chem.concentrations import similar_unit
from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.limits import RELATIONS, plain_cell
from molslice.data.molecules.tables import MoleculeTable
from molslice.errors import MolsliceError
from molslice.files.tables import Chunk, is_missing, trimmed
from molslice.files.tables.base import MissingColumnError
from molslice.number_text import counted

PROBED_ROWS = 1_000
SHOWN = 5  # different cells of a column
EQUAL = {"=", "=="}
TYPES = {
    *("ic50", "ec50", "ac50", "xc50", "gi50", "cc50", "ed50", "ld50", "dc50", "ki", "kd", "km", "mic"),
    *("pic50", "pec50", "pac50", "pxc50", "pgi50", "pki", "pkd"),
    *("potency", "inhibition", "activity", "t1/2"),
}
_PREFIX = r"(?:[pnuµμmcdkM]|pico|nano|micro|milli|kilo)?"
_BASE = (
    r"(?:M|mol|molar|g|gram|L|l|m|s|sec|h|hr|hour|min|d|day|eV|J|cal|Pa|bar|V|K|C|Da|hartree|Ha|U|IU|cells)"
)
_POWER = r"(?:\^[-+]?\d|-\d|[23])"  # no L1, which is a name
_TERM = rf"(?:{_PREFIX}{_BASE}s?{_POWER}?|°[CF]|%|ppm|ppb|10\^?-?\d+|10'-?\d+)"
_COUNT = r"(?:\d+(?:[.e^]\d+)?\s*)?"  # as in uL/min/1e6cells
_UNITS = rf"{_TERM}(?:\s*[./·*^ ]\s*{_COUNT}{_TERM})*"
_UNIT = re.compile(_UNITS)
_LOGARITHM = r"(?:[-−]?\s*(?:log(?:_?10)?|lg|ln)\s*)"
_UNIT_IN_NAME = re.compile(rf"{_LOGARITHM}?{_UNITS}|{_LOGARITHM}\(\s*{_UNITS}\s*\)")
_BRACKETS = re.compile(r"(.*\S)\s*(?:\[(?P<square>[^\[\]]+)\]|\((?P<round>(?:[^()]|\([^()]*\))+)\))")


class SideColumns:
    """The columns of a table with relations, units or types of a measurement, and what they contain.

    They are found by the cells of the first rows, whatever their names, before any row of `table` is read:
    more than half of the cells that are not empty are relations, types, concentrations or other units with a
    sign such as `/`; or all of them are units. The readers refuse the other cells.

    Attributes:
        names: The columns, which `add` needs.
    """

    def __init__(self, table: MoleculeTable, targets: Sequence[str], used: Sequence[str] = ()) -> None:
        self._targets = list(targets)
        taken = {table.find(name) for name in (table.smiles_column, *targets, *used)}
        rows = table.peek(PROBED_ROWS) if targets else []
        kinds = {
            name: _kind_of(Counter(plain_cell(row[place]) for row in rows))
            for place, name in enumerate(table.names)
            if place not in taken and table.names.count(name) == 1
        }
        self._kinds = {name: kind for name, kind in kinds.items() if kind is not None}
        self.names = list(self._kinds)
        self._counts = {name: Counter[str]() for name in self.names}

    def add(self, chunk: Chunk) -> None:
        """Count the cells of rows with a value of a target."""
        if not self.names:
            return
        values = zip(*(chunk[name] for name in self._targets), strict=True)
        known = [not all(map(is_missing, row)) for row in values]
        for name, counts in self._counts.items():
            counts.update(plain_cell(cell) for cell, used in zip(chunk[name], known, strict=True) if used)

    @property
    def relations(self) -> list[str]:
        """The columns of relations."""
        return [name for name, kind in self._kinds.items() if kind == "relations"]

    @property
    def units(self) -> list[str]:
        """The columns of units."""
        return [name for name, kind in self._kinds.items() if kind == "units"]

    @property
    def counted_units(self) -> dict[str, list[str]]:
        """The different units of rows with a value, by column of units."""
        return {name: [cell for cell in self._counts[name] if cell] for name in self.units}

    def notices(self, used: Sequence[str] = ()) -> list[str]:
        """Return a sentence for each column with another relation than `=`, or several units or types.

        What `used` columns say is learned, so they have no sentence.
        """
        targets = " and ".join(self._targets)
        sentences = []
        for name, kind in self._kinds.items():
            if name in used:
                continue
            counts = self._counts[name]
            different = {cell for cell in counts if cell}
            if kind == "relations" and different - EQUAL:
                advice = (
                    "learned as exact. Empty the cells that are only limits, or name the column with "
                    "molslice fit --relation"
                )
            elif kind != "relations" and len(different) > 1:
                advice = "learned as if they had one. Convert them, or keep the rows of one"
            else:
                continue
            sentences.append(
                f"column {name!r} has {kind}, which are not used ({listed_cells(counts)}): "
                f"all values of {targets} are {advice}"
            )
        return sentences


def split_unit(name: str) -> tuple[str, str]:
    """Divide the name of a column into the name of what is measured and its unit in brackets.

    Returns:
        `logS` and `log mol/L` for `logS [log mol/L]` or `logS (log mol/L)`; the name and "" if there is no
        unit in brackets at its end, as in `(R)-logP` or `activity [pKi]`.
    """
    match = _BRACKETS.fullmatch(name.strip())
    unit = ((match["square"] or match["round"]) if match else "").strip()
    return (match[1], unit) if match and _UNIT_IN_NAME.fullmatch(unit) else (name, "")


def find_target(table: MoleculeTable, name: str) -> str:
    """Return the column of a target: the one of that name, or else the only one of that name with a unit.

    Raises:
        MolsliceError: There is no such column, or there are several with different units.
    """
    try:
        table.find(name)
    except MissingColumnError:
        columns = [trimmed(column) for column in table.names if split_unit(column)[0] == trimmed(name)]
        if not columns:
            raise
        if len(columns) == 1:
            return columns[0]
        listed = " and ".join(map(repr, columns))
        raise MolsliceError(
            f"{name_of(table.paths)} has no column {name!r}; choose one of {listed}"
        ) from None
    return name


def columns_beside(
    suited: Sequence[bool], named: Sequence[str | None] | None, detected: Sequence[str]
) -> tuple[str | None, ...]:
    """Return the column beside each target, None without one.

    Args:
        suited: Whether a detected column may be beside a target.
        named: The named columns; None if nobody named any.
        detected: The detected columns: the only one counts, beside the only suited target.
    """
    if named is not None:
        return tuple(named)
    is_clear = sum(suited) == len(detected) == 1
    return tuple(detected[0] if is_clear and is_suited else None for is_suited in suited)


def listed_cells(counts: Counter[str]) -> str:
    """List the most frequent cells of a column with their numbers of rows."""
    cells = [f"{cell or 'empty'} in {counted(rows)}" for cell, rows in counts.most_common(SHOWN)]
    others = len(counts) - SHOWN
    return ", ".join([*cells, *([counted(others, "other")] if others > 0 else [])])


def is_unit(text: str) -> bool:
    """Return whether a text is written like a unit, such as `nM` or `mg/kg`."""
    return _UNIT.fullmatch(text) is not None


def _kind_of(counts: Counter[str]) -> str | None:
    """Return what most cells of a column are, given how many rows have each; None for anything else."""
    cells = {cell: rows for cell, rows in counts.items() if cell}

    def most(is_one: Callable[[str], bool]) -> bool:
        return 2 * sum(rows for cell, rows in cells.items() if is_one(cell)) > sum(cells.values())

    if most(lambda cell: cell in RELATIONS):
        return "relations"
    if most(lambda cell: cell.lower() in TYPES):
        return "types of measurement"
    if most(_is_clear_unit) or (any(len(cell) > 1 for cell in cells) and all(map(is_unit, cells))):
        return "units"
    return None


def _is_clear_unit(text: str) -> bool:
    """Return whether a text is a unit, and no ordinary word such as `min` or `day`."""
    return similar_unit(text) is not None or (is_unit(text) and not text.isalnum())
