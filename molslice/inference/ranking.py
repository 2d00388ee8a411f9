"""What to measure next: molecules in the order of a goal, and some of them that differ from each other."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from molslice.data.molecules.conditions import Conditioned
from molslice.data.molecules.fragments import choose_fragments
from molslice.inference.base import Predictor
from molslice.inference.columns import ERROR, SMILES, distinct_columns
from molslice.inference.goals import Goal, models_of, read_goals
from molslice.inference.inputs import Conditions, Molecules
from molslice.inference.load import load_model
from molslice.inference.options import PredictionOptions
from molslice.inference.predictions import Predictions, TableRows
from molslice.registry import check_choice
from molslice.types import MolsliceError
from molslice.uncertainty.similarity_rule import OUTSIDE

By = Literal["probability", "value", "improvement", "uncertainty"]
ORDERS: tuple[By, ...] = get_args(By)
LEVEL = 0.9  # of the intervals beside the predictions
IN_TRAINING, PROBABILITY, IMPROVEMENT = "in_training", "probability", "improvement"
INDEPENDENT = (
    "the probability of all goals is the product of theirs, as if the errors of the targets were independent"
)


@dataclass(frozen=True, slots=True)
class Scores:
    """What orders n molecules.

    Attributes:
        values: The larger, the better, float64 [n]: not negative unless the order is by value. NaN in failed
            rows.
        margins: Orders molecules of equal values: the larger, the better, float64 [n].
        probabilities: The probability of each of G goals, float64 [n, G].
        improvements: The expected improvement, float64 [n]; None unless the order is by it.
        is_candidate: Whether a molecule takes part: it has a prediction, and is in the domain if this is
            asked for, bool [n].
        is_trained: Whether it is a known training molecule, bool [n].
    """

    values: np.ndarray
    margins: np.ndarray
    probabilities: np.ndarray
    improvements: np.ndarray | None
    is_candidate: np.ndarray
    is_trained: np.ndarray

    @property
    def probability(self) -> np.ndarray:
        """The probability that a molecule meets all goals, float64 [n]."""
        return self.probabilities.prod(1)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Molecules in the order of a goal.

    Attributes:
        goals: The G goals.
        order: Numbers of the molecules from 0, the best first, int64 [k].
        similarities: Of a diverse choice, the largest similarity of each molecule in `order` to one before
            it, float64 [k], 0 for the first; None without.
        scores: The scores of all n molecules.
        predictions: The predictions of all n molecules, with intervals, and with the domain if the model has
            training molecules.
    """

    goals: tuple[Goal, ...]
    order: np.ndarray
    similarities: np.ndarray | None
    scores: Scores
    predictions: Predictions


def rank(
    model: Predictor | str | Path,
    molecules: Molecules,
    goal: str | Sequence[str],
    *,
    by: By = "probability",
    top: int | None = None,
    diverse: int | None = None,
    in_domain: bool = False,
    conditions: Conditions | None = None,
    interval: float = LEVEL,
    workers: int | None = None,
    progress: bool = False,
) -> Ranking:
    """Order molecules by how well they meet a goal, and choose what to measure next.

    Args:
        model: A model, or what `load_model` takes.
        molecules: The molecules, as in `Predictor.predict`.
        goal: A goal such as `logS > -4`, `-1 < logD < 3` or `toxic = 0`, or several about different targets;
            see `read_goals`. The probability of several is the product of theirs.
        by: What comes first: `probability`, the largest probability of the goal; `value`, the best
            prediction; `improvement`, the largest expected improvement on the best measured value;
            `uncertainty`, the widest interval, as a factor if logarithms were learned, of classes the
            probability nearest to one half. All but the first need one goal, and `value` and `improvement`
            one with one limit.
        top: Number of molecules to return, the best; None for all.
        diverse: Number of molecules to choose in place of the best ones; see `choose_diverse`. Molecules of
            the training table are left out, unless the model takes conditions.
        in_domain: Whether molecules outside the domain of the model are left out.
        conditions: The conditions, as in `Predictor.predict`.
        interval: Level of the intervals of the predictions, and the width that `uncertainty` orders by.
        workers: Number of worker processes, as in `Predictor.predict`.
        progress: Whether to show a bar on standard error.

    Raises:
        MolsliceError: As in `predict_with_errors` and `read_goals`; the model has no held-out rows for
            probabilities; an option does not fit the goal.
    """
    predictor = model if isinstance(model, Predictor) else load_model(model)
    ranker = Ranker(predictor, goal, by, interval=interval, in_domain=in_domain)
    check_numbers(top, diverse)
    rows = predictor.given_rows(molecules, conditions)
    return ranker.rank(rows, top, diverse, workers=workers, progress=progress)


def check_numbers(top: int | None, diverse: int | None) -> None:
    """Check how many molecules are asked for.

    Raises:
        MolsliceError: Both are given, or one is no positive number.
    """
    if top is not None and diverse is not None:
        raise MolsliceError("top and diverse are both given: choose one of them")
    for name, value in {"top": top, "diverse": diverse}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
            raise MolsliceError(f"invalid {name} {value!r}: give a positive whole number")


class Ranker:
    """Scores predictions of a model by goals; see `rank`.

    Attributes:
        predictor: The model.
        goals: The goals.
        by: What comes first.
        options: What the predictions need.
    """

    def __init__(
        self,
        predictor: Predictor,
        goal: str | Sequence[str],
        by: By = "probability",
        *,
        interval: float = LEVEL,
        in_domain: bool = False,
    ) -> None:
        check_choice("order", by, ORDERS)
        types = predictor.types
        self.predictor, self.by, self.in_domain = predictor, by, in_domain
        self.goals = read_goals(
            [goal] if isinstance(goal, str) else goal, predictor.target_names, predictor.target_units, types
        )
        first = self.goals[0]
        if by != "probability" and len(self.goals) > 1:
            raise MolsliceError(f"the order by {by} needs one goal, got {len(self.goals)}")
        if by in ("value", "improvement") and not first.sign:
            raise MolsliceError(f"the order by {by} needs a goal with one limit, got {first.text!r}")
        known = predictor.find_domain() if in_domain else predictor.known_domain()
        self.options: PredictionOptions = predictor.find_options(interval, domain=known is not None)

    @property
    def notes(self) -> list[str]:
        """Sentences about the goals that no training value meets, limits such as `>10` left out.

        Of a table with more training molecules than the domain keeps, nothing is known.
        """
        domain = self.options.domain
        if domain is None or domain.values is None or domain.is_sample:
            return []
        notes = []
        for goal in self.goals:
            known = domain.values[:, goal.index]
            known = known[np.isfinite(known)]
            if (
                goal.label is None
                and len(known)
                and not np.any((known >= goal.lower) & (known <= goal.upper))
            ):
                unit = self.predictor.target_units[goal.index]
                ends = f"{known.min():.4g} to {known.max():.4g} {unit}".rstrip()
                exact = "exact " * (len(known) < len(domain.values))  # others are limits or missing
                notes.append(f"no {exact}training value meets {goal.text}; they are from {ends}")
        return notes

    def rank(
        self,
        rows: Sequence[str],
        top: int | None = None,
        diverse: int | None = None,
        *,
        workers: int | None = None,
        progress: bool = False,
    ) -> Ranking:
        """Predict and rank rows, as `Predictor.given_rows` returns them; see `rank`."""
        predictions = self.predictor.predict_with_errors(
            rows, options=self.options, workers=workers, progress=progress
        )
        scores = self.score(predictions)
        order, similarities = self.choose(scores, rows.__getitem__, top, diverse)
        return Ranking(self.goals, order, similarities, scores, predictions)

    def table_columns(self, taken: Sequence[str] = (SMILES, ERROR)) -> tuple[list[str], list[str]]:
        """Name the columns of the numbers and of the texts of `table_rows`.

        They begin with the columns of `Predictor.table_columns`; `taken` are names that are used.
        """
        numbers, texts = self.predictor.table_columns(self.options, taken)
        added = [PROBABILITY]
        if len(self.goals) > 1:
            added += [f"{PROBABILITY}_{goal.target}" for goal in self.goals]
        added += [IMPROVEMENT] * (self.by == "improvement")
        added += [IN_TRAINING] * (self.options.domain is not None)
        names = distinct_columns(added, taken=[*taken, *numbers, *texts])
        if self.options.domain is None:
            return [*numbers, *names], texts
        return [*numbers, *names[:-1]], [*texts, names[-1]]

    def table_rows(self, predictions: Predictions, scores: Scores) -> TableRows:
        """Return the numbers and texts in the order of `table_columns`."""
        rows = predictions.table_rows()
        columns = [rows.values, scores.probability[:, None]]
        columns += [scores.probabilities] * (len(self.goals) > 1)
        columns += [] if scores.improvements is None else [scores.improvements[:, None]]
        values = np.concatenate(columns, axis=1).astype(np.float32)
        if predictions.domain is None:
            return replace(rows, values=values)
        texts = [
            [*texts, "" if row_domain is None else str(row_domain.is_training).lower()]
            for texts, row_domain in zip(rows.texts, predictions.domain, strict=True)
        ]
        return replace(rows, values=values, texts=texts)

    def score(self, predictions: Predictions) -> Scores:
        """Score predictions with the `options` of this object."""
        calibration = self.options.calibration
        assert calibration is not None
        is_predicted = np.array([reason is None for reason in predictions.errors], bool)
        probabilities = np.stack(
            [goal.probabilities(predictions, calibration) for goal in self.goals], axis=1
        )
        goal, improvements = self.goals[0], None
        values = probabilities.prod(1)
        margins = np.zeros(len(values))
        if len(self.goals) == 1 and goal.sign:
            predicted = predictions.values[:, goal.column]
            margins = goal.sign * np.where(is_predicted, predicted, 0.0).astype(np.float64)
        if self.by == "value":
            values = np.where(is_predicted, margins, np.nan)
        elif self.by == "improvement":
            models, difficulty = models_of(predictions)
            known = None if self.options.domain is None else self.options.domain.values
            improvements = calibration.expected_improvements(
                goal.target, models, difficulty, goal.sign, None if known is None else known[:, goal.index]
            )
            values = improvements = np.where(is_predicted, improvements, np.nan)
        elif self.by == "uncertainty":
            values = self._widths(predictions) if goal.label is None else values * (1.0 - values)
        domain = predictions.domain or [None] * len(values)
        inside = [
            not self.in_domain or (row_domain is not None and row_domain.place != OUTSIDE)
            for row_domain in domain
        ]
        trained = np.array([row_domain is not None and row_domain.is_training for row_domain in domain], bool)
        return Scores(
            values, margins, probabilities, improvements, is_predicted & np.array(inside, bool), trained
        )

    def _widths(self, predictions: Predictions) -> np.ndarray:
        """Return the widths of the intervals of the target of the goal, of logarithms if they are learned."""
        assert predictions.lower is not None
        assert predictions.upper is not None
        assert self.options.calibration is not None
        target = self.options.calibration.targets[self.goals[0].index]
        ends = (block[:, self.goals[0].column] for block in (predictions.lower, predictions.upper))
        lower, upper = (target.transform(end.astype(np.float64)) for end in ends)
        return upper - lower

    def choose(
        self, scores: Scores, read_row: Callable[[int], str], top: int | None, diverse: int | None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Order the candidates, and choose the best or diverse ones.

        Args:
            scores: The scores of all molecules.
            read_row: Returns the row of a number, as `predict_chunks` takes it.
            top: As in `rank`.
            diverse: As in `rank`.

        Returns:
            `order` and `similarities` of the `Ranking`.
        """
        candidates = np.flatnonzero(scores.is_candidate)
        if diverse is not None and not self.predictor.condition_names:
            candidates = candidates[~scores.is_trained[candidates]]
        values, margins = scores.values[candidates], scores.margins[candidates]
        order = candidates[np.lexsort((-margins, -values))]  # stable: of equals the first
        if diverse is None:
            return order[:top], None
        worst = scores.values[order[-1]] if self.by == "value" and len(order) else 0.0
        places, similarities = choose_diverse(
            scores.values[order] - worst,
            lambda place: describe_row(self.predictor, read_row(int(order[place]))),
            diverse,
        )
        return order[places], similarities


def describe_row(predictor: Predictor, row: str) -> tuple[str, np.ndarray]:
    """Return a name and Morgan counts of a molecule or a pair that has a prediction, for `choose_diverse`.

    The name is the canonical SMILES. The counts of the molecules of a pair follow each other; if the model is
    symmetric, they are added.
    """
    from molslice.chem.neighbors import describe  # needs rdkit

    (treated,) = choose_fragments([row], *predictor.treatment).smiles
    molecule = describe(treated)
    if not isinstance(treated, Conditioned) or treated.partner is None:
        return molecule.smiles, molecule.counts
    partner = describe(treated.partner)
    names = [molecule.smiles, partner.smiles]
    if predictor.symmetric:
        return " ".join(sorted(names)), molecule.counts.astype(np.int64) + partner.counts
    return " ".join(names), np.concatenate([molecule.counts, partner.counts])


def choose_diverse(
    weights: np.ndarray, describe: Callable[[int], tuple[str, np.ndarray]], number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose molecules one by one, each with the largest weight times (1 - similarity).

    The similarity is the largest Tanimoto similarity of Morgan counts to a molecule that is chosen already.
    Only the counts of molecules that may be the next are computed, which does not change the choice (Minoux
    1978).

    Args:
        weights: The weight of each molecule, not negative, decreasing, float64 [n].
        describe: Returns a name and the Morgan counts of a molecule, or of a pair as in `describe_row`,
            int [c]. Of molecules with one name the first is a candidate.
        number: Number of molecules to choose.

    Returns:
        The chosen molecules in order, int64 [k], and the similarity of each to the ones before, float64 [k].
        k is smaller than `number` if there are fewer.

    Source: Carbonell and Goldstein 1998, "The Use of MMR, Diversity-Based Reranking for Reordering Documents"
    (a choice by relevance and novelty; the product is ours).
    """
    known, chosen, next_place = set[str](), list[np.ndarray](), 0
    counts_of: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}  # bins, their counts, number of all bins
    places, similarities = [], []
    bounds: list[tuple[float, int, int, float]] = []  # -weight, place, number of compared, similarity
    while len(places) < number:
        while next_place < len(weights) and (not bounds or weights[next_place] > -bounds[0][0]):
            name, counts = describe(next_place)
            if name not in known:
                known.add(name)
                bins = np.flatnonzero(counts)
                counts_of[next_place] = bins, counts[bins].astype(np.int64), len(counts)
                heapq.heappush(bounds, (-float(weights[next_place]), next_place, 0, 0.0))
            next_place += 1
        if not bounds:
            break
        _, place, compared, similarity = heapq.heappop(bounds)
        bins, counts, size = counts_of[place]
        if compared == len(chosen):
            places.append(place)
            similarities.append(similarity)
            dense = np.zeros(size, np.int64)
            dense[bins] = counts
            chosen.append(dense)
            continue
        similarity = max([similarity, *(_similarity(bins, counts, dense) for dense in chosen[compared:])])
        heapq.heappush(bounds, (-float(weights[place]) * (1.0 - similarity), place, len(chosen), similarity))
    return np.array(places, np.int64), np.array(similarities)


def _similarity(bins: np.ndarray, counts: np.ndarray, dense: np.ndarray) -> float:
    """Return the Tanimoto similarity of the counts in some bins to the counts of all bins."""
    shared = int(np.minimum(dense[bins], counts).sum())
    union = int(dense.sum()) + int(counts.sum()) - shared
    return shared / union if union else 1.0
