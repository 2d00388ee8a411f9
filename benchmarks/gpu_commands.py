"""Measure commands of a user on a device, each in a new process from its start to its end."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from serving import running_service

ONE_COMMAND_SECONDS = 240
FEW_ROWS = 1_000  # to predict
REQUESTS = 5  # of each size

Numbers = dict[str, Any]


def measure_predict(path: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure `molslice predict gap-xtb`, and compare predictions of the device and of the CPU."""
    with measured_rows(("predict", "gap-xtb"), "predicted.csv", path, device, small=small) as rows:
        tables = [pd.read_csv(written).select_dtypes("number") for written in rows.written]
        numbers = {**rows.numbers, "seconds_by_default": rows.run("auto")}
    on_device, on_cpu = tables
    return {**numbers, "largest_difference": float((on_device - on_cpu).abs().max().max())}


def measure_embed(path: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure `molslice embed encoder-small`, and compare embeddings of the device and of the CPU."""
    with measured_rows(("embed", "encoder-small"), "embedded.npy", path, device, small=small) as rows:
        on_device, on_cpu = map(np.load, rows.written)
    return {**rows.numbers, "largest_difference": float(np.nanmax(np.abs(on_device - on_cpu)))}


class MeasuredRows(NamedTuple):
    """The times of a command for few and for all rows of a table.

    Attributes:
        numbers: The times in seconds, the number of rows, and the rate.
        written: What it wrote for few rows on the device and on the CPU.
        run: Runs the command for all rows on a device, and returns the seconds.
    """

    numbers: Numbers
    written: tuple[Path, Path]
    run: Callable[[str], float]


@contextmanager
def measured_rows(
    command: tuple[str, str], output: str, path: Path, device: str, *, small: bool
) -> Iterator[MeasuredRows]:
    """Measure a command whose time for few rows is its start; its files are removed after the block."""
    table = pd.read_csv(path, usecols=["smiles"])
    few = 20 if small else FEW_ROWS
    table = table.head(3 * few) if small else table
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def run(count: int, device: str, prefix: str = "") -> float:
            rows = folder / f"{count}.csv"
            table.head(count).to_csv(rows, index=False)
            files = ["--input", str(rows), "--output", str(folder / f"{prefix}{output}")]
            seconds, _ = run_command(*command, *files, "--device", device)
            return seconds

        cold_seconds = run(few, device)  # compiles kernels
        start_seconds = run(few, device, "device_")
        seconds = run(len(table), device)
        cpu_seconds = run(few, "cpu", "cpu_")
        numbers = {
            "rows": len(table),
            "seconds": seconds,
            "cold_seconds_of_few": cold_seconds,
            "seconds_of_few": start_seconds,
            "seconds_of_few_on_cpu": cpu_seconds,
            "molecules_per_second": rate_of(len(table) - few, seconds - start_seconds),
        }
        written = folder / f"device_{output}", folder / f"cpu_{output}"
        yield MeasuredRows(numbers, written, partial(run, len(table)))


def measure_fit(path: str, target: str, devices: Iterable[str], quality: str) -> Numbers:
    """Measure `molslice fit` from a cold shell on each device, and keep the errors that it prints."""
    seconds: dict[str, float] = {}
    printed: dict[str, list[str]] = {}
    for device in devices:
        with tempfile.TemporaryDirectory() as folder:
            inputs = ["fit", path, "--target", target, "--out", str(Path(folder) / "model")]
            seconds[device], text = run_command(*inputs, "--quality", quality, "--device", device)
        printed[device] = text.splitlines()
    return {
        "quality": quality,
        "seconds": next(iter(seconds.values())),
        "by_device": seconds,
        "printed": printed,
    }


def run_command(*arguments: str) -> tuple[float, str]:
    """Run a command of molslice.

    Returns:
        Its seconds, and what it printed to standard output.
    """
    start = time.perf_counter()
    command = [sys.executable, "-m", "molslice", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ONE_COMMAND_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr[-1000:]}")
    return time.perf_counter() - start, done.stdout


def rate_of(molecules: int, seconds: float) -> float | None:
    """Return molecules per second; None if there are too few to tell."""
    return molecules / seconds if molecules > 0 and seconds > 0 else None


def measure_serving(path: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure answers of `molslice serve gap-xtb` on the device and on the CPU, one request at a time."""
    smiles = pd.read_csv(path, usecols=["smiles"])["smiles"].tolist()
    sizes = (1, 20) if small else (1, FEW_ROWS)
    result: Numbers = {}
    values: dict[str, list[float]] = {}
    for name in dict.fromkeys((device, "cpu")):
        start = time.perf_counter()
        with running_service("gap-xtb", "--device", name, "--timeout", "200") as (host, port):
            result[f"{name}, seconds until it is ready"] = wait_for(f"http://{host}:{port}/limits") - start
            for size in sizes:
                body = json.dumps({"smiles": smiles[:size]}).encode()
                seconds = []
                for _ in range(REQUESTS):
                    request = urllib.request.Request(
                        f"http://{host}:{port}/predict", body, {"Content-Type": "application/json"}
                    )
                    start = time.perf_counter()
                    with urllib.request.urlopen(request, timeout=ONE_COMMAND_SECONDS) as answer:
                        rows = json.load(answer)["predictions"]
                    seconds.append(time.perf_counter() - start)
                result[f"{name}, {size} molecules, first and fastest ms"] = [
                    1000 * seconds[0],
                    1000 * min(seconds),
                ]
            values[name] = [next(iter(row["values"].values())) for row in rows]
    result["largest_difference"] = float(np.abs(np.subtract(values[device], values["cpu"])).max())
    return result


def wait_for(url: str) -> float:
    """Wait until a service answers, and return the time."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=ONE_COMMAND_SECONDS) as answer:
                answer.read()
        except OSError:  # also an answer that asks to come back
            time.sleep(0.1)
        else:
            return time.perf_counter()


def measure_loading(store: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure `molslice bench data` with batches of 1,024 molecules that the device gathers too."""
    words = ["bench", "data", "--store", str(store), "--device", device, "--json", "--rounds", "1"]
    sizes = ("64", "2048") if small else ("1024", "65536")
    seconds, text = run_command(
        *words, "--batch-size", sizes[0], "--token-budget", sizes[1], "--seconds", "1" if small else "3"
    )
    return {"seconds": seconds, "result": json.loads(text)}
