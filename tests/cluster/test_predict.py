"""`molslice predict --engine ray`: the same bytes as without it, also if a worker is killed."""

import io
import json
import shutil
import sys

import pytest

from molslice.cli import main
from molslice.data.molecules import tables
from molslice.inference.domain import TrainingDomain
from molslice.inference.load import NetworkPredictor, load_model
from molslice.inference.tables import cluster as engine
from molslice.inference.tables.cluster import RayEngine
from molslice.inference.tables.table import predict_table
from tests.cluster.work import InSmallChunks, KilledInFile, killed_once
from tests.inference.models import checkpoint_folder, embedded_smiles
from tests.programs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cluster")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Write three files with unreadable rows and columns in another order; chunks have 7 rows."""
    monkeypatch.setattr(NetworkPredictor, "chunk_rows", 7)
    smiles = embedded_smiles(60)
    smiles[11] = "XX"
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = [(text, str(row)) for row, text in enumerate(smiles)][20 * part : 20 * part + 20]
        rows = [("smiles", "id"), *rows]
        lines = [",".join(row if part < 2 else row[::-1]) for row in rows]
        (tmp_path / "in" / f"part{part}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "in"


def run(*arguments):
    return main([*map(str, arguments), "--quiet"])


def test_one_output_has_the_same_bytes(model, parts, tmp_path):
    pattern = parts / "*.csv"
    for name, options in (("local", []), ("ray", ["--engine", "ray", "--workers", 2])):
        assert (
            run("predict", model, "--input", pattern, "--output", tmp_path / f"{name}.csv.gz", *options) == 0
        )
    assert (tmp_path / "ray.csv.gz").read_bytes() == (tmp_path / "local.csv.gz").read_bytes()


def test_files_without_rows_add_nothing(model, parts, tmp_path):
    (parts / "part00.csv").write_text("smiles,id\n")
    (parts / "part9.csv").write_text("smiles,id\n")
    for name, options in (("local", []), ("ray", ["--engine", "ray", "--workers", 2])):
        for source, out in ((parts / "*.csv", f"{name}.csv"), (parts / "part9.csv", f"{name}_none.csv")):
            assert run("predict", model, "--input", source, "--output", tmp_path / out, *options) == 0
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert (tmp_path / "ray_none.csv").read_bytes() == (tmp_path / "local_none.csv").read_bytes()
    assert run("predict", model, "--input", parts / "*.csv", "--output", tmp_path / "out", *options) == 0
    assert len(list((tmp_path / "out").glob("*.csv"))) == 5


def test_a_folder_has_the_same_bytes(model, parts, tmp_path, capsys, monkeypatch):
    whole = engine.ray_map
    monkeypatch.setattr(
        engine, "ray_map", lambda items, work, **options: whole(items, InSmallChunks(work), **options)
    )
    for name, options in (("local", []), ("ray", ["--engine", "ray"])):
        command = [
            "predict",
            model,
            "--input",
            parts / "*.csv",
            "--output",
            tmp_path / name,
            "--json",
            *options,
        ]
        assert run(*command) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["rows"], found["failed"], len(found["files"])) == (60, 1, 3)
    for part in parts.iterdir():
        assert (tmp_path / "ray" / part.name).read_bytes() == (tmp_path / "local" / part.name).read_bytes()


def test_a_killed_worker_changes_nothing(model, parts, tmp_path, monkeypatch):
    """The worker is killed by a signal at its third chunk."""
    whole = tables.ray_map

    def killed(items, work, **options):
        return whole(items, killed_once(work, tmp_path / "killed", 2), **options)

    monkeypatch.setattr(tables, "ray_map", killed)
    predictor, ray = load_model(model), RayEngine(str(model), workers=2)
    files = sorted(parts.iterdir())
    predict_table(predictor, files, tmp_path / "local.csv", progress=False)
    predict_table(predictor, files, tmp_path / "ray.csv", engine=ray.predict_chunks, progress=False)
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()


def test_a_worker_that_is_killed_in_the_middle_of_a_file_changes_nothing(model, parts, tmp_path, monkeypatch):
    whole = engine.ray_map

    def killed(items, work, **options):
        return whole(items, KilledInFile(work, tmp_path / "killed"), **options)

    monkeypatch.setattr(engine, "ray_map", killed)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "part1.csv.partial").mkdir()
    command = ["predict", model, "--input", parts / "*.csv", "--output"]
    assert run(*command, tmp_path / "ray", "--engine", "ray") == 1
    (tmp_path / "ray" / "part1.csv.partial").rmdir()
    assert run(*command, tmp_path / "ray", "--engine", "ray", "--workers", 1) == 0
    assert run(*command, tmp_path / "local") == 0
    assert (tmp_path / "killed").exists()
    for folder in ("local", "ray"):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == [
            ".prediction.json",
            *(f"part{i}.csv" for i in range(3)),
        ]
    for part in parts.iterdir():
        assert (tmp_path / "ray" / part.name).read_bytes() == (tmp_path / "local" / part.name).read_bytes()


def test_an_error_of_a_worker_is_one_line_and_leaves_no_output(model, parts, tmp_path, capsys):
    (parts / "part2.csv").write_text('smiles,id\nC,1\n"C,2\n')
    command = ["predict", model, "--input", parts / "*.csv", "--output", tmp_path / "out"]
    assert run(*command, "--engine", "ray", "--workers", 1) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("molslice")]
    assert f"{parts}/part2.csv, line 3: a quote is never closed" in line
    names = [".prediction.json", "part0.csv", "part1.csv"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_standard_input_is_refused(model, tmp_path, capsys, monkeypatch):
    content = io.BufferedReader(io.BytesIO(b"smiles\nC\n"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content))
    assert run("predict", model, "--input", "-", "--output", tmp_path / "out.csv", "--engine", "ray") == 1
    assert "--engine ray cannot read standard input; give files" in capsys.readouterr().err


def test_intervals_domain_and_fragments_have_the_same_bytes(tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "tests" / "saved_models" / "trained", model)
    TrainingDomain.of_smiles(embedded_smiles(20)).write(model)
    source = tmp_path / "in.csv"
    source.write_text("smiles\n" + "\n".join([*embedded_smiles(9), "C(", "CCO.[Na+]"]) + "\n")
    options = ["--interval", "0.5", "--domain", "--fragment", "largest"]
    for name, how in (("local", []), ("ray", ["--engine", "ray", "--workers", 1])):
        target = tmp_path / f"{name}.csv"
        assert run("predict", model, "--input", source, "--output", target, "--json", *options, *how) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["rows"], found["failed"], found["replaced"]) == (11, 1, 1)
    text = (tmp_path / "local.csv").read_text()
    assert (tmp_path / "ray.csv").read_text() == text
    assert "domain_reason" in text.partition("\n")[0]
    assert "_lower" in text.partition("\n")[0]
