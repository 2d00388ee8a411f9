"""Measure what the embedding is worth in the stack of `molslice fit`, by out-of-fold errors.

    python benchmarks/fit_embeddings.py --data PATH_TO_SETS --minimol minimol/bin/python

The stack of `fit --quality good` is fitted with other embeddings in place of the states of `encoder-small`:
without any, with the states of random weights, with the states of a lower layer added, and with the
fingerprints of MiniMol, a larger encoder that was trained on 6 million molecules with measured labels. Sets,
folds, weights and errors are as in `fit_learners.py`. MiniMol may have seen the sets; see `minimol_embed.py`
for its environment, without which its candidates are left out. Finished sets are kept below `--runs`. Writes
`benchmarks/results/fit_embeddings.json`.

With `--encoder FOLDER` another pretrained encoder is compared instead: its embeddings in place of the
embeddings of `encoder-small`, and beside them. The file is then `fit_embeddings_FOLDER.json`.
"""

import copy
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_learners import (
    COMPARED,
    NUM_FOLDS,
    TrainingRows,
    error_of_stack,
    measure_sets,
    stacked,
    summarize,
)
from record import ROOT, make_parser, record
from small_data_members import embed_minimol
from torch import nn

from molslice.inference.load import load_encoder
from molslice.inference.network import NetworkPredictor
from molslice.learners import LEARNERS, Features, Labels
from molslice.model import build_model
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained

LEARNED = ("gaussian_process", "extra_trees")  # with the embedding; boosting does not take it
LOWER_LAYER = 4  # of six

Embeddings = Mapping[str, np.ndarray | None]  # by name, float32 [n, E]; None without one


def main() -> int:
    """Measure all sets, and record the errors of all candidates."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet and admet")
    parser.add_argument("--minimol", help="Python of an environment with minimol")
    parser.add_argument("--encoder", type=Path, help="run folder of an encoder to compare instead")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fit_embeddings")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    name, compared = "fit_embeddings", functools.partial(embeddings, minimol=args.minimol)
    if args.encoder:
        name, compared = f"{name}_{args.encoder.name}", functools.partial(of_encoder, folder=args.encoder)
        args.runs = args.runs.with_name(name)
    results = measure_sets(COMPARED, args, lambda rows: measure(rows, compared))
    payload = {"folds": NUM_FOLDS, "reference": DEFAULT_ENCODER, **summarize(results, DEFAULT_ENCODER)}
    print(record(name, payload, args.out))
    return 0


def measure(rows: TrainingRows, compared: Callable[[Sequence[str]], Embeddings]) -> dict[str, Any]:
    """Fit the stack to one set with each embedding, and return its errors."""
    labels, seed, classes = Labels(rows.values), rows.seed, rows.classes

    def fit(learner: str, features: Features) -> np.ndarray:
        return LEARNERS.find(learner).fit(features, labels, rows.folds, classes=classes, seed=seed)[1]

    boosting = fit("boosting", rows.features)
    errors = {}
    for label, embedding in compared(rows.smiles).items():
        features = rows.with_embedding(embedding)
        scores = {**{learner: fit(learner, features) for learner in LEARNED}, "boosting": boosting}
        combine = functools.partial(stacked, classes=classes)
        errors[label] = error_of_stack(scores, rows.values, seed, combine)
    return {"errors": errors}


def of_encoder(smiles: Sequence[str], folder: Path) -> Embeddings:
    """Return the embeddings of an encoder in place of `encoder-small` and beside it."""
    known, encoder = load_encoder(find_pretrained(DEFAULT_ENCODER)).embed(list(smiles)), load_encoder(folder)
    other = encoder.embed(list(smiles))
    return {
        DEFAULT_ENCODER: known,
        folder.name: other,
        f"and {folder.name}": np.concatenate([known, other], 1),
        f"{folder.name}, random weights": with_random_weights(encoder).embed(list(smiles)),
    }


def embeddings(smiles: Sequence[str], minimol: str | None) -> Embeddings:
    """Return the compared embeddings of `encoder-small` and of MiniMol."""
    encoder = load_encoder(find_pretrained(DEFAULT_ENCODER))
    known = encoder.embed(list(smiles))
    lower = states_of_layer(encoder, smiles, LOWER_LAYER)
    compared = {
        DEFAULT_ENCODER: known,
        "without embedding": None,
        "random weights": with_random_weights(encoder).embed(list(smiles)),
        f"and the states of layer {LOWER_LAYER}": np.concatenate([known, lower], 1),
    }
    if minimol:
        with tempfile.TemporaryDirectory() as folder:
            fingerprints = embed_minimol(minimol, smiles, Path(folder), threads=1).astype(np.float32)
        compared |= {"MiniMol": fingerprints, "and MiniMol": np.concatenate([known, fingerprints], 1)}
    return compared


def with_random_weights(encoder: NetworkPredictor) -> NetworkPredictor:
    """Return an encoder of the same size with the weights of the start of a training."""
    other = copy.copy(encoder)
    torch.manual_seed(0)
    other.model = build_model(encoder.config.model, encoder.config.attention, encoder.data).eval()
    return other


def states_of_layer(encoder: NetworkPredictor, smiles: Sequence[str], number: int) -> np.ndarray:
    """Return the state of the graph token and the mean state of the atoms after a layer: float32 [n, 2 D]."""
    other = copy.copy(encoder)
    other.model = copy.deepcopy(encoder.model)
    stack: Any = other.model.encoder
    stack.layers, stack.last_norm = stack.layers[:number], nn.Identity()
    return other.embed(list(smiles))


if __name__ == "__main__":
    raise SystemExit(main())
