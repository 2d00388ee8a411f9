"""Predict uploaded files, one after the other, in a worker process of their own.

Another process, without models, writes the predictions in other formats.

The name that a client gives to a file is used in messages and in the name of the result, never as a path.
"""

import gzip
import logging
import secrets
import shutil
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from molslice.files.lock import Owner
from molslice.serve.batching import LONGEST_RETRY, QueueFullError
from molslice.serve.limits import Limits
from molslice.serve.process import WorkerLostError, WorkerProcess
from molslice.serve.schemas import FileStatus, Refusal
from molslice.types import MolsliceError

FILE_ENDINGS = (".csv", ".tsv", ".txt", ".smi", ".smiles", ".sdf", ".jsonl")
RESULT_FORMATS = ("csv", "sdf")  # without workbooks, which need openpyxl
SPREADSHEETS = (".xlsx", ".xls", ".ods")
GZIP, GZIP_ENDING = b"\x1f\x8b", ".gz"
OTHERS = (b"\x28\xb5\x2f\xfd", b"PK", b"BZh", b"\xfd7zXZ", b"PAR1", b"\xd0\xcf\x11\xe0")  # Zstandard, zip
FOLDER_PREFIX = "molslice-serve-"
PIECE = 1_000_000  # bytes unpacked at once
LONGEST_NAME = 100  # characters
STALLED_SECONDS = 120.0  # without progress

logger = logging.getLogger(__name__)


class UnpackedTooLargeError(MolsliceError):
    """Error for a packed file whose content is too large."""


class FileJob(FileStatus):
    """An uploaded file and its prediction.

    Attributes:
        folder: Where the file and its result are.
        interval: Probability of the intervals; None for no intervals.
        domain: Whether to compare the molecules with the training molecules.
        smiles_column: The column of SMILES, when it is done.
    """

    folder: Path
    interval: float | None
    domain: bool
    smiles_column: str = ""

    @property
    def ending(self) -> str:
        """The ending of the name without `.gz`, in lower case."""
        return Path(unpacked_name(self.name)).suffix.lower()

    @property
    def source(self) -> Path:
        """The uploaded file."""
        return self.folder / f"input{self.ending}"

    @property
    def result(self) -> Path:
        """The file with the predictions: JSON lines for JSON lines, CSV otherwise."""
        return self.folder / f"result{'.jsonl' if self.ending == '.jsonl' else '.csv'}"

    @property
    def shown(self) -> Path:
        """The file with the first rows and their predictions as JSON."""
        return self.folder / "rows.json"

    def result_name(self, ending: str | None = None) -> str:
        """Return the name of the result, in the format of an ending, for the client."""
        return f"{Path(unpacked_name(self.name)).stem}_predicted{ending or self.result.suffix}"


class FileJobs:
    """Predicts uploaded files in the order of their arrival, with a worker that the first file starts.

    `writer` is the worker that writes their predictions in other formats.
    """

    def __init__(self, worker: WorkerProcess, writer: WorkerProcess, limits: Limits) -> None:
        self.worker, self.writer, self.limits = worker, writer, limits
        self._folder = _new_folder()
        self._jobs: dict[str, FileJob] = {}  # in the order of their arrival
        self._lock = threading.Lock()
        self._closed = False
        self._queue = ThreadPoolExecutor(1, thread_name_prefix="molslice-files")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="molslice-formats")
        self._unwritten = 0

    def create(self, model: str, name: str, interval: float | None, *, domain: bool) -> FileJob:
        """Create a job, see `FileJob`; the caller writes `source` and then calls `submit` or `discard`.

        Raises:
            MolsliceError: The ending is unknown.
            QueueFullError: Too many files are waiting.
        """
        name = as_file_name(name)
        job_id = secrets.token_urlsafe(16)
        progress = {"state": "uploading", "rows": 0, "share": 0.0, "failed": 0, "message": ""}
        asked = {"model": model, "interval": interval, "domain": domain}
        job = FileJob(
            id=job_id, name=name, folder=self._folder / job_id, refusals=[], columns=[], **asked, **progress
        )
        if job.ending in SPREADSHEETS:
            raise MolsliceError(f"cannot read {name!r}: it is a spreadsheet; save it as CSV")
        if job.ending not in FILE_ENDINGS:
            endings = ", ".join(FILE_ENDINGS)
            raise MolsliceError(
                f"cannot read {name!r}: the name must end in {endings}, optionally followed by {GZIP_ENDING}"
            )
        with self._lock:
            unfinished = sum(other.state in ("uploading", "waiting") for other in self._jobs.values())
            if unfinished >= self.limits.files_waiting:
                raise QueueFullError(f"{unfinished} files are waiting; try again later", LONGEST_RETRY)
            if self._closed:
                raise WorkerLostError("the service is ending")
            finished = [old for old in self._jobs.values() if old.state in ("done", "failed", "canceled")]
            for old in finished[: max(0, len(self._jobs) + 1 - self.limits.files_kept)]:
                self._remove(old)
            job.folder.mkdir()
            self._jobs[job.id] = job
        return job

    def submit(self, job: FileJob) -> None:
        """Add a job whose file is complete to the queue."""
        beginning = _beginning(job)
        if beginning.startswith(GZIP):
            self._unpack(job)
            beginning = _beginning(job)
        if beginning.startswith((GZIP, *OTHERS)):
            raise MolsliceError(
                f"cannot read {job.name!r}: it is not text; give CSV or a similar file, which may be gzipped"
            )
        with self._lock:
            if self._closed:
                raise WorkerLostError("the service is ending")
            job.state = "waiting"
            self._queue.submit(self._predict, job)

    def _unpack(self, job: FileJob) -> None:
        """Replace a file that is packed with gzip by its content."""
        plain, size = job.folder / "unpacked", 0
        try:
            with gzip.open(job.source) as packed, plain.open("wb") as file:
                while piece := packed.read(PIECE):
                    size += len(piece)
                    if size > self.limits.file_bytes:
                        raise UnpackedTooLargeError(
                            f"{job.name!r} has more than {self.limits.file_bytes:,} bytes after decompression"
                        )
                    file.write(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise MolsliceError(f"cannot read {job.name!r}: it is truncated or damaged") from error
        plain.replace(job.source)

    def find(self, job_id: str) -> FileJob | None:
        """Return a job; None if it does not exist or is deleted."""
        return self._jobs.get(job_id)

    def discard(self, job_id: str) -> bool:
        """Stop a job and delete its files; return whether it existed."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                return False
            if job.state == "running":
                self.worker.kill()  # while the lock is held, the worker cannot have begun the next job
            job.state = "canceled"
            self._remove(job)
        return True

    def write(
        self, job: FileJob, ending: str, rows: Sequence[int] | None, columns: Mapping[str, Sequence[str]]
    ) -> Future[Path]:
        """Write rows of a result, with further columns, to a file that the caller deletes; see `write_rows`.

        Returns:
            A future of the file, with the exceptions of `WorkerProcess.call`.

        Raises:
            MolsliceError: A row is given twice, so that a file could be larger than the result.
            QueueFullError: Too many files are waiting to be written.
        """
        if rows is not None and len(set(rows)) < len(rows):
            repeated, _ = Counter(rows).most_common(1)[0]
            raise MolsliceError(f"row {repeated} is given twice")
        with self._lock:
            if self._closed:
                raise WorkerLostError("the service is ending")
            if self._unwritten >= self.limits.files_waiting:
                raise QueueFullError(
                    f"{self._unwritten} files are being written; try again later", LONGEST_RETRY
                )
            self._unwritten += 1
        return self._writing.submit(self._write, job, ending, rows, columns)

    def _write(
        self, job: FileJob, ending: str, rows: Sequence[int] | None, columns: Mapping[str, Sequence[str]]
    ) -> Path:
        target = job.folder / f"{secrets.token_hex(8)}{ending}"
        options = {
            "source": str(job.result),
            "target": str(target),
            "smiles_column": job.smiles_column,
            "rows": rows,
            "columns": columns,
        }
        try:
            self.writer.call("write_rows", options, seconds=STALLED_SECONDS)
        finally:
            with self._lock:
                self._unwritten -= 1
        return target

    def close(self) -> None:
        """Stop all jobs and delete all files."""
        with self._lock:
            self._closed = True
            running = any(job.state == "running" for job in self._jobs.values())
            for job in self._jobs.values():
                job.state = "canceled"
        if running:
            self.worker.kill()
        self.writer.kill()
        for worker in (self.worker, self.writer):
            worker.close()
        for pool in (self._queue, self._writing):
            pool.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove(self, job: FileJob) -> None:
        del self._jobs[job.id]
        shutil.rmtree(job.folder, ignore_errors=True)

    def _predict(self, job: FileJob) -> None:
        with self._lock:
            if job.state != "waiting":  # it is canceled
                return
            job.state = "running"

        def report(value: dict[str, Any]) -> None:
            job.rows, job.share = value["rows"], value["share"]

        options = {
            "model": job.model,
            "source": str(job.source),
            "target": str(job.result),
            "shown": str(job.shown),
            "name": job.name,
            "interval": job.interval,
            "domain": job.domain,
            "max_rows": self.limits.file_rows,
        }
        try:
            outcome = self.worker.call("predict_file", options, seconds=STALLED_SECONDS, report=report)
            refusals = [Refusal(**refusal) for refusal in outcome["refusals"]]
            outcome |= {"refusals": refusals, "share": 1.0, "state": "done"}
        except MolsliceError as error:
            outcome = {"message": str(error), "state": "failed"}
        except Exception:  # the executor would ignore it, and the job would be running for ever
            logger.exception("cannot predict %s", job.name)
            outcome = {"message": "unexpected error of the service", "state": "failed"}
        with self._lock:
            if job.state == "running":  # otherwise it is canceled
                for name, value in outcome.items():
                    setattr(job, name, value)
                job.source.unlink(missing_ok=True)


def result_formats() -> list[str]:
    """Return the formats in which results can be written."""
    return [*RESULT_FORMATS, *(["xlsx"] if find_spec("openpyxl") else [])]


def _new_folder() -> Path:
    """Create a temporary folder named after this process, and remove folders of services that were killed."""
    for old in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        owner = Owner.parse(old.name.removeprefix(FOLDER_PREFIX).rpartition(".")[0])
        if owner is not None and owner.has_ended:
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{Owner.current()}."))


def _beginning(job: FileJob) -> bytes:
    """Return the first bytes of an uploaded file."""
    try:
        with job.source.open("rb") as file:
            return file.read(8)
    except FileNotFoundError as error:
        raise MolsliceError(f"{job.name} was deleted") from error


def unpacked_name(name: str) -> str:
    """Return the name of a file without the ending of gzip."""
    return name[: -len(GZIP_ENDING)] if name.lower().endswith(GZIP_ENDING) else name


def as_file_name(text: str) -> str:
    r"""Return the last part of a path without control characters, at most `LONGEST_NAME` characters.

    Both `/` and `\` divide a path.
    """
    name = text.replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in name if character.isprintable()).strip(" .")
    name = name or "molecules.csv"
    path = Path(unpacked_name(name))
    packed = name[len(path.name) :]
    return f"{path.stem[: LONGEST_NAME - len(path.suffix) - len(packed)]}{path.suffix[:LONGEST_NAME]}{packed}"
