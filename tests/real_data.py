"""Where real molecules are: the embedded data, and larger sets beside the repository where there are any."""

import gzip
import itertools
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared" / "data"
GAP_XTB = REPOSITORY / "data" / "gap_xtb"


def shared(*parts):
    """A file of the data beside the repository; the test is skipped where it is not."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {path.name} beside the repository")
    return path


def embedded_smiles():
    """The SMILES of the embedded data, in its order."""
    with gzip.open(GAP_XTB / "raw" / "data.csv.gz", "rt") as file:
        return [line.split(",")[1] for line in itertools.islice(file, 1, None)]


def odd_smiles(name, step=1):
    """Every `step`-th SMILES of one of the files of odd molecules."""
    with gzip.open(shared("smiles_odd", name), "rt") as file:
        return [line.split()[0] for line in itertools.islice(file, 0, None, step) if line.split()]
