"""Measure the rates that the plan for a billion molecules needs: processor time and bytes for each molecule.

    python benchmarks/billion.py molecules.smi.gz

One process measures each part of `predict --engine ray` and `prepare --engine ray` without Ray, in turn, on
the same rows: reading, featurizing, predicting with `gap-xtb`, and collecting the results in their order. The
time that Ray itself takes for each part is measured on a cluster of this machine.
Writes `benchmarks/results/billion.json`. Then `python benchmarks/result_tables.py --write` updates the guide.
"""

import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from prepare import read_smiles, write_smiles
from record import ROOT, child_seconds, make_parser, record, take_turns

from molslice.data.molecules import prepare
from molslice.data.molecules.prepare import Featurizing, featurize_chunk
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.tables import FileChunks, open_molecules
from molslice.files.ray_data import ray_map
from molslice.files.tables import Chunk
from molslice.inference.load import load_model
from molslice.inference.predictions import TableRows
from molslice.inference.tables.table import predict_table

MODEL = "gap-xtb"
COPIES = 10  # of the results, so that collecting them takes long enough to be measured
BLOCKS, BLOCK_BYTES = 400, 900_000  # of the measurement of Ray
START = f"from molslice.inference.load import load_model; load_model({MODEL!r}).predict(['C'])"


class Parts:
    """The parts of both commands, on a file with SMILES on each line, and with a folder for outputs."""

    def __init__(self, file: Path, scratch: Path) -> None:
        self.file, self.scratch, self.model = file, scratch, load_model(MODEL)
        self.chunks, self.position = self._split(prepare.CHUNK_ROWS), file.stat().st_size
        self.rows = sum(map(len, self.chunks))
        self.predicted = self.model.predict_with_errors([text for c in self.chunks for text in c["smiles"]])
        self.packed = self.featurize()
        self.bytes: dict[str, float] = {}
        self.seconds = 0.0  # of a part that measures itself; 0 of the others

    def _split(self, size: int) -> list[Chunk]:
        with open_molecules([self.file]) as table:
            places = {"smiles": table.find(table.smiles_column)}
            split = FileChunks(table.names, self.file, places, size, None)
        return [chunk for chunk, _ in split((self.file, 0))]

    def read(self) -> None:
        """Read the rows and pack them for the workers."""
        packed = [pickle.dumps((chunk, 0)) for chunk in self._split(prepare.CHUNK_ROWS)]
        self.bytes["task"] = sum(map(len, packed)) / self.rows

    def featurize(self) -> list[MoleculeStore]:
        """Convert the rows to arrays."""
        none = [np.empty((len(chunk), 0), np.float32) for chunk in self.chunks]
        return [
            featurize_chunk(c["smiles"], n, Featurizing()) for c, n in zip(self.chunks, none, strict=True)
        ]

    def predict(self) -> None:
        """Featurize the rows and predict."""
        self.model.predict_with_errors([text for chunk in self.chunks for text in chunk["smiles"]])

    def collect_predictions(self) -> None:
        """Unpack the predictions and write a CSV file."""
        stops = np.cumsum([len(chunk) for chunk in self.chunks])
        pickled = [
            pickle.dumps((chunk, TableRows(values, [None] * len(chunk)), 0))
            for chunk, values in zip(self.chunks, np.split(self.predicted.values, stops[:-1]), strict=True)
        ]
        out = self.scratch / "predicted.csv"
        self.seconds = self._collected(pickled, lambda engine: self._write_predictions(out, engine))
        self.bytes["prediction"] = sum(map(len, pickled)) / self.rows
        self.bytes["csv"] = out.stat().st_size / (COPIES * self.rows)

    def collect_molecules(self) -> None:
        """Unpack the arrays and write a store."""
        pairs = zip(self.chunks, self.packed, strict=True)
        pickled = [pickle.dumps((chunk, arrays, 0)) for chunk, arrays in pairs]
        out = self.scratch / "store"
        self.seconds = self._collected(pickled, lambda engine: self._write_store(out, engine))
        self.bytes["arrays"] = sum(map(len, pickled)) / self.rows
        self.bytes["store"] = sum(path.stat().st_size for path in out.iterdir()) / (COPIES * self.rows)
        shutil.rmtree(out)

    def _collected(self, pickled: list[bytes], write: Callable[[Any], None]) -> float:
        start = time.process_time()
        write(lambda: (pickle.loads(content) for _ in range(COPIES) for content in pickled))
        return (time.process_time() - start) / COPIES

    def _write_predictions(self, out: Path, results: Callable[[], Iterator[Any]]) -> None:
        predict_table(self.model, self.file, out, engine=lambda *_: results(), progress=False)  # pyright: ignore

    def _write_store(self, out: Path, results: Callable[[], Iterator[Any]]) -> None:
        def engine(rows: Any, *_: object) -> Any:  # noqa: ANN401
            return ((rows.piece(chunk, position), arrays) for chunk, arrays, position in results())

        prepare_files([self.file], out, how=Featurizing(workers=0), engine=engine, progress=False)


NAMES = ("read", "featurize", "predict", "collect_predictions", "collect_molecules")


def measure(file: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Return medians of the processor time of each part, in microseconds a molecule, and the bytes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        parts = Parts(write_smiles(scratch / "rows.smi", read_smiles(file, rows)), scratch)

        def microseconds(name: str) -> float:
            parts.seconds = 0.0
            start = time.process_time()
            getattr(parts, name)()
            return (parts.seconds or time.process_time() - start) / parts.rows * 1e6

        times = take_turns({name: partial(microseconds, name) for name in NAMES}, rounds)
        parts.bytes["smiles"] = (scratch / "rows.smi").stat().st_size / parts.rows
        return {
            "microseconds": {name: statistics.median(values) for name, values in times.items()},
            "bytes": parts.bytes,
            "chunk_rows": {"predict": parts.model.chunk_rows, "prepare": prepare.CHUNK_ROWS},
            "worker_start_seconds": statistics.median(_start_seconds() for _ in range(3)),
            "ray_milliseconds": _ray_milliseconds(),
        }


def _start_seconds() -> float:
    """Return the processor time of a new process until it has predicted one molecule."""
    before = child_seconds()
    subprocess.run([sys.executable, "-c", START], check=True, cwd=ROOT)
    return child_seconds() - before


class _Blocks:
    """Divides an item into parts with the size of a chunk of arrays."""

    def __call__(self, count: int) -> Iterator[tuple[int, bytes]]:
        return ((place, bytes(BLOCK_BYTES)) for place in range(count))


class _Same:
    """Returns its item."""

    def __call__(self, item: tuple[int, bytes]) -> tuple[int, bytes]:
        return item


def _ray_milliseconds() -> float:
    """Return the processor time that Ray takes in the collecting process for one part."""
    times = [time.process_time() for _ in ray_map([BLOCKS], _Same(), split=_Blocks(), workers=1)]
    return (times[-1] - times[BLOCKS // 2]) / (BLOCKS - 1 - BLOCKS // 2) * 1e3


def main() -> None:
    """Measure and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path, help="SMILES on each line")
    parser.add_argument("--rows", type=int, default=4000, help="default: 4000")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    args = parser.parse_args()
    about = {
        "question": "processor time and bytes of each part of predict and prepare on a cluster",
        "file": args.file.name,
        "model": MODEL,
        "rows": args.rows,
        "rounds": args.rounds,
    }
    print(record("billion", {**about, **measure(args.file, args.rows, args.rounds)}, args.out))


if __name__ == "__main__":
    main()
