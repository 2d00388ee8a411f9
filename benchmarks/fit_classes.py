"""Measure `molslice fit` on three classes, and on two classes of which one is rare.

    python benchmarks/fit_classes.py FOLDER

FOLDER has the MoleculeNet files esol.csv.gz, lipo.csv.gz, hiv.csv.gz and tox21.csv.gz. Numbers are cut into
three classes: solubility at -4 and -2 log mol/L, lipophilicity at 1 and 3. Each fit has `--known` training
rows, drawn with its seed, and up to `--new` others as held-out rows, without an encoder. Three classes are
learned with and without their order, and a rare class with and without balanced weights. The baselines are
scikit-learn's random forest and histogram gradient boosting on the same features, as in every fit.

Writes `benchmarks/results/fit_classes.json`.
"""

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record, spread

from molslice.fitting.fit import fit
from molslice.inference.load import load_model

NAMES = ("low", "medium", "high")
CUT = {"esol": ("measured log solubility in mols per litre", (-4.0, -2.0)), "lipo": ("exp", (1.0, 3.0))}
RARE = {"hiv": "HIV_active", "tox21": "NR-AR-LBD"}
LEVEL = 0.9
WAYS: dict[str, dict[str, Any]] = {"classes": {}, "ordered": {"order": NAMES}}
WEIGHTS: dict[str, dict[str, Any]] = {"rows": {}, "balanced": {"class_weight": "balanced"}}


def read_rows(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the SMILES and the classes of a set, text [n] each."""
    column, cuts = CUT.get(name) or (RARE[name], ())
    table = pd.read_csv(folder / f"{name}.csv.gz").dropna(subset=[column])
    values = table[column].to_numpy()
    labels = np.array(NAMES)[np.searchsorted(cuts, values)] if cuts else values.astype(int).astype(str)
    return table["smiles"].to_numpy(), labels


def fit_once(table: Path, folder: Path, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Fit, and return the held-out metrics of the model and of the baselines, and what sets cover."""
    about = fit(table, "y", folder, split="part", encoder=None, seed=seed, quiet=True, **options)
    (result,) = about["results"]
    tests = {about["metric"]: result["test"], **{name: m["test"] for name, m in result["metrics"].items()}}
    rows = pd.read_csv(table, dtype={"y": str})
    test = rows[rows["part"] == "test"]
    predictions = load_model(folder).predict_with_errors(test["smiles"].tolist(), interval=LEVEL)
    readable = np.array([reason is None for reason in predictions.errors])
    assert predictions.sets is not None
    names = [str(name) for name in (predictions.class_names or (("0", "1"),))[0]]
    places = np.array([names.index(label) for label in test["y"]])
    held = predictions.sets[np.arange(len(test)), 0, places][readable]
    sizes = predictions.sets[readable, 0].sum(1)
    if predictions.labels is not None:  # also of classes that are learned without their order
        chosen = np.array([NAMES.index(label) if label else -1 for label in predictions.labels])
        truth = np.array([NAMES.index(label) for label in test["y"]])
        tests["class_error"] = {**tests.get("class_error", {})}
        tests["class_error"]["molslice fit"] = float(np.abs(chosen - truth)[readable].mean())
    return {"metrics": tests, "coverage": float(held.mean()), "set_size": float(sizes.mean())}


def measure(folder: Path, name: str, ways: Mapping[str, Any], options: argparse.Namespace) -> Sequence[Any]:
    """Return the results of a set, one for each way of learning it."""
    smiles, labels = read_rows(folder, name)
    results: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for seed in range(options.seeds):
        drawn = np.random.default_rng(seed).permutation(len(smiles))[: options.known + options.new]
        parts = ["train" if place < options.known else "test" for place in range(len(drawn))]
        with tempfile.TemporaryDirectory() as place:
            table = Path(place, "rows.csv")
            with table.open("w", newline="") as stream:
                lines = zip(smiles[drawn], labels[drawn], parts, strict=True)
                csv.writer(stream).writerows([("smiles", "y", "part"), *lines])
            for way, how in ways.items():
                results[way].append(fit_once(table, Path(place, way), seed, how))
                print(name, seed, way, results[way][-1], flush=True)
    return [summarize(name, way, fits) for way, fits in results.items()]


def summarize(name: str, way: str, fits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds."""
    metrics = {
        metric: {model: spread([fit["metrics"][metric][model] for fit in fits]) for model in models}
        for metric, models in fits[0]["metrics"].items()
    }
    sets = {key: spread([fit[key] for fit in fits]) for key in ("coverage", "set_size")}
    return {"set": name, "way": way, "metrics": metrics, **sets}


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=int, default=800)
    parser.add_argument("--new", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    several = [row for name in CUT for row in measure(options.folder, name, WAYS, options)]
    rare = [row for name in RARE for row in measure(options.folder, name, WEIGHTS, options)]
    settings = {name: getattr(options, name) for name in ("known", "new", "seeds")}
    payload = {**settings, "level": LEVEL, "three_classes": several, "rare_class": rare}
    print(record("fit_classes", payload, options.out))


if __name__ == "__main__":
    main()
