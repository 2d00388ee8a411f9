"""Measure attentions on sequences, images, text and time series, and compare with published results.

An experiment is a YAML file in `configs/`, trained for each entry and seed. Each run has one thread, and
`--jobs` runs are active at a time. Finished runs in `--runs` are not trained again. `--data` is a folder with
one subfolder per data set (mnist, cifar10_jpeg, imdb, reuters_r8, uea_timeseries, wikitext2). Generated data
sets need no folder.

    python benchmarks/sequence_tasks.py --data PATH_TO_SETS --only mnist,listops --seeds 2
    python benchmarks/sequence_tasks.py --data PATH_TO_SETS --only GPU --seeds 1 --jobs 1 --accelerator gpu

The second command trains the published settings, which take hours on a CPU, on a GPU.

Writes benchmarks/results/task_NAME.json for each experiment: accuracy or perplexity on the test split (mean
and standard deviation over seeds), parameters, seconds, published numbers, differences in the settings, and
the agreement of the order of attentions (Kendall's tau over the pairs with both numbers).
"""

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from record import ROOT, group_by, make_parser, record, run_all, spread

from molslice.config import RunConfig, load_config
from molslice.config.entries import folder_name, parse_entries
from molslice.data import build_dataset
from molslice.tasks.metrics import format_metric
from molslice.training.run import train

FOUR = "softmax,slice_sort,flow,singular"
SLICES = "softmax,slice_sort,slice_sort:order=interleave,flow,singular"
CONTROLS = f"{SLICES},slice_sort:order=shuffle,identity"
ORDERS = ",".join(
    f"slice_sort:order={order}"
    for order in (
        *("ascending", "descending", "half", "interleave"),
        *("max_exchange", "multi_permutation", "shuffle"),
    )
)
FLOWS = (
    "flow,flow:competition=null,flow:allocation=null,flow:competition=null:allocation=null,flow:phi=elu,"
    "flow:phi=relu,flow:competition=sigmoid,flow:allocation=softmax"
)
RANKS = ",".join(f"singular:rank={rank}" for rank in (2, 4, 8, 16, 32, 64))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One configuration with its entries and the published results.

    Attributes:
        config: Path of the YAML file in `configs/`.
        entries: Attentions to train, separated by commas.
        differs: Differences from the settings of the papers.
        settings: Overrides of the configuration; `{data}` in a value is replaced by `--data`.
        published: Published test accuracy (0 to 1) or perplexity by entry.
        lower_is_better: True for perplexity.
        needs_gpu: True if training takes hours on a CPU.
    """

    config: str
    entries: str
    differs: str
    settings: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    lower_is_better: bool = False
    needs_gpu: bool = False


# the recorded runs of series are older than the optimizer of their configurations
WARMED = {"optimizer.name": "adamw", "optimizer.warmup_steps": "1000"}
EXPERIMENTS: Mapping[str, Experiment] = {
    "mnist": Experiment(
        "vision/mnist_small.yaml",
        SLICES,
        "a smaller ViT and minutes instead of 100 epochs",
        {"data.root": "{data}/mnist"},
        {"softmax": 0.9878, "slice_sort": 0.9881, "slice_sort:order=interleave": 0.9900},
    ),
    "cifar10": Experiment(
        "vision/cifar10_small.yaml",
        SLICES,
        "CIFAR-10, JPEG copy; a smaller ViT and minutes instead of 400 epochs",
        {"data.root": "{data}/cifar10_jpeg"},
        {"softmax": 0.8098, "slice_sort": 0.8216, "slice_sort:order=interleave": 0.8354},
    ),
    "r8": Experiment(
        "text/r8_small.yaml",
        FOUR,
        "a smaller encoder, minutes of training, words",
        {"data.root": "{data}/reuters_r8"},
        {"softmax": 0.9784, "singular": 0.9815},
    ),
    "imdb": Experiment(
        "text/imdb_small.yaml",
        FOUR,
        "a smaller encoder, minutes of training",
        {"data.root": "{data}/imdb"},
        {"softmax": 0.8763, "singular": 0.8867},
    ),
    "japanese_vowels": Experiment(
        "series/japanese_vowels.yaml",
        FOUR,
        "the paper's sizes and epochs; see the header of the configuration",
        {"data.root": "{data}/uea_timeseries", "training.valid_every_epochs": "10", **WARMED},
        {"softmax": 0.987, "flow": 0.989},
    ),
    "uwave": Experiment(
        "series/uwave.yaml",
        FOUR,
        "the paper's sizes and epochs, products in bfloat16; see the header of the configuration",
        {
            "data.root": "{data}/uea_timeseries",
            "training.valid_every_epochs": "10",
            "trainer.precision": "bf16",
            **WARMED,
        },
        {"softmax": 0.856, "flow": 0.866},
    ),
    "listops": Experiment(
        "lra/listops_small.yaml",
        CONTROLS,
        "shorter expressions, a smaller encoder",
        {},
        {
            "softmax": 0.3637,
            "slice_sort": 0.3765,
            "slice_sort:order=interleave": 0.3730,
            "flow": 0.3870,
            "slice_sort:order=shuffle": 0.1785,
        },
    ),
    "pathfinder": Experiment(
        "lra/pathfinder_small.yaml",
        CONTROLS,
        "16 x 16 pixels, three dashes, no distractors, our own generator; a smaller encoder, minutes",
        {},
        {
            "softmax": 0.7140,
            "slice_sort": 0.8204,
            "slice_sort:order=interleave": 0.8198,
            "flow": 0.7395,
            "slice_sort:order=shuffle": 0.4974,
        },
    ),
    "wikitext2": Experiment(
        "language/wikitext2_small.yaml",
        "softmax,flow,linear,performer",
        "trained on the valid file of WikiText-2, tested on its test file; published: WikiText-103",
        {
            "data.train_path": "{data}/wikitext2/valid.txt.gz",
            "data.test_path": "{data}/wikitext2/test.txt.gz",
        },
        {"softmax": 33.0, "flow": 30.8, "performer": 37.5},
        lower_is_better=True,
    ),
    "listops_orders": Experiment(
        "lra/listops_small.yaml",
        ORDERS,
        "shorter expressions, a smaller encoder",
        {},
        {
            "slice_sort:order=ascending": 0.3765,
            "slice_sort:order=interleave": 0.3730,
            "slice_sort:order=max_exchange": 0.3700,
            "slice_sort:order=shuffle": 0.1785,
        },
    ),
    "listops_flow": Experiment(
        "lra/listops_small.yaml",
        FLOWS,
        "shorter expressions, a smaller encoder",
    ),
    "listops_others": Experiment(
        "lra/listops_small.yaml",
        "linformer,performer,bigbird:block=16,cosformer",
        "shorter expressions, a smaller encoder",
        {},
        {"linformer": 0.3570, "performer": 0.1801, "bigbird:block=16": 0.3605, "cosformer": 0.3790},
    ),
    "r8_others": Experiment(
        "text/r8_small.yaml",
        "bigbird:block=16,linformer,flash_quad",
        "a smaller encoder, minutes of training, words",
        {"data.root": "{data}/reuters_r8"},
        {"bigbird:block=16": 0.9792, "linformer": 0.9795, "flash_quad": 0.9780},
    ),
    "imdb_others": Experiment(
        "text/imdb_small.yaml",
        "bigbird:block=16,linformer,flash_quad",
        "a smaller encoder, minutes of training",
        {"data.root": "{data}/imdb"},
        {"bigbird:block=16": 0.8762, "linformer": 0.8764, "flash_quad": 0.8773},
    ),
    "r8_ranks": Experiment(
        "text/r8_small.yaml",
        RANKS,
        "a smaller encoder, minutes of training, words",
        {"data.root": "{data}/reuters_r8"},
    ),
    "listops_full": Experiment(
        "lra/listops.yaml",
        FOUR,
        "the arena's sizes; see the header of the configuration",
        {},
        {"softmax": 0.3637, "slice_sort": 0.3765, "flow": 0.3870},
        needs_gpu=True,
    ),
    "image_full": Experiment(
        "lra/image.yaml",
        "softmax,slice_sort",
        "CIFAR-10, JPEG copy; see the header of the configuration",
        {"data.root": "{data}/cifar10_jpeg"},
        {"softmax": 0.4244, "slice_sort": 0.4802},
        needs_gpu=True,
    ),
    "pathfinder_full": Experiment(
        "lra/pathfinder.yaml",
        "softmax,slice_sort",
        "images of our own generator; see the header of the configuration",
        {},
        {"softmax": 0.7140, "slice_sort": 0.8204},
        needs_gpu=True,
    ),
    "cifar10_full": Experiment(
        "vision/cifar10.yaml",
        FOUR,
        "CIFAR-10, JPEG copy; 40 epochs instead of 400",
        {"data.root": "{data}/cifar10_jpeg", "training.max_epochs": "40"},
        {"softmax": 0.8098, "slice_sort": 0.8216},
        needs_gpu=True,
    ),
}
GROUPS = {"CPU": False, "GPU": True}


def load(
    experiment: Experiment, data: Path | None, accelerator: str, overrides: Sequence[tuple[str, str]]
) -> RunConfig:
    """Return the configuration with one thread per run, after preparing its data."""
    settings = {key: value.format(data=data) for key, value in experiment.settings.items()}
    settings |= {"trainer.num_threads": "1", "trainer.accelerator": accelerator, **dict(overrides)}
    config = load_config(ROOT / "configs" / experiment.config, list(settings.items()))
    build_dataset(config.data.name, dict(config.data.options))
    return config


def measure(name: str, label: str, config: RunConfig, run: Path) -> dict[str, Any]:
    """Train one run unless it is finished, and return its result on the test split."""
    summary = train(config, run, resume=run.exists(), quiet=True)
    (target,) = summary["units"]
    value = summary["test"][summary["metric"]][target]
    return {"experiment": name, "label": label, "value": value, "summary": summary}


def summarize(experiment: Experiment, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean and standard deviation of each entry over its seeds, and the published number."""
    rows = []
    for label, entry_runs in group_by(runs, lambda run: run["label"]).items():
        values = [run["value"] for run in entry_runs]
        rows.append(
            {
                "label": label,
                "seeds": len(entry_runs),
                "parameters": entry_runs[0]["summary"]["parameters"],
                "test": spread(values),
                "published": experiment.published.get(label),
                "seconds": statistics.fmean(run["summary"]["seconds"] for run in entry_runs),
                "steps": entry_runs[0]["summary"]["steps"],
            }
        )
    return rows


def agreement(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return Kendall's tau between the measured and the published order, and the pairs in reversed order."""
    known = [row for row in rows if row["published"] is not None]
    signs, turned = [], []
    for first, second in itertools.combinations(known, 2):
        measured = first["test"]["mean"] - second["test"]["mean"]
        published = first["published"] - second["published"]
        if measured * published:
            signs.append(1 if measured * published > 0 else -1)
            if signs[-1] < 0:
                turned.append([first["label"], second["label"]])
    return {"pairs": len(signs), "kendall_tau": sum(signs) / len(signs) if signs else None, "turned": turned}


def main() -> None:
    """Train all runs of the chosen experiments, and record each experiment."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with one subfolder per data set")
    parser.add_argument("--only", default="CPU", help="experiments separated by commas, or CPU, or GPU")
    parser.add_argument("--accelerator", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--entries", help="entries to train (default: those of the experiment)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override for all experiments"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "sequence_tasks")
    options = parser.parse_args()
    overrides = [tuple(item.split("=", 1)) for item in options.set]
    names = options.only.split(",")
    if options.only in GROUPS:
        names = [
            name for name, experiment in EXPERIMENTS.items() if experiment.needs_gpu == GROUPS[options.only]
        ]
    calls = []
    for name in names:
        experiment = EXPERIMENTS[name]
        base = load(experiment, options.data, options.accelerator, overrides)
        entries = parse_entries(options.entries or experiment.entries, base)
        for seed, entry in itertools.product(range(options.seeds), entries):
            run = options.runs / name / folder_name(entry.label) / f"seed{seed}"
            calls.append((name, entry.label, replace(entry.config, seed=seed), run))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for (name, label, *_), result in run_all(measure, calls, options.jobs):
        results[name].append(result)
        print(f"{name}: {label}: {format_metric(result['value'])}", flush=True)
        if len(results[name]) == sum(call[0] == name for call in calls):
            write(name, results[name], options)


def write(name: str, runs: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the result file of one experiment."""
    experiment = EXPERIMENTS[name]
    runs.sort(key=lambda run: (run["label"], run["summary"]["seed"]))
    rows = summarize(experiment, runs)
    payload = {
        "question": f"{runs[0]['summary']['metric']} on the test split, mean and sd over seeds",
        "config": experiment.config,
        "settings": {"threads_a_run": 1, "runs_at_a_time": options.jobs, "set": options.set},
        "accelerator": options.accelerator,
        "differs_from_the_papers": experiment.differs,
        "lower_is_better": experiment.lower_is_better,
        "entries": rows,
        "order": agreement(rows),
        "runs": runs,
    }
    print(record(f"task_{name}", payload, options.out))


if __name__ == "__main__":
    main()
