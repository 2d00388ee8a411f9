"""Compare the precisions of a training by the errors of its networks.

    python benchmarks/precision.py --processes 2

Each network has 4 layers of width 64 and is trained on `data/gap_xtb_100k` (80,005 molecules), with the
settings of `configs/molecule/quickstart.yaml` but for `--epochs` epochs of batches of 128. All precisions of
a seed start from the same weights and see the same batches. Each network is evaluated in float32.

A finished training is a file in `--runs` and is not repeated; an interrupted one is continued. Writes
`benchmarks/results/precision.json`.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from record import ROOT, group_by, make_parser, record, run_all, spread, write_json

from molslice.config import load_config
from molslice.files.parsing import read_json_object
from molslice.training.run import train

NAME = "precision"
CONFIG = ROOT / "configs" / "molecule" / "quickstart.yaml"
TARGET = "homolumogap"
SETTINGS: Mapping[str, str] = {
    "data.root": str(ROOT / "data" / "gap_xtb_100k"),
    "optimizer.ema_decay": "0.999",
    "training.max_steps": "null",
    "training.batch_size": "128",
    "training.token_budget": "4096",
    "training.checkpoint_every_steps": "200",
    "trainer.num_threads": "1",
}


def train_once(runs: Path, attention: str, precision: str, seed: int, epochs: int) -> None:
    """Train a network, unless it is done."""
    name = f"{attention}_{precision}_{seed}_{epochs}"
    file, run = runs / "final" / f"{name}.json", runs / name
    if file.is_file():
        return
    settings = {
        **SETTINGS,
        "attention.name": attention,
        "trainer.precision": precision,
        "training.max_epochs": str(epochs),
        "seed": str(seed),
    }
    summary = train(load_config(CONFIG, list(settings.items())), run, resume=run.exists(), quiet=True)
    errors = {f"{split}_mae": summary[split]["mae"][TARGET] for split in ("valid", "test")}
    row = {"attention": attention, "precision": precision, "seed": seed, "epochs": epochs}
    write_json(file, {**row, **errors, "steps": summary["steps"], "seconds": summary["seconds"]})


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and spread of the errors of each attention and precision, and differences from float32.

    A difference is between networks of the same seed.
    """
    reference = {(row["attention"], row["seed"]): row for row in rows if row["precision"] == "32"}
    summaries = []
    for (attention, precision), group in group_by(
        rows, lambda row: (row["attention"], row["precision"])
    ).items():
        summary: dict[str, Any] = {"attention": attention, "precision": precision, "seeds": len(group)}
        for error in ("valid_mae", "test_mae"):
            summary[error] = spread([row[error] for row in group])
        pairs = [
            (row, reference[attention, row["seed"]]) for row in group if (attention, row["seed"]) in reference
        ]
        if precision != "32" and pairs:
            changes = [100.0 * (row["test_mae"] / other["test_mae"] - 1.0) for row, other in pairs]
            summary["test_change_percent"] = spread(changes)
        summaries.append(summary)
    return summaries


def main(argv: list[str] | None = None) -> None:
    """Train what is not finished, and record all."""
    parser: argparse.ArgumentParser = make_parser(__doc__)
    parser.add_argument("--attentions", default="softmax,slice_sort")
    parser.add_argument("--precisions", default="32,bf16,bf16-weights")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / NAME)
    options = parser.parse_args(argv)
    calls = [
        (options.runs, attention, precision, seed, options.epochs)
        for seed in range(options.seeds)
        for attention in options.attentions.split(",")
        for precision in options.precisions.split(",")
    ]
    for call, _ in run_all(train_once, calls, options.processes):
        print(*call[1:], flush=True)
    rows = [
        read_json_object(file) for file in sorted((options.runs / "final").glob(f"*_{options.epochs}.json"))
    ]
    payload = {"question": "MAE in eV on the gaps of data/gap_xtb_100k", "settings": dict(SETTINGS)}
    payload["settings"].pop("data.root", None)  # a path on this machine
    print(record(NAME, {**payload, "summary": summarize(rows), "rows": rows}, options.out))


if __name__ == "__main__":
    main()
