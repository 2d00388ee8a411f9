"""Measure baselines: the median, and gradient boosting on fingerprints and descriptors.

    python benchmarks/baselines.py --data data/gap_xtb
    python benchmarks/baselines.py --data train.csv.gz --valid valid.csv.gz --target-column gap_ev \
        --train-rows 10000 --name baselines_qm9

--data is a folder in PCQM4M's layout, or a CSV file with the training rows. Hyperparameters are chosen by
the validation MAE of the first seed. Early stopping uses a tenth of the training rows.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from rdkit import rdBase
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from record import ROOT, make_parser, record
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from molslice.chem.smiles import parse_smiles
from molslice.uncertainty.rounding import rounded_error

BINS, RADIUS = 2048, 2
CHUNK = 200
MIN_LEAF = 20
Models = list[HistGradientBoostingRegressor]
GRID: tuple[dict[str, Any], ...] = (
    {"learning_rate": 0.1, "max_leaf_nodes": 31, "max_features": 1.0},
    {"learning_rate": 0.1, "max_leaf_nodes": 31, "max_features": 0.2},
)


@dataclass(frozen=True)
class Part:
    """One split.

    Attributes:
        smiles: SMILES of each row.
        targets: Targets [n], in the unit of the file.
    """

    smiles: list[str]
    targets: np.ndarray


def load_parts(arguments: argparse.Namespace) -> dict[str, Part]:
    """Read the splits, with a random subset of --train-rows training rows if it is given."""
    if arguments.data.is_dir():
        table = pd.read_csv(arguments.data / "raw" / "data.csv.gz")
        # This file is part of the repository, so unpickling it is safe. It contains numpy arrays.
        split = torch.load(arguments.data / "split_dict.pt", weights_only=False)
        tables = {name: table.iloc[split[name]] for name in ("train", "valid", "test")}
    else:
        paths = {"train": arguments.data, "valid": arguments.valid, "test": arguments.test}
        tables = {name: pd.read_csv(path) for name, path in paths.items() if path is not None}
    if "valid" not in tables:
        raise ValueError("--data is a CSV file: --valid is needed to choose hyperparameters")
    if arguments.train_rows:
        order = np.random.default_rng(0).permutation(len(tables["train"]))[: arguments.train_rows]
        tables["train"] = tables["train"].iloc[np.sort(order)]
    return {name: read_part(table, arguments) for name, table in tables.items()}


def read_part(table: pd.DataFrame, arguments: argparse.Namespace) -> Part:
    """Return the rows with a finite target (the test rows of PCQM4M have no target)."""
    for column in (arguments.smiles_column, arguments.target_column):
        if column not in table.columns:
            raise ValueError(f"no column {column!r}; choices: {', '.join(table.columns)}")
    targets = table[arguments.target_column].to_numpy(float)
    finite = np.isfinite(targets)
    return Part(table[arguments.smiles_column][finite].tolist(), targets[finite])


def featurize(smiles: list[str], descriptors: bool, pool: Parallel) -> np.ndarray:
    """Return Morgan counts [n, 2048], followed by all RDKit descriptors if `descriptors` is True.

    A descriptor that fails or is not finite becomes NaN, which the trees treat as missing. Large finite
    values are kept, because trees depend only on the order of the values.
    """
    bar = tqdm(range(0, len(smiles), CHUNK), desc="features", disable=None)
    chunks = pool(delayed(featurize_chunk)(smiles[at : at + CHUNK], descriptors) for at in bar)
    table = np.concatenate(cast(list[np.ndarray], chunks))
    return np.where(np.isfinite(table), table, np.nan)


def featurize_chunk(smiles: list[str], descriptors: bool) -> np.ndarray:
    """Return the features of some molecules; values may be infinite."""
    rdBase.DisableLog("rdApp.*")  # each process of the pool has its own log
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BINS)
    rows = []
    for text in smiles:
        mol = parse_smiles(text)
        row = generator.GetCountFingerprintAsNumPy(mol).astype(float)
        if descriptors:
            values = Descriptors.CalcMolDescriptors(mol, missingVal=np.nan, silent=True)
            row = np.concatenate([row, np.array(list(values.values()), dtype=float)])
        rows.append(row)
    return np.stack(rows)


def fit(
    features: np.ndarray, targets: np.ndarray, options: dict[str, Any], seed: int
) -> HistGradientBoostingRegressor:
    """Fit boosted trees with the absolute error, with early stopping on a tenth of the rows."""
    model = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=2000,
        early_stopping=True,  # pyright: ignore[reportArgumentType]  (declared as str)
        validation_fraction=0.1,
        n_iter_no_change=30,
        min_samples_leaf=MIN_LEAF,
        random_state=seed,
        **options,
    )
    with threadpool_limits(limits=1):  # the fits run in parallel
        model.fit(features, targets)
    stopped_at = abs(float(model.validation_score_[-1]))
    sys.stderr.write(f"  {options}, seed {seed}: {model.n_iter_} trees, held-out loss {stopped_at:.4g}\n")
    return model


def find_useful(features: np.ndarray) -> np.ndarray:
    """Return a mask [f] of the columns that a tree can split on.

    Both sides of a split need MIN_LEAF rows. A column in which fewer rows differ from the most common value
    does not change the model and only takes time.
    """
    useful = np.zeros(features.shape[1], dtype=bool)
    for place, column in enumerate(features.T):
        counts = np.unique(column, return_counts=True)[1]
        useful[place] = len(column) - counts.max() >= MIN_LEAF
    return useful


def measure_boosting(parts: dict[str, Part], descriptors: bool, seeds: int, threads: int) -> dict[str, Any]:
    """Choose hyperparameters by validation MAE, fit with each seed, and return the MAE of every split."""
    start = time.perf_counter()
    pool = Parallel(n_jobs=threads)
    features = {split: featurize(rows.smiles, descriptors, pool) for split, rows in parts.items()}
    useful = find_useful(features["train"])
    features = {split: table[:, useful] for split, table in features.items()}
    featurized = time.perf_counter()
    given = features["train"], parts["train"].targets
    searched = cast(Models, pool(delayed(fit)(*given, options, 0) for options in GRID))
    trials = [
        {
            "options": options,
            "valid_mae": round(mae(model.predict(features["valid"]), parts["valid"]), 5),
            "trees": model.n_iter_,
        }
        for options, model in zip(GRID, searched, strict=True)
    ]
    best = min(range(len(GRID)), key=lambda place: trials[place]["valid_mae"])
    chose = time.perf_counter()
    others = cast(Models, pool(delayed(fit)(*given, GRID[best], seed) for seed in range(1, seeds)))
    models = [searched[best], *others]
    errors = {
        split: [mae(model.predict(features[split]), rows) for model in models]
        for split, rows in parts.items()
    }
    return {
        "options": GRID[best],
        "trials": trials,
        "features": int(useful.sum()),
        **{split: summarize(values) for split, values in errors.items()},
        "seconds": {
            "features": round(featurized - start, 1),
            "search": round(chose - featurized, 1),
            "fits": round(time.perf_counter() - chose, 1),
        },
    }


def mae(predictions: np.ndarray, rows: Part) -> float:
    """Return the mean absolute error, in the unit of the target."""
    return float(np.abs(predictions - rows.targets).mean())


def summarize(values: list[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation over seeds."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {
        "mae_mean": round(float(np.mean(values)), 5),
        "mae_sd": round(spread, 5),
        "mae": [round(value, 5) for value in values],
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the three baselines on the data that the arguments name."""
    parts = load_parts(arguments)
    median = float(np.median(parts["train"].targets))
    constant = {
        split: summarize([mae(np.full(len(rows.smiles), median), rows)]) for split, rows in parts.items()
    }
    results: dict[str, Any] = {"median": {"median": median, **constant}}
    for name, descriptors in (("morgan_and_descriptors", True), ("morgan", False)):
        sys.stderr.write(f"{name}\n")
        results[name] = measure_boosting(parts, descriptors, arguments.seeds, arguments.threads)
    return {
        "data": arguments.data.name,
        "target_column": arguments.target_column,
        "rows": {split: len(rows.smiles) for split, rows in parts.items()},
        "threads": arguments.threads,
        "baselines": results,
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "gap_xtb")
    parser.add_argument("--valid", type=Path, help="CSV file with the validation rows, if --data is one")
    parser.add_argument("--test", type=Path, help="CSV file with the test rows, if --data is one")
    parser.add_argument("--smiles-column", default="smiles")
    parser.add_argument("--target-column", default="homolumogap")
    parser.add_argument("--train-rows", type=int, help="number of training rows to use (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="baselines_gap_xtb", help="name of the result file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table and write the JSON."""
    arguments = parse_arguments(argv)
    rdBase.DisableLog("rdApp.*")
    try:
        payload = measure(arguments)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"baselines: {error}\n")
        return 1
    path = record(arguments.name, payload, arguments.out)
    for name, result in payload["baselines"].items():
        for split in ("valid", "test"):
            if split in result:
                error = result[split]
                text = rounded_error(error["mae_mean"], error["mae_sd"])
                sys.stdout.write(f"{name:24s} {split:6s} {text}\n")
    sys.stderr.write(f"written to {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
