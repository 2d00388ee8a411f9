"""Compare the processor time of training with molslice, PyG, chemprop and Graphormer's pipeline.

    OMP_NUM_THREADS=1 python benchmarks/training_speed.py --data DATA --chemprop-python PYTHON

All sides train on the same molecules in one run and in turn, each an epoch in every round, so that a slow
minute of the machine affects all of them. The times are processor times for each molecule, medians over the
rounds, after one round to warm up:

    molslice      `quickstart` (4 layers of width 64) and `slim` with four attentions, and the configuration
                  for QM9 (4 layers of width 64, batches of 128), training steps from a store as in
                  `molslice bench train`
    PyG           OGB's baseline GIN-virtual with 5 layers of width 600, PyG's data set and loader, batches of
                  256
    chemprop      its default size, in its own environment
    Graphormer    a rewrite of the published pipeline at both sizes of molslice: each molecule is preprocessed
                  in each epoch

Batches have 64 molecules unless stated. Conversion from SMILES and the start of the process are measured
separately. The target is the number of atoms, because the time does not depend on it.

The molecules are drawn at equal distances from QM9 and from ChEMBL in the folder DATA, or without --data from
`data/gap_xtb`. `molslice bench data` measures the data path.
Writes `benchmarks/results/training_speed.json`.

Chemprop needs a separate environment, because it pins an older RDKit:

    python -m venv /tmp/chemprop
    grep -v ^rdkit constraints.txt > /tmp/versions.txt
    /tmp/chemprop/bin/pip install -c /tmp/versions.txt torch chemprop
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from featurizing import read_rows
from record import ROOT, find_commit, make_parser, median_ratio, record, take_turns
from training_sides import Chemprop, GraphormerPipeline, Molecules, Molslice, PygGin, Side

from molslice.bench.training import DEFAULT_ATTENTIONS, plan_entries
from molslice.chem.featurize import molecule_arrays
from molslice.files.cache import file_checksum

SETS = {"qm9": "qm9/train.csv.gz", "chembl": "corpus/smiles_million.smi.gz"}
EMBEDDED = {"gap_xtb": ROOT / "data" / "gap_xtb" / "raw" / "data.csv.gz"}
MODELS = ("quickstart", "slim")
QM9_CONFIG = ROOT / "configs" / "molecule" / "qm9.yaml"
QM9_SETTINGS = {  # 4 x 64 without messages along bonds
    "model.dim": "64",
    "model.ffn_dim": "64",
    "model.local": "null",
    "optimizer.name": "adamw",
}
MAX_ATOMS = 64
EXAMPLE_ROWS, EXAMPLE_EPOCHS = 10_000, 20  # of the training whose whole time is stated


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with qm9/ and corpus/")
    parser.add_argument("--chemprop-python", help="interpreter of an environment with chemprop")
    parser.add_argument("--rows", type=int, default=512, help="molecules of an epoch")
    parser.add_argument("--slow-rows", type=int, default=256, help="molecules of an epoch of PyG")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--attentions", default=DEFAULT_ATTENTIONS)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    files = EMBEDDED
    if options.data is not None:
        files = {name: options.data / path for name, path in SETS.items() if (options.data / path).is_file()}
        if not files:
            parser.error(f"{options.data} has none of {', '.join(SETS.values())}")
    payload: dict[str, Any] = {
        "commit": find_commit(),  # of the code that is loaded, because the checkout may change meanwhile
        "question": "processor time of training on a molecule",
        "threads": options.threads,
        "rounds": options.rounds,
        "example": {"rows": EXAMPLE_ROWS, "epochs": EXAMPLE_EPOCHS},
        "sets": [measure_set(name, file, options) for name, file in files.items()],
    }
    print(record("training_speed", payload, options.out))
    for data_set in payload["sets"]:
        print(data_set["name"])
        for side in data_set["sides"]:
            print(
                f"  {side['name']:35} {side['microseconds']:9.1f} us  {side['molecules_per_second']:8.0f}/s"
            )


def measure_set(name: str, file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides on the molecules of a file."""
    smiles = read_rows(file, options.rows, MAX_ATOMS)
    molecules = Molecules(smiles, [len(molecule_arrays(text).atoms) for text in smiles])
    with tempfile.TemporaryDirectory() as folder:
        sides = list(build_sides(molecules, Path(folder), options))
        try:
            results = measure_sides(sides, options.rounds)
        finally:
            for side in sides:
                side.close()
    return {
        "name": name,
        "file": file.name,
        "file_sha256": file_checksum(file),
        "rows": len(smiles),
        "median_atoms": statistics.median(molecules.atoms),
        "sides": results,
    }


def build_sides(molecules: Molecules, folder: Path, options: argparse.Namespace) -> list[Side]:
    """Build all sides, without chemprop if no interpreter is given."""
    models = options.models.split(",")
    threads = [("trainer.num_threads", str(options.threads))]
    entries = plan_entries(models, options.attentions, overrides=threads)
    entries += plan_entries([], config=QM9_CONFIG, overrides=[*threads, *QM9_SETTINGS.items()])
    sides: list[Side] = [Molslice(entry, molecules, folder) for entry in entries]
    sides.append(PygGin(molecules.first(options.slow_rows)))
    sides += [GraphormerPipeline(model, molecules) for model in models]
    if options.chemprop_python is not None:
        sides.append(Chemprop(options.chemprop_python, molecules, folder, options.threads))
    return sides


def measure_sides(sides: Sequence[Side], rounds: int) -> list[dict[str, Any]]:
    """Train an epoch of each side in every round.

    Returns:
        For each side: microseconds of processor time for each molecule of an epoch, the least and the most
            over the rounds; ratios to every side; the time of the start and of the conversion; and the
            processor seconds of a whole example, a training with all of them.
    """
    epochs = take_turns({side.name: side.train_epoch for side in sides}, rounds + 1)
    times = {  # without the first round, which warms up
        side.name: [seconds / side.molecules for seconds in epochs[side.name][1:]] for side in sides
    }
    results = []
    for side in sides:
        median, start = statistics.median(times[side.name]), side.start_seconds()
        prepare = side.prepare_seconds / side.molecules
        results.append(
            {
                "name": side.name,
                "parameters": side.parameters,
                "rows": side.molecules,
                "microseconds": median * 1e6,
                "least": min(times[side.name]) * 1e6,
                "most": max(times[side.name]) * 1e6,
                "molecules_per_second": 1 / median,
                "start_seconds": start,
                "prepare_microseconds": prepare * 1e6,
                "example_seconds": start + EXAMPLE_ROWS * (prepare + EXAMPLE_EPOCHS * median),
                "times_as_fast_as": {
                    other: median_ratio(times[other], times[side.name])
                    for other in times
                    if other != side.name
                },
            }
        )
    return results


if __name__ == "__main__":
    main()
