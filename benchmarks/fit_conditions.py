"""Measure what the condition of a measurement, a temperature, is worth in `molslice fit`, on a known law.

    python benchmarks/fit_conditions.py esol.csv.gz:TARGET

Each molecule of a table of measured solubilities gets four temperatures from 278 to 333 K. Its solubility at
them follows van 't Hoff's law from the measured value at 298.15 K. The enthalpy of solution, in kJ/mol, is
15 + 7 donors + 6 aromatic rings + 2 sqrt(heavy atoms), with a standard deviation of 3 that no structure
tells, and each value has a noise of 0.05. A tenth of the molecules is new. Models with and without the column
of the temperature are fitted to the same rows, without an encoder. Besides the error of the values, the error
of their differences between the temperatures of a molecule is measured, which the measured value has no part
in.

Writes `benchmarks/results/fit_conditions.json`.
"""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors
from record import make_parser, record

from molslice.fitting.fit import fit
from molslice.inference.load import load_model

GAS_CONSTANT = 8.314462618e-3  # kJ / (mol K)
TEMPERATURES = 4  # of each molecule


def enthalpy(smiles: str, draw: np.random.Generator) -> float:
    """Return the enthalpy of solution of a molecule, in kJ/mol."""
    molecule = Chem.MolFromSmiles(smiles)
    donors, rings = rdMolDescriptors.CalcNumHBD(molecule), rdMolDescriptors.CalcNumAromaticRings(molecule)
    return (
        15.0 + 7.0 * donors + 6.0 * rings + 2.0 * molecule.GetNumHeavyAtoms() ** 0.5 + draw.normal(0.0, 3.0)
    )


def make_rows(path: str, target: str, count: int) -> pd.DataFrame:
    """Return the rows of the molecules at their temperatures, with the split in `part`."""
    table = pd.read_csv(path).drop_duplicates("smiles")
    draw = np.random.default_rng(0)
    rows = []
    for number, place in enumerate(draw.permutation(len(table))[:count]):
        smiles, at_298 = table["smiles"].iloc[place], float(table[target].iloc[place])
        slope = -enthalpy(smiles, draw) / (GAS_CONSTANT * np.log(10.0))
        for temperature in draw.uniform(278.0, 333.0, TEMPERATURES):
            value = at_298 + slope * (1.0 / temperature - 1.0 / 298.15) + draw.normal(0.0, 0.05)
            rows.append((smiles, value, temperature, "test" if number % 10 == 0 else "train"))
    return pd.DataFrame(rows, columns=["smiles", "logS", "temperature", "part"])


def measure(rows: pd.DataFrame, conditions: list[str], place: Path) -> dict[str, Any]:
    """Fit with some conditions, and return the errors on the new molecules."""
    table, folder = place / "rows.csv", place / "_".join(["model", *conditions])
    rows.to_csv(table, index=False, quoting=csv.QUOTE_MINIMAL)
    about = fit(
        table,
        "logS",
        folder,
        conditions=conditions,
        split="part",
        duplicates="keep",
        encoder=None,
        quiet=True,
    )
    new = rows[rows["part"] == "test"]
    predicted = load_model(folder).predict(
        new["smiles"], conditions={name: new[name] for name in conditions} if conditions else None
    )
    errors = (predicted - np.asarray(new["logS"])).reshape(-1, TEMPERATURES)
    return {
        "conditions": conditions,
        "mae": float(np.abs(errors).mean()),
        "mae_of_differences": float(np.abs(errors - errors.mean(1, keepdims=True)).mean()),
        "weights": about["results"][0]["weights"],
        "baselines": {
            name: error for name, error in about["results"][0]["test"].items() if name != "molslice fit"
        },
        "seconds": about["seconds"],
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("entry", metavar="FILE:TARGET")
    parser.add_argument("--molecules", type=int, default=300)
    options = parser.parse_args(argv)
    path, _, target = options.entry.rpartition(":")
    table = make_rows(path, target, options.molecules)
    rows = []
    for conditions in ([], ["temperature"]):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(table, conditions, Path(folder)))
        print(rows[-1], flush=True)
    settings = {"molecules": options.molecules, "temperatures": TEMPERATURES}
    print(record("fit_conditions", {**settings, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
