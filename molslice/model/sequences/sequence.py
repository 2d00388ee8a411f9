"""A sequence model for token ids, patches of an image and steps of a series."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from molslice.model.base import SIZES, AttentionChoice, OneEncoderSpec, Tokens
from molslice.model.encoder import Encoder, add_penalties, drop_path_rates, initialize_linear
from molslice.ops.masked import masked_max, masked_mean
from molslice.ops.packing import real_positions
from molslice.types import DataSpec, Initialization, ModelOutput, MolsliceError, SequenceBatch


@dataclass(frozen=True, slots=True)
class SequenceSpec(OneEncoderSpec):
    """The spec of a sequence model. See `OneEncoderSpec` for the other fields.

    Attributes:
        name: Configuration name of the model.
        drop_path: Rate of stochastic depth in the last layer; it grows evenly from 0 in the first.
        readout: How tokens become one vector. `mean`; `max`; `max_mean`, both concatenated (Singularformer);
            `all`, gelu of all tokens concatenated, with zeros up to the longest sequence (Flowformer, on
            series); `cls`, the last state of a learned token before all others; `cls_distilled`, with a
            second such token and output map that learn from a teacher (the task `distillation`; DeiT, Touvron
            et al. 2021, arXiv 2012.12877, section 4), where the prediction is the mean of both.
        head: Widths of dense layers with GELU between readout and outputs.
        positions: A `learned` table, `sinusoidal` (Vaswani et al. 2017, section 3.5), or `none`.
        causal: Whether a token depends only on itself and tokens before it.
        max_tokens: Number of positions; None for the longest sequence of the data.
        embedding_std: Initial standard deviation of the embedding table, and of positions and learned tokens
            if `position_std` is None.
        position_std: Initial standard deviation of positions and learned tokens; None for `embedding_std`.
        qkv_bias: Whether the maps to query, key and value have a bias. The ViT of the Sliceformer paper has
            none.
        embedding_dropout: Dropout rate of embedded tokens before positions are added. None: instead,
            `dropout` applies after positions are added.
        initialization: Of linear maps: `glorot` (uniform), or `truncated_normal` with standard deviation
            0.02.

    Raises:
        MolsliceError: A size is below one, a choice is unknown, or `cls` is combined with `causal`.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("ids", "values")
    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["sequence"] = "sequence"
    head_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    drop_path: float = 0.0
    readout: Literal["mean", "max", "max_mean", "all", "cls", "cls_distilled"] = "mean"
    head: tuple[int, ...] = ()
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    causal: bool = False
    max_tokens: int | None = None
    embedding_std: float = 0.02
    position_std: float | None = None
    qkv_bias: bool = True
    embedding_dropout: float | None = None
    initialization: Initialization = "glorot"
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        self.check_sizes((*SIZES, "head", "max_tokens"))
        if self.readout == "cls_distilled" and self.head:
            raise MolsliceError("model.readout cls_distilled does not support model.head")
        if self.readout in ("cls", "cls_distilled") and self.causal:
            raise MolsliceError(f"model.readout {self.readout} does not support model.causal; use mean")
        for name in ("embedding_std", "position_std"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise MolsliceError(f"model.{name} must be positive, got {value}")
        self.check_rates(("dropout", "attention_dropout", "drop_path", "embedding_dropout"))

    @property
    def is_causal(self) -> bool:
        """Whether a token depends only on itself and tokens before it."""
        return self.causal

    def build(self, attention: AttentionChoice, data: DataSpec) -> "SequenceClassifier":
        """Construct the module; see `ModelSpec.build`."""
        return SequenceClassifier(self, attention, data)


class SequenceClassifier(nn.Module):
    """Embed, add positions, encode, read out one vector, and map it to the outputs.

    Token ids are looked up in a table; values are mapped linearly. The position of a token is its rank among
    the real tokens of its sequence, so padding may be anywhere. Two sequences of a row are encoded and read
    out separately with the same weights, to u and v, and combined as [u, v, u * v, u - v].

    Raises:
        MolsliceError: The attention does not support the spec, or the readout does not support the data.

    Source: the encoder classifiers of Long Range Arena (Tay et al. 2020, arXiv 2011.04006, section 3; two
    sequences as in its retrieval task), which the Sliceformer paper uses; ViT (Dosovitskiy et al. 2021) if
    the values are patches.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "encoder": "layers",
            "cls_token": "embedding",
            "distillation_token": "embedding",
            "head": "readout",
            "distilled_readout": "readout",
        }
    )

    def __init__(self, spec: SequenceSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__()
        self.spec, self.data = spec, data
        self.embedding = TokenEmbedding(
            data,
            spec.dim,
            positions=spec.positions,
            max_tokens=spec.max_tokens,
            embedding_std=spec.embedding_std,
            position_std=spec.position_std,
            dropout=spec.embedding_dropout or 0.0,
        )
        is_distilled = spec.readout == "cls_distilled"
        if is_distilled and data.paired:
            raise MolsliceError(
                "model.readout cls_distilled needs one sequence per row, but the data have two"
            )
        has_cls = is_distilled or spec.readout == "cls"
        self.cls_token = nn.Parameter(torch.empty(spec.dim)) if has_cls else None
        self.distillation_token = nn.Parameter(torch.empty(spec.dim)) if is_distilled else None
        special = has_cls + is_distilled
        self.encoder = Encoder(
            attention,
            **spec.encoder_options,
            causal=spec.is_causal,
            max_tokens=self.embedding.max_tokens + special,
            drop_path=drop_path_rates(spec.drop_path, spec.num_layers),
            qkv_bias=spec.qkv_bias,
            input_dropout=None if spec.embedding_dropout is None else 0.0,
            initialization=spec.initialization,
        )
        per_row = {"max_mean": 2, "all": self.embedding.max_tokens}.get(spec.readout, 1)
        vectors = per_row * (4 if data.paired else 1)
        widths = [vectors * spec.dim, *spec.head]
        self.head = nn.ModuleList(
            nn.Linear(width, following) for width, following in zip(widths[:-1], widths[1:], strict=True)
        )
        self.dropout = nn.Dropout(spec.dropout)
        self.readout = nn.Linear(widths[-1], data.num_outputs)
        self.distilled_readout = nn.Linear(spec.dim, data.num_outputs) if is_distilled else None
        initialize_linear(self, spec.initialization)
        for token in (self.cls_token, self.distillation_token):
            if token is not None:
                nn.init.normal_(token, std=spec.position_std or spec.embedding_std)

    def forward(self, batch: SequenceBatch) -> ModelOutput:
        """Return logits [B, num_outputs] as `prediction`, and the penalty of the attentions.

        Raises:
            MolsliceError: There are more tokens than `max_tokens`, or a second sequence is missing.
        """
        if self.distilled_readout is not None:
            encoded, _, penalty = self._tokens(batch.tokens, batch.token_mask)
            heads = self.readout(encoded[:, 0]), self.distilled_readout(encoded[:, 1])
            return ModelOutput((heads[0] + heads[1]) / 2, penalty, heads)
        vector, penalty = self._encode(batch.tokens, batch.token_mask)
        if self.data.paired:
            if batch.pair_tokens is None:
                raise MolsliceError("the model compares two sequences, but the batch has one")
            other, more = self._encode(batch.pair_tokens, batch.pair_mask)
            vector = torch.cat([vector, other, vector * other, vector - other], -1)
            penalty = add_penalties(penalty, more)
        for dense in self.head:
            vector = self.dropout(functional.gelu(dense(vector)))
        return ModelOutput(self.readout(vector), penalty)

    def encode(
        self, tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"], token_mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B M D"]:
        """Encode sequences without reading them out. All tokens are real without a mask.

        Returns:
            The encoded tokens. The learned tokens of `cls` and `cls_distilled` are first, so M is N, N + 1 or
            N + 2.

        Raises:
            MolsliceError: There are more tokens than `max_tokens`.
        """
        return self._tokens(tokens, token_mask)[0]

    def _tokens(
        self, tokens: Tensor, token_mask: Bool[Tensor, "B N"] | None
    ) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"] | None, Tensor | None]:
        embedded = self.embedding(tokens, token_mask)
        both = self.cls_token, self.distillation_token
        special: list[Tensor] = [token for token in both if token is not None]
        if special:
            embedded = torch.cat([torch.stack(special).expand(len(embedded), -1, -1), embedded], 1)
            added = (len(special), 0)
            token_mask = None if token_mask is None else functional.pad(token_mask, added, value=True)
        encoded = self.encoder(embedded, token_mask)
        return encoded.tokens, token_mask, encoded.penalty

    def _encode(
        self, tokens: Tensor, token_mask: Bool[Tensor, "B N"] | None
    ) -> tuple[Float[Tensor, "B V"], Tensor | None]:
        encoded, mask, penalty = self._tokens(tokens, token_mask)
        if self.cls_token is not None:
            return encoded[:, 0], penalty
        real = encoded.new_ones(encoded.shape[:2], dtype=torch.bool) if mask is None else mask
        if self.spec.readout == "all":
            return self._concatenate_all(encoded, real), penalty
        parts = []
        if self.spec.readout in ("max", "max_mean"):
            parts.append(masked_max(encoded, real[..., None], 1))
        if self.spec.readout in ("mean", "max_mean"):
            parts.append(masked_mean(encoded, real[..., None], 1))
        return torch.cat(parts, -1), penalty

    def _concatenate_all(
        self, encoded: Float[Tensor, "B N D"], real: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B V"]:
        """Concatenate the real tokens in their order after GELU, then zeros; V = longest x D."""
        batch, _, dim = encoded.shape
        spare = self.embedding.max_tokens  # an extra slot, which receives padding
        position = real_positions(real).masked_fill(~real, spare)
        kept = self.dropout(functional.gelu(encoded)).masked_fill(~real[..., None], 0.0)
        filled = encoded.new_zeros(batch, spare + 1, dim)
        filled = filled.scatter(1, position[..., None].expand(-1, -1, dim), kept.to(filled.dtype))
        return filled[:, :spare].flatten(1)


class TokenEmbedding(nn.Module):
    """Map token ids or values to tokens of the encoder's width, and add positions.

    Args:
        data: The properties of the data.
        dim: Width D.
        positions: A `learned` table, `sinusoidal`, or `none`.
        max_tokens: Number of positions; None for the longest sequence of the data.
        embedding_std: Initial standard deviation of the embedding table, and of positions if `position_std`
            is None.
        position_std: Initial standard deviation of learned positions; None for `embedding_std`.
        dropout: Dropout rate before positions are added.
        scale: Factor of embedded tokens and of learned positions.

    Raises:
        MolsliceError: There is no maximum length, or the data have longer sequences.
    """

    lookup_tables: ClassVar[tuple[str, ...]] = ("positions",)

    def __init__(
        self,
        data: DataSpec,
        dim: int,
        *,
        positions: Literal["learned", "sinusoidal", "none"] = "learned",
        max_tokens: int | None = None,
        embedding_std: float = 0.02,
        position_std: float | None = None,
        dropout: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        longest = max_tokens or data.max_tokens
        if longest is None:
            raise MolsliceError("model.max_tokens is missing, and the data have no maximum length")
        if data.max_tokens is not None and longest < data.max_tokens:
            raise MolsliceError(
                f"model.max_tokens is {longest}, but the data have up to {data.max_tokens} tokens"
            )
        self.max_tokens, self.scale = longest, scale
        self.is_table = data.tokens == "ids"
        if self.is_table:
            assert data.vocabulary_size is not None  # checked in `DataSpec`
            self.table = nn.Embedding(data.vocabulary_size, dim)
            nn.init.normal_(self.table.weight, std=embedding_std)
        else:
            assert data.channels is not None
            self.linear = nn.Linear(data.channels, dim)
        self.positions = nn.Parameter(torch.empty(longest, dim)) if positions == "learned" else None
        if self.positions is not None:
            nn.init.normal_(self.positions, std=position_std or embedding_std)
        self.waves: Tensor | None
        waves = sinusoidal_positions(longest, dim) if positions == "sinusoidal" else None
        self.register_buffer("waves", waves, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"],
        token_mask: Bool[Tensor, "B N"] | None = None,
    ) -> Float[Tensor, "B N D"]:
        """Embed token ids or values, all of them real without a mask. Arbitrary but not NaN at padding.

        Raises:
            MolsliceError: There are more tokens than positions.
        """
        self._check(tokens.shape[1])
        if token_mask is None:
            return self._embed(tokens, slice(tokens.shape[1]))
        hidden = ~token_mask if tokens.ndim == 2 else ~token_mask[..., None]
        return self._embed(tokens.masked_fill(hidden, 0), real_positions(token_mask))

    def at(self, token: Int[Tensor, " B"], position: int) -> Float[Tensor, "B D"]:
        """Embed one token id of each sequence at `position`.

        Raises:
            MolsliceError: The position is not below `max_tokens`.
        """
        self._check(position + 1)
        return self._embed(token, position)

    def _embed(self, tokens: Tensor, places: slice | int | Int[Tensor, "B N"]) -> Float[Tensor, "*shape D"]:
        embedded: Tensor = self.table(tokens.long()) if self.is_table else self.linear(tokens)
        embedded = self.dropout(self._scaled(embedded))
        table = self.waves if self.positions is None else self.positions
        if table is None:
            return embedded
        added = functional.embedding(places, table) if isinstance(places, Tensor) else table[places]
        return embedded + (added if self.positions is None else self._scaled(added))

    def _scaled(self, tokens: Tensor) -> Tensor:
        return tokens if self.scale == 1.0 else tokens * self.scale

    def _check(self, length: int) -> None:
        if length > self.max_tokens:
            raise MolsliceError(f"the model was built for {self.max_tokens} tokens, got {length}")


def sinusoidal_positions(length: int, dim: int) -> Float[Tensor, "N D"]:
    """Return sin(p / 10000^(2i / D)) in channel 2i and the cosine in channel 2i + 1 of row p.

    Source: Vaswani et al. 2017, section 3.5.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position * torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim].float()
