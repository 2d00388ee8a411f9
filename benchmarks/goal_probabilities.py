"""Compare probabilities of goals with how often held-out molecules meet them.

`molslice fit` without an encoder learns the first half of a table in random order, or by scaffold, and
predicts the other half. The goals of a number are above the quantiles 0.25, 0.5 and 0.75 of the learned half,
the goal of classes is class 1. The probabilities of all goals are divided into bins; of each bin the mean
probability and the share of molecules that meet their goal are recorded. Nothing is chosen on the other half.
"""

import csv
import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from record import make_parser, record

from molslice.chem.scaffold import scaffolds
from molslice.fitting import learner_fits
from molslice.fitting.fit import fit
from molslice.inference.ranking import rank

SETS = {  # file and target
    "ESOL": ("moleculenet/esol.csv.gz", "measured log solubility in mols per litre"),
    "Lipophilicity": ("moleculenet/lipo.csv.gz", "exp"),
    "logBB": ("admet/b3db_regression.csv.gz", "logBB"),
    "BBBP": ("moleculenet/bbbp.csv.gz", "p_np"),
}
CLASSES = ("BBBP",)
SPLITS = ("random", "scaffold")
QUANTILES = (0.25, 0.5, 0.75)
BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)


def main() -> int:
    """Fit, rank and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet/ and admet/")
    args = parser.parse_args()
    learner_fits.BASELINES.clear()  # they are no part of the model
    results = []
    for name, (file, target) in SETS.items():
        with gzip.open(args.data / file, "rt") as stream:
            rows = [(row["smiles"], row[target]) for row in csv.DictReader(stream) if row[target]]
        for split in SPLITS:
            measured = measure(rows, split, has_classes=name in CLASSES)
            results.append({"set": name, "division": split, **measured})
            sys.stderr.write(f"{name}, {split}: {measured}\n")
    print(record("goal_probabilities", {"quantiles": QUANTILES, "results": results}, args.out))
    return 0


def measure(rows: list[tuple[str, str]], split: str, *, has_classes: bool) -> dict[str, Any]:
    """Fit one half of the rows, and compare the probabilities of goals of the other half."""
    order = np.random.default_rng(0).permutation(len(rows))
    if split == "scaffold":  # whole scaffolds, in random order
        names = scaffolds([text for text, _ in rows])
        numbers = {name: place for place, name in enumerate(dict.fromkeys(names[row] for row in order))}
        order = order[np.argsort([numbers[names[row]] for row in order], kind="stable")]
    half = len(rows) // 2
    learned, new = [[rows[row] for row in chosen] for chosen in (order[:half], order[half:])]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "learned.csv"
        with table.open("w", newline="") as stream:
            csv.writer(stream).writerows([("smiles", "y"), *learned])
        fit(table, "y", Path(folder) / "model", encoder=None, split="random", refit=True, quiet=True)
        values = np.array([float(value) for _, value in learned])
        goals = ["y = 1"] if has_classes else [f"y > {np.quantile(values, q):.6g}" for q in QUANTILES]
        pairs = [_measure_goal(Path(folder) / "model", new, goal) for goal in goals]
    probability, is_met = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    places = np.clip(np.searchsorted(BINS, probability, side="right") - 1, 0, len(BINS) - 2)
    bins = [
        {
            "from": BINS[place],
            "to": BINS[place + 1],
            "count": int((places == place).sum()),
            "probability": float(probability[places == place].mean()),
            "share": float(is_met[places == place].mean()),
        }
        for place in range(len(BINS) - 1)
        if (places == place).any()
    ]
    gaps = sum(entry["count"] * abs(entry["probability"] - entry["share"]) for entry in bins)
    return {"learned": len(learned), "new": len(new), "error": gaps / len(probability), "bins": bins}


def _measure_goal(model: Path, new: list[tuple[str, str]], goal: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of a goal, and whether the measured values meet it, for readable rows."""
    probability = rank(model, [text for text, _ in new], goal).scores.probability
    values = np.array([float(value) for _, value in new])
    is_met = values == 1 if "=" in goal else values > float(goal.rpartition(">")[2])
    known = np.isfinite(probability)
    return probability[known], is_met[known]


if __name__ == "__main__":
    sys.exit(main())
