"""What every data set offers, and what those of molecules offer besides."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from molslice.data.batching import collate
from molslice.data.store import MoleculeStore
from molslice.types import Batch, DataSpec, MoleculeBatch, MolsliceError

Kind = Literal["regression", "classification"]


class Dataset(ABC):
    """Rows with targets, divided into splits.

    A subclass takes its options keyword-only and has set all attributes when it is constructed.

    Attributes:
        splits: rows by the name of the split, int64; "train", "valid", "test" and others.
        target_names: names of the targets.
        target_units: their units, empty where there is none.
        kind: what the targets are, a kind of `tasks.TargetInfo`; those of a classification are 0 and 1.
        class_names: of a multiclass target, whose values count from 0; empty for the others.
        source: the file or folder that the rows come from, for messages.
        noun: what a row is, in the plural: molecules, texts, images.
        how_to_get: a sentence on where the files are got by hand; empty where they are one's own.
    """

    splits: dict[str, np.ndarray]
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    kind: str
    class_names: tuple[str, ...] = ()
    source: str
    noun: str = "rows"
    how_to_get: ClassVar[str] = ""

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    @abstractmethod
    def spec(self) -> DataSpec:
        """What a model has to know of the data."""

    @property
    @abstractmethod
    def num_tokens(self) -> np.ndarray:
        """Tokens that each row takes in the encoder, int [rows]; zero where a row could not be read."""

    @property
    @abstractmethod
    def targets(self) -> np.ndarray:
        """Targets of each row, float32 [rows, T], in the data set's own unit, NaN where missing."""

    @property
    def errors(self) -> Mapping[int, str]:
        """Why a row could not be read, by row."""
        return {}

    @property
    def failures(self) -> str:
        """How many rows could not be read, and the reason of the first, as a sentence; empty for none."""
        if not self.errors:
            return ""
        row, reason = next(iter(self.errors.items()))
        count = f"{len(self.errors)} of {len(self)} {self.noun} cannot be read"
        return f"{count}; they stay, empty. Row {row}: {reason}"

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What besides the spec is written beside a model's weights, of values that JSON knows.

        For instance the words of a vocabulary, without which a model that generates text gives numbers.
        """
        return {}

    @abstractmethod
    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> Batch:
        """The rows as one padded batch, in this order.

        `draw` seeds what is random in a training batch (crops, flips, masks); without it a batch is a
        function of its rows alone.
        """

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:  # noqa: ARG003
        """The spec as far as the options tell it without reading the data; None where they do not."""
        return None

    @classmethod
    def advice(cls) -> str:
        """How to get the data, for messages that they are missing: what fetches them, and by hand."""
        fetch = "`molslice prepare --config FILE --download` fetches it." if hasattr(cls, "download") else ""
        return " ".join(filter(None, (fetch, cls.how_to_get)))

    def count_targets(self, rows: np.ndarray) -> int:
        """Targets of the rows that are not missing: what the loss of a batch is divided by."""
        return int(np.count_nonzero(~np.isnan(self.targets[rows])))

    def rows(self, split: str) -> np.ndarray:
        """The rows of a split, int64, also those that failed.

        Raises:
            MolsliceError: no such split; the message names those there are.
        """
        if split not in self.splits:
            raise MolsliceError(f"{self.source} has no split {split!r}; choices: {', '.join(self.splits)}")
        return self.splits[split]

    def labeled_rows(self, split: str) -> np.ndarray:
        """The readable rows of a split with at least one target: what one can train on and score.

        Raises:
            MolsliceError: no such split, or none of its rows is such.
        """
        rows = self.rows(split)
        known = np.isfinite(self.targets[rows]).any(axis=1)
        rows = rows[(self.num_tokens[rows] > 0) & known]
        if not len(rows):
            noun = self.noun.removesuffix("s")
            raise MolsliceError(f"the split {split!r} of {self.source} has no {noun} with a known target")
        return rows


class MoleculeDataset(Dataset):
    """Molecules with targets.

    Attributes:
        store: molecules and targets by row; every row of the source is there, also those that failed.
    """

    store: MoleculeStore
    noun = "molecules"

    @property
    def spec(self) -> DataSpec:
        """As many outputs as targets."""
        return DataSpec(len(self.target_names))

    @property
    def num_tokens(self) -> np.ndarray:
        """Atoms, and the graph token."""
        atoms = np.asarray(self.store.num_atoms)
        return np.where(atoms > 0, atoms + 1, 0)

    @property
    def targets(self) -> np.ndarray:
        """The store's."""
        return np.asarray(self.store.targets)

    @property
    def errors(self) -> Mapping[int, str]:
        """The store's."""
        return self.store.errors

    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> MoleculeBatch:  # noqa: ARG002
        """The molecules as one padded batch; nothing in it is random."""
        return collate(self.store, rows)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """As many outputs as `target_columns`, or one."""
        columns = options.get("target_columns", "")
        return DataSpec(1 if isinstance(columns, str) else max(1, len(columns)))

    @abstractmethod
    def smiles(self) -> list[str]:
        """The SMILES of every row as the source has them, read from there again."""

    def _refuse_if_all_failed(self) -> None:
        if not self.store.num_atoms.any():
            row, reason = next(iter(self.store.errors.items()))
            raise MolsliceError(
                f"none of the {len(self.store)} SMILES of {self.source} can be read; row {row}: {reason}"
            )
