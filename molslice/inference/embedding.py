"""The learned fingerprints of a trained encoder."""

from typing import TYPE_CHECKING

from molslice.data.molecules.store import MoleculeStore
from molslice.inference.base import Predictor
from molslice.inference.domain import TrainingDomain
from molslice.inference.options import PLAIN, PredictionOptions
from molslice.inference.predictions import Predictions
from molslice.inference.smiles_reader import SmilesReader
from molslice.tasks.targets import TargetInfo
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration

if TYPE_CHECKING:
    from molslice.inference.load import NetworkPredictor

COLUMN = "embedding"


class Embedder(Predictor):
    """Computes the embedding of each molecule, in place of a prediction.

    The embedding of an encoder of width D has 2 D numbers without unit: the last state of the graph token,
    then the mean of the last states of the atoms. Both are taken after the final norm and before the head.
    They depend on the molecule only, up to rounding.

    Raises:
        MolsliceError: The model has no embedding.
    """

    label = "embed"

    def __init__(self, predictor: "NetworkPredictor") -> None:
        self.predictor, self.name = predictor, predictor.name
        self.device, self.chunk_rows = predictor.device, predictor.chunk_rows
        self.fragment, self.wildcards = predictor.fragment, predictor.wildcards
        size = getattr(predictor.model, "embedding_dim", None)
        if size is None:
            raise MolsliceError(
                f"{predictor.name} is a {predictor.config.model.name}, which has no embedding; a graphormer "
                "has one"
            )
        names = tuple(f"{COLUMN}_{place}" for place in range(size))
        self.targets = TargetInfo(names, ("",) * size, "regression", (0.0,) * size, (1.0,) * size)

    def checksum(self) -> str:
        """Return the checksum of the model, marked as one of embeddings."""
        return f"embedding of {self.predictor.checksum()}"

    def reader(self, workers: int = 0) -> SmilesReader:
        """Return the reader of the model without descriptors, which an embedding does not depend on."""
        return self.predictor.reader(workers, with_descriptors=False)

    def find_calibration(self) -> Calibration:
        """Raise an error, because embeddings have no measured values."""
        raise MolsliceError(f"{self.name} has no intervals: it does not predict measured values")

    def _read_domain(self) -> TrainingDomain:
        raise MolsliceError(f"{self.name} has no training molecules to compare with")

    def predict_molecules(self, molecules: MoleculeStore, options: PredictionOptions = PLAIN) -> Predictions:  # noqa: ARG002
        """Compute the embeddings of the molecules of a store, float32 [rows, 2 D]; NaN in failed rows."""
        return self.predictor.embed_store(molecules)
