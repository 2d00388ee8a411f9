"""Compare encoders of different sizes: their errors after pretraining, and on small measured sets.

    python benchmarks/pretraining_sizes.py encoder-small runs/encoder_512 --corpus PATH_TO_CORPUS \
        --data PATH_TO_MOLECULENET

The errors after pretraining are those of the molecules in the test split of the corpus. Each encoder is then
used as in `pretraining_ablation.py`, on the same random splits of ESOL, FreeSolv and BACE: frozen, with a
linear model on the embeddings, and fine-tuned with the settings and the number of epochs of `molslice fit`.
Frozen random weights of each size are measured too, because a wider embedding has more features. Everything
is computed on the CPU.

The program continues where it was stopped: finished runs are in `--runs`, a folder for each encoder. Writes
`benchmarks/results/pretraining_sizes.json`.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pretraining_ablation import HOW, NONE, UNITS, compare, data_settings, pretrain, probe, summarize, tune
from record import record, write_json
from small_data_sets import SETS

from molslice.config import RunConfig, TrainerConfig, config_to_mapping
from molslice.data import build_dataset
from molslice.data.molecules.corpus import Corpus
from molslice.files.parsing import read_json_object
from molslice.inference.evaluate import evaluate
from molslice.inference.load import find_model, load_encoder
from molslice.run_folder import read_run

ROOT = Path(__file__).resolve().parents[1]
RANDOM = "random weights"


def describe(encoder: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return size, training and test errors of an encoder."""
    config, metadata = config_of(encoder, options), read_run(find_model(encoder)).metadata
    dataset = build_dataset(config.data.name, dict(config.data.options))
    assert isinstance(dataset, Corpus)
    found = evaluate(load_encoder(encoder), dataset, "test", progress=False)
    errors = {one["name"]: one["mae"] for one in found["targets"]}
    stated = dataset.stated_targets
    families = list(zip(stated["names"], stated["std"], stated["families"], strict=True))
    descriptors = [errors[name] / std for name, std, family in families if family == "descriptors"]
    return {
        "encoder": encoder,
        "model": config_to_mapping(config)["model"],
        "parameters": found["parameters"],
        "steps": metadata.get("step"),
        "batch_size": config.training.batch_size,
        "test_rows": found["rows"],
        "descriptors_mae_std": float(np.nanmean(descriptors)),
        **{f"{name}_mae": errors[name] for name, _, family in families if family == "quantum"},
    }


def config_of(encoder: str, options: argparse.Namespace) -> RunConfig:
    """Return the configuration of an encoder, for the CPU and the given corpus."""
    config = read_run(find_model(encoder)).config
    data = dataclasses.replace(config.data, options={**config.data.options, "path": str(options.corpus)})
    trainer = TrainerConfig(accelerator="cpu", num_threads=options.threads)
    return dataclasses.replace(config, data=data, trainer=trainer)


def measure(encoder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the results of an encoder and of its random weights on all sets, for each use and seed."""
    folder = options.runs / Path(encoder).name
    kept = folder / "results.json"
    results = read_json_object(kept)["results"] if kept.is_file() else []
    done = {(row["set"], row["how"], row["start"], row["seed"]) for row in results}
    config = config_of(encoder, options)
    starts = {
        "pretrained": (find_model(encoder), options.how),
        RANDOM: (pretrain(config, NONE, 0, 1, folder / "random"), HOW[:1]),
    }
    for seed in range(options.seeds):
        for name in options.sets:
            measured = SETS[name]
            data = data_settings(measured, options.data, seed, options.runs / "cache")
            for start, (model, uses) in starts.items():
                for how in uses:
                    if (name, how, start, seed) in done:
                        continue
                    if how == "frozen":
                        value = probe(load_encoder(model), data, measured.metric)
                    else:
                        value = tune(config, data, model, options.epochs, seed, folder / f"{name}-{seed}")
                    row = {"labels": encoder, "start": start, "attention": config.attention.name}
                    row |= {"set": name, "seed": seed, "how": how, "metric": measured.metric, "value": value}
                    results.append(row)
                    write_json(kept, {"results": results})
                    print(f"{encoder}, {start}, {name}, seed {seed}, {how}: {value:.4f}", flush=True)
    return [row for row in results if row["how"] in options.how and row["set"] in options.sets]


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("encoders", nargs="+", metavar="MODEL", help="run folder or name of an encoder")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that scripts/make_corpus.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of the sets")
    parser.add_argument("--sets", default=",".join(UNITS))
    parser.add_argument("--how", default=",".join(HOW), help="uses of an encoder (default: both)")
    parser.add_argument("--epochs", default="auto", help="epochs of fine-tuning (default: by rows)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "pretraining_sizes")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    options.sets, options.how = options.sets.split(","), options.how.split(",")
    if unknown := {*options.how} - {*HOW}:
        parser.error(f"unknown use {min(unknown)!r} in --how; choices: {', '.join(HOW)}")
    options.epochs = options.epochs if options.epochs == "auto" else int(options.epochs)
    return options


def named(row: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the start in its label."""
    return {**row, "labels": row["labels"] if row["start"] != RANDOM else f"{row['labels']}, {RANDOM}"}


def ratios_to_first(results: list[dict[str, Any]], first: str) -> list[dict[str, Any]]:
    """Return the mean ratio of the errors of each other encoder to those of the first, for each use."""
    as_reference = [{**row, "labels": NONE if row["labels"] == first else row["labels"]} for row in results]
    return [
        {"how": row["how"], "labels": row["labels"], "ratio": row["error_over_none"], "sd": row["sd"]}
        for row in compare(as_reference)
        if row["labels"] != NONE
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure all encoders and write the JSON."""
    options = parse_arguments(argv)
    torch.set_num_threads(options.threads)
    encoders = [describe(encoder, options) for encoder in options.encoders]
    results = [named(row) for encoder in options.encoders for row in measure(encoder, options)]
    payload = {
        "question": "errors of encoders of several sizes, after pretraining and on small measured sets",
        "epochs": options.epochs,
        "encoders": encoders,
        "results": summarize(results),
        "ratios": ratios_to_first(results, options.encoders[0]),
        "jobs": results,
    }
    print(record("pretraining_sizes", payload, options.out))


if __name__ == "__main__":
    main()
