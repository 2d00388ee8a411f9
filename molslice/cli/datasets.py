"""The data set for a trained model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from molslice.config import RunConfig
    from molslice.data import Dataset

__all__ = ["find_dataset"]


def find_dataset(
    config: "RunConfig", root: str | None = None, overrides: Sequence[tuple[str, str]] = ()
) -> "Dataset":
    """Build the data set of a run's configuration.

    Args:
        config: The configuration of the run.
        root: Another folder of the data, for data sets with an option `root`.
        overrides: `data.` settings that replace those of the run. A new `data.name` drops the run's options.

    Raises:
        MolsliceError: A setting is not a `data.` setting, or the data cannot be loaded.
    """
    from molslice.config import override_config
    from molslice.data import build_dataset
    from molslice.types import MolsliceError

    settings = [*overrides, *([("data.root", root)] if root is not None else [])]
    for key, _ in settings:
        if not key.startswith("data."):
            raise MolsliceError(f"--{key}: only settings of the data (--data.<option>) can be changed here")
    data = override_config(config, settings).data
    return build_dataset(data.name, dict(data.options))
