"""Measure what related tables are worth in `molslice fit --quality fast`.

    python benchmarks/fit_related.py --data DATA

For each of three pairs of a target and a related target, and each seed, 300 rows are drawn for training and
500 for testing, and 1,000 rows of the related table. Models with and without it are fitted to the same rows.
The compounds of the test rows are left out of the related table by `fit` itself.

Writes `benchmarks/results/fit_related.json`.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record, run_all

from molslice.fitting import learner_fits
from molslice.fitting.fit import fit

TRAIN, TEST, RELATED = 300, 500, 1_000  # rows
HLM, RLM = "log10_hlm_clint[mL/min/kg]", "log10_rlm_clint[mL/min/kg]"
PAIRS = {
    "Lipophilicity (logD) with logP": (
        *("moleculenet/lipo.csv.gz", "exp"),
        *("admet/logp_openchem.csv.gz", "logP_octanol_water"),
    ),
    "ESOL with AqSolDB": (
        *("moleculenet/esol.csv.gz", "measured log solubility in mols per litre"),
        *("admet/tdc_solubility_aqsoldb.csv.gz", "logS[log10(mol/L)]"),
    ),
    "Clearance by human liver microsomes with rat": (
        *("admet/biogen_fang2023.csv.gz", HLM),
        *("admet/biogen_fang2023.csv.gz", RLM),
    ),
}


def main() -> int:
    """Fit all models, and record their errors."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet/ and admet/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    calls = [(args.data, name, seed) for seed in range(args.seeds) for name in PAIRS]
    fits = []
    for _, result in run_all(measure, calls, args.processes):
        fits.append(result)
        sys.stderr.write(f"{result}\n")
    fits.sort(key=lambda entry: ([*PAIRS].index(entry["pair"]), entry["seed"]))
    sizes = {"train_rows": TRAIN, "test_rows": TEST, "related_rows": RELATED}
    pairs = [summarize(name, [entry for entry in fits if entry["pair"] == name]) for name in PAIRS]
    print(record("fit_related", {**sizes, "quality": "fast", "pairs": pairs, "fits": fits}, args.out))
    return 0


def measure(data: Path, name: str, seed: int) -> dict[str, Any]:
    """Fit with and without the related table, and return the errors."""
    learner_fits.BASELINES.clear()  # they are no part of the model
    file, target, other_file, other = PAIRS[name]
    draw = np.random.default_rng(seed)
    rows, related = (
        drawn(data / file, target, TRAIN + TEST, draw),
        drawn(data / other_file, other, RELATED, draw),
    )
    rows["part"] = ["train"] * TRAIN + ["test"] * TEST
    result: dict[str, Any] = {"pair": name, "seed": seed}
    with tempfile.TemporaryDirectory() as place:
        table, other_table = Path(place, "rows.csv"), Path(place, "related.csv")
        rows.to_csv(table, index=False)
        related.to_csv(other_table, index=False)
        options = {"split": "part", "quality": "fast", "seed": seed, "quiet": True}
        for label, tables in (("without", []), ("with", [(other_table, other)])):
            start = time.monotonic()
            about = fit(table, target, Path(place, label), related=tables, **options)
            (errors,) = about["results"]
            result[label] = {
                "held_out": errors["test"]["molslice fit"],
                "cross_validated": errors["cross_validated"],
                "seconds": round(time.monotonic() - start, 1),
            }
        (of_related,) = about["related"]
    names = ("rows", "shared_compounds", "cross_validated")
    return {**result, "related": {key: of_related[key] for key in names}}


def drawn(file: Path, target: str, count: int, draw: np.random.Generator) -> pd.DataFrame:
    """Draw rows with a value, with the columns `smiles` and the target."""
    table = pd.read_csv(file)[["smiles", target]].dropna()
    return table.iloc[draw.permutation(len(table))[:count]].reset_index(drop=True)


def summarize(name: str, fits: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds of one pair."""
    columns = {
        f"{label}_{error}": [entry[label][error] for entry in fits]
        for label in ("without", "with")
        for error in ("held_out", "cross_validated")
    }
    changes = np.array(columns["with_held_out"]) - columns["without_held_out"]
    means = {key: float(np.mean(values)) for key, values in columns.items()}
    return {"pair": name, **means, "change": float(changes.mean()), "change_sd": float(changes.std(ddof=1))}


if __name__ == "__main__":
    sys.exit(main())
