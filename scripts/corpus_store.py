"""Scale the targets of a corpus and write its store."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from corpus_keys import Shard
from corpus_labels import QUANTUM, Labels
from corpus_parts import Part

from molslice.chem import DESCRIPTORS_VERSION, FEATURIZER_VERSION
from molslice.chem.descriptors import descriptor_names
from molslice.data.molecules.store import MoleculeStore
from molslice.types import MoleculeArrays, MolsliceError
from molslice.version import __version__

QUANTILES = (0.0005, 0.9995)
SIGMAS = 6.0
SAMPLE_ROWS = 200_000
CHARGE = "charge"
FIELDS = ("low", "high", "mean", "std")


@dataclass(frozen=True, slots=True)
class Scaling:
    """Limits, mean and standard deviation of columns, float64 [T] each.

    Attributes:
        low: Lower limit; smaller values are set to it.
        high: Upper limit; larger values are set to it.
        mean: Mean within the quantiles.
        std: Standard deviation within the quantiles; 0 for a constant column.
    """

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def measure(cls, values: np.ndarray) -> "Scaling":
        """Measure the columns of `values`, float [n, T], NaN if missing.

        Values outside of `QUANTILES` are clipped before mean and deviation are computed. The limits are these
        quantiles, or `SIGMAS` deviations from the mean where that is nearer. Otherwise the target of a rare
        functional group would be 30 deviations.

        Source: The limit of six deviations is from CheMeleon, Burns et al. 2025, arXiv 2506.15792.
        """
        rows = [cls._measure_column(column[~np.isnan(column)].astype(np.float64)) for column in values.T]
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    @staticmethod
    def _measure_column(column: np.ndarray) -> tuple[float, float, float, float]:
        if not len(column):
            return 0.0, 0.0, 0.0, 0.0
        low, high = np.quantile(column, QUANTILES)
        column = column.clip(low, high)
        mean, std = float(column.mean()), float(column.std())
        if std <= 1e-9 * max(abs(low), abs(high)):
            return float(low), float(high), mean, 0.0
        return max(float(low), mean - SIGMAS * std), min(float(high), mean + SIGMAS * std), mean, std

    def at(self, columns: np.ndarray) -> "Scaling":
        """Return some of the columns."""
        return Scaling(self.low[columns], self.high[columns], self.mean[columns], self.std[columns])

    def limit(self, values: np.ndarray) -> np.ndarray:
        """Clip values to the limits; float32. NaN is kept."""
        return values.clip(self.low, self.high).astype(np.float32)

    def to_mapping(self) -> dict[str, list[float]]:
        """Return JSON types."""
        return {name: getattr(self, name).tolist() for name in FIELDS}


@dataclass(frozen=True, slots=True)
class Corpus:
    """The chosen rows of all shards and their labels.

    Attributes:
        shards: The file of each shard.
        parts: The file of each part.
        lines: The chosen lines of each shard.
        labels: Quantum labels.
    """

    shards: Sequence[Path]
    parts: Sequence[Path]
    lines: Sequence[np.ndarray]
    labels: Labels

    def blocks(self) -> Iterator["Block"]:
        """Yield the rows shard by shard, without rows that have no arrays."""
        for shard, path, lines in zip(self.shards, self.parts, self.lines, strict=True):
            if not len(lines):
                continue
            part, parsed = Part.read(path).at(lines), Shard.read(shard)
            has_arrays = np.array([not isinstance(molecule, str) for molecule in part.molecules])
            molecules = [molecule for molecule in part.molecules if not isinstance(molecule, str)]
            lines, values = lines[has_arrays], part.descriptors[has_arrays]
            places = self.labels.places(parsed.keys[lines])
            charges = [
                None if place < 0 else self.labels.charges_of(place, molecule)
                for place, molecule in zip(places.tolist(), molecules, strict=True)
            ]
            failed = len(has_arrays) - len(lines)
            yield Block(molecules, values, places, charges, parsed.skeletons[lines], failed)


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one shard.

    Attributes:
        molecules: Arrays of each row.
        descriptors: float32 [n, D].
        places: Index of each row in the labels, int64 [n]; -1 without labels.
        charges: Charges of the atoms of each row; None if unknown.
        groups: Key of the skeleton of each row, uint64 [n].
        failed: Number of rows without arrays, which are excluded.
    """

    molecules: list[MoleculeArrays]
    descriptors: np.ndarray
    places: np.ndarray
    charges: list[np.ndarray | None]
    groups: np.ndarray
    failed: int


@dataclass(frozen=True, slots=True)
class Scalings:
    """The scaling of the targets of a corpus, with counts.

    Attributes:
        varying: Indices of the descriptors that are not constant.
        descriptors: Scaling of these descriptors.
        varying_quantum: Indices of the quantum labels that are not constant; empty without labels.
        quantum: Scaling of these quantum labels.
        charges: Scaling of the charges; None if there are none or all are equal.
        counts: Number of rows, atoms, labeled rows and excluded rows.
    """

    varying: np.ndarray
    descriptors: Scaling
    varying_quantum: np.ndarray
    quantum: Scaling
    charges: Scaling | None
    counts: dict[str, int]

    @classmethod
    def measure(cls, corpus: Corpus) -> "Scalings":
        """Measure the descriptors of evenly spaced rows, at most `SAMPLE_ROWS`, and all labels.

        Raises:
            MolsliceError: All descriptors and labels are constant.
        """
        total = sum(map(len, corpus.lines))
        step, first = max(1, -(-total // SAMPLE_ROWS)), 0
        sample, places = [np.empty((0, len(descriptor_names())), np.float32)], [np.empty(0, np.int64)]
        charges = [np.empty(0, np.float32)]
        counts: dict[str, int] = dict.fromkeys(
            ("rows", "atoms", "with quantum labels", "with charges", "without arrays"), 0
        )
        for block in corpus.blocks():
            rows = len(block.molecules)
            sample.append(block.descriptors[-first % step :: step].copy())  # a view would keep all rows
            first += rows
            places.append(block.places[block.places >= 0])
            known_charges = [values for values in block.charges if values is not None]
            charges += known_charges
            counts["rows"] += rows
            counts["atoms"] += sum(len(molecule.atoms) for molecule in block.molecules)
            counts["with charges"] += len(known_charges)
            counts["without arrays"] += block.failed
        labeled = np.concatenate(places)
        counts["with quantum labels"] = len(labeled)
        descriptors = Scaling.measure(np.concatenate(sample))
        quantum = Scaling.measure(corpus.labels.values[labeled])
        charge = Scaling.measure(np.concatenate(charges)[:, None])
        varying, varying_quantum = (np.flatnonzero(scaling.std > 0) for scaling in (descriptors, quantum))
        if not len(varying) and not len(varying_quantum):
            raise MolsliceError(f"no descriptor and no label varies over the {counts['rows']} molecules")
        return cls(
            varying,
            descriptors.at(varying),
            varying_quantum,
            quantum.at(varying_quantum),
            charge if charge.std > 0 else None,
            counts,
        )

    @property
    def target_names(self) -> list[str]:
        """Names of the targets: descriptors, then quantum labels."""
        names = [descriptor_names()[place] for place in self.varying]
        return [*names, *(QUANTUM[place][0] for place in self.varying_quantum)]

    @property
    def target_units(self) -> list[str]:
        """Unit of each target."""
        return [*[""] * len(self.varying), *(QUANTUM[place][1] for place in self.varying_quantum)]

    def about(self) -> dict[str, Any]:
        """Return the description of the targets for the header of the store."""
        parts = (self.descriptors, self.quantum)
        scaling = Scaling(*(np.concatenate([getattr(family, name) for family in parts]) for name in FIELDS))
        return {
            "families": {
                "descriptors": self.target_names[: len(self.varying)],
                "quantum": self.target_names[len(self.varying) :],
                "charges": [CHARGE] if self.charges else [],
            },
            "scaling": scaling.to_mapping(),
            "charge_scaling": self.charges.to_mapping() if self.charges else None,
            "quantiles": list(QUANTILES),
            "sigmas": SIGMAS,
            "descriptors_version": DESCRIPTORS_VERSION,
            "featurizer_version": FEATURIZER_VERSION,
        }


def write_corpus(
    path: Path,
    corpus: Corpus,
    scalings: Scalings,
    source: str,
    about: dict[str, Any],
    tick: Callable[[int], Any],
) -> None:
    """Write the store of a corpus. The rows of one shard are in memory at a time.

    Args:
        path: The new folder.
        corpus: The rows.
        scalings: The scaling of the targets.
        source: Origin of the molecules, for messages.
        about: Other entries of the header.
        tick: Called with the number of rows of each block.
    """
    MoleculeStore.write(
        path,
        (_pack(block, corpus.labels, scalings, tick) for block in corpus.blocks()),
        target_names=scalings.target_names,
        target_units=scalings.target_units,
        source=source,
        versions={name: version(name) for name in ("numpy", "rdkit")} | {"molslice": __version__},
        atom_target_names=[CHARGE] if scalings.charges else [],
        grouped=True,
        about={**scalings.about(), **about},
    )


def _pack(block: Block, labels: Labels, scalings: Scalings, tick: Callable[[int], Any]) -> MoleculeStore:
    values = np.full((len(block.places), len(QUANTUM)), np.nan, np.float32)
    known = block.places >= 0
    values[known] = labels.values[block.places[known]]
    targets = [
        scalings.descriptors.limit(block.descriptors[:, scalings.varying]),
        scalings.quantum.limit(values[:, scalings.varying_quantum]),
    ]
    atom_targets = None
    if scalings.charges:
        parts = [
            np.full(len(molecule.atoms), np.nan, np.float32) if charges is None else charges
            for molecule, charges in zip(block.molecules, block.charges, strict=True)
        ]
        atom_targets = scalings.charges.limit(np.concatenate(parts)[:, None])
    tick(len(block.molecules))
    joined = np.concatenate(targets, axis=1)
    return MoleculeStore.in_memory(block.molecules, joined, atom_targets=atom_targets, groups=block.groups)
