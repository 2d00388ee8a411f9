"""Find out which labels of pretraining carry over to small measured sets.

Encoders are pretrained for the same number of steps with one family of labels each, with all of them, and
with none (random weights). Each is then used in two ways on three development sets of MoleculeNet, ESOL, BACE
and FreeSolv, with one random split for each seed:

    frozen      ridge regression (logistic regression for classes) on the embeddings
    fine-tuned  all weights are trained, the lower layers with smaller rates

    python benchmarks/pretraining_ablation.py --corpus PATH_TO_CORPUS --data PATH_TO_MOLECULENET

The program continues where it was stopped: pretrained encoders and results are in `--runs`, one folder for
each pair of labels and seed. `--restore` takes the recorded results as finished, to add seeds to them. Writes
`benchmarks/results/pretraining_ablation.json`. With several attentions in `--attentions`, each is pretrained
and compared with its own random weights, and the file is `pretraining_attentions.json`:

    python benchmarks/pretraining_ablation.py --corpus PATH_TO_CORPUS --data PATH_TO_MOLECULENET \
        --entries none,all --attentions softmax,slice_sort,key_sort,flow,singular
"""

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import record, spread, write_json
from small_data_members import fit_linear, training_recipe
from small_data_sets import SETS, MeasuredSet, error_of, score

from molslice.attention import ATTENTIONS
from molslice.config import RunConfig, config_from_mapping, config_to_mapping, load_config
from molslice.data import build_dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.files.parsing import read_json_object
from molslice.inference.load import Predictor, load_network
from molslice.tasks.pretraining import FAMILIES
from molslice.training.run import train

ROOT = Path(__file__).resolve().parents[1]
NONE, ALL = "none", "all"
ENTRIES = (NONE, *FAMILIES, ALL)
HOW = ("frozen", "fine-tuned")
GROUPED = ("how", "attention", "set", "metric", "labels")
UNITS = {"esol": "log mol/L", "bace": "", "freesolv": "kcal/mol"}  # of the development sets


def data_settings(measured: MeasuredSet, folder: Path, seed: int, cache: Path) -> dict[str, Any]:
    """Return the settings of the data set for one seed; the file is in `folder` itself."""
    return {
        "name": "csv",
        "path": str(folder / Path(measured.file).name),
        "target_columns": measured.targets[0],
        "units": UNITS[measured.name],
        "kind": measured.kind,
        "split": {"kind": "random", "fractions": [0.8, 0.1, 0.1], "seed": seed},
        "cache_dir": str(cache),
    }


def label_weights(entry: str) -> dict[str, float]:
    """Return the weights of the families of an entry."""
    return dict.fromkeys(FAMILIES if entry == ALL else [entry], 1.0)


def pretrain(base: RunConfig, entry: str, seed: int, steps: int, run: Path) -> Path:
    """Train an encoder unless it is finished, and return its run folder."""
    mapping = config_to_mapping(base)
    mapping["seed"] = seed
    mapping["training"] |= {"max_epochs": None, "max_minutes": None, "max_steps": steps}
    if entry == NONE:  # a step of no length keeps the random weights
        mapping["training"] |= {"max_steps": 1, "label_weights": {"descriptors": 1.0}}
        mapping["optimizer"] |= {"lr": 1e-12, "weight_decay": 0.0, "ema_decay": None}
    else:
        mapping["training"]["label_weights"] = label_weights(entry)
    train(config_from_mapping(mapping), run, resume=run.exists(), quiet=True)
    return run


def tune(
    base: RunConfig, data: Mapping[str, Any], encoder: Path | None, epochs: int, seed: int, run: Path
) -> float:
    """Train all weights on measured values and return the metric of the test split."""
    mapping = tuning_settings(base, data, encoder, epochs, seed)
    summary = train(config_from_mapping(mapping), run, resume=run.exists(), quiet=True)
    return next(iter(summary["test"][summary["metric"]].values()))


def tuning_settings(
    base: RunConfig, data: Mapping[str, Any], encoder: Path | None, epochs: int, seed: int
) -> dict[str, Any]:
    """Return the complete settings of a fine-tuning."""
    mapping = config_to_mapping(base)
    keys = ("num_layers", "dim", "ffn_dim", "num_heads", "readout", "norm")
    return {
        "data": dict(data),
        "model": {key: mapping["model"][key] for key in keys} | {"dropout": 0.0, "attention_dropout": 0.0},
        "attention": mapping["attention"],
        "trainer": mapping["trainer"],
        "seed": seed,
        **training_recipe(epochs, None if encoder is None else str(encoder)),
    }


def probe(encoder: Predictor, data: Mapping[str, Any], metric: str) -> float:
    """Fit a linear model to the embeddings of the training rows and return the metric of the test split."""
    options = {key: value for key, value in data.items() if key != "name"}
    dataset = build_dataset("csv", options)
    assert isinstance(dataset, MoleculeDataset)
    smiles = dataset.smiles()
    rows = {split: dataset.labeled_rows(split) for split in ("train", "valid", "test")}
    known = np.concatenate([rows["train"], rows["valid"]])
    vectors = {
        name: encoder.embed([smiles[row] for row in part])
        for name, part in (("fit", known), ("test", rows["test"]))
    }
    values, truth = dataset.targets[known, 0].astype(np.float64), dataset.targets[rows["test"]]
    predicted = fit_linear(vectors["fit"], values, vectors["test"], data["kind"] == "classification")
    return score(metric, predicted[:, None], truth.astype(np.float64))


def without_defaults(value: Any) -> Any:  # noqa: ANN401
    """Leave out null entries of mappings: a later version may have keys that a recorded file lacks."""
    if not isinstance(value, dict):
        return value
    return {key: without_defaults(one) for key, one in value.items() if one is not None}


def read_recorded(file: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of each seed in the JSON of an earlier run.

    Raises:
        SystemExit: They were made with other settings.
    """
    content = read_json_object(file)
    for name, value in settings.items():
        if without_defaults(content[name]) != without_defaults(json.loads(json.dumps(value))):
            raise SystemExit(f"{file} was made with other settings: {name} differs")
    return content["jobs"]


def measure(
    base: RunConfig,
    entry: str,
    seed: int,
    runs: Path,
    options: argparse.Namespace,
    recorded: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the results of a pair of labels and seed on all sets.

    What is finished is read from `runs`, or else taken from the recorded results of all pairs.
    """
    folder = runs / entry / f"seed{seed}"
    kept = folder / "results.json"
    settings = {
        "config": config_to_mapping(base),
        "steps": options.steps,
        "recipe": tuning_settings(base, {}, None, options.epochs, seed),
    }
    same = {"labels": entry, "seed": seed, "attention": base.attention.name}
    earlier = [row for row in recorded if same.items() <= row.items()]
    content = read_json_object(kept) if kept.is_file() else {"settings": settings, "results": earlier}
    if content["settings"] != settings:
        raise SystemExit(f"{kept} was made with other settings; choose another folder with --runs")
    results = content["results"]
    done = {(row["set"], row["how"]) for row in results}
    wanted = {(name, how) for name in options.sets for how in HOW}
    if wanted <= done:
        return [row for row in results if (row["set"], row["how"]) in wanted]
    encoder = pretrain(base, entry, seed, options.steps, folder / "encoder")
    for name in options.sets:
        measured = SETS[name]
        data = data_settings(measured, options.data, seed, options.runs / "cache")
        for how in HOW:
            if (name, how) in done:
                continue
            if how == "frozen":
                value = probe(load_network(encoder), data, measured.metric)
            else:
                start = None if entry == NONE else encoder
                value = tune(base, data, start, options.epochs, seed, folder / name)
            row = {**same, "set": name, "how": how, "metric": measured.metric, "value": value}
            results.append(row)
            write_json(kept, {"settings": settings, "results": results})
            print(json.dumps(row), flush=True)
    return [row for row in results if (row["set"], row["how"]) in wanted]


def summarize(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over seeds of each attention, entry, set and use."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in results:
        groups.setdefault(tuple(row[name] for name in GROUPED), []).append(row["value"])
    return [
        {
            **dict(zip(GROUPED, key, strict=True)),
            **spread(values),
            "seeds": len(values),
        }
        for key, values in groups.items()
    ]


def compare(results: list[dict[str, Any]], reference: str = NONE) -> list[dict[str, Any]]:
    """Return the geometric mean of the error ratios to random weights, over sets and seeds, and its spread.

    The error of a classification is 1 - ROC-AUC. The spread is the standard deviation over seeds of the
    geometric mean over sets; None for one seed.

    Args:
        results: The results of all uses, sets and seeds.
        reference: The `labels` of the results to divide by.
    """
    errors = {
        ((row["how"], row["attention"]), row["labels"], row["set"], row["seed"]): error_of(
            row["metric"], row["value"]
        )
        for row in results
    }
    rows = []
    for same, labels in dict.fromkeys(key[:2] for key in errors):
        ratios: dict[int, list[float]] = {}
        for (one, other, name, seed), error in errors.items():
            divisor = errors.get((same, reference, name, seed))
            if (one, other) == (same, labels) and divisor is not None:
                ratios.setdefault(seed, []).append(math.log(max(error, 1e-9) / max(divisor, 1e-9)))
        if ratios:
            every = [ratio for found in ratios.values() for ratio in found]
            rows.append(
                {
                    "how": same[0],
                    "attention": same[1],
                    "labels": labels,
                    "error_over_none": math.exp(statistics.fmean(every)),
                    "sd": spread([math.exp(statistics.fmean(found)) for found in ratios.values()])["sd"],
                    "pairs": len(every),
                }
            )
    return rows


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder that scripts/make_corpus.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of the sets")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "molecule" / "encoder_small.yaml")
    parser.add_argument("--entries", default=",".join(ENTRIES), help="families of labels, none and all")
    parser.add_argument("--attentions", help="attentions to compare (default: that of --config)")
    parser.add_argument("--sets", default=",".join(UNITS))
    parser.add_argument("--steps", type=int, default=3000, help="steps of pretraining")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "pretraining_ablation")
    parser.add_argument(
        "--restore", action="store_true", help="take the results recorded in --out as finished"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    options.entries, options.sets = options.entries.split(","), options.sets.split(",")
    if options.attentions is not None:
        options.attentions = options.attentions.split(",")
    choices = (
        (options.entries, ENTRIES),
        (options.sets, UNITS),
        (options.attentions or [], ATTENTIONS.names()),
    )
    for given, known in choices:
        for name in given:
            if name not in known:
                parser.error(f"unknown name {name!r}; choices: {', '.join(known)}")
    return options


def main(argv: list[str] | None = None) -> None:
    """Pretrain, evaluate and write the JSON."""
    options = parse_arguments(argv)
    settings = {
        "data.path": json.dumps(str(options.corpus)),
        "trainer.accelerator": "cpu",
        "trainer.precision": '"32"',
        "trainer.num_threads": str(options.threads),
    }
    base = load_config(options.config, list(settings.items()))
    name = "pretraining_ablation" if options.attentions is None else "pretraining_attentions"
    shared = {
        "config": {**config_to_mapping(base), "data": "corpus", "attention": options.attentions},
        "steps": options.steps,
        "epochs": options.epochs,
        "recipe": training_recipe(options.epochs, None),
    }
    recorded = read_recorded(options.out / f"{name}.json", shared) if options.restore else []
    results = []
    for seed in range(options.seeds):
        for attention in options.attentions or [None]:
            chosen, runs = base, options.runs
            if attention is not None:
                more = {**settings, "attention.name": attention}
                chosen, runs = load_config(options.config, list(more.items())), runs / attention
            for entry in options.entries:
                results += measure(chosen, entry, seed, runs, options, recorded)
    payload = {
        "corpus": read_json_object(options.corpus / "report.json")
        if (options.corpus / "report.json").is_file()
        else None,
        **shared,
        "results": summarize(results),
        "ratios": compare(results),
        "jobs": results,
    }
    print(record(name, payload, options.out))


if __name__ == "__main__":
    main()
