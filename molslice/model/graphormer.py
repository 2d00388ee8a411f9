"""Graphormer with an exchangeable attention.

Source: Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from molslice.model.base import NEEDED_SIZES, SIZES, AttentionChoice, OneEncoderSpec, Tokens
from molslice.model.distance_head import DistanceHead
from molslice.model.embeddings import AtomEmbedding
from molslice.model.encoder import Encoder, initialize_linear
from molslice.model.graph_bias import GraphBias
from molslice.ops import kernel_choice
from molslice.ops.gaussian import bound_log_variance
from molslice.ops.masked import masked_mean
from molslice.ops.path_codes import NO_BOND, bond_codes, code_adjacency, path_codes
from molslice.ops.paths import bond_degrees, bond_path_levels
from molslice.registry import near_names
from molslice.types import AttentionOutput, DataSpec, ModelOutput, MoleculeBatch, MolsliceError

# layers, width, feed-forward width, heads; `base` and `small` are Graphormer's own (Ying et al. 2021)
PRESETS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "base": {"num_layers": 12, "dim": 768, "ffn_dim": 768, "num_heads": 32},
        "small": {"num_layers": 6, "dim": 512, "ffn_dim": 512, "num_heads": 32},
        "slim": {"num_layers": 12, "dim": 80, "ffn_dim": 80, "num_heads": 8},
    }
)


@dataclass(frozen=True, slots=True)
class GraphormerSpec(OneEncoderSpec):
    """The spec of a Graphormer. See `OneEncoderSpec` for the other fields.

    Attributes:
        needed: The sizes that must be set, directly or by a preset.
        name: Configuration name of the model.
        preset: Sizes for those that are None: `base` (12 layers, width 768, feed-forward width 768, 32
            heads), `small` (6, 512, 512, 32) or `slim` (12, 80, 80, 8).
        readout: Whether the prediction uses the graph token or the mean of the atoms.
        legacy_vocab: Whether to use the tables of the published Graphormer (512 rows per feature), to compare
            parameter counts.
        max_tokens: Upper limit of the number of atoms plus the graph token, for attentions whose parameters
            depend on it; None for no limit.
        pair_state: Whether each layer first changes the pair bias by its tokens; see `PairUpdate`.
        local: `gine` if each layer first adds the messages of bonded atoms; see `BondMessages`. None for
            attention only.

    Raises:
        MolsliceError: The preset is unknown, or a size is missing or below one.
    """

    takes: ClassVar[tuple[Tokens, ...]] = ("molecules",)
    predicts_variance: ClassVar[bool] = True
    learns_distances: ClassVar[bool] = True
    needed: ClassVar[tuple[str, ...]] = NEEDED_SIZES

    name: Literal["graphormer"] = "graphormer"
    preset: Literal["base", "small", "slim"] | None = None
    num_layers: int | None = None
    dim: int | None = None
    ffn_dim: int | None = None
    num_heads: int | None = None
    head_dim: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    readout: Literal["graph_token", "mean"] = "graph_token"
    legacy_vocab: bool = False
    max_tokens: int | None = None
    activation_checkpointing: bool = False
    pair_state: bool = False
    local: Literal["gine"] | None = None

    @property
    def takes_adjacency(self) -> bool:
        """A Graphormer takes molecules with `MoleculeBatch.adjacency`."""
        return True

    @property
    def tokens_read(self) -> int | None:
        """Number of first tokens that the readout uses; None for all."""
        return None if self.readout == "mean" else 1

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in PRESETS:
            raise MolsliceError(f"unknown model preset {self.preset!r}; {near_names(self.preset, PRESETS)}")
        for size in self.needed:
            value = getattr(self, size)
            if value is None and self.preset is not None:
                value = PRESETS[self.preset][size]
                object.__setattr__(self, size, value)
            if value is None:
                raise MolsliceError(f"model.{size} is missing; give it or a preset ({', '.join(PRESETS)})")
        self.check_sizes((*SIZES, "max_tokens"))
        if self.max_tokens is not None and self.max_tokens < 2:
            raise MolsliceError(
                f"model.max_tokens must be at least 2, the graph token and one atom, got {self.max_tokens}"
            )
        self.check_rates()

    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:
        """Construct the module; see `ModelSpec.build`."""
        return Graphormer(self, attention, data)


def build_variance_readout(width: int, num_outputs: int) -> nn.Linear:
    """Return a linear map to the log variance of each output, with variances near 1 before the training."""
    readout = nn.Linear(width, num_outputs)
    nn.init.normal_(readout.weight, std=0.02)
    nn.init.zeros_(readout.bias)
    return readout


class DescriptorState(nn.Module):
    """Map the descriptors of a molecule to a state: standardize, a linear map, GELU.

    Values outside the range of the training rows are moved to its limits. A descriptor that is not defined is
    replaced by its mean. `DataSpec.statistics` holds range, mean and spread.

    Raises:
        MolsliceError: The statistics have another number of descriptors than `num_descriptors`.
    """

    low: Tensor
    high: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, data: DataSpec) -> None:
        super().__init__()
        for name, default in (("low", -1.0), ("high", 1.0), ("mean", 0.0), ("std", 1.0)):
            values = data.statistics.get(f"descriptor_{name}", (default,) * data.num_descriptors)
            if len(values) != data.num_descriptors:
                raise MolsliceError(f"descriptor_{name} has {len(values)} of {data.num_descriptors} numbers")
            # saved in the data spec, next to the weights
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)
        self.map = nn.Linear(data.num_descriptors, dim)

    def forward(self, descriptors: Float[Tensor, "B C"] | None) -> Float[Tensor, "B D"]:
        """Return the state of each molecule.

        Raises:
            MolsliceError: The batch has no descriptors.
        """
        if descriptors is None:
            raise MolsliceError("the model takes descriptors, but the molecules have none")
        standardized = (descriptors.clamp(self.low, self.high) - self.mean) / self.std
        return F.gelu(self.map(standardized.nan_to_num(0.0)))


class Graphormer(nn.Module):
    """Predict standardized values of molecules: embed, compute the pair bias, encode, read out.

    Token 0 is the virtual graph token. The prediction is a linear map of its last state, or of the mean of
    the atoms' states (`readout="mean"`). If the data have descriptors, their state is joined to it. The log
    variance, if the data ask for it, is another linear map of the same state; see `bound_log_variance`. If
    the data have a geometry, the output in training has the logits of `DistanceHead` too.

    Raises:
        MolsliceError: The attention or an option is unknown, or the attention does not support the spec.

    Source: Ying et al. 2021.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "atom_embedding": "atom embedding",
            "graph_bias": "graph bias",
            "encoder": "layers",
            "distance_head": "distance head",
        }
    )

    hidden_atom: nn.Parameter | None
    hidden_bond: nn.Parameter | None

    def __init__(self, spec: GraphormerSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__()
        assert spec.dim is not None  # a spec sets its sizes when it is built
        assert spec.num_heads is not None
        self.spec = spec
        self.atom_embedding = AtomEmbedding(spec.dim, legacy_vocab=spec.legacy_vocab)
        self.graph_bias = GraphBias(spec.num_heads, legacy_vocab=spec.legacy_vocab)
        self.encoder = Encoder(
            attention,
            **spec.encoder_options,
            uses_pair_bias=True,
            max_tokens=spec.max_tokens,
            pair_state=spec.pair_state,
            local=spec.local,
        )
        initialize_linear(self.encoder)
        self.descriptor_state = DescriptorState(spec.dim, data) if data.num_descriptors else None
        self.readout = nn.Linear(spec.dim * (2 if data.num_descriptors else 1), data.num_outputs)
        nn.init.normal_(self.readout.weight, std=0.02)
        nn.init.zeros_(self.readout.bias)
        self.variance_readout = None
        if data.predicts_variance:
            self.variance_readout = build_variance_readout(self.readout.in_features, data.num_outputs)
        self.distance_head = DistanceHead(spec.dim) if data.has_geometry else None
        # embeddings of hidden atoms and bonds, which only a pretraining model has
        self.register_parameter("hidden_atom", None)
        self.register_parameter("hidden_bond", None)

    def forward(self, batch: MoleculeBatch) -> ModelOutput:
        """Predict a batch: standardized values [B, T], without unit, and their log variance."""
        distance_head = self.distance_head if self.training else None
        encoded = self.encode(batch, self.spec.tokens_read if distance_head is None else None)
        state = self.read_state(batch, encoded.tokens)
        log_variance = distances = None
        if self.variance_readout is not None:
            log_variance = bound_log_variance(self.variance_readout(state))
        if distance_head is not None:
            distances = distance_head(encoded.tokens[:, 1:])
        prediction: torch.Tensor = self.readout(state)
        return ModelOutput(prediction, encoded.penalty, log_variance=log_variance, distances=distances)

    def prepare(self, batch: MoleculeBatch) -> MoleculeBatch:
        """Compute what depends on the bonds alone, which `forward` otherwise does.

        A thread can call it ahead for a batch that is still on the CPU.

        Returns:
            The batch with `levels`, or on a GPU, which then need not wait for the CPU, with `adjacency`. The
            same batch if the attention uses no pair bias.
        """
        if batch.levels is not None or batch.adjacency is not None or self.encoder.pair_bias_mode == "none":
            return batch
        shape = batch.atom_mask.shape
        if not kernel_choice.is_on_gpu(batch.bond_index):
            return replace(batch, levels=bond_path_levels(batch.bond_index, *shape))
        hidden = None if self.hidden_bond is None else batch.hidden_bonds
        codes = bond_codes(batch.bond_features, hidden)
        return replace(batch, adjacency=code_adjacency(batch.bond_index, codes, *shape))

    def encode(self, batch: MoleculeBatch, num_tokens: int | None = None) -> AttentionOutput:
        """Encode a batch: states of the graph token and the atoms [B, 1 + A, D], arbitrary at padding.

        Only the first `num_tokens` tokens are returned, if it is given.
        """
        degree, bias = self._graph(batch)
        tokens = self.atom_embedding(batch.atoms, degree, batch.hidden_atoms, self.hidden_atom)
        # a molecule without atoms fills up a batch, and all of its tokens are padding
        mask = torch.cat([batch.atom_mask.any(1, keepdim=True), batch.atom_mask], 1)
        # on a GPU, reading the mask would wait for the device, and a graph of a step cannot contain it
        is_full = batch.adjacency is None and mask.device.type == "cpu" and bool(mask.all())
        bonds = (batch.bond_index, batch.bond_features, batch.hidden_bonds) if self.spec.local else None
        return self.encoder(tokens, None if is_full else mask, bias, bonds=bonds, num_queries=num_tokens)

    def _graph(self, batch: MoleculeBatch) -> tuple[Int[Tensor, "B A"], Float[Tensor, "B H N N"] | None]:
        """Return the degrees of the atoms and the pair bias, None if the attention uses none."""
        batch = self.prepare(batch)
        if batch.adjacency is not None:
            if self.encoder.pair_bias_mode == "none":
                return (batch.adjacency != NO_BOND).sum(-1), None
            codes = path_codes(batch.adjacency)
            return codes.degree, self.graph_bias.look_up(codes, self.hidden_bond)
        levels = batch.levels
        if levels is None:
            return bond_degrees(batch.bond_index, *batch.atom_mask.shape), None
        bias = self.graph_bias(levels, batch.bond_features, batch.hidden_bonds, self.hidden_bond)
        return levels.degree, bias

    @property
    def embedding_dim(self) -> int:
        """Number of values of an embedding: twice the width."""
        assert self.spec.dim is not None
        return 2 * self.spec.dim

    def embed(self, batch: MoleculeBatch) -> Float[Tensor, "B E"]:
        """Return the last state of the graph token and the mean last state of the atoms [B, 2 D]."""
        tokens = self.encode(batch).tokens
        mean = masked_mean(tokens[:, 1:], batch.atom_mask[..., None], 1)
        return torch.cat([tokens[:, 0], mean], -1)

    def read_state(self, batch: MoleculeBatch, tokens: Float[Tensor, "B N D"]) -> Float[Tensor, "B S"]:
        """Return the state that the prediction is read from, joined with the descriptors' state."""
        if self.spec.readout == "mean":
            state = masked_mean(tokens[:, 1:], batch.atom_mask[..., None], 1)
        else:
            state = tokens[:, 0]
        if self.descriptor_state is None:
            return state
        return torch.cat([state, self.descriptor_state(batch.descriptors)], -1)
