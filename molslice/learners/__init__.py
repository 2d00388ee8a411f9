"""Learners: models of one target on fixed features. One file is one learner.

A learner sees a molecule as descriptors, fingerprint counts, and optionally the embedding of a trained
encoder (`features.py`), and is fitted to values, limits and weights (`labels.py`). `base.py` is the
interface. `similarities.py`, `truncated.py` and `trees.py` are the numerical parts, and `stacking.py`
weighs the learners of a target against each other. `molslice.fitting.fit` trains them and
`molslice.inference.fitted` predicts with them.

Imports: torch, numpy, scipy, scikit-learn (for fitting only), `molslice.files`, `molslice.registry` and
`molslice.types`. A fitted learner is a set of arrays, so that a saved model neither contains code nor depends
on the version of scikit-learn.

To add a learner, write `my_learner.py` with a class `MyLearner(Learner)`.
"""

from molslice.learners.base import Learner
from molslice.learners.features import Features
from molslice.learners.labels import Labels
from molslice.registry import Registry

__all__ = ["LEARNERS", "Features", "Labels", "Learner"]

LEARNERS = Registry("molslice.learners", Learner, "learner")
