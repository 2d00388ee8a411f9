"""The interface of a model's spec: the options of a model in a configuration, and how to build it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from molslice.types import DataSpec, MolsliceError

Tokens = Literal["molecules", "ids", "values", "steps"]
MAX_LAYERS = 10_000  # these limits reject a mistyped size before memory is allocated
MAX_SIZE = 10_000_000
NEEDED_SIZES = ("num_layers", "dim", "ffn_dim", "num_heads")
SIZES = (*NEEDED_SIZES, "head_dim")
RATES = ("dropout", "attention_dropout")


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The choice of an attention in a configuration.

    Attributes:
        name: Configuration name of the attention.
        pair_bias: The mode of the pair bias; None for the preferred mode of the attention.
        options: The attention's own options by name.
    """

    name: str = "softmax"
    pair_bias: Literal["none", "logits", "mix"] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class ModelSpec(ABC):
    """Base class of specs, the options of a model in a configuration.

    A subclass is a frozen dataclass in the file of its model.

    Attributes:
        takes: Supported kinds of data, values of `DataSpec.tokens`.
        uses_attention: Whether the model has an attention, which a configuration chooses.
        predicts_variance: Whether the model can return `ModelOutput.log_variance`.
        learns_distances: Whether the model can return `ModelOutput.distances`.
        has_batch_norm: Whether the model has batch norm. Its statistics must represent the data, so its
            training batches have rows of all lengths.
        name: Configuration name of the model, equal to the name of its file.
    """

    __slots__ = ()

    takes: ClassVar[tuple[Tokens, ...]]
    uses_attention: ClassVar[bool] = True
    predicts_variance: ClassVar[bool] = False
    learns_distances: ClassVar[bool] = False
    has_batch_norm: ClassVar[bool] = False
    name: str

    @property
    def takes_adjacency(self) -> bool:
        """Whether the model takes molecules with `MoleculeBatch.adjacency`."""
        return False

    @property
    def family(self) -> str:
        """Name of the models whose weights this model can start from."""
        return self.name

    @property
    @abstractmethod
    def size_label(self) -> str:
        """Short label of layers and width, such as `12x768`."""

    @abstractmethod
    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:
        """Construct the module, whose `forward` takes a batch and returns a `ModelOutput`.

        Raises:
            MolsliceError: The model does not support the data or the attention.
        """

    def check_sizes(self, names: tuple[str, ...]) -> None:
        """Check that sizes are from one to an upper limit. None is a size that is not set.

        Raises:
            MolsliceError: A size is out of range.
        """
        for name in names:
            value = getattr(self, name)
            limit = MAX_LAYERS if name in ("num_layers", "depths") else MAX_SIZE
            for size in value if isinstance(value, tuple) else (value,):
                if size is not None and not 1 <= size <= limit:
                    raise MolsliceError(f"model.{name} must be at least 1 and at most {limit:,}, got {size}")

    def check_rates(self, names: tuple[str, ...] = RATES) -> None:
        """Check that dropout rates are in [0, 1). None is a rate that is not set.

        Raises:
            MolsliceError: A rate is out of range.
        """
        for name in names:
            rate = getattr(self, name)
            if rate is not None and not 0.0 <= rate < 1.0:
                raise MolsliceError(f"model.{name} must be in [0, 1), got {rate}")

    def check_scales(self, names: tuple[str, ...]) -> None:
        """Check that numbers are positive and finite. None is a number that is not set.

        Raises:
            MolsliceError: A number is out of range.
        """
        for name in names:
            scale = getattr(self, name)
            if scale is not None and not 0 < scale < float("inf"):
                raise MolsliceError(f"model.{name} must be positive and finite, got {scale}")


class OneEncoderSpec(ModelSpec):
    """The spec of a model with one encoder.

    Attributes:
        num_layers: Number of layers of the encoder. A size may be None until a preset sets it.
        dim: Width of the tokens.
        ffn_dim: Hidden width of the feed-forward network.
        num_heads: Number of heads of the attention.
        head_dim: Width of a head of the attention; None for `dim` / `num_heads`.
        dropout: Dropout rate of tokens.
        attention_dropout: Dropout rate in the attention.
        norm: Whether layer norm is before (`pre`) or after (`post`) attention and feed-forward network.
        activation_checkpointing: Whether to recompute layers in the backward pass to save memory.
    """

    __slots__ = ()

    num_layers: int | None
    dim: int | None
    ffn_dim: int | None
    num_heads: int | None
    head_dim: int | None
    dropout: float
    attention_dropout: float
    norm: Literal["pre", "post"]
    activation_checkpointing: bool

    @property
    def is_causal(self) -> bool:
        """Whether a token depends only on itself and tokens before it."""
        return False

    @property
    def size_label(self) -> str:
        """Layers and width, such as `12x768`."""
        return f"{self.num_layers}x{self.dim}"

    @property
    def encoder_options(self) -> dict[str, Any]:
        """The fields that are arguments of `Encoder`."""
        assert None not in (getattr(self, size) for size in NEEDED_SIZES)  # set when the spec is built
        return {name: getattr(self, name) for name in (*SIZES, *RATES, "norm", "activation_checkpointing")}
