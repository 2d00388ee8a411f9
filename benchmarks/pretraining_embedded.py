"""Train on the embedded data from pretrained encoders and from random weights, for the same number of steps.

Each encoder is fine-tuned on the gaps of `data/gap_xtb`. The same model with the same settings, but from
random weights and without smaller rates in the lower layers, is trained beside it. The weights of each run
are those of the epoch with the lowest validation error, and the error is that of the test split.

    python benchmarks/pretraining_embedded.py encoder-small runs/encoder_slice_sort

The encoders must not have seen the valid and test molecules; `scripts/make_corpus.py --exclude data/gap_xtb`
leaves them out. The program continues where it was stopped. Writes
`benchmarks/results/pretraining_embedded.json`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from record import record, spread

from molslice.config import config_from_mapping, config_to_mapping
from molslice.folders.run import read_run
from molslice.inference.load import find_model
from molslice.training.run import train
from molslice.training.start import load_run_config

ROOT = Path(__file__).resolve().parents[1]
STARTS = ("random weights", "pretrained")
OPTIMIZER = {
    "lr": 1e-3,
    "weight_decay": 0.01,
    "warmup_fraction": 0.05,
    "schedule": "cosine",
    "ema_decay": 0.99,
}
LAYER_DECAY = 0.9


def run_config(encoder: str, start: str, steps: int, seed: int, data: Path, scratch: Path) -> dict[str, Any]:
    """Return the complete configuration of one run.

    Args:
        encoder: Run folder or name of the encoder.
        start: One of `STARTS`.
        steps: Number of steps.
        seed: Seed of the run.
        data: Folder of the data in the layout of PCQM4M.
        scratch: Path of a temporary file.
    """
    settings = {
        "data": {"name": "pcqm4m", "root": str(data)},
        "optimizer": {**OPTIMIZER, "layer_decay": LAYER_DECAY},
        "training": {"max_steps": steps, "batch_size": 64, "token_budget": 2048, "loss": "mae"},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
        "start": {"model": encoder},
        "seed": seed,
    }
    scratch.parent.mkdir(parents=True, exist_ok=True)
    scratch.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    mapping = config_to_mapping(load_run_config(scratch))
    if start == STARTS[0]:
        mapping["start"] = None
        mapping["optimizer"]["layer_decay"] = None
    return mapping


def measure(encoder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return mean and standard deviation of the test error of both starts over the seeds."""
    source = read_run(find_model(encoder))
    rows = []
    for start in STARTS:
        errors = []
        for seed in range(options.seeds):
            run = options.runs / source.config.attention.name / start.replace(" ", "_") / f"seed{seed}"
            mapping = run_config(
                encoder, start, options.steps, seed, options.data, options.runs / "settings.yaml"
            )
            summary = train(config_from_mapping(mapping), run, resume=run.exists(), quiet=True)
            errors.append(summary["test"]["mae"]["homolumogap"])
            print(f"{source.config.attention.name}, {start}, seed {seed}: {errors[-1]:.4f} eV", flush=True)
        rows.append(
            {
                "attention": source.config.attention.name,
                "start": start,
                "pretraining_steps": source.metadata.get("step"),
                "test_mae_eV": spread(errors),
                "seeds": len(errors),
            }
        )
    return rows


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("encoders", nargs="+", metavar="MODEL", help="run folder or name of an encoder")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "gap_xtb")
    parser.add_argument("--steps", type=int, default=1800, help="steps of each run (default: 1800)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "pretraining_embedded")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Train all runs and write the JSON."""
    options = parse_arguments(argv)
    results = [row for encoder in options.encoders for row in measure(encoder, options)]
    payload = {
        "question": "test error on the embedded data at equal steps, pretrained against random weights",
        "steps": options.steps,
        "results": results,
    }
    print(record("pretraining_embedded", payload, options.out))


if __name__ == "__main__":
    main()
