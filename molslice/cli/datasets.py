"""The data set for a trained model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from molslice.config import DataConfig
    from molslice.data import Dataset

__all__ = ["find_dataset"]


def find_dataset(
    data: "DataConfig", root: str | None = None, overrides: Sequence[tuple[str, str]] = ()
) -> "Dataset":
    """Build the data set of a trained model.

    Args:
        data: The data of the model.
        root: Another folder of the data, for data sets with an option `root`.
        overrides: `data.` settings that replace those of the run. A new `data.name` drops the run's options.

    Raises:
        MolsliceError: A setting is not a `data.` setting, or the data cannot be loaded.
    """
    from molslice.config import override_data
    from molslice.data import build_dataset
    from molslice.types import MolsliceError

    settings = [*overrides, *([("data.root", root)] if root is not None else [])]
    for key, _ in settings:
        if not key.startswith("data."):
            raise MolsliceError(f"--{key}: only settings of the data (--data.<option>) can be changed here")
    changed = override_data(data, settings)
    return build_dataset(changed.name, dict(changed.options))
