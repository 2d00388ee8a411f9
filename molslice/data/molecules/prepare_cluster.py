"""Convert molecules on a cluster with Ray Data, for `prepare_files`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from molslice.data.molecules import prepare
from molslice.data.molecules.input_rows import InputRows, target_values
from molslice.data.molecules.prepare import Featurizing, featurize_chunk
from molslice.data.molecules.prepare_files import Converted
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.tables import FileChunks
from molslice.files.lines import STDIN
from molslice.files.ray_data import ray_map
from molslice.files.tables import Chunk, NumberFormat
from molslice.types import MolsliceError


def convert_on_cluster(
    delimiter: str | None, rows: InputRows, how: Featurizing, reached: Chunk | None
) -> Converted:
    """Convert the rows of files in the workers of a cluster; with a delimiter, this is an `Engine`.

    The files are read there too. The parts equal the parts of one process, in the same order.

    Args:
        delimiter: As in `open_molecules`.
        rows: The input.
        how: How to convert the molecules; `workers` None takes all cores of the cluster.
        reached: The last chunk that is finished; None starts at the first row.

    Raises:
        MolsliceError: As in `MoleculeTable.chunks` and `ray_map`, or the input is standard input.
    """
    table = rows.table
    if STDIN in table.paths:
        raise MolsliceError("--engine ray cannot read standard input; give files")
    column = table.smiles_column
    places = {name: table.find(name) for name in (column, *rows.targets, *rows.side.names)}
    split = FileChunks(table.names, table.paths[0], places, prepare.CHUNK_ROWS, delimiter, convert=False)
    parts = [(path, 0) for path in table.paths]
    if reached is not None:
        parts = parts[table.paths.index(reached.path) :]
        parts[0] = reached.path, reached.first + len(reached) - 1
    before = dict(zip(table.paths, table.sizes_before, strict=True))
    work = _Featurizer(column, rows.targets, rows.written, places, how)
    for chunk, packed, position in ray_map(parts, work, split=split, workers=how.workers or None):
        yield rows.piece(chunk, before[chunk.path] + position), packed


@dataclass(frozen=True, slots=True)
class _Featurizer:
    """Converts a chunk, and returns it with the requested columns only."""

    column: str
    targets: Sequence[str]
    written: NumberFormat
    places: Mapping[str, int]
    how: Featurizing

    def __call__(self, item: tuple[Chunk, int]) -> tuple[Chunk, MoleculeStore, int]:
        chunk, position = item
        values = target_values(chunk, self.targets, self.written)
        packed = featurize_chunk(chunk[self.column], values, self.how)
        cells = [[row[place] for place in self.places.values()] for row in chunk.cells]
        columns = {name: place for place, name in enumerate(self.places)}
        return Chunk(chunk.path, chunk.first, columns, cells, chunk.lines, chunk.errors), packed, position
