"""The contract of every data set."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from molslice.types import Batch, DataSpec, MolsliceError

Kind = Literal["regression", "classification"]


@dataclass(frozen=True, slots=True)
class RowNumbers(Batch):
    """The rows of a batch, which is gathered on the device that computes it.

    Attributes:
        rows: Row numbers of the data set [B], -1 for an empty row that fills up the batch.
        width: Number of tokens N that the rows are padded to.
    """

    rows: Int[Tensor, " B"]
    width: int

    @classmethod
    def filled(cls, rows: np.ndarray, size: int, width: int) -> Self:
        """Fill up row numbers to a number of rows with empty ones."""
        return cls(torch.from_numpy(np.pad(rows, (0, size - len(rows)), constant_values=-1)), width)

    def __len__(self) -> int:
        return self.rows.shape[0]


class DeviceRows(Protocol):
    """The rows of a data set in the memory of one device, which gathers batches itself."""

    device: torch.device

    def gather(self, numbers: RowNumbers) -> Batch:
        """Collate rows into a batch of fixed shape. `numbers` is on the device, and nothing is read back.

        Empty rows have no target.
        """
        ...


class Dataset(ABC):
    """Rows with targets, divided into splits.

    The constructor of a subclass takes keyword-only options and sets all attributes. It raises a
    `MolsliceError` that names an invalid option, or the file and the place of what is missing or damaged. A
    class method `download(options)`, if there is one, writes the files into the folder `root`.

    Attributes:
        splits: Row numbers of each split, int64; `train`, `valid`, `test` and others.
        target_names: Names of the targets.
        target_units: Unit of each target; empty for a target without a unit.
        kind: Kind of the targets; see `tasks.TargetInfo`. Binary targets are 0 and 1.
        class_names: Names of the classes of a multiclass target, numbered from 0; empty for other kinds.
        source: File or folder that the rows come from, for messages.
        row_name: Name of a row in the plural, such as `molecules`.
        has_fixed_shapes: Whether `rows_on` collates batches of fixed shapes.
        instructions: How to get the files by hand, as a sentence; empty for a user's own files.
        notices: What a training should say about the rows before it starts, one sentence each.
    """

    splits: dict[str, np.ndarray]
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    kind: str
    class_names: tuple[str, ...] = ()
    source: str
    row_name: str = "rows"
    has_fixed_shapes: ClassVar[bool] = False
    instructions: ClassVar[str] = ""
    notices: Sequence[str] = ()
    _spec: DataSpec
    _errors: Mapping[int, str] = MappingProxyType({})

    def __len__(self) -> int:
        return len(self.num_tokens)

    @property
    def spec(self) -> DataSpec:
        """Properties of the data that determine the model's inputs and outputs."""
        return self._spec

    @property
    @abstractmethod
    def num_tokens(self) -> np.ndarray:
        """Number of tokens of each row in the encoder, int [rows]; 0 for an unreadable row."""

    @property
    @abstractmethod
    def targets(self) -> np.ndarray:
        """Targets of each row, float32 [rows, T], in the unit of the data set; NaN where missing."""

    @property
    def errors(self) -> Mapping[int, str]:
        """Reasons why rows are unreadable, by row number."""
        return self._errors

    def where(self, row: int) -> str:
        """Describe the location of a row, an index from 0, for messages."""
        return f"row {row + 1}"

    @property
    def failures(self) -> str:
        """Message with the number of unreadable rows and the first reason; empty without errors."""
        if not self.errors:
            return ""
        row, reason = next(iter(self.errors.items()))
        count = f"{len(self.errors)} of {len(self)} {self.row_name} cannot be read"
        return f"{count}; they are not used. The first, {self.where(row)}: {reason}"

    @property
    def repeats(self) -> str:
        """Message with the number of held-out rows whose input is also a training row; empty without them.

        Only molecules are compared.
        """
        return ""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """JSON values to save with the model besides the spec, such as the words of a vocabulary."""
        return {}

    @property
    def stated_targets(self) -> Mapping[str, Any] | None:
        """Description of the targets with their mean and standard deviation, if the source states them.

        It has the keys of `tasks.TargetInfo`. None if they are measured in the training rows.
        """
        return None

    def content_checksums(self, checksum: Callable[[np.ndarray], str]) -> dict[str, str]:
        """Compute the checksum of each array with contents of the rows, by default of all attributes."""
        return {name: checksum(value) for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    @abstractmethod
    def collate(self, rows: np.ndarray | Sequence[int], draw: int | None = None) -> Batch:
        """Collate rows into one padded batch, in the order given.

        Args:
            rows: Row numbers [B].
            draw: Seed of the random augmentation of a training batch (crops, flips, masks). If None, the
                batch depends on the rows only.
        """

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:  # noqa: ARG003
        """Derive the spec from the options without reading the data; None if that is not possible."""
        return None

    @classmethod
    def advice(cls) -> str:
        """Describe how to get the data, by command or by hand, for messages about missing files."""
        fetch = "`molslice prepare --config FILE --download` fetches it." if hasattr(cls, "download") else ""
        return " ".join(filter(None, (fetch, cls.instructions)))

    def rows_on(self, device: torch.device) -> DeviceRows | None:  # noqa: ARG002
        """Return the rows in the memory of a device, for batches of fixed shapes.

        None if `has_fixed_shapes` is false, or the device has too little memory.
        """
        return None

    def count_targets(self, rows: np.ndarray) -> int:
        """Count the known targets of rows, the divisor of the loss of a batch."""
        return int(np.count_nonzero(~np.isnan(self.targets[rows])))

    def rows(self, split: str) -> np.ndarray:
        """Return the row numbers of a split, int64 [n], including unreadable rows.

        Raises:
            MolsliceError: The split is unknown. The message lists the splits.
        """
        if split not in self.splits:
            raise MolsliceError(f"{self.source} has no split {split!r}; choices: {', '.join(self.splits)}")
        return self.splits[split]

    def labeled_rows(self, split: str) -> np.ndarray:
        """Return the row numbers of the readable rows of a split with a known target, int64 [n].

        Raises:
            MolsliceError: The split is unknown, or none of its rows is readable and has a target.
        """
        rows = self._usable_rows(split)
        if not len(rows):
            name = self.row_name.removesuffix("s")
            raise MolsliceError(f"the split {split!r} of {self.source} has no {name} with a known target")
        return rows

    def _usable_rows(self, split: str) -> np.ndarray:
        """Return the readable rows of a split with a known target, int64 [n]; it may be empty."""
        rows = self.rows(split)
        known = np.isfinite(self.targets[rows]).any(axis=1)
        return rows[(self.num_tokens[rows] > 0) & known]
