"""A model of sequences: tokens of a vocabulary, patches of an image, steps of a series."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from molslice.model.encoder import Encoder, build_encoder, drop_path_rates, initialize_linear
from molslice.model.spec import AttentionChoice, SequenceSpec
from molslice.ops.masked import masked_max, masked_mean
from molslice.ops.packing import real_positions
from molslice.types import DataSpec, ModelOutput, MolsliceError, SequenceBatch


class SequenceClassifier(nn.Module):
    """Embed, add positions, encode, read out one vector, map it to the outputs.

    Integers are looked up in a table, values take a linear map. The position of a token is its rank among the
    real tokens of its sequence: padding may stand anywhere and shifts nothing. Of two sequences a row each is
    encoded and read out alone, by the same weights; u and v together are [u, v, u * v, u - v].

    Source: the encoder classifiers of Long Range Arena (Tay et al. 2020, arXiv 2011.04006, section 3; two
    sequences as in its retrieval task), which the Sliceformer paper measures on; ViT (Dosovitskiy et al.
    2021) where the values are patches.

    Raises:
        MolsliceError: what the attention cannot serve.
    """

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
        )
        is_distilled = spec.readout == "cls_distilled"
        if is_distilled and data.paired:
            raise MolsliceError("model.readout cls_distilled is about one sequence a row, the data hold two")
        has_cls = is_distilled or spec.readout == "cls"
        self.cls_token = nn.Parameter(torch.empty(spec.dim)) if has_cls else None
        self.distillation_token = nn.Parameter(torch.empty(spec.dim)) if is_distilled else None
        special = has_cls + is_distilled
        self.encoder = build_sequence_encoder(spec, attention, self.embedding.max_tokens + special)
        per_row = {"max_mean": 2, "all": self.embedding.max_tokens}.get(spec.readout, 1)
        vectors = per_row * (4 if data.paired else 1)
        widths = [vectors * spec.dim, *spec.head]
        self.head = nn.ModuleList(
            nn.Linear(width, following) for width, following in zip(widths[:-1], widths[1:], strict=True)
        )
        self.dropout = nn.Dropout(spec.dropout)
        self.readout = nn.Linear(widths[-1], data.num_outputs)
        self.distilled_readout = nn.Linear(spec.dim, data.num_outputs) if is_distilled else None
        initialize_linear(self)
        for token in (self.cls_token, self.distillation_token):
            if token is not None:
                nn.init.normal_(token, std=spec.position_std or spec.embedding_std)

    def forward(self, batch: SequenceBatch) -> ModelOutput:
        """Logits [B, num_outputs] as `prediction`, and the penalty of the attentions.

        Raises:
            MolsliceError: more columns than the model was built for.
        """
        if self.distilled_readout is not None:
            encoded, _, penalty = self._tokens(batch.tokens, batch.token_mask)
            heads = self.readout(encoded[:, 0]), self.distilled_readout(encoded[:, 1])
            return ModelOutput((heads[0] + heads[1]) / 2, penalty, heads)
        vector, penalty = self._encode(batch.tokens, batch.token_mask)
        if self.data.paired:
            if batch.pair_tokens is None:
                raise MolsliceError("the model compares two sequences, the batch holds one")
            other, more = self._encode(batch.pair_tokens, batch.pair_mask)
            vector = torch.cat([vector, other, vector * other, vector - other], -1)
            penalty = more if penalty is None or more is None else penalty + more
        for dense in self.head:
            vector = self.dropout(functional.gelu(dense(vector)))
        return ModelOutput(self.readout(vector), penalty)

    def encode(
        self, tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"], token_mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B M D"]:
        """The encoder's tokens, that of `cls` (and the distilled one) before the others."""
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
            return self._side_by_side(encoded, real), penalty
        parts = []
        if self.spec.readout in ("max", "max_mean"):
            parts.append(masked_max(encoded, real[..., None], 1))
        if self.spec.readout in ("mean", "max_mean"):
            parts.append(masked_mean(encoded, real[..., None], 1))
        return torch.cat(parts, -1), penalty

    def _side_by_side(
        self, encoded: Float[Tensor, "B N D"], real: Bool[Tensor, "B N"]
    ) -> Float[Tensor, "B V"]:
        """The real tokens in their order, through GELU, then zeros; V = longest x D."""
        batch, _, dim = encoded.shape
        spare = self.embedding.max_tokens  # one place more, which takes what is no token
        place = real_positions(real).masked_fill(~real, spare)
        kept = self.dropout(functional.gelu(encoded)).masked_fill(~real[..., None], 0.0)
        filled = encoded.new_zeros(batch, spare + 1, dim)
        filled = filled.scatter(1, place[..., None].expand(-1, -1, dim), kept.to(filled.dtype))
        return filled[:, :spare].flatten(1)


class TokenEmbedding(nn.Module):
    """Integers or values to tokens of the encoder's width, with their positions."""

    def __init__(
        self,
        data: DataSpec,
        dim: int,
        *,
        positions: Literal["learned", "sinusoidal", "none"] = "learned",
        max_tokens: int | None = None,
        embedding_std: float = 0.02,
        position_std: float | None = None,
    ) -> None:
        super().__init__()
        longest = max_tokens or data.max_tokens
        if longest is None:
            raise MolsliceError("model.max_tokens is missing, and the data do not say how long they are")
        if data.max_tokens is not None and longest < data.max_tokens:
            raise MolsliceError(
                f"model.max_tokens is {longest}, the data have up to {data.max_tokens} tokens"
            )
        self.max_tokens = longest
        self.is_table = data.tokens == "ids"
        if self.is_table:
            assert data.vocabulary_size is not None  # `DataSpec` has checked it
            self.table = nn.Embedding(data.vocabulary_size, dim)
            nn.init.normal_(self.table.weight, std=embedding_std)
        else:
            assert data.channels is not None
            self.linear = nn.Linear(data.channels, dim)
        self.positions = nn.Parameter(torch.empty(longest, dim)) if positions == "learned" else None
        if self.positions is not None:
            nn.init.normal_(self.positions, std=position_std or embedding_std)
        self.waves: Tensor
        if positions == "sinusoidal":
            self.register_buffer("waves", sinusoidal_positions(longest, dim), persistent=False)
        self.kind = positions

    def forward(
        self, tokens: Int[Tensor, "B N"] | Float[Tensor, "B N F"], token_mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B N D"]:
        """What stands at padding is arbitrary, and is arbitrary in the result, but never NaN.

        Raises:
            MolsliceError: more columns than positions.
        """
        length = tokens.shape[1]
        if length > self.max_tokens:
            raise MolsliceError(f"the model was built for {self.max_tokens} tokens, got {length}")
        if token_mask is not None:
            hidden = ~token_mask if tokens.ndim == 2 else ~token_mask[..., None]
            tokens = tokens.masked_fill(hidden, 0)
        embedded: Tensor = self.table(tokens.long()) if self.is_table else self.linear(tokens)
        if self.kind == "none":
            return embedded
        table: Tensor = self.waves if self.positions is None else self.positions
        if token_mask is None:
            return embedded + table[:length]
        return embedded + functional.embedding(real_positions(token_mask), table)


def sinusoidal_positions(length: int, dim: int) -> Float[Tensor, "N D"]:
    """sin(p / 10000^(2i / D)) in channel 2i and the cosine in 2i + 1, of Vaswani et al. 2017, section 3.5."""
    place = torch.arange(length, dtype=torch.float64)[:, None]
    angle = place * torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim].float()


def build_sequence_encoder(spec: SequenceSpec, attention: AttentionChoice, max_tokens: int) -> Encoder:
    """The encoder that a spec asks for, where it says so without the biases of query, key and value."""
    rates = drop_path_rates(spec.drop_path, spec.num_layers)
    encoder = build_encoder(spec, attention, causal=spec.causal, max_tokens=max_tokens, drop_path=rates)
    if not spec.qkv_bias:
        for layer in encoder.layers:
            for name in ("query", "key", "value"):
                projection = getattr(layer.attention, name, None)
                if isinstance(projection, nn.Linear):
                    projection.register_parameter("bias", None)
    return encoder
