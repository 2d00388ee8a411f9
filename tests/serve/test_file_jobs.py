import csv
import errno
import gzip
import io
import json
import tempfile
import threading
import time
from types import SimpleNamespace

import openpyxl
import pytest
from rdkit import Chem

from molslice.files.lock import Owner
from molslice.serve.file_jobs import FileJobs, as_file_name
from molslice.serve.limits import Limits

TABLE = "id,smiles\n1,CCO\n2,<b>bad</b>\n3,c1ccccc1\n"


def upload(client, content=TABLE, name="molecules.csv", **more):
    return client.post("/files", content=content, params={"name": name, **more})


def finished(client, job):
    """Wait for the end of a job and return its status."""
    for _ in range(1_000):
        status = client.get(f"/files/{job['id']}").json()
        if status["state"] in ("done", "failed"):
            return status
        time.sleep(0.01)
    raise AssertionError(status)


def test_the_result_has_the_same_rows_in_order(client):
    answer = upload(client, model="second")
    assert answer.status_code == 202
    status = finished(client, answer.json())
    assert (status["state"], status["rows"], status["failed"], status["share"]) == ("done", 3, 1, 1.0)
    assert status["columns"] == ["gap_eV", "logp"]
    assert "molecules.csv, row 2 (line 3)" in status["message"]
    result = client.get(f"/files/{status['id']}/result")
    assert result.headers["content-disposition"] == 'attachment; filename="molecules_predicted.csv"'
    rows = list(csv.DictReader(io.StringIO(result.text)))
    assert [(row["id"], row["smiles"]) for row in rows] == [
        ("1", "CCO"),
        ("2", "<b>bad</b>"),
        ("3", "c1ccccc1"),
    ]
    assert rows[1]["error"]
    answer = client.post("/predict", json={"smiles": ["CCO", "c1ccccc1"], "model": "second"}).json()
    for row, wanted in zip((rows[0], rows[2]), answer["predictions"], strict=True):
        assert float(row["gap_eV"]) == pytest.approx(wanted["values"]["gap_eV"], rel=1e-5)


def test_progress_is_reported_while_a_long_file_is_predicted(serve):
    client = serve()
    job = upload(client, "smiles\n" + "CCO\n" * 2_000).json()
    seen = set()
    while (status := client.get(f"/files/{job['id']}").json())["state"] != "done":
        seen.add(status["rows"])
    assert status["rows"] == 2_000
    assert any(0 < rows < 2_000 for rows in seen)


@pytest.mark.parametrize(
    ("content", "name"), [("smiles\n", "none.csv"), ("", "none.jsonl"), ("", "none.smi"), ("", "none.sdf")]
)
def test_a_file_without_rows_gives_one_without_rows(client, content, name):
    status = finished(client, upload(client, content, name).json())
    assert (status["state"], status["rows"], status["failed"], status["share"]) == ("done", 0, 0, 1.0)
    text = client.get(f"/files/{status['id']}/result").text
    assert text == ("" if name.endswith(".jsonl") else "smiles,gap_eV,error\n")


def test_json_lines_give_json_lines(client):
    job = upload(client, '{"smiles": "CCO"}\n', "a.jsonl").json()
    finished(client, job)
    row = json.loads(client.get(f"/files/{job['id']}/result").text)
    assert row["smiles"] == "CCO"
    assert row["gap_eV"]


def test_a_deleted_file_is_gone(client):
    job = upload(client).json()
    finished(client, job)
    assert client.delete(f"/files/{job['id']}").status_code == 204
    assert client.get(f"/files/{job['id']}").status_code == 404
    assert client.delete(f"/files/{job['id']}").status_code == 404


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        ("smiles\nC\n", "molecules.exe", "the name must end in"),
        ("smiles\nC\n", "../../x", "the name must end in"),
        (b"\x1f\x8b\x08\x00rest", "a.csv", "truncated or damaged"),
        (gzip.compress(gzip.compress(b"smiles\nC\n", mtime=0), mtime=0), "a.csv", "it is not text"),
        (gzip.compress(b"smiles\nC\n", mtime=0)[:-9], "a.csv.gz", "truncated or damaged"),
        (b"PAR1rest", "a.csv", "it is not text"),
        (b"PK\3\4rest", "a.xlsx", "it is a spreadsheet; save it as CSV"),
        (b"smiles\nC\n", "a.gz", "the name must end in"),
    ],
)
def test_a_file_of_another_kind_is_refused(client, content, name, reason):
    answer = upload(client, content, name)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "SMILES"),
        (b"smiles\n\xff\xff\n", "UTF-8"),
        ('smiles\n"C\n', "quote"),
    ],
)
def test_an_unreadable_file_fails_with_the_name_that_the_client_gave(client, content, reason):
    status = finished(client, upload(client, content, "mine.csv").json())
    assert status["state"] == "failed"
    assert reason.lower() in status["message"].lower()
    assert "mine.csv" in status["message"]
    assert "molslice-serve-" not in status["message"]
    assert client.get(f"/files/{status['id']}/result").status_code == 409


def test_limits_of_files(serve):
    client = serve(file_bytes=100, file_rows=5)
    assert upload(client, "smiles\n" + "C\n" * 100).status_code == 413
    pieces = client.post("/files", content=(b"C\n" * 40 for _ in range(3)), params={"name": "a.csv"})
    assert pieces.status_code == 413
    status = finished(client, upload(client, "smiles\n" + "C\n" * 6).json())
    assert (status["state"], "more than 5 rows" in status["message"]) == ("failed", True)
    assert finished(client, upload(client, "smiles\n" + "C\n" * 5).json())["state"] == "done"


def test_the_oldest_results_are_deleted_and_refused_uploads_leave_nothing(serve):
    client = serve(files_kept=2, file_bytes=1_000)
    for _ in range(5):
        assert upload(client, "C" * 2_000).status_code == 413
    jobs = [upload(client).json() for _ in range(3)]
    for job in jobs[1:]:
        finished(client, job)
    last = upload(client).json()
    finished(client, last)
    assert [client.get(f"/files/{job['id']}").status_code for job in (jobs[1], jobs[2], last)] == [
        404,
        200,
        200,
    ]


def test_too_many_files_are_refused(serve):
    answer = upload(serve(files_waiting=0))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "60"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../../etc/passwd.csv", "passwd.csv"),
        ("C:\\folder\\a.csv", "a.csv"),
        ("/a/b/..", "molecules.csv"),
        ("", "molecules.csv"),
        ("a\r\nSet-Cookie: x.csv", "aSet-Cookie: x.csv"),
        ("x" * 300 + ".csv", "x" * 96 + ".csv"),
        ("x" * 300 + ".csv.gz", "x" * 93 + ".csv.gz"),
        ('<img src=x>".csv', '<img src=x>".csv'),
    ],
)
def test_a_name_is_never_a_path(text, name):
    assert as_file_name(text) == name


def test_the_name_of_the_result_is_safe_in_a_header(client):
    job = upload(client, name='a"; filename=evil.exe\r\nX: y ü.csv').json()
    finished(client, job)
    header = client.get(f"/files/{job['id']}/result").headers["content-disposition"]
    assert header.startswith("attachment; filename*=utf-8''a%22%3B%20filename%3Devil.exe")
    assert header.isascii()


@pytest.mark.parametrize("name", ["molecules.csv.gz", "MOLECULES.CSV.GZ", "molecules.csv"])
def test_a_file_packed_with_gzip_is_unpacked(client, name):
    job = upload(client, gzip.compress(TABLE.encode()), name).json()
    status = finished(client, job)
    assert (status["state"], status["rows"], status["failed"]) == ("done", 3, 1)
    assert status["refusals"] == [{"reason": "not valid SMILES: unknown symbol … at position …", "count": 1}]
    result = client.get(f"/files/{job['id']}/result")
    stem = name.partition(".")[0]
    assert result.headers["content-disposition"] == f'attachment; filename="{stem}_predicted.csv"'
    assert [row["id"] for row in csv.DictReader(io.StringIO(result.text))] == ["1", "2", "3"]


def test_a_packed_file_is_unpacked_up_to_the_limit(serve):
    client = serve(file_bytes=10_000)
    bomb = gzip.compress(b"smiles\n" + b"C\n" * 1_000_000)
    assert len(bomb) < 10_000
    answer = upload(client, bomb, "a.csv.gz")
    assert answer.status_code == 413
    assert answer.json()["detail"] == "'a.csv.gz' has more than 10,000 bytes after decompression"
    assert client.get("/limits").json()["file_bytes"] == 10_000


def test_a_full_disk_is_said_and_leaves_nothing(client, monkeypatch):
    def full(self, mode):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.open", full)
        answer = upload(client)
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "the file cannot be stored: No space left on device",
    )

    def broken(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/secret")

    with monkeypatch.context() as patch:
        patch.setattr("molslice.serve.worker.predict_table", broken)
        status = finished(client, upload(client, name="mine.csv").json())
    assert (status["state"], status["message"]) == (
        "failed",
        "cannot write the predictions of mine.csv: No space left on device",
    )
    assert finished(client, upload(client).json())["state"] == "done"


def test_an_unexpected_error_fails_the_file_and_is_logged(client, monkeypatch, caplog):
    def broken(*arguments, **options):
        raise RuntimeError("a secret of the service")

    with monkeypatch.context() as patch:
        patch.setattr("molslice.serve.worker.predict_table", broken)
        status = finished(client, upload(client, name="mine.csv").json())
    assert (status["state"], status["message"]) == ("failed", "unexpected error of the service")
    assert "cannot predict mine.csv" in caplog.text
    assert "a secret of the service" in caplog.text
    assert finished(client, upload(client).json())["state"] == "done"


def test_files_of_killed_services_are_deleted_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running, other = Owner.current(), tmp_path / "molslice-serve-notes"
    ended = running._replace(start=running.start + 1)  # the process ID was reused
    for name in (f"molslice-serve-{ended}.a", f"molslice-serve-{running}.b", other.name):
        (tmp_path / name / "job").mkdir(parents=True)
    worker = SimpleNamespace(kill=lambda: None, close=lambda: None)
    jobs = FileJobs(worker, worker, Limits())
    left = {path.name.rpartition(".")[0] or path.name for path in tmp_path.iterdir()}
    assert left == {f"molslice-serve-{running}", other.name}
    jobs.close()
    assert {path.name for path in tmp_path.iterdir()} == {f"molslice-serve-{running}.b", other.name}


def test_deleting_a_file_that_is_about_to_end_does_not_stop_the_next():
    class Worker:
        """Ends the first task when it is to be killed, a little before the kill."""

        began = {name: threading.Event() for name in ("first.csv", "next.csv")}
        end = threading.Event()
        killed: str | None = None

        def call(self, task, options, *, seconds, report):
            self.began[options["name"]].set()
            assert self.end.wait(10)
            return {"rows": 1, "failed": 0, "refusals": [], "columns": [], "message": ""}

        def kill(self):
            self.end.set()
            self.killed = "next.csv" if self.began["next.csv"].wait(0.3) else "first.csv"

        def close(self):
            pass

    worker = Worker()
    jobs = FileJobs(worker, worker, Limits())
    first, other = (jobs.create("model", name, None, domain=False) for name in ("first.csv", "next.csv"))
    for job in (first, other):
        job.source.write_text("smiles\nC\n")
        jobs.submit(job)
    assert worker.began["first.csv"].wait(10)
    assert jobs.discard(first.id)
    assert worker.killed == "first.csv"
    assert worker.began["next.csv"].wait(10)
    jobs.close()


def test_the_rows_of_a_file_are_answered_with_their_names(client):
    content = "id,Compound Name,smiles\n1,ethanol,CCO\n2,<b>,C(\n3,,c1ccccc1\n"
    job = upload(client, content, model="second").json()
    assert client.get(f"/files/{job['id']}/rows").status_code in (200, 409)
    finished(client, job)
    answer = client.get(f"/files/{job['id']}/rows").json()
    assert (answer["model"], answer["rows"]) == ("second", 3)
    assert [target["column"] for target in answer["targets"]] == ["gap_eV", "logp"]
    listed = client.post("/predict", json={"smiles": ["CCO", "C(", "c1ccccc1"], "model": "second"}).json()
    for row, alone, name in zip(
        answer["predictions"], listed["predictions"], ["ethanol", "<b>", ""], strict=True
    ):
        assert (row["name"], row["conditions"], row["error"]) == (name, None, alone["error"])
        assert (row["values"] is None) == (alone["values"] is None)
        if row["values"]:
            assert row["values"] == pytest.approx(alone["values"], rel=1e-5)


def test_chosen_rows_are_written_in_their_order_in_each_format(client, tmp_path):
    content = "id,smiles,note\n007,CCO,=1+1\n2,C(,>5\n3,c1ccccc1,\n"
    job = finished(client, upload(client, content).json())
    whole = client.get(f"/files/{job['id']}/result").text.splitlines()

    def written(format_name, rows=None):
        answer = client.post(f"/files/{job['id']}/result", json={"format": format_name, "rows": rows})
        assert answer.status_code == 200, answer.text
        wanted = f'attachment; filename="molecules_predicted.{format_name}"'
        assert answer.headers["content-disposition"] == wanted
        return answer.content

    assert written("csv").decode().splitlines() == whole
    assert written("csv", [3, 1]).decode().splitlines() == [whole[0], whole[3], whole[1]]
    (tmp_path / "a.sdf").write_bytes(written("sdf", [3, 2]))
    records = list(Chem.SDMolSupplier(str(tmp_path / "a.sdf")))
    assert [mol.GetNumAtoms() for mol in records] == [6, 0]
    assert [mol.GetProp("_Name") for mol in records] == ["3", "2"]
    assert records[0].GetConformer().GetPositions().any()
    assert float(records[0].GetProp("gap_eV")) == pytest.approx(float(whole[3].split(",")[3]))
    assert records[1].GetProp("error") == "not valid SMILES: parenthesis at position 2 is not closed"
    (tmp_path / "a.xlsx").write_bytes(written("xlsx", [1, 2]))
    cells = list(openpyxl.load_workbook(tmp_path / "a.xlsx").active.iter_rows())
    assert [cell.value for cell in cells[0]] == whole[0].split(",")
    assert [cell.value for cell in cells[1]][:3] == ["007", "CCO", "=1+1"]
    assert cells[1][2].data_type == "s"  # not a formula
    assert cells[1][3].value == pytest.approx(float(whole[1].split(",")[3]))
    assert [cell.value for cell in cells[2]][3:] == [
        None,
        "not valid SMILES: parenthesis at position 2 is not closed",
    ]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"format": "csv", "rows": [4]}, 422, "row 4 is not available"),
        ({"format": "csv", "rows": [0]}, 422, "row 0 is not available"),
        ({"format": "csv", "rows": [2, 1, 1]}, 422, "row 1 is given twice"),
        ({"format": "doc"}, 422, "format"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(client, body, status, reason):
    job = finished(client, upload(client).json())
    answer = client.post(f"/files/{job['id']}/result", json=body)
    assert answer.status_code == status
    assert reason in answer.json()["detail"]


def test_workbooks_are_offered_where_openpyxl_is_installed(client, monkeypatch):
    assert client.get("/limits").json()["formats"] == ["csv", "sdf", "xlsx"]
    monkeypatch.setattr("molslice.serve.file_jobs.find_spec", lambda name: None)
    assert client.get("/limits").json()["formats"] == ["csv", "sdf"]


def test_an_unknown_parameter_of_an_upload_is_refused(client):
    answer = upload(client, intervall=0.9)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "unknown parameter 'intervall'; choices: name, model, interval, domain"
