"""Correlation between the attention maps that different models learn."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from molslice.inference.maps import AttentionMap, Kind, map_of, record_calls
from molslice.studies.base import Findings, Request, Study
from molslice.studies.models import TrainedModel, draw_rows, find_models, load_data
from molslice.studies.options import require

KINDS: tuple[Kind, ...] = ("exact", "influence")


class Correlation(Study):
    """Pearson correlation between the learned maps of attentions, for each pair of layers.

    For each molecule the maps of two layers, averaged over heads, are compared entry by entry, over real
    tokens including the graph token. The diagonal is left out because it would dominate. The table holds the
    mean and the standard deviation over molecules. Each attention is trained with several seeds, and the
    correlation between seeds of one attention is the reference for correlations between attentions.

    `exact` maps are those of `molslice.inference.maps`. `influence` is |d out_i / d tokens_j|, the same
    quantity for every attention. A constant map has no correlation, and its cells in the CSV are empty. In
    the last layer a prediction depends on token 0 only, so the other rows of its map do not affect
    predictions.

    Source: The question is that of the Singularformer paper's comparison of learned attention maps (doi
    10.24963/ijcai.2023/493). The data, the seeds and the use of influence are ours.
    """

    summary: ClassVar[str] = "correlation of learned attention maps, between attentions and between seeds"
    takes_runs: ClassVar[bool] = True
    unused_with_runs: ClassVar[tuple[str, ...]] = ("models", "seeds", "steps")

    def __init__(
        self,
        *,
        models: Annotated[tuple[str, ...], "attentions to train, or shipped models"] = (
            "softmax",
            "slice_sort",
            "flow",
            "singular",
        ),
        seeds: Annotated[int, "training runs of each attention"] = 2,
        steps: Annotated[int, "training steps of each"] = 400,
        molecules: Annotated[int, "molecules, or rows of the runs' data"] = 8,
        data: Annotated[str, "folder of the molecules"] = "data/gap_xtb",
    ) -> None:
        for name, value in {"seeds": seeds, "steps": steps, "molecules": molecules}.items():
            require(value >= 1, name, value, "at least 1")
        self.models, self.seeds, self.steps = models, seeds, steps
        self.molecules, self.data = molecules, data

    def measure(self, request: Request) -> Findings:
        """Measure one row for each kind of map and unordered pair of layers of the models."""
        dataset = load_data(request, self.data)
        models, left_out = find_models(
            self.models, request, data=self.data, steps=self.steps, seeds=self.seeds
        )
        batch = dataset.collate(draw_rows(dataset, self.molecules, request.seed))
        rows: list[dict[str, Any]] = []
        agreement: dict[str, Any] = {}
        for kind in KINDS:
            layers, maps = [], []
            for model in models:
                request.tell(f"{kind} maps: {model.label}")
                for layer, call in enumerate(record_calls(model.model, batch)):
                    found = map_of(call, layer, kind)
                    layers.append((model, layer + 1, found.kind))
                    maps.append(_entries(found))
            values = _correlations(maps)
            rows += _rows(kind, layers, values)
            agreement[kind] = _agreement(layers, values)
        notes = {"models": [m.about for m in models], "left_out": left_out, "same_layer": agreement}
        return Findings(rows, notes)

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw a matrix of layers against layers for each kind of map."""
        figure.set_size_inches(13.0, 6.2)
        for axes, kind in zip(figure.subplots(1, len(KINDS)), KINDS, strict=True):
            rows = [row for row in findings.rows if row["maps"] == kind]
            layers = list(dict.fromkeys((row["model_a"], row["layer_a"]) for row in rows))
            where = {layer: index for index, layer in enumerate(layers)}
            matrix = np.full((len(layers), len(layers)), np.nan)
            for row in rows:
                i, j = where[row["model_a"], row["layer_a"]], where[row["model_b"], row["layer_b"]]
                matrix[i, j] = matrix[j, i] = np.nan if row["mean"] is None else row["mean"]
            shown = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
            _label(axes, [model for model, _ in layers])
            axes.set_title(f"{kind} maps")
            figure.colorbar(shown, ax=axes, shrink=0.7, label="correlation, mean over rows")


LayerMap = tuple[TrainedModel, int, Kind]


def _entries(found: AttentionMap) -> list[Tensor]:
    """Return for each molecule the off-diagonal entries between real tokens, averaged over heads."""
    weights, entries = found.weights.double().mean(1), []
    for matrix, mask in zip(weights, found.token_mask, strict=True):
        wanted = (mask[:, None] & mask[None]) & ~torch.eye(len(mask), dtype=torch.bool, device=mask.device)
        entries.append(matrix[wanted])
    return entries


def _correlations(maps: Sequence[list[Tensor]]) -> np.ndarray:
    """Return the correlations of all pairs of maps [maps, maps, molecules]; NaN for constant maps."""
    slices = []
    for molecule in zip(*maps, strict=True):
        values = torch.stack(molecule)
        spread = values - values.mean(1, keepdim=True)
        size = spread.norm(dim=1, keepdim=True)
        is_flat = size <= 1e-12 * values.norm(dim=1, keepdim=True)  # the spread is rounding errors
        unit = (spread / size).masked_fill(is_flat, torch.nan)
        slices.append((unit @ unit.T).numpy())
    return np.stack(slices, -1)


def _rows(kind: Kind, layers: list[LayerMap], values: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    for i, (model_a, layer_a, kind_a) in enumerate(layers):
        for j, (model_b, layer_b, kind_b) in enumerate(layers[i:], start=i):
            known = values[i, j][np.isfinite(values[i, j])]
            rows.append(
                {
                    "maps": kind,
                    "model_a": model_a.label,
                    "layer_a": layer_a,
                    "map_a": kind_a,  # influence if an attention has no exact map
                    "model_b": model_b.label,
                    "layer_b": layer_b,
                    "map_b": kind_b,
                    "mean": float(known.mean()) if len(known) else None,
                    "sd": float(known.std()) if len(known) else None,
                    "rows": len(known),
                }
            )
    return rows


def _agreement(layers: list[LayerMap], values: np.ndarray) -> dict[str, float | None]:
    """Return the mean correlation between the same layer of two models, for each pair of attentions."""
    found: dict[str, list[float]] = {}
    for i, (model_a, layer_a, _) in enumerate(layers):
        for j, (model_b, layer_b, _) in enumerate(layers[i + 1 :], start=i + 1):
            if layer_a == layer_b and model_a is not model_b:
                pair = " and ".join(sorted((model_a.attention, model_b.attention)))
                found.setdefault(pair, []).extend(values[i, j][np.isfinite(values[i, j])].tolist())
    return {pair: float(np.mean(known)) if known else None for pair, known in sorted(found.items())}


def _label(axes: Axes, models: list[str]) -> None:
    """Label the layers of each model once, and draw lines between models."""
    names = list(dict.fromkeys(models))
    first = [models.index(name) for name in names]
    last = [*first[1:], len(models)]
    for border in first[1:]:
        axes.axhline(border - 0.5, color="black", linewidth=0.6)
        axes.axvline(border - 0.5, color="black", linewidth=0.6)
    centers = [(a + b - 1) / 2 for a, b in zip(first, last, strict=True)]
    axes.set_xticks(centers, names, rotation=45, ha="right", fontsize="small")
    axes.set_yticks(centers, names, fontsize="small")
