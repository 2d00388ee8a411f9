import csv
import io
import json

import pytest

from molslice.studies import STUDIES, run_study
from molslice.studies.base import Request
from tests.data.molecules.builders import gap_folder
from tests.inference.models import checkpoint_folder, embedded_smiles


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Write a data set of 40 embedded molecules."""
    splits = {"train": list(range(24)), "valid": list(range(24, 30)), "test": list(range(30, 40))}
    return str(gap_folder(tmp_path_factory.mktemp("data") / "gap", embedded_smiles(40), splits=splits))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Write untrained models, one per attention."""
    folder = tmp_path_factory.mktemp("runs")
    names = ("softmax", "slice_sort", "flow", "singular", "mean")
    return {name: checkpoint_folder(folder / name, attention={"name": name}) for name in names}


@pytest.fixture
def measure(tmp_path):
    """Run a study without its figure, and return the rows of its CSV and its notes."""

    def find(name, seed=0, runs=(), tell=lambda line: None, **options):
        request = Request(tmp_path, seed, tuple(runs), True, tell)
        findings = STUDIES.build(name, options=options).measure(request)
        return list(csv.DictReader(io.StringIO(findings.to_csv()))), findings.notes

    return find


@pytest.fixture
def study(tmp_path):
    """Run a study, and return its result, the rows of its CSV and its JSON."""

    def carry_out(name, out=tmp_path, **arguments):
        result = run_study(name, out, quiet=True, **arguments)
        with result.files["csv"].open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == result.rows
        assert result.files["png"].read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in result.files["svg"].read_bytes()
        return result, rows, json.loads(result.files["json"].read_text())

    return carry_out
