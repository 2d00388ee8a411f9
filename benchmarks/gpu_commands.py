"""Measure commands of a user on a device, each in a new process from its start to its end."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from serving import running_service

ONE_COMMAND_SECONDS = 240
FEW_ROWS = 1_000  # to predict
REQUESTS = 5  # of each size

Numbers = dict[str, Any]


def measure_predict(path: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure `molslice predict gap-xtb`, and compare predictions of the device and of the CPU."""
    table = pd.read_csv(path, usecols=["smiles"])
    few = 20 if small else FEW_ROWS
    table = table.head(3 * few) if small else table
    with tempfile.TemporaryDirectory() as folder:
        files = {count: Path(folder) / f"{count}.csv" for count in (few, len(table))}
        for count, file in files.items():
            table.head(count).to_csv(file, index=False)

        def predict(count: int, device: str) -> tuple[float, pd.DataFrame]:
            out = Path(folder) / "predicted.csv"
            inputs = ["predict", "gap-xtb", "--input", str(files[count]), "--output", str(out)]
            seconds, _ = run_command(*inputs, "--device", device)
            return seconds, pd.read_csv(out)

        cold_seconds, _ = predict(few, device)  # compiles kernels
        start_seconds, on_device = predict(few, device)
        seconds, _ = predict(len(table), device)
        cpu_seconds, on_cpu = predict(few, "cpu")
        default_seconds, _ = predict(len(table), "auto")
    numbers = on_cpu.select_dtypes("number").columns
    return {
        "rows": len(table),
        "seconds": seconds,
        "cold_seconds_of_few": cold_seconds,
        "seconds_of_few": start_seconds,
        "seconds_of_few_on_cpu": cpu_seconds,
        "seconds_by_default": default_seconds,
        "molecules_per_second": rate_of(len(table) - few, seconds - start_seconds),
        "largest_difference": float((on_device[numbers] - on_cpu[numbers]).abs().max().max()),
    }


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


def measure_embed(path: Path, device: str, *, small: bool = False) -> Numbers:
    """Measure `molslice embed encoder-small`, and compare embeddings of the device and of the CPU."""
    table = pd.read_csv(path, usecols=["smiles"])
    few = 20 if small else FEW_ROWS
    table = table.head(3 * few) if small else table
    with tempfile.TemporaryDirectory() as folder:

        def embed(count: int, device: str) -> tuple[float, np.ndarray]:
            rows, out = Path(folder) / f"{count}.csv", Path(folder) / "embedded.npy"
            table.head(count).to_csv(rows, index=False)
            inputs = ["embed", "encoder-small", "--input", str(rows), "--output", str(out)]
            seconds, _ = run_command(*inputs, "--device", device)
            return seconds, np.load(out)

        cold_seconds, _ = embed(few, device)  # compiles kernels
        start_seconds, on_device = embed(few, device)
        seconds, _ = embed(len(table), device)
        cpu_seconds, on_cpu = embed(few, "cpu")
    return {
        "rows": len(table),
        "seconds": seconds,
        "cold_seconds_of_few": cold_seconds,
        "seconds_of_few": start_seconds,
        "seconds_of_few_on_cpu": cpu_seconds,
        "molecules_per_second": rate_of(len(table) - few, seconds - start_seconds),
        "largest_difference": float(np.nanmax(np.abs(on_device - on_cpu))),
    }


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
