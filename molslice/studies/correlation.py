"""Correlation between the attention maps that different models learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from molslice.inference.maps import AttentionCall, AttentionMap, Kind, map_of, sampled_rows
from molslice.studies.base import Findings, Least, Request, Study
from molslice.studies.models import FOUR, TrainedModel, calls_of, draw_rows, find_models, load_data
from molslice.types import MolsliceError

KINDS: tuple[Kind, ...] = ("exact", "influence")
MEAN = "mean"  # in the place of a layer


@dataclass(frozen=True, kw_only=True)
class Correlation(Study):
    """Pearson correlation between the learned maps of attentions, row by row.

    The definition is from the paper: the maximum of a map over the heads, the mean over the layers, then
    the Pearson correlation of row i of one model with row i of the other, over the tokens j. Here the mean
    over the rows i is the correlation on one molecule, and the table holds the mean and the standard
    deviation over molecules. Rows and columns are the real tokens including the graph token. The rows of the
    table where both layers are `mean` hold this number. The others compare two layers in the same way,
    without the mean over layers.

    Each attention is trained with several seeds, and the correlation between seeds of one attention is the
    reference for correlations between attentions. `exact` maps are as in `molslice.inference.maps`.
    `influence` is |d out_i / d tokens_j|, the same quantity for every attention, with one map for all heads.
    A constant row has no correlation and is left out; the cells of a map of constant rows are empty. In the
    last layer a prediction depends on token 0 only, so the other rows of its map do not affect predictions.
    With more than 512 tokens, 64 rows of each map are compared, evenly spaced.

    Source: Wu et al. 2023 (Singularformer, doi 10.24963/ijcai.2023/493), the comparison of learned attention
    maps. The data, the seeds, the layers one by one and the use of influence are ours.
    """

    summary: ClassVar[str] = "correlation of learned attention maps, between attentions and between seeds"
    unused_with_runs: ClassVar[tuple[str, ...]] = ("models", "seeds", "steps")

    models: Annotated[tuple[str, ...], "attentions to train, or shipped models"] = FOUR
    seeds: Annotated[int, "training runs of each attention", Least(1)] = 2
    steps: Annotated[int, "training steps of each", Least(1)] = 400
    molecules: Annotated[int, "molecules, or rows of the runs' data", Least(1)] = 8
    data: Annotated[str, "folder of the molecules"] = "data/gap_xtb"

    def measure(self, request: Request) -> Findings:
        """Measure one row for each kind of map and unordered pair of layers, and of means over layers."""
        dataset = load_data(request, self.data)
        models, left_out = find_models(self.models, request, self.data, self.steps, self.seeds)
        batch = dataset.collate(draw_rows(dataset, self.molecules, request.seed))
        rows: list[dict[str, Any]] = []
        agreement: dict[str, Any] = {}
        for kind in KINDS:
            layers: list[LayerMap] = []
            for model in models:
                request.tell(f"{kind} maps: {model.label}")
                layers += _layers(model, calls_of(model.model, dataset, batch), kind)
            values = _correlations(layers)
            rows += _rows(kind, layers, values)
            agreement[kind] = _agreement(layers, values)
        notes = {"models": [m.about for m in models], "left_out": left_out, "mean_of_layers": agreement}
        return Findings(rows, notes)

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw a matrix of layers against layers for each kind of map; the last of a model is the mean."""
        figure.set_size_inches(13.0, 6.2)
        for axes, kind in zip(figure.subplots(1, len(KINDS)), KINDS, strict=True):
            rows = findings.select(maps=kind)
            layers = list(dict.fromkeys((row["model_a"], row["layer_a"]) for row in rows))
            where = {layer: index for index, layer in enumerate(layers)}
            matrix = np.full((len(layers), len(layers)), np.nan)
            for row in rows:
                i, j = where[row["model_a"], row["layer_a"]], where[row["model_b"], row["layer_b"]]
                matrix[i, j] = matrix[j, i] = np.nan if row["mean"] is None else row["mean"]
            shown = axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")
            _label(axes, [model for model, _ in layers])
            axes.set_title(f"{kind} maps")
            label = "correlation by row, mean over rows and molecules"
            figure.colorbar(shown, ax=axes, shrink=0.7, label=label)


class LayerMap(NamedTuple):
    """The map of a layer, or the mean over the layers of a model."""

    model: TrainedModel
    layer: int | str  # from 1, or `mean`
    kind: Kind  # influence if an attention has no exact one
    matrices: list[Tensor]  # of each molecule [rows, tokens], the maximum over heads


def _layers(model: TrainedModel, calls: Sequence[AttentionCall], kind: Kind) -> list[LayerMap]:
    """Return the map of each layer, then the mean over layers."""
    layers = []
    for number, call in enumerate(calls, start=1):
        attention_map = map_of(call, number - 1, kind, sampled_rows(call.tokens.shape[1]))
        layers.append(LayerMap(model, number, attention_map.kind, _matrices(attention_map)))
    kinds: set[Kind] = {layer.kind for layer in layers}
    means = [torch.stack(maps).mean(0) for maps in zip(*(layer.matrices for layer in layers), strict=True)]
    return [*layers, LayerMap(model, MEAN, "influence" if "influence" in kinds else "exact", means)]


def _matrices(attention_map: AttentionMap) -> list[Tensor]:
    """Return the maximum over heads of the map of each molecule, with the rows and columns of real tokens."""
    matrices = []
    for weights, mask in zip(attention_map.weights.double().amax(1), attention_map.token_mask, strict=True):
        is_real = mask if attention_map.rows is None else mask[attention_map.rows]
        matrices.append(weights[is_real][:, mask])
    return matrices


def _correlations(layers: Sequence[LayerMap]) -> np.ndarray:
    """Return the correlations of all pairs of maps [maps, maps, molecules]; NaN for maps of constant rows."""
    first = layers[0]
    for layer in layers[1:]:
        for one, other in zip(first.matrices, layer.matrices, strict=True):
            if one.shape != other.shape:
                raise MolsliceError(
                    f"{first.model.label} has {one.shape[1]} tokens of a row, {layer.model.label} has "
                    f"{other.shape[1]}; only maps between the same tokens can be compared"
                )
    molecules = zip(*(layer.matrices for layer in layers), strict=True)
    return np.stack([_row_correlations(torch.stack(maps)).numpy() for maps in molecules], -1)


def _row_correlations(maps: Float[Tensor, "L K N"]) -> Float[Tensor, "L L"]:
    """Return the Pearson correlation of row i of two maps, as mean over the rows that are not constant."""
    spread = maps - maps.mean(2, keepdim=True)
    size = spread.norm(dim=2, keepdim=True)
    is_constant = size <= 1e-12 * maps.norm(dim=2, keepdim=True)  # the spread is rounding errors
    unit = (spread / size).masked_fill(is_constant, torch.nan).transpose(0, 1)
    return (unit @ unit.transpose(1, 2)).nanmean(0)


def _rows(kind: Kind, layers: list[LayerMap], values: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    for i, one in enumerate(layers):
        for j, other in enumerate(layers[i:], start=i):
            known = values[i, j][np.isfinite(values[i, j])]
            row: dict[str, Any] = {"maps": kind}
            for side, layer in (("a", one), ("b", other)):
                row[f"model_{side}"], row[f"layer_{side}"] = layer.model.label, layer.layer
                row[f"map_{side}"] = layer.kind
            row["mean"], row["sd"] = (float(known.mean()), float(known.std())) if len(known) else (None, None)
            rows.append({**row, "rows": len(known)})
    return rows


def _agreement(layers: list[LayerMap], values: np.ndarray) -> dict[str, float | None]:
    """Return the correlation between the means over layers of two models, for each pair of attentions."""
    pairs: dict[str, list[float]] = {}
    for i, one in enumerate(layers):
        for j, other in enumerate(layers[i + 1 :], start=i + 1):
            if one.layer == other.layer == MEAN:
                pair = " and ".join(sorted((one.model.attention, other.model.attention)))
                pairs.setdefault(pair, []).extend(values[i, j][np.isfinite(values[i, j])].tolist())
    return {pair: float(np.mean(known)) if known else None for pair, known in sorted(pairs.items())}


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
