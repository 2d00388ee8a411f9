"""Compare training steps with collated batches, with batches of fixed shapes, and compiled, on a CPU.

    molslice prepare data/gap_xtb/raw/data.csv.gz --target homolumogap --out runs/fixed_shapes/gap
    python benchmarks/fixed_shapes.py --store runs/fixed_shapes/gap

Collated batches have any shape and the shortest paths as lists of bonds. Batches of fixed shapes are gathered
by row numbers, and the paths are codes, as on a GPU. Compiled steps are of fixed shapes. All forms train the
same model on the same rows, in one process and in turn, with `softmax` and batches of 64 molecules. `encoder`
has the sizes of the encoder that `molslice fit` fine-tunes. The rates are molecules per second of processor
time. Writes `benchmarks/results/fixed_shapes.json`.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import make_parser, median_and_range, median_ratio, record, take_turns

from molslice.bench.training import plan_entries
from molslice.bench.training_worker import Training
from molslice.data.molecules.store import MoleculeStore
from molslice.training.fabric import quiet_lightning

FORMS = {
    "collated": [("training.fixed_shapes", "false")],
    "fixed": [("training.fixed_shapes", "true")],
    "compiled": [("training.fixed_shapes", "true"), ("training.compile", "true")],
}
ENCODER = [
    ("model.num_layers", "6"),
    ("model.dim", "192"),
    ("model.ffn_dim", "384"),
    ("model.num_heads", "8"),
]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all forms of each model in turn."""
    store = MoleculeStore.open(options.store, verify=False)
    rates: dict[tuple[str, str], Callable[[], float]] = {}
    for model in options.models.split(","):
        for form, overrides in FORMS.items():
            sizes = ENCODER if model == "encoder" else []
            name = "quickstart" if model == "encoder" else model
            (entry,) = plan_entries([name], "softmax", overrides=[*overrides, *sizes])
            training = Training(entry.config, store)
            stream = training.stream()
            rates[model, form] = partial(rate_of, training, stream, options.steps)
    for (
        measure_rate
    ) in rates.values():  # the first steps take longer; compiling one model discards the others
        measure_rate()
    values = take_turns(rates, options.rounds)
    return [
        {
            "model": model,
            **{form: median_and_range(values[model, form]) for form in FORMS},
            "ratio": median_ratio(values[model, "fixed"], values[model, "collated"]),
            "ratio_compiled": median_ratio(values[model, "compiled"], values[model, "collated"]),
        }
        for model in options.models.split(",")
    ]


def rate_of(training: Training, stream: Any, steps: int) -> float:  # noqa: ANN401
    """Return the molecules of some steps per second of processor time."""
    molecules, start = 0, time.process_time()
    for _ in range(steps):
        batch = next(stream)
        training.step(batch)
        molecules += batch.rows
    return molecules / (time.process_time() - start)


def main(argv: list[str] | None = None) -> Path:
    """Measure and record."""
    parser = make_parser(__doc__)
    parser.add_argument("--store", type=Path, required=True, help="prepared molecules")
    parser.add_argument(
        "--models", default="quickstart,slim,encoder", help="encoder, or names of `bench train`"
    )
    parser.add_argument("--steps", type=int, default=60, help="steps of each model and form in a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    with quiet_lightning():
        rows = measure(options)
    payload = {"steps": options.steps, "rounds": options.rounds, "threads": 1, "rows": rows}
    return record("fixed_shapes", payload, options.out)


if __name__ == "__main__":
    print(main())
