"""A language model: predicts the next token at each token, and generates one token at a time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from molslice.model.base import SIZES, AttentionChoice, OneEncoderSpec, Tokens
from molslice.model.encoder import Encoder, initialize_linear
from molslice.model.sequences.sequence import TokenEmbedding
from molslice.types import DataSpec, ModelOutput, MolsliceError, SequenceBatch, State


@dataclass(frozen=True, slots=True)
class LanguageSpec(OneEncoderSpec):
    """The spec of a language model. See `OneEncoderSpec` for the other fields.

    Attributes:
        name: Configuration name of the model.
        positions: `sinusoidal` (Vaswani et al. 2017, section 3.5), `learned`, or `none`.
        tie: Whether the embedding table is also the map to the logits.
        max_tokens: Number of positions; None for the length of the windows of the data.

    Raises:
        MolsliceError: A size is below one.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("ids",)
    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["language"] = "language"
    head_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["learned", "sinusoidal", "none"] = "sinusoidal"
    tie: bool = True
    max_tokens: int | None = None
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        self.check_sizes((*SIZES, "max_tokens"))
        self.check_rates()

    @property
    def is_causal(self) -> bool:
        """True: a language model does not depend on later tokens."""
        return True

    def build(self, attention: AttentionChoice, data: DataSpec) -> "LanguageModel":
        """Construct the module; see `ModelSpec.build`."""
        return LanguageModel(self, attention, data)


class LanguageState(NamedTuple):
    """The state of generation after some tokens.

    Attributes:
        position: Number of tokens so far, the position of the next one.
        layers: The state of the attention of each layer.
    """

    position: int
    layers: tuple[State, ...]


class LanguageModel(nn.Module):
    """Embed, add positions, encode causally, and map each token to the vocabulary.

    Embeddings are initialized with standard deviation 1 / sqrt(D) and multiplied by sqrt(D), as are learned
    positions. Both the scaled embeddings and the logits by the same table then have an initial scale of one.
    With `tie` the embedding table is also the map to the vocabulary, without bias; otherwise the map has its
    own weights.

    Raises:
        MolsliceError: The targets of the data are not next tokens, the data have longer sequences than
            `max_tokens`, or the attention cannot be built, as without a causal form.

    Source: the decoder of Vaswani et al. 2017 (sections 3.4 and 3.5) without cross attention, as in fairseq's
    `transformer_lm`, which the Flowformer paper uses; tied weights: Press and Wolf 2017.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType({"encoder": "layers"})

    def __init__(self, spec: LanguageSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__()
        if data.tokens != "ids" or data.paired or data.num_outputs != data.vocabulary_size:
            raise MolsliceError(
                "model.name language needs next tokens as targets; use sequence for other data"
            )
        self.spec, self.data = spec, data
        scale = math.sqrt(spec.dim)
        self.embedding = TokenEmbedding(
            data,
            spec.dim,
            positions=spec.positions,
            max_tokens=spec.max_tokens,
            embedding_std=1 / scale,
            scale=scale,
        )
        self.encoder = Encoder(
            attention, **spec.encoder_options, causal=spec.is_causal, max_tokens=self.embedding.max_tokens
        )
        self.readout = None if spec.tie else nn.Linear(spec.dim, data.num_outputs, bias=False)
        initialize_linear(self)

    def forward(self, batch: SequenceBatch) -> ModelOutput:
        """Return logits [B, N, V] of the token after each token, and the penalty of the attentions.

        Raises:
            MolsliceError: There are more tokens than `max_tokens`.
        """
        encoded = self.encoder(self.embedding(batch.tokens, batch.token_mask), batch.token_mask)
        return ModelOutput(self._logits(encoded.tokens), encoded.penalty)

    def following(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B V"]:
        """Return the logits of the token after the last one [B, V]. All tokens must be real.

        Raises:
            MolsliceError: There are more tokens than `max_tokens`.
        """
        return self._logits(self.encoder(self.embedding(tokens)).tokens[:, -1])

    @property
    def has_steps(self) -> bool:
        """Whether `step` is available; see `Attention.step`."""
        return self.encoder.has_steps

    def init_state(self, batch: int) -> LanguageState:
        """Return the state of `step` before the first token of `batch` texts.

        Raises:
            MolsliceError: The attention has no steps.
        """
        return LanguageState(0, self.encoder.init_state(batch))

    def step(
        self, token: Int[Tensor, " B"], state: LanguageState
    ) -> tuple[Float[Tensor, "B V"], LanguageState]:
        """Predict the token after the next one. The result equals `forward` in evaluation mode.

        Returns:
            Logits of the token after this one [B, V], and the next state.

        Raises:
            MolsliceError: There are more tokens than `max_tokens`.
        """
        embedded = self.embedding.at(token, state.position)
        encoded, layers = self.encoder.step(embedded, state.layers)
        return self._logits(encoded), LanguageState(state.position + 1, layers)

    def _logits(self, tokens: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape V"]:
        if self.readout is not None:
            return self.readout(tokens)
        return functional.linear(tokens, self.embedding.table.weight)
