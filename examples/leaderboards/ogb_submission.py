"""Write OGB's submission files of PCQM4M from tables that `molslice predict` wrote.

usage: python ogb_submission.py tables ROOT TABLES          TABLES/test-dev.csv, TABLES/test-challenge.csv
       python ogb_submission.py files ROOT PREDICTED OUT    PREDICTED has the predicted table of each split

ROOT is the folder of OGB's archive, with `split_dict.pt` and `raw/data.csv.gz`. PCQM4M-LSC has the
split `test` instead.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from molslice.data.molecules.leaderboard import SUBMISSIONS, Version, write_submission
from molslice.data.molecules.ogb_split import read_split_file
from molslice.errors import MolsliceError


def scored_splits(root: Path) -> tuple[Version, dict[str, np.ndarray]]:
    """Return the version, `v1` or `v2`, and the rows of the splits that OGB scores."""
    splits = read_split_file(root / "split_dict.pt")
    version: Version = "v2" if "test-dev" in splits else "v1"
    return version, {name: splits[name] for known, name in SUBMISSIONS if known == version}


def tables(root: str, folder: str) -> None:
    """Write the number and SMILES of each row of a split."""
    molecules = pd.read_csv(Path(root, "raw", "data.csv.gz"), usecols=["idx", "smiles"])
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, rows in scored_splits(Path(root))[1].items():
        molecules.iloc[rows].to_csv(Path(folder, f"{name}.csv"), index=False)


def files(root: str, predicted: str, folder: str) -> None:
    """Write the files that `save_test_submission` of OGB's evaluator writes, after all tables are checked."""
    version, splits = scored_splits(Path(root))
    gaps = {}
    for name, rows in splits.items():
        path = Path(predicted, f"{name}.csv")
        table = pd.read_csv(path)
        if not np.array_equal(table["idx"], rows):
            raise MolsliceError(f"{path}: its rows are not the rows of the split {name}")
        if failed := np.count_nonzero(table["error"].notna()):
            raise MolsliceError(f"{path}: {failed} rows have no prediction")
        (column,) = [column for column in table if column not in ("idx", "smiles", "error")]
        gaps[name] = table[column].to_numpy()
    for name, values in gaps.items():
        print(write_submission(folder, values, version, name))


if __name__ == "__main__":
    action, *paths = sys.argv[1:] or [""]
    actions = {("tables", 2): tables, ("files", 3): files}
    if (action, len(paths)) not in actions:
        sys.exit(__doc__)
    try:
        actions[action, len(paths)](*paths)
    except (MolsliceError, OSError) as error:
        sys.exit(str(error))
