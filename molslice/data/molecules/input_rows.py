"""The rows of files that become a store, read once with a running checksum."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from molslice.data.molecules import prepare
from molslice.data.molecules.input_files import name_of
from molslice.data.molecules.side_columns import SideColumns
from molslice.data.molecules.tables import MoleculeTable, check_decimal_mark, find_classes
from molslice.files.lines import STDIN
from molslice.files.progress import BYTES, Progress
from molslice.files.tables import DEFAULT_FORMAT, Chunk, NumberFormat, numbers
from molslice.types import MolsliceError

PARALLEL_BYTES = 1 << 20  # smaller files take less time than starting worker processes


class Piece(NamedTuple):
    """Consecutive rows of the input.

    Attributes:
        chunk: The rows.
        smiles: Their SMILES.
        digest: Checksum of these and all earlier rows.
        position: Bytes of the files read so far.
    """

    chunk: Chunk
    smiles: list[str]
    digest: str
    position: int


def target_values(chunk: Chunk, targets: Sequence[str], how: NumberFormat) -> np.ndarray:
    """Return the targets of a chunk, float64 [rows, T]. A store rounds them to float32.

    Raises:
        MolsliceError: A cell is not a number.
    """
    values = np.empty((len(chunk), len(targets)))
    for place, name in enumerate(targets):
        values[:, place] = numbers(chunk[name], name, chunk.where, how)
    return values


class InputRows:
    """The rows of the input, with a running checksum.

    Attributes:
        name: The files, for messages.
        digest: Checksum of all rows read so far.
        side: The columns beside the targets that say what their numbers mean.

    Raises:
        MolsliceError: A column is missing, or given twice.
    """

    def __init__(
        self, table: MoleculeTable, targets: Sequence[str], written: NumberFormat = DEFAULT_FORMAT
    ) -> None:
        for place, name in enumerate(targets):
            if name in targets[:place]:
                raise MolsliceError(f"the target {name!r} is given twice")
            if table.find(name) == table.find(table.smiles_column):
                raise MolsliceError(f"the column {name!r} cannot be both the SMILES and a target")
        check_decimal_mark(table, targets, written.decimal)
        self.table, self.targets = table, list(targets)
        self.written, meanings = find_classes(table, targets, written)
        table.findings += meanings
        self.side = SideColumns(table, targets)
        self.name, self.size, self.digest = name_of(table.paths), table.size, ""

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [self.table.smiles_column, *self.targets, *self.side.names]

    def __iter__(self) -> Iterator[Piece]:
        for chunk in self.table.chunks(prepare.CHUNK_ROWS, self.columns):
            yield self.piece(chunk, self.table.position)

    def piece(self, chunk: Chunk, position: int) -> Piece:
        """Add the next chunk to the checksum; `position` is the number of bytes of the files read so far."""
        self.side.add(chunk)
        smiles = chunk[self.table.smiles_column]
        cells = smiles, [chunk[name] for name in self.targets], chunk.errors
        self.digest = hashlib.sha256(f"{self.digest}{cells!r}".encode()).hexdigest()
        return Piece(chunk, smiles, self.digest, position)

    @property
    def is_small(self) -> bool:
        """Whether starting worker processes takes longer than reading the rows."""
        return self.size < PARALLEL_BYTES and STDIN not in self.table.paths

    def progress(self, what: str, shown: bool) -> Progress:
        """Show how many bytes of the input are done."""
        return Progress(what, self.size or None, BYTES, shown=shown)
