"""Helpers of the benchmarks: the command line, repeated measurements, and the result as JSON.

A result has the date, the commit, the hardware and the versions of packages.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from molslice.bench.machine import describe_machine
from molslice.files.atomic import write_atomically
from molslice.files.parsing import read_json_object
from molslice.files.processes import end_with_parent

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("numpy", "torch", "triton", "rdkit", "scikit-learn", "lightning", "torch-geometric", "ogb")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the docstring of a program, and `--out` for the folder of the result."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    return parser


def take_turns(measurements: Mapping[Any, Callable[[], Any]], rounds: int) -> dict[Any, list[Any]]:
    """Call all measurements in each round, so that other work affects all alike; return the values."""
    values: dict[Any, list[Any]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            values[name].append(measure())
    return values


def run_all(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], processes: int
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Call a function in new processes, and yield arguments and result of each call when it has ended.

    A call that fails ends the others that have not begun. The processes end with this one.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=end_with_parent) as pool:
        futures = {pool.submit(function, *arguments): arguments for arguments in calls}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the minimum and the maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median over the rounds of the ratios of two measurements."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def child_seconds() -> float:
    """Return the processor time of the child processes of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def other_environment(threads: int) -> dict[str, str]:
    """Return the variables for a program of another Python environment.

    PYTHONPATH is left out, because it has modules of this environment.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**variables, "OMP_NUM_THREADS": str(threads)}


def group_by(entries: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Return the entries by key, in the order of their first appearance."""
    groups: dict[Any, list[Any]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def list_finished(runs: Path, what: str) -> list[Path]:
    """Return the results of finished runs; end the program if there are none of `what`."""
    finished = sorted((runs / "final").glob("*.json"))
    if not finished:
        raise SystemExit(f"no {what} is finished in {runs}")
    return finished


def add_finished(
    recorded: Path, key: str, finished: Iterable[Path], identity: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    """Return the list `key` of a recorded result and the finished runs; a repeated one replaces the former.

    Args:
        recorded: The JSON of the result, if there is one.
        key: Name of the list in it.
        finished: The JSON of each run.
        identity: Returns what the same runs have in common.
    """
    entries = read_json_object(recorded)[key] if recorded.is_file() else []
    entries += [read_json_object(file) for file in finished]
    return list({identity(entry): entry for entry in entries}.values())


def record(name: str, payload: dict[str, Any], out_dir: str | Path) -> Path:
    """Write `payload` with date, commit, hardware and versions to OUT_DIR/NAME.json, and return the path."""
    path = Path(out_dir) / f"{name}.json"
    date = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"name": name, "date": date, **describe_conditions(), **payload}
    write_json(path, content)
    return path


def describe_conditions() -> dict[str, Any]:
    """Return the commit, the hardware and the versions of a measurement."""
    return {"commit": find_commit(), "hardware": describe_hardware(), "versions": list_versions()}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return the mean and the standard deviation (None for one value)."""
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def find_commit() -> str | None:
    """Return the checked-out commit, or None outside a git checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_hardware() -> dict[str, Any]:
    """Return the processor model, the number of cores, and the names of the GPUs if there are any."""
    hardware: dict[str, Any] = {
        "cpu_model": describe_machine("cpu")["processor"],
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    if torch.cuda.is_available():
        devices = range(torch.cuda.device_count())
        hardware["gpus"] = [torch.cuda.get_device_name(device) for device in devices]
    return hardware


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages in PACKAGES that are installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
