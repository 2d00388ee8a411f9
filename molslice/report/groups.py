"""Errors of groups of molecules: by size, element and scaffold."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from molslice.chem.naming import contained_elements
from molslice.chem.scaffold import scaffold_groups, scaffolds, scaffolds_of_arrays
from molslice.data.molecules.base import ArraysOnly
from molslice.data.molecules.fragments import choose_fragments
from molslice.fitting.standard_errors import cross_validation_factor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import Groups, group_by_size
from molslice.report.measure import MeasuredModel
from molslice.tasks.standard_errors import measure_rows
from molslice.tasks.target_types import TargetType
from molslice.uncertainty.similarity_rule import PLACES

SIZES = (1, 10, 15, 20, 25, 30, 40, 65)  # heavy atoms: the first of each group
MOST_TRAINING_ROWS = 50_000  # finding a scaffold takes about a millisecond


@dataclass(frozen=True, slots=True)
class Group:
    """The error of a group of molecules.

    Attributes:
        name: What the molecules have in common.
        count: Number of rows with a value or a limit.
        error: The value of `group_metric`; NaN if it is not defined.
        spread: Its standard error; NaN for fewer than two molecules and where `error` is NaN.
    """

    name: str
    count: int
    error: float
    spread: float


def summarize(
    name: str,
    of_target: TargetType,
    truth: np.ndarray,
    predicted: np.ndarray,
    molecules: np.ndarray,
    metric: str,
    folds: int | None = None,
) -> Group:
    """Compute the metric of a group of one or more molecules, with its standard error as `fit` computes it.

    Args:
        name: What the molecules have in common.
        of_target: What the target is.
        truth: Values, or indices of classes, float64 [n].
        predicted: Predictions or probabilities of class 1, float64 [n]; of several classes, float64 [n, K].
        molecules: Number of the molecule of each row, int64 [n].
        metric: See `group_metric`.
        folds: Number of folds of cross-validated predictions; None for other predictions.
    """
    measured = measure_rows(of_target, predicted, truth, molecules, metric)
    factor = 1.0 if folds is None else cross_validation_factor(folds)
    return Group(name, len(truth), measured.value, factor * measured.standard_error)


def by_size(measured: MeasuredModel) -> Groups:
    """Group the molecules of the judged split by their number of heavy atoms."""
    sizes = np.asarray(measured.dataset.store.num_atoms)[measured.judged.rows]
    names = [f"{a} to {b - 1}" for a, b in zip(SIZES, SIZES[1:], strict=False)] + [f"{SIZES[-1]} or more"]
    return group_by_size(sizes, SIZES, names)


def by_element(measured: MeasuredModel) -> Groups:
    """Group the molecules of the judged split by the elements that they contain, the commonest first.

    A molecule is in the group of each of its elements.
    """
    elements = [contained_elements(molecule) for molecule in measured.molecules(measured.judged.rows)]
    counts = Counter(itertools.chain.from_iterable(elements))
    names = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    return {name: np.array([name in symbols for symbols in elements]) for name in names}


def by_scaffold(measured: MeasuredModel) -> Groups | None:
    """Group the molecules of the judged split by whether training molecules have their scaffold.

    Returns:
        The groups; None if the training molecules are not known, or too many to search.
    """
    train = _training_scaffolds(measured)
    if not train or measured.judged.name == "train":
        return None
    return scaffold_groups(scaffolds_of_arrays(measured.molecules(measured.judged.rows)), train)


def by_domain(measured: MeasuredModel) -> Groups | None:
    """Group the molecules of the judged split by how far they are like the training molecules.

    Returns:
        The groups; None if the training molecules are not known, are judged, or the data have no SMILES.
    """
    model, dataset, rows = measured.predictor, measured.dataset, measured.judged.rows
    domain = model.known_domain()
    if domain is None or measured.judged.name == "train" or isinstance(dataset, ArraysOnly):
        return None
    smiles = dataset.smiles()
    treated = choose_fragments([smiles[row] for row in rows], *model.treatment).smiles
    compared = domain.compare(treated, [None] * len(rows))
    return {
        place: np.array([row_domain is not None and row_domain.place == place for row_domain in compared])
        for place in PLACES
    }


def group_metric(measured: MeasuredModel, target: int) -> str:
    """Return the name of the metric of groups: also small ones, which lack some of several classes."""
    if (several := measured.types[target].several) is not None:
        return "class_error" if several.ordered else "accuracy"
    return measured.types[target].metric


def score_groups(measured: MeasuredModel, target: int, groups: Groups) -> list[Group]:
    """Compute the metric of a target for each group with known values; see `group_metric`."""
    split, several, metric = measured.judged, measured.types[target].several, group_metric(measured, target)
    known, values = split.measured(target)
    truth, columns = np.full(len(split.truth), np.nan), split.columns[target]
    truth[known] = values
    predicted = split.values(target) if several is None else split.predicted[:, columns]
    predictor, folds = measured.predictor, None
    if measured.is_learned and isinstance(predictor, FittedPredictor):
        folds = int(predictor.fit_options["members"])
    scored = []
    for name, members in groups.items():
        rows = known[members[known]]
        if len(rows):
            of_rows = (truth[rows], predicted[rows], split.molecules[rows])
            scored.append(summarize(name, measured.types[target], *of_rows, metric, folds))
    return scored


def _training_scaffolds(measured: MeasuredModel) -> Sequence[str]:
    """Return the scaffolds of the training molecules; empty if they are not known, or too many."""
    domain = measured.predictor.known_domain()
    if domain is not None and not domain.is_sample:
        return scaffolds(domain.smiles) if len(domain.smiles) <= MOST_TRAINING_ROWS else ()
    train = measured.dataset.splits.get("train", np.empty(0, np.int64))
    train = train[np.asarray(measured.dataset.store.num_atoms)[train] > 0]
    if not measured.is_own or len(train) > MOST_TRAINING_ROWS:
        return ()
    return scaffolds_of_arrays(measured.molecules(train))
