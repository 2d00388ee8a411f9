"""Measure what standard forms of molecules change, and how long they take.

    python benchmarks/standardize.py data/gap_xtb/raw/data.csv.gz

Molecules are drawn from a table with a column `smiles`. `distinct` is the number of different molecules after
the standard form. The hard molecules have up to 250 atoms and as many tautomers as a search allows.

Writes `benchmarks/results/standardize.json`.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record

from molslice.chem import STANDARDS
from molslice.chem.standardize import standardize

HARD = {
    "peptide": "NCC(=O)" * 60 + "O",
    "polyketone": "CC(=O)" * 80 + "C",
    "guanidines": "NC(=N)" * 80 + "N",
    "acenes": "c1ccc2cc3ccccc3cc2c1" * 10,
}


def measure(smiles: Sequence[str], choice: str) -> dict[str, Any]:
    """Standardize molecules, and return counts and the times."""
    forms, seconds = [], []
    for text in smiles:
        start = time.process_time()
        forms.append(standardize(text, choice))
        seconds.append(time.process_time() - start)
    return {
        "choice": choice,
        "molecules": len(smiles),
        "changed": sum(form.changed for form in forms),
        "kept": sum(form.kept for form in forms),
        "distinct": len({form.smiles for form in forms}),
        "milliseconds": round(1e3 * float(np.mean(seconds)), 2),
        "longest_seconds": round(max(seconds), 2),
    }


def main() -> None:
    """Write the record."""
    parser = make_parser(__doc__)
    parser.add_argument("table", type=Path, help="a table with a column smiles")
    parser.add_argument("--molecules", type=int, default=3_000)
    options = parser.parse_args()
    table = pd.read_csv(options.table)["smiles"].tolist()
    drawn = [table[place] for place in np.random.default_rng(0).permutation(len(table))[: options.molecules]]
    rows = [measure(drawn, choice) for choice in STANDARDS[1:]]
    hard = {name: measure([text], "tautomer")["longest_seconds"] for name, text in HARD.items()}
    result = {"table": options.table.name, "rows": rows, "hard_seconds": hard}
    print(result)
    print(record("standardize", result, options.out))


if __name__ == "__main__":
    main()
