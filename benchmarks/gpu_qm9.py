"""Train Graphormer's small model on all of QM9 on a GPU, once for each attention.

    python benchmarks/gpu_qm9.py --data PATH_TO_QM9 --attentions softmax,slice_sort --minutes 30

The target is the HOMO-LUMO gap. `--data` is a folder with `train.csv.gz` and `valid.csv.gz` (columns smiles,
gap_ev). A twentieth of the first are validation rows, which choose the epoch; the second holds the test rows.
All attentions have the same settings, which were not searched; `--minutes` becomes a number of steps before
the first one.

A finished attention is a file in `--runs` and is not repeated. Several processes may train different
attentions. `--collect` trains nothing and writes `benchmarks/results/gpu_qm9.json`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from record import describe_hardware, record, write_json

from molslice.config import load_config
from molslice.files.parsing import read_json_object
from molslice.training.run import train

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "molecule" / "qm9.yaml"
TARGET = "gap_ev"
SETTINGS = {
    "data.valid_path": "null",
    "data.split": "{kind: random, fractions: [0.95, 0.05], seed: 0}",
    "data.target_columns": TARGET,
    "model.preset": "small",
    "optimizer.lr": "4e-4",
    "training.batch_size": "512",
    "training.token_budget": "16384",
}


def train_one(attention: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train with an attention and return its result."""
    settings = {
        **SETTINGS,
        "data.path": str(options.data / "train.csv.gz"),
        "data.test_path": str(options.data / "valid.csv.gz"),
        "data.cache_dir": str(options.runs / "cache"),
        "attention.name": attention,
        "training.max_minutes": str(options.minutes),
        "trainer.accelerator": options.device,
        "trainer.precision": options.precision,
    }
    run = options.runs / attention
    summary = train(load_config(CONFIG, list(settings.items())), run, resume=run.exists(), quiet=True)
    return {
        "attention": attention,
        "parameters": summary["parameters"],
        "epochs": summary["epochs"],
        "best_step": summary["best_step"],
        "valid_mae": summary["valid"]["mae"][TARGET],
        "test_mae": summary["test"]["mae"][TARGET],
        "hardware": describe_hardware(),
    }


def main(argv: list[str] | None = None) -> None:
    """Train the attentions that are not finished, or collect those that are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with train.csv.gz and valid.csv.gz")
    parser.add_argument("--attentions", default="softmax,slice_sort")
    parser.add_argument("--minutes", type=float, default=30.0, help="length of each training")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16", choices=["bf16", "32"])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "gpu_qm9")
    parser.add_argument("--collect", action="store_true", help="record the finished runs, train nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    if options.collect:
        rows = [read_json_object(file) for file in sorted(options.runs.glob("*.json"))]
        if not rows:
            sys.exit(f"no attention is finished in {options.runs}")
        payload = {"question": "MAE in eV on QM9's gap", "settings": SETTINGS, "rows": rows}
        print(record("gpu_qm9", payload, options.out))
        return
    if options.data is None:
        parser.error("training needs --data")
    for attention in options.attentions.split(","):
        file = options.runs / f"{attention}.json"
        if not file.is_file():
            write_json(file, train_one(attention, options))
        print(file.read_text(encoding="utf-8"), flush=True)


if __name__ == "__main__":
    main()
