"""Rows of a fit that are never divided: by a column of groups, and by clusters of similar molecules."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from molslice.files.tables import is_missing
from molslice.files.urls import File
from molslice.fitting.data import FitData, FitOptions
from molslice.number_text import counted
from molslice.types import MolsliceError


def number_words(words: Sequence[str], missing: set[str]) -> np.ndarray:
    """Number the words of a column, int64 [n]; -1 for an empty cell or a missing value.

    `missing` has texts that are missing values beside the usual ones, in lower case.
    """
    numbers: dict[str, int] = {}
    known = [not is_missing(word) and word.strip().lower() not in missing for word in words]
    return np.array(
        [
            numbers.setdefault(word.strip(), len(numbers)) if is_known else -1
            for word, is_known in zip(words, known, strict=True)
        ],
        np.int64,
    )


def join_groups(data: FitData, options: FitOptions, path: File) -> None:
    """Number the groups of rows that stay together, and say what they are.

    They are the connected components of compounds, and of the words in a column of groups, clusters or
    scaffolds: two rows are in one group if they share any of these, and so are the rows linked by others.
    If only compounds or scaffolds stay together, they get no numbers.

    Raises:
        MolsliceError: The column of groups is empty, or all rows are in one group.
    """
    compounds = data.number_groups("compound")
    links = [compounds]
    if options.split == "scaffold":
        data.grouped_by = "scaffold"
        links.append(data.number_groups())
    if options.split == "cluster":
        links.append(_clusters(data))
        data.grouped_by = "cluster"
    if options.groups is not None:
        if not (data.groups >= 0).any():
            raise MolsliceError(
                f"{path}, column {options.groups!r}: all cells are empty, so there are no groups"
            )
        words = data.groups
        links.append(words)
        data.grouped_by = "group"
        _describe(data, options.groups, words, compounds)
    if data.grouped_by in ("cluster", "group"):
        data.groups = connect(*links)
        if not data.groups.any():
            raise MolsliceError(
                f"{path}: all {len(data.groups):,} rows are in one {data.grouped_by}, which is not divided; "
                "choose another split or other groups"
            )
        if len(data.test) and len(both := np.intersect1d(data.groups[data.test], data.groups[~data.test])):
            finding = f"groups: {len(both):,} have training and held-out rows in the column {options.split!r}"
            data.findings.append(finding)


def connect(*labels: np.ndarray) -> np.ndarray:
    """Number the connected components of rows that share a label.

    Args:
        labels: Labels of n rows of several kinds, int [n] each; -1 is no label. In the first kind, each row
            has a label.

    Returns:
        Number of the component of each row, int [n].
    """
    nodes, ends = int(labels[0].max()) + 1, []
    for kind in labels[1:]:
        rows = np.flatnonzero(kind >= 0)
        ends.append(np.stack([labels[0][rows], nodes + kind[rows]]))
        nodes += int(kind.max(initial=-1)) + 1
    first, second = np.concatenate(ends, axis=1)
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(nodes, nodes))
    return connected_components(graph, directed=False)[1][labels[0]]


def _clusters(data: FitData) -> np.ndarray:
    """Number the cluster of the compound of each row, which does not depend on the order of the rows."""
    from molslice.chem.clusters import SIMILARITY, find_clusters  # needs rdkit

    names, places = np.unique(data.molecules.parents, return_inverse=True)
    clusters = find_clusters(names.tolist())
    sizes = np.bincount(clusters)
    data.findings.append(
        f"clusters: {len(sizes):,} of {len(names):,} compounds with a similarity of at least {SIMILARITY} to "
        f"their center; the largest has {sizes.max():,}"
    )
    return clusters[places]


def _describe(data: FitData, column: str, words: np.ndarray, compounds: np.ndarray) -> None:
    """Add a finding about a column of groups, and about the compounds that join some of them."""
    known = words >= 0
    pairs = np.unique(np.stack([compounds[known], words[known]]), axis=1)
    shared = int((np.bincount(pairs[0], minlength=1) > 1).sum())
    finding = f"groups: column {column!r}, {len(np.unique(words[known])):,} in {len(words):,} rows"
    if not known.all():
        finding += f"; {counted(int((~known).sum()))} without a group, each a group of its own"
    if shared:
        finding += f"; {counted(shared, 'compound')} in several groups, which are joined"
    data.findings.append(finding)
