"""Tables of molecules: one or several files of any format, read as one table with a column of SMILES."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from molslice.data.molecules.input_files import bytes_on_disk, find_files, name_of
from molslice.data.molecules.limits import split_limits
from molslice.data.molecules.smiles_column import SMILES_NAMES, find_smiles_column, other_notation
from molslice.errors import MolsliceError
from molslice.files.lines import STDIN, is_pipe
from molslice.files.ray_data import ray_map
from molslice.files.tables import (
    Chunk,
    NumberFormat,
    Row,
    Table,
    Unreadable,
    class_words,
    open_table,
    trimmed,
)
from molslice.files.tables.delimited import DelimitedTable
from molslice.files.tables.sdf import STRUCTURE, SdfTable
from molslice.files.urls import File

NOTATION_ROWS = 5  # few, so that damage below is found with the rows before it
CLASS_ROWS = 50
ASKED_ROWS = 10_000
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_GROUP_OR_DECIMALS = re.compile(r"[+-]?\d{1,3}\.\d{3}([eE][+-]?\d+)?")
_NO_DECIMAL_POINT = re.compile(r"[+-]?\d+(\.\d{3})*(,\d*([eE][+-]?\d+)?|\.\d{3}\.\d{3})")


class Structure(str):
    """A connection table in a cell for a SMILES."""

    __slots__ = ()

    def to_smiles(self) -> str:
        """Return the SMILES; an `Unreadable` if RDKit cannot read the table."""
        from molslice.chem.molblock import molblock_to_smiles  # both need rdkit
        from molslice.chem.smiles import ChemError

        try:
            return molblock_to_smiles(self)
        except ChemError as error:
            return Unreadable(str(error))


class MoleculeTable:
    """The rows of one or several files with the same columns, one after the other.

    Attributes:
        paths: The files.
        names: The column names of the first file that has names; they may repeat or be empty.
        smiles_column: The column of SMILES.
        delimiter: The character between cells of the first file; None for other formats.
        schema: pyarrow's schema if all files with rows are Parquet with the same types; None otherwise.
        findings: What was found, one sentence each.
    """

    def __init__(
        self,
        tables: Iterator[Table],
        paths: Sequence[File],
        smiles_column: str | None,
        delimiter: str | None = None,
        convert: bool = True,
    ) -> None:
        self.paths, self._tables, self._options = list(paths), tables, (delimiter, convert)
        first = self._table = next(tables)
        self._done = 0  # bytes of the files that are read
        self._skipped = 0  # files without rows at the beginning
        while self._skipped + 1 < len(self.paths) and not self._table.peek(1):
            self._done += bytes_on_disk(self.paths[self._skipped])
            self._skipped += 1
            self._table = next(tables)
            first = first if first.names else self._table
        if not first.names:  # all files are empty
            first.names = [smiles_column or SMILES_NAMES[0]]
        self._first, self.names, self.schema = first, first.names, self._table.schema
        self.delimiter = first.delimiter if isinstance(first, DelimitedTable) else None
        detected = smiles_column is None
        if smiles_column is None:
            described = self._table if self._table.peek(1) else first
            structures = isinstance(described, _Structures)
            smiles_column = described.names[0] if structures else find_smiles_column(described)
        self.smiles_column = smiles_column
        place = self.find(self.smiles_column)
        if other := other_notation([cells[place] for cells in self.peek(NOTATION_ROWS)]):
            raise MolsliceError(
                f"{name_of(self.paths)}: the column {self.smiles_column!r} contains {other[0]}, not SMILES. "
                f"{other[1]}, or name another column: --smiles-column, or --data.smiles-column"
            )
        more = f", the first of {len(self.paths)} files" if self.paths[1:] else ""
        self.findings = [
            f"{name_of(self.paths[:1])}{more}: {self._table.format}",
            f"SMILES: column {self.smiles_column!r}" + " (detected)" * detected,
        ]

    def find(self, name: str) -> int:
        """Return the index of a column; see `Table.find`.

        Raises:
            MolsliceError: The column is missing or occurs more than once.
        """
        return self._first.find(name)

    def peek(self, size: int) -> list[list[str]]:
        """Return the cells of the first readable rows, of at most `size`, and keep them for `chunks`."""
        order = _order(self._table, self.names, self.paths[0])
        rows = [row.cells for row in self._table.peek(size) if row.error is None]
        return [[cells[place] for place in order] for cells in rows]

    @property
    def size(self) -> int:
        """Number of bytes of all files on the disk; standard input counts as 0."""
        return sum(map(bytes_on_disk, self.paths))

    @property
    def position(self) -> int:
        """Number of bytes of all files read so far, for progress bars."""
        return self._done + self._table.position

    def chunks(self, size: int, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield all rows in chunks of at most `size`, each from one file, with columns as in the first file.

        A file with column names and no rows yields nothing.

        Raises:
            MolsliceError: A column is missing or not unique (raised by the call itself), or a file is
                damaged or has other columns than the first (raised by the iteration).
        """
        return self._chunks(size, {column: self.find(column) for column in columns})

    def map_on_cluster(
        self,
        work: Callable[[tuple[Chunk, int]], tuple[Chunk, Any, int]],
        size: int,
        columns: Sequence[str],
        *,
        reached: Chunk | None = None,
        workers: int | None = None,
        gpus: int = 0,
    ) -> Iterator[tuple[Chunk, Any, int]]:
        """Convert chunks in the workers of a cluster, which read the files too; yields the results in order.

        Args:
            work: Takes a chunk and the number of bytes of its file read so far; returns both with a result
                in the middle. The numbers that are yielded count the bytes of all files.
            size: Maximum number of rows of a chunk.
            columns: Names of the requested columns.
            reached: The last chunk that is finished; None starts at the first row.
            workers: As in `ray_map`.
            gpus: As in `ray_map`.

        Raises:
            MolsliceError: As in `chunks` and `ray_map`, or a file is standard input.
        """
        if STDIN in self.paths:
            raise MolsliceError("--engine ray cannot read standard input; give files")
        places = {column: self.find(column) for column in columns}
        split = FileChunks(self.names, self.paths[0], places, size, *self._options)
        parts = [(path, 0) for path in self.paths]
        if reached is not None:
            parts = parts[self.paths.index(reached.path) :]
            parts[0] = reached.path, reached.first + len(reached) - 1
        sizes = itertools.accumulate(map(bytes_on_disk, self.paths[:-1]), initial=0)
        before = dict(zip(self.paths, sizes, strict=True))
        for chunk, result, position in ray_map(parts, work, split=split, workers=workers, gpus=gpus):
            yield chunk, result, before[chunk.path] + position

    def _chunks(self, size: int, places: dict[str, int]) -> Iterator[Chunk]:
        yield from _reordered(self._table, self.names, self.paths[0], size, places)
        for before, table in zip(self.paths[self._skipped :], self._tables, strict=False):
            self._done += bytes_on_disk(before)
            self._table = table
            yield from _reordered(table, self.names, self.paths[0], size, places)


@dataclass(frozen=True, slots=True)
class FileChunks:
    """Reads the rows of one of the files of a table, in another process than the table.

    Attributes:
        names: The columns of the table.
        first: The first file of the table.
        columns: Index in `names` of each requested column.
        size: Maximum number of rows of a chunk.
        delimiter: As in `open_molecules`.
        convert: As in `open_molecules`.
    """

    names: Sequence[str]
    first: File
    columns: Mapping[str, int]
    size: int
    delimiter: str | None
    convert: bool = True

    def __call__(self, start: tuple[File, int]) -> Iterator[tuple[Chunk, int]]:
        """Yield the chunks of a file after a number of rows, and the number of bytes read so far."""
        path, skipped = start
        with open_table(path, self.delimiter) as opened:
            table = _as_smiles(opened, self.convert)
            for chunk in _reordered(table, self.names, self.first, self.size, self.columns):
                if chunk.first > skipped:
                    yield chunk, table.position
                elif chunk.first + len(chunk) - 1 > skipped:
                    raise MolsliceError(
                        f"cannot continue after row {skipped} of {path}: its chunk ends at row "
                        f"{chunk.first + len(chunk) - 1}"
                    )


@contextmanager
def open_molecules(
    paths: Sequence[str | File],
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    convert: bool = True,
) -> Iterator[MoleculeTable]:
    """Open one or several files of molecules.

    Without `smiles_column`, the column of SMILES has a usual name such as `smiles`, or is the only one whose
    first cells are SMILES. A name such as `molecule` is taken if its cells are SMILES, or no others are.

    Args:
        paths: Files, URLs and patterns such as `parts/*.csv`; `-` is standard input.
        smiles_column: The column of SMILES; None finds it.
        delimiter: The character between cells; None finds it.
        convert: Whether to convert the structures of SD files to SMILES. Otherwise their cells are
            `Structure`.

    Raises:
        MolsliceError: A file does not exist, is empty or damaged, the files have different columns, or the
            column of SMILES is missing or not clear.
    """
    files = find_files(paths)
    for path in files[1:]:  # their columns are read before their rows, a pipe only once
        if is_pipe(path):
            raise MolsliceError(
                f"{name_of([path])} must be the first input, because it can be read only once"
            )
    with ExitStack() as stack:
        tables = (_opened(stack, path, delimiter, convert) for path in files)
        table = MoleculeTable(tables, files, smiles_column, delimiter, convert)
        for path in files[1:]:  # found before any row is read
            with open_table(path, delimiter) as other:
                _order(_as_smiles(other, convert), table.names, files[0])
                if _types(other.schema) != _types(table.schema) and other.peek(1):
                    table.schema = None
        yield table


def _types(schema: Any) -> list[tuple[str, str]]:  # noqa: ANN401
    """Return the names and types of the columns of a schema of pyarrow; nothing for None."""
    return [] if schema is None else sorted((field.name, str(field.type)) for field in schema)


def _opened(stack: ExitStack, path: File, delimiter: str | None, convert: bool) -> Table:
    """Open the next file, and close the one before."""
    stack.close()
    return _as_smiles(stack.enter_context(open_table(path, delimiter)), convert)


def _as_smiles(table: Table, convert: bool) -> Table:
    return _Structures(table, convert) if isinstance(table, SdfTable) else table


def _reordered(
    table: Table, names: Sequence[str], first: File, size: int, places: Mapping[str, int]
) -> Iterator[Chunk]:
    """Yield the chunks of a table with the columns `names` of the file `first`, in its order."""
    if not table.names:  # an empty file
        return
    order = _order(table, names, first)
    for chunk in table.chunks(size, list(places)):
        cells = chunk.cells
        if order != list(range(len(names))):
            cells = [[row[place] for place in order] for row in cells]
        yield Chunk(chunk.path, chunk.first, places, cells, chunk.lines, chunk.errors)


def _order(table: Table, names: Sequence[str], first: File) -> list[int]:
    """Return the index of each of the columns `names` of the file `first`; an empty file fits."""
    if table.names == names or not table.names:
        return list(range(len(names)))
    names_there, wanted = [trimmed(name) for name in table.names], [trimmed(name) for name in names]
    if sorted(names_there) == sorted(wanted) and len(set(wanted)) == len(wanted):
        return [names_there.index(name) for name in wanted]
    different = sorted(set(names_there) ^ set(wanted)) or ["a repeated one"]
    raise MolsliceError(f"{table.path} has other columns than {first}: {', '.join(map(repr, different))}")


class _Structures(Table):
    """An SD file with SMILES in place of its structures."""

    def __init__(self, table: SdfTable, convert: bool) -> None:
        super().__init__(table.path, table.opened)
        self._convert, self.format = convert, table.format
        self.rows = map(self._converted, table.rows)
        taken = {name.lower() for name in table.names}
        column = "smiles"
        while column in taken:
            column += "_of_structure"
        self.names = [column if name == STRUCTURE else name for name in table.names]
        self._column = table.names.index(STRUCTURE) if table.names else 0

    def _converted(self, row: Row) -> Row:
        cells, error = list(row.cells), row.error
        structure = smiles = Structure(cells[self._column])
        if self._convert:
            smiles = structure.to_smiles() if error is None else ""
            error = smiles.reason if isinstance(smiles, Unreadable) else error
        cells[self._column] = smiles
        return row._replace(cells=cells, error=error)


def find_classes(
    table: MoleculeTable, columns: Sequence[str], how: NumberFormat
) -> tuple[NumberFormat, list[str]]:
    """Find whether the targets of a table are classes that are written as words, by its first rows.

    Returns:
        How the targets are written, and what the words mean, a sentence for each column that has some.
    """
    if not columns:
        return how, []
    rows, places = table.peek(CLASS_ROWS), [table.find(name) for name in columns]
    cells = {name: [row[place] for row in rows] for name, place in zip(columns, places, strict=True)}
    words = class_words(cells, how)
    meanings = [f"{name}: {', '.join(meaning)}" for name, meaning in words.items()]
    return (replace(how, classes=True) if words else how), meanings


def check_decimal_mark(table: MoleculeTable, columns: Sequence[str], decimal: str | None) -> None:
    """Refuse columns of a table with semicolons whose points may separate thousands, as in `2.123` for 2123.

    It is called before rows are read, with the decimal mark that the user names.

    Raises:
        MolsliceError: Each number with a point among the first rows of a column has three digits after it.
    """
    if decimal is not None or table.delimiter != ";":
        return
    rows = table.peek(ASKED_ROWS)
    for name in columns:
        place = table.find(name)
        pointed = [cell for row in rows if "." in (cell := trimmed(row[place]))]
        if pointed and all(map(_GROUPED.fullmatch, pointed)):
            plain = pointed[0].replace(".", "")
            raise MolsliceError(
                f"{name_of(table.paths)}, column {name!r}: {pointed[0]} may mean {plain}, because all "
                "numbers with a point have three digits after it, and the delimiter is a semicolon. Name the "
                f"decimal mark: --decimal , (data.decimal) for {plain}, --decimal . for {pointed[0]}"
            )


def check_decimal_comma(table: MoleculeTable, columns: Sequence[str], options: tuple[str, str]) -> None:
    """Refuse columns whose points may be decimal marks, as in `2.123`, although the model has decimal commas.

    It is called where nobody has named the decimal mark of this table, and the one of the training counts.

    Args:
        table: The table.
        columns: Columns of numbers, which may be limits.
        options: The options that name a decimal comma and a decimal point, for messages.

    Raises:
        MolsliceError: Numbers among the first rows of a column have a point and three digits after it, and
            none has a comma or two points.
    """
    rows = table.peek(ASKED_ROWS)
    for name in columns:
        place = table.find(name)
        cells = [*map(trimmed, split_limits([row[place] for row in rows])[0])]
        first = next(filter(_GROUP_OR_DECIMALS.fullmatch, cells), None)
        if first is None or any(map(_NO_DECIMAL_POINT.fullmatch, cells)):
            continue
        comma, grouped = first.replace(".", ","), f"{float(first.replace('.', '')):g}"
        raise MolsliceError(
            f"{name_of(table.paths)}, column {name!r}: {first} may mean {comma}, but would be read as "
            f"{grouped}, because the table of the model has decimal commas. Write it as {comma} or {grouped}"
            f", or name the decimal mark: {options[0]} for {grouped}, {options[1]} for {first}"
        )
