"""Graphormer with the heads of pretraining: targets of molecules and atoms, and hidden atoms and bonds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from molslice.model.base import AttentionChoice
from molslice.model.graphormer import Graphormer, GraphormerSpec
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES
from molslice.registry import near_names
from molslice.types import DataSpec, ModelOutput, MoleculeBatch, MolsliceError, PretrainingOutput

ATOM_FEATURES = (
    "atomic_number",
    "chirality",
    "degree",
    "charge",
    "hydrogens",
    "radicals",
    "hybridization",
    "aromatic",
    "ring",
)


@dataclass(frozen=True, slots=True)
class GraphormerPretrainingSpec(GraphormerSpec):
    """The spec of a Graphormer in pretraining. See `GraphormerSpec` for the other fields.

    Attributes:
        atom_features: Features of hidden atoms that are predicted. The defaults are not determined by the
            graph and the bonds. Chirality is left out because it depends on the order of the atoms.

    Raises:
        MolsliceError: A feature is unknown, given twice, or none is given.
    """

    predicts_variance: ClassVar[bool] = False
    learns_distances: ClassVar[bool] = False

    name: Literal["graphormer_pretraining"] = "graphormer_pretraining"
    atom_features: tuple[str, ...] = ("atomic_number", "charge", "hydrogens")

    def __post_init__(self) -> None:
        super(GraphormerPretrainingSpec, self).__post_init__()  # noqa: UP008 - slots make another class
        for name in self.atom_features:
            if name not in ATOM_FEATURES:
                raise MolsliceError(
                    f"model.atom_features: unknown feature {name!r}; {near_names(name, ATOM_FEATURES)}"
                )
        if not self.atom_features or len(set(self.atom_features)) < len(self.atom_features):
            raise MolsliceError(
                f"model.atom_features must name each feature once and at least one, got {self.atom_features}"
            )

    @property
    def family(self) -> str:
        """A Graphormer starts from this model, and this model from a Graphormer."""
        return "graphormer"

    def build(self, attention: AttentionChoice, data: DataSpec) -> nn.Module:
        """Construct the module; see `ModelSpec.build`."""
        return GraphormerPretraining(self, attention, data)


class GraphormerPretraining(Graphormer):
    """Graphormer that also predicts targets of atoms and the features of hidden atoms and bonds.

    The features of hidden atoms and bonds are replaced by learned embeddings; the graph itself stays visible.
    All heads are linear: an atom's on its last state h, a bond's on h_i + h_j and h_i h_j of its atoms, which
    do not depend on the bond's direction. Without `DataSpec.num_atom_outputs` there is no head for targets of
    atoms. The parameters of a Graphormer keep their names.

    Raises:
        MolsliceError: As `Graphormer`.

    Source: Hu et al. 2020, "Strategies for Pre-training Graph Neural Networks", for hidden atoms and bonds.
    """

    parts: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **Graphormer.parts,
            **dict.fromkeys(
                ("atom_readout", "atom_head", "bond_head", "hidden_atom", "hidden_bond"), "pretraining"
            ),
        }
    )
    lookup_tables: ClassVar[tuple[str, ...]] = ("hidden_atom", "hidden_bond")

    def __init__(self, spec: GraphormerPretrainingSpec, attention: AttentionChoice, data: DataSpec) -> None:
        super().__init__(spec, attention, data)
        assert spec.dim is not None
        assert spec.num_heads is not None
        self.atom_columns = tuple(ATOM_FEATURES.index(name) for name in spec.atom_features)
        self.atom_sizes = tuple(ATOM_FEATURE_SIZES[column] for column in self.atom_columns)
        self.bond_sizes = BOND_FEATURE_SIZES
        self.hidden_atom = nn.Parameter(torch.empty(spec.dim))
        self.hidden_bond = nn.Parameter(torch.empty(spec.num_heads))
        self.atom_readout = nn.Linear(spec.dim, data.num_atom_outputs) if data.num_atom_outputs else None
        self.atom_head = nn.Linear(spec.dim, sum(self.atom_sizes))
        self.bond_head = nn.Linear(2 * spec.dim, sum(self.bond_sizes))
        # with the variance of the sums that they replace
        nn.init.normal_(self.hidden_atom)
        nn.init.normal_(self.hidden_bond, std=len(BOND_FEATURE_SIZES) ** -1)
        for head in (self.atom_readout, self.atom_head, self.bond_head):
            if head is not None:
                nn.init.normal_(head.weight, std=0.02)
                nn.init.zeros_(head.bias)

    def forward(self, batch: MoleculeBatch) -> ModelOutput:
        """Predict a batch, and the features of the atoms and bonds that it hides."""
        encoded = self.encode(batch)
        atoms = torch.where(batch.atom_mask[..., None], encoded.tokens[:, 1:], 0.0)
        prediction: Tensor = self.readout(self.read_state(batch, encoded.tokens))
        details = PretrainingOutput(
            atom_targets=None if self.atom_readout is None else self.atom_readout(atoms),
            atom_logits=None if batch.hidden_atoms is None else self.atom_head(atoms),
            bond_logits=None if batch.hidden_bonds is None else self._bond_logits(batch, atoms),
        )
        return ModelOutput(prediction, encoded.penalty, pretraining=details)

    def _bond_logits(self, batch: MoleculeBatch, atoms: Float[Tensor, "B A D"]) -> Float[Tensor, "M R"]:
        molecule, begin, end = batch.bond_index.long().unbind(1)  # atom -1 is the last one
        one, other = atoms[molecule, begin], atoms[molecule, end]
        return self.bond_head(torch.cat([one + other, one * other], -1))
