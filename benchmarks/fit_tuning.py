"""Measure what `molslice fit --tune` changes in the error on held-out rows.

    python benchmarks/fit_tuning.py esol.csv.gz:TARGET freesolv.csv.gz:expt

Rows of each table are drawn at random with several seeds: 400 are learned without an encoder, at most 500
others are held out. The same rows are fitted with the defaults and tuned. The trials are bounded by their
number, not by minutes, so that the result does not depend on the speed of the machine.

Writes `benchmarks/results/fit_tuning.json`.
"""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import group_by, make_parser, record, run_all, spread

from molslice.fitting import tuning
from molslice.fitting.fit import fit


def read_rows(entry: str, known: int, new: int, seed: int) -> list[tuple[str, str, str]]:
    """Return SMILES, values and parts of drawn rows of `FILE:TARGET`; the first `known` are training rows."""
    path, _, target = entry.rpartition(":")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    smiles = next(name for name in table if name.lower() == "smiles")
    rows = list(zip(table[smiles], table[target], strict=True))
    drawn = np.random.default_rng(seed).permutation(len(rows))[: known + new]
    return [(*rows[place], "test" if number >= known else "train") for number, place in enumerate(drawn)]


def measure(entry: str, seed: int, known: int, new: int, settings: int) -> dict[str, Any]:
    """Fit the rows of a seed with the defaults and tuned, and return the errors."""
    tuning.MAX_TRIALS = settings
    result: dict[str, Any] = {"set": Path(entry.rpartition(":")[0]).name.split(".")[0], "seed": seed}
    with tempfile.TemporaryDirectory() as place:
        table = Path(place, "rows.csv")
        with table.open("w", newline="") as stream:
            csv.writer(stream).writerows([("smiles", "y", "part"), *read_rows(entry, known, new, seed)])
        for name, minutes in (("defaults", None), ("tuned", float("inf"))):
            options: dict[str, Any] = {"split": "part", "encoder": None, "seed": seed, "workers": 0}
            about = fit(table, "y", Path(place, name), tune=minutes, quiet=True, **options)
            errors = about["results"][0]
            result |= {"metric": about["metric"], "rows": about["rows"]}
            result[name] = {
                "held_out": errors["test"]["molslice fit"],
                "cross_validated": errors["cross_validated"],
                "seconds": about["seconds"],
            }
    trials = about["tuning"]
    chosen = [trial for trial in trials if trial["chosen"]]
    result["trials"] = {
        "count": len(trials),
        "seconds": sum(trial["seconds"] for trial in trials),
        "cross_validated": [trial["cross_validated"] for trial in (trials[0], chosen[-1])],
        "chosen": [trial["settings"] for trial in chosen],
    }
    return result


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("entries", nargs="+", metavar="FILE:TARGET")
    parser.add_argument("--known", type=int, default=400)
    parser.add_argument("--new", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settings", type=int, default=12, help="of each learner, with the defaults")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    numbers = (options.known, options.new, options.settings)
    calls = [(entry, seed, *numbers) for entry in options.entries for seed in range(options.seeds)]
    rows = []
    for _, row in run_all(measure, calls, options.processes):
        rows.append(row)
        print(row, flush=True)
    summary = {
        name: {
            "held_out": {
                kind: spread([row[kind]["held_out"] for row in of_set]) for kind in ("defaults", "tuned")
            },
            "difference": spread([row["tuned"]["held_out"] - row["defaults"]["held_out"] for row in of_set]),
        }
        for name, of_set in group_by(rows, lambda row: row["set"]).items()
    }
    about = {name: getattr(options, name) for name in ("known", "new", "seeds", "settings")}
    rows.sort(key=lambda row: (row["set"], row["seed"]))
    print(record("fit_tuning", {**about, "summary": summary, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
