"""What a configuration says about a model: the sizes and the attention."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from molslice.registry import near_names
from molslice.types import MolsliceError

# layers, width, feed-forward width, heads; `base` and `small` are Graphormer's own (Ying et al. 2021)
PRESETS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "base": {"num_layers": 12, "dim": 768, "ffn_dim": 768, "num_heads": 32},
        "small": {"num_layers": 6, "dim": 512, "ffn_dim": 512, "num_heads": 32},
        "slim": {"num_layers": 12, "dim": 80, "ffn_dim": 80, "num_heads": 8},
    }
)

SIZES = ("num_layers", "dim", "ffn_dim", "num_heads")


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """Which attention, how the pair bias enters (None: the attention's preferred way), its options."""

    name: str = "softmax"
    pair_bias: Literal["none", "logits", "mix"] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The sizes of a molecular model.

    Sizes left out come from `preset`; sizes given win over it. `legacy_vocab` rebuilds the tables of the
    published Graphormer (512 slots a feature), so that parameter counts can be compared. `max_tokens`, atoms
    and the graph token, is for attentions whose parameters depend on the length. `gin_virtual`
    uses `dim`, `num_layers`, `dropout` alone.

    Raises:
        MolsliceError: an unknown preset or model, a size that is missing or below one.
    """

    name: Literal["graphormer", "gin_virtual"] = "graphormer"
    preset: Literal["base", "small", "slim"] | None = None
    num_layers: int | None = None
    dim: int | None = None
    ffn_dim: int | None = None
    num_heads: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    readout: Literal["graph_token", "mean"] = "graph_token"
    legacy_vocab: bool = False
    max_tokens: int | None = None
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.name not in ("graphormer", "gin_virtual"):
            raise MolsliceError(f"unknown model {self.name!r}; choices: gin_virtual, graphormer")
        if self.preset is not None and self.preset not in PRESETS:
            raise MolsliceError(f"unknown model preset {self.preset!r}; {near_names(self.preset, PRESETS)}")
        sizes = ("num_layers", "dim") if self.name == "gin_virtual" else tuple(PRESETS["base"])
        for size in sizes:
            value = getattr(self, size)
            if value is None and self.preset is not None:
                value = PRESETS[self.preset][size]
                object.__setattr__(self, size, value)
            if value is None:
                raise MolsliceError(f"model.{size} is missing; give it or a preset ({', '.join(PRESETS)})")
            if value < 1:
                raise MolsliceError(f"model.{size} must be at least 1, got {value}")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise MolsliceError(
                f"model.max_tokens counts the graph token and at least one atom, got {self.max_tokens}"
            )
        _check_rates(self)


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """The sizes of a model of sequences: tokens of a vocabulary, cut images, series.

    `readout` makes one vector of the tokens: their `mean`, their `max`, both side by side (`max_mean`, as in
    the Singularformer paper), gelu of `all` side by side with zeros up to the longest (as in the Flowformer
    paper's experiments on series), or the last state of a learned token before all others (`cls`). Dense
    layers with GELU follow, of the widths `head`, then the map to the outputs. `cls_distilled` has a second
    such token with a map of its own, which learns from a teacher (the task `distillation`; DeiT, Touvron et
    al. 2021, arXiv 2012.12877, section 4): the prediction is the mean of both.
    `drop_path` is the rate of stochastic depth in the last layer, growing evenly from 0 in the first.
    `positions`: a learned table, `sinusoidal` (Vaswani et al. 2017, section 3.5), or none. `max_tokens`, by
    default the longest sequence of the data, is the length of that table.
    `embedding_std` is the spread that the table of a vocabulary starts with, and, unless `position_std` says
    otherwise, positions and learned tokens too. Without `qkv_bias` the maps to
    query, key and value have no biases, as in the ViT that the Sliceformer paper measures on.

    Raises:
        MolsliceError: a size below one, an unknown choice, `cls` with a causal encoder.
    """

    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["sequence"] = "sequence"
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
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        _check_sizes(self, SIZES)
        if any(width < 1 for width in self.head):
            raise MolsliceError(f"the widths of model.head must be at least 1, got {list(self.head)}")
        _check_sizes(self, ("max_tokens",))
        if self.readout == "cls_distilled" and self.head:
            raise MolsliceError("with model.readout cls_distilled each token has one map: no model.head")
        if self.readout in ("cls", "cls_distilled") and self.causal:
            raise MolsliceError("in a causal encoder the first token sees no other: read out the mean")
        for name in ("embedding_std", "position_std"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise MolsliceError(f"model.{name} must be positive, got {value}")
        _check_rates(self, ("dropout", "attention_dropout", "drop_path"))


@dataclass(frozen=True, slots=True)
class HierarchicalSpec:
    """The sizes of a model of images in stages: `depths[s]` layers of width `dims[s]`, all with `num_heads`.

    The feed-forward width of a stage is `ffn_ratio` times its own. `drop_path` is that of the last layer
    (stochastic depth; it grows evenly from 0 in the first), `ffn_scale` the start of LayerScale on the
    feed-forward parts, null for none.

    Raises:
        MolsliceError: a size below one, or widths and depths that are not equally many.
    """

    dims: tuple[int, ...]
    depths: tuple[int, ...]
    num_heads: int
    name: Literal["hierarchical"] = "hierarchical"
    ffn_ratio: int = 4
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    ffn_scale: float | None = None
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.depths) or not self.dims:
            raise MolsliceError(
                f"model.dims and model.depths are one number a stage, got {list(self.dims)} and "
                f"{list(self.depths)}"
            )
        for name in ("dims", "depths"):
            if min(getattr(self, name)) < 1:
                raise MolsliceError(f"model.{name} must be at least 1, got {list(getattr(self, name))}")
        _check_sizes(self, ("num_heads", "ffn_ratio"))
        _check_rates(self, ("dropout", "attention_dropout", "drop_path"))


@dataclass(frozen=True, slots=True)
class DecisionSpec:
    """The sizes of a policy that is told what return to reach.

    Returns are divided by `return_scale`. `action_limit` bounds each value of an action from both sides, as
    most action spaces do; null where the space has no bounds.

    Raises:
        MolsliceError: a size below one, a scale or a limit that is not positive.
    """

    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["decision"] = "decision"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    return_scale: float = 1000.0
    action_limit: float | None = 1.0
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        _check_sizes(self, SIZES)
        for scale in ("return_scale", "action_limit"):
            value = getattr(self, scale)
            if value is not None and not 0 < value < float("inf"):
                raise MolsliceError(f"model.{scale} must be positive and finite, got {value}")
        _check_rates(self)


@dataclass(frozen=True, slots=True)
class LanguageSpec:
    """The sizes of a language model, which sees a text up to each token and says what comes next.

    `tie`: the table of the vocabulary is also the map to the logits. `positions`: `sinusoidal` (Vaswani et
    al. 2017, section 3.5), a learned table, or none. `max_tokens`, by default the length of the data's
    windows, is how far positions go.

    Raises:
        MolsliceError: a size below one.
    """

    num_layers: int
    dim: int
    ffn_dim: int
    num_heads: int
    name: Literal["language"] = "language"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["learned", "sinusoidal", "none"] = "sinusoidal"
    tie: bool = True
    max_tokens: int | None = None
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        _check_sizes(self, (*SIZES, "max_tokens"))
        _check_rates(self)


OneEncoderSpec = ModelSpec | SequenceSpec | DecisionSpec | LanguageSpec
AnySpec = OneEncoderSpec | HierarchicalSpec
# the class that a configuration's `model.name` asks for; graphormer where it names none
SPECS: Mapping[str, type[AnySpec]] = MappingProxyType(
    {
        "graphormer": ModelSpec,
        "gin_virtual": ModelSpec,
        "sequence": SequenceSpec,
        "hierarchical": HierarchicalSpec,
        "decision": DecisionSpec,
        "language": LanguageSpec,
    }
)


def _check_sizes(spec: AnySpec, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise MolsliceError(f"model.{name} must be at least 1, got {value}")


def _check_rates(spec: AnySpec, rates: tuple[str, ...] = ("dropout", "attention_dropout")) -> None:
    for rate in rates:
        if not 0.0 <= getattr(spec, rate) < 1.0:
            raise MolsliceError(f"model.{rate} must lie in [0, 1), got {getattr(spec, rate)}")
