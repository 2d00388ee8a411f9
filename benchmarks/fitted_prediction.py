"""Measure the rate and the memory of `molslice predict` with a model of `molslice fit`, on one core.

    python benchmarks/fitted_prediction.py MODEL molecules.smi.gz --before ../earlier

The first rows of the file are predicted in a new process with one thread, by this checkout and by an earlier
one in turn. Each round also predicts a few rows, whose time is subtracted, so that loading the program and
the model does not count. Rates are molecules per second of processor time, and `ratio` is the median over the
rounds of the time of the earlier checkout to the time of this one. Both have to predict the same table. The
peak memory is measured for two numbers of rows. Writes `benchmarks/results/fitted_prediction.json`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prepare import read_smiles
from record import ROOT, make_parser, median_ratio, record, take_turns

FEW_ROWS = 64
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def predict(checkout: Path, model: Path, rows: Path, out: Path) -> tuple[float, float]:
    """Predict a table with the code of a checkout; return processor seconds and peak memory in MiB."""
    command = [sys.executable, "-m", "molslice", "predict", str(model), "--input", str(rows)]
    command += ["--output", str(out), "--workers", "0", "--quiet"]
    environment = {**os.environ, **THREADS, "PYTHONPATH": str(checkout)}
    process = subprocess.Popen(command, env=environment, cwd=checkout, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def write_rows(path: Path, smiles: Sequence[str]) -> Path:
    """Write a table of SMILES."""
    path.write_text("smiles\n" + "".join(f"{text}\n" for text in smiles))
    return path


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both checkouts in turn, then the memory of this one."""
    model, smiles = options.model.resolve(), read_smiles(options.source, options.most_rows)
    sides = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = write_rows(folder / "many.csv", smiles[: options.rows])
        few = write_rows(folder / "few.csv", smiles[:FEW_ROWS])
        peaks: dict[str, list[float]] = {side: [] for side in sides}

        def milliseconds(side: str) -> float:
            start, _ = predict(sides[side], model, few, folder / "few_out.csv")
            seconds, peak = predict(sides[side], model, many, folder / f"{side}.csv")
            peaks[side].append(peak)
            return 1e3 * (seconds - start) / (options.rows - FEW_ROWS)

        times = take_turns({side: partial(milliseconds, side) for side in sides}, options.rounds)
        if len({(folder / f"{side}.csv").read_bytes() for side in sides}) > 1:
            raise SystemExit("the checkouts predict different tables")
        _, peak = predict(ROOT, model, write_rows(folder / "most.csv", smiles), folder / "most_out.csv")
    return {
        "source": options.source.name,
        "rows": options.rows,
        "milliseconds": {side: statistics.median(values) for side, values in times.items()},
        "rates": {side: 1e3 / statistics.median(values) for side, values in times.items()},
        "ratio": median_ratio(times["before"], times["now"]) if options.before else None,
        "rounds": times,
        "peak_mib": {str(options.rows): max(peaks["now"]), str(len(smiles)): peak},
    }


def main(argv: list[str] | None = None) -> None:
    """Measure and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, help="a folder of molslice fit")
    parser.add_argument("source", type=Path, help="a file of molecules")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="an earlier checkout to compare with")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--most-rows", type=int, default=20_000, help="rows of the second peak of memory")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    print(record("fitted_prediction", measure(options), options.out))


if __name__ == "__main__":
    main()
