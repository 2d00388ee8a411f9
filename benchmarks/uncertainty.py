"""Measure how often the intervals and sets of fitted models and of `gap-xtb` hold the measured value.

`molslice fit` without an encoder is fitted to numbers (ESOL, Lipophilicity and the first 5,000 rows of QM9,
gap) and to classes (BBBP, BACE, inhibition of P-gp), with one tenth of the molecules held out at random or
by scaffold, from several seeds. `gap-xtb` is measured on the test splits of the embedded data. Nothing is
chosen or calibrated on test rows.

Fitted models are kept in `--models`: the same command continues after an interruption. `--no-fit` measures
those that are there.
"""

import csv
import gzip
import sys
from pathlib import Path
from typing import Any

from record import ROOT, make_parser, record

from molslice.data import build_dataset
from molslice.fitting import learner_fits as fit_learners
from molslice.fitting.fit import fit
from molslice.inference.load import load_model
from molslice.inference.uncertainty import evaluate_uncertainty

QM9_ROWS = 5_000
SETS = {
    "ESOL": ("moleculenet/esol.csv.gz", "measured log solubility in mols per litre", "log(mol/l)", None),
    "Lipophilicity": ("moleculenet/lipo.csv.gz", "exp", "", None),
    "QM9": ("qm9/train.csv.gz", "gap_ev", "eV", QM9_ROWS),
    "BBBP": ("moleculenet/bbbp.csv.gz", "p_np", "", None),
    "BACE": ("moleculenet/bace.csv.gz", "Class", "", None),
    "P-gp": ("admet/tdc_pgp_broccatelli.csv.gz", "pgp_inhibitor[0/1]", "", None),
}
SPLITS = ("random", "scaffold")
EMBEDDED = ("gap_xtb_100k", "gap_xtb")
GRID_FIELDS = ("by_level", "bins")


def main() -> int:
    """Fit, measure and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet/, admet/ and qm9/")
    parser.add_argument("--models", type=Path, required=True, help="folder for the fitted models")
    parser.add_argument("--embedded", type=Path, default=ROOT / "data", help="folder of the embedded data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-fit", action="store_true", help="measure the models that are there")
    args = parser.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    fits = []
    for seed in range(args.seeds):
        for name in SETS:
            for split in SPLITS:
                folder = model_folder(args.models, name, split, seed)
                if not folder.exists() and not args.no_fit:
                    fit_set(args.data, args.models, name, split, seed)
                if folder.exists():
                    fits.append({"set": name, "division": split, "seed": seed, **measure(folder)})
                    sys.stderr.write(f"{name}, {split}, seed {seed}: {fits[-1]['levels']}\n")
    shipped = [{"set": name, **measure("gap-xtb", root=str(args.embedded / name))} for name in EMBEDDED]
    print(record("uncertainty", {"qm9_rows": QM9_ROWS, "fits": fits, "gap_xtb": shipped}, args.out))
    return 0


def model_folder(models: Path, name: str, split: str, seed: int) -> Path:
    """Return the folder of a fitted model."""
    return models / f"{name.lower().replace(' ', '_')}-{split}-{seed}"


def fit_set(data: Path, models: Path, name: str, split: str, seed: int) -> None:
    """Fit a model to one division of one set."""
    file, target, unit, rows = SETS[name]
    source = data / file
    if rows is not None:
        source = models / f"{name.lower().replace(' ', '_')}.csv"
        with gzip.open(data / file, "rt") as stream, source.open("w", newline="") as written:
            csv.writer(written).writerows(
                line for _, line in zip(range(rows + 1), csv.reader(stream), strict=False)
            )
    fit_learners.BASELINES.clear()  # they are no part of the model
    folder = model_folder(models, name, split, seed)
    options = {"units": unit, "split": split, "seed": seed, "encoder": None, "refit": False}
    fit(source, target, folder, **options, workers=0, quiet=True)


def measure(name: str | Path, **options: str) -> dict[str, Any]:
    """Measure a model on the held-out rows of its data set, with changed options of the data set."""
    model = load_model(name)
    dataset = build_dataset(model.data_config.name, {**model.data_config.options, **options})
    dataset.target_names = model.target_names
    (target,) = evaluate_uncertainty(model, dataset)["targets"]
    numbers = {key: value for key, value in target.items() if key not in GRID_FIELDS}
    return {**numbers, "calibration_rows": len(model.find_calibration().targets[0].truth)}


if __name__ == "__main__":
    sys.exit(main())
