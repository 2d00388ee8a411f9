"""Generate the tables of the README and the documentation, and the results in the headers of `configs/`.

In a page, the text between `<!-- begin NAME -->` and `<!-- end NAME -->` is the output of `TABLES[NAME]`. In
the header of a configuration that `sequence_tasks.py` has measured, the results start with `# Measured:` and
end with the name of the result file. `--write` regenerates all of them. Without it, the program exits with 1
if a file is out of date.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from billion_tables import plan_table, rate_table, volume_table
from gpu_tables import (
    bench_table,
    kernels_table,
    profile_table,
    qm9_table,
    rates_table,
    sort_table,
    steps_table,
)
from papers_tables import ablations, pairs, papers
from pretraining_tables import attentions_table, embedded_table, labels_table, sizes_table
from sequence_tables import headers, language, long_inputs, sequence_tasks
from small_data_tables import (
    candidates_table,
    curve_table,
    error_table,
    pairs_table,
    scales_table,
    seeds_table,
    summary_table,
)
from speed_tables import (
    data_table,
    large_store,
    padding_sentence,
    prediction_table,
    preparation_table,
    start_table,
    training_table,
)
from tables import COSTS, ROOT, cell, crossing_texts, left_aligned, load, markdown, percent
from uncertainty_tables import (
    chemprop_table,
    class_sets_table,
    coverage_table,
    network_table,
    probabilities_table,
    ranking_table,
)

from molslice.attention import ATTENTIONS
from molslice.bench.result import COMPARED

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BASELINE_NAMES = {
    "median": "median of the training rows",
    "morgan": "gradient boosting, Morgan counts",
    "morgan_and_descriptors": "gradient boosting, Morgan counts and all RDKit descriptors",
}


def gap_xtb() -> str:
    """Return the errors of all attentions and baselines on the embedded data."""
    baselines, compared = load("baselines_gap_xtb"), load("compare_gap_xtb")
    rows = [
        [BASELINE_NAMES[name], "", cell(result["test"]), ""]
        for name, result in baselines["baselines"].items()
    ]
    rows.sort(key=lambda row: row[2], reverse=True)
    for entry in compared["entries"]:
        shuffled = cell(entry["test_mae_shuffled"])
        rows.append([f"`{entry['label']}`", f"{entry['parameters']:,}", cell(entry["test_mae"]), shuffled])
    return markdown(["", "parameters", "test MAE (eV)", "atoms shuffled"], rows)


def qm9() -> str:
    """Return the errors of molslice and chemprop on QM9 at equal training time."""
    result, converged = load("qm9_vs_chemprop"), load("qm9_convergence")
    rows = []
    for pair in [*result["pairs"], *converged["pairs"]]:
        labels = {"chemprop": f"chemprop {pair['chemprop_version']}", "molslice": "molslice, `softmax`"}
        for side, label in labels.items():
            found = pair[side]
            seconds = f"{found['seconds']['mean']:,.0f}"
            epochs = str(pair["epochs"]) if side == "chemprop" else ""
            rate = f"{found['rate']:g}" if "rate" in found else "default"
            rows.append([label, f"{found['parameters']:,}", epochs, rate, seconds, cell(found["mae_ev"])])
    table = markdown(["", "parameters", "epochs", "learning rate", "training seconds", "MAE (eV)"], rows)
    repeat = result["repeat"]
    error, more = repeat["mae_ev"], repeat["molslice_over_chemprop_seconds"] - 1
    text = (
        f"A repetition of the 12 epochs with {repeat['threads']} thread on a busy machine gave "
        f"{error['molslice']:.3f} eV for molslice and {error['chemprop']:.3f} eV for chemprop after "
        f"{repeat['epochs']} epochs each, with {more:.0%} more time for molslice. At this budget the two are "
        "equal."
    )
    for pair in converged["pairs"]:
        ours, theirs = (pair[side]["mae_ev"]["mean"] for side in ("molslice", "chemprop"))
        word = "larger" if ours > theirs else "smaller"
        text += (
            f" After the time of {pair['epochs']} epochs of chemprop, the error of molslice is "
            f"{abs(ours / theirs - 1):.0%} {word} than that of chemprop."
        )
    return f"{table}\n\n{textwrap.fill(text, 118)}"


FEATURIZERS = {
    "rdkit": "RDKit: parse, canonical SMILES, second parse",
    "molslice": "molslice, canonical order",
    "input order": "molslice, order of the SMILES",
    "one by one": "molslice, canonical order, one molecule at a time",
    "ogb": "`ogb.utils.smiles2graph`",
    "graphormer": "Graphormer's inputs: `smiles2graph`, shortest paths, bonds on paths to five hops",
}


def featurizing() -> str:
    """Return the time of converting a SMILES to arrays."""
    rows = [
        [FEATURIZERS[one["name"]], f"{one['microseconds']:,.0f}", f"{one['ratio_to_rdkit']:.2f}"]
        for one in load("featurizing")["results"]
    ]
    return markdown(["", "microseconds", "ratio to the first row"], rows)


def training_speed() -> str:
    """Return the speed of training beside other programs."""
    result = load("training_speed")
    return f"{markdown(*training_table(result))}\n\n{markdown(*start_table(result))}"


def data_path() -> str:
    """Return the rates of the data path, and the share of padding."""
    result = load("training_speed")
    return f"{markdown(*data_table(result))}\n\n{padding_sentence(result)}".rstrip()


def prediction() -> str:
    """Return the processor time of a prediction, and the memory of a long one."""
    return markdown(*prediction_table(load("prediction")))


def preparation() -> str:
    """Return rate and processor time of `prepare`, and what a large store takes."""
    return f"{markdown(*preparation_table(load('prepare')))}\n\n{large_store(load('prepare_large'))}"


def billion_rates() -> str:
    """Return the time and the bytes of each part of a plan for a billion molecules."""
    return markdown(*rate_table(load("billion")))


def billion_plan() -> str:
    """Return hours, cost and sizes for a billion molecules."""
    result = load("billion")
    return f"{markdown(*plan_table(result))}\n\n{markdown(*volume_table(result))}"


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
    titles = (
        "trains faster above",
        "predicts faster above",
        "less memory above",
        "less than all scores above",
    )
    return markdown(["", "cost", *titles], rows)


def layer_times() -> str:
    """Return the time of one attention layer on molecules, forward and backward."""
    found = load("attention_speed")["molecule_layer"]["milliseconds"]
    rows = [
        [f"{label}", f"{ms['median']:.0f}", f"{ms['min']:.0f} to {ms['max']:.0f}"]
        for label, ms in found.items()
    ]
    return markdown(["", "median (ms)", "range over rounds (ms)"], rows)


# Labels in the result files and the present names of the same attentions
SAME_AS = {
    "sort_design:mixing=keys_weight:gate=true:slope=0.1": "key_sort",
    "key_sort": "key_sort:slope=1.0",
    "sort_design:mixing=weight:after=none:gate=false": "key_weight",
    "slice_sort:form=sort_of_mix:placement=index": "slice_sort",
}


def learnable_sort() -> str:
    """Return the errors of learnable sorts on molecules; softmax and slice_sort are those of `gap_xtb`."""
    compared = [{**entry, "mae": entry["test_mae"]} for entry in load("compare_gap_xtb")["entries"]]
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in [*compared, *load("learnable_sort")["entries"]]:
        data, label = str(entry.get("data", "gap_xtb")), str(entry["label"])
        cells[data, SAME_AS.get(label, label)] = entry
    rows = []
    for label in ("softmax", "key_sort", "key_sort:slope=1.0", "key_weight", "slice_sort"):
        errors = [cell(cells[data, label]["mae"]) for data in ("gap_xtb", "qm9")]
        rows.append([f"`{label}`", f"{cells['qm9', label]['layer_parameters']:,}", *errors])
    return markdown(["", "parameters in layers", "embedded data, MAE (eV)", "QM9, MAE (eV)"], rows)


def sort_on_sequences() -> str:
    """Return the accuracy of sorts on the words of reviews."""
    rows = [
        [f"`{entry['label']}`", f"{entry['layer_parameters']:,}", percent(entry["accuracy"])]
        for entry in load("sort_on_sequences")["entries"]
    ]
    return markdown(["", "parameters in layers", "accuracy (%)"], rows)


def console(verb: str, *commands: str) -> str:
    """Return commands and the recorded output of a verb in the quickstart."""
    shown = "\n".join(f"$ {command}" for command in commands)
    return f"```console\n{shown}\n{load('quickstart')['outputs'][verb]}\n```"


def choice() -> str:
    """Return advice on which attention to choose, with errors on the embedded data."""
    errors = {entry["label"]: entry["test_mae"] for entry in load("compare_gap_xtb")["entries"]}
    sort = errors["slice_sort:form=sort_of_mix:placement=index"]
    learned = {
        SAME_AS.get(str(e["label"])): e for e in load("learnable_sort")["entries"] if e["data"] == "gap_xtb"
    }
    layers = {
        e["label"]: e["layer_parameters"] for e in load("learnable_sort")["entries"] if e["data"] == "qm9"
    }
    key_sort, full = learned["key_sort"], layers["softmax"]
    fewer = 100 * (1 - key_sort["layer_parameters"] / full)
    rows = [
        [
            "accuracy on molecules",
            "`softmax`",
            f"{cell(errors['softmax'])} eV; molecules are short, so its cost matters little",
        ],
        [
            "the same error with fewer parameters",
            "`key_sort`",
            f"{cell(key_sort['mae'])} eV with {fewer:.0f}% fewer parameters in the layers",
        ],
        ["the fewest parameters", "`slice_sort`", f"{cell(sort)} eV; no query and no key"],
        [
            "linear time on long sequences",
            "`flow`, `singular`, `linear`",
            "[measured](docs/results/attention-cost.md) from 256 to 16,384 tokens",
        ],
    ]
    return left_aligned(["goal", "attention", "reason"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "choice": choice,
    "train": lambda: console(
        "train", "molslice train --config configs/molecule/quickstart.yaml --out runs/quickstart"
    ),
    "evaluate": lambda: console("evaluate", "molslice evaluate runs/quickstart"),
    "predict": lambda: console(
        "predict",
        "molslice predict runs/quickstart --input molecules.csv.gz --output predicted.csv --workers 4",
        'molslice predict runs/quickstart --smiles "CCO" "c1ccccc1" "CN1C=NC2=C1C(=O)N(C(=O)N2C)C"',
    ),
    "compare": lambda: console(
        "compare",
        "molslice compare --config configs/molecule/quickstart.yaml --out runs/compare \\\n"
        "      --training.max_steps 360 --attention softmax,slice_sort,flow,singular",
    ),
    "gap_xtb": gap_xtb,
    "featurizing": featurizing,
    "training_speed": training_speed,
    "gpu_bench": lambda: markdown(*bench_table(load("gpu_bench_train"))),
    "gpu_training": lambda: markdown(*rates_table(load("gpu_training"))),
    "gpu_list": lambda: markdown(*steps_table(load("gpu_list"))),
    "gpu_kernels": lambda: markdown(*kernels_table(load("gpu_kernels"))),
    "gpu_qm9": lambda: markdown(*qm9_table(load("gpu_qm9"))),
    "gpu_profile": lambda: markdown(*profile_table(load("gpu_profile"))),
    "gpu_sort": lambda: markdown(*sort_table(load("gpu_sort_tiles"))),
    "papers": papers,
    "paper_pairs": pairs,
    "ablations": ablations,
    "fit_seeds": seeds_table,
    "data_path": data_path,
    "prediction": prediction,
    "preparation": preparation,
    "billion_rates": billion_rates,
    "billion_plan": billion_plan,
    "qm9": qm9,
    "coverage": coverage_table,
    "uncertainty_ranking": ranking_table,
    "network_uncertainty": network_table,
    "class_sets": class_sets_table,
    "probabilities": probabilities_table,
    "uncertainty_chemprop": chemprop_table,
    "small_data_summary": summary_table,
    "small_data_pairs": pairs_table,
    "small_data_errors": error_table,
    "small_data_curve": curve_table,
    "fit_candidates": candidates_table,
    "fit_scales": scales_table,
    "pretraining_labels": labels_table,
    "pretraining_attentions": attentions_table,
    "pretraining_embedded": embedded_table,
    "pretraining_sizes": sizes_table,
    "crossings": crossings,
    "layer_times": layer_times,
    "learnable_sort": learnable_sort,
    "sort_on_sequences": sort_on_sequences,
    "sequence_tasks": sequence_tasks,
    "language": language,
    "long_inputs": long_inputs,
}


def fill(text: str) -> str:
    """Return the text of a page with all its blocks regenerated."""
    for name, make in TABLES.items():
        block = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if block.search(text):
            table = make()
            text = block.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
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


def main() -> int:
    """Check the generated text, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="write the pages and headers that are out of date"
    )
    made = {**pages(), **headers()}
    behind = [path for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    if parser.parse_args().write:
        for path in behind:
            path.write_text(made[path], encoding="utf-8")
    elif behind:
        names = ", ".join(str(path.relative_to(ROOT)) for path in behind)
        print(f"{names}: out of date; run benchmarks/result_tables.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
