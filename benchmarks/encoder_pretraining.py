"""Pretrain encoders of several sizes on a corpus of molecules.

    python scripts/make_corpus.py molecules.smi.gz --exclude evaluation/*.csv.gz --labels data/gap_xtb_100k \
        --work runs/corpus_work --out data/corpus --jobs 16
    timeout --signal TERM 14m python benchmarks/encoder_pretraining.py --corpus data/corpus --size wide

`small` has the sizes of `configs/molecule/encoder_small.yaml`, `wide` has 6 layers of width 512. Settings
that are not in `SIZES` are as in that file. Batches have fixed shapes on a GPU, where the steps are captured.

A finished training is a file in `--runs` and is not repeated. A training that is stopped, by a time limit as
above or by Ctrl-C, writes a checkpoint, and the same command with the same path of the corpus continues it,
also in a copy of `--runs`. Each corpus has its own `--runs`.
`--collect` trains nothing and adds what is finished to `benchmarks/results/encoder_pretraining.json`.
`benchmarks/fit_embeddings.py` measures what the encoders are worth to `fit`.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from record import ROOT, add_finished, describe_conditions, list_finished, make_parser, record, write_json

from molslice.config import load_config
from molslice.files.parsing import read_json_object
from molslice.folders.run import SUMMARY
from molslice.training.run import train

NAME = "encoder_pretraining"
CONFIG = ROOT / "configs" / "molecule" / "encoder_small.yaml"
SIZES: Mapping[str, Mapping[str, str]] = {
    "small": {},
    "wide": {
        "model.dim": "512",
        "model.ffn_dim": "1024",
        "training.batch_size": "1024",
        "training.token_budget": "32768",
        "optimizer.lr": "5e-4",
    },
}


def train_once(options: argparse.Namespace) -> dict[str, Any]:
    """Train an encoder, unless it is done, and return the result."""
    settings = {
        **SIZES[options.size],
        "data.path": str(options.corpus),
        "attention.name": options.attention,
        "training.max_steps": "null",
        "training.max_epochs": str(options.epochs),
        "training.checkpoint_every_steps": str(options.checkpoint_steps),
        "trainer.accelerator": options.device,
        "trainer.precision": options.precision,
        "seed": str(options.seed),
    }
    if options.rate is not None:
        settings["optimizer.lr"] = options.rate
    config = load_config(CONFIG, list(settings.items()))
    rate = config.optimizer.lr
    name = f"{options.size}_{options.attention}_{rate:g}_{options.epochs}_{options.precision}_{options.seed}"
    file, run = options.runs / "final" / f"{name}.json", options.runs / name
    if file.is_file():
        return read_json_object(file)
    train(config, run, resume=run.exists())
    summary = read_json_object(run / SUMMARY)
    result = {
        "run": name,
        "size": options.size,
        "attention": options.attention,
        "rate": rate,
        "epochs": options.epochs,
        "precision": options.precision,
        "seed": options.seed,
        "corpus": options.corpus.name,
        "molecules": summary["train"]["of"],
        "device": summary["device"],
        **{key: summary[key] for key in ("parameters", "steps", "seconds", "rows_per_second", "units")},
        **{split: summary[split]["measure"] for split in ("valid", "test")},
        **describe_conditions(),
    }
    write_json(file, result)
    return result


def collect(options: argparse.Namespace) -> Path:
    """Add the finished trainings to the recorded ones; a repeated one takes the place of the former."""
    finished = list_finished(options.runs, "training")
    rows = add_finished(options.out / f"{NAME}.json", "encoders", finished, lambda row: row["run"])
    payload = {"question": "errors of pretrained encoders on their labels", "sizes": SIZES, "encoders": rows}
    return record(NAME, payload, options.out)


def main(argv: list[str] | None = None) -> None:
    """Train an encoder, or collect those that are trained."""
    parser = make_parser(__doc__)
    parser.add_argument("--corpus", type=Path, help="folder of the corpus")
    parser.add_argument("--size", choices=list(SIZES), default="wide")
    parser.add_argument("--attention", default="softmax")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", help="learning rate; default: the rate of the size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--precision", default="bf16-weights", choices=["bf16-weights", "bf16", "32"])
    parser.add_argument("--checkpoint-steps", type=int, default=2000, help="steps between checkpoints")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / NAME)
    parser.add_argument("--collect", action="store_true", help="record the finished runs, train nothing")
    options = parser.parse_args(argv)
    if options.collect:
        print(collect(options))
        return
    if options.corpus is None:
        parser.error("training needs --corpus")
    try:
        print(train_once(options), flush=True)
    except KeyboardInterrupt as error:
        raise SystemExit(f"{error}; the same command continues") from error


if __name__ == "__main__":
    main()
