"""Downloads are verified and atomic, and happen only on request."""

import hashlib
import http.server
import io
import subprocess
import sys
import threading
import zipfile

import pytest

from molslice.data.molecules import ogb_download as module
from molslice.data.molecules.ogb_download import ARCHIVES, Archive, download
from molslice.data.molecules.pcqm4m import Pcqm4m
from molslice.types import MolsliceError
from tests.data.molecules.builders import gap_folder


def zipped(members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return content.getvalue()


@pytest.fixture
def good(tmp_path_factory):
    """Return a zip archive of a folder in OGB's layout."""
    folder = gap_folder(tmp_path_factory.mktemp("made") / "pcqm4m-v2")
    files = [path for path in folder.rglob("*") if path.is_file()]
    return zipped({f"pcqm4m-v2/{path.relative_to(folder)}": path.read_bytes() for path in files})


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Serve a zip archive instead of OGB's, with a correct or a wrong checksum."""

    def put(content, md5=None, url=None):
        served = tmp_path / "served.zip"
        served.write_bytes(content)
        md5 = md5 or hashlib.md5(content).hexdigest()
        archive = Archive(url or served.as_uri(), md5, "pcqm4m-v2")
        monkeypatch.setitem(ARCHIVES, "pcqm4m-v2", archive)

    return put


@pytest.fixture
def server(monkeypatch):
    """Web server with contents, recorded requests, optional range support, and optional interruption."""

    class Handler(http.server.BaseHTTPRequestHandler):
        content, ranges, break_after, requests = b"", True, None, []

        def do_GET(self):
            asked = self.headers.get("Range")
            type(self).requests.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
            if start >= len(self.content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(self.content) - start))
            self.end_headers()
            self.wfile.write(self.content[start : self.break_after])

        def log_message(self, *arguments):
            pass

    Handler.requests = []
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    Handler.url = f"http://127.0.0.1:{httpd.server_port}/a.zip"
    yield Handler
    httpd.shutdown()
    httpd.server_close()


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "served.zip")


def test_what_is_downloaded_can_be_read(tmp_path, offer, good):
    offer(good)
    root = download("pcqm4m-v2", tmp_path / "data" / "mine")
    assert len(Pcqm4m(root=root)) == 10
    assert names(tmp_path / "data") == ["mine"]


def test_a_configuration_names_the_version_by_its_folder(tmp_path, offer, good):
    offer(good)
    Pcqm4m.download({"root": str(tmp_path / "data" / "pcqm4m-v2")})
    assert len(Pcqm4m(root=tmp_path / "data" / "pcqm4m-v2")) == 10
    offer(b"", url="http://127.0.0.1:1/never-asked.zip")
    Pcqm4m.download({"root": tmp_path / "data"})  # the parent of data that are there
    with pytest.raises(MolsliceError, match=r"which data to download to .*mine: .*pcqm4m-v2 \(pcqm4m-v2\)"):
        Pcqm4m.download({"root": tmp_path / "mine"})
    with pytest.raises(MolsliceError, match="no raw/data.csv.gz in .*`molslice prepare .* By hand: unpack"):
        Pcqm4m(root=tmp_path / "mine")


def test_existing_files_are_kept(tmp_path, offer):
    root = gap_folder(tmp_path / "pcqm4m-v2")
    offer(b"", url="http://127.0.0.1:1/never-asked.zip")
    assert download("pcqm4m-v2", root) == root


def test_another_folder_is_left_alone(tmp_path, offer, good):
    offer(good)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("dear")
    with pytest.raises(MolsliceError, match=r"mine exists but is not pcqm4m-v2"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "dear"


def test_an_empty_folder_is_filled(tmp_path, offer, good):
    offer(good)
    (tmp_path / "mine").mkdir()
    assert len(Pcqm4m(root=download("pcqm4m-v2", tmp_path / "mine"))) == 10


def test_a_wrong_checksum_leaves_nothing(tmp_path, offer, good):
    offer(good, md5="0" * 32)
    with pytest.raises(MolsliceError, match=r"wrong MD5 checksum of .*: [0-9a-f]{32} instead of 0{32}"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "member",
    [
        "/etc/passwd",
        "../outside",
        "pcqm4m-v2/../../outside",
        "pcqm4m-v2\\..\\..\\outside",
        "other/raw/data.csv.gz",
        "top-level",
    ],
)
def test_paths_that_lead_elsewhere(tmp_path, offer, member):
    offer(zipped({"pcqm4m-v2/split_dict.pt": b"x", "pcqm4m-v2/raw/data.csv.gz": b"x", member: b"evil"}))
    with pytest.raises(MolsliceError, match="outside its folder or a link"):
        download("pcqm4m-v2", tmp_path / "deep" / "mine")
    assert names(tmp_path) == ["deep"]
    assert names(tmp_path / "deep") == ["pcqm4m-v2.zip.part"]


def test_links_are_refused(tmp_path, offer):
    link = zipfile.ZipInfo("pcqm4m-v2/raw")
    link.external_attr = 0o120777 << 16
    offer(zipped({link: "/etc", "pcqm4m-v2/raw/data.csv.gz": b"x"}))
    with pytest.raises(MolsliceError, match="outside its folder or a link"):
        download("pcqm4m-v2", tmp_path / "mine")


def test_an_archive_without_the_files(tmp_path, offer):
    offer(zipped({"pcqm4m-v2/raw/data.csv.gz": b"x"}))
    with pytest.raises(MolsliceError, match=r"split_dict.pt missing in the archive"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_damaged_archive(tmp_path, offer, good):
    offer(good[:-30])
    with pytest.raises(MolsliceError, match="is damaged"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_unknown_name_and_no_network(tmp_path, offer):
    with pytest.raises(MolsliceError, match="choices: pcqm4m, pcqm4m-v2"):
        download("pcqm4m-v3", tmp_path / "mine")
    offer(b"", url="http://127.0.0.1:1/a.zip")
    with pytest.raises(MolsliceError, match=r"cannot download .* to .*mine: .*refused"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert names(tmp_path) == []


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_gone_on_with(tmp_path, offer, server, good, ranges):
    server.content, server.break_after, server.ranges = good, 700, ranges
    offer(good, url=server.url)
    with pytest.raises(MolsliceError, match="again to resume"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert names(tmp_path) == ["pcqm4m-v2.zip.part"]
    server.break_after = None
    assert len(Pcqm4m(root=download("pcqm4m-v2", tmp_path / "mine"))) == 10
    assert server.requests == [None, "bytes=700-"]
    assert names(tmp_path) == ["mine"]


def test_a_whole_part_is_not_fetched_again(tmp_path, offer, server, good):
    server.content = good
    offer(good, url=server.url)
    (tmp_path / "pcqm4m-v2.zip.part").write_bytes(good)
    assert len(Pcqm4m(root=download("pcqm4m-v2", tmp_path / "mine"))) == 10


def test_two_processes_do_not_write_the_same_file(tmp_path, offer, good, monkeypatch):
    offer(good)
    second, fetch = [], module._fetch

    def fetched(url, part):
        code = f"from molslice.files.atomic import reserved\nwith reserved({str(part)!r}): print('alone')"
        second.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
        fetch(url, part)

    monkeypatch.setattr(module, "_fetch", fetched)
    assert len(Pcqm4m(root=download("pcqm4m-v2", tmp_path / "mine"))) == 10
    assert second[0].returncode == 1
    assert "pcqm4m-v2.zip.part is in use by process" in second[0].stderr


def test_a_full_disk(tmp_path, offer, good, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    offer(good)
    monkeypatch.setattr(module.shutil, "copyfileobj", full)
    with pytest.raises(MolsliceError, match=r"cannot download .* to .*mine: No space left"):
        download("pcqm4m-v2", tmp_path / "mine")
    assert names(tmp_path) == ["pcqm4m-v2.zip.part"]


def test_addresses_and_sums_are_ogbs():
    from molslice.data.molecules.leaderboard import import_ogb

    for name, member in (("pcqm4m", "pcqm4m"), ("pcqm4m-v2", "pcqm4mv2")):
        with open(import_ogb(f"ogb.lsc.{member}").__file__) as file:
            text = file.read()
        archive = ARCHIVES[name]
        assert archive.url in text
        assert f"md5sum: {archive.md5}" in text
        assert f"'{archive.folder}'" in text


def test_importing_and_evaluating_asks_no_network():
    program = (
        "import socket, threading\n"
        "def refuse(*a, **k): raise SystemExit('network!')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "import molslice.data.molecules.pcqm4m, molslice.data.molecules.csv, molslice.chem.featurize\n"
        "from molslice.data.molecules.leaderboard import import_ogb\n"
        "before = threading.active_count()\n"
        "import_ogb('ogb.lsc').PCQM4Mv2Evaluator()\n"
        "import ogb.version\n"
        "assert ogb.version.check_outdated is None\n"
        "import outdated\n"  # to be had again afterwards
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "network!" not in done.stderr
