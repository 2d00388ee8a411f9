"""The commands with URLs in place of files: in memory, on a web server, and in an object store."""

import json
import os

import fsspec
import numpy as np
import pyarrow
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import parquet

from molslice.cli import main
from tests.inference.models import checkpoint_folder, embedded_smiles
from tests.url_files import get, names, put, served

SMILES = embedded_smiles(40)
TABLE = "id,smiles\n" + "".join(f"{row},{text}\n" for row, text in enumerate(SMILES))
BUCKET = "bucket"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(checkpoint_folder(tmp_path_factory.mktemp("model") / "model"))


@pytest.fixture
def memory(tmp_path):
    yield f"memory:/{tmp_path}"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def server():
    """Serve the protocol of S3 on this machine."""
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


@pytest.fixture
def s3(server, monkeypatch):
    """Return the URL of a bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    system = fsspec.filesystem("s3")
    system.clear_instance_cache()
    system = fsspec.filesystem("s3")
    system.mkdir(BUCKET)
    yield f"s3://{BUCKET}"
    system.rm(BUCKET, recursive=True)
    system.clear_instance_cache()


@pytest.fixture(params=["memory", "s3"])
def folder(request):
    return request.getfixturevalue(request.param)


def run(*arguments):
    return main([*map(str, arguments), "--quiet"])


def local(tmp_path, model, content, name="in.csv", output="out.csv", verb="predict"):
    """Return the bytes that a command writes from a file to a file."""
    (tmp_path / name).write_bytes(content)
    assert run(verb, model, "--input", tmp_path / name, "--output", tmp_path / output) == 0
    return (tmp_path / output).read_bytes()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".jsonl", ".parquet"])
def test_predict_writes_the_same_bytes_to_a_store(model, folder, tmp_path, ending):
    put(f"{folder}/in.csv", TABLE.encode())
    assert run("predict", model, "--input", f"{folder}/in.csv", "--output", f"{folder}/out{ending}") == 0
    assert get(f"{folder}/out{ending}") == local(tmp_path, model, TABLE.encode(), output=f"out{ending}")
    assert names(folder) == ["in.csv", f"out{ending}"]


def test_predict_reads_parquet_and_json_lines_from_a_store(model, folder, tmp_path):
    parquet.write_table(pyarrow.table({"smiles": SMILES}), tmp_path / "in.parquet", row_group_size=9)
    lines = "".join(json.dumps({"smiles": text}) + "\n" for text in SMILES)
    for name, content in (
        ("in.parquet", (tmp_path / "in.parquet").read_bytes()),
        ("in.jsonl", lines.encode()),
    ):
        put(f"{folder}/{name}", content)
        assert run("predict", model, "--input", f"{folder}/{name}", "--output", f"{folder}/out.csv") == 0
        assert get(f"{folder}/out.csv") == local(tmp_path, model, content, name)


def test_predict_reads_a_pattern(model, folder, tmp_path):
    lines = TABLE.splitlines(keepends=True)
    put(f"{folder}/parts/b.csv", "".join([lines[0], *lines[21:]]).encode())
    put(f"{folder}/parts/a.csv", "".join(lines[:21]).encode())
    assert run("predict", model, "--input", f"{folder}/parts/*.csv", "--output", tmp_path / "out.csv") == 0
    found = (tmp_path / "out.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in found[1:]] == SMILES


def test_embed_writes_an_array_to_a_store(model, folder, tmp_path):
    put(f"{folder}/in.csv", TABLE.encode())
    assert run("embed", model, "--input", f"{folder}/in.csv", "--output", f"{folder}/out.npy") == 0
    expected = local(tmp_path, model, TABLE.encode(), output="out.npy", verb="embed")
    assert get(f"{folder}/out.npy") == expected
    assert np.load(tmp_path / "out.npy").shape == (40, 32)


def test_nothing_is_left_of_a_failed_prediction(model, folder, capsys):
    """The last row has a quote that is never closed."""
    put(f"{folder}/in.csv", f'{TABLE}40,"C\n'.encode())
    assert run("predict", model, "--input", f"{folder}/in.csv", "--output", f"{folder}/out.csv") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/in.csv, line 42: a quote is never closed; {folder}/out.csv is not written" in line
    assert names(folder) == ["in.csv"]


def test_evaluate_reads_a_store(model, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MOLSLICE_CACHE", str(tmp_path / "cache"))
    put(f"{folder}/in.csv", ("gap,smiles\n" + "".join(f"{len(text)},{text}\n" for text in SMILES)).encode())
    data = ["--data.name", "csv", "--data.path", f"{folder}/in.csv", "--data.target-columns", "gap"]
    assert run("evaluate", model, "--split", "all", "--json", *data, "--data.units", "eV") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 40
    put(f"{folder}/in.csv", b"gap,smiles\n" + b"1,C\n2,CC\n" * 10)  # the cache depends on the content
    assert run("evaluate", model, "--split", "all", "--json", *data, "--data.units", "eV") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 20


def test_prepare_reads_a_store(folder, tmp_path):
    put(f"{folder}/in.csv", TABLE.encode())
    (tmp_path / "in.csv").write_text(TABLE)
    for source, store in ((f"{folder}/*.csv", "remote"), (tmp_path / "in.csv", "local")):
        assert run("prepare", source, "--out", tmp_path / store, "--target", "id") == 0
    for name in ("atoms.npy", "bonds.npy", "targets.npy"):
        assert (tmp_path / "remote" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_the_input_is_not_replaced(model, memory, capsys):
    put(f"{memory}/in.csv", TABLE.encode())
    assert run("predict", model, "--input", f"{memory}/*.csv", "--output", f"{memory}/in.csv") == 1
    assert f"{memory}/in.csv: the output would replace the input" in capsys.readouterr().err
    assert get(f"{memory}/in.csv") == TABLE.encode()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{folder}/none.csv", "no such file: {folder}/none.csv"),
        ("{folder}/none*.csv", "no file matches {folder}/none*.csv"),
        ("s9://bucket/a.csv", "cannot read s9://bucket/a.csv: unknown protocol 's9'"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(model, folder, tmp_path, capsys, source, reason):
    source, reason = source.format(folder=folder), reason.format(folder=folder)
    assert run("predict", model, "--input", source, "--output", tmp_path / "out.csv") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"molslice: error: {reason}")


def test_a_missing_bucket_is_said_before_the_work(model, s3, tmp_path, capsys):
    (tmp_path / "in.csv").write_text(TABLE)
    assert run("predict", model, "--input", "s3://elsewhere/in.csv", "--output", tmp_path / "out.csv") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "molslice: error: no such file: s3://elsewhere/in.csv: The specified bucket does not exist"
    assert run("predict", model, "--input", tmp_path / "in.csv", "--output", "s3://elsewhere/out.csv") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "molslice: error: cannot write s3://elsewhere/out.csv: no bucket or folder 'elsewhere'"
    )


def test_missing_credentials_are_said(model, s3, tmp_path, monkeypatch, capsys):
    put(f"{s3}/in.csv", TABLE.encode())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    fsspec.filesystem("s3").clear_instance_cache()
    for source, target in ((f"{s3}/in.csv", tmp_path / "out.csv"), (tmp_path / "in.csv", f"{s3}/out.csv")):
        (tmp_path / "in.csv").write_text(TABLE)
        assert run("predict", model, "--input", source, "--output", target) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "Unable to locate credentials" in line
        assert f"{s3}/" in line
    monkeypatch.undo()


def test_a_large_object_is_discarded_too(s3):
    """Above 50 MB, s3fs sends parts before the object is complete."""
    from molslice.files.atomic import atomic_file
    from molslice.files.urls import Url

    with pytest.raises(ZeroDivisionError), atomic_file(Url(f"{s3}/out.csv")) as stream:
        stream.write(bytes(51 << 20) * (1 + 0 // stream.write(bytes(51 << 20))) + bytes(1 // 0))
    assert names(s3) == []
    with atomic_file(Url(f"{s3}/out.csv")) as stream:
        for _ in range(6):
            stream.write(bytes(10 << 20))
        assert names(s3) == []
    assert Url(f"{s3}/out.csv").size() == 60 << 20


def test_a_folder_of_models_is_no_url(tmp_path, capsys):
    (tmp_path / "in.csv").write_text(TABLE)
    assert run("fit", tmp_path / "in.csv", "--target", "id", "--out", "s3://bucket/model") == 2
    assert "argument --out: 's3://bucket/model' is a URL; a path on this machine" in capsys.readouterr().err


def test_a_web_server_is_read(model, tmp_path):
    expected = local(tmp_path, model, TABLE.encode())
    with served(tmp_path) as url:
        assert run("predict", model, "--input", f"{url}/in.csv", "--output", tmp_path / "again.csv") == 0
    assert (tmp_path / "again.csv").read_bytes() == expected
