"""Division of the rows of a fit: the held-out rows, and the forms of a compound on both sides."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from molslice.data import splits
from molslice.files.urls import File
from molslice.fitting.data import FitData
from molslice.types import MolsliceError

__all__ = ["describe_forms", "draw_test_rows", "find_test_rows"]

TEST_FRACTION = 0.1
MIN_COMPOUNDS = 5  # if several rows of a molecule are kept
MIN_OF_CLASS = 10  # rows of a class of which one is held out if a draw can do it
DRAWS = 20


def find_test_rows(
    words: Sequence[str], column: str, data: FitData, path: File, places: Sequence[str]
) -> np.ndarray:
    """Find which rows a column holds out. Cells of rows whose SMILES cannot be read are not checked.

    Args:
        words: Cells of the column.
        column: Name of the column.
        data: The rows, those that cannot be read included.
        path: The table, for messages.
        places: Location of each row, for messages.

    Returns:
        Whether a row is held out, bool [n].

    Raises:
        MolsliceError: A cell is not train, valid or test, or there are no training rows.
    """
    readable = [row for row, reason in enumerate(data.molecules.errors) if reason is None]
    test = np.zeros(len(words), bool)
    if not readable:
        return test  # a table without readable rows is refused later
    parts = splits.column_split(
        [words[row] for row in readable],
        column,
        str(path),
        lambda i: places[readable[i]],
        trained=("train", "valid"),
    )
    test[[readable[i] for i in parts.get("test", ())]] = True
    return test


def draw_test_rows(data: FitData, path: File, split: str, seed: int) -> np.ndarray:
    """Draw the held-out rows: all rows of a compound, or of a scaffold, are in one split.

    Rows are drawn again if they lack a class that has ten rows or more; of 20 such draws, the first is taken.

    Args:
        data: The rows.
        path: The table, for messages.
        split: `random` or `scaffold`.
        seed: Seed of the draw.

    Returns:
        Whether a row is held out, bool [n].

    Raises:
        MolsliceError: There are too few different compounds or scaffolds.
    """
    compound = _number_compounds(data)
    count = int(compound.max()) + 1
    if count < MIN_COMPOUNDS:
        raise MolsliceError(
            f"{path}: {count} different compounds in {len(data.smiles)} rows; a fit needs at least "
            f"{MIN_COMPOUNDS}"
        )
    first = _draw(data, path, compound, split, seed)
    others = np.random.SeedSequence(seed).generate_state(DRAWS - 1).tolist()
    draws = chain([first], (_draw(data, path, compound, split, other) for other in others))
    return next((test for test in draws if not _lacks_class(data, test)), first)


def _lacks_class(data: FitData, test: np.ndarray) -> bool:
    """Return whether no held-out row has a class of a target that enough rows have."""
    if data.kind == "regression":
        return False
    labels = range(len(data.class_names(0)))
    counts = np.array([(data.targets == label).sum(0) for label in labels])
    held_out = np.array([(data.targets[test] == label).sum(0) for label in labels])
    return bool(((counts >= MIN_OF_CLASS) & (held_out == 0)).any())


def _draw(data: FitData, path: File, compound: np.ndarray, split: str, seed: int) -> np.ndarray:
    count = int(compound.max()) + 1
    if split == "scaffold":  # scaffolds of one size are held out at random, not in the order of the SMILES
        compound = np.random.default_rng(seed).permutation(count)[compound]
    first = np.full(count, len(compound))
    np.minimum.at(first, compound, np.arange(len(compound)))
    groups = [data.scaffold_or_parent(row) for row in first] if split == "scaffold" else None
    test = None if groups is None else splits.draw_groups(groups, TEST_FRACTION * len(groups), seed)
    if test is None:
        drawn = np.arange(count) if groups is not None else _find_small(compound)
        division = splits.Division({"test": TEST_FRACTION}, seed)
        test = division.divide({"train": drawn}, str(path), groups=groups)["test"]
    return np.isin(compound, test)


def _find_small(compound: np.ndarray) -> np.ndarray:
    """Return the compounds with at most a tenth of the rows; all compounds if these are too few."""
    rows = np.bincount(compound)
    small = np.flatnonzero(rows <= max(1.0, TEST_FRACTION * len(compound)))
    return small if len(small) >= MIN_COMPOUNDS else np.arange(len(rows))


def _number_compounds(data: FitData) -> np.ndarray:
    """Number the compound of each row in the order of their first canonical SMILES, int [n]."""
    canonical, parents = data.molecules.canonical, data.molecules.parents
    numbers: dict[str, int] = {}
    for row in sorted(range(len(canonical)), key=canonical.__getitem__):
        numbers.setdefault(parents[row], len(numbers))
    return np.array([numbers[parent] for parent in parents])


def describe_forms(data: FitData) -> None:
    """Add a finding about molecules that differ from another one only in stereochemistry or salt form."""
    parents = dict(zip(data.molecules.canonical, data.molecules.parents, strict=True))
    sizes = Counter(parents.values())
    several = sum(size for size in sizes.values() if size > 1)
    if not several:
        return
    finding = (
        f"{several:,} of {len(parents):,} molecules differ from another one only in stereochemistry "
        "or salt form; all forms of a compound are in one fold"
    )
    trained, held_out = (
        {data.molecules.canonical[row] for row in np.flatnonzero(rows)} for rows in (~data.test, data.test)
    )
    known = {parents[name] for name in trained}
    divided = [name for name in held_out - trained if parents[name] in known]
    if divided:
        finding += f"; {len(divided):,} held-out molecules are forms of training molecules"
    data.findings.append(finding)
