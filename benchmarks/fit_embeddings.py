"""Measure what the embedding is worth in the stack of `molslice fit`, by out-of-fold errors.

    python benchmarks/fit_embeddings.py --data PATH_TO_SETS --minimol minimol/bin/python

The stack of `fit --quality good` is fitted with other embeddings in place of the states of `encoder-small`:
without any, with the states of random weights, with the states of a lower layer added, and with the
fingerprints of MiniMol, a larger encoder that was trained on 6 million molecules with measured labels. Sets,
folds, weights and errors are as in `fit_learners.py`. MiniMol may have seen the sets; see `minimol_embed.py`
for its environment, without which its candidates are left out. Finished sets are kept below `--runs`. Writes
`benchmarks/results/fit_embeddings.json`.
"""

import argparse
import copy
import functools
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_learners import COMPARED, NUM_FOLDS, choose_rows, error_of_stack, stacked, summarize
from record import ROOT, make_parser, other_environment, record, write_json
from small_data_sets import SETS, read_molecules
from torch import Tensor

from molslice.data.target_values import is_log_normal
from molslice.files.parsing import read_json_object
from molslice.inference.load import load_encoder
from molslice.inference.network import Predictor
from molslice.learners import LEARNERS, Features, Labels
from molslice.model import build_model
from molslice.ops.masked import masked_mean
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained
from molslice.types import MoleculeBatch

LEARNED = ("gaussian_process", "extra_trees")  # with the embedding; boosting does not take it
LOWER_LAYER = 4  # of six


def main() -> int:
    """Measure all sets, and record the errors of all candidates."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with moleculenet and admet")
    parser.add_argument("--minimol", help="Python of an environment with minimol")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "fit_embeddings")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    results = []
    for seed in range(args.seeds):
        for name in COMPARED:
            file = args.runs / f"{name}-{seed}.json"
            if not file.is_file():
                write_json(file, measure(args, name, seed))
            results.append(read_json_object(file))
            print(
                name, seed, {key: round(error, 4) for key, error in results[-1]["errors"].items()}, flush=True
            )
    payload = {"folds": NUM_FOLDS, "reference": DEFAULT_ENCODER, **summarize(results, DEFAULT_ENCODER)}
    print(record("fit_embeddings", payload, args.out))
    return 0


def measure(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Fit the stack to one set with each embedding, and return its errors."""
    measured = SETS[name]
    molecules = read_molecules(measured, args.data, args.runs / "features")
    rows = choose_rows(molecules, name, seed)
    values, classes = molecules.values[rows, 0], measured.kind == "classification"
    if not classes and is_log_normal(values):
        values = np.log10(values)
    folds = np.random.default_rng(seed).permutation(len(rows)) % NUM_FOLDS
    given, labels = molecules.features[rows], Labels(values)
    plain = Features(given.descriptors, given.counts)

    def fit(learner: str, features: Features) -> np.ndarray:
        return LEARNERS.find(learner).fit(features, labels, folds, classes=classes, seed=seed)[1]

    boosting = fit("boosting", plain)
    errors = {}
    for label, embedding in embeddings([molecules.smiles[row] for row in rows], args.minimol).items():
        features = plain if embedding is None else Features(given.descriptors, given.counts, embedding)
        scores = {**{learner: fit(learner, features) for learner in LEARNED}, "boosting": boosting}
        combine = functools.partial(stacked, classes=classes)
        errors[label] = error_of_stack(scores, values, seed, combine)
    error = "1 - ROC-AUC" if classes else "MAE"
    return {"set": name, "seed": seed, "rows": len(rows), "error": error, "errors": errors}


def embeddings(smiles: Sequence[str], minimol: str | None) -> Mapping[str, np.ndarray | None]:
    """Return the compared embeddings, float32 [n, E]; None without one."""
    encoder = load_encoder(find_pretrained(DEFAULT_ENCODER))
    known = encoder.embed(list(smiles))
    lower = states_of_layer(encoder, smiles, LOWER_LAYER)
    found = {
        DEFAULT_ENCODER: known,
        "without embedding": None,
        "random weights": with_random_weights(encoder).embed(list(smiles)),
        f"and the states of layer {LOWER_LAYER}": np.concatenate([known, lower], 1),
    }
    if minimol:
        fingerprints = embed_minimol(smiles, minimol)
        found |= {"MiniMol": fingerprints, "and MiniMol": np.concatenate([known, fingerprints], 1)}
    return found


def with_random_weights(encoder: Predictor) -> Predictor:
    """Return an encoder of the same size with the weights of the start of a training."""
    other = copy.copy(encoder)
    torch.manual_seed(0)
    other.model = build_model(encoder.config.model, encoder.config.attention, encoder.data).eval()
    return other


def states_of_layer(encoder: Predictor, smiles: Sequence[str], number: int) -> np.ndarray:
    """Return the state of the graph token and the mean state of the atoms after a layer: float32 [n, 2 D]."""
    model: Any = copy.deepcopy(encoder.model)
    layers = model.encoder.layers
    kept: list[Any] = []
    layers[number - 1].register_forward_hook(lambda _layer, _given, output: kept.append(output))

    def embed(batch: MoleculeBatch) -> Tensor:
        kept.clear()
        model.encode(batch)
        tokens = kept[0] if isinstance(kept[0], Tensor) else kept[0].tokens
        return torch.cat([tokens[:, 0], masked_mean(tokens[:, 1:], batch.atom_mask[..., None], 1)], -1)

    model.embed = embed
    other = copy.copy(encoder)
    other.model = model
    return other.embed(list(smiles))


def embed_minimol(smiles: Sequence[str], python: str) -> np.ndarray:
    """Compute the fingerprints of MiniMol in its environment: float32 [n, 512]."""
    with tempfile.TemporaryDirectory() as folder:
        lines, vectors = Path(folder) / "molecules.smi", Path(folder) / "fingerprints.npy"
        lines.write_text("\n".join(smiles), encoding="utf-8")
        command = [python, str(ROOT / "benchmarks" / "minimol_embed.py"), str(lines), str(vectors)]
        subprocess.run(command, check=True, env=other_environment(1), stdout=subprocess.DEVNULL)
        return np.load(vectors).astype(np.float32)


if __name__ == "__main__":
    raise SystemExit(main())
