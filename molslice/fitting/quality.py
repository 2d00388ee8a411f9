"""How much time a fit spends: which learners, how many divisions into folds, and whether to fine-tune."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from molslice.learners import LEARNERS, Features

EMBEDDING = "embedding"  # the setting whether a learner takes the embedding


@dataclass(frozen=True, slots=True)
class Quality:
    """What a fit computes.

    Attributes:
        learners: Names of the learners, in order.
        assignments: Number of divisions of the rows into folds.
        lean: Learners that do not take the embedding. With it, boosting takes more than twice the time, and a
            stack gains nothing if the other learners have it.
        fine_tunes: Whether the encoder is fine-tuned.
    """

    learners: tuple[str, ...]
    assignments: int
    lean: tuple[str, ...]
    fine_tunes: bool

    def features_of(self, learner: str, features: Features, settings: Mapping[str, Any]) -> Features:
        """Return the features that a learner takes with some settings."""
        return features if settings.get(EMBEDDING, learner not in self.lean) else features.without_embedding()

    def choices(self, learner: str, features: Features, *, classes: bool) -> dict[str, Sequence[Any]]:
        """Return the values of the settings of a learner that are tried, the default first."""
        choices = dict(LEARNERS.find(learner).choices(classes=classes))
        if features.embedding is not None:
            choices[EMBEDDING] = (learner not in self.lean, learner in self.lean)
        return choices


QUALITIES: Mapping[str, Quality] = MappingProxyType(
    {
        "fast": Quality(("extra_trees", "gaussian_process"), 1, (), fine_tunes=False),
        "good": Quality(tuple(LEARNERS.names()), 2, ("boosting",), fine_tunes=False),
        "best": Quality(tuple(LEARNERS.names()), 2, (), fine_tunes=True),
    }
)
