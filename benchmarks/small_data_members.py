"""The methods that `small_data.py` compares. Each predicts the test rows of one division of one set.

A member gets the rows of train, val and test as one CSV and as arrays. Members that need no validation rows
train on train and val together, as a user would.
"""

import csv
import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import ROOT, other_environment
from small_data_sets import Molecules, write_rows

from molslice.data.sequences import keep_arrays
from molslice.data.target_values import is_log_normal
from molslice.fitting.fit import fit
from molslice.fitting.learner_fits import BASELINES
from molslice.fitting.networks import RECIPE
from molslice.inference.load import load_model, load_network
from molslice.learners import Features
from molslice.learners.features import NormalScores
from molslice.training.run import train
from molslice.training.start import load_run_config

CHEMPROP_EPOCHS, CHEMPROP_MODELS = 50, 5
SCRATCH_EPOCHS = 60
SVM_STRENGTHS = [0.3, 1.0, 3.0, 10.0, 30.0]
SCRATCH_MODEL = {"num_layers": 4, "dim": 64, "ffn_dim": 64, "num_heads": 4}


@dataclass(frozen=True, slots=True)
class Work:
    """One division of one set.

    Attributes:
        molecules: All rows of the set.
        kind: `regression` or `classification`.
        parts: Rows of train, val and test.
        seed: Seed of the member.
        folder: Empty folder for files.
        encoder: Run folder or name of a pretrained encoder; None without one.
        chemprop: Command of chemprop; None if it is not installed.
        minimol: Python of an environment with minimol; None if it is not installed.
        cache: Folder of the fingerprints of minimol.
        threads: Number of threads.
    """

    molecules: Molecules
    kind: str
    parts: Mapping[str, np.ndarray]
    seed: int
    folder: Path
    encoder: str | None
    chemprop: str | None
    minimol: str | None
    cache: Path
    threads: int

    @property
    def known(self) -> np.ndarray:
        """Rows of train and val."""
        return np.sort(np.concatenate([self.parts["train"], self.parts["val"]]))

    @property
    def test_smiles(self) -> list[str]:
        """SMILES of the test rows."""
        return [self.molecules.smiles[row] for row in self.parts["test"]]

    @property
    def columns(self) -> list[str]:
        """Names of the target columns in the table that `write_rows` makes."""
        return [f"t{index}" for index in range(len(self.molecules.names))]


def _by_target(work: Work, predict: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Return predictions [n, T]; `predict` gets the training rows that have a target, and all its values."""
    known, targets = work.known, work.molecules.values.T
    return np.stack([predict(known[np.isfinite(values[known])], values) for values in targets], axis=1)


def _baseline(work: Work, name: str) -> np.ndarray:
    """Scikit-learn with its defaults, on descriptors and Morgan counts."""
    features, test, classes = work.molecules.features, work.parts["test"], work.kind == "classification"
    return _by_target(
        work, lambda rows, values: BASELINES[name](features, rows, test, values, classes, work.seed)
    )


def run_catboost(work: Work) -> np.ndarray:
    """CatBoost with its defaults, on descriptors and counts, and on logarithms where `fit` takes them."""
    matrix, test, classes = (
        work.molecules.features.matrix(),
        work.parts["test"],
        work.kind == "classification",
    )
    options: dict[str, Any] = {"classes": classes, "seed": work.seed, "threads": work.threads}

    def predict(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        return _on_scale(
            values[rows],
            classes,
            lambda learned: fit_catboost(matrix[rows], learned, matrix[test], **options),
        )

    return _by_target(work, predict)


def fit_catboost(
    known: np.ndarray, values: np.ndarray, test: np.ndarray, *, classes: bool, seed: int, threads: int
) -> np.ndarray:
    """Fit CatBoost with its defaults to features [n, C], and predict [m, C]: numbers or probabilities [m]."""
    from catboost import CatBoostClassifier, CatBoostRegressor  # pyright: ignore[reportMissingImports]

    options: dict[str, Any] = {"random_seed": seed, "thread_count": threads, "verbose": False}
    options |= {"allow_writing_files": False}
    if classes:
        return CatBoostClassifier(**options).fit(known, values).predict_proba(test)[:, 1]
    return CatBoostRegressor(**options).fit(known, values).predict(test)


def run_linear(work: Work) -> np.ndarray:
    """Ridge or logistic regression on scores of descriptors and on counts, and on logarithms as `fit`."""
    return _by_scores(
        work, lambda train, values, test: fit_linear(train, values, test, work.kind == "classification")
    )


def run_svm(work: Work) -> np.ndarray:
    """A support vector machine on the same features; its `C` is chosen by cross-validation."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC, SVR

    choices = {"C": SVM_STRENGTHS}

    def predict(train: np.ndarray, values: np.ndarray, test: np.ndarray) -> np.ndarray:
        if work.kind == "classification":
            search = GridSearchCV(SVC(), choices, scoring="roc_auc")
            return search.fit(train, values).decision_function(test)
        mean, spread = values.mean(), values.std() or 1.0
        search = GridSearchCV(SVR(), choices, scoring="neg_mean_absolute_error")
        return search.fit(train, (values - mean) / spread).predict(test) * spread + mean

    return _by_scores(work, predict)


def _by_scores(work: Work, predict: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Return predictions [n, T] by features of training rows, their values, and features of test rows."""
    features, test, classes = work.molecules.features, work.parts["test"], work.kind == "classification"

    def predict_target(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        train, held_out = _scores(features, rows, rows), _scores(features, rows, test)
        return _on_scale(values[rows], classes, lambda learned: predict(train, learned, held_out))

    return _by_target(work, predict_target)


def _scores(features: Features, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return normal scores of descriptors by the training rows, and counts, [n, C]."""
    scores = NormalScores.of(features.descriptors[train])(features.descriptors[rows])
    return np.hstack([scores, features.counts[rows].astype(np.float64)])


def _on_scale(values: np.ndarray, classes: bool, predict: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Predict from values, or from their logarithms where `fit` takes them."""
    if classes or not is_log_normal(values):
        return predict(values)
    return 10.0 ** predict(np.log10(values))


def _fit(work: Work, quality: str, encoder: str | None) -> np.ndarray:
    """`molslice fit`; it never sees the test rows."""
    table, model = work.folder / "known.csv", work.folder / "model"
    write_rows(table, work.molecules, {**work.parts, "train": work.known}, ["train"])
    fit(
        table,
        work.columns,
        model,
        kind="classification" if work.kind == "classification" else "regression",
        split="split",
        seed=work.seed,
        encoder=encoder,
        quality=quality,
        workers=0,
        quiet=True,
    )
    return _predict(work, model)


def run_chemprop(work: Work) -> dict[str, np.ndarray]:
    """Chemprop with its defaults: an ensemble of five, and its first model alone."""
    assert work.chemprop is not None
    table, out = work.folder / "rows.csv", work.folder / "chemprop"
    write_rows(table, work.molecules, work.parts)
    options = {
        "--data-path": table,
        "--output-dir": out,
        "--task-type": work.kind,
        "--smiles-columns": "smiles",
        "--splits-column": "split",
        "--epochs": CHEMPROP_EPOCHS,
        "--ensemble-size": CHEMPROP_MODELS,
        "--num-workers": 0,
        "--accelerator": "cpu",
        "--pytorch-seed": work.seed,
        "--data-seed": work.seed,
    }
    command = [work.chemprop, "train", *(str(word) for item in options.items() for word in item)]
    command += ["--remove-checkpoints", "-q", "--target-columns", *work.columns]
    _run_program(command, work.folder, work.threads)
    members = [
        read_predictions(out / f"model_{index}" / "test_predictions.csv", work.columns)
        for index in range(CHEMPROP_MODELS)
    ]
    return {"chemprop": members[0], "chemprop ensemble": np.mean(members, axis=0)}


def _run_program(command: Sequence[str | Path], folder: Path, threads: int) -> None:
    """Run a program of another environment in a folder, where `program.log` has its output."""
    with open(folder / "program.log", "w") as log:
        variables = other_environment(threads)
        subprocess.run(command, check=True, stdout=log, stderr=log, cwd=folder, env=variables)


def read_predictions(file: Path, columns: list[str]) -> np.ndarray:
    """Read the columns of predictions: float64 [n, T]."""
    with file.open(newline="", encoding="utf-8") as stream:
        return np.array([[float(row[name]) for name in columns] for row in csv.DictReader(stream)])


def run_scratch(work: Work) -> np.ndarray:
    """A small molslice encoder from random weights."""
    model = {**SCRATCH_MODEL, "dropout": 0.1, "attention_dropout": 0.0}
    return _train(work, {"model": model, **training_recipe(SCRATCH_EPOCHS, None)})


def run_tuned(work: Work) -> np.ndarray:
    """The pretrained encoder, all weights trained, one model."""
    assert work.encoder is not None
    return _train(work, {"model": RECIPE["model"], **training_recipe("auto", work.encoder)})


def training_recipe(epochs: int | str, encoder: str | None) -> dict[str, Any]:
    """Return the settings of `molslice fit` that train a network on a small measured set.

    Args:
        epochs: Number of epochs, or `auto`.
        encoder: Run folder or name of a pretrained encoder to start from; None for random weights.
    """
    optimizer: dict[str, Any] = dict(RECIPE["optimizer"])
    recipe: dict[str, Any] = {
        "optimizer": optimizer,
        "training": {**RECIPE["training"], "max_epochs": epochs},
    }
    if encoder is None:
        del optimizer["layer_decay"]
    else:
        recipe["start"] = {"model": encoder}
    return recipe


def _train(work: Work, settings: dict[str, Any]) -> np.ndarray:
    table, run = work.folder / "rows.csv", work.folder / "run"
    write_rows(table, work.molecules, work.parts)
    mapping = {
        "data": {
            "name": "csv",
            "path": str(table),
            "target_columns": work.columns,
            "kind": work.kind,
            "split": {"kind": "column", "column": "split"},
            "cache_dir": str(work.folder / "cache"),
        },
        "trainer": {"accelerator": "cpu", "num_threads": work.threads},
        "seed": work.seed,
        **settings,
    }
    config = work.folder / "run.yaml"
    config.write_text(json.dumps(mapping), encoding="utf-8")  # JSON is YAML
    train(load_run_config(config), run, quiet=True)
    return _predict(work, run)


def _predict(work: Work, model: Path) -> np.ndarray:
    """Predict the test rows with a trained model: float32 [n, T]."""
    return load_model(model).predict(work.test_smiles).reshape(len(work.test_smiles), -1)


def run_frozen(work: Work) -> np.ndarray:
    """A linear model on the embeddings of the pretrained encoder."""
    assert work.encoder is not None
    encoder = load_network(work.encoder)
    known = encoder.embed([work.molecules.smiles[row] for row in work.known])
    return _fit_embeddings(work, known, encoder.embed(work.test_smiles))


def run_minimol(work: Work) -> np.ndarray:
    """A linear model on the fingerprints of MiniMol, which are computed once for all jobs of a set."""
    smiles, minimol = work.molecules.smiles, work.minimol
    assert minimol is not None
    identity = {"minimol": hashlib.sha256("\n".join(smiles).encode()).hexdigest()}

    def embed() -> dict[str, np.ndarray]:
        return {"fingerprints": embed_minimol(minimol, smiles, work.folder, work.threads)}

    fingerprints = keep_arrays([work.cache], identity, embed)["fingerprints"]
    return _fit_embeddings(work, fingerprints[work.known], fingerprints[work.parts["test"]])


def embed_minimol(python: str, smiles: Sequence[str], folder: Path, threads: int) -> np.ndarray:
    """Compute the fingerprints of MiniMol with the interpreter of its environment: float32 [n, 512]."""
    lines, vectors = folder / "molecules.smi", folder / "fingerprints.npy"
    lines.write_text("\n".join(smiles), encoding="utf-8")
    command = [python, ROOT / "benchmarks" / "minimol_embed.py", lines, vectors]
    _run_program(command, folder, threads)
    return np.load(vectors)


def _fit_embeddings(work: Work, known: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Fit a linear model to the embeddings of the known rows, and predict the test rows: float64 [n, T]."""
    values = work.molecules.values[work.known]
    columns = [
        fit_linear(known, values[:, index], test, work.kind == "classification")
        for index in range(values.shape[1])
    ]
    return np.stack(columns, axis=1)


def fit_linear(vectors: np.ndarray, values: np.ndarray, test: np.ndarray, classes: bool) -> np.ndarray:
    """Fit ridge or logistic regression, its strength chosen by cross-validation, and predict.

    Args:
        vectors: Features of the training rows, [n, E].
        values: Targets [n], NaN where missing.
        test: Features of the test rows, [m, E].
        classes: Whether the targets are 0 and 1.

    Returns:
        Predictions, or probabilities of class 1, float64 [m].
    """
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known = np.isfinite(values)
    if not classes:
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 15)))
        return model.fit(vectors[known], values[known]).predict(test)
    strengths: Any = np.logspace(-5, 1, 7)
    logistic = LogisticRegressionCV(Cs=strengths, cv=5, max_iter=2000, scoring="roc_auc")
    model = make_pipeline(StandardScaler(), logistic)
    return model.fit(vectors[known], values[known]).predict_proba(test)[:, 1]


@dataclass(frozen=True, slots=True)
class Member:
    """A method of the comparison.

    Attributes:
        label: Its label in the result.
        predict: Trains and predicts the test rows [n, T], or the rows of several labels.
        needs: The attribute of `Work` without which it cannot run.
    """

    label: str
    predict: Callable[[Work], np.ndarray | dict[str, np.ndarray]]
    needs: str | None = None

    def run(self, work: Work) -> dict[str, np.ndarray]:
        """Return the predictions of each label."""
        predicted = self.predict(work)
        return predicted if isinstance(predicted, dict) else {self.label: predicted}


MEMBERS = {
    "forest": Member("forest", lambda work: _baseline(work, "random forest")),
    "boosting": Member("boosting", lambda work: _baseline(work, "boosting")),
    "fit": Member("fit", lambda work: _fit(work, "best", work.encoder), "encoder"),
    "good": Member("fit good", lambda work: _fit(work, "good", work.encoder), "encoder"),
    "fast": Member("fit fast", lambda work: _fit(work, "fast", work.encoder), "encoder"),
    "catboost": Member("catboost", run_catboost),
    "linear": Member("linear", run_linear),
    "svm": Member("svm", run_svm),
    "plain": Member("fit without encoder", lambda work: _fit(work, "good", None)),
    "chemprop": Member("chemprop", run_chemprop, "chemprop"),
    "scratch": Member("scratch", run_scratch),
    "frozen": Member("frozen", run_frozen, "encoder"),
    "minimol": Member("minimol", run_minimol, "minimol"),
    "tuned": Member("tuned", run_tuned, "encoder"),
}
