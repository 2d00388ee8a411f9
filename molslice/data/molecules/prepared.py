"""Molecules of stores that `molslice prepare FILE... --out STORE` writes."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION, have_same_features
from molslice.data.base import Kind
from molslice.data.molecules.base import ArraysOnly, refuse_hydrogens
from molslice.data.molecules.csv import checked_units
from molslice.data.molecules.input_files import check_different, listed_paths, warn_of_repeated
from molslice.data.molecules.store import MoleculeStore
from molslice.data.molecules.store_files import ABOUT
from molslice.data.split_choice import checked_choice
from molslice.data.splits import consecutive_rows
from molslice.data.target_values import check_outliers, checked_kind, find_kind
from molslice.number_text import counted
from molslice.types import MolsliceError


class Prepared(ArraysOnly):
    """Molecules and targets of one or several prepared stores. Reading them does not need RDKit.

    Args:
        path: A store, a folder of stores, or a list of them; the training rows if `valid_path` or
            `test_path` is given.
        units: Unit of all targets, or one unit per target; by default no unit.
        kind: `regression`, or `classification` with targets 0 and 1. By default `classification` if all
            targets are 0 and 1.
        outliers: Whether to `refuse` targets with values far outside the others, or to `keep` them.
        split: How to divide the rows: `random` (or `{kind: random, fractions: [0.8, 0.1, 0.1], seed: 0}`).
            Not used with `valid_path`.
        valid_path: Stores to validate on, with the same targets and options.
        test_path: Stores to test on. Without `valid_path`, `split` divides `path` into train and valid only.

    Raises:
        MolsliceError: An option is invalid, or a folder is not a store of molecules with targets that this
            version can use, or the stores do not agree.
    """

    instructions: ClassVar[str] = "`molslice prepare FILE --out STORE --target COLUMN` makes it."

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | Sequence[str],
        units: str | Sequence[str] | None = None,
        kind: Kind | None = None,
        outliers: str = "refuse",
        split: str | Mapping[str, Any] | None = None,
        valid_path: str | os.PathLike[str] | Sequence[str] | None = None,
        test_path: str | os.PathLike[str] | Sequence[str] | None = None,
    ) -> None:
        given = {"train": path, "valid": valid_path, "test": test_path}
        folders = {name: listed_paths(paths, "store") for name, paths in given.items() if paths is not None}
        places = {name: [Path(folder) for folder in named] for name, named in folders.items()}
        for named in places.values():
            check_different(named)
        warn_of_repeated(places)
        self._folders = [folder for named in folders.values() for folder in named]
        self.source, others = self._folders[0], len(self._folders) - 1
        if others:
            self.source += f" and {counted(others, 'other store')}"
        stores = [MoleculeStore.open(folder) for folder in self._folders]
        self.store = MoleculeStore.join(stores) if others else stores[0]
        given_kind = checked_kind(kind)
        self._about = _checked_about(self.store, self.source)
        self.target_names = self.store.target_names
        self.target_units = checked_units(units, self.target_names)
        self._ends = np.cumsum([len(store) for store in stores]).tolist()
        advice = "--missing-value={} to `molslice prepare`", "--data.outliers keep"
        outlier_notices = check_outliers(
            self.targets, self.target_names, self.source, self.where, outliers, advice
        )
        self.kind, notices = (given_kind, []) if given_kind else find_kind(self.targets, self.target_names)
        self.notices = [*outlier_notices, *notices]
        if kind == "classification":
            self._check_labels()
        choice = checked_choice(split, folders)
        if choice.kind not in ("random", "files"):
            raise MolsliceError(
                f"split {choice.kind!r} needs the input of the store, which it does not keep; choices: "
                "random, or stores for valid_path and test_path"
            )
        lengths, sizes = [len(store) for store in stores], {}
        for name, named in folders.items():
            sizes[name] = sum(lengths[: len(named)])
            del lengths[: len(named)]
        self.splits = choice.division.divide(consecutive_rows(sizes), self.source)

    def where(self, row: int) -> str:
        """Describe a row, an index from 0, by its store and its number there, from 1."""
        number = bisect_right(self._ends, row)
        return f"{self._folders[number]}, row {row - ([0, *self._ends][number]) + 1}"

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The versions of the features, the order of the atoms, and the use of mixtures and wildcards."""
        order = self._about.get("atom_order", "canonical")
        fragment = self._about.get("fragment", "keep")
        chosen = {} if fragment == "keep" else {"fragment": fragment}
        if "wildcards" in self._about:
            chosen["wildcards"] = self._about["wildcards"]
        return {**super().metadata, "atom_order": order, **chosen}

    def _check_labels(self) -> None:
        wrong = ~np.isin(self.targets, (0.0, 1.0)) & ~np.isnan(self.targets)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise MolsliceError(
                f"{self.where(int(row))}, target {self.target_names[column]!r}: "
                f"{self.targets[row, column]:g} is neither 0 nor 1"
            )


def _checked_about(store: MoleculeStore, source: str) -> Mapping[str, Any]:
    """Return the options of the preparation; empty if the header does not have them."""
    if store.groups is not None or store.atom_targets is not None:
        raise MolsliceError(f"{source} is the store of a corpus; use data.name: corpus and its parent folder")
    if not store.target_names:
        raise MolsliceError(f"{source} has no targets; prepare it with --target COLUMN")
    about = store.header.get("about", {}).get(ABOUT, {})
    now = {"featurizer": str(FEATURIZER_VERSION), "descriptors": DESCRIPTORS_VERSION}
    featurizer = store.header.get("versions", {}).get("featurizer")
    then = {
        "featurizer": featurizer or now["featurizer"],
        "descriptors": about.get("descriptors") or now["descriptors"],
    }
    for name, version in then.items():
        if not (have_same_features(version, now[name]) if name == "featurizer" else version == now[name]):
            raise MolsliceError(
                f"{source} has version {version} of the {name}, and this molslice has {now[name]}; prepare "
                "it again"
            )
    if featurizer != now["featurizer"] and about.get("atom_order", "canonical") == "canonical":
        refuse_hydrogens(store, source, "prepare it again")
    return about
