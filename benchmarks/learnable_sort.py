"""Compare designs of a learnable slice-and-sort with `softmax` and `slice_sort` on molecules.

Each entry is trained on the embedded data with each seed, for the same number of steps. Each run has one
thread, and `--jobs` runs are active at a time. With `--qm9 PATH`, a folder with train.csv.gz and valid.csv.gz
(columns smiles and gap_ev), some entries are also trained on 10,000 rows of QM9 and evaluated on its
validation file. Finished runs in `--runs` are not trained again:

    python benchmarks/learnable_sort.py --qm9 PATH_TO_QM9

Writes `benchmarks/results/NAME.json`. `sort_designs.py` defines the designs.
"""

import argparse
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sort_designs  # noqa: F401 - registers `sort_design`
from qm9_vs_chemprop import read_rows, write_rows
from record import record, spread

from molslice.config import RunConfig, load_config
from molslice.config.entries import folder_name, parse_entries
from molslice.data import build_dataset
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.model import build_model
from molslice.tasks.metrics import format_metric
from molslice.training.run import train
from molslice.types import DataSpec

ROOT = Path(__file__).resolve().parents[1]
DESIGNS = [
    f"sort_design:mixing={mixing}:after={after}:gate={gate}"
    for mixing, after, gate in (
        ("bias", "none", "false"),
        ("bias", "blend", "false"),
        ("own", "none", "false"),
        ("weight", "none", "false"),
        ("weight", "sort", "false"),
        ("keys", "none", "false"),
        ("keys", "none", "true"),
        ("keys_weight", "blend", "true"),
    )
]
ON_QM9 = "softmax,slice_sort,key_sort,key_sort:slope=1.0,key_weight"
ENTRIES = ",".join([ON_QM9, *DESIGNS])


def measure(label: str, data: str, config: RunConfig, run: Path, held_out: str | None) -> dict[str, Any]:
    """Train one run unless it is finished, and evaluate it on the test split or on a held-out file."""
    summary = train(config, run, resume=run.exists(), quiet=True)
    target = next(iter(summary["units"]))
    error = summary["test"]["mae"][target] if held_out is None else _evaluate(run, held_out, target)
    return {"label": label, "data": data, "mae": error, "summary": summary}


def _evaluate(run: Path, path: str, target: str) -> float:
    options = {"path": path, "valid_path": path, "target_columns": target, "units": "eV"}
    result = evaluate(load_model(str(run)), build_dataset("csv", options), "valid", progress=False)
    return result["targets"][0]["mae"]


def layer_parameters(config: RunConfig) -> int:
    """Count the parameters of the encoder's layers: attention, feed-forward and norms."""
    model = build_model(config.model, config.attention, DataSpec(1))
    return sum(p.numel() for name, p in model.named_parameters() if name.startswith("encoder.layers."))


def load_bases(options: argparse.Namespace, folder: Path) -> dict[str, tuple[RunConfig, str | None]]:
    """Return the configuration of each data set, and its held-out file (None: the test split)."""
    settings = {
        "training.max_minutes": "null",
        "trainer.num_threads": 1,
        "trainer.accelerator": "cpu",
    }

    def load(name: str, more: dict[str, Any]) -> RunConfig:
        pairs = [(key, str(value)) for key, value in {**settings, **more}.items()]
        return load_config(ROOT / "configs" / "molecule" / f"{name}.yaml", pairs)

    root = ROOT / "data" / "gap_xtb"
    bases: dict[str, tuple[RunConfig, str | None]] = {}
    bases["gap_xtb"] = (load("gap_xtb", {"data.root": root, "training.max_steps": options.steps}), None)
    if options.qm9:
        source, train_csv, valid_csv = options.qm9, folder / "train.csv", folder / "valid.csv"
        header, rows = read_rows(source / "train.csv.gz")
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:10_000])
        write_rows(train_csv, header, [rows[i] for i in chosen])
        write_rows(valid_csv, *read_rows(source / "valid.csv.gz"))
        split = "{kind: random, fractions: [0.9, 0.1, 0.0], seed: 0}"
        more = {"training.max_steps": options.qm9_steps}
        more |= {"data.path": train_csv, "data.valid_path": "null", "data.split": split}
        bases["qm9"] = (load("qm9", more), str(valid_csv))
    for config, _ in bases.values():
        build_dataset(config.data.name, dict(config.data.options))  # prepare the store once
    return bases


def summarize(runs: list[dict[str, Any]], layers: dict[str, int]) -> list[dict[str, Any]]:
    """Return mean, standard deviation and ratio to softmax of each entry on each data set."""
    rows = []
    for data, label in dict.fromkeys((run["data"], run["label"]) for run in runs):
        own = [run for run in runs if (run["data"], run["label"]) == (data, label)]
        base = [run["mae"] for run in runs if (run["data"], run["label"]) == (data, "softmax")]
        errors = [run["mae"] for run in own]
        rows.append(
            {
                "data": data,
                "label": label,
                "seeds": len(own),
                "parameters": own[0]["summary"]["parameters"],
                "layer_parameters": layers[label],
                "mae": spread(errors),
                "over_softmax": statistics.fmean(errors) / statistics.fmean(base) if base else None,
                "seconds": statistics.fmean(run["summary"]["seconds"] for run in own),
            }
        )
    return rows


def main() -> None:
    """Train and evaluate all entries on all data sets, then write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", default=ENTRIES)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--qm9", type=Path)
    parser.add_argument("--qm9-entries", default=ON_QM9)
    parser.add_argument("--qm9-seeds", type=int, help="default: --seeds")
    parser.add_argument("--qm9-steps", type=int, default=1500)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "learnable_sort")
    parser.add_argument("--name", default="learnable_sort")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    layers: dict[str, int] = {}
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {}
        bases = load_bases(options, options.runs)
        for seed in range(options.seeds):
            for data, (base, held_out) in bases.items():
                if data == "qm9" and options.qm9_seeds is not None and seed >= options.qm9_seeds:
                    continue
                for entry in parse_entries(options.qm9_entries if data == "qm9" else options.entries, base):
                    layers[entry.label] = layer_parameters(entry.config)
                    folder = (
                        options.runs
                        / f"{data}-{base.training.max_steps}"
                        / folder_name(entry.label)
                        / f"seed{seed}"
                    )
                    config = replace(entry.config, seed=seed)
                    futures[pool.submit(measure, entry.label, data, config, folder, held_out)] = folder
        for future in as_completed(futures):
            runs.append(future.result())
            print(f"{futures[future]}: {format_metric(runs[-1]['mae'])}", flush=True)
    runs.sort(key=lambda run: (run["data"], run["label"], run["summary"]["seed"]))
    payload = {
        "question": "MAE in eV: the test split of data/gap_xtb; valid.csv.gz of QM9 after 10,000 rows",
        "settings": {
            "steps": {data: base.training.max_steps for data, (base, _) in bases.items()},
            "threads_a_run": 1,
            "runs_at_a_time": options.jobs,
        },
        "entries": summarize(runs, layers),
        "runs": runs,
    }
    print(record(options.name, payload, options.out))


if __name__ == "__main__":
    main()
