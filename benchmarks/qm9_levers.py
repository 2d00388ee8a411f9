"""Compare options of molslice and chemprop on 10,000 rows of QM9: error and processor time on one thread.

    python benchmarks/qm9_levers.py --data PATH_TO_QM9 --chemprop-python /tmp/chemprop/bin/python --seeds 3

`--data` is a folder with `train.csv.gz` and `valid.csv.gz` (columns smiles, gap_ev). 9,000 training and 1,000
validation rows are drawn from train.csv.gz; valid.csv.gz has the test rows. The validation rows choose the
epoch of both programs, and the test rows choose nothing. The target is the HOMO-LUMO gap in eV.

The steps of an entry are set for about the time of chemprop's 50 epochs. Times are the
processor seconds of the training, with validation, without reading and featurizing; the time of the
conformers is in `geometry_seconds`. The largest rate of chemprop is 0.002, the best of three
(`benchmarks/results/qm9_convergence.json`).

Each finished run is a JSON file in `--runs` and is not repeated. `--collect` trains nothing and adds the
finished runs to `benchmarks/results/qm9_levers.json`. Chemprop needs an environment of its own; see
`chemprop_speed.py`.
"""

import argparse
import csv
import gzip
import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import (
    ROOT,
    add_finished,
    find_commit,
    group_by,
    make_parser,
    other_environment,
    record,
    spread,
    write_json,
)

from molslice.config import load_config
from molslice.config.entries import folder_name
from molslice.data import build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.training.run import train

CONFIG = ROOT / "configs" / "molecule" / "qm9.yaml"
TARGET = "gap_ev"
ROWS, FITTED_ROWS = 10_000, 9_000
NAME = "qm9_levers"
# the rates 5e-4 and 1e-3 have larger errors, see qm9_convergence.json
CHEMPROP: Mapping[str, Mapping[str, Any]] = {
    "chemprop": {"epochs": 50, "rate": 2e-3},
    "chemprop, rate 0.004": {"epochs": 50, "rate": 4e-3},
    "chemprop, sum of the atoms": {"epochs": 50, "rate": 2e-3, "aggregation": "norm"},
}
PLAIN = {
    "model.dim": "64",
    "model.ffn_dim": "64",
    "model.local": "null",
    "data.geometry": "false",
    "optimizer.name": "adamw",
    "optimizer.lr": "4e-3",
}
MUON = {"optimizer.name": "muon", "optimizer.lr": "3e-3"}
MESSAGES = {**MUON, "model.local": "gine"}
DROPOUT = {"model.dropout": "0.1"}
GEOMETRY = {"data.geometry": "true"}
ALL_FOUR = {**MESSAGES, **GEOMETRY, "model.pair_state": "true"}
SLICE_SORT = {"attention.name": "slice_sort"}
WIDER = {"model.dim": "80", "model.ffn_dim": "160"}
# label -> steps, and settings besides `PLAIN`
ENTRIES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "AdamW": (7200, {}),
    "Muon": (7200, MUON),
    "Muon, messages": (6500, MESSAGES),
    "Muon, messages, dropout": (6500, {**MESSAGES, **DROPOUT}),
    "Muon, messages, dropout, pair state": (5000, {**MESSAGES, **DROPOUT, "model.pair_state": "true"}),
    "Muon, messages, distances": (6000, {**MESSAGES, **GEOMETRY}),
    "Muon, messages, dropout, distances": (6500, {**MESSAGES, **DROPOUT, **GEOMETRY}),
    "Muon, messages, distances, 4 x 80": (4800, {**MESSAGES, **GEOMETRY, **WIDER}),
    "Muon, messages, distances, 4 x 80, mixed lengths": (
        4800,
        {**MESSAGES, **GEOMETRY, **WIDER, "training.mix_lengths": "true"},
    ),
    "Muon, messages, distances, pair state": (6000, ALL_FOUR),
    "slice_sort, Muon, messages, distances, pair state": (6000, {**ALL_FOUR, **SLICE_SORT}),
    "slice_sort, max_exchange, Muon, messages, distances, pair state": (
        6000,
        {**ALL_FOUR, **SLICE_SORT, "attention.order": "max_exchange"},
    ),
}


def prepare_rows(data: Path, folder: Path) -> dict[str, Path]:
    """Write the rows of train, valid and test as CSV."""
    files = {name: folder / f"{name}.csv" for name in ("train", "valid", "test")}
    if files["test"].is_file():
        return files
    folder.mkdir(parents=True, exist_ok=True)
    header, rows = read_rows(data / "train.csv.gz")
    chosen = np.random.default_rng(0).permutation(len(rows))[:ROWS]
    fitted, valid = np.split(chosen, [FITTED_ROWS])
    write_rows(files["train"], header, [rows[row] for row in np.sort(fitted)])
    write_rows(files["valid"], header, [rows[row] for row in np.sort(valid)])
    write_rows(files["test"], *read_rows(data / "valid.csv.gz"))
    return files


def read_rows(source: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a gzipped CSV file."""
    with gzip.open(source, "rt", newline="") as file:
        header, *rows = list(csv.reader(file))
    return header, rows


def write_rows(target: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a CSV file."""
    with target.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def run_molslice(label: str, seed: int, files: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Train an entry and test it."""
    steps, given = ENTRIES[label]
    settings = {
        "data.path": files["train"],
        "data.valid_path": files["valid"],
        "data.workers": 1,
        "data.cache_dir": folder.parent / "cache",
        "training.max_minutes": "null",
        "training.max_steps": steps,
        "trainer.num_threads": 1,
        "trainer.accelerator": "cpu",
        "seed": seed,
        **PLAIN,
        **given,
    }
    config = load_config(CONFIG, [(key, str(value)) for key, value in settings.items()])
    start = time.process_time()
    build_dataset("csv", dict(config.data.options))
    prepared = time.process_time()
    summary = train(config, folder, quiet=True)
    seconds = time.process_time() - prepared
    return {
        "steps": steps,
        "settings": dict(given),
        "parameters": summary["parameters"],
        "best_step": summary["best_step"],
        "valid_mae": summary["valid"]["mae"][TARGET],
        "test_mae": error_on_rows(folder, "csv", {**config.data.options, "geometry": False}, files["test"]),
        "seconds": seconds,
        "geometry_seconds": prepared - start if "data.geometry" in given else None,
    }


def error_on_rows(folder: Path, name: str, options: Mapping[str, Any], rows: Path) -> float:
    """Return the MAE of a run on all rows of a CSV file or a store, which need no conformer.

    Args:
        folder: The run.
        name: Name of the kind of data, `csv` or `prepared`.
        options: Options of the data besides the file.
        rows: The file or the store.
    """
    dataset = build_dataset(name, {**options, "path": str(rows), "valid_path": str(rows)})
    return evaluate(load_model(str(folder)), dataset, "valid", progress=False)["targets"][0]["mae"]


def run_chemprop(
    python: str, files: Mapping[str, Path], target: str, given: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Train chemprop with the interpreter of its environment and test it.

    Args:
        python: The interpreter.
        files: CSV files of the rows of `train`, `valid` and `test`.
        target: Column of the target.
        given: Other options of `chemprop_fit.py`.
        folder: A folder for temporary files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "result.json"
    options = {**files, "target": target, **given, "out": out}
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [python, str(ROOT / "benchmarks" / "chemprop_fit.py"), *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=other_environment(1))
    return {**given, **json.loads(out.read_text(encoding="utf-8"))}


def measure(label: str, seed: int, files: Mapping[str, Path], options: argparse.Namespace) -> None:
    """Run one entry with one seed, unless it is finished."""
    name = f"{folder_name(label)}-{seed}"
    file, folder = options.runs / f"{name}.json", options.runs / name
    if file.is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run, whose time would not be known
    if label in CHEMPROP:
        given = {**CHEMPROP[label], "seed": seed}
        result = run_chemprop(options.chemprop_python, files, TARGET, given, folder)
    else:
        result = run_molslice(label, seed, files, folder)
    write_json(file, {"label": label, "seed": seed, "commit": find_commit(), **result})
    shutil.rmtree(folder)
    print(f"{name}: {result['test_mae']:.4f} eV, {result['seconds']:.0f} s", flush=True)


def collect(options: argparse.Namespace) -> Path:
    """Add the finished runs to the recorded ones, as JSON."""
    recorded, finished = options.out / f"{NAME}.json", sorted(options.runs.glob("*.json"))
    if not finished:
        raise SystemExit(f"no finished run in {options.runs}")
    runs = add_finished(recorded, "runs", finished, lambda run: (run["label"], run["seed"]))
    entries = [
        {
            "label": label,
            "parameters": group[0]["parameters"],
            "seeds": len(group),
            **{key: spread([run[key] for run in group]) for key in ("valid_mae", "test_mae", "seconds")},
        }
        for label, group in group_by(runs, lambda run: run["label"]).items()
    ]
    order = [*CHEMPROP, *ENTRIES]
    payload = {
        "question": "error and processor seconds of options on 10,000 rows of QM9, one thread",
        "entries": sorted(entries, key=lambda entry: order.index(entry["label"])),
        "runs": runs,
    }
    return record(NAME, payload, options.out)


def main(argv: list[str] | None = None) -> None:
    """Run the entries, or collect those that are finished."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.csv.gz and valid.csv.gz")
    parser.add_argument("--entries", help="labels separated by semicolons (default: all)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--chemprop-python", help="interpreter of chemprop's environment")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "qm9_levers")
    parser.add_argument("--collect", action="store_true", help="write the JSON, train nothing")
    options = parser.parse_args(argv)
    if not options.collect:
        if options.data is None:
            parser.error("training needs --data")
        first = list(CHEMPROP) if options.chemprop_python else []
        labels = options.entries.split(";") if options.entries else [*first, *ENTRIES]
        files = prepare_rows(options.data, options.runs / "rows")
        for seed in range(options.seeds):
            for label in labels:
                measure(label, seed, files, options)
    print(collect(options))


if __name__ == "__main__":
    main()
