"""Measure what another seed, and a second division into folds, change in `molslice fit`.

    python benchmarks/fit_seeds.py esol.csv.gz:TARGET freesolv.csv.gz:expt

Each table is shuffled once. The first 400 rows are fitted with several seeds and without an encoder, with the
rows divided into folds once and twice; the next 500 rows are new. Differences between the predictions with
two seeds are in standard deviations of the target (probabilities for classes). Processor seconds are medians
over the seeds.

Writes `benchmarks/results/fit_seeds.json`.
"""

import argparse
import csv
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record, spread

from molslice.fitting import folds as fit_folds
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.tasks.metrics import mean_absolute_error, roc_auc

LEVEL = 0.9


def read_rows(entry: str, count: int) -> list[tuple[str, str]]:
    """Return SMILES and values of an entry `FILE:TARGET`, in random order."""
    path, _, target = entry.rpartition(":")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    smiles = next(name for name in table if name.lower() == "smiles")
    rows = [(text, value) for text, value in zip(table[smiles], table[target], strict=True) if value]
    return [rows[place] for place in np.random.default_rng(0).permutation(len(rows))[:count]]


def fit_once(
    known: list[tuple[str, str]], new: list[tuple[str, str]], seed: int, place: Path
) -> dict[str, Any]:
    """Fit with a seed, and return the predictions of the new rows and what they cost."""
    table, folder = place / "known.csv", place / str(seed)
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([("smiles", "y"), *known])
    start = time.process_time()
    fit(table, "y", folder, split="all", encoder=None, seed=seed, quiet=True)
    fit_seconds = time.process_time() - start
    model, smiles = load_model(folder), [text for text, _ in new]
    model.predict(smiles[:20])
    start = time.process_time()
    predicted = model.predict(smiles)
    seconds = time.process_time() - start
    return {
        "kind": model.targets.kind,
        "predicted": predicted.ravel(),
        "with_interval": model.predict_with_errors(smiles, interval=LEVEL),
        "fit_seconds": fit_seconds,
        "predict_seconds": seconds,
        "megabytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6,
    }


def measure(entry: str, divisions: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of a table for a number of divisions into folds."""
    rows = read_rows(entry, options.known + options.new)
    known, new = rows[: options.known], rows[options.known :]
    fit_folds.ASSIGNMENTS = divisions
    with tempfile.TemporaryDirectory() as folder:
        fits = [fit_once(known, new, seed, Path(folder)) for seed in range(options.seeds)]
    truth = np.array([float(value) for _, value in new])
    readable = np.isfinite(fits[0]["predicted"])
    classes = fits[0]["kind"] == "classification"
    score = roc_auc if classes else mean_absolute_error
    errors = [score(one["predicted"][readable], truth[readable]) for one in fits]
    unit = 1.0 if classes else truth[readable].std()
    differences = [
        np.abs(one["predicted"] - other["predicted"])[readable] / unit
        for one, other in itertools.combinations(fits, 2)
    ]
    result = {
        "set": Path(entry.rpartition(":")[0]).name.split(".")[0],
        "divisions": divisions,
        "metric": "roc_auc" if classes else "mae",
        "score": spread(errors),
        "difference_of_two_seeds": {
            "mean": float(np.mean(differences)),
            "largest": float(np.mean([one.max() for one in differences])),
        },
        **{
            name: statistics.median(one[name] for one in fits)
            for name in ("fit_seconds", "predict_seconds", "megabytes")
        },
    }
    if not classes:
        inside = [
            (one["with_interval"].lower[:, 0] <= truth) & (truth <= one["with_interval"].upper[:, 0])
            for one in fits
        ]
        result["coverage_of_90"] = float(np.mean([one[readable].mean() for one in inside]))
    return result


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("entries", nargs="+", metavar="FILE:TARGET")
    parser.add_argument("--known", type=int, default=400)
    parser.add_argument("--new", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    if options.seeds < 2:
        parser.error("--seeds: at least 2, because pairs of seeds are compared")
    rows = []
    for entry in options.entries:
        for divisions in (1, 2):
            rows.append(measure(entry, divisions, options))
            print(rows[-1], flush=True)
    settings = {name: getattr(options, name) for name in ("known", "new", "seeds")}
    print(record("fit_seeds", {**settings, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
