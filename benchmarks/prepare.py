"""Measure `molslice prepare FILE --out STORE`: rate, processor time and memory.

    python benchmarks/prepare.py molecules.smi.gz

The first rows of the file are prepared with one and with two processes in turn, each in a new process. The
ratio of the rates depends on the machine, whose processors may be the threads of one core. Therefore the
processor time of the parent for each molecule is measured too: the time of the workers divided by it is the
number of workers that one parent can supply on sufficient cores. The peak memory is measured for growing
numbers of rows. Writes `benchmarks/results/prepare.json`.
"""

import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from record import child_seconds, make_parser, record

from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import prepare_files
from molslice.data.molecules.tables import open_molecules

SAMPLE_SECONDS = 0.5
MEBIBYTE = 1 << 20
MEMORY_SHARES = (0.25, 0.5, 1.0)
Result = TypeVar("Result")


def read_smiles(file: Path, rows: int) -> list[str]:
    """Return the first SMILES of a file."""
    with open_molecules([file]) as table:
        column = table.smiles_column
        texts = itertools.chain.from_iterable(chunk[column] for chunk in table.chunks(10_000, [column]))
        return list(itertools.islice(texts, rows))


def peak_memory(process: int) -> int:
    """Return the peak resident memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def child_processes() -> list[int]:
    """Return the IDs of the children of this process."""
    files = Path("/proc/self/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


class Watch:
    """Samples the memory of this process and its children in a thread.

    Attributes:
        parent: Peak memory of this process, in bytes.
        worker: Largest peak memory of a child, in bytes.
        seconds: Processor time of the thread.
    """

    def __init__(self) -> None:
        self.parent = self.worker = 0
        self.seconds = 0.0

    def sample(self) -> None:
        """Update the peaks."""
        self.parent = peak_memory(os.getpid())
        self.worker = max([self.worker, *map(peak_memory, child_processes())])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample until the block ends."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(SAMPLE_SECONDS):
                self.sample()
            self.seconds = time.thread_time()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.sample()


def run_watched(file: Path, out: Path, workers: int) -> dict[str, Any]:
    """Prepare a store in this process, and measure it.

    Returns:
        Seconds, rows, processor seconds and peak memory in MiB of the parent and the workers.
    """
    how = Featurizing(workers=workers)
    with tempfile.TemporaryDirectory() as folder:  # imports and first calls are not measured
        first = Path(folder, "first.smi")
        first.write_text("CCO\n")
        prepare_files([first], Path(folder, "store"), how=how, progress=False)
    watch, start, start_of_children = Watch(), time.process_time(), child_seconds()
    with watch.running():
        prepared = prepare_files([file], out, how=how, progress=False)
    return {
        "workers": workers,
        "rows": prepared.report["rows"],
        "seconds": prepared.seconds,
        "parent_processor_seconds": time.process_time() - start - watch.seconds,
        "worker_processor_seconds": child_seconds() - start_of_children,
        "parent_mib": watch.parent / MEBIBYTE,
        "worker_mib": watch.worker / MEBIBYTE,
    }


def in_new_process(function: Callable[..., Result], *arguments: Any) -> Result:  # noqa: ANN401
    """Call a function in a process that shares no memory with this one."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_rates(file: Path, rounds: int, scratch: Path) -> dict[str, Any]:
    """Prepare a file with one and with two processes in turn.

    Returns:
        Medians over the rounds for each number of processes, and the ratios of the rates.
    """
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for place, workers in itertools.product(range(rounds), runs):
        out = scratch / f"rate-{place}-{workers}"
        runs[workers].append(in_new_process(run_watched, file, out, workers))
        shutil.rmtree(out)

    def median(workers: int, name: str) -> float:
        return statistics.median(run[name] / run["rows"] for run in runs[workers])

    results = [
        {
            "workers": workers,
            "rows_per_second": 1 / median(workers, "seconds"),
            "parent_microseconds": 1e6 * median(workers, "parent_processor_seconds"),
            "worker_microseconds": 1e6 * median(workers, "worker_processor_seconds"),
        }
        for workers in runs
    ]
    ratios = [single["seconds"] / double["seconds"] for single, double in zip(runs[1], runs[2], strict=True)]
    return {
        "results": results,
        "ratio_of_rates": {"median": statistics.median(ratios), "rounds": ratios},
        "workers_for_one_parent": results[1]["worker_microseconds"] / results[1]["parent_microseconds"],
    }


def measure_memory(smiles: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """Prepare growing numbers of rows with two processes, and return the peak memory of each."""
    peaks = []
    for share in MEMORY_SHARES:
        file = write_smiles(scratch / "memory.smi", smiles[: int(share * len(smiles))])
        run = in_new_process(run_watched, file, scratch / "memory", 2)
        shutil.rmtree(scratch / "memory")
        peaks.append({name: run[name] for name in ("rows", "parent_mib", "worker_mib")})
    return peaks


def write_smiles(file: Path, smiles: Sequence[str]) -> Path:
    """Write one SMILES on each line."""
    file.write_text("\n".join(smiles) + "\n")
    return file


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path, help="a table of molecules in any format")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    smiles = read_smiles(options.file, options.rows)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rates = measure_rates(write_smiles(scratch / "rows.smi", smiles), options.rounds, scratch)
        memory = measure_memory(smiles, scratch)
    payload = {
        "question": "rate and memory of preparing molecules with one and two processes",
        "file": options.file.name,
        "load_average": os.getloadavg()[0],  # other work on the machine
        "rows": len(smiles),
        "rounds": options.rounds,
        **rates,
        "memory": memory,
    }
    print(record("prepare", payload, options.out))
    print(json.dumps(payload, indent=2))


if __name__ == "__main__":
    main()
