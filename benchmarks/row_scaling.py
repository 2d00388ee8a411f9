"""Measure how the error of attentions depends on the number of training rows and on the width.

    python benchmarks/row_scaling.py --jobs 2
    python benchmarks/row_scaling.py --qm9 PATH_TO_QM9 --runs runs/row_scaling_qm9 --jobs 2

The training rows are nested samples of the training split of `data/gap_xtb_100k`. 2,000 rows of its
validation split choose the step, and the rows of its test split choose nothing. With `--qm9`, a folder with
`train.csv.gz` and `valid.csv.gz` (columns smiles, gap_ev), the training and 2,000 validation rows are drawn
from the first file, and the second one has the test rows. The target is the HOMO-LUMO gap in eV.

Each run has one thread. Entries have the rates of `ENTRIES` and the steps of `STEPS`. `--rates` and
`--longer` try others; the tables and the figure have those with the lowest validation error.

Each finished run is a JSON file in `--runs`. Neither these nor the runs of the recorded result are repeated,
so that the grid grows from one call to the next. `--collect` trains nothing. Writes
`benchmarks/results/row_scaling.json` or `row_scaling_qm9.json`. The entry `chemprop` needs an environment of
its own; see `chemprop_speed.py`.
"""

import argparse
import csv
import gzip
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from drop_path import DropPathSpec
from gps import GpsSpec
from penalty_law import fit_penalties
from qm9_levers import CONFIG, DROPOUT, error_on_rows, read_rows, run_chemprop, write_rows
from qm9_levers import TARGET as QM9_TARGET
from record import ROOT, add_finished, find_commit, group_by, make_parser, record, run_all, spread, write_json
from score_state import ScoreState

from molslice.attention import ATTENTIONS
from molslice.config import load_config
from molslice.config.entries import folder_name, split_entries
from molslice.model import MODELS
from molslice.training.run import train

NAME = "row_scaling"
SOURCE = ROOT / "data" / "gap_xtb_100k"
TARGET = "homolumogap"
VALID_ROWS = 2_000
VALIDATIONS = 20  # of each run
STEPS: Mapping[int, int] = {3_000: 3_000, 10_000: 6_000, 30_000: 12_000, 80_005: 20_000}
QM9_NAME = "row_scaling_qm9"
QM9_STEPS: Mapping[int, int] = {3_000: 3_000, 10_000: 6_000, 30_000: 12_000, 100_000: 20_000}
BATCH = 64
RATE = "optimizer.lr"
PLAIN = {
    "model.local": "null",
    "data.geometry": "false",
    "training.batch_size": str(BATCH),
    "optimizer.name": "muon",
    RATE: "3e-3",
}
PAIR_STATE, MESSAGES = {"model.pair_state": "true"}, {"model.local": "gine"}
BOTH = {**PAIR_STATE, **MESSAGES}
MAX_EXCHANGE, MIX_PLUS_SORT = "slice_sort:order=max_exchange", "slice_sort:form=mix_plus_sort"
# label -> attention with its options, and settings besides `PLAIN`
ENTRIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "softmax": ("softmax", {}),
    "key_sort": ("key_sort", {}),
    "slice_sort": ("slice_sort", {}),
    "flow": ("flow", {}),
    "singular": ("singular", {}),
    "identity": ("identity", {}),
    "slice_sort, pair state": ("slice_sort", PAIR_STATE),
    "softmax, messages": ("softmax", MESSAGES),
    "slice_sort, messages": ("slice_sort", MESSAGES),
    "softmax, pair state and messages": ("softmax", BOTH),
    "softmax, scores and messages": ("score_state", MESSAGES),
    "slice_sort, pair state and messages": ("slice_sort", BOTH),
    MAX_EXCHANGE: (MAX_EXCHANGE, {}),
    f"{MAX_EXCHANGE}, pair state and messages": (MAX_EXCHANGE, BOTH),
    f"{MIX_PLUS_SORT}, pair state and messages": (MIX_PLUS_SORT, BOTH),
    "identity, pair state and messages": ("identity", BOTH),
    "softmax, post-norm": ("softmax", {"model.norm": "post"}),
    "softmax, mixed lengths": ("softmax", {"training.mix_lengths": "true"}),
    "softmax, dropout": ("softmax", DROPOUT),
    "softmax, drop path": ("softmax", {"model.name": "drop_path"}),
    "slice_sort, post-norm": ("slice_sort", {"model.norm": "post"}),
    "softmax, 2 layers": ("softmax", {"model.num_layers": "2"}),
    "softmax, 8 layers": ("softmax", {"model.num_layers": "8"}),
    "softmax, 4 heads": ("softmax", {"model.num_heads": "4"}),
    "softmax, 16 heads": ("softmax", {"model.num_heads": "16"}),
    f"{MAX_EXCHANGE}, 16 heads": (MAX_EXCHANGE, {"model.num_heads": "16"}),
    "GIN-virtual": ("softmax", {"model.name": "gin_virtual"}),
    "GPS": ("softmax", {"model.name": "gps"}),
}
CHEMPROP, CHEMPROP_RATE = "chemprop", "2e-3"
DIM, CHEMPROP_DIM = 64, 300
LABELS = (*ENTRIES, CHEMPROP)


class Grid(NamedTuple):
    """A data set with the numbers of its training rows.

    Attributes:
        name: Name of the result.
        source: Folder of the data set.
        target: Column of the values.
        steps: Number of steps for each number of training rows.
    """

    name: str
    source: Path
    target: str
    steps: Mapping[int, int]

    @property
    def is_qm9(self) -> bool:
        """Whether the data set is QM9."""
        return self.name == QM9_NAME

    def prepare_rows(self, folder: Path) -> dict[str, Path]:
        """Write the rows of valid, test and each training sample as CSV, and return the files by name."""
        names = ["valid", "test", *map(str, self.steps)]
        files = {name: folder / f"{name}.csv" for name in names}
        if all(file.is_file() for file in files.values()):
            return files
        folder.mkdir(parents=True, exist_ok=True)
        rows, fitted, valid, test = self._read_qm9() if self.is_qm9 else self._read_gaps()
        chosen = {"valid": valid[:VALID_ROWS], "test": test}
        chosen |= {str(count): fitted[:count] for count in self.steps}
        for name, numbers in chosen.items():
            write_rows(files[name], ("smiles", self.target), [rows[row] for row in np.sort(numbers)])
        return files

    def _read_gaps(self) -> tuple[list[Sequence[str]], np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of `data/gap_xtb_100k`, the shuffled numbers of train and valid, and test."""
        with gzip.open(self.source / "raw" / "data.csv.gz", "rt", newline="") as file:
            rows: list[Sequence[str]] = [(row["smiles"], row[self.target]) for row in csv.DictReader(file)]
        splits = torch.load(self.source / "split_dict.pt", weights_only=False)
        random = np.random.default_rng(0)
        fitted, valid = (random.permutation(np.asarray(splits[name])) for name in ("train", "valid"))
        return rows, fitted, valid, np.asarray(splits["test"])

    def _read_qm9(self) -> tuple[list[Sequence[str]], np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows of QM9, the shuffled numbers of train and valid, and test."""
        files = [read_rows(self.source / f"{name}.csv.gz") for name in ("train", "valid")]
        columns = [[header.index(name) for name in ("smiles", self.target)] for header, _ in files]
        train, test = (
            [tuple(row[place] for place in places) for row in rows]
            for (_, rows), places in zip(files, columns, strict=True)
        )
        valid, fitted = np.split(np.random.default_rng(0).permutation(len(train)), [VALID_ROWS])
        return [*train, *test], fitted, valid, len(train) + np.arange(len(test))


class Point(NamedTuple):
    """The settings of a run.

    Attributes:
        label: One of `LABELS`.
        rows: Number of training rows.
        dim: Width of the model.
        seed: Seed of the weights and of the order of the rows.
        rate: Learning rate.
        steps: Number of steps.
    """

    label: str
    rows: int
    dim: int
    seed: int
    rate: str
    steps: int

    @property
    def name(self) -> str:
        """The name of the run, which its file has."""
        label = folder_name(self.label)
        return f"{label}-{self.rows}-dim{self.dim}-seed{self.seed}-rate{self.rate}-steps{self.steps}"


def default_rate(label: str) -> str:
    """Return the learning rate of an entry."""
    if label == CHEMPROP:
        return CHEMPROP_RATE
    return {**PLAIN, **ENTRIES[label][1]}[RATE]


def measure(
    point: Point, files: Mapping[str, Path], target: str, runs: Path, chemprop_python: str | None
) -> str:
    """Train an entry and test it, write the result as JSON, and return a line about it."""
    folder = runs / point.name
    if point.label == CHEMPROP:
        assert chemprop_python is not None
        trained = train_chemprop(point, files, target, folder, chemprop_python)
    else:
        trained = train_entry(point, files, target, folder, runs / "cache")
    result = {**point._asdict(), "commit": find_commit(), **trained}
    write_json(runs / f"{point.name}.json", result)
    shutil.rmtree(folder)
    error, best, seconds = (result[key] for key in ("test_mae", "best_step", "seconds"))
    return f"{point.name}: {error:.4f} eV, best step {best}, {seconds:.0f} s"


def train_chemprop(
    point: Point, files: Mapping[str, Path], target: str, folder: Path, python: str
) -> dict[str, Any]:
    """Train chemprop for about the steps of a point, in whole epochs, and test it."""
    steps_per_epoch = math.ceil(point.rows / BATCH)
    epochs = round(point.steps / steps_per_epoch)
    given = {"epochs": epochs, "rate": point.rate, "width": point.dim, "seed": point.seed}
    chosen = {"train": files[str(point.rows)], "valid": files["valid"], "test": files["test"]}
    result = run_chemprop(python, chosen, target, given, folder)
    kept = ("chemprop", "epochs", "parameters", "valid_mae", "test_mae", "seconds")
    return {"best_step": result["best_epoch"] * steps_per_epoch, **{key: result[key] for key in kept}}


def train_entry(
    point: Point, files: Mapping[str, Path], target: str, folder: Path, cache: Path
) -> dict[str, Any]:
    """Train an entry of `ENTRIES` and test it."""
    MODELS.add("gps", GpsSpec)
    MODELS.add("drop_path", DropPathSpec)
    ATTENTIONS.add("score_state", ScoreState)
    attention, given = ENTRIES[point.label]
    [(_, name, options)] = split_entries(attention)
    settings = {
        "data.path": files[str(point.rows)],
        "data.valid_path": files["valid"],
        "data.target_columns": target,
        "data.workers": 1,
        "data.cache_dir": cache,
        "model.dim": point.dim,
        "model.ffn_dim": point.dim,
        **{f"attention.{option}": value for option, value in {"name": name, **options}.items()},
        "training.max_minutes": "null",
        "training.max_steps": point.steps,
        "training.valid_every_steps": point.steps // VALIDATIONS,
        "trainer.num_threads": 1,
        "trainer.accelerator": "cpu",
        "seed": point.seed,
        **PLAIN,
        **given,
        RATE: point.rate,
    }
    config = load_config(CONFIG, [(key, str(value)) for key, value in settings.items()])
    summary = train(config, folder, resume=folder.exists(), quiet=True)
    kept = ("parameters", "parameters_without_embeddings", "best_step", "seconds")
    return {
        **{key: summary[key] for key in kept},
        "valid_mae": summary["valid"]["mae"][target],
        "test_mae": error_on_rows(folder, "csv", {**config.data.options, "geometry": False}, files["test"]),
    }


def finished_runs(options: argparse.Namespace) -> dict[Point, dict[str, Any]]:
    """Return the runs of the recorded result and of `--runs`."""
    recorded, finished = options.out / f"{grid_of(options).name}.json", sorted(options.runs.glob("*.json"))
    return {point_of(run): run for run in add_finished(recorded, "runs", finished, point_of)}


def grid_of(options: argparse.Namespace) -> Grid:
    """Return the data set of the command line."""
    if options.qm9 is None:
        return Grid(NAME, SOURCE, TARGET, STEPS)
    return Grid(QM9_NAME, options.qm9, QM9_TARGET, QM9_STEPS)


def point_of(run: Mapping[str, Any]) -> Point:
    """Return the settings of a run."""
    return Point(*(run[key] for key in Point._fields))


def choose_rates(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs at one rate for each entry, width, and number of rows and of steps.

    The validation error chooses it.
    """
    return _choose(runs, ("label", "dim", "rows", "steps"))


def choose_settings(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs at one rate and number of steps for each entry, width and number of rows.

    The validation error chooses them.
    """
    return _choose(runs, ("label", "dim", "rows"))


def _choose(runs: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    chosen = []
    for group in group_by(runs, lambda run: tuple(run[key] for key in keys)).values():
        tried = group_by(group, lambda run: (run["rate"], run["steps"]))
        chosen += min(tried.values(), key=lambda seeds: statistics.fmean(run["valid_mae"] for run in seeds))
    return chosen


def collect(options: argparse.Namespace) -> Path:
    """Write the finished runs, and the mean of each entry, as JSON."""
    runs = list(finished_runs(options).values())
    if not runs:
        raise SystemExit(f"no finished run in {options.runs}")
    order = list(LABELS)
    runs.sort(
        key=lambda run: (
            run["dim"],
            order.index(run["label"]),
            *(run[key] for key in ("rows", "rate", "steps", "seed")),
        )
    )
    chosen = choose_settings(runs)
    keys = ("label", "dim", "rows", "rate", "steps")
    entries = [
        {
            **dict(zip(keys, values, strict=True)),
            "chosen": group[0] in chosen,
            "parameters": group[0]["parameters"],
            "seeds": len(group),
            **{key: spread([run[key] for run in group]) for key in ("valid_mae", "test_mae")},
        }
        for values, group in group_by(runs, lambda run: tuple(run[key] for key in keys)).items()
    ]
    data = "QM9" if grid_of(options).is_qm9 else "data/gap_xtb_100k"
    payload = {
        "question": f"test MAE in eV on {data} by attention, number of training rows and width",
        "entries": entries,
        "penalties": fit_penalties(choose_rates(runs)),
        "runs": runs,
    }
    return record(grid_of(options).name, payload, options.out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a part of the grid, and collect what is finished."""
    parser = make_parser(__doc__)
    parser.add_argument("--entries", help="labels separated by semicolons (default: all)")
    parser.add_argument("--qm9", type=Path, help="folder of QM9, to measure on its rows")
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of training rows (default: all)")
    widths = f"widths (default: {DIM}, {CHEMPROP} {CHEMPROP_DIM})"
    parser.add_argument("--dims", type=int, nargs="+", help=widths)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rates", nargs="+", help="learning rates instead of the default, such as 1e-3")
    parser.add_argument("--longer", type=int, default=1, help="factor of the steps")
    parser.add_argument("--jobs", type=int, default=2, help="number of runs at a time")
    parser.add_argument("--chemprop-python", help="interpreter of chemprop's environment")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / NAME)
    parser.add_argument("--collect", action="store_true", help="write the JSON, train nothing")
    options = parser.parse_args(argv)
    if not options.collect:
        labels = options.entries.split(";") if options.entries else list(ENTRIES)
        unknown = [label for label in labels if label not in LABELS]
        if unknown:
            parser.error(f"unknown entry {unknown[0]!r}; known: {'; '.join(LABELS)}")
        if CHEMPROP in labels and not options.chemprop_python:
            parser.error(f"{CHEMPROP} needs --chemprop-python")
        grid = grid_of(options)
        if absent := [rows for rows in options.rows or () if rows not in grid.steps]:
            parser.error(f"invalid number of rows {absent[0]}; choices: {', '.join(map(str, grid.steps))}")
        files, known = grid.prepare_rows(options.runs / "rows"), finished_runs(options)
        points = [
            Point(label, rows, dim, seed, rate, options.longer * grid.steps[rows])
            for seed in range(options.seeds)
            for rows in options.rows or grid.steps
            for label in labels
            for dim in options.dims or [CHEMPROP_DIM if label == CHEMPROP else DIM]
            for rate in options.rates or [default_rate(label)]
        ]
        calls = [
            (point, files, grid.target, options.runs, options.chemprop_python)
            for point in points
            if point not in known
        ]
        for _, line in run_all(measure, calls, options.jobs):
            print(line, flush=True)
    print(collect(options))


if __name__ == "__main__":
    main()
