"""A model of images in stages: from one to the next a quarter of the tokens, each wider."""

import math

from jaxtyping import Float
from torch import Tensor, nn

from molslice.model.encoder import Encoder, drop_path_rates, initialize_linear
from molslice.model.sequence import TokenEmbedding
from molslice.model.spec import AttentionChoice, HierarchicalSpec
from molslice.types import DataSpec, ModelOutput, MolsliceError, SequenceBatch


class HierarchicalClassifier(nn.Module):
    """Embed patches, add learned positions, and between encoders merge squares of 2 x 2 tokens into one.

    Stage s is an encoder of its own, `depths[s]` layers of width `dims[s]`, over a grid of half the height
    and width of the stage before; its tokens are linear maps of the four side by side. The norm of the last
    stage's tokens is averaged and read out.

    Source: Flowformer (Wu et al. 2022, arXiv 2202.06258, section 4.2 and the released code), four stages of
    56 x 56, 28 x 28, 14 x 14 and 7 x 7 tokens.

    Raises:
        MolsliceError: no image cut into patches, a grid that cannot be halved so often, or what the attention
            cannot serve.
    """

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
                    ffn_dim=spec.ffn_ratio * dim,
                    dropout=spec.dropout,
                    attention_dropout=spec.attention_dropout,
                    max_tokens=rows * columns // 4**stage,
                    activation_checkpointing=spec.activation_checkpointing,
                    drop_path=rates[before : before + depth],
                    ffn_scale=spec.ffn_scale,
                    last_norm=False,
                )
            )
        for dim, wider in zip(spec.dims[:-1], spec.dims[1:], strict=True):
            self.merges.append(nn.Linear(4 * dim, wider))
        self.norm = nn.LayerNorm(spec.dims[-1])
        self.readout = nn.Linear(spec.dims[-1], data.num_outputs)
        initialize_linear(self)

    def forward(self, batch: SequenceBatch) -> ModelOutput:
        """Logits [B, num_outputs] as `prediction`, and the penalty of the attentions.

        Raises:
            MolsliceError: not as many tokens as the grid has, or padding.
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
            tokens = encoded.tokens
            if encoded.penalty is not None:
                penalty = encoded.penalty if penalty is None else penalty + encoded.penalty
        return ModelOutput(self.readout(self.norm(tokens).mean(1)), penalty)


def merged_squares(tokens: Float[Tensor, "B N D"], rows: int, columns: int) -> Float[Tensor, "B M W"]:
    """M = N / 4 tokens of W = 4 D channels: of each square of 2 x 2 the upper two, then the lower two."""
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
