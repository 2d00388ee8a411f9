"""Measure what limits such as `>10` are worth to `molslice fit`, on sets whose values are all known.

    python benchmarks/fit_limits.py esol.csv.gz:TARGET lipo.csv.gz:exp freesolv.csv.gz:expt

For each seed, other rows of a table are drawn for training and for the test. Of the training rows, 30% become
limits: in the scheme `threshold` the largest values, which are only known to be above the quantile 0.7; in
the scheme `random` rows drawn at random, whose limit is 0.1 to 1.0 standard deviations below or above the
value. Four models without an encoder are fitted: to the known values, to the limits, without the rows with
limits, and to limits as if they were exact values. Their mean absolute errors on the test rows, which are
exact, are compared.

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
from pathlib import Path
from typing import Any

import numpy as np
from fit_seeds import read_rows
from record import make_parser, record, spread

from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.tasks.metrics import mean_absolute_error

SHARE = 0.3  # of the training rows
LEVEL = 0.9
WAYS = ("known", "limits", "dropped", "exact")


def censor(values: np.ndarray, scheme: str, draw: np.random.Generator) -> list[str]:
    """Return the values as cells, with limits in place of 30% of them."""
    cells = [repr(float(value)) for value in values]
    if scheme == "threshold":
        bound = float(np.quantile(values, 1.0 - SHARE))
        return [f">{bound!r}" if value > bound else cell for value, cell in zip(values, cells, strict=True)]
    for row in draw.permutation(len(values))[: round(SHARE * len(values))]:
        distance = draw.uniform(0.1, 1.0) * values.std()
        lower = draw.random() < 0.5
        cells[row] = f"{'>' if lower else '<'}{float(values[row] + (-distance if lower else distance))!r}"
    return cells


def fit_once(smiles: list[str], cells: list[str], limits: str, seed: int, new: list[str]) -> dict[str, Any]:
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


def measure(entry: str, scheme: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of the four models of a table and a scheme over all seeds."""
    rows = read_rows(entry, 10_000)
    errors: dict[str, list[float]] = {way: [] for way in WAYS}
    coverages: dict[str, list[float]] = {way: [] for way in WAYS}
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(options.seeds):
        draw = np.random.default_rng(seed)
        order = draw.permutation(len(rows))[: options.known + options.new]
        smiles = [rows[place][0] for place in order]
        values = np.array([float(rows[place][1]) for place in order])
        known, new, truth = smiles[: options.known], smiles[options.known :], values[options.known :]
        exact = [repr(float(value)) for value in values[: options.known]]
        cells = censor(values[: options.known], scheme, draw)
        for way, table, limits in (
            ("known", exact, "learn"),
            ("limits", cells, "learn"),
            ("dropped", cells, "drop"),
            ("exact", cells, "exact"),
        ):
            fitted = fit_once(known, table, limits, seed, new)
            predicted, seconds_of_fit = fitted["predictions"], fitted["seconds"]
            errors[way].append(mean_absolute_error(predicted.values[:, 0], truth))
            inside = (predicted.lower[:, 0] <= truth) & (truth <= predicted.upper[:, 0])
            coverages[way].append(float(inside.mean()))
            seconds[way].append(seconds_of_fit)
        print(entry, scheme, seed, {way: round(errors[way][-1], 4) for way in WAYS}, flush=True)
    means = {way: statistics.fmean(errors[way]) for way in WAYS}
    return {
        "set": Path(entry.rpartition(":")[0]).name.split(".")[0],
        "scheme": scheme,
        "train_rows": options.known,
        "test_rows": len(truth),
        "mae": {way: spread(errors[way]) for way in WAYS},
        "excess": (means["limits"] - means["known"]) / (means["dropped"] - means["known"]),
        "coverage_of_90": {way: statistics.fmean(coverages[way]) for way in WAYS},
        "seconds": {way: statistics.median(seconds[way]) for way in WAYS},
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("entries", nargs="+", metavar="FILE:TARGET")
    parser.add_argument("--known", type=int, default=400)
    parser.add_argument("--new", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    rows = []
    for entry in options.entries:
        for scheme in ("threshold", "random"):
            rows.append(measure(entry, scheme, options))
            print(rows[-1], flush=True)
    settings = {name: getattr(options, name) for name in ("known", "new", "seeds")}
    print(record("fit_limits", {**settings, "share": SHARE, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
