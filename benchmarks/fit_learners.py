"""Compare stacks of `molslice fit` by their out-of-fold errors: other learners, bins and weights.

    python benchmarks/fit_learners.py --data PATH_TO_SETS

For each set and seed, learners are fitted in five folds of the rows. Of the sets that are not development
sets, only training rows are read: nothing is measured on test rows. A stack is weighed on four fifths of
the rows and predicts the others, in turn, so that its error counts the choice of the weights. For classes,
other calibrations and combinations of the same scores are compared too. CatBoost has to be installed.
Finished sets are kept below `--runs`. Writes `benchmarks/results/fit_learners.json`.
"""

import argparse
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import ROOT, make_parser, record, spread, write_json
from small_data_members import fit_catboost
from small_data_sets import SETS, Molecules, divide, read_molecules

from molslice.data.target_values import is_log_normal
from molslice.files.parsing import read_json_object
from molslice.fitting.learner_fits import with_balanced_classes
from molslice.inference.load import load_encoder
from molslice.learners import LEARNERS, Features, Labels, boosting
from molslice.learners.stacking import Stack
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained
from molslice.tasks.metrics import roc_auc

NUM_FOLDS, MAX_ROWS = 5, 2_000
REFERENCE = "stack of fit"
COMPARED = {  # split whose training rows are read; None for all rows of a development set
    **dict.fromkeys(("esol", "freesolv", "tdc_clearance_hepatocyte_az", "bace")),
    "bbbp": "scaffold",
    "tdc_herg": "own",
    "tdc_dili": "own",
    "tdc_bioavailability_ma": "own",
    "tdc_cyp2d6_substrate_carbonmangels": "own",
}

Scores = dict[str, np.ndarray]  # out-of-fold scores of each learner, float64 [n]
Combine = Callable[[Scores, np.ndarray, np.ndarray], np.ndarray]  # scores, labels, train mask -> predictions


def main() -> int:
    """Measure all sets, and record the errors of all candidates."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet and admet")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fit_learners")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    results = measure_sets(COMPARED, args, measure)
    print(
        record("fit_learners", {"folds": NUM_FOLDS, "reference": REFERENCE, **summarize(results)}, args.out)
    )
    return 0


def measure_sets(
    names: Iterable[str], args: argparse.Namespace, measure: Callable[["TrainingRows"], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Measure each set with each seed unless its file is in `args.runs`, and return all results."""
    results = []
    for seed in range(args.seeds):
        for name in names:
            file = args.runs / f"{name}-{seed}.json"
            if not file.is_file():
                rows = TrainingRows.read(args.data, args.runs / "features", name, seed)
                write_json(file, {**rows.describe(), **measure(rows)})
            results.append(read_json_object(file))
            errors = {label: round(error, 4) for label, error in results[-1]["errors"].items()}
            print(name, seed, errors, flush=True)
    return results


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """The rows of a set on which stacks are compared, at most 2,000.

    Attributes:
        name: Name of the set.
        seed: Seed of the sample, the folds and the learners.
        smiles: SMILES of each row.
        features: Features of each row, without an embedding.
        values: What is learned, float64 [n]: classes, numbers, or logarithms of log-normal numbers.
        classes: Whether the values are 0 and 1.
        folds: Fold of each row [n].
    """

    name: str
    seed: int
    smiles: list[str]
    features: Features
    values: np.ndarray
    classes: bool
    folds: np.ndarray

    @classmethod
    def read(cls, data: Path, cache: Path, name: str, seed: int) -> "TrainingRows":
        """Read the training rows of a set, and divide them into folds."""
        molecules = read_molecules(SETS[name], data, cache)
        rows = choose_rows(molecules, name, seed)
        values, classes = molecules.values[rows, 0], SETS[name].kind == "classification"
        if not classes and is_log_normal(values):
            values = np.log10(values)
        folds = np.random.default_rng(seed).permutation(len(rows)) % NUM_FOLDS
        smiles, given = [molecules.smiles[row] for row in rows], molecules.features[rows]
        features = Features(given.descriptors, given.counts)
        return cls(name, seed, smiles, features, values, classes, folds)

    def with_embedding(self, embedding: np.ndarray | None) -> Features:
        """Return the features with an embedding, float32 [n, E]; None for no embedding."""
        return Features(self.features.descriptors, self.features.counts, embedding)

    def describe(self) -> dict[str, Any]:
        """Return what a result says about its rows."""
        error = "1 - ROC-AUC" if self.classes else "MAE"
        return {"set": self.name, "seed": self.seed, "rows": len(self.smiles), "error": error}


def measure(rows: TrainingRows) -> dict[str, Any]:
    """Fit all learners to one set, and return the error of each candidate and the weights of stacks."""
    values, seed, classes = rows.values, rows.seed, rows.classes
    encoder = load_encoder(find_pretrained(DEFAULT_ENCODER))
    features = rows.with_embedding(encoder.embed(rows.smiles))
    scores, seconds = fit_all(features, values, rows.folds, seed, classes=classes)
    candidates = class_candidates() if classes else {}
    learned = {name: scores[name] for name in ("gaussian_process", "extra_trees", "boosting")}
    errors, weights = {}, {}
    for label, parts in {
        REFERENCE: learned,
        "255 bins": {**learned, "boosting": scores["boosting, 255 bins"]},
        "without boosting": {name: learned[name] for name in ("gaussian_process", "extra_trees")},
        "CatBoost added": {**learned, "catboost": scores["catboost"]},
        "CatBoost in place of boosting": {
            **{name: learned[name] for name in ("gaussian_process", "extra_trees")},
            "catboost": scores["catboost"],
        },
    }.items():
        errors[label] = error_of_stack(parts, values, seed, functools.partial(stacked, classes=classes))
        fitted = Stack.fit(parts, Labels(values), classes=classes)
        weights[label] = dict(zip(fitted.names, fitted.weights, strict=True))
    for label, combine in candidates.items():
        errors[label] = error_of_stack(learned, values, seed, combine)
    if classes:
        balanced = {**learned, "extra_trees": scores["extra_trees, balanced"]}
        balanced["boosting"] = scores["boosting, balanced"]
        balanced["gaussian_process"] = scores["gaussian_process, balanced"]
        errors["balanced classes"] = error_of_stack(
            balanced, values, seed, functools.partial(stacked, classes=True)
        )
    return {"errors": errors, "weights": weights, "seconds": seconds}


def choose_rows(molecules: Molecules, name: str, seed: int) -> np.ndarray:
    """Return the numbers of the training rows that are used, at most 2,000."""
    split = COMPARED[name]
    rows = np.arange(len(molecules.smiles))
    if split is not None:
        parts = divide(molecules, split, 0)
        rows = np.sort(np.concatenate([parts["train"], parts["val"]]))
    rows = rows[np.isfinite(molecules.values[rows, 0])]
    return np.sort(np.random.default_rng(seed).permutation(rows)[:MAX_ROWS])


def fit_all(
    features: Features, values: np.ndarray, folds: np.ndarray, seed: int, *, classes: bool
) -> tuple[Scores, dict[str, float]]:
    """Return out-of-fold scores and processor seconds of all learners."""
    labels, scores, seconds = Labels(values), Scores(), dict[str, float]()

    def add(name: str, compute: Callable[[], np.ndarray]) -> None:
        start = time.process_time()
        scores[name] = compute()
        seconds[name] = round(time.process_time() - start, 1)

    lean = features.without_embedding()

    def fit_learner(name: str, learned: Labels) -> np.ndarray:
        given = lean if name == "boosting" else features
        return LEARNERS.find(name).fit(given, learned, folds, classes=classes, seed=seed)[1]

    for name in ("gaussian_process", "extra_trees", "boosting"):
        add(name, functools.partial(fit_learner, name, labels))
        if classes:
            add(f"{name}, balanced", functools.partial(fit_learner, name, with_balanced_classes(labels)))
    bins, boosting.BINS = boosting.BINS, 255
    add("boosting, 255 bins", functools.partial(fit_learner, "boosting", labels))
    boosting.BINS = bins

    def fit_trees() -> np.ndarray:
        matrix, predicted = lean.matrix(), np.empty(len(values))
        for fold in range(NUM_FOLDS):
            train, held_out = folds != fold, folds == fold
            predicted[held_out] = fit_catboost(
                matrix[train], values[train], matrix[held_out], classes=classes, seed=seed, threads=1
            )
        return np.log(predicted / (1.0 - predicted)) if classes else predicted

    add("catboost", fit_trees)
    return scores, seconds


def error_of_stack(scores: Scores, values: np.ndarray, seed: int, combine: Combine) -> float:
    """Return the error of predictions by weights that were fitted to other rows."""
    folds = np.random.default_rng(1_000 + seed).permutation(len(values)) % NUM_FOLDS
    predicted = np.empty(len(values))
    for fold in range(NUM_FOLDS):
        predicted[folds == fold] = combine(scores, values, folds != fold)[folds == fold]
    if set(np.unique(values)) == {0.0, 1.0}:
        return 1.0 - roc_auc(predicted, values)
    return float(np.abs(predicted - values).mean())


def stacked(scores: Scores, values: np.ndarray, train: np.ndarray, *, classes: bool) -> np.ndarray:
    """Combine as `fit` does."""
    known = {name: numbers[train] for name, numbers in scores.items()}
    return Stack.fit(known, Labels(values[train]), classes=classes).combine(scores)


def class_candidates() -> Mapping[str, Combine]:
    """Return other ways to combine scores of classes."""
    return {"log-odds, by log loss": by_log_odds, "equal weights of log-odds": by_equal_odds}


def calibrated(scores: Scores, values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the calibrated log-odds of each learner, float64 [n, learners]."""
    columns = []
    for numbers in scores.values():
        alone = Stack.fit({"alone": numbers[train]}, Labels(values[train]), classes=True)
        (slope, intercept), *_ = alone.calibration
        columns.append(slope * numbers + intercept)
    return np.stack(columns, axis=1)


def by_log_odds(scores: Scores, values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Add up calibrated log-odds with weights that are not negative and minimize the log loss."""
    from scipy.optimize import minimize

    odds = np.clip(calibrated(scores, values, train), -20.0, 20.0)
    known, wanted, count = odds[train], values[train], odds.shape[1]

    def loss(weights: np.ndarray) -> float:
        total = known @ weights[:-1] + weights[-1]
        drawn = 0.05**2 * ((weights[:-1] - 1.0 / count) ** 2).sum()
        return float(np.mean(np.logaddexp(0.0, total) - wanted * total) + drawn)

    start, bounds = np.r_[np.full(count, 1.0 / count), 0.0], [(0.0, 3.0)] * count + [(-5.0, 5.0)]
    weights = minimize(loss, start, bounds=bounds, method="L-BFGS-B").x
    return odds @ weights[:-1] + weights[-1]


def by_equal_odds(scores: Scores, values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the mean of calibrated log-odds."""
    return np.clip(calibrated(scores, values, train), -20.0, 20.0).mean(1)


def summarize(results: list[dict[str, Any]], reference: str = REFERENCE) -> dict[str, Any]:
    """Return each candidate's errors by set, and its geometric mean ratio to the reference."""
    labels = list(dict.fromkeys(label for result in results for label in result["errors"]))
    candidates = []
    for label in labels:
        with_label = [result for result in results if label in result["errors"]]
        by_set: dict[str, list[float]] = {}
        for result in with_label:
            ratio = result["errors"][label] / result["errors"][reference]
            by_set.setdefault(result["set"], []).append(ratio)
        logs = [statistics.fmean(map(math.log, ratios)) for ratios in by_set.values()]
        candidates.append(
            {
                "candidate": label,
                "ratio": math.exp(statistics.fmean(logs)),
                "lower_on": sum(log < 0 for log in logs),
                "sets": {name: spread(ratios) for name, ratios in by_set.items()},
            }
        )
    return {"candidates": candidates, "results": results}


if __name__ == "__main__":
    raise SystemExit(main())
