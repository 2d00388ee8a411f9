"""One measurement of the data path, as it is sent to the worker."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from molslice.bench.job import JsonJob

__all__ = ["DataJob", "Stage"]

Stage = Literal["featurize", "read", "batches"]


@dataclass(frozen=True, slots=True)
class DataJob(JsonJob):
    """A stage of the data path in one round.

    Attributes:
        program: The module that measures the job.
        stage: `featurize` converts SMILES to arrays, `read` copies the molecules of batches from a store, and
            `batches` collates them to padded batches.
        seconds: Time to measure, in seconds.
        seed: Seed of the order of the rows.
        smiles: File with one SMILES a line, for `featurize`.
        workers: Number of processes, for `featurize`; 0 converts in the process itself.
        store: Folder of the molecules, for the other stages.
        batch_size: Maximum number of molecules of a batch.
        token_budget: Maximum number of padded tokens of a batch.
    """

    program: ClassVar[str] = "molslice.bench.data.worker"

    stage: Stage
    seconds: float
    seed: int
    smiles: str = ""
    workers: int = 0
    store: str = ""
    batch_size: int = 0
    token_budget: int = 0

    @property
    def device(self) -> str:
        """The device, a CPU."""
        return "cpu"

    @property
    def threads(self) -> int:
        """Number of threads of each process."""
        return 1

    @property
    def budget_bytes(self) -> int | None:
        """Memory that the job may use; None, because there is no limit."""
        return None
