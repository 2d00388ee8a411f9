"""Turn files of SMILES into the training data of a pretrained encoder.

    python scripts/make_corpus.py molecules.smi.gz more.smi --exclude tests/*.csv.gz \
        --work work --out corpus --jobs 2

One row is one molecule: the first line of each canonical SMILES. Lines that cannot be parsed, molecules with
more than 64 heavy atoms, and molecules whose skeleton (elements and bonds without bond orders, in the largest
fragment) is in --exclude are left out. --exclude takes tables, and folders in the layout of PCQM4M, of which
all splits but train are excluded. --rows N selects the N molecules with the smallest hash, so that a larger
corpus contains a smaller one. Molecules with quantum labels are always selected.

OUT/store is a store of `molslice`. Its targets are the descriptors and the quantum labels that are not
constant, and its targets of atoms are the partial charges. OUT/report.json counts the rows that were left
out, by reason. OUT/CARD.md names the sources and includes the PROVENANCE.txt beside them.

Each piece of the work is written to --work when it is complete. After an interruption the same command
continues, and the store has the same bytes. Pieces are reused with other tables, labels or numbers of rows.
The program needs about 300 MB of memory and 100 bytes for each line.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from corpus_keys import (
    MAX_HEAVY,
    SHARD_LINES,
    Excluded,
    Selection,
    read_excluded,
    select,
    shards_of_file,
    write_shard,
)
from corpus_labels import CHARGES, CHUNK_LINES, Labels, chunk_path, chunks_of_labels, read_labels, write_chunk
from corpus_parts import write_part
from corpus_store import Corpus, Scalings, write_corpus
from tqdm import tqdm

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
from molslice.data.molecules.pcqm4m import SPLITS, TABLE
from molslice.files.atomic import atomic_file, atomic_folder, remove_stale, write_atomically
from molslice.files.cache import file_checksum
from molslice.files.lock import lock_folder
from molslice.files.parsing import read_json_object
from molslice.files.processes import WorkerPool
from molslice.types import MolsliceError


@dataclass(slots=True)
class Program:
    """One run of the program.

    Attributes:
        options: The arguments of the command line.
        seconds: Time of each pass of this run, in seconds.
        done: Number of items that each pass of this run has computed.
    """

    options: argparse.Namespace
    seconds: dict[str, float] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Make the corpus, and return the report."""
        options, work = self.options, self.options.work
        check_settings(work, options.inputs)
        shards = self._parse()
        excluded = self._exclude()
        labels = self._label()
        with self._timed("selection"):
            named = [(name, path) for name, paths in shards.items() for path in paths]
            selection = select(named, excluded, options.rows, labels.keys)
        if not selection.rows:
            raise MolsliceError("no molecule is left for the corpus")
        paths = [path for _, path in named]
        parts = self._compute(paths, selection)
        return self._write(Corpus(paths, parts, selection.lines, labels), selection, excluded)

    def _parse(self) -> dict[str, list[Path]]:
        """Parse all lines, shard by shard."""
        folder = _made(self.options.work / "keys")
        shards_by_source: dict[str, list[Path]] = {}

        def todo() -> Iterator[tuple[list[bytes], Path]]:
            for number, source in enumerate(self.options.inputs):
                shards = shards_by_source.setdefault(source.name, [])
                for count, lines in enumerate(shards_of_file(source)):
                    path = folder / f"{number:03d}-{count:05d}.npz"
                    shards.append(path)
                    if not path.exists():
                        yield lines, path

        with self._pass("lines", "parses SMILES") as work:
            work(write_shard, todo())
        return shards_by_source

    def _exclude(self) -> list[Excluded]:
        folder, column = _made(self.options.work / "excluded"), self.options.smiles_column
        tables = {
            path: folder / f"{sha256(f'{checksum_of(path)} {column}'.encode()).hexdigest()[:24]}.npz"
            for path in self.options.exclude
        }
        with self._pass("tables", "parses SMILES") as work:
            work(write_excluded, ((path, column, out) for path, out in tables.items() if not out.exists()))
        return [read_written(path.name, out) for path, out in tables.items()]

    def _label(self) -> Labels:
        log = self.options.labels
        if log is None:
            return read_labels([])
        folder, paths = _made(self.options.work / "labels"), []

        def todo() -> Iterator[tuple[list[bytes], int, str, Path]]:
            for number, lines in enumerate(chunks_of_labels(log)):
                path = chunk_path(folder, lines)
                paths.append(path)
                if not path.exists():
                    yield lines, 2 + number * CHUNK_LINES, str(log), path

        with self._pass("labels", "reads labels") as work:
            work(write_chunk, todo())
        return read_labels(paths)

    def _compute(self, shards: list[Path], selection: Selection) -> list[Path]:
        folder = _made(self.options.work / "parts")
        parts = [folder / path.name for path in shards]
        tasks = zip(shards, selection.lines, parts, strict=True)
        with self._pass("molecules", "computes descriptors", selection.rows) as work:
            work(write_part, ((shard, lines, path) for shard, lines, path in tasks if len(lines)))
        return parts

    def _write(self, corpus: Corpus, selection: Selection, excluded: list[Excluded]) -> dict[str, Any]:
        options = self.options
        with self._timed("measuring"):
            scalings = Scalings.measure(corpus)
        sources = [{"file": path.name, "sha256": file_checksum(path)} for path in options.inputs]
        with atomic_folder(options.out) as folder:
            with self._timed("writing"), self._bar("rows", selection.rows) as bar:
                name = ", ".join(path.name for path in options.inputs)
                write_corpus(folder / "store", corpus, scalings, name, {"sources": sources}, bar.update)
            report = {
                "sources": sources,
                "lines": selection.counts,
                "excluded": {
                    table.file: {
                        "rows": table.rows,
                        "unreadable": table.unreadable,
                        "skeletons": len(table.skeletons),
                        "molecules left out": selection.excluded[table.file],
                    }
                    for table in excluded
                },
                "candidates": selection.candidates,
                "rows wanted": options.rows,
                **scalings.counts,
                "labels": corpus.labels.counts,
                "labels from": describe_labels(options.labels),
                "targets": {name: len(names) for name, names in scalings.about()["families"].items()},
                "bytes": sum(file.stat().st_size for file in (folder / "store").iterdir()),
                "versions": versions(),
                "this run": {"jobs": options.jobs, "seconds": self.seconds, "computed": self.done},
            }
            write_atomically(folder / "report.json", json.dumps(report, indent=2) + "\n")
            write_atomically(folder / "CARD.md", card(report, options.inputs))
        return report

    @contextmanager
    def _pass(self, items: str, task: str, total: int | None = None) -> Iterator[Callable]:
        """Yield a function that computes pieces in worker processes and counts their `items`."""

        def work(function: Callable, arguments: Iterable[tuple]) -> None:
            for result in pool.map(function, arguments):
                count = result[0] if isinstance(result, tuple) else result
                self.done[items] = self.done.get(items, 0) + count
                bar.update(count)

        jobs = self.options.jobs
        with (
            self._timed(items),
            WorkerPool(jobs if jobs > 1 else 0, task) as pool,
            self._bar(items, total) as bar,
        ):
            yield work

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 1)

    def _bar(self, items: str, total: int | None) -> tqdm:
        quiet = True if self.options.quiet else None  # None: shown on a terminal
        return tqdm(total=total, unit=f" {items}", desc=items, mininterval=2, disable=quiet)


def check_settings(work: Path, inputs: list[Path]) -> None:
    """Refuse a folder whose pieces were made from other files or with other versions.

    Raises:
        MolsliceError: The settings differ; the message names them.
    """
    now = {
        "inputs": [[path.name, file_checksum(path)] for path in inputs],  # pieces are named by their order
        "shard_lines": SHARD_LINES,
        "max_heavy": MAX_HEAVY,
        "featurizer": FEATURIZER_VERSION,
        "descriptors": DESCRIPTORS_VERSION,
        "rdkit": version("rdkit"),
    }
    path = work / "settings.json"
    if not path.exists():
        write_atomically(path, json.dumps(now, indent=2) + "\n")
        return
    then = read_json_object(path)
    changed = [name for name in now if then.get(name) != now[name]]
    if changed:
        raise MolsliceError(f"{work} was made with other {', '.join(changed)}; choose another --work")


def describe_labels(source: Path | None) -> dict[str, Any] | None:
    """Return name, license and checksums of the quantum labels; None without labels."""
    if source is None:
        return None
    files = [source / TABLE, source / CHARGES] if source.is_dir() else [source]
    about = source / "card.json"
    stated = read_json_object(about).get("source", {}) if source.is_dir() and about.is_file() else {}
    return {
        "name": source.name,
        "license": stated.get("license"),
        "files": {file.name: file_checksum(file) for file in files},
    }


def checksum_of(path: Path) -> str:
    """Return what identifies the molecules that a table or a data set excludes."""
    if not path.is_dir():
        return file_checksum(path)
    return sha256((file_checksum(path / TABLE) + file_checksum(path / SPLITS)).encode()).hexdigest()


def write_excluded(path: Path, column: str | None, out: Path) -> int:
    """Write the skeletons of a table of molecules to exclude to a file; returns 1, the number of tables."""
    table = read_excluded(path, column)
    with atomic_file(out) as file:
        np.savez(file, counts=np.array([table.rows, table.unreadable]), skeletons=table.skeletons)
    return 1


def read_written(name: str, path: Path) -> Excluded:
    """Read the result of `write_excluded`."""
    with np.load(path) as archive:
        rows, unreadable = map(int, archive["counts"])
        return Excluded(name, rows, unreadable, archive["skeletons"])


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the numbers."""
    return {name: version(name) for name in ("numpy", "rdkit")}


def card(report: dict[str, Any], inputs: list[Path]) -> str:
    """Return the card of a corpus: rows, targets, excluded rows, sources and licenses."""
    kept = ("rows", "atoms", "with quantum labels", "with charges")
    lines = ["# Corpus of molecules", "", *(f"- {name}: {report[name]:,}" for name in kept)]
    lines += [f"- targets: {name}: {count}" for name, count in report["targets"].items()]
    lines += ["", "## Left out", ""]
    for name, counts in report["lines"].items():
        parts = ", ".join(f"{why} {count:,}" for why, count in counts.items() if why != "lines" and count)
        lines.append(f"- {name}: of {counts['lines']:,} lines {parts or 'none left out'}")
    for name, counts in report["excluded"].items():
        lines.append(f"- molecules with a skeleton of {name}: {counts['molecules left out']:,}")
    lines += ["", "## Sources and licenses", ""]
    folders = dict.fromkeys(path.resolve().parent for path in inputs)
    for folder in folders:
        provenance = folder / "PROVENANCE.txt"
        if provenance.is_file():
            lines += ["```", provenance.read_text(encoding="utf-8").strip(), "```", ""]
    lines += [f"- {source['file']}, SHA-256 {source['sha256']}" for source in report["sources"]]
    if labels := report["labels from"]:
        lines += [f"- labels: {labels['name']}. {labels['license'] or ''}".rstrip(" .") + "."]
        lines += [f"  {name}, SHA-256 {checksum}" for name, checksum in labels["files"].items()]
    return "\n".join(lines) + "\n"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    remove_stale(folder)
    return folder


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FILE", help=".smi file, plain or gzip")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder of the corpus")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of the pieces")
    parser.add_argument(
        "--exclude",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="tables of molecules to exclude, by skeleton; of a data set, all splits but train",
    )
    parser.add_argument(
        "--smiles-column", metavar="NAME", help="column of SMILES of the tables (default: found by its name)"
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="PATH",
        help="quantum labels: a log of make_gap_data.py, or a folder such as data/gap_xtb_100k",
    )
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="number of molecules; those with labels come on top (default: all)",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="hide progress bars")
    options = parser.parse_args(argv)
    if options.jobs < 1 or (options.rows is not None and options.rows < 1):
        parser.error("--jobs and --rows must be positive")
    for flag, paths in (("FILE", options.inputs), ("--exclude", options.exclude)):
        names = [path.name for path in paths]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            parser.error(f"{flag}: several files are named {twice}")
    if options.out.exists():
        parser.error(f"{options.out} exists; choose another folder or remove it")
    return options


def main(argv: list[str] | None = None) -> int:
    """Make a corpus."""
    options = parse_arguments(argv)
    try:
        options.work.mkdir(parents=True, exist_ok=True)
        with lock_folder(options.work):
            report = Program(options).run()
    except (OSError, MolsliceError) as error:
        sys.stderr.write(f"make_corpus: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(
            f"make_corpus: stopped; the same command continues with the pieces in {options.work}\n"
        )
        return 130
    sys.stderr.write(f"{report['rows']:,} molecules in {options.out}\n")
    for name, counts in report["lines"].items():
        if failed := counts["cannot be parsed"]:
            sys.stderr.write(f"{failed:,} of {counts['lines']:,} lines of {name} cannot be parsed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
