"""Compare candidates for `molslice fit` on the development sets.

The candidates are single learners, with and without the embeddings of the shipped encoder, learners of ranks
instead of values, boosting that is stopped by folds, fine-tuned networks with and without dropout, and
combinations of them. The sets are ESOL, FreeSolv and BACE, which the comparison in `small_data.py` leaves out
of its means. All errors are those of predictions for rows that a model has not seen: five random folds for
each seed. The weights of a combination are fitted to four fifths of the rows and measured on the fifth.

    python benchmarks/fit_candidates.py --data PATH_TO_SETS
    python benchmarks/fit_candidates.py --data PATH_TO_SETS --networks

The predictions of each candidate are kept in `--runs`, and are not computed again. `--networks` also
fine-tunes the encoder, which takes twenty minutes for each set and seed; networks that are kept are always
measured. Writes `benchmarks/results/fit_candidates.json`.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from record import record, spread
from small_data_members import fit_linear
from small_data_sets import SETS, Molecules, error_of, read_molecules, score

from molslice.fitting.learner_fits import BASELINES
from molslice.fitting.networks import RECIPE, fine_tune
from molslice.inference.load import load_network
from molslice.learners import LEARNERS, Features
from molslice.learners.boosting import MIN_LEAF_ROWS
from molslice.learners.features import NormalScores
from molslice.learners.stacking import Stack
from molslice.pretrained import DEFAULT_ENCODER
from molslice.tasks.targets import TargetInfo
from molslice.training.budget import count_epochs

ROOT = Path(__file__).resolve().parents[1]
DEVELOPMENT = ("esol", "freesolv", "bace")
FOLDS = 5
STOPS = (25, 50, 100, 200, 300)  # numbers of trees from which the folds choose
LEARNED = ("gaussian_process", "extra_trees", "boosting")
ENCODED = tuple(f"{name}, embedding" for name in LEARNED)
NETWORKS = "networks"
DROPOUTS = {NETWORKS: 0.0, "networks, dropout 0.1": 0.1}
COMBINATIONS = {
    "two learners": (LEARNED[0], LEARNED[2]),
    "three learners": LEARNED,
    "three learners, embedding": ENCODED,
    "Gaussian process and networks, embedding": (ENCODED[0], NETWORKS),
    "three learners and networks": (*LEARNED, NETWORKS),
    "three learners and networks, embedding": (*ENCODED, NETWORKS),
}
REFERENCE = "three learners"


@dataclass(frozen=True, slots=True)
class Rows:
    """A development set, divided into folds.

    Attributes:
        name: Name of the set.
        molecules: Its rows.
        features: Their features with the embeddings of the encoder.
        folds: Fold of each row, int [n].
        seed: Seed of the folds and the learners.
    """

    name: str
    molecules: Molecules
    features: Features
    folds: np.ndarray
    seed: int

    @property
    def values(self) -> np.ndarray:
        """The target, float64 [n]."""
        return self.molecules.values[:, 0]

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return SETS[self.name].kind == "classification"

    @property
    def fixed(self) -> Features:
        """The features without the embeddings."""
        return Features(self.features.descriptors, self.features.counts)


def learn(rows: Rows, name: str, features: Features, values: np.ndarray | None = None) -> np.ndarray:
    """Return the out-of-fold predictions of a learner of `molslice fit`, float64 [n]."""
    target = rows.values if values is None else values
    learner = LEARNERS.find(name)
    return learner.fit(features, target, rows.folds, classes=rows.classes, seed=rows.seed)[1]


def learn_ranks(rows: Rows, name: str) -> np.ndarray:
    """Return the out-of-fold predictions of a learner of normal scores, mapped back to values.

    The quantiles are those of all rows, which is in favor of this candidate.
    """
    from scipy.special import ndtr

    scores = NormalScores.of(rows.values[:, None])
    found = learn(rows, name, rows.fixed, scores(rows.values[:, None])[:, 0])
    quantiles = scores.quantiles[:, 0]
    return np.interp(ndtr(found), np.linspace(0.0, 1.0, len(quantiles)), quantiles)


def stop_by_folds(rows: Rows) -> np.ndarray:
    """Return the out-of-fold predictions of boosting with the number of trees that is best on other folds."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    matrix = rows.fixed.matrix()
    matrix = np.where(np.isnan(matrix).all(0), 0.0, matrix)
    differing = (matrix != np.nanmedian(matrix, axis=0)).sum(0)
    matrix = matrix[:, differing >= MIN_LEAF_ROWS]  # no other column can be split
    found = np.empty((len(STOPS), len(rows.values)))
    for fold in range(FOLDS):
        kind: Any = HistGradientBoostingClassifier if rows.classes else HistGradientBoostingRegressor
        model = kind(early_stopping=False, max_iter=max(STOPS), min_samples_leaf=MIN_LEAF_ROWS)
        model.set_params(random_state=rows.seed + fold)
        own = rows.folds == fold
        model.fit(matrix[~own], rows.values[~own])
        stages = model.staged_predict_proba if rows.classes else model.staged_predict
        for count, stage in enumerate(stages(matrix[own]), 1):
            if count in STOPS:
                found[STOPS.index(count), own] = stage[:, 1] if rows.classes else stage
    result = np.empty(len(rows.values))
    for fold in range(FOLDS):
        own = rows.folds == fold
        errors = [error(rows, each, ~own) for each in found]
        result[own] = found[int(np.argmin(errors)), own]
    return result


def baseline(rows: Rows, name: str) -> np.ndarray:
    """Return the out-of-fold predictions of a baseline of `molslice fit`."""
    found = np.empty(len(rows.values))
    for fold in range(FOLDS):
        own = np.flatnonzero(rows.folds == fold)
        rest = np.flatnonzero(rows.folds != fold)
        found[own] = BASELINES[name](rows.fixed, rest, own, rows.values, rows.classes, rows.seed)
    return found


def frozen(rows: Rows) -> np.ndarray:
    """Return the out-of-fold predictions of a linear model on the embeddings."""
    embedding = rows.features.embedding
    assert embedding is not None
    found = np.empty(len(rows.values))
    for fold in range(FOLDS):
        own = rows.folds == fold
        found[own] = fit_linear(embedding[~own], rows.values[~own], embedding[own], rows.classes)
    return found


def tune_networks(rows: Rows, encoder: str, folder: Path, dropout: float) -> np.ndarray:
    """Return the out-of-fold predictions of the networks that `molslice fit` fine-tunes."""
    kind = "classification" if rows.classes else "regression"
    info = TargetInfo.of_training(("value",), ("",), kind, rows.values[:, None])
    chosen = {"dropout": dropout, "attention_dropout": dropout}
    with tempfile.TemporaryDirectory(dir=folder) as scratch, patch.dict(RECIPE["model"], chosen):
        found = fine_tune(
            encoder,
            rows.molecules.canonical,
            rows.values[:, None],
            info,
            rows.folds,
            Path(scratch),
            epochs=count_epochs(len(rows.values) * (FOLDS - 1) // FOLDS),
            seed=rows.seed,
        )
    return found.unseen[:, 0]


def candidates(rows: Rows) -> dict[str, Callable[[], np.ndarray]]:
    """Return the functions that compute the out-of-fold predictions of all but the networks."""
    found: dict[str, Callable[[], np.ndarray]] = {
        "random forest": lambda: baseline(rows, "random forest"),
        "embedding, linear": lambda: frozen(rows),
        "boosting, stopped by folds": lambda: stop_by_folds(rows),
    }
    for name, encoded in zip(LEARNED, ENCODED, strict=True):
        found[name] = lambda name=name: learn(rows, name, rows.fixed)
        found[encoded] = lambda name=name: learn(rows, name, rows.features)
        if not rows.classes:
            found[f"{name}, ranks"] = lambda name=name: learn_ranks(rows, name)
    return found


def error(rows: Rows, predicted: np.ndarray, chosen: np.ndarray | slice = slice(None)) -> float:
    """Return the error of the set's metric on some rows."""
    metric = SETS[rows.name].metric
    return error_of(metric, score(metric, predicted[chosen, None], rows.values[chosen, None]))


def stack(rows: Rows, parts: dict[str, np.ndarray]) -> np.ndarray:
    """Combine out-of-fold predictions, with the weights of each fifth fitted to the other rows."""
    fifths = np.random.default_rng(100 + rows.seed).permutation(len(rows.values)) % FOLDS
    result = np.empty(len(rows.values))
    for fifth in range(FOLDS):
        own = fifths == fifth
        fitted = Stack.fit(
            {name: part[~own] for name, part in parts.items()}, rows.values[~own], classes=rows.classes
        )
        result[own] = fitted.combine({name: part[own] for name, part in parts.items()})
    return result


def plain_mean(rows: Rows, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of out-of-fold predictions; for classes, of their ranks."""
    if rows.classes:
        from scipy.stats import rankdata

        parts = [rankdata(part) for part in parts]
    return np.mean(parts, axis=0)


def measure(rows: Rows, parts: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the error of each candidate and of each combination whose parts there are."""
    errors = {name: error(rows, part) for name, part in parts.items()}
    for label, names in COMBINATIONS.items():
        if set(names) <= set(parts):
            chosen = {name: parts[name] for name in names}
            errors[label] = error(rows, stack(rows, chosen))
            errors[f"{label}, equal weights"] = error(rows, plain_mean(rows, list(chosen.values())))
    return errors


def divide(measured: str, options: argparse.Namespace, seed: int) -> Rows:
    """Read a set, embed it, and divide it into folds."""
    molecules = read_molecules(SETS[measured], options.data, options.runs / "features")
    kept = options.runs / f"{measured}-embedding.npy"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, load_network(options.encoder).embed(molecules.canonical))
    features = Features(molecules.features.descriptors, molecules.features.counts, np.load(kept))
    folds = np.random.default_rng(seed).permutation(len(molecules.smiles)) % FOLDS
    return Rows(measured, molecules, features, folds, seed)


def prediction_file(runs: Path, measured: str, seed: int, label: str) -> Path:
    """Return where the predictions of a candidate are kept."""
    return runs / f"{measured}-{seed}-{label.replace(', ', '_')}.npy"


def keep(file: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Read predictions, or compute and keep them."""
    if not file.is_file():
        start = time.process_time()
        found = compute()
        partial = file.with_suffix(".part.npy")
        np.save(partial, found)
        partial.replace(file)
        print(f"{file.stem}: {time.process_time() - start:.0f} s", flush=True)
    return np.load(file)


def summarize(errors: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Return the errors of each candidate on each set, and the geometric mean of the ratios to the reference.

    Args:
        errors: For each set, the errors of all candidates of each seed.
    """
    names = dict.fromkeys(name for seeds in errors.values() for one in seeds for name in one)
    rows = []
    for name in names:
        ratios = [
            math.log(one[name] / one[REFERENCE]) for seeds in errors.values() for one in seeds if name in one
        ]
        sets = {
            measured: {**spread(values), "seeds": len(values)}
            for measured, seeds in errors.items()
            if (values := [one[name] for one in seeds if name in one])
        }
        rows.append(
            {
                "candidate": name,
                "sets": sets,
                "ratio": math.exp(statistics.fmean(ratios)) if len(sets) == len(errors) else None,
            }
        )
    return rows


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet")
    parser.add_argument("--sets", default=",".join(DEVELOPMENT), help="default: all development sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--networks", action="store_true", help="also fine-tune the encoder")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help="run folder or name of an encoder")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fit_candidates")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(argv)
    options.sets = options.sets.split(",")
    for name in options.sets:
        if name not in DEVELOPMENT:
            parser.error(f"unknown name {name!r} in --sets; choices: {', '.join(DEVELOPMENT)}")
    return options


def main(argv: list[str] | None = None) -> None:
    """Compute what is missing and write the JSON."""
    options = parse_arguments(argv)
    errors: dict[str, list[dict[str, float]]] = {name: [] for name in options.sets}
    for seed in range(options.seeds):
        for name in options.sets:
            rows = divide(name, options, seed)
            parts = {
                label: keep(prediction_file(options.runs, name, seed, label), compute)
                for label, compute in candidates(rows).items()
            }
            for label, dropout in DROPOUTS.items():
                tuned = prediction_file(options.runs, name, seed, label)
                if options.networks or tuned.is_file():
                    parts[label] = keep(
                        tuned,
                        lambda rows=rows, dropout=dropout: tune_networks(
                            rows, options.encoder, options.runs, dropout
                        ),
                    )
            errors[name].append(measure(rows, parts))
    payload = {
        "question": "out-of-fold error of candidates for molslice fit on its development sets",
        "encoder": Path(options.encoder).name,
        "reference": REFERENCE,
        "folds": FOLDS,
        "seeds": options.seeds,
        "results": summarize(errors),
    }
    print(record("fit_candidates", payload, options.out))


if __name__ == "__main__":
    main()
