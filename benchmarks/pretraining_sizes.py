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
import itertools
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
from molslice.inference.load import Predictor, find_model, load_encoder

ROOT = Path(__file__).resolve().parents[1]
PRETRAINED, RANDOM = "pretrained", "random weights"


def config_of(network: Predictor, options: argparse.Namespace) -> RunConfig:
    """Return the configuration of an encoder, for the CPU and the given corpus."""
    data = network.config.data
    return dataclasses.replace(
        network.config,
        data=dataclasses.replace(data, options={**data.options, "path": str(options.corpus)}),
        trainer=TrainerConfig(accelerator="cpu", num_threads=options.threads),
    )


def describe(encoder: str, network: Predictor, options: argparse.Namespace) -> dict[str, Any]:
    """Return size, training and test errors of an encoder."""
    config = config_of(network, options)
    dataset = build_dataset(config.data.name, dict(config.data.options))
    assert isinstance(dataset, Corpus)
    found = evaluate(network, dataset, "test", progress=False)
    errors = {one["name"]: one["mae"] for one in found["targets"]}
    stated = dataset.stated_targets
    families = list(zip(stated["names"], stated["std"], stated["families"], strict=True))
    descriptors = [errors[name] / std for name, std, family in families if family == "descriptors"]
    return {
        "encoder": encoder,
        "model": config_to_mapping(config)["model"],
        "parameters": found["parameters"],
        "steps": network.metadata.get("step"),
        "batch_size": config.training.batch_size,
        "test_rows": found["rows"],
        "descriptors_mae_std": float(np.nanmean(descriptors)),
        **{f"{name}_mae": errors[name] for name, _, family in families if family == "quantum"},
    }


def measure(encoder: str, network: Predictor, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the results of an encoder and of its random weights on all sets, for each use and seed.

    Raises:
        SystemExit: The finished results are those of another encoder, or of another number of epochs.
    """
    folder = options.runs / Path(encoder).name
    kept = folder / "results.json"
    settings = {"encoder": network.checksum(), "epochs": options.epochs}
    content = read_json_object(kept) if kept.is_file() else {"settings": settings, "results": []}
    if content["settings"] != settings:
        raise SystemExit(
            f"{kept} was made with another encoder or --epochs; choose another folder with --runs"
        )
    results = content["results"]
    done = {(row["set"], row["how"], row["start"], row["seed"]) for row in results}
    config, networks = config_of(network, options), {PRETRAINED: network}
    names: list[str] = options.sets
    uses: list[tuple[str, str]] = [(PRETRAINED, how) for how in options.how]
    if "frozen" in options.how:
        networks[RANDOM] = load_encoder(pretrain(config, NONE, 0, 1, folder / "random"))
        uses.append((RANDOM, "frozen"))
    for seed, name, (start, how) in itertools.product(range(options.seeds), names, uses):
        if (name, how, start, seed) in done:
            continue
        measured = SETS[name]
        data = data_settings(measured, options.data, seed, options.runs / "cache")
        if how == "frozen":
            value = probe(networks[start], data, measured.metric)
        else:
            run = folder / f"{name}-{seed}"
            value = tune(config, data, find_model(encoder), options.epochs, seed, run)
        row = {"labels": encoder, "start": start, "attention": config.attention.name}
        row |= {"set": name, "seed": seed, "how": how, "metric": measured.metric, "value": value}
        results.append(row)
        write_json(kept, {"settings": settings, "results": results})
        print(f"{encoder}, {start}, {name}, seed {seed}, {how}: {value:.4f}", flush=True)
    return [row for row in results if row["how"] in options.how and row["set"] in names]


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
    return [
        {"how": row["how"], "labels": row["labels"], "ratio": row["error_over_none"], "sd": row["sd"]}
        for row in compare(results, first)
        if row["labels"] != first
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure all encoders and write the JSON."""
    options = parse_arguments(argv)
    torch.set_num_threads(options.threads)
    networks = {encoder: load_encoder(encoder) for encoder in options.encoders}
    encoders = [describe(encoder, network, options) for encoder, network in networks.items()]
    results = [
        named(row) for encoder, network in networks.items() for row in measure(encoder, network, options)
    ]
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
