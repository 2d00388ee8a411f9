"""Attention maps and their parts, drawn on a molecule and on an image."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeGuard

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from molslice.chem.depict import Depiction, depict
from molslice.chem.featurize import molecule_arrays
from molslice.data.base import Dataset
from molslice.data.images.base import ImageDataset
from molslice.data.molecules.collate import collate
from molslice.data.molecules.store import MoleculeStore
from molslice.inference.maps import AttentionMap, map_of, record_calls
from molslice.model.graphormer import Graphormer
from molslice.studies.base import Findings, Request, Study
from molslice.studies.drawing import draw_matrix, draw_molecule
from molslice.studies.models import TrainedModel, draw_rows, find_models, load_other_data
from molslice.studies.networks import read_choice, seeded_encoder
from molslice.studies.options import require
from molslice.studies.patches import draw_image, embed_patches, open_image, whole_image
from molslice.types import MolsliceError

PATCH, IMAGE_SIZE = 4, 32
PANELS = 2  # quantities beside a map
MAX_TOKENS = 512  # limit for a sequence whose map is drawn
DIM, HEADS, LAYERS = 64, 8, 4  # the untrained encoder of the image; the sizes of the short trainings
CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"


class Maps(Study):
    """The map of one layer of each attention, and two quantities of each token.

    On the left is a molecule in a trained model. On the right is an image of 8 x 8 patches in an untrained
    encoder with the same attention, which shows the form of the map but nothing learned. Runs that were
    trained on other data are shown on one of their test rows instead. If the row is a square image cut into
    patches, the quantities are drawn over the image, otherwise along the sequence (at most 512 tokens).

    The matrix is the exact map averaged over heads, or the influence map if the attention has no exact one.
    Entry (i, j) is the weight of token j in the output of token i. Token 0 is the graph token or the class
    token if the model has one. The two quantities of each atom, patch or token are those that the attention
    defines (`by_token` of its `exact_map`), then its weight in the output of token 0 and its mean weight in
    all outputs.
    """

    summary: ClassVar[str] = "attention maps and their parts, on a molecule and on an image"
    takes_runs: ClassVar[bool] = True
    unused_with_runs: ClassVar[tuple[str, ...]] = ("models", "steps", "data")

    def __init__(
        self,
        *,
        models: Annotated[tuple[str, ...], "shipped models, and attentions to train"] = (
            "gap-xtb",
            "slice_sort",
            "flow",
            "singular",
        ),
        smiles: Annotated[str, "the molecule (default: caffeine)"] = CAFFEINE,
        layer: Annotated[int, "layer, counted from 1"] = 2,
        steps: Annotated[int, "training steps of each attention"] = 400,
        image: Annotated[Path | None, "image file (default: synthetic)"] = None,
        data: Annotated[str, "folder of the molecules to train on"] = "data/gap_xtb",
    ) -> None:
        require(layer >= 1, "layer", layer, "at least 1")
        require(steps >= 1, "steps", steps, "at least 1")
        self.models, self.smiles, self.layer = models, smiles, layer
        self.steps, self.image, self.data = steps, image, data

    def measure(self, request: Request) -> Findings:
        """Measure one row for each entry of a matrix and for each token of a part.

        Raises:
            MolsliceError: Data or a model cannot be loaded, a model is not one of molecules, or it has no
                such layer.
        """
        dataset = load_other_data(request)
        if dataset is not None:
            return self._measure_row(dataset, request)
        molecule = molecule_arrays(self.smiles)
        batch = collate(MoleculeStore.in_memory([molecule]), [0])
        picture = self._image(request.seed)
        models, left_out = find_models(self.models, request, data=self.data, steps=self.steps)
        rows: list[dict[str, Any]] = []
        untrained: dict[str, str] = {}
        for found in models:
            if not isinstance(found.model, Graphormer):
                raise MolsliceError(f"{found.label} is not a model of molecules")
            request.tell(found.label)
            calls = record_calls(found.model, batch)
            rows += _rows("molecule", found, self._map(calls, found.label))
            try:
                calls = self._calls_on(picture, found, request.seed)
            except (MolsliceError, RuntimeError) as error:
                untrained[found.label] = " ".join(str(error).split())
                continue
            rows += _rows("image", found, self._map(calls, found.label))
        notes = {
            "models": [model.about for model in models],
            "left_out": left_out,
            "no_image": untrained,
            "image": "untrained encoder",
        }
        return Findings(rows, notes, {"depiction": depict(molecule), "picture": picture})

    def _measure_row(self, dataset: Dataset, request: Request) -> Findings:
        """Measure the models of the runs on one row of their test split, drawn by the seed."""
        chosen = draw_rows(dataset, 1, request.seed, None if _is_patched(dataset) else MAX_TOKENS)
        batch, picture = dataset.collate(chosen), _patched(dataset, int(chosen[0]))
        kind = "sequence" if picture is None else "image"
        about = f"row {int(chosen[0])} of the data{', its first text' if dataset.spec.paired else ''}"
        models, _ = find_models((), request, data=self.data, steps=1)
        rows: list[dict[str, Any]] = []
        for found in models:
            request.tell(found.label)
            calls = record_calls(found.model, batch)
            calls = calls[: len(calls) // 2] if dataset.spec.paired else calls
            rows += _rows(kind, found, self._map(calls, found.label))
        notes = {"models": [model.about for model in models], kind: about}
        return Findings(rows, notes, {} if picture is None else {"picture": picture})

    def _map(self, calls: list[Any], label: str) -> AttentionMap:
        if self.layer > len(calls):
            raise MolsliceError(f"{label} has {len(calls)} layers, so there is no layer {self.layer}")
        return map_of(calls[self.layer - 1], self.layer - 1)

    def _image(self, seed: int) -> np.ndarray:
        if self.image is None:
            return draw_image(IMAGE_SIZE, seed)
        return whole_image(open_image(self.image), IMAGE_SIZE)

    def _calls_on(self, picture: np.ndarray, found: TrainedModel, seed: int) -> list[Any]:
        tokens = embed_patches([picture], PATCH, DIM, seed)
        encoder = seeded_encoder(
            read_choice(found.attention),
            seed,
            dim=DIM,
            num_layers=max(LAYERS, self.layer),
            num_heads=HEADS,
            uses_pair_bias=False,
            max_tokens=tokens.shape[1],
        )
        return record_calls(encoder, tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw a row for each attention: the matrix and two parts, for each of molecule and image."""
        labels = list(dict.fromkeys(row["model"] for row in findings.rows))
        kinds = list(dict.fromkeys(row["input"] for row in findings.rows))
        if "depiction" in findings.extra:
            kinds = ["molecule", "image"]
        figure.set_size_inches(9.0 * len(kinds), 2.9 * len(labels))
        panels = figure.subplots(len(labels), 3 * len(kinds), squeeze=False)
        for line, label in zip(panels, labels, strict=True):
            for k, kind in enumerate(kinds):
                _draw_three(figure, line[3 * k : 3 * k + 3], findings, label, kind)
        both = "left: trained on molecules, right: untrained, on the patches of an image"
        figure.suptitle(
            f"layer {self.layer}; {both if len(kinds) == 2 else 'of the data trained on'}", fontsize="medium"
        )


def _rows(kind: str, model: TrainedModel, found: AttentionMap) -> list[dict[str, Any]]:
    matrix = found.weights[0].mean(0)
    about = {"input": kind, "model": model.label, "attention": model.attention, "map": found.kind}
    rows = [
        {**about, "quantity": "map", "token_i": i, "token_j": j, "value": float(value)}
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
    ]
    for quantity, values in _parts(found, matrix).items():
        rows += [
            {**about, "quantity": quantity, "token_i": None, "token_j": j, "value": float(value)}
            for j, value in enumerate(values)
        ]
    return rows


def _parts(found: AttentionMap, matrix: Tensor) -> Mapping[str, Tensor]:
    """Return two values for each token of the first sequence, averaged over heads, by caption."""
    own = {caption: numbers[0] for caption, numbers in found.by_token.items()}
    of_all = {"taken by token 0": matrix[0], "taken by all": matrix.mean(0)}
    return dict(list({**own, **of_all}.items())[:PANELS])


def _draw_three(figure: Figure, three: Any, findings: Findings, label: str, kind: str) -> None:  # noqa: ANN401
    rows = [row for row in findings.rows if (row["model"], row["input"]) == (label, kind)]
    if not rows:
        for axes in three:
            axes.axis("off")
        return
    entries = [row["value"] for row in rows if row["quantity"] == "map"]
    size = int(len(entries) ** 0.5)
    matrix = np.array(entries).reshape(size, size)
    is_trained = kind == "molecule" or "depiction" not in findings.extra
    shown = label if is_trained else f"{rows[0]['attention']}, untrained"
    draw_matrix(figure, three[0], matrix, f"{shown}: {rows[0]['map']} map")
    for axes, quantity in zip(three[1:], _quantities(rows), strict=True):
        values = np.array([row["value"] for row in rows if row["quantity"] == quantity])
        if kind == "molecule":
            depiction: Depiction = findings.extra["depiction"]
            draw_molecule(figure, axes, depiction, values[1:], quantity)
        elif kind == "image":
            _draw_patches(figure, axes, findings.extra["picture"], values, quantity)
        else:
            _draw_along(axes, values, quantity)


def _quantities(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["quantity"] for row in rows if row["quantity"] != "map"))


def _patched(dataset: Dataset, row: int) -> np.ndarray | None:
    """Return the image of a row if it is square and its tokens are patches, else None."""
    if not _is_patched(dataset):
        return None
    picture = dataset.images[row]
    return picture if picture.shape[0] == picture.shape[1] else None


def _is_patched(dataset: Dataset) -> TypeGuard[ImageDataset]:
    return isinstance(dataset, ImageDataset) and dataset.cutting.tokens == "patches"


def _draw_along(axes: Axes, values: np.ndarray, title: str) -> None:
    """Draw the values of tokens in their order."""
    axes.plot(np.arange(len(values)), values, linewidth=0.9)
    axes.set_title(title, fontsize="small")
    axes.set_xlabel("token", fontsize="x-small")
    axes.tick_params(labelsize="xx-small")


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
    bar = figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize="xx-small")
