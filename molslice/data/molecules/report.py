"""What was found while molecules were prepared: counts, elements, sizes, and refused rows with examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from molslice.data.molecules.refusals import Refusals
from molslice.data.molecules.store import MoleculeStore
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES
from molslice.types import MolsliceError

LARGEST = 256  # atoms of a molecule
COARSE = 0.01  # largest rounding error of a target, relative to its standard deviation
CONSTANT = 1e-12  # spread of a constant target relative to its value: rounding of the mean
LARGEST_FLOAT = float(np.finfo(np.float32).max)
QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}


class TargetStatistics:
    """Number, mean, spread, range and rounding errors of targets, from parts of their values.

    `saved` is an earlier `state`; None starts without values.
    """

    def __init__(self, names: Sequence[str], saved: Mapping[str, Sequence[float]] | None = None) -> None:
        self.names = tuple(names)
        zero, infinite = np.zeros(len(names)), np.full(len(names), LARGEST_FLOAT)
        self._values = {
            "count": zero,
            "mean": zero,
            "squares": zero,  # sum of the squared differences from the mean
            "least": infinite,
            "most": -infinite,
            "rounding": zero,
        }
        if saved is not None:
            self._values = {name: np.array(saved[name], np.float64) for name in self._values}

    @property
    def state(self) -> dict[str, list[float]]:
        """All numbers as JSON values."""
        return {name: values.tolist() for name, values in self._values.items()}

    def add(self, values: np.ndarray) -> None:
        """Add rows, float64 [n, T]; NaN is a missing value.

        Source: Chan, Golub and LeVeque, COMPSTAT 1982, for the update of mean and squares.
        """
        known, old = ~np.isnan(values), self._values
        count = known.sum(0)
        mean = np.where(known, values, 0.0).sum(0) / np.maximum(count, 1)
        squares = (np.where(known, values - mean, 0.0) ** 2).sum(0)
        total, shift = old["count"] + count, mean - old["mean"]
        share = count / np.maximum(total, 1)
        rounding = np.abs(np.where(known, values - values.astype(np.float32), 0.0))
        self._values = {
            "count": total,
            "mean": old["mean"] + shift * share,
            "squares": old["squares"] + squares + shift**2 * old["count"] * share,
            "least": np.minimum(old["least"], np.where(known, values, LARGEST_FLOAT).min(0)),
            "most": np.maximum(old["most"], np.where(known, values, -LARGEST_FLOAT).max(0)),
            "rounding": np.maximum(old["rounding"], rounding.max(0)),
        }

    def check_rounding(self, source: str) -> None:
        """Check that float32 can hold the values.

        Raises:
            MolsliceError: The values of a target differ by little more than their rounding.
        """
        values = self._values
        spread = np.sqrt(values["squares"] / np.maximum(values["count"], 1))
        largest = np.maximum(np.abs(values["least"]), np.abs(values["most"]))
        sizes = zip(self.names, values["rounding"], spread, largest, strict=True)
        for name, rounding, deviation, most in sizes:
            if rounding > COARSE * deviation > COARSE * CONSTANT * most:
                raise MolsliceError(
                    f"the column {name!r} of {source} has a spread of {deviation:.3g}, and 32-bit floating "
                    f"point rounds it by up to {rounding:.3g}; subtract a constant or change the unit"
                )

    def report(self) -> dict[str, dict[str, float]]:
        """Return the number of values of each target; if there are any, also mean, spread and range."""
        reports: dict[str, dict[str, float]] = {}
        for place, name in enumerate(self.names):
            numbers = {key: float(values[place]) for key, values in self._values.items()}
            reports[name] = {"values": int(numbers["count"])}
            if numbers["count"]:
                std = float(np.sqrt(numbers["squares"] / numbers["count"]))
                reports[name] |= {
                    "mean": numbers["mean"],
                    "std": std,
                    "min": numbers["least"],
                    "max": numbers["most"],
                }
        return reports


class Tally:
    """Counts of prepared rows. Its size does not depend on the number of rows.

    `saved` is an earlier `state`; None starts at zero.

    Attributes:
        sizes: Number of rows by number of atoms, int64 [257]; the first counts the failed rows.
        bonds: Number of bonds.
        replaced: Number of mixtures that were replaced by their largest molecule.
        elements: Number of atoms of each element, by its index in OGB's vocabulary, int64.
        targets: Statistics of the targets of molecules.
        refusals: Number and examples of failed rows by kind of reason.
    """

    def __init__(self, target_names: Sequence[str] = (), saved: Mapping[str, Any] | None = None) -> None:
        self.targets = TargetStatistics(target_names, saved and saved["targets"])
        self.sizes = np.zeros(LARGEST + 1, np.int64)
        self.elements = np.zeros(ATOM_FEATURE_SIZES[0], np.int64)
        self.bonds = self.replaced = 0
        self.refusals = Refusals(saved and saved["refusals"])
        if saved is not None:
            self.sizes[:], self.elements[:] = saved["sizes"], saved["elements"]
            self.bonds, self.replaced = saved["bonds"], saved.get("replaced", 0)

    @property
    def state(self) -> dict[str, Any]:
        """All counts as JSON values."""
        return {
            "sizes": self.sizes.tolist(),
            "elements": self.elements.tolist(),
            "bonds": self.bonds,
            "replaced": self.replaced,
            "targets": self.targets.state,
            "refusals": self.refusals.kinds,
        }

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.sizes.sum())

    @property
    def molecules(self) -> int:
        """Number of rows with a molecule."""
        return int(self.sizes[1:].sum())

    def add(self, store: MoleculeStore, smiles: Sequence[str], where: Callable[[int], str]) -> None:
        """Count the rows of `featurize_chunk`, whose targets are not yet rounded to float32.

        The SMILES are empty where unknown, and `where` describes the row at an index for messages.
        """
        self.sizes += np.bincount(store.num_atoms, minlength=len(self.sizes))
        self.elements += np.bincount(store.atoms[:, 0], minlength=len(self.elements))
        if store.num_atoms.any():
            self.targets.add(store.targets[store.num_atoms > 0])
        self.bonds += len(store.bonds)
        self.replaced += store.header["replaced"]
        for row, reason in store.errors.items():
            self.refusals.add(reason, smiles[row], where(row))

    def report(self) -> dict[str, Any]:
        """Return all counts for a reader: kinds of reasons and elements by decreasing number."""
        from molslice.chem.naming import element_symbol  # needs rdkit

        counts = enumerate(self.elements.tolist())
        elements = {element_symbol(code): count for code, count in counts if count}
        return {
            "rows": self.rows,
            "molecules": self.molecules,
            "failed": self.rows - self.molecules,
            "refusals": self.refusals.report(),
            "replaced": self.replaced,
            "targets": self.targets.report(),
            "atoms": int(self.elements.sum()),
            "bonds": self.bonds,
            "elements": dict(sorted(elements.items(), key=lambda item: -item[1])),
            "atoms_per_molecule": self._quantiles(),
            "sizes": {str(size): int(self.sizes[size]) for size in np.flatnonzero(self.sizes) if size},
        }

    def _quantiles(self) -> dict[str, int]:
        """Return quantiles of the number of atoms: the least size that a share of the molecules reaches."""
        if not self.molecules:
            return {}
        upto = self.sizes[1:].cumsum()
        least = {name: max(1, np.ceil(share * upto[-1])) for name, share in QUANTILES.items()}
        return {name: int(np.searchsorted(upto, count)) + 1 for name, count in least.items()}
