"""Measure `molslice fit` on three classes, and on two classes of which one is rare.

    python benchmarks/fit_classes.py FOLDER

FOLDER has the MoleculeNet files esol.csv.gz, lipo.csv.gz and hiv.csv.gz. Numbers are cut into three classes:
solubility at -4 and -2 log mol/L, lipophilicity at 1 and 3. Each fit has `--known` training rows, drawn with
its seed, and as many others as held-out rows, without an encoder; there are `--factor` times as many rows if
a class is rare. Three classes are learned with and without their order, and a rare class with and without
balanced weights. The baselines are scikit-learn's random forest and histogram gradient boosting on the same
features, as in every fit.

Writes `benchmarks/results/fit_classes.json`.
"""

import csv
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import group_by, make_parser, record, spread

from molslice.fitting.fit import fit
from molslice.inference.load import load_model

NAMES = ("low", "medium", "high")
CUT = {"esol": ("measured log solubility in mols per litre", (-4.0, -2.0)), "lipo": ("exp", (1.0, 3.0))}
RARE = {"hiv": "HIV_active"}
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
    if about["targets"]["kind"] != "multiclass":
        return {"metrics": tests}
    rows = pd.read_csv(table)
    test = rows[rows["part"] == "test"]
    predictions = load_model(folder).predict_with_errors(test["smiles"].tolist(), interval=LEVEL)
    assert predictions.labels is not None
    assert predictions.sets is not None
    readable = np.array([reason is None for reason in predictions.errors])
    # also of classes that are learned without their order
    places = np.array(
        [[NAMES.index(name) for name in pair] for pair in zip(predictions.labels, test["y"], strict=True)]
    )
    tests["class_error"] = dict(tests.get("class_error", {}))
    tests["class_error"]["molslice fit"] = float(np.abs(np.diff(places[readable])).mean())
    names = predictions.class_names[0]
    of_class = np.array([names.index(name) for name in test["y"]])
    held = predictions.sets[np.arange(len(test)), 0, of_class][readable]
    sizes = predictions.sets[readable, 0].sum(1)
    return {"metrics": tests, "coverage": float(held.mean()), "set_size": float(sizes.mean())}


def measure(folder: Path, name: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return the results of each way of learning a set, for one draw of `count` known and new rows each."""
    smiles, labels = read_rows(folder, name)
    drawn = np.random.default_rng(seed).permutation(len(smiles))[: 2 * count]
    parts = ["train" if place < count else "test" for place in range(len(drawn))]
    results = []
    with tempfile.TemporaryDirectory() as place:
        table = Path(place, "rows.csv")
        with table.open("w", newline="") as stream:
            lines = zip(smiles[drawn], labels[drawn], parts, strict=True)
            csv.writer(stream).writerows([("smiles", "y", "part"), *lines])
        for way, how in (WAYS if name in CUT else WEIGHTS).items():
            results.append({"set": name, "way": way, **fit_once(table, Path(place, way), seed, how)})
            print(seed, results[-1], flush=True)
    return results


def summarize(fits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds."""
    metrics = {
        metric: {model: spread([fit["metrics"][metric][model] for fit in fits]) for model in models}
        for metric, models in fits[0]["metrics"].items()
    }
    sets = {key: spread([fit[key] for fit in fits]) for key in ("coverage", "set_size") if key in fits[0]}
    return {"set": fits[0]["set"], "way": fits[0]["way"], "metrics": metrics, **sets}


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--known", type=int, default=300)
    parser.add_argument("--factor", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one fit each")
    options = parser.parse_args(argv)
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [
            pool.submit(measure, options.folder, name, options.known * factor, seed)
            for sets, factor in ((CUT, 1), (RARE, options.factor))
            for name in sets
            for seed in range(options.seeds)
        ]
        fits = [result for done in waiting for result in done.result()]
    rows = [summarize(same) for same in group_by(fits, lambda fit: (fit["set"], fit["way"])).values()]
    settings = {name: getattr(options, name) for name in ("known", "factor", "seeds")}
    print(record("fit_classes", {**settings, "level": LEVEL, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
