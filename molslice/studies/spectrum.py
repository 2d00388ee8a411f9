"""Effective number of directions in the output of an attention, layer by layer."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from molslice.data.molecules.base import MoleculeDataset
from molslice.figures import grid, line_style
from molslice.inference.maps import mixed_tokens
from molslice.studies.base import Findings, Least, Request, Study
from molslice.studies.models import FOUR, calls_of, find_models, load_data, rows_of
from molslice.types import MolsliceError

PLACES = ("input", "mixed", "output")


@dataclass(frozen=True, kw_only=True)
class Spectrum(Study):
    """Singular values of the input and the output of each attention of a trained model, and before W_O.

    The tokens of a molecule, or of another row of the runs' data, form a matrix [N, D]. Its singular values
    are divided by the largest. All rows are from the test split and have the same number of atoms or tokens,
    so that the k-th values are comparable; the CSV holds means and standard deviations over them. A spectrum
    that decreases quickly means that the tokens are alike (over-smoothing) or that the channels are alike,
    such as columns that are all sorted in ascending order. `effective_rank` is the exponential of the entropy
    of the singular values divided by their sum.

    `mixed` is the input of the output map W_O: for `slice_sort` it is SliceSort(X) itself. Attentions without
    such a map do not have it.

    By default the models are the shipped one and each of four attentions trained for `steps` steps.

    Source: Roy and Vetterli 2007 (EUSIPCO), the effective rank.
    """

    summary: ClassVar[str] = "singular values of attention outputs and before W_O, layer by layer"
    unused_with_runs: ClassVar[tuple[str, ...]] = ("models", "steps")

    models: Annotated[tuple[str, ...], "shipped models, and attentions to train"] = ("gap-xtb", *FOUR)
    steps: Annotated[int, "training steps of each", Least(1)] = 400
    molecules: Annotated[int, "molecules, or rows of the runs' data", Least(1)] = 64
    atoms: Annotated[int, "atoms or tokens of each (0: the most frequent number)", Least(0)] = 0
    data: Annotated[str, "folder of the molecules"] = "data/gap_xtb"

    def measure(self, request: Request) -> Findings:
        """Measure a row for each model, layer, side of the attention, and singular value or rank."""
        dataset = load_data(request, self.data)
        models, left_out = find_models(self.models, request, self.data, self.steps)
        rows = rows_of(dataset)
        sizes, extra = dataset.num_tokens[rows], isinstance(dataset, MoleculeDataset)  # the graph token
        length = self.atoms + extra if self.atoms else int(np.bincount(sizes).argmax())
        chosen = rows[sizes == length][: self.molecules]
        if not len(chosen):
            what = "atoms" if extra else "tokens"
            raise MolsliceError(f"no row drawn from {dataset.source} has {length - extra} {what}")
        batch = dataset.collate(chosen)
        spectra: list[dict[str, Any]] = []
        for model in models:
            request.tell(model.label)
            for layer, call in enumerate(calls_of(model.model, dataset, batch), start=1):
                places = (call.tokens, mixed_tokens(call), call.output.tokens)
                for place, tokens in zip(PLACES, places, strict=True):
                    if tokens is not None:
                        spectra += _rows({"model": model.label, "layer": layer, "place": place}, tokens)
        notes = {"models": [m.about for m in models], "left_out": left_out, "length": length - extra}
        return Findings(spectra, notes)

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw a panel for each model with a line for each layer, and the effective ranks of all models."""
        labels = findings.values_of("model")
        rows, columns = grid(len(labels) + 1)
        figure.set_size_inches(4.2 * columns, 3.4 * rows)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, label in zip(panels, labels, strict=False):
            layers = sorted({row["layer"] for row in findings.select(model=label)})
            for layer in layers:
                shade = colormaps["viridis"](0.9 * (layer - 1) / max(1, len(layers) - 1))
                indices, means = _line(findings, label, layer, "output")
                axes.plot(indices, means, marker=".", color=shade, label=f"layer {layer}")
                axes.plot(*_line(findings, label, layer, "mixed"), ":", color=shade)
            indices, means = _line(findings, label, layers[0], "input")
            axes.plot(indices, means, "--", color="0.6", label="input of layer 1")
            axes.plot([], [], ":", color="0.3", label="before W_O")
            axes.set(yscale="log", xlabel="singular value", ylabel="relative to the largest")
            axes.set_ylim(1e-5, 2.0)
            axes.set_title(label)
            axes.grid(alpha=0.3)
            axes.legend(fontsize="x-small", frameon=False)
        last = panels[len(labels)]
        for index, label in enumerate(labels):
            for place, style in (("output", {}), ("mixed", {"linestyle": ":", "label": None})):
                chosen = findings.select(model=label, place=place, quantity="effective_rank")
                layers, means, spread = ([row[k] for row in chosen] for k in ("layer", "mean", "sd"))
                line = {"label": label, **line_style(index), **style}
                last.errorbar(layers, means, yerr=spread, capsize=2, **line)
        last.set(xlabel="layer", ylabel="effective rank", title="output (dotted: before W_O)")
        last.xaxis.get_major_locator().set_params(integer=True)
        last.grid(alpha=0.3)
        last.legend(fontsize="x-small", frameon=False)
        for axes in panels[len(labels) + 1 :]:
            axes.axis("off")


def _rows(source: dict[str, Any], tokens: Float[Tensor, "B N D"]) -> list[dict[str, Any]]:
    values = torch.linalg.svdvals(tokens.double())  # [B, min(N, D)], descending
    relative = values / values[:, :1].clamp(min=torch.finfo(values.dtype).tiny)
    shares = values / values.sum(1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    rank = torch.special.entr(shares).sum(1).exp()
    quantities: list[tuple[str, int | None, Tensor]] = [
        ("singular_value", k + 1, column) for k, column in enumerate(relative.T)
    ]
    rows = []
    for quantity, index, numbers in [*quantities, ("effective_rank", None, rank)]:
        spread = {"mean": float(numbers.mean()), "sd": float(numbers.std(correction=0))}
        rows.append({**source, "quantity": quantity, "index": index, **spread, "rows": len(numbers)})
    return rows


def _line(findings: Findings, label: str, layer: int, place: str) -> tuple[list[int], list[float]]:
    rows = findings.select(model=label, layer=layer, place=place, quantity="singular_value")
    return [row["index"] for row in rows], [row["mean"] for row in rows]
