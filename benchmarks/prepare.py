"""Measure `molslice prepare FILE... --out STORE`: rate, processor time, memory, and a large store.

    python benchmarks/prepare.py molecules.smi.gz
    python benchmarks/prepare.py molecules.smi.gz more.smi.gz --large work/large

Without `--large`, the first rows of the files are prepared with one and with two processes in turn, each in a
new process. The ratio of the rates is that of this machine, whose processors may be the threads of one core.
Therefore the processor time of the parent for each molecule is measured too: the time of the workers divided
by it is the number of workers that one parent can supply on sufficient cores. The peak memory is measured for
growing numbers of rows. Writes `benchmarks/results/prepare.json`.

With `--large FOLDER`, a store of as many rows as PCQM4M is built from the files. Rows beyond their end repeat
them as random SMILES of the same molecules. The same command continues after an interruption. Then all
batches of an epoch are read without a model. Writes `benchmarks/results/prepare_large.json`.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rdkit import Chem, rdBase
from record import record

from molslice.config import TrainingConfig
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import PreparedStore, prepare_files
from molslice.data.molecules.prepared import Prepared
from molslice.data.molecules.tables import open_molecules
from molslice.files.atomic import write_atomically
from molslice.training.batches import TrainingBatches

ROOT = Path(__file__).resolve().parents[1]
PCQM4M_ROWS = 3_400_000  # rounded
PART_ROWS = 100_000
SAMPLE_SECONDS = 0.5
MEBIBYTE = 1 << 20
MEMORY_SHARES = (0.25, 0.5, 1.0)
TRAINING: dict[str, Any] = {
    "batch_size": 1024,
    "token_budget": 65_536,
    "max_epochs": 1,
}  # configs/molecule/pcqm4m_v2.yaml


def read_smiles(files: Sequence[Path]) -> Iterator[str]:
    """Yield the SMILES of all rows."""
    for file in files:  # their columns may differ
        with open_molecules([file]) as table:
            for chunk in table.chunks(10_000, [table.smiles_column]):
                yield from chunk[table.smiles_column]


def peak_memory(process: int) -> int:
    """Return the peak resident memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def child_processes() -> list[int]:
    """Return the IDs of the children of this process."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with_children = path.read_text().split() if path.exists() else []
        found += [int(child) for child in with_children]
    return found


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


def run_watched(
    paths: Sequence[Path], out: Path, workers: int, targets: Sequence[str] = ()
) -> dict[str, Any]:
    """Prepare a store in this process, and measure it.

    Returns:
        Seconds, rows, processor seconds and peak memory in MiB of the parent and the workers.
    """
    with tempfile.TemporaryDirectory() as folder:  # imports and first calls are not measured
        first = Path(folder, "first.smi")
        first.write_text("CCO\n")
        prepare_files([first], Path(folder, "store"), how=Featurizing(workers=workers), progress=False)
    watch = Watch()
    own, children = time.process_time(), processor_seconds_of_children()
    with watch.running():
        found: PreparedStore = prepare_files(
            paths, out, targets=targets, how=Featurizing(workers=workers), progress=False
        )
    return {
        "workers": workers,
        "rows": found.report["rows"] - found.continued,
        "seconds": found.seconds,
        "parent_processor_seconds": time.process_time() - own - watch.seconds,
        "worker_processor_seconds": processor_seconds_of_children() - children,
        "parent_mib": watch.parent / MEBIBYTE,
        "worker_mib": watch.worker / MEBIBYTE,
    }


def processor_seconds_of_children() -> float:
    """Return the processor time of all ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_new_process(function: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Call a function in a process that shares no memory with this one.

    Raises:
        ChildProcessError: The process failed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(f"{function.__name__} failed with exit code {process.exitcode}") from None
    finally:
        process.join()


def _send(sender: Any, function: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    sender.send(function(*arguments))


def measure_rates(file: Path, rounds: int, scratch: Path) -> dict[str, Any]:
    """Prepare a file with one and with two processes in turn.

    Returns:
        Medians over the rounds for each number of processes, and the ratios of the rates.
    """
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for place in range(rounds):
        for workers, found in runs.items():
            out = scratch / f"rate-{place}-{workers}"
            found.append(in_new_process(run_watched, [file], out, workers))
            shutil.rmtree(out)
    results = [
        {
            "workers": workers,
            "rows_per_second": statistics.median(one["rows"] / one["seconds"] for one in found),
            **{
                f"{who}_microseconds": statistics.median(
                    one[f"{who}_processor_seconds"] / one["rows"] * 1e6 for one in found
                )
                for who in ("parent", "worker")
            },
        }
        for workers, found in runs.items()
    ]
    ratios = [one["seconds"] / two["seconds"] for one, two in zip(runs[1], runs[2], strict=True)]
    return {
        "results": results,
        "ratio_of_rates": {"median": statistics.median(ratios), "rounds": ratios},
        "workers_for_one_parent": results[1]["worker_microseconds"] / results[1]["parent_microseconds"],
    }


def measure_memory(smiles: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """Prepare growing numbers of rows with two processes, and return the peak memory of each."""
    found = []
    for share in MEMORY_SHARES:
        file = scratch / "memory.smi"
        file.write_text("\n".join(smiles[: int(share * len(smiles))]) + "\n")
        one = in_new_process(run_watched, [file], scratch / "memory", 2)
        shutil.rmtree(scratch / "memory")
        found.append({name: one[name] for name in ("rows", "parent_mib", "worker_mib")})
    return found


def measure_small(files: Sequence[Path], rows: int, rounds: int) -> dict[str, Any]:
    """Measure rate and memory on the first rows of the files."""
    smiles = [text for _, text in zip(range(rows), read_smiles(files), strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        file = scratch / "rows.smi"
        file.write_text("\n".join(smiles) + "\n")
        rates = measure_rates(file, rounds, scratch)
        return {"rows": len(smiles), "rounds": rounds, **rates, "memory": measure_memory(smiles, scratch)}


def random_spelling(smiles: str, seed: int) -> str:
    """Return a random SMILES of the same molecule; an unreadable one is returned unchanged."""
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
    return smiles if mol is None else Chem.MolToRandomSmilesVect(mol, 1, randomSeed=seed % 2**31)[0]


def write_parts(files: Sequence[Path], folder: Path, rows: int) -> list[Path]:
    """Write the rows of a large table, `PART_ROWS` in each file; complete files are kept.

    Rows beyond the end of the files repeat them as random SMILES. The target is made from the row number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number:04}.csv" for number in range(-(-rows // PART_ROWS))]
    source, repeated = read_smiles(files), False
    for number, path in enumerate(paths):
        lines, is_missing = ["smiles,target"], not path.exists()
        for row in range(number * PART_ROWS, min(rows, (number + 1) * PART_ROWS)):
            text = next(source, None)
            if text is None:
                source, repeated = read_smiles(files), True
                text = next(source)
            if is_missing:
                spelled = random_spelling(text, row) if repeated else text
                lines.append(f"{spelled},{row % 1000 / 100}")
        if is_missing:
            write_atomically(path, "\n".join(lines) + "\n")
    return paths


def build(paths: Sequence[Path], folder: Path, workers: int) -> None:
    """Prepare the store, and keep time and memory of each run in `runs.json`, also of a killed one."""
    log = folder / "runs.json"
    runs = json.loads(log.read_text()) if log.exists() else []
    watch, start, ended = Watch(), time.monotonic(), threading.Event()

    def note() -> None:
        sizes = {"parent_mib": watch.parent / MEBIBYTE, "worker_mib": watch.worker / MEBIBYTE}
        now = {"workers": workers, "seconds": time.monotonic() - start, **sizes}
        write_atomically(log, json.dumps([*runs, now], indent=2))

    def keep() -> None:
        while not ended.wait(5):
            note()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        with watch.running():
            prepare_files(paths, folder / "store", targets=["target"], how=Featurizing(workers=workers))
    finally:
        ended.set()
        thread.join()
        note()


def read_epoch(store: Path) -> dict[str, Any]:
    """Open a store, and collate batches of all its molecules in the random order of an epoch."""
    start = time.monotonic()
    dataset = Prepared(path=store)
    opened = time.monotonic()
    molecules = np.flatnonzero(dataset.num_tokens)
    batches = TrainingBatches(dataset, molecules, TrainingConfig(**TRAINING), seed=0)
    ordered = time.monotonic()
    count = rows = tokens = padded = 0
    for step in batches.stream(0, 0):
        mask = step.micro_batches[0].batch.atom_mask
        count, rows = count + 1, rows + step.rows
        tokens, padded = tokens + int(mask.sum()) + step.rows, padded + mask.numel() + step.rows
        if step.last:
            break
    seconds = time.monotonic() - ordered
    return {
        "open_seconds": opened - start,
        "order_seconds": ordered - opened,
        "seconds": seconds,
        "rows": rows,
        "batches": count,
        "rows_per_second": rows / seconds,
        "padding_share": 1 - tokens / padded,
        "peak_mib": peak_memory(os.getpid()) / MEBIBYTE,
        "batch_size": TRAINING["batch_size"],
        "token_budget": TRAINING["token_budget"],
    }


def measure_large(files: Sequence[Path], folder: Path, rows: int, workers: int) -> dict[str, Any]:
    """Build a large store, and read an epoch of its batches."""
    paths = write_parts(files, folder / "parts", rows)
    in_new_process(build, paths, folder, workers)
    store = folder / "store"
    header = json.loads((store / "header.json").read_text())
    report = header["about"]["report"]
    size = sum(path.stat().st_size for path in store.iterdir())
    runs = json.loads((folder / "runs.json").read_text())
    return {
        **{name: report[name] for name in ("rows", "molecules", "failed", "atoms", "bonds")},
        "atoms_per_molecule": report["atoms_per_molecule"],
        "runs": runs,
        "seconds": sum(run["seconds"] for run in runs),
        "bytes": size,
        "bytes_per_molecule": size / report["molecules"],
        "epoch": in_new_process(read_epoch, store),
    }


def count_physical_cores() -> int | None:
    """Return the number of physical cores that this process may use; None if the system does not say."""
    groups = set()
    for processor in os.sched_getaffinity(0):
        path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        if not path.exists():
            return None
        groups.add(path.read_text().strip())
    return len(groups)


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="tables of molecules in any format")
    parser.add_argument("--rows", type=int, help="rows (default: 40,000, or those of PCQM4M with --large)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=Path, metavar="FOLDER", help="build a large store in this folder")
    parser.add_argument("--workers", type=int, default=1, help="processes with --large")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    if options.large is None:
        name, question = "prepare", "rate and memory of preparing molecules with one and two processes"
        found = measure_small(options.files, options.rows or 40_000, options.rounds)
    else:
        name, question = "prepare_large", "time, memory and size of a store with the rows of PCQM4M"
        found = measure_large(options.files, options.large, options.rows or PCQM4M_ROWS, options.workers)
    payload = {
        "question": question,
        "files": [file.name for file in options.files],
        "physical_cores": count_physical_cores(),
        "load_average": os.getloadavg()[0],  # other work on the machine
        **found,
    }
    print(record(name, payload, options.out))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
