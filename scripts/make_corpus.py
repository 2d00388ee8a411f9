"""Turn files of SMILES into the training data of a pretrained encoder.

    python scripts/make_corpus.py molecules.smi.gz more.smi --exclude tests/*.csv.gz \
        --work work --out corpus --jobs 2

One row is one molecule: the first line of each canonical SMILES. Left out are lines that cannot be parsed,
molecules of more than 64 heavy atoms, and molecules whose skeleton (elements and which atom touches which, in
the largest fragment) is in a table of --exclude. With --rows N the N molecules with the smallest hash are
taken, so that a larger corpus contains a smaller one. Molecules with quantum labels are taken in any case.

OUT/store is a store of `molslice` with the descriptors that vary and the quantum labels as targets, and the
partial charges as targets of atoms. OUT/report.json counts what was left out and why. OUT/CARD.md names the
sources, with the PROVENANCE.txt beside them.

The work is done in pieces, each written to --work when it is complete. The same command goes on after any
interruption, and the store has the same bytes. With other tables, labels or numbers of rows, the pieces that
are there are used. Memory is about 40 bytes for each line and 300 MB besides.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from corpus_labels import CHUNK_LINES, Labels, chunk_path, chunks_of_log, read_labels, write_chunk
from corpus_parts import write_part
from corpus_store import Corpus, Scalings, write_corpus
from tqdm import tqdm

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
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
        options: The command line.
        seconds: Time of each pass of this run.
        done: Number of pieces of each pass that this run made, or of their rows.
    """

    options: argparse.Namespace
    seconds: dict[str, float] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Make the corpus; returns the report."""
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
        found: dict[str, list[Path]] = {}

        def todo() -> Iterator[tuple[list[bytes], Path]]:
            for number, source in enumerate(self.options.inputs):
                shards = found.setdefault(source.name, [])
                for count, lines in enumerate(shards_of_file(source)):
                    path = folder / f"{number:03d}-{count:05d}.npz"
                    shards.append(path)
                    if not path.exists():
                        yield lines, path

        with self._pass("lines", "parses SMILES") as work:
            work(write_shard, todo())
        return found

    def _exclude(self) -> list[Excluded]:
        folder, column = _made(self.options.work / "excluded"), self.options.smiles_column
        tables = {
            path: folder / f"{file_checksum(path)[:24]}-{column or ''}.npz" for path in self.options.exclude
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
            for number, lines in enumerate(chunks_of_log(log)):
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
            work(write_part, ((shard, lines, part) for shard, lines, part in tasks if len(lines)))
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
                "targets": {name: len(names) for name, names in scalings.about()["families"].items()},
                "bytes": sum(file.stat().st_size for file in (folder / "store").iterdir()),
                "versions": versions(),
                "this run": {"jobs": options.jobs, "seconds": self.seconds, "computed": self.done},
            }
            write_atomically(folder / "report.json", json.dumps(report, indent=2) + "\n")
            write_atomically(folder / "CARD.md", card(report, options.inputs))
        return report

    @contextmanager
    def _pass(self, noun: str, task: str, total: int | None = None) -> Iterator[Callable]:
        """Work on pieces in processes; what each returns is counted."""

        def work(function: Callable, arguments: Iterable[tuple]) -> None:
            for result in pool.map(function, arguments):
                count = result[0] if isinstance(result, tuple) else result
                self.done[noun] = self.done.get(noun, 0) + count
                bar.update(count)

        jobs = self.options.jobs
        with (
            self._timed(noun),
            WorkerPool(jobs if jobs > 1 else 0, task) as pool,
            self._bar(noun, total) as bar,
        ):
            yield work

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 1)

    def _bar(self, noun: str, total: int | None) -> tqdm:
        quiet = True if self.options.quiet else None  # None: shown on a terminal
        return tqdm(total=total, unit=f" {noun}", desc=noun, mininterval=2, disable=quiet)


def check_settings(work: Path, inputs: list[Path]) -> None:
    """Refuse a folder whose pieces were made from other files or by other versions.

    Raises:
        MolsliceError: The settings differ; the message names them.
    """
    now = {
        "inputs": {path.name: file_checksum(path) for path in inputs},
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
        raise MolsliceError(f"{work} was made with other {', '.join(changed)}; give another folder to --work")


def write_excluded(path: Path, column: str | None, out: Path) -> int:
    """Read a table of molecules to leave out into a file, in a worker process; returns 1."""
    table = read_excluded(path, column)
    with atomic_file(out) as file:
        np.savez(file, counts=np.array([table.rows, table.unreadable]), skeletons=table.skeletons)
    return 1


def read_written(name: str, path: Path) -> Excluded:
    """Read the result of `write_excluded`."""
    with np.load(path) as found:
        rows, unreadable = map(int, found["counts"])
        return Excluded(name, rows, unreadable, found["skeletons"])


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {name: version(name) for name in ("numpy", "rdkit")}


def card(report: dict[str, Any], inputs: list[Path]) -> str:
    """Describe a corpus: rows, targets, and the sources as the files beside them tell."""
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
        told = folder / "PROVENANCE.txt"
        if told.is_file():
            lines += ["```", told.read_text(encoding="utf-8").strip(), "```", ""]
    lines += [f"- {source['file']}, SHA-256 {source['sha256']}" for source in report["sources"]]
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
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="FILE", help=".smi file, also compressed by gzip"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder of the corpus")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of the pieces")
    parser.add_argument(
        "--exclude", nargs="+", type=Path, default=[], metavar="CSV", help="tables of molecules to leave out"
    )
    parser.add_argument(
        "--smiles-column", metavar="NAME", help="column of the tables, if its name is not usual"
    )
    parser.add_argument(
        "--labels", type=Path, metavar="LOG", help="quantum labels, a log of make_gap_data.py"
    )
    parser.add_argument("--rows", type=int, metavar="N", help="number of molecules (default: all)")
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
