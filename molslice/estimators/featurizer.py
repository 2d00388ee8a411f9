"""A transformer of molecules to learned fingerprints."""

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from molslice.estimators.loaded import LOADED, count_workers
from molslice.inference.inputs import Molecules
from molslice.inference.load import NetworkPredictor, load_encoder
from molslice.pretrained import DEFAULT_ENCODER


@dataclass(eq=False, repr=False)
class MolsliceFeaturizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer of molecules to the learned fingerprints of a trained encoder, for any other estimator.

    Args:
        model: A run folder, or the name of a shipped model.
        fragment: What happens to a mixture: `keep`, `largest` or `refuse`; None does what the model does.
        wildcards: What happens to a wildcard: `refuse` or `keep`; None does what the model does.
        n_jobs: Processes that read molecules. None is 1, -1 is all cores.
    """

    model: Path | str = DEFAULT_ENCODER
    _: KW_ONLY
    fragment: str | None = None
    wildcards: str | None = None
    n_jobs: int | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: Molecules, y: Any = None) -> Self:  # noqa: ANN401, ARG002, N803
        """Load the model; nothing is learned.

        Raises:
            MolsliceError: The model does not exist, or has no embedding.
        """
        self._encoder()
        return self

    def transform(self, X: Molecules) -> np.ndarray:  # noqa: N803
        """Compute the fingerprints.

        Returns:
            float32 [n, 2 D]; NaN for a molecule that cannot be read. See `NetworkPredictor.embed`.
        """
        return self._encoder().embed(X, workers=count_workers(self.n_jobs))

    @property
    def _n_features_out(self) -> int:
        return getattr(self._encoder().model, "embedding_dim")  # noqa: B009 - not all models have it

    def _encoder(self) -> NetworkPredictor:
        wanted = os.fspath(self.model), self.fragment, self.wildcards
        if self not in LOADED or LOADED[self][1] != wanted:
            encoder = load_encoder(self.model, fragment=self.fragment, wildcards=self.wildcards)
            LOADED[self] = encoder, wanted
        return LOADED[self][0]
