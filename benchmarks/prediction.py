"""Compare the time of `molslice predict` with that of `chemprop predict`, and watch its memory.

    python benchmarks/prediction.py molecules.smi.gz --models gap-xtb --chemprop chemprop
    python benchmarks/prediction.py molecules.smi.gz --models gap-xtb --watch 1000000 --out work/large

The first command predicts the first rows of the file with each program in turn, each in a new process with
one thread. Each round also predicts a few rows, whose time is subtracted, so that loading the program and the
model does not count. Times are medians of the rounds, in processor time for each molecule. Chemprop has its
default size; its weights are those of three epochs on made-up targets, which do not affect the time. It needs
an environment of its own; `qm9_vs_chemprop.py` shows how to make it. Writes
`benchmarks/results/prediction.json`.

The second command predicts many rows with all cores and records the memory of all processes at growing
numbers of rows. The same command continues after an interruption, with the rows that are left. Writes
`benchmarks/results/prediction_large.json`.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import record

from molslice.chem.featurize import many_molecule_arrays
from molslice.data.molecules.tables import open_molecules
from molslice.files.processes import count_cores
from molslice.inference.load import load_network
from molslice.inference.reading import CHUNK_ROWS
from molslice.inference.tables.chunk_log import log_folder

ROOT = Path(__file__).resolve().parents[1]
FEW_ROWS = 64
TRAINING_ROWS = 200
SAMPLE_SECONDS = 0.5
MEBIBYTE = 1 << 20


def read_smiles(source: Path, rows: int) -> list[str]:
    """Return the first SMILES of a file."""
    with open_molecules([source]) as table:
        column = table.smiles_column
        texts = itertools.chain.from_iterable(chunk[column] for chunk in table.chunks(10_000, [column]))
        return list(itertools.islice(texts, rows))


def write_smiles(path: Path, smiles: Sequence[str]) -> Path:
    """Write a CSV file with a column of SMILES and one of made-up targets."""
    path.write_text("smiles,target\n" + "".join(f"{text},{len(text)}\n" for text in smiles))
    return path


def processor_seconds(command: Sequence[str]) -> float:
    """Run a command with one thread, and return its processor time and that of its children.

    Raises:
        CalledProcessError: The command fails.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(code, list(command))
    return used.ru_utime + used.ru_stime


def train_chemprop(program: str, smiles: Sequence[str], folder: Path) -> Path:
    """Train chemprop for three epochs with its default size, and return its weights."""
    data = write_smiles(folder / "training.csv", smiles)
    command = [program, "train", "--data-path", str(data), "--smiles-columns", "smiles"]
    command += ["--target-columns", "target", "--task-type", "regression", "--epochs", "3"]
    command += ["--accelerator", "cpu", "--output-dir", str(folder / "chemprop")]
    processor_seconds(command)
    return folder / "chemprop" / "model_0" / "best.pt"


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all programs in turn."""
    smiles = read_smiles(options.source, options.rows)
    refused = many_molecule_arrays(smiles).errors  # chemprop would stop at the first
    smiles = [text for row, text in enumerate(smiles) if row not in refused]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = [
            write_smiles(folder / "many.csv", smiles),
            write_smiles(folder / "few.csv", smiles[:FEW_ROWS]),
        ]
        sides: dict[str, list[str]] = {
            model: [sys.executable, "-m", "molslice", "predict", model, "--workers", "0", "--quiet"]
            for model in options.models
        }
        if options.chemprop:
            weights = train_chemprop(options.chemprop, smiles[:TRAINING_ROWS], folder)
            sides["chemprop"] = [options.chemprop, "predict", "--model-paths", str(weights)]
            sides["chemprop"] += ["--smiles-columns", "smiles", "--accelerator", "cpu"]
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(options.rounds):
            for name, command in sides.items():
                words = ("--test-path", "--preds-path") if name == "chemprop" else ("--input", "--output")
                used = [
                    processor_seconds([*command, words[0], str(file), words[1], str(folder / "out.csv")])
                    for file in files
                ]
                times[name].append(1e3 * (used[0] - used[1]) / (len(smiles) - FEW_ROWS))
                print(f"round {number}: {name} {times[name][-1]:.3f} ms", flush=True)
    sizes = {
        model: sum(each.numel() for each in load_network(model).model.parameters())
        for model in options.models
    }
    return {
        "rows": len(smiles),
        "source": options.source.name,
        "parameters": sizes,
        "milliseconds": {name: statistics.median(values) for name, values in times.items()},
        "rounds": times,
        "ratio_to_chemprop": {
            model: statistics.median(
                theirs / ours for theirs, ours in zip(times["chemprop"], times[model], strict=True)
            )
            for model in options.models
            if "chemprop" in times
        },
    }


def resident(process: int) -> int:
    """Return the resident memory of a process, in bytes; 0 if it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def children_of(process: int) -> list[int]:
    """Return the child processes of a process."""
    try:
        return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def watch(options: argparse.Namespace) -> dict[str, Any]:
    """Predict a large file with all cores, and return its memory at growing numbers of rows."""
    options.out.mkdir(parents=True, exist_ok=True)
    source = options.out / "input.csv"
    if not source.exists():
        write_smiles(source, read_smiles(options.source, options.watch))
    target = options.out / "predicted.csv"
    log = log_folder(target) / "chunks"
    command = [sys.executable, "-m", "molslice", "predict", options.models[0], "--quiet", "--resume"]
    command += ["--input", str(source), "--output", str(target)]
    samples: list[dict[str, Any]] = []
    start, size, chunks = time.monotonic(), 0, 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            now = log.stat().st_size if log.exists() else 0
            if now > size:
                size, chunks = now, chunks + 1
                workers = [resident(child) // MEBIBYTE for child in children_of(process.pid)]
                samples.append(
                    {
                        "log_bytes": now,
                        "seconds": round(time.monotonic() - start, 1),
                        "parent": resident(process.pid) // MEBIBYTE,
                        "workers": workers,
                    }
                )
    if process.returncode:
        raise SystemExit(process.returncode)
    per_chunk = size / max(1, -(-options.watch // CHUNK_ROWS))
    for sample in samples:
        sample["rows"] = round(sample.pop("log_bytes") / per_chunk) * CHUNK_ROWS
    with target.open() as lines:
        rows = sum(1 for _ in lines) - 1
    return {
        "model": options.models[0],
        "rows": rows,
        "cores": count_cores(),
        "seconds_of_this_run": round(time.monotonic() - start, 1),
        "mebibytes": samples[:: max(1, len(samples) // 50)],
    }


def main(argv: list[str] | None = None) -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a file of molecules")
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=["gap-xtb"], metavar="NAME,NAME"
    )
    parser.add_argument("--chemprop", help="the program `chemprop`")
    parser.add_argument("--rows", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--watch", type=int, metavar="ROWS", help="predict this many rows and record the memory"
    )
    parser.add_argument("--out", type=Path, help="the folder of --watch")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    if (options.watch is None) != (options.out is None):
        parser.error("--watch and --out need each other")
    if options.watch is None:
        print(record("prediction", compare(options), options.results))
    else:
        print(record("prediction_large", watch(options), options.results))


if __name__ == "__main__":
    main()
