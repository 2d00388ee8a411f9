"""Train chemprop 2 on CSV files and write its errors and its processor seconds as JSON.

`qm9_levers.py` starts this program in a separate environment, so it does not import molslice. All settings
except the loss, the width and the aggregation are the defaults of chemprop's command line: three
message-passing steps of width 300, one hidden layer of 300, batch size 64, a learning rate that warms up and
decays to a tenth of its maximum, and the weights of the epoch with the smallest validation loss. The loss is
the absolute error, which is the reported metric. The aggregation is the mean of the atoms; `norm`, the
default of chemprop 2.3, is their sum divided by 100.
"""

import argparse
import csv
import json
import logging
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from chemprop import data, models, nn  # pyright: ignore[reportMissingImports]
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

AGGREGATIONS = {"mean": nn.MeanAggregation, "norm": nn.NormAggregation}


def read_rows(path: str, target: str) -> data.MoleculeDataset:
    """Return the rows of a CSV file as a chemprop data set."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    points = [data.MoleculeDatapoint.from_smi(row["smiles"], [float(row[target])]) for row in rows]
    return data.MoleculeDataset(points)


def mean_error(
    trainer: pl.Trainer, model: models.MPNN, dataset: data.MoleculeDataset, truth: np.ndarray
) -> float:
    """Return the mean absolute error of the predictions, in the unit of `truth`."""
    loader = data.build_dataloader(dataset, batch_size=256, shuffle=False, num_workers=0)
    batches = trainer.predict(model, loader)
    predictions = torch.cat(batches or [])  # pyright: ignore[reportArgumentType, reportCallIssue]
    return float(np.abs(predictions.numpy() - truth).mean())


def main() -> None:
    """Train, predict the validation and test rows, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("train", "valid", "test", "target", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="largest learning rate of the schedule")
    parser.add_argument("--width", type=int, default=300, help="of the messages")
    parser.add_argument("--aggregation", choices=list(AGGREGATIONS), default="mean")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    pl.seed_everything(options.seed)

    train, valid, test = (
        read_rows(path, options.target) for path in (options.train, options.valid, options.test)
    )
    truth = {"valid": np.array(valid.Y), "test": np.array(test.Y)}
    scaler = train.normalize_targets()
    valid.normalize_targets(scaler)
    # Cache the molecular graphs, as chemprop's command line does by default.
    train.cache = valid.cache = True
    loader = data.build_dataloader(train, batch_size=64, num_workers=0, seed=options.seed)
    watch = data.build_dataloader(valid, batch_size=64, shuffle=False, num_workers=0)
    ffn = nn.RegressionFFN(
        input_dim=options.width,
        criterion=nn.metrics.MAE(),
        output_transform=nn.UnscaleTransform.from_standard_scaler(scaler),
    )
    model = models.MPNN(
        nn.BondMessagePassing(d_h=options.width),
        AGGREGATIONS[options.aggregation](),
        ffn,
        init_lr=options.rate / 10,
        max_lr=options.rate,
        final_lr=options.rate / 10,
    )
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_loss", mode="min", save_top_k=1)
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=options.epochs,
            logger=False,
            callbacks=[best],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        start, wall = time.process_time(), time.perf_counter()
        trainer.fit(model, loader, watch)
        seconds, wall_seconds = time.process_time() - start, time.perf_counter() - wall
        state = torch.load(best.best_model_path, weights_only=False)  # written by this process
    model.load_state_dict(state["state_dict"])
    result = {
        "valid_mae": mean_error(trainer, model, valid, truth["valid"]),
        "test_mae": mean_error(trainer, model, test, truth["test"]),
        "test_rows": len(test),
        "seconds": seconds,
        "wall_seconds": wall_seconds,
        "best_epoch": state["epoch"] + 1,
        "chemprop": version("chemprop"),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    Path(options.out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
