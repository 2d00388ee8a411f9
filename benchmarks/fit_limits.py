"""Measure what limits such as `>10` are worth to `molslice fit`, on sets whose values are all known.

    python benchmarks/fit_limits.py esol.csv.gz:TARGET lipo.csv.gz:exp freesolv.csv.gz:expt

For each seed, other rows of a table are drawn for training and for the test. Of the training rows, 30% become
limits: in the scheme `threshold` the largest values, which are only known to be above the quantile 0.7; in
the scheme `random` the values above a bound of their own, which is the value of another row, drawn at random,
plus a constant. Four models without an encoder are fitted: to the known values, to the limits, without the
rows with limits, and to limits as if they were exact values. Their mean absolute errors on the test rows,
which are exact, are compared.

`excess` is the part of the additional error without the rows that remains with their limits: the mean over
the seeds of the error with limits minus the error with known values, divided by the same difference without
the rows.

Writes `benchmarks/results/fit_limits.json`.
"""

import argparse
import csv
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from fit_seeds import read_rows
from record import make_parser, record, spread

from molslice.fitting.data import Limits
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.tasks.metrics import mean_absolute_error

SHARE = 0.3  # of the training rows
LEVEL = 0.9
SCHEMES = ("threshold", "random")
CHOICES: tuple[Limits, ...] = ("learn", "drop", "exact")
Scores = dict[str, dict[str, float]]
WAYS = ("known", *CHOICES)  # all values, and the choices of --limits


def censor(values: np.ndarray, scheme: str, draw: np.random.Generator) -> list[str]:
    """Return the values as cells, with limits in place of the 30% that are above their bounds."""
    others = np.zeros(len(values)) if scheme == "threshold" else draw.permutation(values)
    bounds = others + np.quantile(values - others, 1.0 - SHARE)
    cells = zip(values.tolist(), bounds.tolist(), strict=True)
    return [f">{bound!r}" if value > bound else repr(value) for value, bound in cells]


def fit_once(
    smiles: list[str], cells: list[str], limits: Limits, seed: int, new: list[str]
) -> dict[str, Any]:
    """Fit to a table, and return predictions of new molecules and the processor time of the fit."""
    with tempfile.TemporaryDirectory() as place:
        table, folder = Path(place, "known.csv"), Path(place, "model")
        with table.open("w", newline="") as stream:
            csv.writer(stream).writerows([("smiles", "y"), *zip(smiles, cells, strict=True)])
        start = time.process_time()
        fit(table, "y", folder, split="all", encoder=None, seed=seed, limits=limits, quiet=True)
        seconds = time.process_time() - start
        predicted = load_model(folder).predict_with_errors(new, interval=LEVEL)
    return {"predictions": predicted, "seconds": seconds}


def measure(entry: str, seed: int, options: argparse.Namespace) -> dict[str, Scores]:
    """Return the scores of the models of a table and a seed, for each scheme."""
    rows, draw = read_rows(entry, 10_000), np.random.default_rng(seed)
    order = draw.permutation(len(rows))[: options.known + options.new]
    smiles = [rows[place][0] for place in order]
    values = np.array([float(rows[place][1]) for place in order])
    known, new = slice(options.known), slice(options.known, None)
    exact = fit_once(smiles[known], [repr(v) for v in values[known].tolist()], "learn", seed, smiles[new])
    results = {}
    for scheme in SCHEMES:
        cells, fits = censor(values[known], scheme, draw), {"known": exact}
        for way in CHOICES:
            fits[way] = fit_once(smiles[known], cells, way, seed, smiles[new])
        results[scheme] = {way: score(one, values[new]) for way, one in fits.items()}
    print(entry, seed, results, flush=True)
    return results


def score(fitted: dict[str, Any], truth: np.ndarray) -> dict[str, float]:
    """Return error, coverage of the intervals and processor seconds of a fit."""
    predicted = fitted["predictions"]
    inside = (predicted.lower[:, 0] <= truth) & (truth <= predicted.upper[:, 0])
    error = mean_absolute_error(predicted.values[:, 0], truth)
    return {"mae": error, "coverage": float(inside.mean()), "seconds": fitted["seconds"]}


def summarize(scores: list[Scores]) -> dict[str, Any]:
    """Return means over the seeds, and the excess."""
    columns = {
        name: {way: [one[way][name] for one in scores] for way in WAYS}
        for name in ("mae", "coverage", "seconds")
    }
    means = {way: statistics.fmean(errors) for way, errors in columns["mae"].items()}
    return {
        "mae": {way: spread(errors) for way, errors in columns["mae"].items()},
        "excess": (means["learn"] - means["known"]) / (means["drop"] - means["known"]),
        "coverage_of_90": {way: statistics.fmean(shares) for way, shares in columns["coverage"].items()},
        "seconds": {way: statistics.median(seconds) for way, seconds in columns["seconds"].items()},
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("entries", nargs="+", metavar="FILE:TARGET")
    parser.add_argument("--known", type=int, default=400)
    parser.add_argument("--new", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="fits side by side")
    options = parser.parse_args(argv)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        tasks = {
            entry: [pool.submit(measure, entry, seed, options) for seed in range(options.seeds)]
            for entry in options.entries
        }
        rows = [
            {
                "set": Path(entry.rpartition(":")[0]).name.split(".")[0],
                "scheme": scheme,
                **summarize([task.result()[scheme] for task in of_entry]),
            }
            for entry, of_entry in tasks.items()
            for scheme in SCHEMES
        ]
    for row in rows:
        print(row)
    settings = {name: getattr(options, name) for name in ("known", "new", "seeds")}
    print(record("fit_limits", {**settings, "share": SHARE, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
