"""Compare the time of `molslice predict` with the time of `chemprop predict`.

    python benchmarks/prediction.py molecules.smi.gz --models gap-xtb --chemprop chemprop

The first rows of the file are predicted with each program in turn, each in a new process with one thread.
Each round also predicts a few rows, whose time is subtracted, so that loading the program and the model
does not count. Times are medians of the rounds, in processor time for each molecule. Chemprop has its
default size; its weights come from three epochs on made-up targets, which do not affect the time. It needs
an environment of its own; `training_speed.py` shows how to make it. Writes
`benchmarks/results/prediction.json`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prepare import read_smiles
from record import child_seconds, make_parser, median_ratio, record, take_turns

from molslice.chem.featurize import many_molecule_arrays
from molslice.inference.load import load_network

FEW_ROWS = 64
TRAINING_ROWS = 200
MOLSLICE = (sys.executable, "-m", "molslice", "predict")
CHEMPROP = ("--smiles-columns", "smiles", "--accelerator", "cpu")


def write_smiles(path: Path, smiles: Sequence[str]) -> Path:
    """Write a CSV file with a column of SMILES and one of made-up targets."""
    path.write_text("smiles,target\n" + "".join(f"{text},{len(text)}\n" for text in smiles))
    return path


def processor_seconds(command: Sequence[str]) -> float:
    """Run a command with one thread, and return its processor time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    start = child_seconds()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return child_seconds() - start


def train_chemprop(program: str, smiles: Sequence[str], folder: Path) -> Path:
    """Train chemprop for three epochs with its default size, and return its weights."""
    data = write_smiles(folder / "training.csv", smiles)
    command = [program, "train", "--data-path", str(data), "--smiles-columns", "smiles"]
    command += ["--target-columns", "target", "--task-type", "regression", "--epochs", "3"]
    command += ["--accelerator", "cpu", "--output-dir", str(folder / "chemprop")]
    processor_seconds(command)
    return folder / "chemprop" / "model_0" / "best.pt"


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all programs in turn."""
    smiles = read_smiles(options.source, options.rows)
    refused = many_molecule_arrays(smiles).errors  # chemprop would stop at the first
    smiles = [text for row, text in enumerate(smiles) if row not in refused]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many, few = write_smiles(folder / "many.csv", smiles), folder / "few.csv"
        write_smiles(few, smiles[:FEW_ROWS])
        out = str(folder / "out.csv")
        sides = {
            model: [*MOLSLICE, model, "--workers", "0", "--quiet", "--output", out, "--input"]
            for model in options.models
        }
        if options.chemprop:
            weights = train_chemprop(options.chemprop, smiles[:TRAINING_ROWS], folder)
            sides["chemprop"] = [options.chemprop, "predict", "--model-paths", str(weights), *CHEMPROP]
            sides["chemprop"] += ["--preds-path", out, "--test-path"]

        def milliseconds(command: list[str]) -> float:
            seconds = processor_seconds([*command, str(many)]) - processor_seconds([*command, str(few)])
            return 1e3 * seconds / (len(smiles) - FEW_ROWS)

        calls = {name: partial(milliseconds, command) for name, command in sides.items()}
        times = take_turns(calls, options.rounds)
    return {
        "rows": len(smiles),
        "source": options.source.name,
        "parameters": {
            model: sum(weight.numel() for weight in load_network(model).model.parameters())
            for model in options.models
        },
        "milliseconds": {name: statistics.median(values) for name, values in times.items()},
        "rounds": times,
        "ratio_to_chemprop": {
            model: median_ratio(times["chemprop"], times[model])
            for model in options.models
            if "chemprop" in times
        },
    }


def main(argv: list[str] | None = None) -> None:
    """Measure and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("source", type=Path, help="a file of molecules")
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=["gap-xtb"], metavar="NAME,NAME"
    )
    parser.add_argument("--chemprop", help="the program `chemprop`")
    parser.add_argument("--rows", type=int, default=4_096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    print(record("prediction", compare(options), options.out))


if __name__ == "__main__":
    main()
