"""Settings that are chosen by cross-validation: the search, the model, the log and what is written."""

import csv
import json
from typing import Any

import numpy as np
import pytest

from molslice.cli import main
from molslice.estimators import MolsliceRegressor
from molslice.fitting import tuning
from molslice.fitting.card import describe_tuning, tuning_note
from molslice.fitting.fit import fit
from molslice.fitting.quality import EMBEDDING, QUALITIES
from molslice.folders.fitted import CARD
from molslice.inference.load import load_model
from molslice.learners import Features
from molslice.learners.extra_trees import ExtraTrees
from molslice.learners.gaussian_process import GaussianProcess
from molslice.learners.similarities import LEAST_NOISE
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles

pytestmark = pytest.mark.usefixtures("few_trees", "few_settings")

ROWS, HELD_OUT = 60, 12
OPTIONS: dict[str, Any] = {"members": 2, "encoder": None, "quality": "fast", "split": "all", "quiet": True}
HOLDING_OUT = {**OPTIONS, "split": "part"}
LONG = 1_000.0  # minutes, so that all settings are tried
FITS = 5  # of learners in the trials of `few_settings`
LOG = "model.trials.jsonl"


@pytest.fixture
def few_settings(monkeypatch):
    """The first settings are bad, and the best ones are the defaults of the learners."""
    trees, process = {"least_rows": (10, 1, 20)}, {"least_noise": (20.0, LEAST_NOISE)}
    monkeypatch.setattr(ExtraTrees, "choices", lambda *, classes: trees)
    monkeypatch.setattr(GaussianProcess, "choices", lambda *, classes: process)


@pytest.fixture(scope="module")
def rows():
    """SMILES, a target that is easy to learn, its class, its limit, and the part of the split."""
    smiles = embedded_smiles(ROWS)
    size = [len(text) + 3.0 * text.count("N") for text in smiles]
    middle = sorted(size)[ROWS // 2]
    return [
        [
            text,
            value,
            int(value > middle),
            f">{middle}" if value > 1.2 * middle else value,
            "low" if value < 0.8 * middle else "high" if value > 1.2 * middle else "medium",
            "test" if row < HELD_OUT else "train",
        ]
        for row, (text, value) in enumerate(zip(smiles, size, strict=True))
    ]


def write_table(place, rows):
    file = place / "measured.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([("smiles", "size", "big", "limited", "word", "part"), *rows])
    return file


@pytest.fixture
def table(rows, tmp_path):
    return write_table(tmp_path, rows)


def counted(monkeypatch, stop_after=None):
    """Count the fits of learners in trials, and interrupt the next one after some."""
    calls, original = [], tuning.fit_learner

    def fit_learner(name, *args, **options):
        if len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append(name)
        return original(name, *args, **options)

    monkeypatch.setattr(tuning, "fit_learner", fit_learner)
    return calls


def without_seconds(trials):
    return [{key: value for key, value in trial.items() if key != "seconds"} for trial in trials]


def test_the_best_settings_are_chosen_and_used(table, tmp_path):
    tuned = fit(table, "size", tmp_path / "tuned", tune=LONG, refit=True, **HOLDING_OUT)
    plain = fit(table, "size", tmp_path / "plain", refit=True, **HOLDING_OUT)
    trials = tuned["tuning"]
    assert len(trials) == FITS - 1  # both learners with their first settings are one trial
    errors = [trial["cross_validated"] for trial in trials]
    assert trials[0]["settings"] == {
        "extra_trees": {"least_rows": 10},
        "gaussian_process": {"least_noise": 20.0},
    }
    chosen = [trial for trial in trials if trial["chosen"]]
    assert {"gaussian_process": {"least_noise": LEAST_NOISE}} in [one["settings"] for one in chosen]
    assert {"extra_trees": {"least_rows": 1}} in [one["settings"] for one in chosen]
    assert chosen[-1]["cross_validated"] == min(errors) < errors[0]
    assert all(trial["standard_error"] > 0 and trial["seconds"] >= 0 for trial in trials)
    # the chosen settings are the defaults of a plain fit, so that the models are equal
    assert tuned["results"] == plain["results"]
    smiles = embedded_smiles(80)[60:]
    models = [load_model(tmp_path / name) for name in ("tuned", "plain")]
    np.testing.assert_array_equal(*(model.predict(smiles) for model in models))
    assert "tuning" not in plain
    assert "tune" not in plain["options"]
    assert tuned["options"]["tune"] == LONG
    assert not (tmp_path / "tuned.trials.jsonl").exists()


@pytest.mark.parametrize("target", ["size", "big", "limited", "word"])
def test_the_first_trial_is_the_fit_without_tuning(table, tmp_path, target, monkeypatch):
    monkeypatch.setattr(ExtraTrees, "choices", lambda *, classes: {"least_rows": (3 if classes else 1,)})
    monkeypatch.setattr(GaussianProcess, "choices", lambda *, classes: {"prior": (0.05, 0.5)})
    tuned = fit(table, target, tmp_path / "tuned", tune=LONG, **OPTIONS)
    plain = fit(table, target, tmp_path / "plain", **OPTIONS)
    first, result = tuned["tuning"][0], plain["results"][0]
    # limits need the Gaussian process first, and another order of the learners rounds differently
    assert first["cross_validated"] == pytest.approx(result["cross_validated"], rel=1e-9)
    assert first["standard_error"] == pytest.approx(result["standard_errors"]["cross_validated"], rel=1e-9)
    assert len(tuned["tuning"]) == 2


def test_held_out_values_change_no_trial(rows, tmp_path):
    """Other values of the held-out rows give the same trials, and another error on these rows."""
    changed = [
        [text, 50.0 - value, *more] if more[-1] == "test" else [text, value, *more]
        for text, value, *more in rows
    ]
    records = []
    for name, given in (("one", rows), ("other", changed)):
        (tmp_path / name).mkdir()
        file = write_table(tmp_path / name, given)
        records.append(fit(file, "size", tmp_path / name / "m", tune=LONG, **HOLDING_OUT))
    assert without_seconds(records[0]["tuning"]) == without_seconds(records[1]["tuning"])
    assert records[0]["results"][0]["test"] != records[1]["results"][0]["test"]


def test_finished_trials_are_not_repeated(table, tmp_path, monkeypatch):
    whole = fit(table, "size", tmp_path / "whole", tune=LONG, **OPTIONS)
    with monkeypatch.context() as patch:
        counted(patch, stop_after=3)
        with pytest.raises(KeyboardInterrupt, match="the same command continues"):
            fit(table, "size", tmp_path / "model", tune=LONG, **OPTIONS)
    assert not (tmp_path / "model").exists()
    log = tmp_path / LOG
    assert len(log.read_text().splitlines()) == 1 + 3
    log.write_text(log.read_text()[:-9])  # killed while the third line was written
    calls = counted(monkeypatch)
    about = fit(table, "size", tmp_path / "model", tune=2 * LONG, **OPTIONS)
    assert len(calls) == FITS - 2
    assert without_seconds(about["tuning"]) == without_seconds(whole["tuning"])
    assert about["results"] == whole["results"]
    assert not log.exists()


@pytest.mark.parametrize("change", [{"seed": 1}, {"members": 3}, {"duplicates": "keep"}])
def test_trials_of_another_fit_are_not_used(table, tmp_path, monkeypatch, change):
    with monkeypatch.context() as patch:
        counted(patch, stop_after=3)
        with pytest.raises(KeyboardInterrupt):
            fit(table, "size", tmp_path / "model", tune=LONG, **OPTIONS)
    calls = counted(monkeypatch)
    fit(table, "size", tmp_path / "model", tune=LONG, **OPTIONS | change)
    assert len(calls) == FITS


def test_a_changed_table_has_other_trials(table, rows, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        counted(patch, stop_after=3)
        with pytest.raises(KeyboardInterrupt):
            fit(table, "size", tmp_path / "model", tune=LONG, **OPTIONS)
    write_table(tmp_path, [[*rows[0][:1], rows[0][1] + 1, *rows[0][2:]], *rows[1:]])
    calls = counted(monkeypatch)
    fit(table, "size", tmp_path / "model", tune=LONG, **OPTIONS)
    assert len(calls) == FITS


def test_limits_are_completed_by_the_first_trial_of_the_process(table, tmp_path, monkeypatch):
    """No other process is fitted, an interruption says how to continue, and what ends is kept."""
    processes, original = [], GaussianProcess.fit_and_complete
    monkeypatch.setattr(
        GaussianProcess,
        "fit_and_complete",
        lambda *arguments, **options: processes.append(1) or original(*arguments, **options),
    )
    whole = fit(table, "limited", tmp_path / "whole", tune=LONG, **OPTIONS)
    assert len(processes) == 2 + 1  # two trials, and the fit with the chosen settings
    for stop_after in (0, 1):
        with monkeypatch.context() as patch:
            counted(patch, stop_after)
            with pytest.raises(KeyboardInterrupt, match="the same command continues"):
                fit(table, "limited", tmp_path / "model", tune=LONG, **OPTIONS)
    calls = counted(monkeypatch)
    about = fit(table, "limited", tmp_path / "model", tune=LONG, **OPTIONS)
    assert len(calls) == FITS  # the process again, because the log does not keep completed limits
    assert without_seconds(about["tuning"]) == without_seconds(whole["tuning"])


def test_an_error_is_optimistic_only_if_settings_were_chosen():
    trial = {"target": "y", "settings": {"a": {"b": 1}}, "cross_validated": 1.0, "standard_error": 0.1}
    trials = [{**trial, "chosen": True}]
    record: dict[str, Any] = {"results": [{"target": "y", "metric": "mae"}], "tuning": trials}
    record["rows"] = {"test": 12}
    assert tuning_note(record) == ""
    assert len(describe_tuning(record)) == 1
    trials.append({**trials[0], "settings": {"a": {"b": 2}}})
    assert tuning_note(record).endswith("optimistic. The held-out rows were not used.")
    assert describe_tuning(record)[1:] == [tuning_note(record)]
    record["rows"]["test"] = 0
    assert tuning_note(record).endswith("optimistic.")


def test_without_time_the_model_has_the_defaults(table, tmp_path):
    about = fit(table, "size", tmp_path / "model", tune=1e-9, **OPTIONS)
    assert about["tuning"] == []
    assert describe_tuning(about) == [
        "size: not tuned, because the learners with their defaults took all the time"
    ]


def test_a_slow_learner_is_left_out(table, tmp_path, monkeypatch):
    """A trial that is expected to end too late is left out; the others are not."""
    seconds = {"extra_trees": 10.0, "gaussian_process": 1.0}
    original = tuning.TrialLog.add

    def add(self, name, unseen, _):
        original(self, name, unseen, seconds[json.loads(name)[1]])

    monkeypatch.setattr(tuning.TrialLog, "add", add)
    about = fit(table, "size", tmp_path / "model", tune=14.0 / 60.0, **OPTIONS)
    learners = [list(trial["settings"]) for trial in about["tuning"]]
    assert learners == [["extra_trees", "gaussian_process"], ["gaussian_process"]]
    assert [trial["seconds"] for trial in about["tuning"]] == [11.0, 1.0]


def test_each_target_has_its_own_settings(table, tmp_path):
    about = fit(table, ["size", "limited"], tmp_path / "model", tune=LONG, limits="drop", **OPTIONS)
    assert [trial["target"] for trial in about["tuning"]] == ["size"] * 4 + ["limited"] * 4
    assert [text.partition(":")[0] for text in describe_tuning(about)[:2]] == ["size", "limited"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": 0}, "tune must be a positive number, got 0"),
        ({"tune": "5"}, "tune must be a positive number, got '5'"),
        ({"tune": 5, "minutes": 4.0}, "tune must be less than the 4 minutes of the whole fit, got 5"),
    ],
)
def test_wrong_times_are_refused(table, tmp_path, options, message):
    with pytest.raises(MolsliceError, match=message):
        fit(table, "size", tmp_path / "model", **OPTIONS, **options)
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


def test_the_command_says_what_tuning_changed(table, tmp_path, capsys):
    folder = tmp_path / "model"
    command = ["fit", str(table), "--target", "size", "--quality", "fast", "--members", "2", "--no-encoder"]
    command += ["--split", "all"]
    assert main([*command, "--tune", "100", "--out", str(folder)]) == 0
    said = capsys.readouterr().err
    assert "tuning takes up to 100 minutes" in said
    assert "size: 4 trials; extra trees (least rows 1) improved the cross-validated MAE from" in said
    card = (folder / CARD).read_text()
    assert "| size | 4 | " in card
    assert "this error is optimistic" in card
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(page)]) == 0
    text = page.read_text()
    assert "MAE with defaults" in text
    assert "--tune 100" in text
    assert main([*command, "--tune", "-1", "--out", str(tmp_path / "other")]) == 2


def test_an_estimator_is_tuned(rows):
    smiles, sizes = [row[0] for row in rows], [row[1] for row in rows]
    model = MolsliceRegressor(encoder=None, quality="fast", members=2, tune=LONG, random_state=0).fit(
        smiles, sizes
    )
    assert len(model.about_["tuning"]) == FITS - 1


def test_settings_are_drawn_without_repetition():
    choices = {"one": (1, 2, 3), "other": (0.1, 0.2), "third": tuple(range(20))}
    drawn = tuning.draw_settings(choices, 0)
    assert drawn[0] == {"one": 1, "other": 0.1, "third": 0}
    assert len({json.dumps(one) for one in drawn}) == len(drawn) == tuning.MAX_TRIALS
    assert drawn == tuning.draw_settings(choices, 0) != tuning.draw_settings(choices, 1)
    assert tuning.draw_settings({}, 0) == [{}]


def test_the_embedding_is_a_setting_of_each_learner():
    plain = Features(np.zeros((3, 2)), np.zeros((3, 4), np.uint8))
    embedded = Features(plain.descriptors, plain.counts, np.ones((3, 5), np.float32))
    good = QUALITIES["good"]
    assert EMBEDDING not in good.choices("boosting", plain, classes=False)
    assert good.choices("boosting", embedded, classes=False)[EMBEDDING] == (False, True)
    assert good.choices("extra_trees", embedded, classes=False)[EMBEDDING] == (True, False)
    assert good.features_of("boosting", embedded, {}).embedding is None
    assert good.features_of("boosting", embedded, {EMBEDDING: True}).embedding is not None
    assert good.features_of("extra_trees", embedded, {EMBEDDING: False}).embedding is None
