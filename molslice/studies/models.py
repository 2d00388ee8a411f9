"""The trained models of a study and their data: given runs, shipped models, or short trainings."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from molslice.attention import Attention
from molslice.config import RunConfig, config_from_mapping
from molslice.config.entries import attention_label, folder_name, labels_of, parse_entries
from molslice.data import build_dataset
from molslice.data.base import Dataset
from molslice.data.molecules.base import MoleculeDataset
from molslice.folders.run import SUMMARY
from molslice.inference.load import load_network
from molslice.inference.maps import AttentionCall, record_calls
from molslice.pretrained import pretrained_names
from molslice.studies.base import Request
from molslice.training.run import train
from molslice.types import Batch, MolsliceError

FOUR = ("softmax", "slice_sort", "flow", "singular")
# Sizes of configs/molecule/gap_xtb.yaml, with AdamW; ema_decay suits a training of a few hundred steps.
SHORT_RUN: dict[str, Any] = {
    "model": {
        "num_layers": 4,
        "dim": 64,
        "ffn_dim": 64,
        "num_heads": 8,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "optimizer": {"lr": 2e-3, "weight_decay": 0.01, "schedule": "cosine", "ema_decay": 0.98},
    "training": {"token_budget": 2048, "batch_size": 64, "valid_every_epochs": 1000},
    "trainer": {"accelerator": "cpu"},
}


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model in evaluation mode."""

    label: str  # its name in a figure
    model: nn.Module
    attention: str  # the entry, the same for several seeds
    about: dict[str, Any]  # its description for the JSON file


def load_molecules(data: str) -> MoleculeDataset:
    """Load the data set in a folder with the layout of PCQM4M, such as `data/gap_xtb`.

    Raises:
        MolsliceError: The folder does not exist.
    """
    dataset = build_dataset("pcqm4m", {"root": data})
    assert isinstance(dataset, MoleculeDataset)
    return dataset


def load_data(request: Request, molecules: str) -> Dataset:
    """Load the data of the runs in a request; without runs or if their models take molecules, `molecules`.

    Raises:
        MolsliceError: The runs were trained on different data, or the data cannot be loaded.
    """
    other = load_other_data(request)
    return load_molecules(molecules) if other is None else other


def load_other_data(request: Request) -> Dataset | None:
    """Load the data of the runs in a request; None without runs or if their models take molecules.

    Raises:
        MolsliceError: The runs were trained on different data, or the data cannot be loaded.
    """
    configs = [load_network(run).config for run in request.runs]
    others = [config.data for config in configs if "molecules" not in config.model.takes]
    if not others:
        return None
    if len(others) < len(configs) or any(data != others[0] for data in others):
        names = ", ".join(dict.fromkeys(config.data.name for config in configs))
        raise MolsliceError(f"the runs were not all trained on the same data: {names}")
    return build_dataset(others[0].name, dict(others[0].options))


def calls_of(model: nn.Module, dataset: Dataset, batch: Batch) -> list[AttentionCall]:
    """Record the calls of a model's attentions by layer; of paired sequences, on the first."""
    calls = record_calls(model, batch)
    return calls[: len(calls) // 2] if dataset.spec.paired else calls


def rows_of(dataset: Dataset) -> np.ndarray:
    """Return the labeled rows of the test split, or of valid or train if the data have no test split.

    Returns:
        Indices of rows, ascending, int64 [rows].

    Raises:
        MolsliceError: No row has a label.
    """
    for split in ("test", "valid"):
        with contextlib.suppress(MolsliceError):
            return dataset.labeled_rows(split)
    return dataset.labeled_rows("train")


def draw_rows(dataset: Dataset, count: int, seed: int) -> np.ndarray:
    """Draw at most `count` rows of `rows_of` without replacement; ascending, int64 [rows]."""
    rows = rows_of(dataset)
    if len(rows) <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


def find_models(
    entries: Sequence[str], request: Request, data: str, steps: int, seeds: int = 1
) -> tuple[list[TrainedModel], dict[str, str]]:
    """Return the models of the runs in a request, or else load or train the models of some entries.

    Trained runs are kept in `<out>/runs` and used again.

    Args:
        entries: Names of shipped models, and attentions (`name:option=value`) to train.
        request: The output folder, the seed and the runs.
        data: Folder of the molecules to train on.
        steps: Number of training steps.
        seeds: Number of trainings of each attention, with seeds counted from the request's.

    Returns:
        The models, and the reason for each entry that is left out.

    Raises:
        MolsliceError: There is no model to study, a run cannot be read, or a model has no attention.
    """
    if request.runs:
        return given_models(request.runs), {}
    models: list[TrainedModel] = []
    left_out: dict[str, str] = {}
    for entry in entries:
        if entry in pretrained_names():
            models.append(_load(entry, entry))
            continue
        try:
            configs = [_short_run(entry, data, steps, request.seed + k) for k in range(seeds)]
        except MolsliceError as error:
            left_out[entry] = str(error)
            request.tell(f"{entry} is left out: {error}")
            continue
        for config in configs:
            label = entry if seeds == 1 else f"{entry} ({config.seed})"
            models.append(_load(_trained(entry, config, request), label))
    if not models:
        raise MolsliceError(f"no model to study; {'; '.join(left_out.values()) or 'no entry was given'}")
    return models, left_out


def given_models(runs: Sequence[Path | str]) -> list[TrainedModel]:
    """Load runs; those with the same label are numbered.

    Raises:
        MolsliceError: A run cannot be read, or its model has no attention.
    """
    labels = labels_of([load_network(run).config for run in runs])
    numbered = [
        f"{label} ({labels[: index + 1].count(label)})" if labels.count(label) > 1 else label
        for index, label in enumerate(labels)
    ]
    return [_load(run, label) for run, label in zip(runs, numbered, strict=True)]


def _load(run: Path | str, label: str) -> TrainedModel:
    predictor = load_network(run)
    model: nn.Module = predictor.model
    config = predictor.config
    if not any(isinstance(module, Attention) for module in model.modules()):
        raise MolsliceError(f"{run} holds a model without attention: {config.model.name!r}")
    attention, summary = attention_label(config), predictor.summary or {}
    description = {
        "label": label,
        "from": str(run),
        "attention": attention,
        "steps": summary.get("steps", config.training.max_steps),
        "seed": config.seed,
        "valid": (summary.get("valid") or {}).get(summary.get("metric")),
    }
    return TrainedModel(label, model, attention, description)


def _short_run(entry: str, data: str, steps: int, seed: int) -> RunConfig:
    mapping = {**SHORT_RUN, "data": {"name": "pcqm4m", "root": data}, "seed": seed}
    mapping["training"] = {**SHORT_RUN["training"], "max_steps": steps}
    return parse_entries(entry, config_from_mapping(mapping))[0].config


def _trained(entry: str, config: RunConfig, request: Request) -> Path:
    run = request.out / "runs" / folder_name(entry) / f"steps{config.training.max_steps}-seed{config.seed}"
    if not (run / SUMMARY).is_file():
        request.tell(f"training {entry}, {config.training.max_steps} steps, seed {config.seed}")
    try:
        train(config, run, resume=run.is_dir() and any(run.iterdir()), quiet=request.quiet)
    except KeyboardInterrupt as stop:  # its own message is about `train --resume`
        raise KeyboardInterrupt(f"stopped while training {entry}; the same command continues") from stop
    return run
