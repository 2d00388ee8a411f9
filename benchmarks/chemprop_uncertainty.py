"""Measure the intervals of chemprop's ensemble on the held-out rows of fitted models.

For each model folder of `uncertainty.py` an ensemble of five is trained on the training rows of the folder.
One ninth of them, drawn at random, or by scaffold if the folder holds scaffolds out, selects the checkpoint
and calibrates the variance of the ensemble by chemprop's own methods. Coverage, width and ranking are
computed as for molslice.

Trained ensembles are kept in `--runs`: the same command continues after an interruption.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import ROOT, record

from molslice.chem.scaffold import scaffolds
from molslice.inference.uncertainty import GRID, LEVELS, score_intervals

HERE = Path(__file__).resolve().parent
EPOCHS, MEMBERS = 50, 5
VALIDATION_SHARE = 1 / 9  # a tenth of all rows, where a tenth is held out
COLUMN, VARIANCE = "target", "target_unc"


def main() -> int:
    """Train, calibrate, measure and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="folders of uncertainty.py: SET-SPLIT-SEED")
    parser.add_argument("--chemprop", type=Path, required=True, help="the command chemprop 2.x")
    parser.add_argument("--runs", type=Path, required=True, help="folder for trained ensembles")
    parser.add_argument("--no-train", action="store_true", help="measure the ensembles that are there")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    found = []
    for folder in args.folders:
        run = args.runs / folder.name
        if not (run / "predictions.csv").exists() and not args.no_train:
            train(folder, run, args.chemprop)
        if (run / "predictions.csv").exists():
            name, split, seed = folder.name.rsplit("-", 2)
            for method, measured in measure(run, args.chemprop).items():
                found.append(
                    {"set": name, "division": split, "seed": int(seed), "method": method, **measured}
                )
    about = {"epochs": EPOCHS, "members": MEMBERS, "runs": found}
    print(record("chemprop_uncertainty", about, args.out))
    return 0


def train(folder: Path, run: Path, chemprop: Path) -> None:
    """Train an ensemble and predict its validation and test rows."""
    _, split, seed = folder.name.rsplit("-", 2)
    partial = run.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    rows = divide(folder / "rows.csv", split == "scaffold", int(seed))
    write(partial / "rows.csv", rows)
    write(partial / "measured.csv", [row for row in rows if row[1] != "train"])
    options = {
        "--data-path": partial / "rows.csv",
        "--output-dir": partial / "chemprop",
        "--task-type": "regression",
        "--smiles-columns": "smiles",
        "--target-columns": COLUMN,
        "--splits-column": "split",
        "--epochs": EPOCHS,
        "--ensemble-size": MEMBERS,
        "--pytorch-seed": seed,
        "--data-seed": seed,
    }
    call(chemprop, "train", options, partial)
    models = sorted((partial / "chemprop").glob("model_*/best.pt"))
    options = {
        "--test-path": partial / "measured.csv",
        "--smiles-columns": "smiles",
        "--uncertainty-method": "ensemble",
        "--preds-path": partial / "predictions.csv",
    }
    call(chemprop, "predict", options, partial, ["--model-paths", *map(str, models)])
    partial.rename(run)


def call(
    chemprop: Path, verb: str, options: dict[str, Any], folder: Path, further: Sequence[str] = ()
) -> None:
    """Run chemprop on one core."""
    options = {**options, "--num-workers": 0, "--accelerator": "cpu"}
    command = [str(chemprop), verb, *(str(part) for item in options.items() for part in item), "-q", *further]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(folder / f"{verb}.log", "w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, cwd=folder, env=environment)


def divide(file: Path, by_scaffold: bool, seed: int) -> list[tuple[str, str, float]]:
    """Return SMILES, part (train, val or test) and measured value of the rows of a fitted model."""
    with file.open(newline="", encoding="utf-8") as stream:
        _, *lines = csv.reader(stream)
    smiles = [line[0].strip() for line in lines]
    frames = scaffolds(smiles) if by_scaffold else [""] * len(smiles)
    groups: dict[str, list[int]] = {}
    for row, line in enumerate(lines):
        if line[1] == "train":  # molecules without rings share no scaffold
            groups.setdefault(frames[row] or f"row {row}", []).append(row)
    order = list(groups.values())
    wanted = VALIDATION_SHARE * sum(map(len, order))
    chosen: set[int] = set()
    for index in np.random.default_rng(seed).permutation(len(order)):
        if len(chosen) + len(order[index]) <= wanted:
            chosen.update(order[index])
    parts = ["val" if row in chosen else line[1] for row, line in enumerate(lines)]
    return [(text, part, float(line[3])) for text, part, line in zip(smiles, parts, lines, strict=True)]


def write(file: Path, rows: Sequence[tuple[str, str, float]]) -> None:
    """Write rows as CSV."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", "split", COLUMN])
        writer.writerows(rows)


def measure(run: Path, chemprop: Path) -> dict[str, Any]:
    """Calibrate on the validation rows with each method, and measure the test rows."""
    with (run / "measured.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    with (run / "predictions.csv").open(newline="", encoding="utf-8") as stream:
        predictions = list(csv.DictReader(stream))
    is_test = np.array([row["split"] == "test" for row in rows])
    truth = np.array([float(row[COLUMN]) for row in rows])
    mean, variance = (np.array([float(row[name]) for row in predictions]) for name in (COLUMN, VARIANCE))
    levels = sorted({*GRID, *LEVELS})
    job = {
        "levels": levels,
        "predicted": mean[~is_test].tolist(),
        "variance": variance[~is_test].tolist(),
        "truth": truth[~is_test].tolist(),
        "new_variance": variance[is_test].tolist(),
    }
    python = chemprop.parent / "python"
    answer = subprocess.run(
        [str(python), str(HERE / "chemprop_calibrate.py")],
        input=json.dumps(job), capture_output=True, text=True, check=True,
    )  # fmt: skip
    halves = json.loads(answer.stdout)
    return {
        method: {
            "calibration_rows": int((~is_test).sum()),
            **score_intervals(
                truth[is_test],
                mean[is_test],
                {
                    level: (mean[is_test] - np.array(half), mean[is_test] + np.array(half))
                    for level, half in zip(levels, each, strict=True)
                },
                np.sqrt(variance[is_test]),
            ),
        }
        for method, each in halves.items()
    }


if __name__ == "__main__":
    sys.exit(main())
