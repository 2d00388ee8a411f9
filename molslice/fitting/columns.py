"""The columns of a table that a fit uses: their names, and what each is for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.side_columns import SideColumns, split_unit
from molslice.data.molecules.tables import MoleculeTable
from molslice.files.tables import trimmed
from molslice.files.urls import File
from molslice.fitting.data import FitOptions
from molslice.fitting.first_checks import SPLITS, check_split
from molslice.folders.fitted import ROW_COLUMNS, ROWS, row_columns
from molslice.types import MolsliceError

CHUNK_ROWS = 10_000


def checked_targets(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the measured columns.

    Raises:
        MolsliceError: There is no name, a name occurs twice, or one is not text.
    """
    names = checked_columns("target", columns)
    if not names:
        raise MolsliceError("give at least one target column")
    return names


def checked_columns(role: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns, which have the role `target` or `condition`.

    Raises:
        MolsliceError: A name occurs twice, or one is not text.
    """
    names = (columns,) if isinstance(columns, str) or not isinstance(columns, Iterable) else tuple(columns)
    if not all(isinstance(name, str) for name in names):
        raise MolsliceError(f"{role}s must be names of columns, got {names!r}")
    if twice := [name for name, count in Counter(name.strip() for name in names).items() if count > 1]:
        raise MolsliceError(f"the {role} {twice[0]!r} is given twice")
    return names


def names_without_units(columns: Sequence[str], units: str | Sequence[str | None] | None) -> tuple[str, ...]:
    """Return the name of each target: its column, without a unit in brackets at the end.

    Brackets stay if the user says with "" that the target has no unit, or if a target or a column of
    `rows.csv` would then have the same name. `units` are as in `checked_units`.
    """
    given = (units,) * len(columns) if units is None or isinstance(units, str) else units
    plain = [split_unit(column)[0] for column in columns]
    counts = Counter(name.strip() for name in plain)
    return tuple(
        name if asked != "" and counts[name.strip()] == 1 and name not in ROW_COLUMNS else column
        for column, name, asked in zip(columns, plain, given, strict=True)
    )


def columns_of_targets(
    option: str, columns: str | Sequence[str | None] | None, names: Sequence[str]
) -> tuple[str | None, ...] | None:
    """Return the column beside each target that an option names; None if it is not given.

    A target whose column is None or "" has no column, None.

    Raises:
        MolsliceError: It is not one column, or one for each target.
    """
    if columns is None:
        return None
    given = (columns,) * len(names) if isinstance(columns, str) else tuple(columns)
    if len(given) == 1:
        given *= len(names)
    if len(given) != len(names) or not all(column is None or isinstance(column, str) for column in given):
        raise MolsliceError(
            f"{option} must be one column, or one for each target ({len(names)}), got {columns!r}"
        )
    return tuple(column or None for column in given)


def check_roles(path: File, table: MoleculeTable, targets: Sequence[str], options: FitOptions) -> None:
    """Check that no column has two roles that exclude each other.

    Raises:
        MolsliceError: One has, or a column is missing, or the split is no column or needs another option.
    """
    roles = {table.find(table.smiles_column): "the SMILES (--smiles-column names another one)"}

    def check(role: str, names: Iterable[str | None] | None, *, exclusive: bool = False) -> None:
        for name in names or ():
            if name is not None:
                place = table.find(name)
                if place in roles:
                    raise MolsliceError(
                        f"{path}: the column {name!r} cannot be both {role} and {roles[place]}"
                    )
                if exclusive:
                    roles[place] = role

    check("a target", targets, exclusive=True)
    columns = [trimmed(name) for name in table.names]
    check_split(options.split, table.names)
    if options.split == "time" and options.by is None:
        raise MolsliceError("the split time needs the column of the dates: --by COLUMN (by)")
    if options.by is not None and options.split != "time":
        raise MolsliceError(f"--by (by) is for the split time, but the split is {options.split!r}")
    check("the dates", [options.by])
    check("the groups", [options.groups])
    check("a weight", [options.weight])
    check("an error", options.errors)
    check("a relation", options.relations)
    check("a unit", options.unit_columns)
    if options.split not in SPLITS:  # it may be a target, as in older versions
        roles.setdefault(table.find(options.split), "the split")
    for place in (
        place for place, name in enumerate(columns) if name in {*ROW_COLUMNS, *row_columns(targets)}
    ):
        roles.setdefault(place, f"a column of {ROWS}; rename it")
    check("the second molecule", [options.partner_column], exclusive=True)
    check("a condition", options.conditions, exclusive=True)


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of the columns of a table that a fit uses.

    Attributes:
        columns: The cells of each column by name.
        places: Location of each row, for messages.
        origins: The file, the row and the line of each row; see `Chunk`.
    """

    columns: dict[str, list[str]]
    places: list[str]
    origins: list[tuple[str, int, int | None]] = field(default_factory=list)

    @classmethod
    def read(cls, table: MoleculeTable, columns: Iterable[str], side: SideColumns) -> "Cells":
        """Read all rows; `side` counts its cells.

        Raises:
            MolsliceError: There are no rows.
        """
        cells = cls({name: [] for name in columns}, [])
        for chunk in table.chunks(CHUNK_ROWS, [*cells.columns, *side.names]):
            side.add(chunk)
            for name, texts in cells.columns.items():
                texts += chunk[name]
            cells.places.extend(map(chunk.where, range(len(chunk))))
            numbers = range(chunk.first, chunk.first + len(chunk))
            cells.origins.extend(zip([chunk.path.name] * len(chunk), numbers, chunk.lines, strict=True))
        if not cells.places:
            raise MolsliceError(f"{name_of(table.paths)} has no rows")
        return cells

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, column: str) -> list[str]:
        return self.columns[column]

    def where(self, row: int) -> str:
        """Describe a row for messages."""
        return self.places[row]
