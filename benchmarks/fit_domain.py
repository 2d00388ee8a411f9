"""Measure the error of `molslice fit --quality fast` like the training molecules, at the edge, and outside.

    python benchmarks/fit_domain.py --data DATA

For each of three sets, 600 training rows are drawn in two ways: at random, and as the molecules that are most
similar to eight drawn ones, as in a project with few chemical series. 1,500 other rows are predicted.

Writes `benchmarks/results/fit_domain.json`.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record, run_all

from molslice.chem.neighbors import CountIndex, describe
from molslice.chem.smiles import ChemError
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.uncertainty.similarity_rule import PLACES

TRAIN, TEST, SEEDS = 600, 1_500, 8  # rows; molecules around which a series is drawn
MOST = 4_000  # rows of a set
LEVEL = 0.9
SETS = {
    "AqSolDB": ("admet/tdc_solubility_aqsoldb.csv.gz", "logS[log10(mol/L)]"),
    "Lipophilicity": ("moleculenet/lipo.csv.gz", "exp"),
    "Ki of thrombin": ("moleculeace/CHEMBL204_Ki.csv.gz", "pki"),
}
DRAWS = ("random", "series")


def main() -> int:
    """Fit all models, and record their errors by domain."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with moleculenet, admet, moleculeace"
    )
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    calls = [(args.data, name, draw) for draw in DRAWS for name in SETS]
    fits = {}
    for (_, name, draw), result in run_all(measure, calls, args.processes):
        fits[name, draw] = result
        sys.stderr.write(f"{result}\n")
    sizes = {"train_rows": TRAIN, "test_rows": TEST, "level": LEVEL, "quality": "fast"}
    print(record("fit_domain", {**sizes, "fits": [fits[call[1:]] for call in calls]}, args.out))
    return 0


def measure(data: Path, name: str, draw: str) -> dict[str, Any]:
    """Fit one model, and return its rule with error and coverage by domain."""
    train, test = drawn(data / SETS[name][0], SETS[name][1], draw)
    with tempfile.TemporaryDirectory() as work:
        table, folder = Path(work) / "train.csv", Path(work) / "model"
        train.to_csv(table, index=False)
        about = fit(table, "y", folder, quality="fast", split="all", quiet=True, workers=0)
        model = load_model(folder)
        predicted = model.predict_with_errors(test["smiles"].tolist(), interval=LEVEL, domain=True)
    assert predicted.lower is not None
    assert predicted.upper is not None
    assert predicted.domain is not None
    truth = test["y"].to_numpy()
    off = np.abs(predicted.values[:, 0] - truth)
    held = (predicted.lower[:, 0] <= truth) & (truth <= predicted.upper[:, 0])
    places = np.array([row_domain.place if row_domain else "" for row_domain in predicted.domain])
    rows = [
        {
            "domain": place,
            "rows": int((places == place).sum()),
            "error": float(off[places == place].mean()),
            "coverage": float(held[places == place].mean()),
        }
        for place in PLACES
        if (places == place).any()
    ]
    cross_validated = about["results"][0]["cross_validated"]
    rule = {"edge": about["domain"]["edge"], "like": about["domain"]["like"]}
    return {"set": name, "draw": draw, **rule, "cross_validated": cross_validated, "domains": rows}


def drawn(path: Path, target: str, draw: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw training and test rows, with columns `smiles` and `y`."""
    table = pd.read_csv(path, usecols=["smiles", target]).dropna().drop_duplicates("smiles")
    table = table.rename(columns={target: "y"})
    random = np.random.default_rng(0)
    table = table.iloc[random.permutation(len(table))[:MOST]].reset_index(drop=True)
    if draw == "series":
        described = [_describe(text) for text in table["smiles"]]
        table = table[[counts is not None for counts in described]].reset_index(drop=True)
        index = CountIndex.from_counts(np.stack([counts for counts in described if counts is not None]))
        nearest = np.max([index.similarities(index.dense(row)) for row in range(SEEDS)], axis=0)
        order = np.argsort(-nearest, kind="stable")
        table = table.iloc[[*order[:TRAIN], *random.permutation(order[TRAIN:])]]
    return table[:TRAIN], table[TRAIN : TRAIN + TEST]


def _describe(smiles: str) -> np.ndarray | None:
    try:
        return describe(smiles).counts
    except ChemError:
        return None


if __name__ == "__main__":
    sys.exit(main())
