"""An image model in stages: each stage has a quarter of the tokens of the stage before, and wider ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from molslice.model.base import AttentionChoice, ModelSpec, Tokens
from molslice.model.encoder import Encoder, add_penalties, drop_path_rates, initialize_linear
from molslice.model.sequences.sequence import TokenEmbedding
from molslice.types import DataSpec, Initialization, ModelOutput, MolsliceError, SequenceBatch


@dataclass(frozen=True, slots=True)
class HierarchicalSpec(ModelSpec):
    """The spec of an image model in stages.

    Attributes:
        dims: Width of each stage.
        depths: Number of layers of each stage.
        num_heads: Number of heads, in all stages.
        name: Configuration name of the model.
        head_dim: Width of a head of the attention, in all stages; None for the width of the stage divided by
            `num_heads`.
        ffn_ratio: Hidden width of the feed-forward network, divided by the width of the stage.
        dropout: Dropout rate of tokens.
        attention_dropout: Dropout rate in the attention.
        drop_path: Rate of stochastic depth in the last layer; it grows evenly from 0 in the first.
        ffn_scale: Initial value of LayerScale on the feed-forward networks; None for no LayerScale.
        initialization: Of linear maps: `glorot` (uniform), or `truncated_normal` with standard deviation
            0.02.
        activation_checkpointing: Whether to recompute layers in the backward pass to save memory.

    Raises:
        MolsliceError: A size is below one, or `dims` and `depths` differ in length.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("values",)
    dims: tuple[int, ...]
    depths: tuple[int, ...]
    num_heads: int
    name: Literal["hierarchical"] = "hierarchical"
    head_dim: int | None = None
    ffn_ratio: int = 4
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    ffn_scale: float | None = None
    initialization: Initialization = "glorot"
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.depths) or not self.dims:
            raise MolsliceError(
                f"model.dims and model.depths need one number per stage, got {list(self.dims)} and "
                f"{list(self.depths)}"
            )
        self.check_sizes(("dims", "depths", "num_heads", "head_dim", "ffn_ratio"))
        self.check_rates(("dropout", "attention_dropout", "drop_path"))

    @property
    def size_label(self) -> str:
        """Layers and width of each stage, as `3x96-3x192`."""
        return "-".join(f"{depth}x{dim}" for depth, dim in zip(self.depths, self.dims, strict=True))

    def build(self, attention: AttentionChoice, data: DataSpec) -> "HierarchicalClassifier":
        """Construct the module; see `ModelSpec.build`."""
        return HierarchicalClassifier(self, attention, data)


class HierarchicalClassifier(nn.Module):
    """Embed patches, add learned positions, and between stages merge squares of 2 x 2 tokens into one.

    Stage s is an encoder with `depths[s]` layers of width `dims[s]`, over a grid of half the height and width
    of the stage before. Its tokens are linear maps of four concatenated tokens. The tokens of the last stage
    are normalized, averaged and read out.

    Raises:
        MolsliceError: The data are not images cut into patches, the grid cannot be halved that often, or the
            attention does not support the spec.

    Source: Flowformer (Wu et al. 2022, arXiv 2202.06258, section 4.2 and the released code), four stages of
    56 x 56, 28 x 28, 14 x 14 and 7 x 7 tokens.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"stages": "layers", "merges": "layers", "norm": "layers"}
    )

    def __init__(self, spec: HierarchicalSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__()
        self.spec = spec
        self.grid = _checked_grid(data, len(spec.dims))
        rows, columns = self.grid
        self.embedding = TokenEmbedding(data, spec.dims[0])
        rates = drop_path_rates(spec.drop_path, sum(spec.depths))
        self.stages, self.merges = nn.ModuleList(), nn.ModuleList()
        for stage, (dim, depth) in enumerate(zip(spec.dims, spec.depths, strict=True)):
            before = sum(spec.depths[:stage])
            self.stages.append(
                Encoder(
                    attention,
                    dim=dim,
                    num_layers=depth,
                    num_heads=spec.num_heads,
                    head_dim=spec.head_dim,
                    ffn_dim=spec.ffn_ratio * dim,
                    dropout=spec.dropout,
                    attention_dropout=spec.attention_dropout,
                    max_tokens=rows * columns // 4**stage,
                    activation_checkpointing=spec.activation_checkpointing,
                    drop_path=rates[before : before + depth],
                    ffn_scale=spec.ffn_scale,
                    last_norm=False,
                    initialization=spec.initialization,
                )
            )
        for dim, wider in zip(spec.dims[:-1], spec.dims[1:], strict=True):
            self.merges.append(nn.Linear(4 * dim, wider))
        self.norm = nn.LayerNorm(spec.dims[-1])
        self.readout = nn.Linear(spec.dims[-1], data.num_outputs)
        initialize_linear(self, spec.initialization)

    def forward(self, batch: SequenceBatch) -> ModelOutput:
        """Return logits [B, num_outputs] as `prediction`, and the penalty of the attentions.

        Raises:
            MolsliceError: The number of tokens differs from the grid, or there is padding.
        """
        rows, columns = self.grid
        if batch.token_mask is not None or batch.tokens.shape[1] != rows * columns:
            raise MolsliceError(
                f"the model takes whole images of {rows} x {columns} patches, got {batch.tokens.shape[1]}"
                + ("" if batch.token_mask is None else " with padding")
            )
        tokens, penalty = self.embedding(batch.tokens, None), None
        for stage, encoder in enumerate(self.stages):
            if stage:
                tokens = self.merges[stage - 1](merged_squares(tokens, rows, columns))
                rows, columns = rows // 2, columns // 2
            encoded = encoder(tokens)
            tokens, penalty = encoded.tokens, add_penalties(penalty, encoded.penalty)
        return ModelOutput(self.readout(self.norm(tokens).mean(1)), penalty)


def merged_squares(tokens: Float[Tensor, "B N D"], rows: int, columns: int) -> Float[Tensor, "B M W"]:
    """Concatenate each square of 2 x 2 tokens of a grid, listed row by row, the upper two first."""
    batch, _, dim = tokens.shape
    squares = tokens.reshape(batch, rows // 2, 2, columns // 2, 2, dim).transpose(2, 3)
    return squares.reshape(batch, rows * columns // 4, 4 * dim)


def _checked_grid(data: DataSpec, stages: int) -> tuple[int, int]:
    if data.grid is None:
        raise MolsliceError("model.name 'hierarchical' takes images cut into patches (data.tokens: patches)")
    smallest = 2 ** (stages - 1)
    if any(side % smallest for side in data.grid):
        rows, columns = data.grid
        fitting = 1 + int(math.log2(math.gcd(rows, columns) & -math.gcd(rows, columns)))
        raise MolsliceError(
            f"{stages} stages halve the grid {stages - 1} times, which {rows} x {columns} patches do not "
            f"allow: at most {fitting} stages fit"
        )
    return data.grid
