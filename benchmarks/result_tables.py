"""Generate the tables of the README and the documentation, and the results in the headers of `configs/`.

In a page, the text between `<!-- begin NAME -->` and `<!-- end NAME -->` is the output of the function NAME
with the decorator `block`. The numbers come from `results/`; `papers.yaml` has the numbers of the papers and
the state of each column. In the header of a configuration that `sequence_tasks.py` has measured, the results
start with `# Measured:` and end with the name of the result file. `--write` regenerates all of them. Without
it, the program exits with 1 if a file is out of date.
"""

import itertools
import math
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from record import group_by
from scipy import stats
from tables import (
    COSTS,
    RESULTS,
    ROOT,
    Entry,
    cell,
    crossing_texts,
    decimal,
    grid,
    left_aligned,
    load,
    markdown,
    mean_and_sd,
    percent,
    write_or_check,
)

from molslice.attention import ATTENTIONS
from molslice.bench.attention_result import COMPARED
from molslice.bench.published import LENGTHS, PUBLISHED, SETTING
from molslice.chem.scaffold import SCAFFOLD_GROUPS

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
LINE = 118
TABLES: dict[str, Callable[[], str]] = {}


def block(make: Callable[[], str]) -> Callable[[], str]:
    """Register the text between the markers with the name of the function."""
    TABLES[make.__name__] = make
    return make


# The quickstart and the choice of an attention

CONSOLE = {
    "train": ("molslice train --config configs/molecule/quickstart.yaml --out runs/quickstart",),
    "evaluate": ("molslice evaluate runs/quickstart",),
    "predict": (
        "molslice predict runs/quickstart --input data/gap_xtb/raw/data.csv.gz "
        "--output runs/predicted.csv --workers 2",
        'molslice predict runs/quickstart --smiles "CCO" "c1ccccc1" "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"',
    ),
    "compare": (
        "molslice compare --config configs/molecule/quickstart.yaml --out runs/compare \\\n"
        "      --training.max_steps 360 --attention softmax,slice_sort,flow,singular",
    ),
}


def console(verb: str) -> str:
    """Return the commands and the recorded output of a verb in the quickstart."""
    commands = "\n".join(f"$ {command}" for command in CONSOLE[verb])
    return f"```console\n{commands}\n{load('quickstart')['outputs'][verb]}\n```"


TABLES |= {verb: partial(console, verb) for verb in CONSOLE}


MAX_EXCHANGE = "slice_sort:order=max_exchange"
# `key_sort` on the embedded data with AdamW, under its name when it was measured
KEY_SORT = ("gap_xtb", "sort_design:mixing=keys_weight:gate=true:slope=0.1")


@block
def choice() -> str:
    """Return advice on which attention to choose, with errors on the embedded data."""
    errors = {entry["label"]: cell(entry["test_mae"]) for entry in load("compare_gap_xtb")["entries"]}
    learned = {(entry["data"], entry["label"]): entry for entry in load("learnable_sort")["entries"]}
    key_sort = learned[KEY_SORT]
    fewer = 1 - key_sort["layer_parameters"] / learned["qm9", "softmax"]["layer_parameters"]
    rows = [
        [
            "accuracy on molecules",
            "`softmax`, `flow`",
            f"{errors['softmax']} and {errors['flow']} eV; molecules are short, so the cost matters little",
        ],
        [
            "the same error with fewer parameters",
            "`key_sort`",
            f"{errors['key_sort']} eV with {fewer:.0%} fewer parameters in the layers",
        ],
        [
            "the fewest parameters",
            "`identity`, `slice_sort` with `order: max_exchange`",
            f"{errors['identity']} and {errors[MAX_EXCHANGE]} eV, with a full sort {errors['slice_sort']}; "
            "no query and no key",
        ],
        [
            "linear time on long sequences",
            "`flow`, `singular`, `linear`",
            "[measured](docs/results/attention-cost.md) from 256 to 16,384 tokens",
        ],
    ]
    return left_aligned(["goal", "attention", "reason"], rows)


# Errors on molecules

BASELINE_NAMES = {
    "median": "median of the training rows",
    "morgan": "gradient boosting, Morgan counts",
    "morgan_and_descriptors": "gradient boosting, Morgan counts and all RDKit descriptors",
}


@block
def gap_xtb() -> str:
    """Return the errors of all attentions and baselines on the embedded data."""
    rows = []
    for name, result in load("baselines_gap_xtb")["baselines"].items():
        error = {"mean": result["test"]["mae_mean"], "sd": result["test"]["mae_sd"]}
        rows.append([BASELINE_NAMES[name], "", cell(error), ""])
    rows.sort(key=lambda row: row[2], reverse=True)
    for entry in load("compare_gap_xtb")["entries"]:
        errors = cell(entry["test_mae"]), cell(entry["test_mae_shuffled"])
        rows.append([f"`{entry['label']}`", f"{entry['parameters']:,}", *errors])
    return markdown(["", "parameters", "test MAE (eV)", "atoms shuffled"], rows)


@block
def optimizers() -> str:
    """Return the errors of attentions on the embedded data with AdamW and with Muon."""
    learned = {(entry["data"], entry["label"]): entry["mae"] for entry in load("learnable_sort")["entries"]}
    adamw = {entry["label"]: entry for entry in load("levers_adamw")["entries"]}
    muon = {entry["label"]: entry for entry in load("compare_gap_xtb")["entries"]}
    errors = {label: entry["test_mae"] for label, entry in adamw.items()} | {"key_sort": learned[KEY_SORT]}
    rows = []
    for label in {**muon, **adamw}:
        if label not in errors:
            continue
        entry = muon.get(label)
        ratio = entry["test_mae"]["mean"] / errors[label]["mean"] if entry else None
        rows.append(
            [
                f"`{label}`",
                f"{(entry or adamw[label])['parameters']:,}",
                cell(errors[label]),
                cell(entry["test_mae"]) if entry else "",
                f"{ratio:.2f}" if ratio else "",
            ]
        )
    return markdown(["", "parameters", "AdamW, rate 0.002", "Muon, rate 0.003", "ratio"], rows)


@block
def qm9_all_rows() -> str:
    """Return the errors of models trained on all rows of QM9."""
    rows = sorted(load("qm9_all_rows")["rows"], key=lambda row: row["test_mae"])
    return grid(
        [{**row, "device": "GPU" if "gpus" in row["hardware"] else "CPU"} for row in rows],
        {
            "model": "{model}",
            "attention": "`{attention}`",
            "device": "{device}",
            "parameters": "{parameters:,}",
            "epochs": "{epochs:.0f}",
            "seconds": "{seconds:.0f}",
            "rate": "{rate:g}",
            "valid MAE (eV)": "{valid_mae:.3f}",
            "test MAE (eV)": "{test_mae:.3f}",
        },
    )


@block
def qm9_levers() -> str:
    """Return error and time of each option on 10,000 rows of QM9."""
    rows = [
        [
            ("" if "chemprop" in entry["label"] else "molslice: ")
            + entry["label"].replace("chemprop", "chemprop 2.3, 50 epochs"),
            f"{entry['parameters']:,}",
            f"{entry['seconds']['mean']:.0f}",
            cell(entry["valid_mae"]),
            cell(entry["test_mae"]),
        ]
        for entry in load("qm9_levers")["entries"]
    ]
    return markdown(["", "parameters", "seconds", "valid MAE (eV)", "test MAE (eV)"], rows)


def errors_by_rows(name: str) -> str:
    """Return the error of each entry of a result by the width and the number of training rows."""
    entries = [entry for entry in load(name)["entries"] if entry["chosen"]]
    numbers = sorted({entry["rows"] for entry in entries})
    rows = []
    for (label, dim), group in group_by(entries, lambda entry: (entry["label"], entry["dim"])).items():
        errors = {entry["rows"]: cell(entry["test_mae"]) for entry in group}
        described = [entry_name(label), str(dim), f"{group[0]['parameters']:,}"]
        rows.append([*described, *(errors.get(number, "-") for number in numbers)])
    return markdown(["", "width", "parameters", *(f"{number:,} rows" for number in numbers)], rows)


def penalties_by_rows(name: str) -> str:
    """Return the penalty of each entry of a result by the number of training rows, and its extrapolation."""
    fitted = load(name)["penalties"]
    numbers = sorted({point["rows"] for entry in fitted for point in entry["points"]})
    rows = []
    for entry in fitted:
        points = group_by(entry["points"], lambda point: point["rows"])
        shown = [
            f"{round(statistics.fmean(point['penalty'] for point in points[number]), 3) + 0.0:+.1%}"
            if number in points
            else "-"
            for number in numbers
        ]
        limits = entry.get("extrapolated")
        last = f"{limits['penalty']:+.0%} ({limits['low']:+.0%} to {limits['high']:+.0%})" if limits else "-"
        rows.append([entry_name(entry["label"]), str(entry["dim"]), *shown, last])
    return markdown(["", "width", *(f"{number:,} rows" for number in numbers), "line at 3 million"], rows)


for _data in ("", "_qm9"):
    TABLES[f"row_scaling{_data}"] = partial(errors_by_rows, f"row_scaling{_data}")
    TABLES[f"row_penalties{_data}"] = partial(penalties_by_rows, f"row_scaling{_data}")


def entry_name(label: str) -> str:
    """Return the label of a model with the name of its attention as code."""
    attention, comma, options = label.partition(",")
    is_attention = attention.partition(":")[0] in ATTENTIONS.names()
    return f"`{attention}`{comma}{options}" if is_attention else label


# Speed of molecules

FEATURIZERS = {
    "rdkit": "RDKit: parse, canonical SMILES, second parse",
    "molslice": "molslice, canonical order",
    "input order": "molslice, order of the SMILES",
    "one by one": "molslice, canonical order, one molecule at a time",
    "ogb": "`ogb.utils.smiles2graph`",
    "graphormer": "Graphormer's inputs: `smiles2graph`, shortest paths, bonds on paths to five hops",
}
SETS = {"qm9": "QM9", "chembl": "ChEMBL", "gap_xtb": "embedded data"}
MARKS = {"quickstart": "4 x 64", "slim": "12 x 80", "qm9": "4 x 64 in batches of 128"}
SAME_SIZE = {"qm9": "quickstart"}


@block
def featurizing() -> str:
    """Return the time of converting a SMILES to arrays."""
    return grid(
        load("featurizing")["results"],
        {
            "": lambda row: FEATURIZERS[row["name"]],
            "microseconds": "{microseconds:,.0f}",
            "ratio to the first row": "{ratio_to_rdkit:.2f}",
        },
    )


@block
def training_speed() -> str:
    """Return the speed of training beside other programs."""
    sets = load("training_speed")["sets"]
    header, rows = ["", "parameters"], []
    for molecules in sets:
        header += [f"{SETS[molecules['name']]}: molecules/s", "times chemprop", "times Graphormer's pipeline"]
    for sides in zip(*(molecules["sides"] for molecules in sets), strict=True):
        row = [side_label(sides[0]["name"]), f"{sides[0]['parameters']:,}"]
        for side in sides:
            size = next((SAME_SIZE.get(size, size) for size in MARKS if size in side["name"].split()), "")
            row += [
                f"{side['molecules_per_second']:,.0f}",
                times_as_fast(side, "chemprop"),
                times_as_fast(side, f"Graphormer rewrite {size}"),
            ]
        rows.append(row)
    return markdown(header, rows)


def side_label(name: str) -> str:
    """Return the name of a side as the tables show it."""
    program, _, rest = name.partition(" ")
    for size, mark in MARKS.items():
        rest = rest.replace(size, mark)
    if program == "molslice":
        mark, _, attention = rest.rpartition(" ")
        return f"molslice, {mark}, `{attention}`"
    if program == "Graphormer":
        return f"Graphormer's pipeline, {rest.removeprefix('rewrite ')}"
    return f"{program} {rest}"


def times_as_fast(side: Entry, other: str) -> str:
    """Return how many times as fast as another program a side of molslice is; empty for other sides."""
    ratios = side["times_as_fast_as"] if side["name"].startswith("molslice") else {}
    return next((f"{ratio:.1f}" for name, ratio in ratios.items() if name.startswith(other)), "")


@block
def prediction() -> str:
    """Return the processor time of a prediction with each model."""
    result = load("prediction")
    parameters, ratios = result["parameters"], result["ratio_to_chemprop"]
    rows = [
        [
            "chemprop" if name == "chemprop" else f"`{name.rpartition('/')[2]}`",
            f"{parameters[name]:,}" if name in parameters else "",
            f"{milliseconds:.2f}",
            f"{ratios[name]:.2f}" if name in ratios else "",
        ]
        for name, milliseconds in result["milliseconds"].items()
    ]
    return markdown(["", "parameters", "milliseconds", "times as fast as chemprop"], rows)


@block
def preparation() -> str:
    """Return rate and processor time of `prepare` with one and two processes."""
    return grid(
        load("prepare")["results"],
        {
            "processes": "{workers}",
            "rows/s": "{rows_per_second:,.0f}",
            "main process (µs per row)": "{parent_microseconds:.0f}",
            "workers (µs per row)": lambda row: (
                f"{worker:.0f}" if (worker := row["worker_microseconds"]) else ""
            ),
        },
    )


# A billion molecules

MOLECULES = 1_000_000_000
CORES = 64  # of a node; assumed
PRICE = 0.04  # of a core-hour; assumed
NODES = (1, 10, 100)
HOUR = 3600.0


@block
def billion_rates() -> str:
    """Return the time and the bytes of each stage of a plan for a billion molecules."""
    result = load("billion")
    times, sizes = result["microseconds"], {name: f"{size:.0f}" for name, size in result["bytes"].items()}
    read, one_process = f"{sizes['smiles']} read, {sizes['task']} sent", "one process"
    rows = [
        ("read", "one reader", times["read"], read),
        ("featurize", "workers of `prepare`", times["featurize"], f"{sizes['arrays']} sent"),
        ("featurize and predict", "workers of `predict`", times["predict"], f"{sizes['prediction']} sent"),
        ("collect predictions", one_process, times["collect_predictions"], f"{sizes['csv']} written"),
        ("Ray, for a part of `predict`", one_process, ray_microseconds(result, "predict"), ""),
        ("collect arrays", one_process, times["collect_molecules"], f"{sizes['store']} written"),
        ("Ray, for a part of `prepare`", one_process, ray_microseconds(result, "prepare"), ""),
    ]
    cells = [[stage, where, f"{time:,.1f}", size] for stage, where, time, size in rows]
    return markdown(["part", "where", "processor time (µs)", "bytes"], cells)


def ray_microseconds(result: Entry, verb: str) -> float:
    """Return the time of Ray in the collecting process, in microseconds a molecule."""
    return result["ray_milliseconds"] * 1e3 / result["chunk_rows"][verb]


@block
def billion_plan() -> str:
    """Return hours, cost, the number of cores that are of use, and sizes for a billion molecules."""
    result = load("billion")
    times, sizes = result["microseconds"], result["bytes"]
    predictions = times["collect_predictions"] + ray_microseconds(result, "predict")
    arrays = times["collect_molecules"] + ray_microseconds(result, "prepare")
    jobs = [  # with the microseconds of the workers and of the slowest single process
        ("predict to a folder", times["predict"], 0.0),
        ("predict to one file", times["predict"], max(times["read"], predictions)),
        ("prepare a store for each group of files", times["featurize"], 0.0),
        ("prepare one store", times["featurize"], max(times["read"], arrays)),
    ]
    rows = []
    for name, work, slowest in jobs:
        core_hours, least = (MOLECULES * micros / 1e6 / HOUR for micros in (work, slowest))
        hours = [f"{max(core_hours / (CORES * nodes), least):,.1f}" for nodes in NODES]
        useful = f"{work / slowest:,.0f}" if slowest else "no limit"
        rows.append([name, f"{core_hours:,.0f}", f"${core_hours * PRICE:,.0f}", *hours, useful])
    nodes = [f"{number} node{'s' * (number > 1)} (h)" for number in NODES]
    plan = markdown(["a billion molecules", "core-hours", "cost", *nodes, "useful cores"], rows)
    names = {"smiles": "SMILES, one on each line", "csv": "CSV with one prediction", "store": "store"}
    rows = [
        [label, f"{sizes[name]:.0f}", f"{sizes[name] * MOLECULES / 1e9:,.0f}"]
        for name, label in names.items()
    ]
    return f"{plan}\n\n{markdown(['', 'bytes per molecule', 'GB for a billion'], rows)}"


# Measurements on a GPU


STEPS = {
    "collated": "before: any shape, launched by the host",
    "eager": "fixed shapes",
    "captured": "captured, `bf16`",
    "compiled": "captured, `bf16`, compiled layers",
    "weights": "captured, `bf16-weights`",
    "muon": "captured, `bf16-weights`, Muon",
}


@block
def gpu_list() -> str:
    """Return the rates of training steps in each form."""
    rows = []
    for name, step in load("gpu_list")["steps"].items():
        words = name.removeprefix("pcqm4m ").split()
        if len(words) == 3 and "molecules_per_second" in step:  # noqa: PLR2004
            model, attention, form = words
            data = "PCQM4Mv2" if name.startswith("pcqm4m ") else "`gap_xtb`"
            rows.append({**step, "entry": f"`{model}`, `{attention}`", "data": data, "form": STEPS[form]})
    return grid(
        rows,
        {
            "": "{entry}",
            "molecules": "{data}",
            "steps": "{form}",
            "molecules/s": "{molecules_per_second:,.0f}",
            "step (ms)": "{step_ms:.1f}",
            "TFLOP/s": "{teraflops:.0f}",
            "of peak": "{peak_share:.0%}",
            "memory (GB)": lambda row: decimal(row["peak_gigabytes"]),
        },
    )


@block
def gpu_kernels() -> str:
    """Return the times of sorts, attention and layers on sequences."""
    names = {
        "sort, torch form": "sort, torch (ms)",
        "sort": "sort, molslice (ms)",
        "scaled_dot_product_attention": "FlashAttention (ms)",
        "layer slice_sort": "layer `slice_sort` (ms)",
        "layer softmax": "layer `softmax` (ms)",
        "floor": "copy (ms)",
    }
    times = {title: f"{{ms[{name}][median]:.1f}}" for name, title in names.items()}
    rows = [row for row in load("gpu_kernels")["rows"] if set(names) <= set(row["ms"])]
    return grid(rows, {"tokens": "{tokens:,}", **times})


# Cost of attentions


@block
def crossings() -> str:
    """Return the lengths above which each attention needs less time or memory than softmax."""
    costs = {name: ATTENTIONS.find(name).traits.cost for name in ATTENTIONS.names()}
    sequences = load("attention_speed")["sequences"]
    by_all_scores = crossing_texts(sequences, "softmax:fused=false")
    rows = []
    for entry, texts in crossing_texts(sequences).items():
        cost = costs[entry.split(":")[0]]
        if cost != "quadratic":
            thresholds = [texts[quantity] for quantity in COMPARED]
            rows.append([f"`{entry}`", COSTS[cost], *thresholds, by_all_scores[entry]["memory"]])
    rows.sort(key=lambda row: (list(COSTS.values()).index(row[1]), row[0]))
    faster = "trains faster above", "predicts faster above"
    return markdown(["", "cost", *faster, "less memory above", "less than all scores above"], rows)


@block
def layer_times() -> str:
    """Return the time of one attention layer on molecules, forward and backward."""
    return grid(
        load("attention_speed")["molecule_layer"]["milliseconds"].items(),
        {
            "": lambda layer: layer[0],
            "median (ms)": lambda layer: f"{layer[1]['median']:.0f}",
            "range over rounds (ms)": lambda layer: f"{layer[1]['min']:.0f} to {layer[1]['max']:.0f}",
        },
    )


# Small measured sets

# label -> name in the first tables, name in the tables of all sets
METHODS = {
    "fit": ("`molslice fit --quality best`", "`fit`, best"),
    "fit good": ("`molslice fit`", "`fit`"),
    "fit fast": ("`molslice fit --quality fast`", "`fit`, fast"),
    "fit without encoder": ("`molslice fit --no-encoder`", "`fit`, no encoder"),
    "tuned": ("`encoder-small`, fine-tuned, one network", "fine-tuned"),
    "frozen": ("`encoder-small`, frozen, linear model", "frozen"),
    "minimol": ("MiniMol, frozen, linear model", "MiniMol"),
    "scratch": ("molslice, one network from random weights", "scratch"),
    "forest": ("random forest", "forest"),
    "boosting": ("gradient boosting", "boosting"),
    "catboost": ("CatBoost", "CatBoost"),
    "linear": ("linear model", "linear"),
    "svm": ("support vector machine", "SVM"),
    "chemprop": ("chemprop 2.3", "chemprop"),
    "chemprop ensemble": ("chemprop 2.3, ensemble of five", "chemprop, five"),
}
METRICS = {"mae": "MAE", "rmse": "RMSE", "spearman": "Spearman", "roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}
IN_ERRORS = ("fit good", "fit", "fit without encoder", "forest", "boosting", "chemprop ensemble")
TO_CHEMPROP, TO_BASELINE = "chemprop ensemble", "best of forest and boosting"


@block
def small_data_summary() -> str:
    """Return the ratios of errors to both references and the mean rank of each method."""
    result = load("small_data")
    comparisons = {(entry["label"], entry["reference"]): entry for entry in result["comparisons"]}
    ranks = result["mean_ranks"]["ranks"]
    rows = []
    for label, (name, _) in METHODS.items():
        ratios = [ratio_cells(comparisons.get((label, other))) for other in (TO_CHEMPROP, TO_BASELINE)]
        rank = f"{ranks[label]:.2f}" if label in ranks else "-"
        row = [*itertools.chain(*ratios), rank]
        if set(row) != {"-"}:
            rows.append([name, *row])
    ratio, better = "error ratio to", "lower on"
    header = ["", f"{ratio} chemprop, five", better, f"{ratio} the better baseline", better, "mean rank"]
    text = (
        "In parentheses: 95% confidence intervals, by resampling the sets.\n"
        "Ratios can be compared only between methods with the same pairs.\n"
        f"The mean ranks are over the {result['mean_ranks']['pairs']} pairs that all these methods have "
        "finished."
    )
    return f"{markdown(header, rows)}\n\n{text}"


def ratio_cells(comparison: Entry | None) -> tuple[str, str]:
    """Return the ratio of errors with its interval, and how often the error is lower."""
    if comparison is None:
        return "-", "-"
    better = round(comparison["share_better"] * comparison["pairs"])
    interval = " ({:.2f} to {:.2f})".format(*comparison["interval"]) if comparison["interval"] else ""
    return f"{comparison['geometric_mean_ratio']:.3f}{interval}", f"{better} of {comparison['pairs']}"


@block
def small_data_errors() -> str:
    """Return the metric of five methods on each set and division, with one mean over MoleculeACE."""
    result = load("small_data")
    entries = [
        entry for entry in result["results"] if entry["train_rows"] is None and entry["label"] in IN_ERRORS
    ]
    cliffs = {entry["set"] for entry in entries if entry["set"].startswith("CHEMBL")}

    def title(entry: Entry) -> str:
        if entry["set"] in cliffs:
            return f"MoleculeACE, mean of {len(cliffs)}"
        return f"{entry['set']} (development)" if entry["set"] in result["development_sets"] else entry["set"]

    groups = group_by(entries, lambda entry: (title(entry), entry["split"], entry["metric"]))
    labels = [label for label in IN_ERRORS if any(label == entry["label"] for entry in entries)]
    rows = []
    for (name, split, metric), group in sorted(groups.items()):
        by_label = group_by(group, lambda entry: entry["label"])
        cells = [mean_cell(by_label.get(label, ())) for label in labels]
        rows.append([name, split, METRICS[metric], *cells])
    return markdown(["", "split", "metric", *(METHODS[label][1] for label in labels)], rows)


def mean_cell(entries: Sequence[Entry]) -> str:
    """Return the cell of one result; of several, their mean."""
    if len(entries) > 1:
        return f"{statistics.fmean(entry['mean'] for entry in entries):.3f}"
    return cell(entries[0] if entries else None)


@block
def small_data_curve() -> str:
    """Return the metric by the number of training rows, and what the encoder changes in the error."""
    results = load("small_data")["results"]
    curved = {(entry["set"], entry["split"]) for entry in results if entry["train_rows"] is not None}
    sizes = [*sorted({entry["train_rows"] for entry in results} - {None}), None]
    entries = [entry for entry in results if (entry["set"], entry["split"]) in curved]
    rows = []
    for (name, metric), group in sorted(group_by(entries, lambda e: (e["set"], e["metric"])).items()):
        by_size = {(entry["label"], entry["train_rows"]): entry for entry in group}
        for label, (_, short) in METHODS.items():
            if sum(label == entry["label"] for entry in group) > 1:
                cells = [cell(by_size.get((label, size))) for size in sizes]
                rows.append([f"{name}, {METRICS[metric]}", short, *cells])
        pairs = [[by_size.get((label, size)) for label in ("fit", "fit without encoder")] for size in sizes]
        ratios = [f"{a['error'] / b['error']:.3f}" if a and b else "-" for a, b in pairs]
        rows.append([name, "error with the encoder over error without", *ratios])
    return markdown(["", "", *("all" if size is None else f"{size:,} rows" for size in sizes)], rows)


# Measured uncertainty

SHIPPED = {"gap_xtb_100k": "`gap-xtb`, `data/gap_xtb_100k`", "gap_xtb": "`gap-xtb`, `data/gap_xtb`"}
AT = 0.9
Runs = Sequence[Entry]


@block
def coverage() -> str:
    """Return coverage at all levels and the width at 90%, for each set of numbers and division."""
    rows = []
    for name, runs in uncertainty_runs(classes=False):
        levels = [coverage_at(runs, entry["level"]) for entry in runs[0]["levels"]]
        width = statistics.fmean(at_level(run, AT)["width"] for run in runs)
        error = statistics.fmean(run["error"] for run in runs)
        seeds = str(len(runs)) if "seed" in runs[0] else ""
        count = sum(run["count"] for run in runs)
        rows.append([name, seeds, f"{count:,}", f"{error:.3g}", *levels, f"{width:.3g}"])
    header = ["", "seeds", "test rows", "MAE", "50%", "80%", "90%", "95%", "width at 90%"]
    return markdown(header, rows)


@block
def uncertainty_ranking() -> str:
    """Return the rank correlation of error and width, and coverage by scaffold.

    A single network, which has intervals of one width, has no row.
    """
    rows = []
    for name, runs in uncertainty_runs(classes=False):
        if all(run["rank_correlation"]["spread"] is None for run in runs):
            continue
        correlation = statistics.fmean(run["rank_correlation"]["width"] for run in runs)
        groups = [
            [group for run in runs for group in run["groups"] if group["group"] == kind]
            for kind in SCAFFOLD_GROUPS
        ]
        rows.append([name, f"{correlation:.2f}", *map(group_coverage, groups)])
    return markdown(["", "error and width", *SCAFFOLD_GROUPS], rows)


def group_coverage(entries: Runs) -> str:
    """Return the coverage of a group of molecules with the number of its rows; `-` without rows."""
    count = sum(entry["count"] for entry in entries)
    return f"{pooled_coverage(entries, AT)} ({count:,})" if count else "-"


@block
def class_sets() -> str:
    """Return coverage of each class and size of the sets at 90%, for each set of classes and division."""
    rows = []
    for name, runs in uncertainty_runs(classes=True):
        entries = [at_level(run, AT) for run in runs]
        cells = []
        for label in (0, 1):
            counts = [run["class_counts"][label] for run in runs]
            shares = [
                {"count": count, "coverage": entry[f"coverage_class_{label}"]}
                for count, entry in zip(counts, entries, strict=True)
            ]
            cells.append(group_coverage(shares))
        size, empty, double = (
            statistics.fmean(entry[key] for entry in entries)
            for key in ("set_size", "empty_sets", "double_sets")
        )
        rows.append([name, str(len(runs)), *cells, f"{size:.2f}", f"{empty:.0%}", f"{double:.0%}"])
    return markdown(["", "seeds", "class 0", "class 1", "mean size", "empty", "both classes"], rows)


def uncertainty_runs(*, classes: bool) -> list[tuple[str, Runs]]:
    """Return the measured models of numbers or of classes, the seeds of one division together."""
    result = load("uncertainty")
    fits = [run for run in result["fits"] if ("class_counts" in run) == classes]
    groups = group_by(fits, lambda run: f"`fit`, {run['set']}, {run['division']}")
    shipped = [] if classes else [(SHIPPED[run["set"]], [run]) for run in result["gap_xtb"]]
    return [*groups.items(), *shipped]


def at_level(run: Entry, level: float) -> Entry:
    """Return the entry of a level."""
    return next(entry for entry in run["levels"] if entry["level"] == level)


def coverage_at(runs: Runs, level: float) -> str:
    """Return the coverage over the test rows of all seeds, with its standard error."""
    return pooled_coverage([at_level(run, level) for run in runs], level)


def pooled_coverage(entries: Runs, level: float) -> str:
    """Return the coverage over the rows of all entries in percent, with its standard error."""
    count = sum(entry["count"] for entry in entries)
    share = sum(entry["coverage"] * entry["count"] for entry in entries) / count
    return f"{100 * share:.1f} ± {100 * math.sqrt(level * (1 - level) / count):.1f}"


# Sequences

MEASURED = re.compile(r"^# Measured: .*?\(benchmarks/results/\w+\.json\)\.\n", re.DOTALL | re.MULTILINE)

# experiment -> title in the table
TASKS = {
    "listops": "ListOps, 50 to 200 symbols",
    "pathfinder": "Pathfinder, 16 x 16, at chance",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10, JPEG copy",
    "r8": "R8",
    "imdb": "IMDB, 256 words",
    "japanese_vowels": "JapaneseVowels",
    "uwave": "UWaveGestureLibrary",
}
AT_CHANCE = {"pathfinder"}  # tasks that no attention has learned, whose order means nothing
# experiments with the configuration of another experiment, whose result is in its header
FURTHER = ("listops_orders", "listops_flow", "listops_others", "r8_others", "r8_ranks", "imdb_others")
COLUMNS = (
    "softmax",
    "slice_sort",
    "slice_sort:order=interleave",
    "flow",
    "singular",
    "slice_sort:order=shuffle",
    "identity",
)


@block
def sequence_tasks() -> str:
    """Return the accuracy of each recorded experiment, with the published numbers in the next row."""
    rows = []
    for name, title in TASKS.items():
        if not is_recorded(f"task_{name}"):
            continue
        result = load(f"task_{name}")
        entries = {entry["label"]: entry for entry in result["entries"]}
        order, seeds = result["order"], entries["softmax"]["seeds"]
        rows.append(
            [
                f"{title} ({seeds} seed{'s' * (seeds > 1)})",
                *(percent(entries[column]["test"]) if column in entries else "" for column in COLUMNS),
                range_of_minutes(result["entries"]),
                f"{order['pairs'] - len(order['turned'])} of {order['pairs']}"
                if order["pairs"] and name not in AT_CHANCE
                else "",
            ]
        )
        published = [entries[column]["published"] if column in entries else None for column in COLUMNS]
        if any(published):
            shares = ["" if share is None else f"{100 * share:.2f}" for share in published]
            rows.append(["published", *shares, "", ""])
    names = [f"`{column.removeprefix('slice_sort:')}`" for column in COLUMNS]
    return markdown(["accuracy (%)", *names, "minutes", "pairs in the published order"], rows)


def is_recorded(name: str) -> bool:
    """Return whether a result file exists."""
    return (RESULTS / f"{name}.json").is_file()


def range_of_minutes(entries: Iterable[Entry]) -> str:
    """Return the shortest and the longest time of a run."""
    minutes = [entry["seconds"] / 60 for entry in entries]
    return f"{min(minutes):.1f} to {max(minutes):.1f}"


@block
def language() -> str:
    """Return the perplexity of the small language models."""
    return grid(
        load("task_wikitext2")["entries"],
        {
            "": "`{label}`",
            "parameters": "{parameters:,}",
            "perplexity": lambda entry: mean_and_sd(entry["test"], 1),
            "WikiText-103, published": lambda entry: decimal(entry["published"]),
        },
    )


def headers() -> dict[Path, str]:
    """Return the measured configurations with regenerated results in their headers.

    Raises:
        ValueError: The header of a configuration has no results to replace.
    """
    texts = {}
    for file in sorted(RESULTS.glob("task_*.json")):
        if file.stem.removeprefix("task_") in FURTHER:
            continue
        result = load(file.stem)
        path = ROOT / "configs" / result["config"]
        text = path.read_text(encoding="utf-8")
        if not MEASURED.search(text):
            raise ValueError(f"{path}: missing comment '# Measured: ... (benchmarks/results/{file.name}).'")
        sentence = measured_sentence(result, file.name)
        lines = textwrap.fill(sentence, LINE, initial_indent="# ", subsequent_indent="# ")
        texts[path] = MEASURED.sub(lambda _, lines=lines: f"{lines}\n", text)
    return texts


def measured_sentence(result: Entry, file: str) -> str:
    """Return the sentence of a header with seeds, time per run, and the result of each attention."""
    entries, what, scale = result["entries"], "accuracy in %", 100.0
    if result["lower_is_better"]:
        what, scale = "perplexity", 1.0
    seeds = " or ".join(str(count) for count in sorted({entry["seeds"] for entry in entries}))
    numbers = ", ".join(f"{entry['label']} {mean_and_sd(entry['test'], 1, scale)}" for entry in entries)
    return (
        f"Measured: test {what}, {'one seed' if seeds == '1' else f'{seeds} seeds'}, "
        f"{range_of_minutes(entries)} minutes per run on one core: {numbers} (benchmarks/results/{file})."
    )


# The tables of the papers beside ours

STATES = {
    "measured": "measured",
    "reduced": "measured with reduced settings",
    "open": "not measured",
    "no_data": "no data here",
}
UNNAMED = re.compile(r":(order=ascending|form=sort_of_mix|placement=index|block=16)")
LEVEL = 0.95
UNPAIRED = {"control", "measure"}  # keys of rows that are no attention of their own


class Unit(NamedTuple):
    """Factor from a result file to the table, and digits of our results; published numbers keep theirs."""

    scale: float
    digits: int


UNITS = {"percent": Unit(100, 1), "ev": Unit(1, 3), "perplexity": Unit(1, 1)}
# title, result file, unit
ABLATIONS = (
    (
        "Orders of `slice_sort` on ListOps with 50 to 200 symbols, accuracy in %",
        "task_listops_orders",
        "percent",
    ),
    ("Orders of `slice_sort` on the embedded molecules, MAE in eV", "orders_gap_xtb", "ev"),
    ("Ablations of `flow` on ListOps with 50 to 200 symbols, accuracy in %", "task_listops_flow", "percent"),
    ("Ranks of `singular` on R8, accuracy in %", "task_r8_ranks", "percent"),
)


class Difference(NamedTuple):
    """Difference of two means and the bounds of its interval, which are NaN for a single seed."""

    mean: float
    low: float
    high: float


@block
def series_baselines() -> str:
    """Return the accuracies of classical methods on time series, a row for each data set."""
    by_problem = group_by(load("series_baselines")["entries"], lambda entry: entry["problem"])
    rows = [
        {"problem": problem, **{entry["method"]: percent(entry["test"]) for entry in entries}}
        for problem, entries in by_problem.items()
    ]
    columns = {"boosted trees": "{boosting}", "LSTM": "{lstm}", "TCN": "{tcn}"}
    return grid(rows, {"": "{problem}", **columns})


@block
def papers() -> str:
    """Return all tables, each with its source and the state of its columns."""
    return "\n\n".join([*map(paper_section, paper_tables()), paper_speed()])


@block
def paper_pairs() -> str:
    """Count the pairs of attentions in the published order, and show decided ones with their intervals."""
    rows, verdicts = [], []
    for table in paper_tables():
        unit = UNITS[table["unit"]]
        for place, (name, column) in enumerate(table["columns"].items()):
            measured = test_results(column.get("results", ()))
            known = [
                (method, measured[row["entry"]], float(row["values"][place]))
                for method, row in table["rows"].items()
                if row["values"][place] is not None and row["entry"] in measured and not UNPAIRED & row.keys()
            ]
            for (first, values, value), (second, others, other) in itertools.combinations(known, 2):
                difference = welch_difference(values, others)
                verdicts.append(verdict(value - other, difference))
                if verdicts[-1] != "undecided":
                    published = f"{value - other:+.{unit.digits + 1}f}"
                    measured_difference = with_interval(difference, unit)
                    rows.append([name, f"{first} - {second}", published, measured_difference, verdicts[-1]])
    text = (
        f"Of {len(verdicts)} pairs, {verdicts.count('same')} have the published order, "
        f"{verdicts.count('opposite')} the opposite order, and {verdicts.count('undecided')} are undecided: "
        "the interval contains zero, or there is one seed. The decided ones:"
    )
    header = ["data", "pair", "published difference", f"ours ({LEVEL:.0%} interval)", "order"]
    return f"{text}\n\n{left_aligned(header, rows)}"


@block
def ablations() -> str:
    """Return the results of the options of one attention, a table for each recorded experiment."""
    tables = []
    for title, file, name in ABLATIONS:
        if is_recorded(file):
            entries = sorted(load(file)["entries"], key=lambda entry: numbers_apart(entry["label"]))
            unit = UNITS[name]
            columns = {
                "": "`{label}`",
                "parameters": "{parameters:,}",
                "ours": partial(our_result, unit=unit),
            }
            tables.append(
                f"{title} (`{file}.json`, {entries[0]['seeds']} seeds):\n\n{grid(entries, columns)}"
            )
    return "\n\n".join(tables)


def numbers_apart(label: str) -> list[str | int]:
    """Return the numbers and the other parts of a label, so that a sort puts rank=2 before rank=16."""
    return [int(text) if text.isdigit() else text for text in re.split(r"(\d+)", label)]


def paper_tables() -> list[dict[str, Any]]:
    """Return the content of `papers.yaml`."""
    path = Path(__file__).with_name("papers.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def welch_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the means over seeds, with the interval of Welch's t."""
    mean = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:  # noqa: PLR2004
        return Difference(mean, math.nan, math.nan)
    errors = [statistics.variance(values) / len(values) for values in (first, second)]
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (first, second), strict=True)
    )
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(sum(errors))
    return Difference(mean, mean - half, mean + half)


def verdict(published: float, difference: Difference) -> str:
    """Return whether our difference has the direction of the published one."""
    if not (difference.low > 0 or difference.high < 0) or not published:
        return "undecided"
    return "same" if difference.mean * published > 0 else "opposite"


def paper_section(table: Entry) -> str:
    """Return one table with its source and the state of its columns."""
    columns, unit = table["columns"], UNITS[table["unit"]]
    rows = []
    for method, row in table["rows"].items():
        name = method if row["entry"] in method else f"{method} (`{row['entry']}`)"
        values = zip(row["values"], columns.values(), strict=True)
        rows.append([name, *(published_and_ours(row, value, column, unit) for value, column in values)])
    lines = [["published / ours", *columns], *rows]
    header, *body = zip(*lines, strict=True) if table.get("transposed") else lines
    states = group_by(columns, lambda name: column_state(columns[name]))
    listed = "\n".join(f"- {', '.join(names)}: {state}" for state, names in states.items())
    return f"## {table['title']}\n\nSource: {table['source'].strip()}\n\n{markdown(header, body)}\n\n{listed}"


def paper_speed() -> str:
    """Return the published speed and memory of attentions, which are measured on a GPU."""
    rows = [
        [
            f"{paper.name} (`{entry}`)",
            *(f"{a or '-'} / {b or '-'}" for a, b in zip(paper.speed, paper.memory, strict=True)),
        ]
        for entry, paper in PUBLISHED.items()
    ]
    table = markdown(["published steps per second / GB", *(f"{length:,} bytes" for length in LENGTHS)], rows)
    source = "Sliceformer (arXiv 2310.17683); batches of 32 on four RTX 3090; `-` is out of memory"
    state = (
        f"- All columns: **not measured**; `molslice bench attention --setting {SETTING}`, ten minutes on a "
        "GPU. [Cost of attentions](attention-cost.md) has the growth with the length on a CPU."
    )
    return f"## Training speed and memory on text\n\nSource: {source}\n\n{table}\n\n{state}"


def published_and_ours(row: Entry, value: str | None, column: Entry, unit: Unit) -> str:
    """Return the published number and ours."""
    files = [load(file)["entries"] for file in column.get("results", ())]
    entries = [entry for entry in itertools.chain(*files) if plain_label(entry) == row["entry"]]
    if not entries:
        return value or ""
    return f"{value or ''} / {our_result(entries[0], row.get('measure', ''), unit=unit)}"


def our_result(entry: Entry, measure: str = "", *, unit: Unit) -> str:
    """Return mean and standard deviation over seeds of a result."""
    test = entry[measure or ("test" if "test" in entry else "test_mae")]
    return mean_and_sd(test, unit.digits, unit.scale)


def plain_label(entry: Entry) -> str:
    """Return the label of an entry without the options that the rows do not name."""
    return UNNAMED.sub("", entry["label"])


def with_interval(difference: Difference, unit: Unit) -> str:
    """Return a difference with its interval, if it has one."""
    mean, low, high = (f"{unit.scale * bound:+.{unit.digits}f}" for bound in difference)
    return mean if math.isnan(difference.low) else f"{mean} ({low} to {high})"


def column_state(column: Entry) -> str:
    """Return the state of a column, with its reason and its files."""
    files = ", ".join(f"`{file}.json`" for file in column.get("results", ()))
    further = f" Full settings: {column['open']}." if "open" in column else ""
    return f"**{STATES[column['state']]}**{f' ({files})' if files else ''}; {column['why']}.{further}"


def test_results(files: Sequence[str]) -> dict[str, list[float]]:
    """Return the test results of each seed by label; the first file with a label counts."""
    results: dict[str, list[float]] = {}
    for file in files:
        for label, runs in group_by(load(file)["runs"], plain_label).items():
            values = [run["canonical"] if "canonical" in run else run["value"] for run in runs]
            results.setdefault(label, values)
    return results


# The pages


def fill(text: str) -> str:
    """Return the text of a page with all its blocks regenerated."""
    for name, make in TABLES.items():
        markers = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if markers.search(text):
            table = make()
            text = markers.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def pages() -> dict[Path, str]:
    """Return the README and the pages of the documentation with regenerated tables.

    Raises:
        ValueError: No page contains the markers of a table.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    for name in TABLES:
        if not any(f"<!-- begin {name} -->" in text for text in texts.values()):
            raise ValueError(f"no page contains the markers of the table {name!r}")
    return {path: fill(text) for path, text in texts.items()}


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, "benchmarks/result_tables.py", lambda: {**pages(), **headers()}))
