"""Train Graphormer's small model on all of QM9 on a GPU, once for each attention.

    molslice prepare QM9/train.csv.gz --target gap_ev --out runs/qm9/train
    molslice prepare QM9/valid.csv.gz --target gap_ev --out runs/qm9/valid
    python benchmarks/gpu_qm9.py --stores runs/qm9 --attentions softmax,slice_sort --epochs 100

The target is the HOMO-LUMO gap. A twentieth of the rows of the store `train` are validation rows, which
choose the epoch; the store `valid` holds the test rows. All attentions have the same settings except for the
learning rate: each of `--rates` is tried for `--search-epochs` epochs, and the one with the lowest validation
error is used.

A finished training is a file in `--runs` and is not repeated. Several processes may train different
attentions. `--collect` trains nothing and writes `benchmarks/results/gpu_qm9.json`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from record import ROOT, describe_hardware, list_versions, make_parser, record, write_json

from molslice.config import load_config
from molslice.files.parsing import read_json_object
from molslice.training.run import train

CONFIG = ROOT / "configs" / "molecule" / "qm9.yaml"
TARGET = "gap_ev"
SETTINGS = {
    "data.name": "prepared",
    "data.units": "eV",
    "data.split": "{kind: random, fractions: [0.95, 0.05], seed: 0}",
    "model.preset": "small",
    "model.local": "null",
    "optimizer.name": "adamw",
    "training.batch_size": "512",
    "training.token_budget": "16384",
    "training.max_minutes": "null",
}


def train_once(attention: str, rate: str, epochs: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train with an attention, unless it is done, and return the result."""
    name = f"{attention}_{rate}_{epochs}"
    file = options.runs / f"{name}.json"
    if file.is_file():
        return read_json_object(file)
    settings = {
        **SETTINGS,
        "data.path": str(options.stores / "train"),
        "data.test_path": str(options.stores / "valid"),
        "attention.name": attention,
        "optimizer.lr": rate,
        "training.max_epochs": str(epochs),
        "training.valid_every_epochs": str(max(1, epochs // 20)),
        "trainer.accelerator": options.device,
        "trainer.precision": options.precision,
    }
    run = options.runs / name
    summary = train(load_config(CONFIG, list(settings.items())), run, resume=run.exists(), quiet=True)
    result = {
        "attention": attention,
        "rate": float(rate),
        "parameters": summary["parameters"],
        "epochs": summary["epochs"],
        "seconds": summary["seconds"],
        "best_step": summary["best_step"],
        "valid_mae": summary["valid"]["mae"][TARGET],
        "test_mae": summary["test"]["mae"][TARGET],
        "precision": options.precision,
        "hardware": describe_hardware(),
        "versions": list_versions(),
    }
    write_json(file, result)
    print(name, result["valid_mae"], result["test_mae"], result["seconds"], flush=True)
    return result


def train_attention(attention: str, options: argparse.Namespace) -> dict[str, Any]:
    """Search the learning rate of an attention, and train with it."""
    rates = options.rates.split(",")
    searched = {}
    if len(rates) > 1:
        for rate in rates:
            searched[rate] = train_once(attention, rate, options.search_epochs, options)["valid_mae"]
    best = min(rates, key=lambda rate: searched.get(rate, 0.0))
    result = train_once(attention, best, options.epochs, options) | {"searched": searched}
    write_json(options.runs / "final" / f"{attention}.json", result)
    return result


def main(argv: list[str] | None = None) -> None:
    """Train the attentions that are not finished, or collect those that are."""
    parser = make_parser(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with the stores train and valid")
    parser.add_argument("--attentions", default="softmax,slice_sort")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rates", default="4e-4", help="learning rates to try")
    parser.add_argument("--search-epochs", type=int, default=20, help="epochs of the search of the rate")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16-weights", choices=["bf16-weights", "bf16", "32"])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "gpu_qm9")
    parser.add_argument("--collect", action="store_true", help="record the finished runs, train nothing")
    options = parser.parse_args(argv)
    if options.collect:
        rows = [read_json_object(file) for file in sorted((options.runs / "final").glob("*.json"))]
        if not rows:
            sys.exit(f"no attention is finished in {options.runs}")
        payload = {"question": "MAE in eV on QM9's gap", "settings": SETTINGS, "rows": rows}
        print(record("gpu_qm9", payload, options.out))
        return
    if options.stores is None:
        parser.error("training needs --stores")
    for attention in options.attentions.split(","):
        print(train_attention(attention, options), flush=True)


if __name__ == "__main__":
    main()
