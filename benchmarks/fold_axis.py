"""Compare the networks of all folds trained together, with a fold axis, and one after the other, on a CPU.

    python benchmarks/fold_axis.py

The networks have the weights of `encoder-small`, and each has its own batch of 32 molecules of
`data/gap_xtb`, all of one shape. Together, the weights are stacked, and `torch.func.vmap` adds an axis to the
forward pass. Both forms compute the same losses and gradients. The shortest paths, which have no weights, are
computed before. The rates are molecules per second of processor time, of forward and backward passes. Writes
`benchmarks/results/fold_axis.json`.
"""

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import ROOT, make_parser, median_and_range, median_ratio, record, take_turns
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from molslice import load_model
from molslice.data import build_dataset
from molslice.data.base import RowNumbers
from molslice.data.batching import FixedShapeBatches
from molslice.model import graphormer
from molslice.ops.path_codes import path_codes
from molslice.types import MoleculeBatch, PathCodes

NAME = "fold_axis"
DEVICE = torch.device("cpu")
CODES = ("distance", "bonds", "degree")

Tensors = dict[str, Tensor]


class Folds:
    """The networks of K folds and a batch for each, apart and stacked.

    Args:
        num_folds: The number K.
        rows: Molecules of a batch.
    """

    def __init__(self, num_folds: int, rows: int) -> None:
        self.batches = choose_batches(num_folds, rows)
        self.molecules = sum(int(batch.atom_mask.any(1).sum()) for batch in self.batches)
        model: Any = load_model("encoder-small")
        self.models: list[nn.Module] = [copy.deepcopy(model.model).train() for _ in self.batches]
        weights, self.buffers = stack_module_state(self.models)
        self.weights = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        codes = [path_codes(batch.adjacency) for batch in self.batches if batch.adjacency is not None]
        self.codes = [{name: getattr(code, name) for name in CODES} for code in codes]
        self.stacked_batch = stack([batch.tensors for batch in self.batches])
        self.stacked_codes = stack(self.codes)
        self._codes: Tensors = {}  # of the batch under way
        graphormer.path_codes = lambda adjacency: PathCodes(**self._codes)  # noqa: ARG005

    def compute_apart(self) -> Tensor:
        """Compute losses and gradients of one network after the other, and return the losses [K]."""
        losses = []
        for model, batch, codes in zip(self.models, self.batches, self.codes, strict=True):
            model.zero_grad()
            self._codes = codes
            loss = model(batch).prediction.square().mean()
            loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses)

    def compute_together(self) -> Tensor:
        """Compute losses and gradients of all networks at once, and return the losses [K]."""

        def loss(weights: Tensors, buffers: Tensors, batch: Tensors, codes: Tensors) -> Tensor:
            self._codes = codes
            arguments: Any = batch
            output = functional_call(self.models[0], (weights, buffers), (MoleculeBatch(**arguments),))
            return output.prediction.square().mean()

        for weight in self.weights.values():
            weight.grad = None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            losses = vmap(loss)(self.weights, self.buffers, self.stacked_batch, self.stacked_codes)
        losses.sum().backward()
        return losses.detach()


def choose_batches(number: int, rows: int) -> list[MoleculeBatch]:
    """Return batches of the most frequent shape."""
    dataset = build_dataset("pcqm4m", {"root": str(ROOT / "data" / "gap_xtb")})
    stored = dataset.rows_on(DEVICE)
    assert stored is not None
    order = FixedShapeBatches(
        dataset.num_tokens, dataset.labeled_rows("train"), token_budget=128 * rows, batch_size=rows, seed=0
    )
    shapes: dict[Any, list[Any]] = {}
    for batch in order.epoch(0):
        shapes.setdefault(order.shape_of(batch), []).append(batch)
    shape, batches = max(shapes.items(), key=lambda entry: len(entry[1]))
    chosen: list[Any] = []
    for batch in batches[:number]:
        chosen.append(stored.gather(RowNumbers.filled(batch, shape.rows, shape.width)))
    return chosen


def stack(mappings: Sequence[Tensors]) -> Tensors:
    """Stack tensors of the same name."""
    return {name: torch.stack([tensors[name] for tensors in mappings]) for name in mappings[0]}


def rate_of(compute: Callable[[], Tensor], molecules: int, steps: int) -> float:
    """Return molecules per second of processor time."""
    start = time.process_time()
    for _ in range(steps):
        compute()
    return molecules * steps / (time.process_time() - start)


def main(argv: list[str] | None = None) -> Path:
    """Measure and record."""
    parser: argparse.ArgumentParser = make_parser(__doc__)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=32, help="molecules of a batch")
    parser.add_argument("--steps", type=int, default=3, help="steps of each form in a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    folds = Folds(options.folds, options.rows)
    forms = {"apart": folds.compute_apart, "together": folds.compute_together}
    apart, together = (compute() for compute in forms.values())  # the first steps take longer
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)
    rates = {
        form: partial(rate_of, compute, folds.molecules, options.steps) for form, compute in forms.items()
    }
    values = take_turns(rates, options.rounds)
    payload = {
        "question": "rate of networks trained together, relative to one after the other",
        **{name: getattr(options, name) for name in ("folds", "rows", "steps", "rounds")},
        "threads": 1,
        **{form: median_and_range(values[form]) for form in forms},
        "ratio": median_ratio(values["together"], values["apart"]),
    }
    return record(NAME, payload, options.out)


if __name__ == "__main__":
    print(main())
