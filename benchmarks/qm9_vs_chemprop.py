r"""Compare molslice with chemprop on QM9's gap: the same rows, one thread, the same processor seconds.

Both sides get the same training, validation, and test rows. The validation rows choose the epoch and the
learning rate of both; the test rows choose nothing. Each side tries the same number of learning rates with
the first seed, and trains the best one with the other seeds. The rates are tried at each number of chemprop
epochs, or once, at `--search-epochs`.

Time is processor time, because the wall time of a shared machine depends on its other work. Short fits of
both sides, in turn, measure how many steps of molslice take as long as an epoch of chemprop. They include the
startup time, which is longer for molslice, so molslice gets slightly too few steps. Reading and featurizing
are excluded on both sides; validation during training is included.

Each finished fit is a JSON file in `--work` and is not repeated, so the same command continues after an
interruption. `--collect` trains nothing and records the seeds that both sides have finished. The result is
`results/qm9_convergence.json`. An older comparison after 12 epochs, at equal wall time on two threads, is in
`results/qm9_vs_chemprop.json`. Chemprop needs a separate environment, because it pins an older RDKit:

    python -m venv /tmp/chemprop
    grep -v ^rdkit constraints.txt > /tmp/versions.txt
    /tmp/chemprop/bin/pip install -c /tmp/versions.txt torch chemprop
    OMP_NUM_THREADS=1 python benchmarks/qm9_vs_chemprop.py --data PATH_TO_QM9 \
        --chemprop-python /tmp/chemprop/bin/python --work runs/qm9_vs_chemprop

`--data` is a folder with `train.csv.gz` and `valid.csv.gz` (columns smiles, gap_ev). Training and validation
rows are drawn from train.csv.gz; valid.csv.gz holds the test rows.
"""

import argparse
import csv
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record import ROOT, make_parser, record, spread, write_json

from molslice.config import load_config
from molslice.data import build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.training.run import train

TARGET, UNIT = "gap_ev", "eV"
CONFIG = ROOT / "configs" / "molecule" / "qm9.yaml"
DEFAULT_RATES = {"chemprop": 1e-3, "molslice": 2e-3}
CALIBRATION_ROUNDS = 3
CALIBRATION_EPOCHS, CALIBRATION_STEPS = 4, 284  # about four epochs of 9,000 rows on both sides


@dataclass(frozen=True, slots=True)
class Fit:
    """One training run.

    Attributes:
        side: `chemprop` or `molslice`.
        epochs: Epochs of chemprop that define the budget.
        rate: The largest learning rate of the schedule.
        seed: Seed of the weights and of the order of the rows.
    """

    side: str
    epochs: int
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """Return the stem of the result file."""
        return f"{self.epochs}-{self.side}-{self.rate:g}-{self.seed}"


class Study:
    """The fits of one work folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.work = options, options.work
        self.epochs = [int(part) for part in options.epochs.split(",")]
        self.factors = [float(part) for part in options.factors.split(",")]
        self.files = {name: self.work / "rows" / f"{name}.csv" for name in ("train", "valid", "test")}

    def prepare(self) -> None:
        """Write the rows, and exit if the work folder was started with other settings."""
        settings = {"train_rows": self.options.train_rows, "test_rows": self.options.test_rows}
        file = self.work / "settings.json"
        if file.is_file() and json.loads(file.read_text(encoding="utf-8")) != settings:
            sys.exit(f"{self.work} was started with other rows (see {file}); choose another --work")
        write_json(file, settings)
        source = self.options.data / "train.csv.gz"
        header, rows = read_rows(source)
        chosen = np.random.default_rng(0).permutation(len(rows))[: self.options.train_rows]
        fit, valid = np.split(chosen, [len(chosen) * 9 // 10])
        write_rows(self.files["train"], header, [rows[i] for i in np.sort(fit)])
        write_rows(self.files["valid"], header, [rows[i] for i in np.sort(valid)])
        header, rows = read_rows(self.options.data / "valid.csv.gz")
        write_rows(self.files["test"], header, rows[: self.options.test_rows])

    def run(self) -> None:
        """Run every fit that is not finished. The sides take turns, shortest budget first."""
        for epochs in self.epochs:
            for fit in self.search(epochs):
                self.result(fit)
            for seed in range(self.options.seeds):
                for side in DEFAULT_RATES:
                    self.result(Fit(side, epochs, self.best_rate(side, epochs), seed))

    def search(self, epochs: int) -> list[Fit]:
        """Return the fits that determine the learning rates for a number of epochs."""
        tried = self.options.search_epochs or epochs
        return [
            Fit(side, tried, rate * factor, 0)
            for factor in self.factors
            for side, rate in DEFAULT_RATES.items()
        ]

    def best_rate(self, side: str, epochs: int) -> float:
        """Return the learning rate with the smallest validation error of the first seed."""
        fits = [fit for fit in self.search(epochs) if fit.side == side]
        return min(fits, key=lambda fit: self.result(fit)["valid_mae"]).rate

    def result(self, fit: Fit) -> dict[str, Any]:
        """Return the result of a fit from its file, or train it."""
        file = self.work / "fits" / f"{fit.name}.json"
        if not file.is_file():
            print(f"{time.strftime('%H:%M:%S')} starting {fit.name}", flush=True)
            result = self.train(fit.side, fit.epochs, self.steps(fit), fit.rate, fit.seed)
            write_json(file, {**asdict(fit), **result})
            print(json.dumps({"fit": fit.name, **result}), flush=True)
        return json.loads(file.read_text(encoding="utf-8"))

    def steps(self, fit: Fit) -> int:
        """Return the number of molslice steps that takes as long as the epochs of chemprop."""
        measured = self.calibration()
        return max(1, int(fit.epochs * measured["seconds_per_epoch"] / measured["seconds_per_step"]))

    def calibration(self) -> dict[str, float]:
        """Return the processor seconds of a chemprop epoch and of a molslice step, from short fits."""
        file = self.work / "calibration.json"
        if not file.is_file():
            seconds: dict[str, list[float]] = {side: [] for side in DEFAULT_RATES}
            for _ in range(CALIBRATION_ROUNDS):
                for side, rate in DEFAULT_RATES.items():
                    result = self.train(side, CALIBRATION_EPOCHS, CALIBRATION_STEPS, rate, 0)
                    seconds[side].append(result["seconds"])
            write_json(
                file,
                {
                    "seconds_per_epoch": statistics.median(seconds["chemprop"]) / CALIBRATION_EPOCHS,
                    "seconds_per_step": statistics.median(seconds["molslice"]) / CALIBRATION_STEPS,
                    "rounds": seconds,
                },
            )
        return json.loads(file.read_text(encoding="utf-8"))

    def train(self, side: str, epochs: int, steps: int, rate: float, seed: int) -> dict[str, Any]:
        """Train one side from the start, after removing the files of an interrupted attempt."""
        scratch = self.work / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        if side == "chemprop":
            fit = partial(run_chemprop, self.options.chemprop_python, epochs)
        else:
            fit = partial(run_molslice, steps)
        result = fit(self.files, scratch, rate, seed)
        shutil.rmtree(scratch, ignore_errors=True)
        return result

    def collect(self) -> list[dict[str, Any]]:
        """Return one entry for each number of epochs with all fits finished."""
        return [pair for epochs in self.epochs if (pair := self._pair(epochs)) is not None]

    def _pair(self, epochs: int) -> dict[str, Any] | None:
        pair: dict[str, Any] = {"epochs": epochs, "threads": 1}
        if not self._all_finished(self.search(epochs)):
            return None
        for side in DEFAULT_RATES:
            search = [fit for fit in self.search(epochs) if fit.side == side]
            best = self.best_rate(side, epochs)
            fits = [Fit(side, epochs, best, seed) for seed in range(self._finished_seeds(epochs))]
            if not fits:
                return None
            results = [self.result(fit) for fit in fits]
            pair[side] = {
                "parameters": results[0]["parameters"],
                "rate": best,
                "mae_ev": spread([result["test_mae"] for result in results]),
                "seconds": spread([result["seconds"] for result in results]),
                "runs": [self.result(fit) for fit in dict.fromkeys([*search, *fits])],
            }
        pair["chemprop_version"] = pair["chemprop"]["runs"][0]["chemprop"]
        return pair

    def _finished_seeds(self, epochs: int) -> int:
        """Return the number of seeds, from 0, that both sides have finished."""
        for seed in range(self.options.seeds):
            pair = [Fit(side, epochs, self.best_rate(side, epochs), seed) for side in DEFAULT_RATES]
            if not self._all_finished(pair):
                return seed
        return self.options.seeds

    def _all_finished(self, fits: list[Fit]) -> bool:
        return all((self.work / "fits" / f"{fit.name}.json").is_file() for fit in fits)


def read_rows(source: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a gzipped CSV file."""
    with gzip.open(source, "rt", newline="") as file:
        header, *rows = list(csv.reader(file))
    return header, rows


def write_rows(target: Path, header: list[str], rows: list[list[str]]) -> None:
    """Write a CSV file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def run_chemprop(
    python: str, epochs: int, files: dict[str, Path], scratch: Path, rate: float, seed: int
) -> dict[str, Any]:
    """Train chemprop with the interpreter `python` and return its result."""
    out = scratch / "result.json"
    settings = {**files, "target": TARGET, "epochs": epochs, "rate": rate, "seed": seed, "out": out}
    flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    subprocess.run(
        [python, str(ROOT / "benchmarks" / "chemprop_fit.py"), *flags],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=scratch,
    )
    return json.loads(out.read_text(encoding="utf-8"))


def run_molslice(steps: int, files: dict[str, Path], scratch: Path, rate: float, seed: int) -> dict[str, Any]:
    """Train molslice for a number of steps and return its result."""
    settings = {
        "data.path": files["train"],
        "data.valid_path": files["valid"],
        "data.target_columns": TARGET,
        "data.workers": 1,
        "data.cache_dir": scratch.parent / "cache",
        "training.max_minutes": "null",
        "training.max_steps": steps,
        "trainer.num_threads": 1,
        "trainer.accelerator": "cpu",
        "optimizer.lr": rate,
        "seed": seed,
    }
    config = load_config(CONFIG, [(key, str(value)) for key, value in settings.items()])
    build_dataset("csv", dict(config.data.options))  # prepare the molecules before the clock starts
    start, wall = time.process_time(), time.perf_counter()
    summary = train(config, scratch / "run", quiet=True)
    seconds, wall_seconds = time.process_time() - start, time.perf_counter() - wall
    options = {**config.data.options, "path": str(files["test"]), "valid_path": str(files["test"])}
    tested = evaluate(
        load_model(str(scratch / "run")), build_dataset("csv", options), "valid", progress=False
    )
    return {
        "valid_mae": summary["valid"]["mae"][TARGET],
        "test_mae": tested["targets"][0]["mae"],
        "test_rows": tested["rows"],
        "seconds": seconds,
        "wall_seconds": wall_seconds,
        "steps": steps,
        "best_step": summary["best_step"],
        "data_epochs": summary["epochs"],
        "parameters": summary["parameters"],
        "attention": summary["attention"],
    }


def main() -> None:
    """Run the fits, or collect those that are finished."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.csv.gz and valid.csv.gz")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "qm9_vs_chemprop")
    parser.add_argument("--chemprop-python", help="Python interpreter of chemprop's environment")
    parser.add_argument("--epochs", default="12,50,100", help="epochs of chemprop (default: 12,50,100)")
    parser.add_argument(
        "--factors", default="0.5,1,2", help="learning rates to try, relative to the defaults"
    )
    parser.add_argument(
        "--search-epochs", type=int, help="try the learning rates at this number of epochs only"
    )
    parser.add_argument("--train-rows", type=int, default=10_000, help="training and validation rows")
    parser.add_argument("--test-rows", type=int, help="test rows (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--collect", action="store_true", help="record the finished fits, train nothing")
    options = parser.parse_args()
    study = Study(options)
    if not options.collect:
        if options.data is None or options.chemprop_python is None:
            parser.error("training needs --data and --chemprop-python")
        study.prepare()
        study.run()
    pairs = study.collect()
    if not pairs:
        sys.exit(f"no number of epochs is complete in {options.work}")
    payload = {
        "question": "MAE in eV on QM9's gap at equal processor seconds, one thread",
        "settings": {
            "config": str(CONFIG.relative_to(ROOT)),
            **json.loads((options.work / "settings.json").read_text(encoding="utf-8")),
            "factors": study.factors,
            "search_epochs": options.search_epochs,
            "seeds": options.seeds,
        },
        "calibration": study.calibration(),
        "pairs": pairs,
    }
    print(record("qm9_convergence", payload, options.out))


if __name__ == "__main__":
    main()
