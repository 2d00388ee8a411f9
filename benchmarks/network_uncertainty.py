"""Compare the uncertainties of single networks and ensembles of `molslice train`, and of chemprop.

ESOL and Lipophilicity are divided at random into 80% training, 10% validation and 10% test rows, for each
seed. Five networks are trained with the absolute error. The first is measured with equal widths and with
dropout passes, and all five as an ensemble. One more network is trained with `training.loss gaussian`, and
one with beta-NLL, which weights this loss by the variance to the power 0.5 (Seitzer et al. 2022, arXiv
2203.09168). All intervals are calibrated on the validation rows, and everything is measured on the test rows,
which neither trained nor calibrated a model.

`--chemprop` measures chemprop 2 on the same rows, by its methods `mve` and `dropout`: each uncertainty is
calibrated by chemprop's own `conformal-regression` and by its `zscaling`, with the quantiles of the normal
distribution.

Trained networks are kept in `--models`: the same command continues after an interruption. `--no-train`
measures those that are there.
"""

import argparse
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
import torch
from record import ROOT, record
from small_data_members import SCRATCH_MODEL, training_recipe
from torch import Tensor
from uncertainty import SETS

from molslice.config import RunConfig
from molslice.data import build_dataset, splits
from molslice.folders.ensemble import member_folder, write_ensemble
from molslice.folders.run import SUMMARY
from molslice.inference.held_out import calibrate
from molslice.inference.load import load_model
from molslice.inference.uncertainty import GRID, LEVELS, evaluate_uncertainty
from molslice.ops.gaussian import gaussian_losses
from molslice.training.ensemble import train_ensemble
from molslice.training.run import train
from molslice.training.start import load_run_config
from molslice.uncertainty.calibration import CALIBRATION
from molslice.uncertainty.scores import coverage, miscalibration_area, rank_correlation

RESULTS = ROOT / "benchmarks" / "results"
SEEDS = {"ESOL": 3, "Lipophilicity": 1}
EPOCHS = {"ESOL": 60, "Lipophilicity": 20}
SHARES = {"valid": 0.1, "test": 0.1}
MEMBERS, PASSES, BETA = 5, 20, 0.5
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
    parser.add_argument("--no-train", action="store_true", help="measure the networks that are there")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    found = []
    for name, seeds in SEEDS.items():
        for seed in range(seeds):
            division = Division(args.data, args.models, name, seed, args.threads)
            if not args.no_train:
                train_networks(division)
                train_members(division)
            rows = [*measure_networks(division)]
            if args.chemprop is not None:
                rows += measure_chemprop(division, args.chemprop, may_train=not args.no_train)
            for row in rows:
                found.append({"set": name, "seed": seed, **row})
                sys.stderr.write(f"{found[-1]}\n")
    settings = {"model": MODEL, "epochs": EPOCHS, "members": MEMBERS, "dropout_passes": PASSES}
    print(record("network_uncertainty", {"settings": settings, "results": found}, args.out))
    return 0


class Division:
    """One division of one set.

    Args:
        data: Folder of all sets.
        models: Folder for the trained networks.
        name: Name of the set.
        seed: Seed of the division, and of the networks.
        threads: Number of threads.
    """

    def __init__(self, data: Path, models: Path, name: str, seed: int, threads: int) -> None:
        self.name, self.seed, self.threads = name, seed, threads
        self.folder = models / f"{name.lower()}-{seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.table = self.folder / "rows.csv"
        self.members = self.folder / "mae"
        self._write_table(data)

    def _write_table(self, data: Path) -> None:
        """Write the rows with their split."""
        file, target = SETS[self.name][:2]
        with gzip.open(data / file, "rt", newline="") as stream:
            rows = [(row["smiles"], row[target]) for row in csv.DictReader(stream)]
        parts = splits.Division(SHARES, self.seed).divide(
            {"train": np.arange(len(rows))}, "random", groups=None
        )
        with self.table.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["smiles", COLUMN, "split"])
            for part, word in (("train", "train"), ("valid", "val"), ("test", "test")):
                writer.writerows((*rows[row], word) for row in parts[part])

    def gaussian(self, beta: float) -> Path:
        """Return the run of a network with a variance."""
        return self.folder / f"gaussian-{beta}"

    def config(self, loss: str) -> RunConfig:
        """Return the configuration of a training."""
        recipe = training_recipe(EPOCHS[self.name], None)
        mapping = {
            "data": {
                "name": "csv",
                "path": str(self.table),
                "target_columns": COLUMN,
                "split": {"kind": "column", "column": "split"},
                "cache_dir": str(self.folder / "cache"),
            },
            "model": MODEL,
            "trainer": {"accelerator": "cpu", "num_threads": self.threads},
            "seed": MEMBERS * self.seed,
            **recipe,
            "training": {**recipe["training"], "loss": loss},
        }
        file = self.folder / f"{loss}.yaml"
        file.write_text(json.dumps(mapping), encoding="utf-8")  # JSON is YAML
        return load_run_config(file)

    def read(self, word: str) -> tuple[list[str], np.ndarray]:
        """Read SMILES and measured values of a split."""
        with self.table.open(newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.DictReader(stream) if row["split"] == word]
        return [row["smiles"] for row in rows], np.array([float(row[COLUMN]) for row in rows])


def train_networks(division: Division) -> None:
    """Train the first member of the ensemble, and the networks with a variance."""
    if not division.members.exists():
        division.members.mkdir()
        write_ensemble(division.members, MEMBERS)
    _train(division.config("mae"), member_folder(division.members, 0))
    for beta in (0.0, BETA):
        losses = functools.partial(weighted_losses, beta)
        with mock.patch("molslice.tasks.molecule.gaussian_losses", losses):
            _train(division.config("gaussian"), division.gaussian(beta))


def weighted_losses(beta: float, mean: Tensor, log_variance: Tensor, wanted: Tensor) -> Tensor:
    """Compute equation 4 of Seitzer et al.; with beta 0 the negative log likelihood."""
    return torch.exp(beta * log_variance.detach()) * gaussian_losses(mean, log_variance, wanted)


def train_members(division: Division) -> None:
    """Train the other members of the ensemble."""
    train_ensemble(division.config("mae"), division.members, MEMBERS, resume=True, quiet=True)


def _train(config: RunConfig, run: Path) -> None:
    train(config, run, resume=run.exists(), quiet=True)


def measure_networks(division: Division) -> Iterator[dict[str, Any]]:
    """Measure each method whose networks are trained."""
    members, variance = division.members, division.gaussian(0.0)
    for method, run, passes in (
        ("equal widths", member_folder(members, 0), 0),
        ("dropout passes", member_folder(members, 0), PASSES),
        ("mean-variance", variance, 0),
        ("mean-variance, beta-NLL", division.gaussian(BETA), 0),
        ("mean-variance, dropout passes", variance, PASSES),
        (f"ensemble of {MEMBERS}", members, 0),
    ):
        if (run / CALIBRATION).is_file():  # written at the end
            yield {"method": method, **measure(run, passes)}


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


def measure_chemprop(division: Division, chemprop: Path, *, may_train: bool) -> Iterator[dict[str, Any]]:
    """Train chemprop by each method on the same rows, and measure its calibrated intervals."""
    truth = {word: division.read(word)[1] for word in ("val", "test")}
    for method in CHEMPROP:
        out = division.folder / f"chemprop-{method}"
        if may_train and not (out / "val.csv").is_file():
            run_chemprop(division, out, chemprop, method)
        if not (out / "val.csv").is_file():
            continue
        found = {word: read_chemprop(out / f"{word}.csv") for word in truth}
        request = {"levels": ALL_LEVELS, "valid": {**found["val"], "truth": truth["val"].tolist()}}
        (out / "request.json").write_text(json.dumps({**request, "test": found["test"]}))
        program = Path(__file__).with_name("chemprop_intervals.py")
        command = [chemprop.with_name("python"), program, out / "request.json", out / "intervals.json"]
        subprocess.run([*map(str, command)], check=True)
        intervals = json.loads((out / "intervals.json").read_text())
        errors = np.abs(truth["test"] - np.array(found["test"]["predicted"]))
        for calibrator, by_level in intervals.items():
            yield {
                "method": f"chemprop {method}, {calibrator}",
                **score_intervals(truth["test"], by_level),
                "mae": float(errors.mean()),
                "rank_correlation": rank_correlation(errors, np.array(found["test"]["variance"])),
            }


def run_chemprop(division: Division, out: Path, chemprop: Path, method: str) -> None:
    """Train chemprop with its defaults, and predict the validation and test rows without a calibration."""
    common = ["--smiles-columns", "smiles", "--num-workers", "0", "--accelerator", "cpu", "-q"]
    training = ["--data-path", division.table, "--output-dir", out, "--target-columns", COLUMN]
    training += ["--splits-column", "split", "--pytorch-seed", division.seed, *CHEMPROP[method]]
    run_quietly([chemprop, "train", *common, *training], division.threads)
    for word in ("test", "val"):  # the last file shows that the method is finished
        source = out / f"{word}_rows.csv"
        with source.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("smiles",), *((text,) for text in division.read(word)[0])])
        predicting = ["--test-path", source, "--preds-path", out / f"{word}.csv", "--model-paths", out]
        uncertainty = ["--uncertainty-method", method, "--dropout-sampling-size", PASSES]
        run_quietly([chemprop, "predict", *common, *predicting, *uncertainty], division.threads)


def run_quietly(command: Sequence[object], threads: int) -> None:
    """Run a command; its output is shown if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


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
