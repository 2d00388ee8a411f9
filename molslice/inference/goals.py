"""Goals such as `logS > -4`, and the probability that a molecule meets them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from molslice.data.molecules.side_columns import split_unit
from molslice.inference.predictions import Predictions
from molslice.number_text import read_number
from molslice.registry import near_names
from molslice.tasks.target_types import TargetType, column_slices
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration

_RELATION = r"<=|>=|==|<|>|=|≤|≥"
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "≤": "≥", "≥": "≤"}
EXAMPLES = "'logS > -4', '-1 < logD < 3' or 'toxic = 0'"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a target of a molecule should be: a number between two limits, or a class.

    Attributes:
        text: The goal as it was given.
        target: Name of the target.
        index: Number of the target.
        column: Its first column of a prediction.
        lower: The lower limit of a number in the unit of the target; negative infinity without one.
        upper: The upper limit of a number; infinity without one.
        label: The index of the class; None for a number.
        class_name: The name of the class; None for a number.
        has_several: Whether the target has more than two classes.
    """

    text: str
    target: str
    index: int
    column: int
    lower: float = -math.inf
    upper: float = math.inf
    label: int | None = None
    class_name: str | None = None
    has_several: bool = False

    @property
    def sign(self) -> int:
        """1 if larger numbers are better, -1 if smaller ones are, 0 for a range or a class."""
        if self.label is not None:
            return 0
        return int(math.isinf(self.upper)) - int(math.isinf(self.lower))

    def probabilities(self, predictions: Predictions, calibration: Calibration) -> np.ndarray:
        """Compute the probability that each of n molecules meets the goal, float64 [n], NaN in failed rows.

        Of a number, it comes from the distribution whose quantiles the intervals are, and of two classes it
        is the calibrated probability.

        Args:
            predictions: The predictions, with intervals and `members`.
            calibration: The held-out rows of the model.
        """
        if self.label is None:
            models, difficulty = models_of(predictions)
            values = calibration.probabilities_between(
                self.target, models, difficulty, self.lower, self.upper
            )
        elif self.has_several:
            values = predictions.values[:, self.column + self.label].astype(np.float64)
        else:
            assert predictions.calibrated is not None
            values = predictions.calibrated[:, self.column].astype(np.float64)
            values = values if self.label == 1 else 1.0 - values
        failed = np.array([reason is not None for reason in predictions.errors], bool)
        return np.where(failed, np.nan, values)


def models_of(predictions: Predictions) -> tuple[np.ndarray, np.ndarray | None]:
    """Return predictions and difficulty by the model of each fold, float64 [K, n, C] each.

    Failed rows have numbers without meaning.
    """
    members = predictions.members
    assert members is not None
    difficulty = None if members.difficulty is None else members.difficulty.transpose(1, 0, 2)
    failed = np.array([reason is not None for reason in predictions.errors], bool)
    # a logarithm and a quotient of these rows should exist
    models = np.where(failed[:, None], 1.0, members.models.transpose(1, 0, 2))
    return models, None if difficulty is None else np.where(failed[:, None], 1.0, difficulty)


def read_goals(
    texts: Sequence[str], names: Sequence[str], units: Sequence[str], types: Sequence[TargetType]
) -> tuple[Goal, ...]:
    """Read goals about the targets of a model.

    A goal is `TARGET > NUMBER` or `NUMBER < TARGET`, also with `<`, `>=`, `<=`, `≥` and `≤`, which mean the
    same with and without the number itself; `NUMBER < TARGET < NUMBER`; or `TARGET = CLASS`. The unit of the
    target may follow a number.

    Args:
        texts: The goals, one for each target at most.
        names: Names of the targets.
        units: Their units; empty for a target without a unit.
        types: What each target is.

    Raises:
        MolsliceError: A goal cannot be read, names no target, does not fit its target, or a target has two.
    """
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, Sequence) or not texts:
        raise MolsliceError(f"no goal is given: give one such as {EXAMPLES}")
    goals = [_read(text, names, units, types) for text in texts]
    for place, goal in enumerate(goals):
        if goal.target in [earlier.target for earlier in goals[:place]]:
            hint = "" if goal.label is not None else f", such as '-1 < {goal.target} < 3'"
            raise MolsliceError(f"{goal.target!r} has two goals: give one{hint}")
    return tuple(goals)


def _read(text: str, names: Sequence[str], units: Sequence[str], types: Sequence[TargetType]) -> Goal:
    if not isinstance(text, str):
        raise MolsliceError(f"invalid goal {text!r}: give a text such as {EXAMPLES}")
    first, before, name, after, last = _split(text, names)
    plain, unit = split_unit(name)
    if name not in names and (plain, unit) in zip(names, units, strict=True):
        name = plain  # as the column of the target
    if name not in names:
        raise MolsliceError(
            f"invalid goal {text!r}: the model has no target {name!r}; {near_names(name, names)}"
        )
    index = [*names].index(name)
    target_type, columns = types[index], [*column_slices(types)][index]
    start = {"text": text, "target": name, "index": index, "column": columns.start}
    is_equal = after in ("=", "==")
    if target_type.has_classes:
        if before or not is_equal:
            raise MolsliceError(
                f"invalid goal {text!r}: {name} has classes; give one, as in '{name} = CLASS'"
            )
        if last not in target_type.class_names:
            listed = near_names(last, target_type.class_names)
            raise MolsliceError(f"invalid goal {text!r}: {name} has no class {last!r}; {listed}")
        label = target_type.class_names.index(last)
        return Goal(**start, label=label, class_name=last, has_several=target_type.several is not None)
    if is_equal or before in ("=", "=="):
        raise MolsliceError(f"invalid goal {text!r}: {name} is a number; give a limit, as in '{name} > 1'")
    limits = [(after in (">", ">=", "≥"), _number(text, last, name, units[index]))]
    if before:
        limits.append((before in ("<", "<=", "≤"), _number(text, first, name, units[index])))
    bounds = {is_lower: number for is_lower, number in limits}
    lower, upper = bounds.get(True, -math.inf), bounds.get(False, math.inf)
    if len(bounds) < len(limits) or not lower < upper:
        raise MolsliceError(
            f"invalid goal {text!r}: no number is in this range; give one as in '1 < {name} < 2'"
        )
    return Goal(**start, lower=lower, upper=upper)


def _split(text: str, names: Sequence[str]) -> tuple[str, str, str, str, str]:
    """Return the number and the relation before the name, the name, and the relation and what follows.

    A number before the name alone, as in `-2 < logS`, is returned as what follows.
    """
    for name in sorted(names, key=len, reverse=True):  # a name may have the characters of a relation
        pattern = rf"(?:(.*?)({_RELATION}))?\s*{re.escape(name.strip())}\s*({_RELATION})(.*)"
        if match := re.fullmatch(pattern, text.strip()):
            first, before, after, last = (group or "" for group in match.groups())
            return first.strip(), before, name, after, last.strip()
    for name in sorted(names, key=len, reverse=True):
        pattern = rf"(.*?)({'|'.join(_TURNED)})\s*{re.escape(name.strip())}"
        if match := re.fullmatch(pattern, text.strip()):
            return "", "", name, _TURNED[match[2]], match[1].strip()
    match = re.fullmatch(rf"(?:(.*?)({_RELATION}))?(.*?)({_RELATION})(.*)", text.strip())
    if match is None:
        raise MolsliceError(f"invalid goal {text!r}: give a target and a limit or class, such as {EXAMPLES}")
    first, before, name, after, last = (group or "" for group in match.groups())
    return first.strip(), before, name.strip(), after, last.strip()


def _number(text: str, cell: str, name: str, unit: str) -> float:
    """Read a limit, which its unit may follow."""
    given = cell.removesuffix(unit).strip() if unit else cell
    value = read_number(given.replace("−", "-"))  # the minus sign of texts
    if math.isnan(value):
        described = f"a number in {unit}" if unit else "a number"
        raise MolsliceError(f"invalid goal {text!r}: the limit of {name} is {described}, got {cell!r}")
    return value
