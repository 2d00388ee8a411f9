"""Fit the training rows of a benchmark in Polaris' files, and predict and score its test rows.

usage: python polaris_benchmark.py BENCHMARK.json OUT [fast|good|best]

OUT gets the folder `model`, `predictions.json` with the arguments of Polaris' `evaluate`, and `scores.csv`.
"""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics

from molslice import fit, load_model
from molslice.errors import MolsliceError

SCORES: dict[str, Callable] = {  # of values, or of classes
    "mean_absolute_error": metrics.mean_absolute_error,
    "mean_squared_error": metrics.mean_squared_error,
    "r2": metrics.r2_score,
    "pearsonr": lambda truth, predictions: pearsonr(truth, predictions)[0],
    "spearmanr": lambda truth, predictions: spearmanr(truth, predictions)[0],
    "accuracy": metrics.accuracy_score,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f1": metrics.f1_score,
    "mcc": metrics.matthews_corrcoef,
    "cohen_kappa": metrics.cohen_kappa_score,
}
SCORES_OF_PROBABILITIES: dict[str, Callable] = {
    "roc_auc": metrics.roc_auc_score,
    "pr_auc": metrics.average_precision_score,
}


def read_benchmark(path: Path) -> tuple[dict, pd.DataFrame]:
    """Read a benchmark and its table, whose rows are numbered from 0."""
    about = json.loads(path.read_text(encoding="utf-8"))
    # the files name each other by the folder in which they were written
    dataset = json.loads((path.parent / Path(about["dataset"]).name).read_text(encoding="utf-8"))
    table = pd.read_parquet(path.parent / Path(dataset["table"]).name)
    if not isinstance(about["split"][1], dict):  # one test set without a name
        about["split"][1] = {"test": about["split"][1]}
    about["metrics"] = [name if isinstance(name, str) else name["label"] for name in about["metrics"]]
    return about, table.reset_index(drop=True)


def fit_rows(about: dict, table: pd.DataFrame, folder: Path, quality: str) -> None:
    """Fit the training rows, which are all rows that the fit gets to see."""
    smiles, targets = about["input_cols"], about["target_cols"]
    if len(smiles) != 1 or max(about.get("n_classes", {}).values(), default=0) > 2:
        raise MolsliceError("this example has one column of SMILES, and values or two classes as targets")
    rows = folder / "train.csv"
    table.loc[about["split"][0], smiles + targets].to_csv(rows, index=False)
    kinds = [about["target_types"][target] for target in targets]
    fit(rows, targets, folder / "model", smiles_column=smiles, kind=kinds, split="all", quality=quality)


def predict_rows(about: dict, table: pd.DataFrame, folder: Path) -> dict[str, dict]:
    """Return values or classes as `y_pred` and probabilities as `y_prob`, by test set and target."""
    model = load_model(folder / "model")
    answers: dict[str, dict] = {"y_pred": {}, "y_prob": {}}
    for test_set, rows in about["split"][1].items():
        predictions = model.predict_with_errors(list(table.loc[rows, about["input_cols"][0]]))
        for row, error in zip(rows, predictions.errors, strict=True):
            if error is not None:
                raise MolsliceError(f"row {row}: {error}; Polaris takes no missing predictions")
        for values, target in zip(predictions.values.T, about["target_cols"], strict=True):
            if about["target_types"][target] == "classification":
                answers["y_prob"].setdefault(test_set, {})[target] = values.tolist()
                values = (values >= 0.5).astype(int)
            answers["y_pred"].setdefault(test_set, {})[target] = values.tolist()
    return {name: values for name, values in answers.items() if values}


def score(about: dict, table: pd.DataFrame, answers: dict[str, dict]) -> list[tuple]:
    """Compute the metrics on the measured rows of each test set; metrics of several targets are left out."""
    rows = []
    for test_set, numbers in about["split"][1].items():
        for name in about["metrics"]:
            kind, functions = ("y_pred", SCORES) if name in SCORES else ("y_prob", SCORES_OF_PROBABILITIES)
            for target in about["target_cols"] if name in functions else []:
                truth = table.loc[numbers, target].to_numpy(float)
                known = pd.notna(truth)
                if known.any():
                    predictions = pd.Series(answers[kind][test_set][target])[known]
                    rows.append((test_set, target, name, float(functions[name](truth[known], predictions))))
    return rows


def main(benchmark: str, out: str, quality: str = "good") -> None:
    """Run a benchmark and write its files to the new folder `out`."""
    folder = Path(out)
    about, table = read_benchmark(Path(benchmark))
    folder.mkdir(parents=True)
    fit_rows(about, table, folder, quality)
    answers = predict_rows(about, table, folder)
    (folder / "predictions.json").write_text(json.dumps(answers), encoding="utf-8")
    scores = [("test set", "target", "metric", "score"), *score(about, table, answers)]
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(scores)
    for row in scores:
        print(*row)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (MolsliceError, OSError) as error:
        sys.exit(str(error))
