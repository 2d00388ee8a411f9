"""Convert files of molecules to a store: in parallel, in bounded memory, and continued after an interruption.

The rows that are finished are kept in a folder `STORE.partial` beside the final one. It contains the growing
arrays and, in `progress.json`, how much of them is finished. The same command reads the input from the
beginning, compares it with a running checksum of the finished rows, and continues after them. The complete
folder is renamed. A store therefore does not depend on interruptions or on the number of processes.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, GEOMETRY_VERSION
from molslice.data.molecules import prepare
from molslice.data.molecules.input_rows import InputRows, Piece, target_values
from molslice.data.molecules.prepare import Featurizing, check_featurizing, featurize_chunk
from molslice.data.molecules.refusals import check_all_read, failure_text
from molslice.data.molecules.report import Tally
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import ABOUT, HEADER, SCHEMA_VERSION, current_versions, read_header
from molslice.data.molecules.store_writer import ERRORS, StoreWriter
from molslice.data.molecules.tables import (
    Structure,
    open_molecules,
)
from molslice.data.target_values import check_outliers
from molslice.files.atomic import UnwritableError, is_taken, move_folder, write_atomically
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.processes import WorkerPool
from molslice.files.progress import Progress
from molslice.files.tables import DEFAULT_FORMAT, READER_VERSION, Chunk, NumberFormat
from molslice.files.urls import File, is_url
from molslice.types import MolsliceError

PROGRESS, CONTENT = "progress.json", "store"  # in the partial folder
SAVE_SECONDS = 5.0  # of work that a killed process may lose
COMPARED_ROWS = 1_000_000  # rows of a store whose targets are compared, at most


Converted = Generator[tuple[Piece, MoleculeStore], None, None]
Engine = Callable[[InputRows, Featurizing, Chunk | None], Converted]  # continues after a chunk


@dataclass(frozen=True, slots=True)
class PreparedStore:
    """A complete store.

    Attributes:
        path: The folder.
        report: What the store contains; see `Tally.report`. The header contains it too.
        findings: What was found in the input, one sentence each.
        notices: What may be wrong with the targets, one sentence each.
        continued: Number of rows that earlier runs had finished.
        seconds: Time of this run.
    """

    path: Path
    report: Mapping[str, Any]
    findings: Sequence[str]
    notices: Sequence[str]
    continued: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rate of this run; 0 if it had nothing to do."""
        return (self.report["rows"] - self.continued) / max(self.seconds, 1e-9)


def partial_folder(out: str | os.PathLike[str]) -> Path:
    """Return the folder beside a store that keeps finished rows until the store is complete."""
    final = Path(os.path.realpath(out))
    return final.with_name(f"{final.name}.partial")


def prepare_files(
    paths: Sequence[str | File],
    out: str | os.PathLike[str],
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    targets: Sequence[str] = (),
    decimal: str | None = None,
    missing_values: Sequence[float | str] = (),
    how: Featurizing,
    engine: Engine | None = None,
    strict: bool = False,
    progress: bool = True,
) -> PreparedStore:
    """Convert the rows of one or several files to a store.

    A row that cannot be read keeps its number, with the reason. If `out` was made by the same call from the
    same rows, it is kept.

    Args:
        paths: Files, URLs and patterns in the formats of `open_molecules`; `-` is standard input.
        out: The folder of the store.
        smiles_column: The column of SMILES; None finds it.
        delimiter: The character between cells; None finds it.
        targets: Columns of numbers; an empty cell has no value.
        decimal: The decimal mark of the numbers, `.` or `,`; with `,`, a point separates thousands.
        missing_values: Cells that have no value either, such as -999 or `n.d.`.
        how: How to convert the molecules.
        engine: Converts them elsewhere; by default this program does.
        strict: Whether to stop at the first row that fails. The rows before it are kept for the same command
            with a corrected input.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: An option or a file is invalid, no row has a molecule, a row
            fails although `strict` is set, `out` or its partial folder
            contains something else, or the disk is full. The message says whether finished rows are kept.
        KeyboardInterrupt: Stopped by Ctrl-C. The message says how to continue.
    """
    check_featurizing(how)
    if is_url(str(out)):
        raise MolsliceError(f"{out} is a URL; the folder of a store is local")
    start, final = time.monotonic(), Path(os.path.realpath(out))
    with open_molecules(paths, smiles_column=smiles_column, delimiter=delimiter, convert=False) as table:
        written = NumberFormat(decimal, tuple(missing_values))
        rows = InputRows(table, targets, written)
        identity = {
            "files": [str(path) for path in table.paths],
            "smiles_column": table.smiles_column,
            "delimiter": delimiter,
            "targets": list(targets),
            "max_atoms": how.max_atoms,
            "atom_order": how.atom_order,
            "descriptors": DESCRIPTORS_VERSION if how.descriptors else None,
            "reader": READER_VERSION,
            "schema": SCHEMA_VERSION,
            "versions": current_versions(),
            **({"geometry": GEOMETRY_VERSION} if how.geometry else {}),
            **({} if how.fragment == "keep" else {"fragment": how.fragment}),
            **({} if how.wildcards == "refuse" else {"wildcards": how.wildcards}),
            **({} if written == DEFAULT_FORMAT else {"decimal": decimal, "missing": list(missing_values)}),
        }
        report, continued = None, 0
        if not is_taken(final):
            with _reserved(final) as folder:
                if _is_complete(folder):  # killed between the last two steps
                    move_folder(folder / CONTENT, final)
                else:
                    work = _Preparation(final, folder, identity, rows, how, engine, strict)
                    report, continued = work.run(progress), work.continued
                    shutil.rmtree(folder, ignore_errors=True)
        if report is None:
            report = _of_finished(final, identity, rows, progress)
            continued = report["rows"]
            if strict:
                check_all_read(report["refusals"], final)
            _remove_leftover(partial_folder(final))
        seconds = time.monotonic() - start
        return PreparedStore(final, report, table.findings, _notices(final, rows), continued, seconds)


def _notices(final: Path, rows: InputRows) -> list[str]:
    """Name what may be wrong with the targets of a finished store.

    Of many rows, evenly spaced ones are compared, so that memory does not grow with their number.
    """
    if not rows.targets:
        return []
    targets = np.load(final / "targets.npy", mmap_mode="r", allow_pickle=False)
    step = -(-len(targets) // COMPARED_ROWS)
    outliers = check_outliers(
        targets[::step], rows.targets, str(final), lambda row: f"row {row * step + 1}", "keep"
    )
    compared = f" (every {step}th row was compared)" if step > 1 else ""
    advice = "Training refuses the store, unless data.outliers is keep; prepare it with --missing-value"
    return [*rows.side.notices(), *(f"{text}{compared}. {advice}" for text in outliers)]


@contextlib.contextmanager
def _reserved(final: Path) -> Iterator[Path]:
    """Create or find the partial folder, and hold its lock. A folder without finished rows is removed."""
    folder = partial_folder(final)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(error.errno, error.strerror, str(final)) from error
    with lock_folder(folder):
        try:
            yield folder
        finally:
            if not (folder / PROGRESS).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _is_complete(folder: Path) -> bool:
    return (folder / CONTENT / HEADER).exists() and not (folder / CONTENT / ERRORS).exists()


def _remove_leftover(folder: Path) -> None:
    """Remove the partial folder of a process that was killed after the store was complete."""
    if (folder / PROGRESS).exists() and not (folder / CONTENT).exists():
        shutil.rmtree(folder, ignore_errors=True)


def _checksum(state: object) -> str:
    """Return the SHA-256 of JSON values."""
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _differences(then: object, now: Mapping[str, Any]) -> str:
    """Describe the differences between two identities; empty if they are equal."""
    if not isinstance(then, dict):
        return "unknown options"
    flat, flat_now = ({**identity, **identity.get("versions", {})} for identity in (then, now))
    names = [
        name for name in {**flat_now, **flat} if name != "versions" and flat.get(name) != flat_now.get(name)
    ]
    return ", ".join(f"{name} was {json.dumps(flat.get(name))}" for name in names)


def _of_finished(final: Path, identity: Mapping[str, Any], rows: InputRows, progress: bool) -> dict[str, Any]:
    """Return the report of an existing store after a comparison with the input."""
    advice = "delete it, or choose another folder for the store"
    try:
        about = read_header(final).get("about")
    except MolsliceError as error:
        raise MolsliceError(f"{final} exists and is not a store of molecules; {advice}") from error
    if not isinstance(about, dict) or ABOUT not in about:
        raise MolsliceError(f"{final} exists and is another kind of store; {advice}")
    different = _differences(about[ABOUT], identity)
    if not different:
        with rows.progress("comparing", progress) as bar:
            for piece in rows:
                bar.move(piece.position)
        if rows.digest != about["rows_sha256"]:
            different = f"the rows of {rows.name} have changed"
    if different:
        raise MolsliceError(f"{final} exists and has different content ({different}); {advice}")
    report = about["report"]
    return {"failed": report["rows"] - report["molecules"], **report}  # earlier versions named it otherwise


def convert_on_cluster(rows: InputRows, how: Featurizing, reached: Chunk | None) -> Converted:
    """Convert the rows of files in the workers of a cluster, by default on all its cores; an `Engine`.

    The parts equal the parts of one process, in the same order.

    Raises:
        MolsliceError: As in `MoleculeTable.map_on_cluster`.
    """
    work = _Featurizer(rows.table.smiles_column, rows.targets, rows.written, how)
    for chunk, store, position in rows.table.map_on_cluster(
        work, prepare.CHUNK_ROWS, rows.columns, reached=reached, workers=how.workers or None
    ):
        yield rows.piece(chunk, position), store


@dataclass(frozen=True, slots=True)
class _Featurizer:
    """Converts a chunk, and returns it with the requested columns only."""

    column: str
    targets: Sequence[str]
    written: NumberFormat
    how: Featurizing

    def __call__(self, item: tuple[Chunk, int]) -> tuple[Chunk, MoleculeStore, int]:
        chunk, position = item
        values = target_values(chunk, self.targets, self.written)
        store = featurize_chunk(chunk[self.column], values, self.how)
        cells = [[row[place] for place in chunk.columns.values()] for row in chunk.cells]
        columns = {name: place for place, name in enumerate(chunk.columns)}
        return Chunk(chunk.path, chunk.first, columns, cells, chunk.lines, chunk.errors), store, position


class _ChangedError(MolsliceError):
    """Error for finished rows that differ from the input."""


@dataclass
class _Preparation:
    """A store that is being written. A partial folder with finished rows of another store is an error."""

    final: Path
    folder: Path
    identity: Mapping[str, Any]
    rows: InputRows
    how: Featurizing
    engine: Engine | None
    strict: bool

    def __post_init__(self) -> None:
        self.digest, self.consistent, self.useless = "", True, False
        saved = self._find_saved()
        self.continued = self.finished = saved["writer"]["rows"] if saved else 0
        if saved is None:
            shutil.rmtree(self.folder / CONTENT, ignore_errors=True)
            (self.folder / CONTENT).mkdir()
        self.expected = saved["digest"] if saved else ""
        self.tally = Tally(self.rows.targets, saved and saved["tally"])
        self.writer = StoreWriter(
            self.folder / CONTENT,
            target_names=self.rows.targets,
            **self.how.optional,
            saved=saved and saved["writer"],
        )

    def _find_saved(self) -> dict[str, Any] | None:
        path = self.folder / PROGRESS
        if not path.exists():
            return None
        content = read_json_object(path)
        saved = content.get("state", {})
        if content.get("sha256") != _checksum(saved):
            raise MolsliceError(f"{path} is damaged; delete {self.folder} to start again")
        different = _differences(saved.get("identity"), self.identity)
        if different:
            raise MolsliceError(
                f"{self.folder} has the finished rows of another preparation ({different}); delete it to "
                "start again, or choose another folder for the store"
            )
        return saved

    def run(self, progress: bool) -> dict[str, Any]:
        """Convert the remaining rows and complete the store; returns the report."""
        if self.strict:
            check_all_read(self.tally.refusals.report(), self.folder)
        with self.writer:
            try:
                pieces = iter(self.rows)
                with self.rows.progress("continuing" if self.continued else "preparing", progress) as bar:
                    reached = self._skip(pieces, bar)
                    if self.engine is None:
                        converted = self._in_this_program(pieces)
                    else:
                        converted = self.engine(self.rows, self.how, reached)
                    self._convert(converted, bar)
                self._complete()
            except BaseException as error:
                explained = self._explained(error)
                if explained is error:
                    raise
                raise explained from error
        return self.tally.report()

    def _skip(self, pieces: Iterator[Piece], bar: Progress) -> Chunk | None:
        """Read the finished rows again; returns the last chunk of them."""
        rows, chunk = 0, None
        while rows < self.continued:
            piece = next(pieces, None)
            if piece is None:
                break
            chunk = piece.chunk
            rows, self.digest = rows + len(chunk), piece.digest
            bar.move(piece.position)
        if (rows, self.digest) != (self.continued, self.expected):
            raise _ChangedError(
                f"the first {self.continued:,} rows of {self.rows.name} have changed since {self.folder} was "
                "written; delete it to start again, or choose another folder for the store"
            )
        return chunk

    def _in_this_program(self, pieces: Iterator[Piece]) -> Converted:
        waiting: deque[Piece] = deque()  # read but not yet converted

        def tasks() -> Iterator[tuple[Any, ...]]:
            for piece in pieces:
                waiting.append(piece)
                values = target_values(piece.chunk, self.rows.targets, self.rows.written)
                yield piece.smiles, values, self.how

        workers = prepare.number_of_workers(self.how.workers, is_small=self.rows.is_small)
        with WorkerPool(workers, prepare.WORK) as pool:
            for store in pool.map(featurize_chunk, tasks()):
                yield waiting.popleft(), store

    def _convert(self, converted: Converted, bar: Progress) -> None:
        with contextlib.closing(converted):
            start = last = time.monotonic()
            for piece, store in converted:
                self.consistent = False
                shown = ["" if isinstance(text, Structure) else text for text in piece.smiles]
                if self.strict and store.errors:
                    row = min(store.errors)
                    raise MolsliceError(failure_text(piece.chunk.where(row), shown[row], store.errors[row]))
                self.writer.append(store)
                self.tally.add(store, shown, piece.chunk.where)
                self.digest, self.consistent = piece.digest, True
                now = time.monotonic()
                if now - last >= SAVE_SECONDS:
                    self._save()
                    last = now
                rate = (self.writer.rows - self.continued) / max(now - start, 1e-9)
                bar.annotate(f"{self.writer.rows:,} rows, {rate:,.0f}/s")
                bar.move(piece.position)

    def _complete(self) -> None:
        self.useless = True  # unless the checks pass
        if not self.tally.rows:
            raise MolsliceError(f"{self.rows.name} has no rows")
        if not self.tally.molecules:
            first = next(iter(self.tally.refusals.kinds.values()))["examples"][0]
            raise MolsliceError(
                f"cannot read any of the {self.tally.rows:,} SMILES of {self.rows.name}; the first, "
                f"{failure_text(**first)}"
            )
        self.tally.targets.check_rounding(self.rows.name)
        self.useless = False
        self._save()  # a full disk must not cost the last rows
        about = {ABOUT: self.identity, "rows_sha256": self.digest, "report": self.tally.report()}
        self.writer.finish(self.rows.name, self.identity["versions"], about)
        move_folder(self.folder / CONTENT, self.final)

    def _save(self) -> None:
        state = {
            "identity": self.identity,
            "digest": self.digest,
            "tally": self.tally.state,
            "writer": self.writer.save(),
        }
        write_atomically(self.folder / PROGRESS, json.dumps({"sha256": _checksum(state), "state": state}))
        self.finished = self.writer.rows

    def _explained(self, error: BaseException) -> BaseException:
        """Keep the finished rows, and return the error with a message that says so."""
        if isinstance(error, _ChangedError):
            return error
        if self.consistent and self.writer.rows > self.finished:
            with contextlib.suppress(OSError, ValueError):  # the disk is full, or the files are closed
                self._save()
        if not self.finished or self.useless:
            shutil.rmtree(self.folder, ignore_errors=True)
            kept = ""
        else:
            kept = f"; {self.finished:,} finished rows are kept, and the same command continues after them"
        if isinstance(error, KeyboardInterrupt):
            return KeyboardInterrupt(f"interrupted{kept}")
        if isinstance(error, MolsliceError):
            return MolsliceError(f"{error}{kept}")
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            return MolsliceError(f"cannot write {self.final}: {reason}{kept}")
        return error
