"""Molecules of a store that `molslice prepare FILE... --out STORE` writes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
from molslice.data.base import Kind
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.csv import checked_kind, checked_units
from molslice.data.molecules.prepare_files import ABOUT
from molslice.data.molecules.store import MoleculeStore
from molslice.data.splits import checked_choice
from molslice.types import MolsliceError


class Prepared(MoleculeDataset):
    """Molecules and targets of a prepared store. Reading it does not need RDKit.

    Args:
        path: The store.
        units: Unit of all targets, or one unit per target; by default no unit.
        kind: `regression`, or `classification` with targets 0 and 1.
        split: How to divide the rows: `random` (or `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`).

    Raises:
        MolsliceError: An option is invalid, or the folder is not a store of molecules with targets that this
            version can use.
    """

    instructions: ClassVar[str] = "`molslice prepare FILE --out STORE --target COLUMN` makes it."

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        units: str | Sequence[str] | None = None,
        kind: Kind = "regression",
        split: str | Mapping[str, Any] | None = None,
    ) -> None:
        self.source, self.kind = str(path), checked_kind(kind)
        self.store = MoleculeStore.open(path)
        self._about = _checked_about(self.store, self.source)
        self.target_names = self.store.target_names
        self.target_units = checked_units(units, self.target_names)
        if kind == "classification":
            self._check_labels()
        choice = checked_choice(split, {"train"})
        if choice.kind != "random":
            raise MolsliceError(
                f"split {choice.kind!r} needs the input of the store, which it does not keep; choices: random"
            )
        self.splits = choice.division.divide({"train": np.arange(len(self.store))}, self.source)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The versions of the features and the order of the atoms, for prediction from SMILES."""
        order = self._about.get("atom_order", "canonical")
        return {**super().metadata, "atom_order": order}

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> None:  # noqa: ARG003
        """Return None: the targets are known only from the store."""
        return

    def smiles(self) -> list[str]:
        """Refuse, because a store keeps no SMILES.

        Raises:
            MolsliceError: Always.
        """
        raise MolsliceError(f"{self.source} holds the arrays of molecules, not their SMILES")

    def _check_labels(self) -> None:
        wrong = ~np.isin(self.targets, (0.0, 1.0)) & ~np.isnan(self.targets)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise MolsliceError(
                f"{self.source}, {self.where(int(row))}, target {self.target_names[column]!r}: "
                f"{self.targets[row, column]:g} is neither 0 nor 1"
            )


def _checked_about(store: MoleculeStore, source: str) -> Mapping[str, Any]:
    """Return the options of the preparation; empty if the header does not have them.

    Raises:
        MolsliceError: The store has no targets, is that of a corpus, or has features of another version.
    """
    if store.groups is not None or store.atom_targets is not None:
        raise MolsliceError(f"{source} is the store of a corpus; use data.name: corpus and its parent folder")
    if not store.target_names:
        raise MolsliceError(f"{source} has no targets; prepare it with --target COLUMN")
    about = store.header.get("about", {}).get(ABOUT, {})
    now = {"featurizer": str(FEATURIZER_VERSION), "descriptors": DESCRIPTORS_VERSION}
    then = {
        "featurizer": store.header.get("versions", {}).get("featurizer", now["featurizer"]),
        "descriptors": about.get("descriptors") or now["descriptors"],
    }
    for name, version in then.items():
        if version != now[name]:
            raise MolsliceError(
                f"{source} has version {version} of the {name}, and this molslice has {now[name]}; prepare "
                "it again"
            )
    return about
