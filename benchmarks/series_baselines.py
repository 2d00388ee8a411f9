"""Measure the classical columns of the Flowformer paper's table on UEA time series.

    python benchmarks/series_baselines.py --data data/uea --problems JapaneseVowels,UWaveGestureLibrary

Methods:
    dtw: the nearest neighbor by dynamic time warping over all channels together, of aeon.
    boosting: gradient-boosted trees of scikit-learn on all values of a padded series (in the paper XGBoost).
    rocket: 10,000 random convolutions and ridge regression, of aeon; series are padded.
    lstm: one LSTM layer, of which the last state is classified.
    tcn: residual blocks of dilated causal convolutions, of which the last step is classified.

All read the arrays that the attentions read: channels are standardized by the training cases, and missing
values are interpolated. The networks train a fixed number of epochs, and the last weights are tested, so that
no test case chooses anything. `dtw` and `rocket` need aeon: pip install 'molslice[series]'.

Source: Dempster et al. 2020 (arXiv 1910.13051), Bai et al. 2018 (arXiv 1803.01271), as columns of Wu et al.
2022 (arXiv 2202.06258, section 4.3). Sizes of the networks are ours.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from record import make_parser, record, spread
from sklearn.ensemble import HistGradientBoostingClassifier
from tables import percent
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from molslice.data.series.uea import Uea
from molslice.types import MolsliceError

DIM, BATCH, RATE, CLIP = 128, 16, 1e-3, 4.0
KERNEL, DROPOUT = 3, 0.1


@dataclass(frozen=True)
class Part:
    """The cases of a split.

    Attributes:
        values: Steps by channels of each case [cases, N, F], float32, zero at padding.
        mask: True at real steps [cases, N].
        labels: Number of the class of each case, int64 [cases].
    """

    values: Tensor
    mask: Tensor
    labels: np.ndarray

    def series(self) -> list[np.ndarray]:
        """Return the real steps of each case [F, steps], the layout of aeon."""
        return [case[mask].T.numpy() for case, mask in zip(self.values, self.mask, strict=True)]


def load_parts(root: str, problem: str) -> tuple[Part, Part]:
    """Read the training and the test cases, padded to the longest case of both.

    Raises:
        MolsliceError: A file is missing or invalid, or the problem has numbers to predict.
    """
    data = Uea(root=root, problem=problem, valid_fraction=0.0)
    if data.kind != "multiclass":
        raise MolsliceError(f"{problem} has numbers to predict; these methods predict classes")
    rows = [data.labeled_rows(split) for split in ("train", "test")]
    values, mask = data.sequences.padded(np.concatenate(rows))
    mask = torch.ones(values.shape[:2], dtype=torch.bool) if mask is None else mask
    labels = data.labels[np.concatenate(rows), 0].astype(np.int64)
    cut = len(rows[0])
    return Part(values[:cut], mask[:cut], labels[:cut]), Part(values[cut:], mask[cut:], labels[cut:])


def predict_dtw(train: Part, test: Part, seed: int, epochs: int) -> np.ndarray:  # noqa: ARG001
    """Return the class of the nearest training case."""
    build = of_aeon("distance_based", "KNeighborsTimeSeriesClassifier")
    return build(distance="dtw", n_neighbors=1).fit(train.series(), train.labels).predict(test.series())


def predict_rocket(train: Part, test: Part, seed: int, epochs: int) -> np.ndarray:  # noqa: ARG001
    """Return the classes of ridge regression on random convolutions."""
    build = of_aeon("convolution_based", "RocketClassifier")
    padded, asked = (cases.values.transpose(1, 2).numpy() for cases in (train, test))
    return build(n_kernels=10_000, random_state=seed).fit(padded, train.labels).predict(asked)


def of_aeon(module: str, name: str) -> Callable[..., Any]:
    """Return a classifier of aeon.

    Raises:
        MolsliceError: aeon is not installed.
    """
    try:
        from importlib import import_module

        return getattr(import_module(f"aeon.classification.{module}"), name)
    except ImportError as error:
        raise MolsliceError(
            f"{name} needs the package aeon: pip install 'molslice[series]' ({error}); "
            "--methods boosting,lstm,tcn needs no further package"
        ) from error


def predict_boosting(train: Part, test: Part, seed: int, epochs: int) -> np.ndarray:  # noqa: ARG001
    """Return the classes of boosted trees on the values of all steps, missing at padding."""
    table, asked = (
        cases.values.masked_fill(~cases.mask[..., None], torch.nan).flatten(1).numpy()
        for cases in (train, test)
    )
    known = np.isfinite(table).any(0)  # steps that no training case reaches cannot be binned
    model = HistGradientBoostingClassifier(
        random_state=seed,
        early_stopping=False,  # pyright: ignore[reportArgumentType]  (declared as str)
    )
    return model.fit(table[:, known], train.labels).predict(asked[:, known])


class Lstm(nn.Module):
    """One LSTM layer and a linear map of its state after the last real step."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(channels, DIM, batch_first=True)
        self.readout = nn.Linear(DIM, classes)

    def forward(
        self, values: Float[Tensor, "B N F"], mask: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B classes"]:
        """Return the scores of the classes."""
        return self.readout(last_steps(self.recurrent(values)[0], mask))


class Tcn(nn.Module):
    """Residual blocks of two dilated causal convolutions, and a linear map of the last real step.

    The dilation doubles from block to block until the last step depends on all steps.
    """

    def __init__(self, channels: int, classes: int, steps: int) -> None:
        super().__init__()
        self.embed = nn.Linear(channels, DIM)
        # block k sees 2 (KERNEL - 1) 2^k earlier steps
        count = next(k for k in range(1, 64) if 2 * (KERNEL - 1) * (2**k - 1) >= steps - 1)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(DIM, DIM, KERNEL, dilation=2**block) for _ in range(2))
            for block in range(count)
        )
        self.readout = nn.Linear(DIM, classes)

    def forward(
        self, values: Float[Tensor, "B N F"], mask: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B classes"]:
        """Return the scores of the classes."""
        states = self.embed(values).transpose(1, 2)
        for block, convolutions in enumerate(self.blocks):
            changed = states
            for convolution in convolutions:  # pyright: ignore[reportGeneralTypeIssues]
                padded = functional.pad(changed, ((KERNEL - 1) * 2**block, 0))
                changed = functional.dropout(convolution(padded).relu(), DROPOUT, self.training)
            states = (states + changed).relu()
        return self.readout(last_steps(states.transpose(1, 2), mask))


def last_steps(states: Float[Tensor, "B N D"], mask: Bool[Tensor, "B N"]) -> Float[Tensor, "B D"]:
    """Return the state of the last real step of each case."""
    return states[torch.arange(len(states)), mask.sum(1) - 1]


def predict_network(
    build: Callable[[int, int, int], nn.Module], train: Part, test: Part, seed: int, epochs: int
) -> np.ndarray:
    """Train a network with Adam and return the classes of the test cases.

    `build` gets the numbers of channels, classes and steps.
    """
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    torch.manual_seed(seed)
    network = build(train.values.shape[2], classes, train.values.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    labels = torch.from_numpy(train.labels)
    for _ in tqdm(range(epochs), desc="epochs", disable=None):
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(train.values[rows], train.mask[rows]), labels[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimizer.step()
    network.eval()
    with torch.no_grad():
        batches = zip(test.values.split(BATCH), test.mask.split(BATCH), strict=True)
        return torch.cat([network(*batch).argmax(1) for batch in batches]).numpy()


METHODS: dict[str, Callable[[Part, Part, int, int], np.ndarray]] = {
    "dtw": predict_dtw,
    "boosting": predict_boosting,
    "rocket": predict_rocket,
    "lstm": partial(predict_network, lambda channels, classes, _: Lstm(channels, classes)),
    "tcn": partial(predict_network, Tcn),
}
DETERMINISTIC = ("dtw", "boosting")  # one seed is enough


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the test accuracy of each method on each problem."""
    for problem in arguments.problems.split(","):
        train, test = load_parts(arguments.data, problem)
        for method in arguments.methods.split(","):
            accuracies, start = [], time.perf_counter()
            for seed in range(1 if method in DETERMINISTIC else arguments.seeds):
                predictions = METHODS[method](train, test, seed, arguments.epochs)
                accuracies.append(float(np.mean(predictions == test.labels)))
            yield {
                "problem": problem,
                "method": method,
                "test": spread(accuracies),
                "seeds": len(accuracies),
                "cases": {"train": len(train.labels), "test": len(test.labels)},
                "seconds": (time.perf_counter() - start) / len(accuracies),
            }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", required=True, help="folder of the .ts files")
    parser.add_argument("--problems", required=True, help="names of problems, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of methods with random numbers")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the networks")
    parser.add_argument("--name", default="series_baselines", help="name of the result file")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.methods.split(",")) - set(METHODS):
        parser.error(f"unknown methods: {', '.join(sorted(unknown))}; choices: {', '.join(METHODS)}")
    if arguments.seeds < 1 or arguments.epochs < 1:
        parser.error("--seeds and --epochs are at least 1")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Measure, print each accuracy and write the JSON."""
    arguments = parse_arguments(argv)
    entries = []
    try:
        for entry in measure(arguments):
            entries.append(entry)
            text = percent(entry["test"])
            sys.stdout.write(f"{entry['problem']:24s} {entry['method']:10s} {text} %\n")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"series_baselines: {error}\n")
        return 1
    payload = {
        "question": "test accuracy of classical methods on UEA time series",
        "epochs": arguments.epochs,
        "entries": entries,
    }
    sys.stderr.write(f"written to {record(arguments.name, payload, arguments.out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
