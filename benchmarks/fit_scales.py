"""Compare `molslice fit` on values and on their logarithms, for targets that are skewed.

Two development sets of `small_data.py` in the units of the measurement, and the training rows of a set of
clearances: ESOL's solubility in mmol/L, BACE's IC50 in nM, and hepatocyte clearance, whose test rows are not
read. `fit` runs without an encoder. All errors are those of predictions for rows that a model has not seen:
out of fold, or held out. Of several rows of one molecule only the first is used, because the two scales
average them differently.

    python benchmarks/fit_scales.py --data PATH_TO_SETS

Finished fits are kept in `--runs` and are not repeated. Writes `benchmarks/results/fit_scales.json`.
"""

import argparse
import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import record, spread
from small_data_sets import score

from molslice import fit
from molslice.chem.canonical import canonical_molecule
from molslice.fitting.data import Scale
from molslice.folders.fitted import FIT, ROWS
from molslice.tasks.metrics import median_factor

ROOT = Path(__file__).resolve().parents[1]
SCALES: tuple[Scale, ...] = ("linear", "log")
MEASURES = ("spearman", "mae", "rmse", "fold_error", "not_positive")


@dataclass(frozen=True, slots=True)
class SkewedSet:
    """A skewed target.

    Attributes:
        file: Path below the folder of all sets.
        column: The measured column.
        unit: Unit of the target.
        convert: Converts the column to this unit.
    """

    file: str
    column: str
    unit: str
    convert: Callable[[float], float]


SETS = {
    "esol": SkewedSet(
        "moleculenet/esol.csv.gz",
        "measured log solubility in mols per litre",
        "mmol/L",
        lambda value: 1e3 * 10.0**value,
    ),
    "bace": SkewedSet("moleculenet/bace.csv.gz", "pIC50", "nM", lambda value: 10.0 ** (9.0 - value)),
    "clearance": SkewedSet(
        "admet/tdc_clearance_hepatocyte_az.csv.gz",
        "clint[uL/min/1e6cells]",
        "uL/min/1e6 cells",
        lambda value: value,
    ),
}


def write_table(measured: SkewedSet, data: Path, table: Path) -> None:
    """Write SMILES and target of the first row of each molecule, without test rows."""
    written = set()
    with gzip.open(data / measured.file, "rt", newline="") as source, table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["smiles", "target"])
        for row in csv.DictReader(source):
            if row.get("split") == "test":
                continue
            canonical = canonical_molecule(row["smiles"]).smiles
            if canonical not in written:
                written.add(canonical)
                writer.writerow([row["smiles"], repr(measured.convert(float(row[measured.column])))])


def measure(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Measure predictions.

    Args:
        truth: Measured values, positive, float64 [n].
        predicted: Predictions, float64 [n].

    Returns:
        Spearman correlation, mean absolute error, root mean squared error, median fold error (a prediction
        below the smallest measured value counts as that value), and the share of predictions that are not
        positive.
    """
    scores = {name: score(name, predicted[:, None], truth[:, None]) for name in ("spearman", "mae", "rmse")}
    return {
        **scores,
        "fold_error": median_factor(np.maximum(predicted, truth.min()), truth),
        "not_positive": float((predicted <= 0).mean()),
    }


def fit_and_measure(name: str, scale: Scale, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Fit a set on one scale, unless it is done, and measure its predictions."""
    folder = options.runs / f"{name}-{scale}-{seed}"
    if not (folder / FIT).is_file():
        table = options.runs / f"{name}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        write_table(SETS[name], options.data, table)
        fit(table, "target", folder, scale=scale, seed=seed, encoder=None, quiet=True)
    with (folder / ROWS).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    truth, predicted = (np.array([float(row[key]) for row in rows]) for key in ("target", "target_predicted"))
    found = measure(truth, predicted)
    print(f"{name}, {scale}, seed {seed}: {json.dumps(found)}", flush=True)
    return {**found, "rows": len(rows)}


def main(argv: list[str] | None = None) -> None:
    """Fit what is missing and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet and admet")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fit_scales")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    results: list[dict[str, Any]] = []
    for name, measured in SETS.items():
        for scale in SCALES:
            seeds = [fit_and_measure(name, scale, seed, options) for seed in range(options.seeds)]
            spreads = {key: spread([one[key] for one in seeds]) for key in MEASURES}
            rows = int(seeds[0]["rows"])
            results.append({"set": name, "unit": measured.unit, "scale": scale, "rows": rows, **spreads})
    payload = {
        "question": "molslice fit on values or on their logarithms, for skewed targets",
        "seeds": options.seeds,
        "results": results,
    }
    print(record("fit_scales", payload, options.out))


if __name__ == "__main__":
    main()
