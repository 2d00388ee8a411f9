"""Measure `molslice serve` under load, on the loopback interface of this machine.

    python benchmarks/serving.py

Starts the service with one worker process and a shipped model. 64 clients, each with one connection, send one
molecule after the other without a pause. Each answer is compared with the prediction of the model in this
process. Then the same again while the service predicts a file. The clients run in this process, on the same
cores. Writes `benchmarks/results/serving.json`.
"""

import argparse
import asyncio
import csv
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from record import ROOT, make_parser, record

from molslice import load_model

MOLECULES = ROOT / "data" / "gap_xtb" / "raw" / "data.csv.gz"
LIMIT_SECONDS = 120.0  # of one measurement
TOLERANCE = 1e-3  # eV; batches change the rounding only


@contextmanager
def running_service(model: str, *options: str) -> Iterator[tuple[str, int]]:
    """Start the service on a free port and yield its address; end it after the block."""
    command = [sys.executable, "-m", "molslice", "serve", model, *options, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            address = next(filter(None, (re.search(r"http://([\d.]+):(\d+)", line) for line in lines)), None)
            if address is None:
                raise RuntimeError("the service has not started")
            yield address[1], int(address[2])
        finally:
            process.terminate()


async def run_client(
    address: tuple[str, int], smiles: Sequence[str], wanted: dict[str, float], end: float
) -> dict[str, Any]:
    """Send molecules one after the other over one connection.

    Returns:
        Seconds of each answer, and the numbers of answers that are wrong or missing.
    """
    reader, writer = await asyncio.open_connection(*address)
    seconds: list[float] = []
    wrong = lost = 0
    for text in smiles:
        if time.monotonic() > end:
            break
        body = json.dumps({"smiles": text}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
        started = time.perf_counter()
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", answer)
            content = await reader.readexactly(int(length[1]) if length else 0)
        except (OSError, asyncio.IncompleteReadError):
            lost += 1
            break
        seconds.append(time.perf_counter() - started)
        if not is_right(answer, content, text, wanted[text]):
            wrong += 1
    writer.close()
    return {"seconds": seconds, "wrong": wrong, "lost": lost}


def is_right(head: str, content: bytes, smiles: str, wanted: float) -> bool:
    """Return whether an answer is the prediction of this molecule."""
    if " 200 " not in head.partition("\r\n")[0]:
        return False
    (row,) = json.loads(content)["predictions"]
    (value,) = row["values"].values()
    return row["smiles"] == smiles and abs(value - wanted) < TOLERANCE


async def run_clients(
    address: tuple[str, int], clients: int, requests: int, wanted: dict[str, float]
) -> dict[str, Any]:
    """Run all clients at once, and return times, counts and rate."""
    molecules = list(wanted)
    end = time.monotonic() + LIMIT_SECONDS
    started = time.perf_counter()
    calls = [
        run_client(
            address, [molecules[(i * requests + j) % len(molecules)] for j in range(requests)], wanted, end
        )
        for i in range(clients)
    ]
    results = await asyncio.gather(*calls)
    elapsed = time.perf_counter() - started
    times = sorted(second for result in results for second in result["seconds"])
    return {
        "clients": clients,
        "requests": clients * requests,
        "answers": len(times),
        "wrong": sum(result["wrong"] for result in results),
        "lost": sum(result["lost"] for result in results),
        "seconds": elapsed,
        "answers_per_second": len(times) / elapsed,
        "p50_seconds": statistics.median(times),
        "p99_seconds": times[int(0.99 * (len(times) - 1))],
        "max_seconds": times[-1],
    }


def send_file(address: tuple[str, int], molecules: Sequence[str], rows: int) -> str:
    """Upload a file, wait until its prediction runs, and return the path of its job."""
    text = "\n".join(["smiles", *(molecules[i % len(molecules)] for i in range(rows))])
    base = f"http://{address[0]}:{address[1]}"
    request = urllib.request.Request(f"{base}/files?name=molecules.csv", text.encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        url = f"{base}/files/{json.load(answer)['id']}"
    while not read_json(url)["rows"]:
        time.sleep(0.2)
    return url


def read_json(url: str) -> dict[str, Any]:
    """Return the JSON at an address of the service."""
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def mean_batch(address: tuple[str, int]) -> dict[str, float]:
    """Return sum and count of the sizes of all batches so far."""
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics") as answer:
        text = answer.read().decode()
    counts = re.findall(r"^molslice_batch_molecules_(sum|count) (\S+)", text, re.MULTILINE)
    return {name: float(value) for name, value in counts}


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the service without and with a file."""
    with gzip.open(MOLECULES, "rt") as file:
        molecules = [row["smiles"] for row in csv.DictReader(file)][:: max(1, arguments.step)]
    values = load_model(arguments.model).predict(molecules)
    wanted = dict(zip(molecules, map(float, values), strict=True))
    results = []
    with running_service(arguments.model) as address:
        asyncio.run(run_clients(address, 4, 5, wanted))  # the first calls are not measured
        for with_file in (False, True):
            job = send_file(address, molecules, arguments.file_rows) if with_file else None
            before = mean_batch(address)
            load = os.getloadavg()[0]
            times = asyncio.run(run_clients(address, arguments.clients, arguments.requests, wanted))
            after = mean_batch(address)
            batch = (after["sum"] - before["sum"]) / (after["count"] - before["count"])
            state = None if job is None else read_json(job)["state"]
            results.append(
                {
                    "while_a_file_is": state,
                    **times,
                    "molecules_of_a_batch": batch,
                    "load_average_before": load,
                }
            )
    return {
        "question": "time to the answer of molslice serve for many clients at once",
        "model": arguments.model,
        "workers": 1,
        "results": results,
    }


def main() -> None:
    """Measure and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="gap-xtb")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=60, help="of each client")
    parser.add_argument("--step", type=int, default=7, help="take every n-th molecule")
    parser.add_argument("--file-rows", type=int, default=60_000)
    arguments = parser.parse_args()
    path = record("serving", measure(arguments), arguments.out)
    print(path.read_text())


if __name__ == "__main__":
    main()
