"""Compare the uncertainties of single networks and ensembles of `molslice train`, and of chemprop.

ESOL and Lipophilicity are divided at random into 80 % training, 10 % validation and 10 % test rows, for each
seed. Five networks are trained with the absolute error. The first is measured with equal widths and with
dropout passes, and all five as an ensemble. One more network is trained with `training.loss gaussian`, and
one with the plain likelihood, that is without the weight of beta-NLL. All intervals are calibrated on the
validation rows, and everything is measured on the test rows, which neither trained nor calibrated a model.

`--chemprop` measures chemprop 2 on the same rows, by its methods `mve` and `dropout`: each uncertainty is
calibrated by chemprop's own `conformal-regression` and by its `zscaling`, with the quantiles of the normal
distribution.

Trained networks are kept in `--models`: the same command continues after an interruption. What is finished is
recorded after each division.
"""

import argparse
import contextlib
import csv
import functools
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from record import ROOT, record
from small_data_members import SCRATCH_MODEL, training_recipe
from uncertainty import SETS

from molslice.config import RunConfig
from molslice.data import build_dataset
from molslice.data.splits import Division
from molslice.ensemble_folder import member_folder
from molslice.inference.calibrate import calibrate
from molslice.inference.load import load_model
from molslice.inference.uncertainty import GRID, LEVELS, evaluate_uncertainty
from molslice.ops.gaussian import BETA, gaussian_losses
from molslice.run_folder import SUMMARY
from molslice.training.ensemble import train_ensemble
from molslice.training.run import train
from molslice.training.start import load_run_config
from molslice.uncertainty.scores import coverage, miscalibration_area, rank_correlation

RESULTS = ROOT / "benchmarks" / "results"
SEEDS = {"ESOL": 3, "Lipophilicity": 1}
EPOCHS = {"ESOL": 60, "Lipophilicity": 20}
SHARES = {"valid": 0.1, "test": 0.1}
MEMBERS, PASSES = 5, 20
MODEL = {**SCRATCH_MODEL, "dropout": 0.1, "attention_dropout": 0.0}
CHEMPROP = {
    "mve": ["--task-type", "regression-mve"],
    "dropout": ["--task-type", "regression", "--dropout", "0.1"],
}
COLUMN = "t0"
ALL_LEVELS = sorted({*LEVELS, *GRID})


def main() -> int:
    """Train, measure and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet/")
    parser.add_argument("--models", type=Path, required=True, help="folder for the trained networks")
    parser.add_argument("--chemprop", type=Path, help="command of chemprop 2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    divisions = [(name, seed) for name, seeds in SEEDS.items() for seed in range(seeds)]
    found: list[dict[str, Any]] = []
    for program in ("molslice", "chemprop")[: 1 + (args.chemprop is not None)]:
        for name, seed in divisions:
            folder = args.models / f"{name.lower()}-{seed}"
            table = write_table(args.data, folder, name, seed)
            if program == "molslice":
                rows = measure_networks(folder, table, EPOCHS[name], seed, args.threads)
            else:
                rows = measure_chemprop(folder, table, seed, args.chemprop, args.threads)
            for row in rows:
                found.append({"set": name, "seed": seed, **row})
                sys.stderr.write(f"{found[-1]}\n")
            settings = {"model": MODEL, "epochs": EPOCHS, "members": MEMBERS, "dropout_passes": PASSES}
            file = record("network_uncertainty", {"settings": settings, "results": found}, args.out)
    print(file)
    return 0


def write_table(data: Path, folder: Path, name: str, seed: int) -> Path:
    """Write the rows with their split as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    file, target, _, _ = SETS[name]
    with gzip.open(data / file, "rt", newline="") as stream:
        rows = [(row["smiles"], row[target]) for row in csv.DictReader(stream)]
    parts = Division(SHARES, seed).divide({"train": np.arange(len(rows))}, "random", groups=None)
    table = folder / "rows.csv"
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", COLUMN, "split"])
        for part, word in (("train", "train"), ("valid", "val"), ("test", "test")):
            writer.writerows((*rows[row], word) for row in parts[part])
    return table


def measure_networks(
    folder: Path, table: Path, epochs: int, seed: int, threads: int
) -> Iterator[dict[str, Any]]:
    """Train the networks of one division, and measure each method."""
    members = folder / "mae"
    config = config_of(folder, table, epochs, seed, "mae", threads)
    train_ensemble(config, members, MEMBERS, resume=members.exists(), quiet=True)
    config = config_of(folder, table, epochs, seed, "gaussian", threads)
    runs = {beta: folder / f"gaussian-{beta}" for beta in (BETA, 0.0)}
    for beta, run in runs.items():
        with weighted(beta):
            train(config, run, resume=run.exists(), quiet=True)
    for method, run, passes in (
        ("equal widths", member_folder(members, 0), 0),
        ("dropout passes", member_folder(members, 0), PASSES),
        ("mean-variance", runs[BETA], 0),
        ("mean-variance, beta 0", runs[0.0], 0),
        ("mean-variance, dropout passes", runs[BETA], PASSES),
        ("ensemble of 5", members, 0),
    ):
        yield {"method": method, **measure(run, passes)}


def config_of(folder: Path, table: Path, epochs: int, seed: int, loss: str, threads: int) -> RunConfig:
    """Return the configuration of a training."""
    recipe = training_recipe(epochs, None)
    mapping = {
        "data": {
            "name": "csv",
            "path": str(table),
            "target_columns": COLUMN,
            "split": {"kind": "column", "column": "split"},
            "cache_dir": str(folder / "cache"),
        },
        "model": MODEL,
        "trainer": {"accelerator": "cpu", "num_threads": threads},
        "seed": MEMBERS * seed,
        **recipe,
        "training": {**recipe["training"], "loss": loss},
    }
    file = folder / f"{loss}.yaml"
    file.write_text(json.dumps(mapping), encoding="utf-8")  # JSON is YAML
    return load_run_config(file)


@contextlib.contextmanager
def weighted(beta: float) -> Iterator[None]:
    """Train with beta-NLL."""
    losses = functools.partial(gaussian_losses, beta=beta)
    with mock.patch("molslice.tasks.molecule.gaussian_losses", losses):
        yield


def measure(run: Path, passes: int) -> dict[str, Any]:
    """Calibrate a model and measure its intervals."""
    model = load_model(run)
    dataset = build_dataset(model.data_config.name, dict(model.data_config.options))
    calibration = calibrate(model, dataset, dropout_passes=passes)
    with mock.patch.object(model, "find_calibration", return_value=calibration):
        (target,) = evaluate_uncertainty(model, dataset)["targets"]
    seconds = None
    if (run / SUMMARY).is_file():
        seconds = json.loads((run / SUMMARY).read_text())["seconds"]
    return {
        "count": target["count"],
        "mae": target["error"],
        "levels": target["levels"],
        "miscalibration_area": target["miscalibration_area"],
        "rank_correlation": target["rank_correlation"]["spread"],
        "width_follows_spread": calibration.needs_difficulty,
        "calibration_rows": len(calibration.targets[0].truth),
        "training_seconds": seconds,
    }


def measure_chemprop(
    folder: Path, table: Path, seed: int, chemprop: Path, threads: int
) -> Iterator[dict[str, Any]]:
    """Train chemprop by each method on the same rows, and measure its calibrated intervals."""
    parts = {word: read_part(table, word) for word in ("val", "test")}
    for method, options in CHEMPROP.items():
        out = folder / f"chemprop-{method}"
        if not (out / "val.csv").is_file():
            run_chemprop(out, table, seed, chemprop, method, options, parts, threads)
        found = {word: read_chemprop(out / f"{word}.csv") for word in parts}
        request = {
            "levels": ALL_LEVELS,
            "valid": {**found["val"], "truth": [float(value) for _, value in parts["val"]]},
            "test": found["test"],
        }
        (out / "request.json").write_text(json.dumps(request))
        program = Path(__file__).with_name("chemprop_intervals.py")
        command = [chemprop.with_name("python"), program, out / "request.json", out / "intervals.json"]
        subprocess.run([*map(str, command)], check=True)
        intervals = json.loads((out / "intervals.json").read_text())
        truth = np.array([float(value) for _, value in parts["test"]])
        errors = np.abs(truth - np.array(found["test"]["predicted"]))
        for calibrator, by_level in intervals.items():
            yield {
                "method": f"chemprop {method}, {calibrator}",
                **score_intervals(truth, by_level),
                "mae": float(errors.mean()),
                "rank_correlation": rank_correlation(errors, np.array(found["test"]["variance"])),
            }


def run_chemprop(
    out: Path,
    table: Path,
    seed: int,
    chemprop: Path,
    method: str,
    options: Sequence[str],
    parts: dict[str, list[tuple[str, str]]],
    threads: int,
) -> None:
    """Train chemprop with its defaults, and predict the validation and test rows without a calibration."""
    common = ["--smiles-columns", "smiles", "--num-workers", "0", "--accelerator", "cpu", "-q"]
    training = [
        "--data-path",
        table,
        "--output-dir",
        out,
        "--target-columns",
        COLUMN,
        "--splits-column",
        "split",
    ]
    run_quietly([chemprop, "train", *common, *training, *options, "--pytorch-seed", seed], threads)
    for word in ("test", "val"):  # the last file shows that the method is finished
        source = out / f"{word}_rows.csv"
        with source.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("smiles", COLUMN), *parts[word]])
        predicting = ["--test-path", source, "--preds-path", out / f"{word}.csv", "--model-paths", out]
        uncertainty = ["--uncertainty-method", method, "--dropout-sampling-size", PASSES]
        run_quietly([chemprop, "predict", *common, *predicting, *uncertainty], threads)


def run_quietly(command: Sequence[object], threads: int) -> None:
    """Run a command; its output is shown if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def read_part(table: Path, word: str) -> list[tuple[str, str]]:
    """Read SMILES and measured value of the rows of a split."""
    with table.open(newline="", encoding="utf-8") as stream:
        return [(row["smiles"], row[COLUMN]) for row in csv.DictReader(stream) if row["split"] == word]


def read_chemprop(file: Path) -> dict[str, list[float]]:
    """Read the predictions and their variances."""
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    names = {"predicted": COLUMN, "variance": next(name for name in rows[0] if "unc" in name)}
    return {key: [float(row[name]) for row in rows] for key, name in names.items()}


def score_intervals(truth: np.ndarray, by_level: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute coverage, mean width and miscalibration area of given intervals."""
    shares, levels = {}, []
    for entry in by_level:
        level, lower, upper = entry["level"], np.array(entry["lower"]), np.array(entry["upper"])
        shares[level] = coverage(truth, lower, upper)
        if level in LEVELS:
            error = float(np.sqrt(level * (1 - level) / len(truth)))
            levels.append(
                {"level": level, "count": len(truth), "coverage": shares[level], "standard_error": error}
                | {"width": float((upper - lower).mean())}
            )
    area = miscalibration_area(GRID, [shares[level] for level in GRID])
    return {"count": len(truth), "levels": levels, "miscalibration_area": area}


if __name__ == "__main__":
    sys.exit(main())
