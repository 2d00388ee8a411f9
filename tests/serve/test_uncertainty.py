"""Intervals and sets in the service, for models of `molslice fit`."""

import csv
import io

import pytest

from molslice import load_model, rank
from molslice.fitting.fit import fit
from molslice.serve import app as app_module
from molslice.serve.app import Service, build_app
from molslice.serve.worker import MOST_LEVELS, load_models
from tests.inference.models import embedded_smiles
from tests.serve.inline import InlineWorker
from tests.serve.test_file_jobs import finished, upload

pytestmark = pytest.mark.usefixtures("few_trees")
SMILES = ["CCO", "not one", "c1ccccc1"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Models of a number and of a class."""
    folder = tmp_path_factory.mktemp("fitted")
    rows = "".join(f"{text},{len(text)},{int(len(text) > 38)}\n" for text in embedded_smiles(60))
    (folder / "measured.csv").write_text("smiles,size,big\n" + rows)
    for target in ("size", "big"):
        fit(
            folder / "measured.csv", target, folder / target, members=2, encoder=None, refit=False, quiet=True
        )
    places = "".join(
        f"{text},{('short', 'middle', 'long')[(len(text) > 30) + (len(text) > 40)]}\n"
        for text in embedded_smiles(60)
    )
    (folder / "classes.csv").write_text("smiles,length\n" + places)
    options = {"members": 2, "encoder": None, "refit": False, "quiet": True}
    fit(folder / "classes.csv", "length", folder / "length", **options)
    return {target: str(folder / target) for target in ("size", "big", "length")}


@pytest.fixture
def client(fitted, model_folders, monkeypatch):
    from fastapi.testclient import TestClient

    monkeypatch.setattr(app_module, "WorkerProcess", InlineWorker)
    with TestClient(build_app(Service({**fitted, "first": model_folders["first"]}))) as client:
        yield client


def test_models_tell_whether_they_have_intervals(client):
    assert {model["name"]: model["intervals"] for model in client.get("/models").json()} == {
        "size": True,
        "big": True,
        "length": True,
        "first": False,
    }


def test_intervals_are_those_of_the_model(client, fitted):
    request = {"smiles": SMILES, "model": "size", "interval": 0.8}
    rows = client.post("/predict", json=request).json()["predictions"]
    wanted = load_model(fitted["size"]).predict_with_errors(SMILES, interval=0.8)
    assert wanted.lower is not None
    assert wanted.upper is not None
    assert wanted.spread is not None
    assert rows[1]["uncertainty"] is None
    for place in (0, 2):
        found = rows[place]["uncertainty"]
        assert found["lower"]["size"] == pytest.approx(wanted.lower[place, 0])
        assert found["upper"]["size"] == pytest.approx(wanted.upper[place, 0])
        assert found["spread"]["size"] == pytest.approx(wanted.spread[place, 0])
        assert found["lower"]["size"] < rows[place]["values"]["size"] < found["upper"]["size"]
        assert found["set"] is found["calibrated"] is None


def test_sets_are_those_of_the_model(client, fitted):
    request = {"smiles": SMILES, "model": "big", "interval": 0.8}
    rows = client.post("/predict", json=request).json()["predictions"]
    wanted = load_model(fitted["big"]).predict_with_errors(SMILES, interval=0.8)
    assert wanted.sets is not None
    assert wanted.calibrated is not None
    for place in (0, 2):
        found = rows[place]["uncertainty"]
        assert found["set"]["big"] == [label for label in (0, 1) if wanted.sets[place, 0, label]]
        assert found["calibrated"]["big"] == pytest.approx(wanted.calibrated[place, 0])
        assert found["lower"] is None


def test_several_classes_have_a_column_each_and_one_set(client, fitted):
    request = {"smiles": SMILES, "model": "length", "interval": 0.7}
    answer = client.post("/predict", json=request).json()
    columns = ["length_long", "length_middle", "length_short"]
    assert [target["column"] for target in answer["targets"]] == columns
    assert answer["targets"][0]["name"] == "length: long"
    assert {target["target"] for target in answer["targets"]} == {"length"}
    wanted = load_model(fitted["length"]).predict_with_errors(SMILES, interval=0.7)
    found = answer["predictions"][0]
    assert [found["values"][column] for column in columns] == pytest.approx(wanted.values[0].tolist())
    assert found["uncertainty"]["set"] == dict.fromkeys(columns, wanted.set_members(0)[0])
    assert found["uncertainty"]["calibrated"] is None
    assert found["classes"] == {"length": wanted.labels[0][0]}
    assert answer["predictions"][1]["values"] is None
    assert answer["predictions"][1]["classes"] is None


def test_nothing_is_added_unless_it_is_asked_for(client):
    rows = client.post("/predict", json={"smiles": "C", "model": "size"}).json()["predictions"]
    assert rows[0]["uncertainty"] is None


@pytest.mark.parametrize(
    ("model", "level", "reason"), [("first", 0.9, "first has no calibration"), ("size", 1.5, "interval")]
)
def test_an_interval_that_cannot_be_had_is_refused(client, model, level, reason):
    answer = client.post("/predict", json={"smiles": "C", "model": model, "interval": level})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


def test_the_nearest_training_molecule_is_that_of_the_model(client, fitted):
    nearest = embedded_smiles(60)[3]
    request = {"smiles": [nearest, "bad", "[U]"], "model": "size", "domain": True}
    near, bad, far = client.post("/predict", json=request).json()["predictions"]
    wanted = load_model(fitted["size"]).predict_with_errors(request["smiles"], domain=True).domain
    assert wanted is not None
    assert wanted[0] is not None
    assert near["domain"]["place"] == wanted[0].place
    assert [each["smiles"] for each in near["domain"]["neighbors"]] == [
        each.smiles for each in wanted[0].neighbors
    ]
    first = near["domain"]["neighbors"][0]
    assert first["similarity"] == wanted[0].nearest_similarity == 1
    assert first["measured"] == {"size": len(nearest)}
    assert bad["domain"] is None
    assert far["domain"]["place"] == "outside"
    assert "U" in far["domain"]["reason"]


def test_the_domain_is_there_only_in_the_requests_that_ask_for_it(client):
    """A predictor is kept for later requests."""
    for domain in (False, True, False, True):
        for interval in (None, 0.8, 0.5):
            request = {"smiles": ["CCO"], "model": "size", "domain": domain, "interval": interval}
            (row,) = client.post("/predict", json=request).json()["predictions"]
            assert (row["domain"] is not None) == domain
            assert (row["uncertainty"] is not None) == (interval is not None)


def test_intervals_of_a_level_are_those_of_that_level_after_others(client):
    def width(level):
        request = {"smiles": ["CCO"], "model": "size", "interval": level}
        found = client.post("/predict", json=request).json()["predictions"][0]["uncertainty"]
        return found["upper"]["size"] - found["lower"]["size"]

    levels = [0.5 + place / 50 for place in range(20)]  # more than are kept
    first = [width(level) for level in levels]
    assert [width(level) for level in levels] == first
    assert first[0] < first[-1]


def test_options_of_few_levels_are_kept(fitted):
    (model,) = load_models({"size": fitted["size"]}, "cpu").values()
    for place in range(2 * MOST_LEVELS):
        model.options(0.5 + place / 100, domain=False)
        assert model.options.cache_info().currsize <= MOST_LEVELS
    assert model.options(0.5, domain=False).level == 0.5


def test_a_model_without_training_molecules_refuses_to_compare(client):
    answer = client.post("/predict", json={"smiles": "C", "model": "first", "domain": True})
    assert answer.status_code == 422
    assert "training molecules" in answer.json()["detail"]


def test_what_cannot_be_explained_says_so(client):
    explained = {model["name"]: model["explanations"] for model in client.get("/models").json()}
    assert explained == {"size": True, "big": True, "length": True, "first": True}
    methods = {model["name"]: model["method"] for model in client.get("/models").json()}
    assert methods == {"size": "shapley", "big": "shapley", "length": "shapley", "first": "gradients"}
    answer = client.post("/explain", json={"smiles": "C", "model": "length", "method": "gradients"})
    assert answer.status_code == 422
    assert "use the method shapley" in answer.json()["detail"]


def test_a_class_of_several_is_explained_by_its_name_its_column_or_the_prediction(client):
    asked = {"smiles": "OCc1ccncc1", "model": "length"}
    (row,) = client.post("/predict", json=asked).json()["predictions"]
    columns = [column for column, value in row["values"].items() if isinstance(value, float)]
    best = max(columns, key=lambda column: row["values"][column])
    answers = {column: client.post("/explain", json={**asked, "target": column}).json() for column in columns}
    for column, answer in answers.items():
        assert answer["class"] == column.removeprefix("length_")
        assert answer["probability"] == pytest.approx(row["values"][column], abs=1e-6)
        by_name = client.post("/explain", json={**asked, "class": answer["class"]}).json()
        assert by_name["atoms"] == answer["atoms"]
    assert client.post("/explain", json=asked).json()["class"] == answers[best]["class"]


@pytest.mark.parametrize(("model", "reason"), [("length", "has no class 'huge'"), ("size", "is a number")])
def test_a_class_that_a_model_does_not_have_is_refused(client, model, reason):
    answer = client.post("/explain", json={"smiles": "CCO", "model": model, "class": "huge"})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


@pytest.mark.parametrize("model", ["size", "big"])
def test_what_is_explained_is_what_is_predicted(client, model):
    asked = {"smiles": "OCc1ccncc1", "model": model}
    (row,) = client.post("/predict", json={**asked, "interval": 0.9}).json()["predictions"]
    explanation = client.post("/explain", json=asked).json()
    assert explanation["headline"]["value"] == pytest.approx(row["values"][model], rel=1e-6)
    explained = explanation["baseline"] + sum(atom["contribution"] for atom in explanation["atoms"])
    if model == "size":
        assert explained == pytest.approx(row["values"][model], rel=1e-5)
        interval = explanation["headline"]["interval"]
        assert interval["lower"] == pytest.approx(row["uncertainty"]["lower"][model])
    else:
        assert explanation["probability"] == pytest.approx(row["values"][model], abs=1e-6)
        assert explained == pytest.approx(explanation["prediction"], abs=1e-6)
    assert {atom["group"] for atom in explanation["atoms"]} == {None, 0, 1, 2}


def test_a_file_gets_the_columns_of_its_intervals(client):
    job = upload(client, "smiles\nCCO\n", model="size", interval=0.8, domain=True).json()
    columns = finished(client, job)["columns"]
    assert columns[:4] == ["size", "size_lower", "size_upper", "size_spread"]
    assert set(columns[4:]) == {"domain", "domain_reason", "nearest_smiles", "nearest_similarity"}
    (row,) = csv.DictReader(io.StringIO(client.get(f"/files/{job['id']}/result").text))
    assert float(row["size_lower"]) < float(row["size"]) < float(row["size_upper"])


def test_the_probability_of_a_goal_is_that_of_rank(client, fitted):
    molecules = ["CCO", "C(", "c1ccccc1", "CCCCCCCCCCCCCCCCCCCCCCCCCCCC", "CCN"]
    goal = "size > 20"
    request = {"smiles": molecules, "model": "size", "goals": [goal]}
    rows = client.post("/predict", json=request).json()["predictions"]
    ranking = rank(fitted["size"], molecules, goal, diverse=3)
    wanted = ranking.scores.probability
    assert rows[1]["probability"] is None
    assert [row["probability"] for row in rows if row["probability"] is not None] == pytest.approx(
        [float(value) for value in wanted if value == value]
    )
    assert {str(row["uncertainty"]) for row in rows} == {"None"}  # not asked for
    request = {"smiles": molecules, "scores": [row["probability"] or 0 for row in rows], "number": 3}
    choices = client.post("/choose", json={**request, "model": "size"}).json()["choices"]
    chosen = sorted((choice["rank"], place) for place, choice in enumerate(choices) if choice)
    assert [place for _, place in chosen] == ranking.order.tolist()
    similarities = [choices[place]["similarity"] for place in ranking.order]
    assert ranking.similarities is not None
    assert similarities == pytest.approx(ranking.similarities.tolist())


@pytest.mark.parametrize(
    ("goal", "notes"),
    [
        ("size > 20", []),
        ("size > 1e6", ["no training value meets size > 1e6; they are from "]),
    ],
)
def test_a_goal_that_no_training_value_meets_has_a_note(client, goal, notes):
    request = {"smiles": ["CCO", "CC"], "model": "size", "goals": [goal]}
    answer = client.post("/predict", json=request).json()
    assert [note.startswith(start) for note, start in zip(answer["notes"], notes, strict=True)] == [
        True
    ] * len(notes)
    assert "notes" not in answer["predictions"][0]
    assert client.post("/predict", json={"smiles": "CCO", "model": "size"}).json()["notes"] == []


@pytest.mark.parametrize(
    ("model", "goals", "reason"),
    [
        ("size", ["size >"], "invalid goal"),
        ("size", ["length > 1"], "no target 'length'"),
        ("size", [], "goals"),
        ("first", ["gap > 1"], "first"),
    ],
)
def test_a_goal_that_does_not_fit_is_refused(client, model, goals, reason):
    answer = client.post("/predict", json={"smiles": "CCO", "model": model, "goals": goals})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


def test_a_choice_needs_a_score_for_each_molecule(client):
    answer = client.post("/choose", json={"smiles": ["CCO", "C"], "scores": [1.0], "number": 1})
    assert (answer.status_code, answer.json()["detail"]) == (422, "2 molecules and 1 scores")
    request = {"smiles": ["CCO", "OCC", "C("], "scores": [0.5, 1.0, 9.0], "number": 5, "model": "size"}
    choices = client.post("/choose", json=request).json()["choices"]
    assert choices == [None, {"rank": 1, "similarity": 0.0}, None]  # one molecule twice, and no molecule
