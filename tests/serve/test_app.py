import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from molslice import explain, load_model
from molslice.inference.domain import DOMAIN
from molslice.serve import worker
from molslice.serve.app import STATIC
from molslice.serve.schemas import PredictRequest
from molslice.serve.worker import load_models
from tests.inference.models import checkpoint_folder
from tests.serve.test_file_jobs import finished, upload

MEGABYTE = "C" * 1_000_000


def predict(client, smiles, **more):
    return client.post("/predict", json={"smiles": smiles, **more})


def test_predictions_are_those_of_the_model(client, model_folders):
    answer = predict(client, ["CCO", "not one", "c1ccccc1"], model="second").json()
    assert answer["model"] == "second"
    assert answer["targets"] == [
        {"name": "gap", "target": "gap", "unit": "eV", "kind": "regression", "column": "gap_eV"},
        {"name": "logp", "target": "logp", "unit": "", "kind": "regression", "column": "logp"},
    ]
    rows = answer["predictions"]
    assert [row["smiles"] for row in rows] == ["CCO", "not one", "c1ccccc1"]
    assert rows[1] == {
        "smiles": "not one",
        "values": None,
        "classes": None,
        "uncertainty": None,
        "domain": None,
        "error": "text after the SMILES: 'one'; give the SMILES alone",
    }
    wanted = load_model(model_folders["second"]).predict(["CCO", "c1ccccc1"])
    for row, values in zip((rows[0], rows[2]), wanted, strict=True):
        assert row["error"] is None
        assert list(row["values"].values()) == pytest.approx(values, rel=1e-5)


def test_one_molecule_is_one_row_and_the_first_model_is_the_default(client):
    answer = predict(client, "CCO").json()
    assert answer["model"] == "first"
    assert [row["smiles"] for row in answer["predictions"]] == ["CCO"]
    assert predict(client, []).json()["predictions"] == []


def test_numbers_have_the_shortest_digits_of_their_precision(client, model_folders):
    row = predict(client, "CCO").json()["predictions"][0]
    (value,) = load_model(model_folders["first"]).predict("CCO")
    assert str(row["values"]["gap_eV"]) == str(value)


def test_models_and_health(client):
    models = client.get("/models").json()
    assert [model["name"] for model in models] == ["first", "second"]
    assert [(model["explanations"], model["domain"]) for model in models] == [(True, False)] * 2
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"smiles": 3}, "valid string"),
        ({"smiles": ["C", None]}, "valid string"),
        ({}, "smiles: Field required"),
        ({"smiles": "C", "modle": "x"}, "modle: Extra inputs"),
        ({"smiles": "C", "model": 1}, "model"),
    ],
)
def test_an_invalid_request_is_refused_in_one_line(client, body, reason):
    answer = client.post("/predict", json=body)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


def test_a_condition_may_be_true_or_false():
    body = PredictRequest.model_validate(
        {"smiles": "C", "conditions": {"wet": True, "kelvin": 1, "acid": "a"}}
    )
    assert [*map(repr, body.conditions.values())] == ["True", "1.0", "'a'"]


def test_an_unknown_model_names_the_others(client):
    answer = predict(client, "C", model="third")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "no model 'third'; the models are first, second"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"smiles": "\xff\xfe"}', "application/json", 400),  # broken UTF-8
        (b'{"smiles": ' + b"[" * 100_000, "application/json", 422),  # deep
        (b"[" * 100_000 + b"]" * 100_000, "application/json", 400),
        (b"not JSON", "application/json", 422),
        (b'{"smiles": "C"}', "text/plain", 422),
        (b"", "application/json", 422),
    ],
)
def test_a_body_that_is_no_json_is_refused(client, content, kind, status):
    answer = client.post("/predict", content=content, headers={"content-type": kind})
    assert answer.status_code in {status, 400, 422}
    assert len(answer.json()["detail"]) <= 1_000


@pytest.mark.parametrize("text", ["\ud800", "C\0C", "C\nC", "<script>alert(1)</script>", "", " ", "😀", "٣"])
def test_any_text_gets_a_row_with_a_reason(client, text):
    answer = client.post(
        "/predict", content=json.dumps({"smiles": [text, "C"]}), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    bad, good = json.loads(answer.content)["predictions"]
    assert bad["smiles"] == text
    assert bad["values"] is None
    assert bad["error"]
    assert good["error"] is None


def test_a_smiles_of_a_megabyte_gets_a_reason(client):
    rows = predict(client, [MEGABYTE, "C"]).json()["predictions"]
    assert rows[0]["error"] == "SMILES of 1000000 characters, more than 100000"
    assert rows[1]["error"] is None
    assert client.get("/draw", params={"smiles": MEGABYTE[:20_000]}).status_code == 422


@pytest.mark.parametrize("method", ["gradients", "shapley"])
def test_explanations_are_those_of_the_model(client, model_folders, method):
    request = {"smiles": "OCC", "model": "second", "target": "logp", "method": method}
    found = client.post("/explain", json=request).json()
    wanted = explain(model_folders["second"], "OCC", method=method, target="logp").to_dict()
    assert [atom["element"] for atom in found["atoms"]] == ["O", "C", "C"]
    for atom, other in zip(found["atoms"], wanted["atoms"], strict=True):
        assert atom["contribution"] == pytest.approx(other["contribution"], abs=1e-4)
    assert found["prediction"] == pytest.approx(wanted["prediction"], rel=1e-5)
    assert (found["model"], found["target"], found["method"]) == ("second", "logp", method)
    ElementTree.fromstring(found["svg"])


def test_a_model_without_gradients_is_explained_by_shapley_values(tmp_path):
    model = {"name": "gin_virtual", "num_layers": 2, "dim": 8}
    folder = checkpoint_folder(tmp_path / "gin", model=model)
    served = load_models({"gin": str(folder)}, "cpu")["gin"]
    assert (served.method, served.describe()["explanations"]) == ("shapley", True)


def test_errors_name_the_model_and_not_its_folder(tmp_path):
    folder = checkpoint_folder(tmp_path / "gin", model={"name": "gin_virtual", "num_layers": 2, "dim": 8})
    (folder / DOMAIN).write_text("{")
    (tmp_path / "link").symlink_to(tmp_path)
    models = load_models({"gin": f"{tmp_path}/link/gin/"}, "cpu")
    asked = [("predict", {"smiles": ["C"], "domain": True})]
    asked.append(("explain", {"smiles": ["C"], "method": "gradients", "target": None}))
    for task, options in asked:
        state, reason = worker.answer(models, task, {"model": "gin", **options}, lambda _: None)
        assert state == "failed"
        assert "gin" in reason
        assert str(tmp_path) not in reason


def test_an_explanation_that_cannot_be_had_is_refused(client):
    for body, reason in [
        ({"smiles": "(("}, "cannot read the SMILES '(('"),
        ({"smiles": "C", "target": "x"}, "no target 'x'"),
        ({"smiles": "C", "method": "attention"}, "method"),
        ({"smiles": ["C"]}, "smiles"),
    ]:
        answer = client.post("/explain", json=body)
        assert answer.status_code == 422
        assert reason in answer.json()["detail"]
    assert client.post("/explain", json={"smiles": "C", "model": "x"}).status_code == 404


def test_the_picture_of_an_explanation_contains_no_text_of_the_molecule(client):
    attack = "CC |$<script>alert(1)</script>;&\"'$|"
    answer = client.post("/explain", json={"smiles": attack})
    assert answer.status_code == 200
    assert "script" not in answer.json()["svg"]


def test_explanations_have_a_queue_of_their_own(serve):
    client = serve(explanations_waiting=0)
    assert client.post("/explain", json={"smiles": "C"}).status_code == 429
    assert predict(client, "C").status_code == 200


def test_limits_of_count_and_size(serve):
    client = serve(molecules=3, body_bytes=1_000)
    assert predict(client, ["C"] * 3).status_code == 200
    assert predict(client, ["C"] * 4).json() == {"detail": "4 molecules, more than 3; upload them as a file"}
    assert predict(client, ["C"] * 4).status_code == 413
    answer = predict(client, "C" * 2_000)
    assert answer.status_code == 413
    assert answer.json() == {"detail": "the request has more than 1,000 bytes"}
    assert answer.headers["connection"] == "close"
    pieces = client.post("/predict", content=(b"C" * 600 for _ in range(3)))  # without a stated length
    assert pieces.status_code == 413


def test_a_full_queue_is_answered_with_429(serve):
    answer = predict(serve(waiting=1), ["C", "C"])
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert "the queue is full" in answer.json()["detail"]


def test_a_drawing_contains_no_text_of_the_molecule(client):
    answer = client.get("/draw", params={"smiles": "CC |$<script>alert(1)</script>;&\"'$|"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/svg+xml"
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(answer.content).iter()}
    assert tags <= {"svg", "path", "rect", "ellipse", "defs", "g"}
    assert b"script" not in answer.content


def test_the_theme_changes_the_colors_of_a_drawing(client):
    light, dark = (
        client.get("/draw", params={"smiles": "CCO", "theme": theme}) for theme in ("light", "dark")
    )
    assert light.content != dark.content
    assert client.get("/draw", params={"smiles": "CCO", "theme": "red"}).status_code == 422
    assert client.get("/draw", params={"smiles": "(("}).json() == {
        "detail": "not valid SMILES: no atom before '(' at position 1"
    }


def test_the_page_and_its_files_load_nothing_from_another_host(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert linked
    for link in linked:
        assert re.match(r"/(?!/)|#|https://github\.com/cheminfo/openchemlib-js$", link), link
        if link.startswith("/static"):
            assert client.get(link).status_code == 200, link
    own = [STATIC / "page.css", *STATIC.glob("*.js")]
    assert not [
        path.name for path in own if re.search(r"(?:https?:)?//[a-z]", path.read_text(encoding="utf-8"))
    ]


def test_there_are_no_pages_from_another_host(client):
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
    assert client.get("/openapi.json").json()["info"]["title"] == "molslice"


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
def test_no_other_file_is_served(client, path):
    assert client.get(path).status_code == 404


def test_headers_of_all_answers(client):
    for answer in (client.get("/"), client.get("/nothing"), predict(client, 3), client.get("/metrics")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_other_sites_cannot_use_the_service(serve):
    client = serve(hosts=("localhost", "::1"))
    own, others = {"host": "localhost:8000"}, {"host": "evil.example"}
    assert client.get("/models", headers=own).status_code == 200
    assert client.get("/models", headers={"host": "[::1]:8000"}).status_code == 200
    assert client.get("/models", headers=others).status_code == 403
    for origin, status in [("http://localhost:8000", 200), ("http://evil.example", 403), ("null", 403)]:
        answer = client.post("/predict", json={"smiles": "C"}, headers={**own, "origin": origin})
        assert answer.status_code == status, origin


def test_metrics_count_requests_and_molecules(client):
    predict(client, ["C", "("])
    predict(client, 3)
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'molslice_requests_total{path="/predict",status="200"} 1.0',
        'molslice_requests_total{path="/predict",status="422"} 1.0',
        'molslice_molecules_total{model="first",outcome="predicted"} 1.0',
        'molslice_molecules_total{model="first",outcome="failed"} 1.0',
        "molslice_batch_molecules_sum 2.0",
        "molslice_waiting_molecules 0.0",
        "molslice_worker_starts_total 1.0",
    ):
        assert line in lines


def test_metrics_follow_the_conventions_of_prometheus(client):
    predict(client, "C")
    client.get("/metrics")  # counts the request for metrics
    units = ("seconds", "bytes", "molecules", "requests", "starts")
    for family in text_string_to_metric_families(client.get("/metrics").text):
        assert family.name.startswith("molslice_")
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert family.name.removesuffix("_created").endswith(units), family.name
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples)


def test_the_document_describes_everything(client):
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert operation["description"], path
            assert all(answer["description"] for answer in operation["responses"].values()), path
            assert {"400", "403"} <= operation["responses"].keys(), path
            assert all(each["description"] for each in operation.get("parameters", [])), path
            if method == "post":
                assert {"408", "413", "422", "429"} <= operation["responses"].keys(), path
            for code, answer in operation["responses"].items():
                if code >= "400" and (path, code) != ("/health", "503"):
                    content = answer["content"]["application/json"]["schema"]
                    assert content == {"$ref": "#/components/schemas/Problem"}, (path, code)
    for name, schema in document["components"]["schemas"].items():
        if name not in ("HTTPValidationError", "ValidationError"):  # of the framework, not used
            assert schema["description"], name
            assert all("description" in field for field in schema["properties"].values()), name


def test_a_hundred_thousand_molecules_are_refused_at_once(client):
    answer = predict(client, ["C"] * 100_000)
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "100000 molecules, more than 1000; upload them as a file",
    )


def test_no_other_host_is_asked(client, monkeypatch):
    asked = []
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(f"socket.socket.{name}", lambda self, address: asked.append(address))
    monkeypatch.setattr("socket.getaddrinfo", lambda *arguments, **options: asked.append(arguments))
    assert predict(client, ["CCO", "bad"]).json()["failed"] == 1
    assert client.post("/explain", json={"smiles": "CCO"}).status_code == 200
    assert client.get("/draw", params={"smiles": "CCO"}).status_code == 200
    job = upload(client).json()
    assert finished(client, job)["state"] == "done"
    for path in ("/", "/models", "/limits", "/health", "/metrics", "/openapi.json"):
        assert client.get(path).status_code == 200
    assert asked == []
