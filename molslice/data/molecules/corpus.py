"""Molecules with descriptors, quantum labels and charges, to pretrain an encoder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION, have_same_features
from molslice.data.molecules.base import ArraysOnly, refuse_hydrogens
from molslice.data.molecules.collate import mixed
from molslice.data.molecules.store import MoleculeStore
from molslice.data.splits import checked_seed
from molslice.types import DataSpec, MolsliceError

STORE = "store"
FAMILIES = ("descriptors", "quantum")
CHARGE_UNIT = "e"
FEATURES = "featurizer_version"
VERSIONS = {FEATURES: FEATURIZER_VERSION, "descriptors_version": DESCRIPTORS_VERSION}


class Corpus(ArraysOnly):
    """The molecules of a folder that `scripts/make_corpus.py` writes.

    Molecules with the same skeleton belong to the same split, which a hash of the skeleton and the seed
    selects. A molecule keeps its split if the corpus grows.

    Args:
        path: The folder of the corpus.
        valid_fraction: Share of the skeletons in the valid split.
        test_fraction: Share of the skeletons in the test split.
        seed: Seed of the split.

    Raises:
        MolsliceError: Not the folder of a corpus, features of another version, invalid option, or an empty
            split.
    """

    instructions: ClassVar[str] = "`python scripts/make_corpus.py --help` shows how to make it."

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        valid_fraction: float = 0.01,
        test_fraction: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.source, self.kind = str(path), "regression"
        self.store = MoleculeStore.open(Path(path) / STORE)
        about = self.store.header.get("about")
        if self.store.groups is None or not isinstance(about, dict):
            raise MolsliceError(f"{Path(path) / STORE} is a store of molecules, but not of a corpus")
        for name, now in VERSIONS.items():
            then = about.get(name)
            if not (have_same_features(then, now) if name == FEATURES else then == now):
                raise MolsliceError(f"the corpus {path} has {name} {then}, not {now}; make it again")
        if about[FEATURES] != FEATURIZER_VERSION:
            refuse_hydrogens(self.store, f"the corpus {path}", "make it again")
        self.target_names, self.target_units = self.store.target_names, self.store.target_units
        self._stated = _read_targets(about, self.store, Path(path) / STORE)
        self.splits = _divide(self.store.groups, valid_fraction, test_fraction, checked_seed(seed))

    @property
    def spec(self) -> DataSpec:
        """Properties of the data: outputs of each molecule and of each atom."""
        return DataSpec(len(self.target_names), num_atom_outputs=len(self.store.atom_target_names))

    @property
    def stated_targets(self) -> Mapping[str, Any]:
        """The targets with the mean and standard deviation that the corpus was scaled with."""
        return self._stated

    def labeled_rows(self, split: str) -> np.ndarray:
        """All rows of a split: each has descriptors."""
        return self.rows(split)


def _read_targets(about: Mapping[str, Any], store: MoleculeStore, folder: Path) -> dict[str, Any]:
    """Return the description of the targets from the header of a corpus."""
    try:
        family = {name: family for family in FAMILIES for name in about["families"][family]}
        stated: dict[str, Any] = {
            **_numbers(about["scaling"], len(store.target_names)),
            "names": list(store.target_names),
            "units": list(store.target_units),
            "kind": "regression",
            "families": [family[name] for name in store.target_names],
        }
        names = list(store.atom_target_names)
        if names:
            stated["atoms"] = {
                **_numbers(about["charge_scaling"], len(names)),
                "names": names,
                "units": [CHARGE_UNIT] * len(names),
                "kind": "regression",
            }
    except (KeyError, TypeError, ValueError) as error:
        raise MolsliceError(f"cannot read the targets of the corpus {folder}: {error!r}") from error
    return stated


def _numbers(scaling: Mapping[str, Sequence[float]], count: int) -> dict[str, list[float]]:
    numbers = {name: [float(value) for value in scaling[name]] for name in ("mean", "std")}
    if any(len(values) != count for values in numbers.values()):
        raise ValueError(f"{count} targets and {len(numbers['mean'])} means")
    return numbers


def _divide(groups: np.ndarray, valid: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """Divide rows by a hash of their group."""
    for name, share in (("valid_fraction", valid), ("test_fraction", test)):
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 0.5:
            raise MolsliceError(f"{name} must be a number between 0 and 0.5, got {share!r}")
    place = _uniform(groups, seed)
    bounds = {"valid": (0.0, valid), "test": (valid, valid + test), "train": (valid + test, 1.0)}
    splits = {name: np.flatnonzero((place >= low) & (place < high)) for name, (low, high) in bounds.items()}
    for name, rows in splits.items():
        if not len(rows):
            raise MolsliceError(
                f"the split {name!r} of {len(groups)} molecules is empty; give it a larger share"
            )
    return {name: splits[name] for name in ("train", "valid", "test")}


def _uniform(groups: np.ndarray, seed: int) -> np.ndarray:
    """Return a number in [0, 1) for each group, by two steps of SplitMix64."""
    with np.errstate(over="ignore"):
        return mixed(mixed(np.asarray(groups)) ^ np.uint64(seed)) / 2.0**64
