"""Tests of predicting several files to a folder."""

import json
import sys
from pathlib import Path

import fsspec
import pytest

from molslice.cli import main
from molslice.files.cache import file_checksum
from molslice.files.urls import Url
from molslice.inference.load import load_model
from molslice.inference.tables.folder import is_folder, output_name, predict_folder
from molslice.types import MolsliceError
from tests.inference.models import checkpoint_folder, embedded_smiles

SMILES = embedded_smiles(12)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return checkpoint_folder(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("smiles\n" + "\n".join(SMILES[:5]) + "\n")
    (tmp_path / "in" / "b.smi").write_text("\n".join([*SMILES[5:], "XX"]) + "\n")
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("d/a.csv", "a.csv"),
        ("a.tsv", "a.csv"),
        ("a.smi.gz", "a.csv.gz"),
        ("a.b.sdf", "a.b.csv"),
        ("a.CSV.zst", "a.csv.gz"),
        ("a.pq", "a.parquet"),
        ("a.ndjson.gz", "a.jsonl.gz"),
        ("a", "a.csv"),
    ],
)
def test_an_output_is_named_like_its_input(source, name):
    assert output_name(Path(source)) == name
    assert output_name(Url(f"s3://bucket/{source}")) == name


def test_a_name_without_an_ending_is_a_folder(tmp_path):
    (tmp_path / "out.d").mkdir()
    assert is_folder(tmp_path / "out.d")
    assert is_folder(tmp_path / "new")
    assert is_folder(Url("s3://bucket/new/"))
    assert not is_folder(tmp_path / "out.csv")
    assert not is_folder(tmp_path / "out.cvs")
    assert not is_folder(Path("-"))


def test_each_file_has_the_bytes_of_a_run_of_its_own(model, parts, tmp_path, capsys):
    command = ["predict", str(model), "--quiet", "--input"]
    assert main([*command, str(parts / "*"), "--output", str(tmp_path / "new" / "out")]) == 0
    assert "1 of 13 rows have no prediction" in capsys.readouterr().err
    for source, name in (("a.csv", "a.csv"), ("b.smi", "b.csv")):
        assert main([*command, str(parts / source), "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / "new" / "out" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_folder_in_a_store(model, parts):
    command = ["predict", str(model), "--quiet", "--input", str(parts / "*"), "--output", "memory://out/"]
    assert main(command) == 0
    files = ["/out/.prediction.json", "/out/a.csv", "/out/b.csv"]
    assert sorted(fsspec.filesystem("memory").ls("/out", detail=False)) == files
    assert main([*command, "--resume"]) == 1
    fsspec.filesystem("memory").rm("/out/b.csv")
    assert main([*command, "--resume"]) == 0
    assert sorted(fsspec.filesystem("memory").ls("/out", detail=False)) == files
    with (parts / "a.csv").open("a") as file:
        file.write("CCO\n")
    assert main([*command, "--resume"]) == 1
    assert main(command) == 0
    assert len(fsspec.filesystem("memory").cat_file("/out/a.csv").splitlines()) == 7


def test_a_delimiter_is_for_the_files_that_have_one(model, parts, tmp_path):
    (parts / "a.csv").write_text("smiles;name\nCCO;a,b\n")
    command = ["predict", str(model), "--input", str(parts / "*"), "--output", str(tmp_path / "out")]
    command += ["--delimiter", ";"]
    assert main(command) == 0
    (tmp_path / "out" / "b.csv").unlink()
    assert main([*command, "--resume"]) == 0
    assert len((tmp_path / "out" / "b.csv").read_text().splitlines()) == len(SMILES[5:]) + 2


def test_two_files_with_one_output_are_refused(model, parts, tmp_path):
    (parts / "b.csv").write_text("smiles\nC\n")
    with pytest.raises(MolsliceError, match=r"b\.csv and .*b\.smi would both be written to b\.csv in .*out$"):
        predict_folder(load_model(model), [parts / "*"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "in/a.csv", "--output", "out", "--metrics"], "--metrics needs one file as --output"),
        (["--smiles", "C", "--engine", "ray"], "--engine needs --input"),
        (["--smiles", "C", "--resume"], "--resume needs --input"),
        (["--smiles", "C", "--smiles-column", "a"], "--smiles-column needs --input"),
        (["--smiles", "C", "--root", "data"], "--root needs --submission"),
        (
            ["--input", "in/a.csv", "--output", "-", "--resume"],
            "--resume needs a file on this machine as --output, got -",
        ),
        (
            ["--input", "in/a.csv", "--output", "memory://out.csv", "--resume"],
            "--resume needs a file on this machine as --output, got memory://out.csv",
        ),
        (
            ["--input", "in/b.smi", "--output", "out", "--delimiter", ";"],
            "--delimiter needs a file of separated values, got in/b.smi",
        ),
        (["--input", "in/a.csv", "--output", "a.csv", "--decimal", ","], "--decimal needs --metrics"),
        (["--smiles", "C", "--missing-value", "x"], "--missing-value needs --metrics"),
        (["--input", "-", "--output", "out"], "standard input has no name for a file in a folder"),
    ],
)
def test_what_does_not_go_together(model, parts, monkeypatch, capsys, options, message):
    monkeypatch.chdir(parts.parent)
    assert main(["predict", str(model), *options]) in (1, 2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("pattern", ["a.csv", "*"])
def test_an_input_is_never_replaced_or_removed(model, parts, capsys, pattern):
    files = {path.name: path.read_text() for path in parts.iterdir()}
    for _ in range(2):  # the second time, the input is another one than before
        assert main(["predict", str(model), "--input", str(parts / pattern), "--output", str(parts)]) == 1
        assert "a.csv: the output would replace the input" in capsys.readouterr().err
        assert {path.name: path.read_text() for path in parts.iterdir()} == files
        files["a.csv"] += "CCO\n"
        (parts / "a.csv").write_text(files["a.csv"])


def test_a_file_that_is_not_an_output_is_not_replaced(model, parts, capsys):
    (parts / "b.csv").write_text("measured\n1\n")
    words = ["predict", str(model), "--input", str(parts / "b.smi"), "--output", str(parts)]
    assert main(words) == 1
    assert "b.csv is not an output of an earlier prediction, and would be" in capsys.readouterr().err
    assert (parts / "b.csv").read_text() == "measured\n1\n"
    (parts / "b.csv").unlink()
    for _ in range(2):  # an output is replaced
        assert main(words) == 0


def test_an_input_is_not_taken_for_a_finished_output(model, parts, capsys):
    words = ["predict", str(model), "--input", str(parts / "*"), "--output", str(parts), "--resume"]
    assert main(words) == 1
    assert "the output would replace the input" in capsys.readouterr().err


def test_ray_is_an_extra(model, parts, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    for command in (
        ["predict", str(model), "--input", str(parts / "a.csv"), "--output", str(tmp_path / "out.csv")],
        ["prepare", str(parts / "a.csv"), "--out", str(tmp_path / "store")],
    ):
        assert main([*command, "--engine", "ray"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "--engine ray needs the extra ray: pip install 'molslice[ray]'" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_an_interrupted_folder_continues(model, parts, tmp_path):
    predictor, folder = load_model(model), tmp_path / "out"
    _, outputs = predict_folder(predictor, [str(parts / "*")], folder, progress=False)
    expected = [Path(str(path)).read_bytes() for path in outputs]
    with pytest.raises(MolsliceError, match=r"out: nothing to resume, because every file has its output"):
        predict_folder(predictor, [str(parts / "*")], folder, resume=True, progress=False)
    outputs[0].unlink()
    report, again = predict_folder(predictor, [str(parts / "*")], folder, resume=True, progress=False)
    assert again == outputs[:1]
    assert report.rows == 5
    assert [Path(str(path)).read_bytes() for path in outputs] == expected


def test_outputs_of_another_model_are_not_resumed(model, parts, tmp_path, capsys):
    folder = tmp_path / "out"
    command = ["predict", str(model), "--quiet", "--input", str(parts / "*"), "--output", str(folder)]
    assert main(command) == 0
    (folder / "b.csv").unlink()
    capsys.readouterr()
    other = checkpoint_folder(tmp_path / "other", model={"num_layers": 1})
    assert main(["predict", str(other), *command[2:], "--resume"]) == 1
    advice = "delete the outputs, or choose another folder"
    assert f"the outputs in {folder} are of another model; {advice}" in capsys.readouterr().err
    assert main([*command, "--resume", "--smiles-column", "smiles"]) == 1
    assert f"are of another column of SMILES; {advice}" in capsys.readouterr().err
    (folder / ".prediction.json").write_text("{")
    assert main([*command, "--resume"]) == 1
    assert "cannot read" in capsys.readouterr().err
    (folder / ".prediction.json").unlink()
    assert main([*command, "--resume"]) == 1
    assert "has outputs, but no .prediction.json that says what made them" in capsys.readouterr().err
    assert not (folder / "b.csv").exists()
    assert main(command) == 1
    assert "a.csv is not an output of an earlier prediction, and would be replaced" in capsys.readouterr().err
    (folder / "a.csv").unlink()
    assert main(command) == 0  # from the beginning
    assert (folder / "b.csv").exists()


def test_outputs_of_two_models_are_not_mixed(model, parts, tmp_path):
    folder, one = tmp_path / "out", [str(parts / "a.csv")]
    other = load_model(checkpoint_folder(tmp_path / "other", model={"num_layers": 1}))
    predict_folder(load_model(model), one, folder, progress=False)
    before = (folder / "a.csv").read_bytes()
    for inputs in (one, [str(parts / "b.smi")]):
        with pytest.raises(MolsliceError, match="are of another model; delete the outputs, or"):
            predict_folder(other, inputs, folder, progress=False)
    assert [path.name for path in sorted(folder.glob("[!.]*"))] == ["a.csv"]
    assert (folder / "a.csv").read_bytes() == before
    (folder / "a.csv").unlink()
    predict_folder(other, one, folder, progress=False)
    report, _ = predict_folder(other, [str(parts / "*")], folder, resume=True, progress=False)
    assert report.findings[-1] == "1 finished output kept"


def test_a_changed_input_is_predicted_again_or_named(model, parts, tmp_path, monkeypatch):
    predictor, folder, inputs = load_model(model), tmp_path / "out", [str(parts / "*")]
    predict_folder(predictor, inputs, folder, progress=False)
    (folder / "b.csv").unlink()
    original = (parts / "a.csv").read_text()
    assert "C" in original
    for changed in (original.replace("C", "N", 1), original + "CCO\n"):  # of the same size, and longer
        (parts / "a.csv").write_text(changed)
        with pytest.raises(MolsliceError, match=r"a.csv has changed since .*a.csv was predicted; delete"):
            predict_folder(predictor, inputs, folder, resume=True, progress=False)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("molslice.inference.tables.folder.predict_table", stop)
        with pytest.raises(KeyboardInterrupt):
            predict_folder(predictor, inputs, folder, progress=False)
    predict_folder(predictor, inputs, folder, resume=True, progress=False)
    assert len((folder / "a.csv").read_text().splitlines()) == 7


def test_a_folder_of_an_earlier_version_is_continued(model, parts, tmp_path):
    predictor, folder, inputs = load_model(model), tmp_path / "out", [str(parts / "*")]
    predict_folder(predictor, inputs, folder, progress=False)
    record = json.loads((folder / ".prediction.json").read_text())
    assert record.pop("inputs") == {f"{path.stem}.csv": file_checksum(path) for path in parts.iterdir()}
    sizes = {f"{path.stem}.csv": path.stat().st_size for path in parts.iterdir()}
    for earlier in (record, {**record, "inputs": sizes}):
        (folder / ".prediction.json").write_text(json.dumps(earlier))
        (folder / "b.csv").unlink()
        _, outputs = predict_folder(predictor, inputs, folder, resume=True, progress=False)
        assert [path.name for path in outputs] == ["b.csv"]
    (folder / ".prediction.json").write_text(json.dumps({**record, "inputs": {**sizes, "a.csv": 1}}))
    (folder / "b.csv").unlink()
    with pytest.raises(MolsliceError, match=r"a.csv has changed since"):
        predict_folder(predictor, inputs, folder, resume=True, progress=False)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.yaml", "fit.json", "ensemble.json", "header.json"]
)
def test_predictions_are_not_written_into_a_model_or_a_store(model, parts, tmp_path, name):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / name).write_text("{}")
    with pytest.raises(
        MolsliceError, match="made is the folder of a .*; choose another folder for the results"
    ):
        predict_folder(load_model(model), [str(parts / "a.csv")], folder, progress=False)
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_cluster_that_is_not_there_is_said(model, parts, tmp_path, monkeypatch, capsys):
    import ray  # takes seconds

    def refuse(**options):
        assert set(options) == {"configure_logging", "log_to_driver"}  # the others start a cluster
        raise ConnectionError("Failed to connect\nto 127.0.0.1:1")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    command = ["predict", str(model), "--input", str(parts / "a.csv"), "--output", str(tmp_path / "out.csv")]
    assert main([*command, "--engine", "ray"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "connect to its cluster: Failed to connect to 127.0.0.1:1; a cluster with tokens needs" in line
