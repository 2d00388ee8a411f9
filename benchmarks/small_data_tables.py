"""The tables of methods on small measured sets."""

from collections.abc import Mapping
from typing import Any

from tables import load, markdown

LABELS = {
    "fit": "`molslice fit`",
    "fit without encoder": "`molslice fit --no-encoder`",
    "tuned": "`encoder-small`, fine-tuned, one network",
    "frozen": "`encoder-small`, frozen, linear model",
    "scratch": "molslice, one network from random weights",
    "forest": "random forest",
    "boosting": "gradient boosting",
    "chemprop": "chemprop 2.3",
    "chemprop ensemble": "chemprop 2.3, ensemble of five",
}
SHORT = {
    "fit": "`fit`",
    "fit without encoder": "`fit`, no encoder",
    "tuned": "fine-tuned",
    "frozen": "frozen",
    "scratch": "scratch",
    "forest": "forest",
    "boosting": "boosting",
    "chemprop": "chemprop",
    "chemprop ensemble": "chemprop, five",
}
METRICS = {
    "mae": "MAE",
    "rmse": "RMSE",
    "spearman": "Spearman",
    "roc_auc": "ROC-AUC",
    "pr_auc": "PR-AUC",
}
PAIRS = (
    ("fit", "fit without encoder"),
    ("fit", "tuned"),
    ("tuned", "scratch"),
    ("tuned", "forest"),
    ("frozen", "forest"),
    ("scratch", "forest"),
    ("chemprop", "forest"),
    ("chemprop ensemble", "forest"),
)
TO_CHEMPROP, TO_BASELINE = "chemprop ensemble", "best of forest and boosting"


def summary_table() -> str:
    """Return the ratios of errors to both references and the mean rank of each method."""
    result = load("small_data")
    found = _comparisons(result)
    ranks = result["mean_ranks"]["ranks"]
    rows = []
    for label, name in LABELS.items():
        cells = [
            cell for reference in (TO_CHEMPROP, TO_BASELINE) for cell in _ratio(found.get((label, reference)))
        ]
        rank = f"{ranks[label]:.2f}" if label in ranks else "-"
        if label in ranks or any(cell != "-" for cell in cells):
            rows.append([name, *cells, rank])
    header = [
        "",
        "error ratio to chemprop, five",
        "lower on",
        "error ratio to the better baseline",
        "lower on",
    ]
    pairs = result["mean_ranks"]["pairs"]
    text = (
        "In parentheses: 95% confidence intervals, by resampling the sets.\n"
        "Ratios can be compared only between methods with the same pairs.\n"
        f"The mean ranks are those of the {pairs} pairs that all these methods have finished."
    )
    return f"{markdown([*header, 'mean rank'], rows)}\n\n{text}"


def _comparisons(result: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the comparisons by method and reference."""
    return {(one["label"], one["reference"]): one for one in result["comparisons"]}


def _ratio(one: Mapping[str, Any] | None) -> tuple[str, str]:
    if one is None:
        return "-", "-"
    better = round(one["share_better"] * one["pairs"])
    between = " ({:.2f} to {:.2f})".format(*one["interval"]) if one["interval"] else ""
    return f"{one['geometric_mean_ratio']:.3f}{between}", f"{better} of {one['pairs']}"


def pairs_table() -> str:
    """Return the ratios of errors of some pairs of methods."""
    found, rows = _comparisons(load("small_data")), []
    for label, reference in PAIRS:
        if one := found.get((label, reference)):
            ratio, better = _ratio(one)
            rows.append([LABELS[label], LABELS[reference], ratio, f"{one['median_ratio']:.3f}", better])
    return markdown(["", "compared with", "error ratio", "median ratio", "lower on"], rows)


def error_table() -> str:
    """Return the metric of each method on each set and division."""
    result = load("small_data")
    table: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for row in result["results"]:
        if row["train_rows"] is None:
            key = row["set"], row["split"], row["metric"]
            table.setdefault(key, {})[row["label"]] = row
    labels = [label for label in SHORT if any(label in found for found in table.values())]
    rows = []
    for (name, split, metric), found in sorted(table.items()):
        marked = f"{name} (development)" if name in result["development_sets"] else name
        rows.append([marked, split, METRICS[metric], *(_cell(found.get(label)) for label in labels)])
    return markdown(["", "split", "metric", *(SHORT[label] for label in labels)], rows)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['mean']:.3f}" + (f" ± {row['sd']:.3f}" if row["sd"] else "")


def curve_table() -> str:
    """Return the metric by the number of training rows, and what the encoder changes in the error."""
    found: dict[tuple[str, str], dict[str, dict[int | None, Mapping[str, Any]]]] = {}
    results = load("small_data")["results"]
    curved = {(row["set"], row["split"]) for row in results if row["train_rows"] is not None}
    sizes = [*sorted({row["train_rows"] for row in results} - {None}), None]
    for row in results:
        if (row["set"], row["split"]) in curved:
            labels = found.setdefault((row["set"], row["metric"]), {})
            labels.setdefault(row["label"], {})[row["train_rows"]] = row
    rows = []
    for (name, metric), labels in sorted(found.items()):
        for label in [label for label in SHORT if len(labels.get(label, {})) > 1]:
            cells = [_cell(labels[label].get(size)) for size in sizes]
            rows.append([f"{name}, {METRICS[metric]}", SHORT[label], *cells])
        with_it, without = labels.get("fit", {}), labels.get("fit without encoder", {})
        ratios = [
            f"{with_it[size]['error'] / without[size]['error']:.3f}"
            if size in with_it and size in without
            else "-"
            for size in sizes
        ]
        rows.append([name, "error with the encoder over error without", *ratios])
    return markdown(["", "", *("all" if size is None else f"{size:,} rows" for size in sizes)], rows)


SKEWED_SETS = {"esol": "ESOL, solubility", "bace": "BACE, IC50", "clearance": "hepatocyte clearance"}
SCALES = {"linear": "values", "log": "logarithms"}


def scales_table() -> str:
    """Return the errors of `fit` on values and on logarithms of skewed targets."""
    rows = [
        [
            f"{SKEWED_SETS[one['set']]} ({one['unit']})",
            SCALES[one["scale"]],
            f"{one['spearman']['mean']:.3f} ± {one['spearman']['sd']:.3f}",
            f"{_three_digits(one['fold_error']['mean'])} ± {one['fold_error']['sd']:.2g}",
            *(_three_digits(one[key]["mean"]) for key in ("mae", "rmse")),
            f"{100 * one['not_positive']['mean']:.0f}%",
        ]
        for one in load("fit_scales")["results"]
    ]
    header = ["", "learned", "Spearman", "median fold error", "MAE", "RMSE", "predictions of 0 or less"]
    return markdown(header, rows)


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


CANDIDATES = {"gaussian_process": "Gaussian process", "extra_trees": "extra trees"}
CANDIDATE_SETS = {"esol": "ESOL, MAE", "freesolv": "FreeSolv, MAE", "bace": "BACE, 1 - ROC-AUC"}


def candidates_table() -> str:
    """Return the out-of-fold errors of the candidates for `fit` on its development sets."""
    result = load("fit_candidates")
    rows = []
    for one in result["results"]:
        name = one["candidate"]
        for key, words in CANDIDATES.items():
            name = name.replace(key, words)
        cells = [_cell(one["sets"].get(measured)) for measured in CANDIDATE_SETS]
        rows.append([name, *cells, "-" if one["ratio"] is None else f"{one['ratio']:.3f}"])
    return markdown(["", *CANDIDATE_SETS.values(), f"error ratio to {result['reference']}"], rows)


SEEDS_OF = {"esol": "ESOL", "freesolv": "FreeSolv", "lipo": "Lipophilicity", "bbbp": "BBBP (ROC-AUC)"}


def seeds_table() -> str:
    """Return what another seed changes in a fit, for one and for two divisions into folds."""
    rows = [
        [
            SEEDS_OF[row["set"]],
            f"{row['divisions']}",
            f"{row['score']['mean']:.3f} ± {row['score']['sd']:.3f}",
            f"{row['difference_of_two_seeds']['mean']:.3f}",
            f"{row['difference_of_two_seeds']['largest']:.3f}",
            f"{row['coverage_of_90']:.1%}" if "coverage_of_90" in row else "",
            f"{row['fit_seconds']:.1f}",
        ]
        for row in load("fit_seeds")["rows"]
    ]
    header = [
        "set",
        "divisions",
        "MAE",
        "mean difference",
        "largest",
        "coverage of 90% intervals",
        "seconds of a fit",
    ]
    return markdown(header, rows)
