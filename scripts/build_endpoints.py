"""Fit the models of molslice/pretrained that learn from measured tables, and describe them.

    python scripts/build_endpoints.py --data TABLES                  # all models of scripts/endpoints.toml
    python scripts/build_endpoints.py --data TABLES --only logbb

A model is fitted twice. The first fit holds a tenth of the molecules out, all with scaffolds that no training
molecule has, and measures the error and the coverage of intervals on them. The second fit learns from all
rows. The folder holds no table and no copy of the encoder; it holds the SMILES of the training molecules and
their values, from which the domain, the intervals and the Gaussian process are computed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd

from molslice import fit
from molslice.fitting.card import NAMES
from molslice.folders.fitted import CARD, ENCODER, HELD_OUT, ROWS, TABLE_ROWS
from molslice.pretrained import ABOUT, DEFAULT_ENCODER
from molslice.tasks.metrics import METRIC_LABELS
from molslice.uncertainty.rounding import rounded_error

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (ROWS, TABLE_ROWS, HELD_OUT, CARD)
LEVEL = 0.9
CARD_TEXT = """\
# {name}

Predicts the {summary}, from SMILES.

```bash
molslice predict {name} --smiles CCO --interval 0.9 --domain
```

**Targets.**

{targets}

**Data.** {data}, <{source}>, license: {license}. The model learned from all rows with a value.

**Error.** {label} on held-out molecules, whose scaffolds no training molecule has, of a model that was fitted
to the other nine tenths. Coverage is the share of them whose value is in the {level} interval or set.

{table}

A number after ± is a standard error.

**Model.** A stack of boosting, extra trees and a Gaussian process on RDKit's descriptors, Morgan counts and
the embedding of `{encoder}`, written by `molslice fit` with its defaults (`scripts/build_endpoints.py`).

**Limits.** {use} `--domain` says which molecules are unlike the training molecules. Do not use the model for
decisions about safety or health.
"""


def main(argv: list[str] | None = None) -> int:
    """Build the chosen models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--recipes", type=Path, default=ROOT / "scripts" / "endpoints.toml")
    parser.add_argument("--only", action="append", help="name of a model; repeatable")
    parser.add_argument("--out", type=Path, default=ROOT / "molslice" / "pretrained")
    arguments = parser.parse_args(argv)
    recipes = tomllib.loads(arguments.recipes.read_text(encoding="utf-8"))
    unknown = {*(arguments.only or ())} - recipes.keys()
    if unknown:
        parser.error(f"unknown models: {', '.join(sorted(unknown))}; choices: {', '.join(recipes)}")
    for name in arguments.only or recipes:
        build(name, recipes[name], arguments.data, arguments.out)
    return 0


def build(name: str, recipe: dict[str, Any], data: Path, out: Path) -> None:
    """Fit a model, measure it, and write its folder under `out`."""
    targets = recipe["targets"]
    names = [target["name"] for target in targets.values()]
    units = [target["unit"] for target in targets.values()]
    with tempfile.TemporaryDirectory() as scratch:
        table, measured, final = (
            Path(scratch) / file_name for file_name in (f"{name}.csv", "measured", "final")
        )
        columns = {recipe.get("smiles", "smiles"): "smiles", **dict(zip(targets, names, strict=True))}
        rows = pd.read_csv(data / recipe["table"], usecols=[*columns])
        rows.set_axis([columns[name] for name in rows.columns], axis=1).to_csv(table, index=False)
        shared = {"smiles_column": "smiles", "units": units, "quiet": True}
        record = fit(table, names, measured, split="scaffold", refit=False, **shared)
        counts = [
            result["train_rows"] for result in fit(table, names, final, split="all", **shared)["results"]
        ]
        about = describe(recipe, record, coverages(measured), counts)
        for file_name in LEFT_OUT:
            (final / file_name).unlink(missing_ok=True)
        shutil.rmtree(final / ENCODER)
        (final / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        (final / "README.md").write_text(card(name, recipe, about, record), encoding="utf-8")
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(final, out / name)


def coverages(folder: Path) -> list[float]:
    """Return the share of held-out values in their intervals or sets, for each target."""
    command = [sys.executable, "-m", "molslice", "evaluate", str(folder), "--uncertainty", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [
        next(level["coverage"] for level in target["levels"] if level["level"] == LEVEL)
        for target in result["uncertainty"]["targets"]
    ]


def describe(
    recipe: dict[str, Any], record: dict[str, Any], covered: list[float], counts: list[int]
) -> dict[str, Any]:
    """Return the content of `about.json`."""
    targets = [
        {
            "name": result["target"],
            "unit": result["unit"],
            "metric": result["metric"],
            "error": result["test"]["molslice fit"],
            "standard_error": result["standard_errors"]["test"]["molslice fit"],
            "test_rows": result["test_rows"],
            "coverage": coverage,
            "train_rows": count,
        }
        for result, coverage, count in zip(record["results"], covered, counts, strict=True)
    ]
    about = {key: recipe[key] for key in ("summary", "data", "source", "license")}
    return {**about, "split": "molecules with other scaffolds", "targets": targets}


def card(name: str, recipe: dict[str, Any], about: dict[str, Any], record: dict[str, Any]) -> str:
    """Return the model card."""
    label = " or ".join(sorted({METRIC_LABELS[result["metric"]] for result in record["results"]}))
    lines = [
        f"| target | rows | held out | {label} | baseline: random forest | baseline: boosting | coverage |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for target, result in zip(about["targets"], record["results"], strict=True):
        errors, spreads = result["test"], result["standard_errors"]["test"]
        cells = [
            target["name"],
            f"{target['train_rows']:,}",
            f"{target['test_rows']:,}",
            *(rounded_error(errors[model], spreads[model]) for model in NAMES),
            f"{target['coverage']:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return CARD_TEXT.format(
        name=name,
        label=label,
        level=f"{LEVEL:.0%}",
        targets="\n".join(f"- {target['name']}: {target['text']}" for target in recipe["targets"].values()),
        table="\n".join(lines),
        encoder=DEFAULT_ENCODER,
        **{key: recipe[key] for key in ("summary", "data", "source", "license", "use")},
    )


if __name__ == "__main__":
    sys.exit(main())
