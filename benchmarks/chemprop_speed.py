"""Train chemprop 2 epoch by epoch, one for each line of standard input, and answer with processor seconds.

`training_speed.py` starts this program in a separate environment, so it does not import molslice. All
settings are chemprop's defaults: three message-passing steps of width 300, mean aggregation, one hidden layer
of 300, batch size 64. The first answer states the processor seconds of the start of Python with all imports
and of reading the molecules, each further answer gives the seconds of an epoch inside Lightning's loop,
without validation.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from chemprop import data, models, nn  # pyright: ignore[reportMissingImports]
from lightning import pytorch as pl
from lightning.pytorch.callbacks import Callback

BATCH_SIZE = 64
MOST_EPOCHS = 10_000


class EpochByEpoch(Callback):
    """Wait for a line before each epoch, and answer after it."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Wait; end the training when the input ends."""
        if not sys.stdin.readline():
            raise SystemExit(0)
        self.start = time.process_time()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Answer with the processor seconds of the epoch."""
        answer({"seconds": time.process_time() - self.start})


def answer(numbers: dict[str, Any]) -> None:
    """Write a line of JSON to standard output."""
    print(json.dumps(numbers), flush=True)


def main() -> None:
    """Read the molecules, and train an epoch for each line of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="one SMILES and its target a line, separated by a space")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    started = time.process_time()
    lines = [line.split(" ") for line in Path(options.file).read_text(encoding="utf-8").splitlines()]
    points = [data.MoleculeDatapoint.from_smi(smiles, [float(target)]) for smiles, target in lines]
    train = data.MoleculeDataset(points)
    scaler = train.normalize_targets()
    # cache the molecular graphs, as chemprop's command line does by default
    train.cache = True
    prepared = time.process_time() - started
    loader = data.build_dataloader(train, batch_size=BATCH_SIZE, num_workers=0, seed=0)
    ffn = nn.RegressionFFN(output_transform=nn.UnscaleTransform.from_standard_scaler(scaler))
    model = models.MPNN(nn.BondMessagePassing(), nn.MeanAggregation(), ffn)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=MOST_EPOCHS,
        logger=False,
        callbacks=[EpochByEpoch()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    answer(
        {
            "start_seconds": started,
            "prepare_seconds": prepared,
            "chemprop": version("chemprop"),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        }
    )
    trainer.fit(model, loader)


if __name__ == "__main__":
    main()
