"""Attention maps and their parts, drawn on a molecule and on an image."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from molslice.chem.featurize import molecule_arrays
from molslice.chem.layout import Depiction, depict
from molslice.data.base import Dataset
from molslice.data.images.base import ImageDataset
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.figures import add_scale, draw_matrix, draw_molecule
from molslice.inference.maps import (
    AttentionCall,
    AttentionMap,
    map_of,
    mixed_tokens,
    record_calls,
    sampled_rows,
)
from molslice.model.graphormer import Graphormer
from molslice.studies.base import Findings, Least, Request, Study
from molslice.studies.models import (
    TrainedModel,
    calls_of,
    draw_rows,
    find_models,
    given_models,
    load_other_data,
)
from molslice.studies.untrained import (
    draw_image,
    embed_patches,
    open_image,
    read_choice,
    seeded_encoder,
    whole_image,
)
from molslice.types import MolsliceError

PATCH, IMAGE_SIZE = 4, 32
PANELS = 2  # quantities beside a map
COLUMNS = 4  # of one input: the map, the input of W_O, two quantities
MIXED = "input of W_O"
DIM, HEADS, LAYERS = 64, 8, 4  # the untrained encoder of the image; the sizes of the short trainings
CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"


@dataclass(frozen=True, kw_only=True)
class Maps(Study):
    """The map of one layer of each attention, the input of its output map, and two quantities of each token.

    On the left is a molecule in a trained model. On the right is an image of 8 x 8 patches in an untrained
    encoder with the same attention, which shows the form of the map but nothing learned. Runs that were
    trained on other data are shown on one of their test rows instead. If the row is a square image cut into
    patches, the quantities are drawn over the image, otherwise along the sequence.

    The first matrix is the exact map averaged over heads, or the influence map if the attention has no exact
    one. Entry (i, j) is the weight of token j in the output of token i. Token 0 is the graph token or the
    class token if the model has one. The second matrix is the input of the output map W_O, tokens by
    channels: for `slice_sort` it is SliceSort(X) itself. The two quantities of each atom, patch or token are
    the ones that the attention defines (`by_token` of its `exact_map`), then its weight in the output of
    token 0 and its mean weight in all outputs.

    With more than 512 tokens, both matrices have 64 rows, evenly spaced from the first to the last token. The
    number of operations then grows with the cost of the attention and not with the square of the length, and
    influence maps are estimates. Means are over these rows, and the notes and the figure say so.
    """

    summary: ClassVar[str] = "attention maps and their parts, on a molecule and on an image"
    unused_with_runs: ClassVar[tuple[str, ...]] = ("models", "steps", "data")

    models: Annotated[tuple[str, ...], "shipped models, and attentions to train"] = (
        "gap-xtb",
        "slice_sort",
        "flow",
        "singular",
    )
    smiles: Annotated[str, "the molecule (default: caffeine)"] = CAFFEINE
    layer: Annotated[int, "layer, counted from 1", Least(1)] = 2
    steps: Annotated[int, "training steps of each attention", Least(1)] = 400
    image: Annotated[Path | None, "image file (default: synthetic)"] = None
    data: Annotated[str, "folder of the molecules to train on"] = "data/gap_xtb"

    def measure(self, request: Request) -> Findings:
        """Measure one row for each entry of a matrix and for each token of a quantity."""
        dataset = load_other_data(request)
        if dataset is not None:
            return self._measure_row(dataset, request)
        molecule = molecule_arrays(self.smiles)
        batch = collate(MoleculeStore.in_memory([molecule]), [0])
        if self.image is None:
            picture = draw_image(IMAGE_SIZE, request.seed)
        else:
            picture = whole_image(open_image(self.image), IMAGE_SIZE)
        models, left_out = find_models(self.models, request, self.data, self.steps)
        rows: list[dict[str, Any]] = []
        untrained: dict[str, str] = {}
        for trained in models:
            if not isinstance(trained.model, Graphormer):
                raise MolsliceError(f"{trained.label} is not a model of molecules")
            request.tell(trained.label)
            calls = record_calls(trained.model, batch)
            rows += _rows("molecule", trained, *self._map(calls, trained.label))
            try:
                calls = self._calls_on(picture, trained, request.seed)
            except (MolsliceError, RuntimeError) as error:
                untrained[trained.label] = " ".join(str(error).split())
                continue
            rows += _rows("image", trained, *self._map(calls, trained.label))
        notes = {
            "models": [model.about for model in models],
            "left_out": left_out,
            "no_image": untrained,
            "image": "untrained encoder",
        }
        return Findings(rows, notes, {"depiction": depict(molecule), "picture": picture})

    def _measure_row(self, dataset: Dataset, request: Request) -> Findings:
        """Measure the models of the runs on one row of their test split, drawn by the seed."""
        chosen = draw_rows(dataset, 1, request.seed)
        batch, picture = dataset.collate(chosen), _patched(dataset, int(chosen[0]))
        kind = "sequence" if picture is None else "image"
        source = f"row {int(chosen[0])} of the data{', its first text' if dataset.spec.paired else ''}"
        models = given_models(request.runs)
        rows: list[dict[str, Any]] = []
        sampled: dict[str, str] = {}
        for trained in models:
            request.tell(trained.label)
            calls = calls_of(trained.model, dataset, batch)
            attention_map, mixed = self._map(calls, trained.label)
            rows += _rows(kind, trained, attention_map, mixed)
            if attention_map.rows is not None:
                length = attention_map.token_mask.shape[1]
                sampled[trained.label] = f"{len(attention_map.rows)} of {length:,}, evenly spaced"
        notes = {"models": [model.about for model in models], kind: source, "rows_of_map": sampled}
        return Findings(rows, notes, {} if picture is None else {"picture": picture})

    def _map(self, calls: list[AttentionCall], label: str) -> tuple[AttentionMap, Tensor | None]:
        """Return the map of the layer, and the input of its W_O [B, N, D]."""
        if self.layer > len(calls):
            raise MolsliceError(f"{label} has {len(calls)} layers, so there is no layer {self.layer}")
        call = calls[self.layer - 1]
        sampled = sampled_rows(call.tokens.shape[1])
        return map_of(call, self.layer - 1, rows=sampled), mixed_tokens(call)

    def _calls_on(self, picture: np.ndarray, model: TrainedModel, seed: int) -> list[Any]:
        tokens = embed_patches([picture], PATCH, DIM, seed)
        encoder = seeded_encoder(
            read_choice(model.attention),
            seed,
            dim=DIM,
            num_layers=max(LAYERS, self.layer),
            num_heads=HEADS,
            uses_pair_bias=False,
            max_tokens=tokens.shape[1],
        )
        return record_calls(encoder, tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw a row for each attention: two matrices and two quantities, for each of molecule and image."""
        labels = findings.values_of("model")
        kinds = ["molecule", "image"] if "depiction" in findings.extra else findings.values_of("input")
        figure.set_size_inches(3.0 * COLUMNS * len(kinds), 2.9 * len(labels))
        panels = figure.subplots(len(labels), COLUMNS * len(kinds), squeeze=False)
        for line, label in zip(panels, labels, strict=True):
            for k, kind in enumerate(kinds):
                _draw_input(figure, line[COLUMNS * k : COLUMNS * (k + 1)], findings, label, kind)
        both = "left: trained on molecules, right: untrained, on the patches of an image"
        figure.suptitle(
            f"layer {self.layer}; {both if len(kinds) == 2 else 'of the data trained on'}", fontsize="medium"
        )


def _rows(
    kind: str, model: TrainedModel, attention_map: AttentionMap, mixed: Tensor | None
) -> list[dict[str, Any]]:
    matrix = attention_map.weights[0].mean(0)
    tokens = list(range(len(matrix))) if attention_map.rows is None else attention_map.rows.tolist()
    source = {"input": kind, "model": model.label, "attention": model.attention, "map": attention_map.kind}

    def row(quantity: str, value: float, i: int | None, j: int | None, channel: int | None) -> dict[str, Any]:
        place = {"token_i": i, "token_j": j, "channel": channel}
        return {**source, "quantity": quantity, **place, "value": value}

    rows = []
    for i, line in zip(tokens, matrix.tolist(), strict=True):
        rows += [row("map", value, i, j, None) for j, value in enumerate(line)]
    if mixed is not None:
        for i, line in zip(tokens, mixed[0, tokens].tolist(), strict=True):
            rows += [row(MIXED, value, i, None, channel) for channel, value in enumerate(line)]
    for quantity, values in _parts(attention_map, matrix).items():
        rows += [row(quantity, value, None, j, None) for j, value in enumerate(values.tolist())]
    return rows


def _parts(attention_map: AttentionMap, matrix: Tensor) -> Mapping[str, Tensor]:
    """Return two values for each token of the first sequence, averaged over heads, by caption."""
    by_attention = {caption: numbers[0] for caption, numbers in attention_map.by_token.items()}
    outputs = "all" if attention_map.rows is None else f"{len(attention_map.rows)} tokens"
    by_weight = {"taken by token 0": matrix[0], f"taken by {outputs}": matrix.mean(0)}
    return dict(list({**by_attention, **by_weight}.items())[:PANELS])


def _draw_input(figure: Figure, panels: Any, findings: Findings, label: str, kind: str) -> None:  # noqa: ANN401
    rows = findings.select(model=label, input=kind)
    if not rows:
        for axes in panels:
            axes.axis("off")
        return
    matrix = _matrix(rows, "map", "token_j")
    is_trained = kind == "molecule" or "depiction" not in findings.extra
    shown = label if is_trained else f"{rows[0]['attention']}, untrained"
    count = "" if len(matrix) == len(matrix[0]) else f", {len(matrix)} of {len(matrix[0]):,} rows"
    draw_matrix(figure, panels[0], matrix, f"{shown}: {rows[0]['map']} map{count}")
    mixed = _matrix(rows, MIXED, "channel")
    if mixed.size:
        draw_matrix(figure, panels[1], mixed, f"{MIXED}, tokens by channels")
    else:
        panels[1].axis("off")
    quantities = dict.fromkeys(row["quantity"] for row in rows if row["quantity"] not in ("map", MIXED))
    for axes, quantity in zip(panels[2:], quantities, strict=True):
        values = np.array([row["value"] for row in rows if row["quantity"] == quantity])
        if kind == "molecule":
            depiction: Depiction = findings.extra["depiction"]
            draw_molecule(figure, axes, depiction, values[1:], quantity)
        elif kind == "image":
            _draw_patches(figure, axes, findings.extra["picture"], values, quantity)
        else:  # in the order of the tokens
            axes.plot(np.arange(len(values)), values, linewidth=0.9)
            axes.set_title(quantity, fontsize="small")
            axes.set_xlabel("token", fontsize="x-small")
            axes.tick_params(labelsize="xx-small")


def _matrix(rows: list[dict[str, Any]], quantity: str, column: str) -> np.ndarray:
    """Return the entries of a matrix, which are in the order of its rows."""
    entries = [row for row in rows if row["quantity"] == quantity]
    width = 1 + max((row[column] for row in entries), default=0)
    return np.array([row["value"] for row in entries]).reshape(-1, width)


def _patched(dataset: Dataset, row: int) -> np.ndarray | None:
    """Return the image of a row if it is square and its tokens are patches, else None."""
    if not (isinstance(dataset, ImageDataset) and dataset.cutting.tokens == "patches"):
        return None
    picture = dataset.images[row]
    return picture if picture.shape[0] == picture.shape[1] else None


def _draw_patches(figure: Figure, axes: Axes, picture: np.ndarray, values: np.ndarray, title: str) -> None:
    """Draw the values of the patches, which come last, over a gray image."""
    side = math.isqrt(len(values))
    values = values[len(values) - side**2 :]
    extent = (0.0, float(side), float(side), 0.0)
    axes.imshow(picture.mean(-1), cmap="gray", extent=extent, interpolation="nearest")
    shown = axes.imshow(
        values.reshape(side, side), cmap="viridis", alpha=0.65, extent=extent, interpolation="nearest"
    )
    axes.set_title(title, fontsize="small")
    axes.set_xticks([])
    axes.set_yticks([])
    add_scale(figure, axes, shown)
