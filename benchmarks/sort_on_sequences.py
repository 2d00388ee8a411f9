"""Compare sorts with other attentions on the words of movie reviews, for the same number of steps.

`--data` is a folder with IMDB as `train.jsonl.gz` and `test.jsonl.gz`. Each line has `text` and `label`.
Words are lowercase runs of letters. The vocabulary is the most frequent words of the training reviews. A
sequence is the first `--length` words of a review. A small encoder is trained for `--steps` batches of 32
with a cosine schedule and evaluated on `--test-rows` random test reviews. Each run has one thread, and
`--jobs` runs are active at a time:

    python benchmarks/sort_on_sequences.py --data PATH_TO_IMDB

Writes benchmarks/results/sort_on_sequences.json. The models are small and were not tuned: compare the entries
with each other, not with published results.
"""

import argparse
import collections
import gzip
import json
import multiprocessing
import re
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record, spread
from torch.nn import functional

from molslice.config.entries import split_entries
from molslice.model import AttentionChoice
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec
from molslice.types import DataSpec, SequenceBatch

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = ",".join(
    [
        "softmax",
        "slice_sort",
        "slice_sort:order=shuffle",
        "key_sort",
        "key_sort:slope=1.0",
        "key_weight",
        "identity",
    ]
)
SIZES: dict[str, Any] = {"dim": 64, "num_layers": 2, "num_heads": 4, "ffn_dim": 128}
BATCH, RATE, WARM_UP = 32, 1e-3, 0.1


@dataclass(frozen=True)
class Part:
    """Reviews of one split.

    Attributes:
        ids: Word indices, int64 [rows, length]; 0 at padding.
        mask: True for words, bool [rows, length].
        labels: Class of each review, int64 [rows].
    """

    ids: np.ndarray
    mask: np.ndarray
    labels: np.ndarray


def read(path: Path) -> list[tuple[list[str], int]]:
    """Return the words and the label of every review."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(re.findall(r"[a-z']+", row["text"].lower()), int(row["label"])) for row in rows]


def number(rows: list[tuple[list[str], int]], numbers: dict[str, int], length: int) -> Part:
    """Convert the first words of each review to indices; unknown words get index 1."""
    ids = np.zeros((len(rows), length), np.int64)
    for i, (words, _) in enumerate(rows):
        known = [numbers.get(word, 1) for word in words[:length]]
        ids[i, : len(known)] = known
    return Part(ids, ids > 0, np.array([label for _, label in rows]))


def fit(entry: Any, seed: int, train: Part, test: Part, words: int, steps: int) -> dict[str, Any]:  # noqa: ANN401
    """Train one model and return its test accuracy."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    length = train.ids.shape[1]
    data = DataSpec(2, "ids", vocabulary_size=words, max_tokens=length)
    choice = AttentionChoice(entry.name, None, entry.options)
    model = SequenceClassifier(SequenceSpec(dropout=0.1, **SIZES), choice, data)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    warm = max(1, int(WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (s + 1) / warm if s < warm else 0.5 * (1 + np.cos(np.pi * (s - warm) / (steps - warm))),
    )
    draw = np.random.default_rng(seed)
    order = np.concatenate(
        [draw.permutation(len(train.ids)) for _ in range(1 + steps * BATCH // len(train.ids))]
    )
    start = time.perf_counter()
    for step in range(steps):
        rows = order[step * BATCH : (step + 1) * BATCH]
        output = model(SequenceBatch(torch.from_numpy(train.ids[rows]), torch.from_numpy(train.mask[rows])))
        loss = functional.cross_entropy(output.prediction, torch.from_numpy(train.labels[rows]))
        if output.penalty is not None:
            loss = loss + output.penalty
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - start
    model.eval()
    right = 0
    with torch.inference_mode():
        for at in range(0, len(test.ids), 128):
            part = slice(at, at + 128)
            output = model(SequenceBatch(torch.from_numpy(test.ids[part]), torch.from_numpy(test.mask[part])))
            right += int((output.prediction.argmax(-1).numpy() == test.labels[part]).sum())
    layers = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    return {
        "label": entry.label,
        "seed": seed,
        "accuracy": right / len(test.ids),
        "seconds": seconds,
        "layer_parameters": layers,
    }


def summarize(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean and standard deviation of each entry over its seeds."""
    table = []
    for label in dict.fromkeys(run["label"] for run in runs):
        own = [run for run in runs if run["label"] == label]
        accuracies = [run["accuracy"] for run in own]
        table.append(
            {
                "label": label,
                "seeds": len(own),
                "layer_parameters": own[0]["layer_parameters"],
                "accuracy": spread(accuracies),
                "seconds": statistics.fmean(run["seconds"] for run in own),
            }
        )
    return table


def main() -> None:
    """Train every entry with every seed, then write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--entries", default=ENTRIES)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--test-rows", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default=str(ROOT / "benchmarks" / "results"))
    options = parser.parse_args()
    rows = read(options.data / "train.jsonl.gz")
    counts = collections.Counter(word for words, _ in rows for word in words)
    numbers = {word: i + 2 for i, (word, _) in enumerate(counts.most_common(options.vocabulary - 2))}
    train = number(rows, numbers, options.length)
    held_out = read(options.data / "test.jsonl.gz")
    chosen = np.random.default_rng(0).permutation(len(held_out))[: options.test_rows]
    test = number([held_out[i] for i in chosen], numbers, options.length)
    entries = split_entries(options.entries)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(fit, entry, seed, train, test, options.vocabulary, options.steps)
            for seed in range(options.seeds)
            for entry in entries
        ]
        runs = []
        for future in futures:
            runs.append(future.result())
            print(runs[-1], flush=True)
    settings = {k: v for k, v in vars(options).items() if k not in ("data", "out", "entries")}
    payload = {
        "question": "accuracy on reviews of IMDB, first words of each, small encoders at equal steps",
        "settings": {**settings, **SIZES, "batch": BATCH, "rate": RATE},
        "entries": summarize(runs),
        "runs": runs,
    }
    print(record("sort_on_sequences", payload, options.out))


if __name__ == "__main__":
    main()
