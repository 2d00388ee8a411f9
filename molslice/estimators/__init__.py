"""Estimators with scikit-learn's interface that take molecules: a regressor, a classifier, a featurizer.

X is what a model predicts from: SMILES or RDKit molecules in a list, an array, a Series or a DataFrame; see
`molslice.inference.inputs`. A row whose molecule cannot be read is left out of a fit and NaN in the results.

Modules:
    fitted: The regressor and the classifier, which are the model of `molslice fit`.
    featurizer: Learned fingerprints.
    loaded: The loaded models of estimators.

Imports: `training` and `inference`, and the packages below them.
"""

from molslice.estimators.featurizer import MolsliceFeaturizer
from molslice.estimators.fitted import MolsliceClassifier, MolsliceRegressor

__all__ = ["MolsliceClassifier", "MolsliceFeaturizer", "MolsliceRegressor"]
