"""Publishing and loading models with a copy of the Hub's interface on this machine."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import yaml

from molslice import from_pretrained, load_model
from molslice.inference.hub import hub_card
from molslice.types import MolsliceError
from tests.programs import ROOT

SAVED = ROOT / "tests" / "saved_models"
COMMIT = "c0ffee" * 6 + "c0ff"


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub's interface that one upload and one download use; files are in `server.files`."""

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def log_message(self, *_):
        pass

    def answer(self, content, code=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            return self.answer({"url": f"{self.address}/me/model", "name": "me/model"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            given = json.loads(content)["files"]
            files = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in given]
            return self.answer({"files": files})
        for line in content.decode().splitlines():
            change = json.loads(line)
            if change["key"] == "file":
                self.server.files[change["value"]["path"]] = base64.b64decode(change["value"]["content"])
        commit = f"{self.address}/me/model/commit/{COMMIT}"
        return self.answer({"commitUrl": commit, "commitOid": COMMIT, "success": True})

    def do_GET(self):
        if "/tree/" in self.path:
            sizes = {name: len(content) for name, content in self.server.files.items()}
            return self.answer(
                [{"type": "file", "path": name, "size": size, "oid": "0"} for name, size in sizes.items()]
            )
        if self.path.startswith("/api/models/me/model"):
            names = [{"rfilename": name} for name in self.server.files]
            return self.answer(
                {"id": "me/model", "sha": COMMIT, "siblings": names, "tags": [], "private": False}
            )
        name = self.path.partition(f"/resolve/{COMMIT}/")[2]
        if name not in self.server.files:
            return self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        content = self.server.files[name]
        return self.answer(content, X_Repo_Commit=COMMIT, ETag=f'"{hashlib.sha256(content).hexdigest()}"')

    do_HEAD = do_GET


@pytest.fixture
def hub():
    """A server on the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files = {}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


PROGRAM = """
import json, sys
from molslice import MolsliceError, from_pretrained, push_to_hub
model, cache = sys.argv[1:]
address = push_to_hub(model, "me/model", license="mit", token="hf_a")
loaded = from_pretrained("me/model", cache_dir=cache)
again = from_pretrained("me/model", cache_dir=cache, local_files_only=True)
try:
    from_pretrained("me/other", cache_dir=cache)
except MolsliceError as error:
    reason = str(error)
values = [each.predict(["CCO", "CC("]).tolist() for each in (loaded, again)]
print(json.dumps([address, values, reason]))
"""


@pytest.mark.parametrize("name", ["trained", "fit_encoder", "ensemble"])
def test_a_published_model_is_loaded_by_its_name(name, hub, tmp_path):
    here = f"http://127.0.0.1:{hub.server_port}"
    environment = {**os.environ, "HF_ENDPOINT": here, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(SAVED / name), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    address, values, reason = json.loads(done.stdout)
    expected = load_model(SAVED / name).predict(["CCO", "CC("])
    for found in values:
        np.testing.assert_array_equal(np.array(found, np.float32), expected)
    assert "commit" in address
    assert ("contain the descriptors and the measured values" in done.stderr) == (name == "fit_encoder")
    assert reason.startswith("cannot download me/other from the Hugging Face Hub: ")
    assert "\n" not in reason
    assert hub.files["README.md"].startswith(b"---\nlicense: mit\n")
    assert not {"rows.csv", "domain.json", "expected.json", "data.json"} & {*hub.files}


def front_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_the_card_has_license_data_and_metrics(tmp_path):
    card = hub_card(SAVED / "trained", "me/model", "apache-2.0")
    front = front_of(card)
    assert (front["license"], front["library_name"]) == ("apache-2.0", "molslice")
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"]["name"] == "measured.csv"
    summary = json.loads((SAVED / "trained" / "summary.json").read_text())
    assert result["metrics"] == [
        {"type": "mae", "value": summary["test"]["mae"]["gap"], "name": "MAE of gap (eV)"}
    ]
    assert 'from_pretrained("me/model")' in card
    fitted = hub_card(SAVED / "fit", "me/model", "mit")
    assert front_of(fitted)["model-index"][0]["results"][0]["metrics"][0]["name"] == "MAE of gap (eV)"
    assert "# Model fitted to few.csv" in fitted
    (tmp_path / "README.md").write_text(fitted)
    assert front_of(hub_card(SAVED / "softmax", "me/model", "mit"))["model-index"][0]["results"] == []


def test_the_card_of_an_ensemble_has_the_mean_error_of_its_members():
    (metric,) = front_of(hub_card(SAVED / "ensemble", "me/model", "mit"))["model-index"][0]["results"][0][
        "metrics"
    ]
    summaries = [SAVED / "ensemble" / "members" / name / "summary.json" for name in "01"]
    errors = [json.loads(file.read_text())["test"]["mae"]["gap"] for file in summaries]
    assert metric["value"] == pytest.approx(np.mean(errors))
    assert metric["name"] == "MAE of the members, mean, of gap (eV)"


def test_a_file_of_weights_stands_for_its_folder(monkeypatch):
    from molslice import push_to_hub

    class Api:
        def __init__(self, token):
            pass

        def create_repo(self, *_, **__):
            pass

        def upload_folder(self, folder_path, **_):
            return sorted(path.name for path in folder_path.iterdir())

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    sent = push_to_hub(SAVED / "softmax" / "model.safetensors", "me/model", license="mit")
    assert sent == "['README.md', 'config.yaml', 'model.safetensors']"


def test_the_library_of_the_hub_reads_the_card():
    from huggingface_hub import ModelCard

    for name in ("trained", "fit", "softmax"):
        data = ModelCard(hub_card(SAVED / name, "me/model", "mit")).data
        assert data.license == "mit"
        assert [each.metric_type for each in data.eval_results or ()] == (
            [] if name == "softmax" else ["mae"]
        )


def test_mixtures_are_treated_as_asked():
    assert from_pretrained("gap-xtb", fragment="largest").fragment == "largest"


def test_a_folder_and_a_shipped_model_need_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    expected = load_model(SAVED / "softmax").predict(["CCO"])
    np.testing.assert_array_equal(from_pretrained(SAVED / "softmax").predict(["CCO"]), expected)
    assert from_pretrained("gap-xtb").name == "gap-xtb"
    with pytest.raises(MolsliceError, match=r"needs huggingface_hub: pip install 'molslice\[hub\]'"):
        from_pretrained("me/model")
    for missing in ("nothing", "a/b/c", "../x", "/nowhere"):
        with pytest.raises(MolsliceError, match="no model"):
            from_pretrained(missing)


def test_an_invalid_repository_is_refused():
    from molslice import push_to_hub

    for repo in ("model", "a/b/c", "../x", "a/ b"):
        with pytest.raises(MolsliceError, match="invalid repository"):
            push_to_hub("gap-xtb", repo, license="mit")


def test_a_missing_library_is_found_before_the_model_is_copied(monkeypatch, caplog):
    from molslice import push_to_hub

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delattr("molslice.inference.hub.shutil.copyfile")
    needed = r"publishing me/model needs huggingface_hub: pip install 'molslice\[hub\]'"
    with pytest.raises(MolsliceError, match=needed):
        push_to_hub(SAVED / "fit", "me/model", license="mit")
    assert not caplog.messages
