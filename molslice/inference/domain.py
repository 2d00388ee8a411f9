"""The domain of a model: how far a molecule is like those that it was trained on."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from molslice.data.molecules.fragments import choose_fragments
from molslice.files.atomic import write_atomically
from molslice.files.parsing import read_json_object
from molslice.files.received import read_arrays
from molslice.inference.predictions import Domain, Neighbor
from molslice.types import MolsliceError
from molslice.uncertainty.similarity_rule import EDGE, LIKE, OUTSIDE, SimilarityRule

if TYPE_CHECKING:
    from molslice.chem.neighbors import Described

DOMAIN, ARRAYS = "domain.json", "domain.safetensors"
FORMAT = "molslice-domain-1"
MOST = 100_000  # molecules; of more, this many are drawn
NEIGHBORS = 3  # of a molecule
QUERIES = 1_000  # molecules whose nearest other molecule is searched for the threshold
SHARE = 0.05  # of the training molecules have their nearest other molecule below the threshold
FAR_SIZE = 1.5  # times the largest number of heavy atoms, or the smallest divided by it, is outside
MOST_DIGITS = 6  # of a similarity that is near to a limit
VALUES, RULE = "values", "rule"  # optional
FIELDS = {"starts": np.int64, "bins": np.uint16, "counts": np.uint8, "text": np.uint8}


class TrainingDomain:
    """The training molecules of a model, or 100,000 of them.

    Args:
        smiles: Their canonical SMILES, each once.
        index: Their Morgan counts, a `molslice.chem.neighbors.CountIndex`.
        elements: Symbols of their heavy atoms.
        sizes: Smallest and largest number of heavy atoms.
        threshold: Similarity that 95% of them have at least with their nearest other molecule, which is no
            stereoisomer.
        rule: Which similarities are like the training molecules; None for the usual ones.
        is_sample: Whether there are more training molecules.
        values: Their measured values, float32 [n, T] in the units of the targets, NaN where missing; None if
            they are not known.
    """

    def __init__(
        self,
        smiles: Sequence[str],
        index: Any,  # noqa: ANN401
        elements: Iterable[str],
        sizes: tuple[int, int],
        threshold: float,
        *,
        rule: SimilarityRule | None = None,
        is_sample: bool = False,
        values: np.ndarray | None = None,
    ) -> None:
        self.smiles, self.index, self.elements = list(smiles), index, frozenset(elements)
        self.sizes, self.threshold, self.is_sample, self.values = sizes, threshold, is_sample, values
        self._known = frozenset(self.smiles)
        self.rule = SimilarityRule.usual(threshold) if rule is None else rule

    @classmethod
    def of_smiles(
        cls,
        smiles: Sequence[str],
        fragment: str = "keep",
        seed: int = 0,
        *,
        standardize: str = "no",
        values: np.ndarray | None = None,
    ) -> "TrainingDomain":
        """Describe training molecules; those that cannot be read are left out.

        Args:
            smiles: The molecules.
            fragment: What happens to a mixture; see `choose_fragment`.
            seed: Seed of the draws from many molecules.
            standardize: What standard form molecules get; see `choose_fragments`.
            values: The measured values of each row, float [rows, T], NaN where missing; several rows of one
                molecule are averaged. None if they are not known.

        Raises:
            MolsliceError: None of them can be read.
        """
        from molslice.chem.neighbors import CountIndex, describe  # needs rdkit
        from molslice.chem.smiles import ChemError

        generator = np.random.default_rng(seed)
        is_sample = len(smiles) > MOST
        if is_sample:
            drawn = np.sort(generator.choice(len(smiles), MOST, replace=False))
            smiles = [smiles[int(row)] for row in drawn]
            values = None if values is None else values[drawn]
        described: dict[str, Described] = {}
        rows: dict[str, list[int]] = {}
        for row, text in enumerate(choose_fragments(list(smiles), fragment, standardize=standardize).smiles):
            try:
                molecule = describe(text)
            except ChemError:
                continue
            described.setdefault(molecule.smiles, molecule)
            rows.setdefault(molecule.smiles, []).append(row)
        if not described:
            raise MolsliceError("none of the training molecules can be read")
        molecules = list(described.values())
        index = CountIndex.from_counts(np.stack([molecule.counts for molecule in molecules]))
        sizes = [molecule.size for molecule in molecules]
        queries = generator.permutation(len(molecules))[:QUERIES]
        # stereoisomers have the same counts and say nothing about other compounds
        nearest = [index.nearest_other(molecules[row].counts) for row in queries]
        threshold = float(np.quantile(nearest, SHARE, method="lower"))  # without interpolation
        elements = set().union(*(molecule.elements for molecule in molecules))
        limits = min(sizes), max(sizes)
        means = None if values is None else np.stack([_mean(values[numbers]) for numbers in rows.values()])
        return cls(
            list(described), index, sorted(elements), limits, threshold, is_sample=is_sample, values=means
        )

    def compare(self, smiles: Sequence[str], errors: Sequence[str | None]) -> list[Domain | None]:
        """Compare molecules with the training molecules; a row with the reason of an error gets None."""
        return [
            None if reason is not None else self._compare(text)
            for text, reason in zip(smiles, errors, strict=True)
        ]

    def _compare(self, smiles: str) -> Domain | None:
        from molslice.chem.neighbors import describe  # needs rdkit
        from molslice.chem.smiles import ChemError

        try:
            molecule = describe(smiles)
        except ChemError:
            return None
        neighbors = tuple(
            Neighbor(
                self.smiles[row],
                similarity,
                None if self.values is None else tuple(map(float, self.values[row])),
            )
            for row, similarity in self.index.most_similar(molecule.counts, NEIGHBORS)
        )
        place, reason = self._place(molecule, neighbors[0].similarity)
        return Domain(place, reason, neighbors, molecule.smiles in self._known)

    def _place(self, molecule: "Described", similarity: float) -> tuple[str, str]:
        """Return the place of a molecule, and the reason if it is not like the training molecules."""
        if new := molecule.elements - self.elements:
            return OUTSIDE, f"no training molecule contains {', '.join(sorted(new))}"
        (least, most), size = self.sizes, molecule.size
        size_reason = f"{size} heavy atoms; training molecules have {least} to {most}"
        if not least / FAR_SIZE <= size <= most * FAR_SIZE:
            return OUTSIDE, size_reason
        place = self.rule.place(similarity)
        if place == LIKE:
            return (LIKE, "") if least <= size <= most else (EDGE, size_reason)
        start = self.rule.like if place == EDGE else self.rule.edge
        digits = 2
        while f"{similarity:.{digits}f}" == f"{start:.{digits}f}" and digits < MOST_DIGITS:
            digits += 1
        shown, limit = (f"{number:.{digits}f}" for number in (similarity, start))
        return place, f"similarity {shown} to the nearest training molecule, below {limit}"

    def contains(self, smiles: Sequence[str], fragment: str = "keep", standardize: str = "no") -> np.ndarray:
        """Find which molecules are training molecules; those that cannot be read are not, bool [n]."""
        return self.knows(canonical_smiles(smiles, fragment, standardize))

    def knows(self, names: Sequence[str | None]) -> np.ndarray:
        """Find which canonical SMILES are training molecules, bool [n]."""
        return np.array([name in self._known for name in names], bool)

    def write(self, folder: Path) -> None:
        """Write the files of the model folder."""
        text = np.frombuffer("\n".join(self.smiles).encode(), np.uint8)
        arrays = {"starts": self.index.starts, "bins": self.index.bins, "counts": self.index.counts}
        values = {} if self.values is None else {VALUES: self.values}
        write_atomically(folder / ARRAYS, save({**arrays, **values, "text": text}))
        header = {
            "format": FORMAT,
            "molecules": len(self.smiles),
            "elements": sorted(self.elements),
            "sizes": list(self.sizes),
            "threshold": self.threshold,
            "is_sample": self.is_sample,
            **({RULE: self.rule.to_mapping()} if self.rule.groups else {}),
        }
        write_atomically(folder / DOMAIN, json.dumps(header) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "TrainingDomain | None":
        """Read the domain of a model folder; None if it has none."""
        from molslice.chem.neighbors import CountIndex  # needs rdkit

        file = folder / DOMAIN
        if not file.is_file():
            return None
        header = read_json_object(file)
        try:
            if header.get("format") != FORMAT:
                raise ValueError(f"format {header.get('format')!r}; this version reads {FORMAT!r}")
            arrays = read_arrays(folder / ARRAYS)
            text, *index = (_array_of(arrays, name) for name in ("text", "starts", "bins", "counts"))
            smiles, values = text.tobytes().decode().split("\n"), arrays.get(VALUES)
            least, most = map(int, header["sizes"])
            threshold, is_sample = float(header["threshold"]), bool(header["is_sample"])
            _check(*index, molecules=len(smiles), stated=header["molecules"])
            if not 0 <= threshold <= 1:
                raise ValueError(f"threshold {threshold}")
            shape = None if values is None else (values.dtype.name, values.ndim, len(values))
            if values is not None and shape != ("float32", 2, len(smiles)):
                raise ValueError(
                    f"values are {values.dtype} {list(values.shape)} for {len(smiles)} molecules"
                )
            rule = SimilarityRule.from_mapping(header[RULE]) if RULE in header else None
            elements, index = list(map(str, header["elements"])), CountIndex(*index)
            sizes, optional = (least, most), {"rule": rule, "is_sample": is_sample, "values": values}
            return cls(smiles, index, elements, sizes, threshold, **optional)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise MolsliceError(f"{file} is damaged: {error}") from error


def canonical_smiles(
    smiles: Sequence[str], fragment: str = "keep", standardize: str = "no"
) -> list[str | None]:
    """Return the canonical SMILES of treated molecules; None for one that cannot be read."""
    from molslice.chem.canonical import canonical_molecule  # needs rdkit
    from molslice.chem.smiles import ChemError

    canonical: list[str | None] = [None] * len(smiles)
    for row, text in enumerate(choose_fragments(list(smiles), fragment, standardize=standardize).smiles):
        with contextlib.suppress(ChemError):
            canonical[row] = canonical_molecule(text).smiles or text
    return canonical


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the rows of each target, without missing values; NaN without any, float32 [T]."""
    known = np.isfinite(values)
    counts = known.sum(0)
    sums = np.where(known, values, 0.0).sum(0, dtype=np.float64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)


def _array_of(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    array = arrays[name]
    if array.dtype != FIELDS[name] or array.ndim != 1:
        raise ValueError(f"{name} is {array.dtype} of {array.ndim} dimensions")
    return array


def _check(starts: np.ndarray, bins: np.ndarray, counts: np.ndarray, molecules: int, stated: object) -> None:
    if molecules != stated or len(starts) != molecules + 1:
        raise ValueError(f"{molecules} molecules and {len(starts)} starts, {stated} are stated")
    if starts[0] != 0 or starts[-1] != len(bins) or (np.diff(starts) < 0).any() or len(bins) != len(counts):
        raise ValueError("the starts do not fit the counts")
    if len(bins) and bins.max() >= 2048:
        raise ValueError(f"bin {bins.max()} of 2048")
