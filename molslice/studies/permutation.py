"""Change of a network's output under a permutation of its tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from molslice.attention import ATTENTIONS, Attention
from molslice.figures import line_style
from molslice.model import AttentionChoice
from molslice.model.embeddings import AtomEmbedding
from molslice.model.encoder import Encoder
from molslice.model.graph_bias import GraphBias
from molslice.ops.paths import bond_path_levels
from molslice.studies.base import Findings, Least, Request, Study
from molslice.studies.models import draw_rows, given_models, load_data
from molslice.studies.untrained import (
    crop_image,
    draw_image,
    embed_patches,
    open_image,
    read_choice,
    registered_entries,
    seeded_encoder,
)
from molslice.types import Batch, MoleculeBatch, MolsliceError

FLOOR = 1e-9  # a change of zero is drawn here on the logarithmic axis
SHOWN = {"all": "all tokens", "first": "token 0"}
PATCH = 4
IMAGE_SIZE = 32


class _Input(NamedTuple):
    """The input of an encoder: tokens, the mask of real tokens, and S + E, None without a pair bias."""

    tokens: Float[Tensor, "B N D"]
    token_mask: Bool[Tensor, "B N"]
    pair_bias: Float[Tensor, "B H N N"] | None = None


@dataclass(frozen=True, kw_only=True)
class Permutation(Study):
    """The change of each layer's output when all tokens but the first are shuffled.

    An encoder of `depth` layers receives tokens, and the same tokens in another order with their pair bias
    permuted accordingly. The normalized output after each layer is put back into the first order and
    compared. Features and positions are part of the tokens, so that only the order differs. The rows of the
    CSV are means and standard deviations over sequences, in float32, of:
      all: |f(x) - P^T f(P x)| / |f(x)| over the real tokens of a sequence, with Frobenius norms.
      first: the same for token 0, from which a prediction is computed.
      equal: the share of bitwise equal entries of token 0.

    Molecules are embedded and biased by an untrained graph encoding. Patches are the 8 x 8 patches of a
    synthetic image (or of crops of `image`), with a class token, normal positions and no pair bias. Both
    encoders are untrained with Glorot initialization. With runs, their trained encoders are measured on rows
    of their own data. An attention that cannot be measured has a row with the reason.

    Source: The shuffling experiment of the Sliceformer authors (`vit_equ.py`: patches, untrained, token 0
    after each layer, distance and share of equal entries). Molecules, relative change and spread are ours.
    """

    summary: ClassVar[str] = "change of a whole network's output under a permutation of its tokens, by depth"
    unused_with_runs: ClassVar[tuple[str, ...]] = ("attentions", "depth", "dim", "heads", "images", "image")

    attentions: Annotated[tuple[str, ...], "entries as in compare (default: all registered)"] = ()
    depth: Annotated[int, "layers", Least(1)] = 8
    dim: Annotated[int, "width", Least(1)] = 64
    heads: Annotated[int, "heads", Least(1)] = 4
    molecules: Annotated[int, "molecules, or rows of a run's data", Least(1)] = 32
    images: Annotated[int, "images", Least(1)] = 16
    image: Annotated[Path | None, "image file to cut pieces from (default: synthetic)"] = None
    data: Annotated[str, "folder of the molecules"] = "data/gap_xtb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise MolsliceError(f"dim is {self.dim}, expected a multiple of heads={self.heads}")

    def measure(self, request: Request) -> Findings:
        """Measure one row for each kind of input, attention and depth."""
        dataset = load_data(request, self.data)
        batch = dataset.collate(draw_rows(dataset, self.molecules, request.seed))
        if request.runs:
            return self._measure_runs(batch, dataset.row_name, request)
        assert isinstance(batch, MoleculeBatch)
        choices = {entry: read_choice(entry) for entry in self.attentions or registered_entries()}
        inputs = {"molecules": self._molecules(batch, request.seed), "patches": self._patches(request)}
        rows: list[dict[str, Any]] = []
        for kind, given in inputs.items():
            orders = _shuffled(given.token_mask, request.seed)
            for entry, choice in choices.items():
                request.tell(f"{kind}: {entry}")
                rows += self._rows_of(kind, entry, choice, given, orders, request.seed)
        left_out = {f"{row['input']}, {row['attention']}": row["reason"] for row in rows if row["reason"]}
        return Findings(rows, {"left_out": left_out})

    def _rows_of(
        self, kind: str, entry: str, choice: AttentionChoice, given: _Input, orders: Tensor, seed: int
    ) -> list[dict[str, Any]]:
        symmetry = ATTENTIONS.find(choice.name).traits.symmetry
        try:
            encoder = seeded_encoder(
                choice,
                seed,
                dim=self.dim,
                num_layers=self.depth,
                num_heads=self.heads,
                uses_pair_bias=given.pair_bias is not None,
                max_tokens=given.tokens.shape[1],
            )
            symmetry = _symmetry(encoder)
            changes = _changes(encoder, given, orders)
        except (ValueError, RuntimeError) as error:  # the other attentions are still measured
            return [_row(kind, entry, symmetry, reason=" ".join(str(error).split()))]
        return [_row(kind, entry, symmetry, depth, change) for depth, change in enumerate(changes, 1)]

    def _measure_runs(self, batch: Batch, row_name: str, request: Request) -> Findings:
        models = given_models(request.runs)
        rows: list[dict[str, Any]] = []
        for trained in models:
            request.tell(trained.label)
            encoder = next(module for module in trained.model.modules() if isinstance(module, Encoder))
            given = _recorded_input(encoder, trained.model, batch)
            symmetry = _symmetry(encoder)
            changes = _changes(encoder, given, _shuffled(given.token_mask, request.seed))
            rows += [_row(row_name, trained.label, symmetry, depth, x) for depth, x in enumerate(changes, 1)]
        return Findings(rows, {"models": [model.about for model in models]})

    @torch.no_grad()
    def _molecules(self, batch: MoleculeBatch, seed: int) -> _Input:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            embed, bias = AtomEmbedding(self.dim), GraphBias(self.heads)
        levels = bond_path_levels(batch.bond_index, *batch.atom_mask.shape)
        mask = nn.functional.pad(batch.atom_mask, (1, 0), value=True)
        return _Input(embed(batch.atoms, levels.degree), mask, bias(levels, batch.bond_features))

    def _patches(self, request: Request) -> _Input:
        seeds = range(request.seed * 1000, request.seed * 1000 + self.images)
        if self.image is None:
            images = [draw_image(IMAGE_SIZE, seed) for seed in seeds]
        else:
            source = open_image(self.image)
            images = [crop_image(source, IMAGE_SIZE, seed) for seed in seeds]
        tokens = embed_patches(images, PATCH, self.dim, request.seed)
        return _Input(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def draw(self, findings: Findings, figure: Figure) -> None:
        """Draw all tokens above and token 0 below, a column for each input and a line for each attention."""
        kinds, names = findings.values_of("input"), findings.values_of("attention")
        figure.set_size_inches(5.0 * len(kinds) + 3.0, 9.0)
        panels = figure.subplots(len(SHOWN), len(kinds), squeeze=False, sharey=True, sharex=True)
        for line, (quantity, words) in zip(panels, SHOWN.items(), strict=True):
            line[0].set_ylabel(f"relative change of {words}")
            for axes, kind in zip(line, kinds, strict=True):
                for index, name in enumerate(names):
                    rows = findings.select(input=kind, attention=name)
                    if not rows[0]["reason"]:
                        _draw_line(axes, rows, quantity, name, index)
                axes.set(yscale="log", title=kind)
                axes.grid(alpha=0.3)
        for axes in panels[-1]:
            axes.set_xlabel("layers")
        legends = [axes.get_legend_handles_labels() for axes in panels[0]]
        handles = {label: handle for both in legends for handle, label in zip(*both, strict=True)}
        title = f"mean, sd over sequences;\na change of 0 is drawn at {FLOOR:g}"
        style = {"fontsize": "x-small", "title_fontsize": "x-small", "frameon": False}
        figure.legend(handles.values(), handles, loc="outside right upper", title=title, **style)


def _draw_line(axes: Axes, rows: list[dict[str, Any]], quantity: str, name: str, index: int) -> None:
    means, spread = (np.array([row[f"{quantity}_{k}"] for row in rows]) for k in ("mean", "sd"))
    means = means.clip(min=FLOOR)
    bars = np.minimum(spread, 0.9 * means), spread
    style = {"label": name, "capsize": 2, "elinewidth": 0.6, **line_style(index)}
    axes.errorbar([row["depth"] for row in rows], means, yerr=bars, **style)


def _row(
    kind: str,
    entry: str,
    symmetry: str,
    depth: int | None = None,
    change: dict[str, Tensor] | None = None,
    reason: str = "",
) -> dict[str, Any]:
    row: dict[str, Any] = {"input": kind, "attention": entry, "symmetry": symmetry, "depth": depth}
    for name in ("all", "first", "equal"):
        values = None if change is None else change[name]
        row[f"{name}_mean"] = None if values is None else float(values.mean())
        row[f"{name}_sd"] = None if values is None else float(values.std(correction=0))
    return {**row, "sequences": 0 if change is None else len(change["all"]), "reason": reason}


def _symmetry(encoder: Encoder) -> str:
    """Return the symmetry that the attention declares for its options; a causal form is ordered."""
    attention = next(module for module in encoder.modules() if isinstance(module, Attention))
    return "ordered" if attention.spec.causal else attention.traits.symmetry


def _shuffled(token_mask: Bool[Tensor, "B N"], seed: int) -> Int[Tensor, "B N"]:
    """Draw an order of the real tokens of each sequence; the first token and padding keep their positions."""
    generator = torch.Generator().manual_seed(seed)
    orders = torch.arange(token_mask.shape[1]).repeat(len(token_mask), 1)
    for order, count in zip(orders, token_mask.sum(1).tolist(), strict=True):
        order[1:count] = 1 + torch.randperm(count - 1, generator=generator)
    return orders


def _permuted(given: _Input, orders: Int[Tensor, "B N"]) -> _Input:
    """Move token `orders[i]` to position i; padding follows the tokens and keeps its position."""
    rows = torch.arange(len(orders))[:, None]
    bias = given.pair_bias
    if bias is not None:
        bias = torch.stack([b[:, order][:, :, order] for b, order in zip(bias, orders, strict=True)])
    return _Input(given.tokens[rows, orders], given.token_mask, bias)


@torch.no_grad()
def _states(encoder: Encoder, given: _Input) -> list[Float[Tensor, "B N D"]]:
    """Return the encoder's output [B, N, D] after 1, 2, ... layers."""
    states: list[Tensor] = []
    handles = [
        layer.register_forward_hook(lambda module, args, output: states.append(output.tokens))
        for layer in encoder.layers
    ]
    try:
        encoder(given.tokens, given.token_mask, given.pair_bias)
    finally:
        for handle in handles:
            handle.remove()
    return [encoder.last_norm(state) for state in states]


def _changes(encoder: Encoder, given: _Input, orders: Int[Tensor, "B N"]) -> list[dict[str, Tensor]]:
    """Return for each depth the change of all tokens, of token 0, and its share of equal entries [B]."""
    inverse = orders.argsort(1)
    rows = torch.arange(len(orders))[:, None]
    mask = given.token_mask[..., None]
    changes = []
    both = zip(_states(encoder, given), _states(encoder, _permuted(given, orders)), strict=True)
    for plain, permuted in both:
        plain, permuted = plain.masked_fill(~mask, 0.0), permuted[rows, inverse].masked_fill(~mask, 0.0)
        difference = (permuted - plain).double()
        changes.append(
            {
                "all": difference.flatten(1).norm(dim=1) / plain.double().flatten(1).norm(dim=1),
                "first": difference[:, 0].norm(dim=1) / plain[:, 0].double().norm(dim=1),
                "equal": (permuted[:, 0] == plain[:, 0]).double().mean(1),
            }
        )
    return changes


@torch.no_grad()
def _recorded_input(encoder: Encoder, model: nn.Module, batch: Batch) -> _Input:
    """Record the input of a trained model's encoder; with paired sequences, the first of them."""
    recorded: list[_Input] = []
    handle = encoder.register_forward_pre_hook(lambda module, args: recorded.append(_Input(*args)))
    try:
        model(batch)
    finally:
        handle.remove()
    given = recorded[0]
    if given.token_mask is None:
        return given._replace(token_mask=torch.ones(given.tokens.shape[:2], dtype=torch.bool))
    return given
