"""Checksums of the contents of a data set, to detect changes between the parts of a resumed run."""

import hashlib

from molslice.data.base import Dataset
from molslice.files.cache import array_checksum


def data_identity(dataset: Dataset) -> dict[str, str]:
    """Compute the identity of a data set.

    Returns:
        The number of rows as `rows`, and the checksums `targets`, `inputs` and `split NAME` for each split.
    """
    inputs = hashlib.sha256()
    for name, checksum in sorted(dataset.content_checksums(array_checksum).items()):
        inputs.update(f"{name} {checksum}\n".encode())
    return {
        "rows": str(len(dataset)),
        "targets": array_checksum(dataset.targets),
        "inputs": inputs.hexdigest(),
        **division_identity(dataset),
    }


def division_identity(dataset: Dataset) -> dict[str, str]:
    """Compute the part of `data_identity` that tells which rows are in which split, without reading them."""
    splits = {f"split {name}": array_checksum(rows) for name, rows in sorted(dataset.splits.items())}
    return {"rows": str(len(dataset)), **splits}


def changed_parts(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """Describe the differences between two identities of `data_identity`; empty if they are equal."""
    changed = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return [
        f"the number of rows ({now.get(name)}, was {then.get(name)})" if name == "rows" else f"the {name}"
        for name in changed
    ]
