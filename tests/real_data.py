"""Real molecules: the embedded data, and larger data sets outside the repository if they are available."""

import functools
import gzip
import itertools
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared" / "data"
GAP_XTB = REPOSITORY / "data" / "gap_xtb"
SAVED_MODEL = REPOSITORY / "tests" / "saved_models" / "gap_xtb_4x64"  # small, trained on these gaps


def shared(*parts):
    """Return a data file outside the repository, or skip the test if it is missing."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {path.name} beside the repository")
    return path


def embedded_smiles():
    """Return the SMILES of the embedded data in order."""
    return list(_embedded_smiles())


@functools.cache
def _embedded_smiles():
    with gzip.open(GAP_XTB / "raw" / "data.csv.gz", "rt") as file:
        return tuple(line.split(",")[1] for line in itertools.islice(file, 1, None))


def odd_smiles(name, step=1):
    """Return every `step`-th SMILES of a file of unusual molecules."""
    with gzip.open(shared("smiles_odd", name), "rt") as file:
        return [line.split()[0] for line in itertools.islice(file, 0, None, step) if line.split()]
