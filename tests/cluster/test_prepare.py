"""`molslice prepare --engine ray`: the same store as without it, also after a kill and an interruption."""

import itertools

import pytest

from molslice.cli import main
from molslice.data.molecules import prepare, prepare_files, tables
from molslice.data.molecules.prepare import Featurizing
from molslice.data.molecules.prepare_files import convert_on_cluster
from molslice.types import MolsliceError
from tests.cluster.work import killed_once
from tests.inference.models import embedded_smiles

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Write three files with columns in different orders; chunks have 7 rows."""
    monkeypatch.setattr(prepare, "CHUNK_ROWS", 7)
    monkeypatch.setattr(prepare_files, "SAVE_SECONDS", 0.0)
    smiles = embedded_smiles(60)
    smiles[11] = "XX"
    files = []
    for part in range(3):
        rows = [(text, "x", str(row)) for row, text in enumerate(smiles)][20 * part : 20 * part + 20]
        lines = [",".join(row if part < 2 else row[::-1]) for row in [("smiles", "note", "id"), *rows]]
        files.append(tmp_path / f"part{part}.csv")
        files[-1].write_text("\n".join(lines) + "\n")
    return files


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_killed_worker_changes_nothing(parts, tmp_path, monkeypatch, capsys):
    command = ["prepare", *map(str, parts), "--target", "id", "--quiet", "--out"]
    assert main([*command, str(tmp_path / "local")]) == 0
    whole = tables.ray_map

    def killed(items, work, **options):
        return whole(items, killed_once(work, tmp_path / "killed", 2), **options)

    monkeypatch.setattr(tables, "ray_map", killed)
    assert main([*command, str(tmp_path / "ray"), "--engine", "ray", "--workers", "2"]) == 0
    assert (tmp_path / "killed").exists()
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    reports = capsys.readouterr().out.split("rows  ")
    assert [report.splitlines()[0].strip() for report in reports[1:]] == ["60", "60"]


def test_an_interrupted_preparation_continues_in_the_middle_of_a_file(parts, tmp_path):
    def run(out, engine):
        how = Featurizing(workers=1)
        return prepare_files.prepare_files(parts, out, targets=["id"], how=how, engine=engine, progress=False)

    asked = []

    def stopped(rows, how, reached):
        asked.append(reached)
        for place, each in enumerate(itertools.chain(convert_on_cluster(rows, how, reached))):
            if place == 5 and reached is None:
                raise MolsliceError("stopped")
            yield each

    with pytest.raises(MolsliceError, match="^stopped; 34 finished rows are kept"):
        run(tmp_path / "ray", stopped)
    found = run(tmp_path / "ray", stopped)
    assert (found.continued, asked[1].path, asked[1].first) == (34, parts[1], 8)
    run(tmp_path / "local", None)
    assert content(tmp_path / "ray") == content(tmp_path / "local")
