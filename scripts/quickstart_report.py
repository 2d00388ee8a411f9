"""Print the errors of a quickstart run next to the baselines, or its predictions for well-known molecules."""

import argparse
import json
import sys
from pathlib import Path

from molslice import load_model
from molslice.cli.console import text_table
from molslice.tasks.metrics import format_metric

ROOT = Path(__file__).resolve().parents[1]
BASELINES = ROOT / "benchmarks" / "results" / "baselines_gap_xtb.json"
BASELINE_NAMES = {
    "median": "median of the training molecules",
    "morgan": "gradient boosting, Morgan counts",
    "morgan_and_descriptors": "gradient boosting, Morgan counts and descriptors",
}
MOLECULES = {
    "methane": "C",
    "ethanol": "CCO",
    "benzene": "c1ccccc1",
    "naphthalene": "c1ccc2ccccc2c1",
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "indigo": "O=C1/C(=C2/Nc3ccccc3C2=O)Nc2ccccc12",
}


def errors_table(run: Path) -> str:
    """Return a table of training, validation and test MAE of the run and of the baselines."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    ((target, unit),) = summary["units"].items()
    errors = [format_metric(summary[split]["mae"][target]) for split in ("train", "valid", "test")]
    rows = [[f"this run: {summary['attention']}, {summary['parameters']:,} parameters", *errors]]
    if BASELINES.is_file():
        baselines = json.loads(BASELINES.read_text(encoding="utf-8"))["baselines"]
        for name, label in BASELINE_NAMES.items():
            cells = [baselines[name].get(split, {}) for split in ("train", "valid", "test")]
            rows.append([label, *(format_metric(cell.get("mae_mean")) for cell in cells)])
    return text_table([f"MAE in {unit}", "train", "valid", "test"], rows)


def molecules_table(run: Path) -> str:
    """Return a table of the predictions for well-known molecules."""
    model = load_model(run)
    values = model.predict(list(MOLECULES.values()))
    rows = [
        [name, format_metric(value), smiles]
        for (name, smiles), value in zip(MOLECULES.items(), values, strict=True)
    ]
    return text_table(["molecule", model.columns[0], "SMILES"], rows)


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("errors", "molecules"))
    parser.add_argument("run", type=Path, help="a finished run folder")
    arguments = parser.parse_args()
    report = errors_table if arguments.what == "errors" else molecules_table
    print(report(arguments.run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
