"""Tests of plans, runs, results and tables of training."""

import json

import pytest
import yaml

from molslice.bench import rounds as module
from molslice.bench import training as planning
from molslice.bench.molecules import Molecules
from molslice.bench.training import (
    MODELS,
    TrainEntry,
    TrainPlan,
    TrainResult,
    find_peak,
    plan_entries,
    run_training_bench,
)
from molslice.types import MolsliceError
from tests.bench.training_jobs import answer, config, store
from tests.programs import ROOT

KEY = ("slim", "softmax", "32")
RESULT = TrainResult.FILE


@pytest.fixture
def worker(monkeypatch):
    """Answer instead of a process, and record the requests."""

    class Worker:
        def __init__(self):
            self.asked, self.answers = [], {}

        def __call__(self, job):
            name = job.config["attention"]["name"]
            self.asked.append((job.config["model"]["dim"], job.config["seed"], name, job.counts_flops))
            found = self.answers.get(name, answer())
            if isinstance(found, BaseException):
                raise found
            return found

    worker = Worker()
    monkeypatch.setattr(module, "run_job", worker)
    return worker


@pytest.fixture
def source(tmp_path):
    return Molecules(store=store(tmp_path / "store", [2, 3]).path)


def plan(models=("quickstart", "slim"), attentions="softmax,flow", **changes):
    return TrainPlan(plan_entries(models, attentions), **{"threads": 1, "rounds": 2, **changes})


def test_entries_take_turns_in_every_round_of_a_model(worker, source):
    result = run_training_bench(plan(), source)
    assert worker.asked == [
        (dim, seed, name, seed == 0) for dim in (64, 80) for seed in (0, 1) for name in ("softmax", "flow")
    ]
    assert [row.outcome for row in result.rows()] == ["ok"] * 4


def test_a_measurement_takes_five_seconds_by_default():
    default, short = plan(["slim"], "softmax"), plan(["slim"], "softmax", seconds=0.5)
    assert [next(one.tasks("store")).job.seconds for one in (default, short)] == [5.0, 0.5]


def test_the_time_limit_is_given_to_the_job_and_is_no_condition():
    limited = plan(["slim"], "softmax", timeout=7.0)
    assert next(limited.tasks("store")).job.timeout == 7.0
    assert limited.conditions() == plan(["slim"], "softmax").conditions()


def test_quickstart_is_the_model_of_its_configuration():
    read = yaml.safe_load((ROOT / "configs" / "molecule" / "quickstart.yaml").read_text())
    assert read["model"] == MODELS["quickstart"]
    assert {name: read["training"][name] for name in planning.BATCHES["cpu"]} == planning.BATCHES["cpu"]
    large = yaml.safe_load((ROOT / "configs" / "molecule" / "pcqm4m_v2.yaml").read_text())["training"]
    assert {name: large[name] for name in planning.BATCHES["cuda"]} == planning.BATCHES["cuda"]


def test_models_attentions_and_precisions_are_combined():
    entries = plan_entries(["slim", "small"], None, ["32", "bf16"])
    assert len({entry.key for entry in entries}) == len(entries) == 2 * 2 * 4
    for entry in entries:
        assert entry.config.model.dim == {"slim": 80, "small": 512}[entry.model]
        assert entry.config.trainer.precision == entry.precision
        assert entry.config.attention.name == entry.attention


def test_a_configuration_is_measured_with_its_own_precision():
    file = ROOT / "configs" / "molecule" / "pcqm4m_v2.yaml"
    for precisions, expected in ((None, "bf16"), (["32"], "32")):
        (entry,) = plan_entries([], None, precisions, config=file)
        assert entry.precision == entry.config.trainer.precision == expected


def test_settings_change_the_configuration():
    (entry,) = plan_entries(["slim"], "flow", overrides=[("training.batch_size", "7"), ("model.dim", "16")])
    assert (entry.config.training.batch_size, entry.config.model.dim) == (7, 16)


def test_a_configuration_file_is_measured_with_its_attention():
    path = ROOT / "configs" / "molecule" / "gap_xtb.yaml"
    (entry,) = plan_entries([], config=path, overrides=[("attention.name", "flow")])
    assert (entry.model, entry.attention, entry.config.trainer.accelerator) == ("gap_xtb", "flow", "cpu")
    assert [one.attention for one in plan_entries([], "soft,mean", config=path)] == ["soft", "mean"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["frog"]}, "unknown model 'frog'; choices: base, quickstart"),
        ({"models": []}, "give at least one model"),
        ({"models": ["slim"], "precisions": []}, "give at least one precision"),
        ({"models": ["slim", "slim"]}, "'slim' is given twice"),
        ({"models": ["slim"], "precisions": ["8"]}, "'8'; choices: 32, bf16, bf16-weights, 16"),
        ({"models": ["slim"], "attentions": "frog"}, "unknown attention 'frog'"),
        ({"models": ["slim"], "device": "cuda:9"}, "cuda:9"),
        ({"models": ["slim"], "overrides": [("model.frog", "1")]}, "unknown key 'model.frog'"),
        ({"models": [], "config": ROOT / "configs" / "molecule" / "encoder_small.yaml"}, "only molecule"),
    ],
)
def test_bad_plans_are_refused(arguments, message):
    with pytest.raises(MolsliceError, match=message):
        plan_entries(**arguments)


def test_a_second_call_continues(worker, source, tmp_path):
    worker.answers["flow"] = KeyboardInterrupt()
    result = run_training_bench(plan(), source, tmp_path / "out")
    assert result.interrupted
    assert "| slim       |      flow |        32 |" in result.to_markdown()
    assert "Interrupted" in result.to_markdown()
    worker.answers.clear()
    worker.asked.clear()
    result = run_training_bench(plan(), source, tmp_path / "out")
    assert not result.interrupted
    assert len(worker.asked) == 7
    kept = json.loads((tmp_path / "out" / RESULT).read_text())
    assert kept == json.loads(json.dumps(result.to_mapping()))
    assert (tmp_path / "out" / "table.md").read_text() == result.to_markdown()
    for changes in ({"threads": 2}, {"settings": {"training.batch_size": "8"}}):
        with pytest.raises(MolsliceError, match=next(iter(changes))):
            run_training_bench(plan(**changes), source, tmp_path / "out")


def test_an_entry_without_numbers_is_not_repeated(worker, source):
    worker.answers["flow"] = {"outcome": "OOM", "reason": "no memory"}
    told = []
    result = run_training_bench(plan(["slim"]), source, tell=told.append)
    assert [row.outcome for row in result.rows()] == ["ok", "OOM"]
    assert [one[2] for one in worker.asked] == ["softmax", "flow", "softmax"]
    assert told == ["slim flow 32: OOM, no memory"]
    assert "- slim `flow` in 32: OOM, no memory" in result.to_markdown()
    assert result.failures() == {}


def test_a_row_has_medians_and_shares():
    rounds = [
        module.Measurement(KEY, number, "ok", None, answer(seconds))
        for number, seconds in enumerate((2.0, 4.0, 1.0))
    ]
    result = TrainResult(conditions={}, machine={}, entries=[KEY], peaks={"32": 1e10}, measurements=rounds)
    numbers = result.rows()[0].numbers
    speed = numbers["molecules_per_second"]
    assert (speed.median, speed.max) == (50.0, 100.0)
    assert numbers["molecules_per_processor_second"].median == 25.0
    shares = [numbers[f"{part}_share"].median for part in ("waiting", "forward", "backward", "optimizer")]
    assert shares == pytest.approx([0.25, 0.4, 0.5, 0.1])
    assert (numbers["flops_per_molecule"], numbers["flops_per_second"]) == (5e7, 2.5e9)
    assert numbers["peak_share"] == 0.25
    result.peaks = {"32": None}
    assert result.rows()[0].numbers["peak_share"] is None


@pytest.mark.parametrize(
    ("name", "arithmetic", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H100 NVL", "tf32", 417.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312.0),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
    ],
)
def test_peaks_of_devices(name, arithmetic, tera):
    assert find_peak(name, arithmetic) == tera * 1e12


def test_an_unknown_device_has_no_peak(worker, source):
    assert find_peak("NVIDIA GeForce RTX 3090", "bf16") is None
    result = run_training_bench(plan(["slim"]), source)
    assert "of peak" not in result.to_markdown()
    assert "unknown" not in result.to_markdown()  # a CPU has no stated peak
    result.machine["device"] = "NVIDIA GeForce RTX 3090"
    assert "The peak of NVIDIA GeForce RTX 3090 is unknown" in result.to_markdown()
    result.peaks["32"] = 1e10
    assert "of peak" in result.to_markdown()
    assert "unknown" not in result.to_markdown()


def test_a_result_of_something_else_is_refused(worker, source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RESULT).write_text("{}")
    with pytest.raises(MolsliceError, match="is not a result of `molslice bench`"):
        run_training_bench(plan(), source, tmp_path / "out")


def test_the_seed_of_a_round_is_that_of_the_configuration_and_the_round(worker, source):
    entry = TrainEntry("own", "softmax", "32", config(seed=5))
    run_training_bench(TrainPlan([entry], rounds=2), source)
    assert [seed for _, seed, _, _ in worker.asked] == [5, 6]
