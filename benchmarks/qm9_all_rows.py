"""Train a model on all rows of QM9, once for each attention.

    molslice prepare QM9/train.csv.gz --target gap_ev --out runs/qm9/train
    molslice prepare QM9/train.csv.gz --target gap_ev --geometry --out runs/qm9/train_geometry
    molslice prepare QM9/valid.csv.gz --target gap_ev --out runs/qm9/valid
    python benchmarks/qm9_all_rows.py --stores runs/qm9 --model small

The target is the HOMO-LUMO gap. A twentieth of the rows of the training store are validation rows, which
choose the epoch; the store `valid` holds the test rows. Models that learn distances are trained on
`train_geometry`. All attentions have the same settings except for the learning rate: each of `--rates` is
tried for `--search-epochs` epochs, and the one with the lowest validation error is used.

A finished training is a file in `--runs` and is not repeated; an interrupted one is continued. Several
processes may train different attentions. `--seed` repeats a training with another seed, and `--precision`, in
another folder of runs, with another precision. `--mean` names models that are trained, and measures the mean
of their predictions. `--collect` trains nothing and adds what is finished to
`benchmarks/results/qm9_all_rows.json`.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qm9_levers import CONFIG, TARGET, error_on_rows
from record import (
    ROOT,
    add_finished,
    describe_conditions,
    find_commit,
    list_finished,
    make_parser,
    record,
    write_json,
)

from molslice.config import load_config
from molslice.config.entries import folder_name
from molslice.data import build_dataset
from molslice.files.parsing import read_json_object
from molslice.inference.ensemble import EnsemblePredictor
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.inference.network import NetworkPredictor
from molslice.training.run import train

NAME = "qm9_all_rows"
SETTINGS = {
    "data.name": "prepared",
    "data.units": "eV",
    "data.split": "{kind: random, fractions: [0.95, 0.05, 0.0], seed: 0}",
    "training.max_minutes": "null",
}
SMALL = {"model.preset": "small", "training.batch_size": "512", "training.token_budget": "16384"}
WIDTH_128 = {"model.dim": "128", "model.ffn_dim": "128"}
PLAIN, WITH_GEOMETRY = "train", "train_geometry"
# model -> store of the training rows, and settings besides `SETTINGS` and the settings of `CONFIG`
MODELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "small, AdamW": (PLAIN, {**SMALL, "model.local": "null", "optimizer.name": "adamw"}),
    "small": (WITH_GEOMETRY, SMALL),
    "4 x 128": (WITH_GEOMETRY, WIDTH_128),
    "8 x 128": (WITH_GEOMETRY, {**WIDTH_128, "model.num_layers": "8"}),
}


def train_once(attention: str, rate: str, epochs: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train with an attention, unless it is done, and return the result."""
    store, given = MODELS[options.model]
    name = f"{folder_name(options.model)}_{attention}_{rate}_{epochs}{suffix(options)}"
    file = options.runs / f"{name}.json"
    if file.is_file():
        return read_json_object(file)
    settings = {
        **SETTINGS,
        "data.path": str(options.stores / store),
        "attention.name": attention,
        "optimizer.lr": rate,
        "training.max_epochs": str(epochs),
        "training.valid_every_epochs": str(max(1, epochs // 20)),
        "trainer.accelerator": options.device,
        "trainer.precision": options.precision,
        "seed": str(options.seed),
        **given,
    }
    run = options.runs / name
    summary = train(load_config(CONFIG, list(settings.items())), run, resume=run.exists(), quiet=True)
    result = {
        "run": name,
        "model": options.model,
        "attention": attention,
        "rate": float(rate),
        "parameters": summary["parameters"],
        "epochs": summary["epochs"],
        "seconds": summary["seconds"],
        "best_step": summary["best_step"],
        "valid_mae": summary["valid"]["mae"][TARGET],
        "test_mae": error_on_rows(run, "prepared", {"units": "eV"}, options.stores / "valid"),
        "precision": options.precision,
        "seed": options.seed,
        **describe_conditions(),
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
    final = options.runs / "final"
    write_json(final / f"{folder_name(options.model)}_{attention}{suffix(options)}.json", result)
    return result


def suffix(options: argparse.Namespace) -> str:
    """Return what the names of files have at their end for other seeds than 0."""
    return f"_seed{options.seed}" if options.seed else ""


def average(models: str, attention: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the mean of the predictions of trained models, which semicolons separate."""
    final = options.runs / "final"
    rows = [read_json_object(final / f"{folder_name(model)}_{attention}.json") for model in models.split(";")]
    members = [load_model(options.runs / row["run"]) for row in rows]
    networks = [member for member in members if isinstance(member, NetworkPredictor)]
    mean = EnsemblePredictor(networks, models, options.runs)
    test_rows = str(options.stores / "valid")
    divided = dict(networks[0].data_config.options)
    given = {"valid": divided, "test": {"path": test_rows, "valid_path": test_rows, "units": "eV"}}
    errors = {
        f"{name}_mae": evaluate(mean, build_dataset("prepared", data), "valid")["targets"][0]["mae"]
        for name, data in given.items()
    }
    sums = {key: sum(row[key] for row in rows) for key in ("parameters", "epochs", "seconds")}
    name = f"mean of {' and '.join(f'*{model}*' for model in models.split(';'))}"
    kept = {key: rows[0][key] for key in ("attention", "rate", "precision", "hardware", "versions")}
    runs = {"run": [row["run"] for row in rows], "commit": find_commit()}
    result = {"model": name, **runs, **kept, **sums, **errors}
    write_json(final / f"{folder_name(name)}_{attention}.json", result)
    return result


def collect(options: argparse.Namespace) -> Path:
    """Add the finished trainings to the recorded ones; a repeated one takes the place of the former."""
    recorded, finished = options.out / f"{NAME}.json", list_finished(options.runs, "attention")
    payload = {
        "question": "MAE in eV on QM9's gap",
        "settings": SETTINGS,
        "models": {name: settings for name, (_, settings) in MODELS.items()},
        "rows": add_finished(recorded, "rows", finished, key_of),
    }
    return record(NAME, payload, options.out)


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes a recorded training another one."""
    return row["model"], row["attention"], row.get("precision", "bf16-weights"), row.get("seed", 0)


def main(argv: list[str] | None = None) -> None:
    """Train the attentions that are not finished, or collect those that are."""
    parser = make_parser(__doc__)
    parser.add_argument("--stores", type=Path, help="folder with the stores")
    parser.add_argument("--model", choices=list(MODELS), default="small")
    parser.add_argument("--attentions", default="softmax,slice_sort,key_sort,flow,singular")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rates", default="1e-3,3e-3", help="learning rates to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search-epochs", type=int, default=20, help="epochs of the search of the rate")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16-weights", choices=["bf16-weights", "bf16", "32"])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / NAME)
    parser.add_argument("--mean", metavar="MODELS", help="trained models, separated by semicolons")
    parser.add_argument("--collect", action="store_true", help="record the finished runs, train nothing")
    options = parser.parse_args(argv)
    if options.collect:
        print(collect(options))
        return
    if options.stores is None:
        parser.error("training needs --stores")
    for attention in options.attentions.split(","):
        if options.mean:
            print(average(options.mean, attention, options), flush=True)
        else:
            print(train_attention(attention, options), flush=True)


if __name__ == "__main__":
    main()
