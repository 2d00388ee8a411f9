"""Tests of runs on sequences: configuration, training, resuming, evaluation, comparison."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from molslice.cli import main
from molslice.config import config_from_mapping
from molslice.config.entries import describe_data
from molslice.data import DATASETS, build_dataset
from molslice.data.sequences import SequenceDataset, Sequences
from molslice.inference.evaluate import evaluate
from molslice.inference.load import load_model
from molslice.studies import STUDIES, run_study
from molslice.training.compare import compare_attentions
from molslice.training.run import train
from molslice.types import DataSpec, MolsliceError


class Majority(SequenceDataset):
    """Sequences of zeros and ones of several lengths; the class is the more frequent one."""

    source, kind, row_name = "majority", "multiclass", "strings"
    target_names, target_units = ("which",), ("",)

    def __init__(
        self,
        *,
        rows: int = 300,
        longest: int = 9,
        vocabulary: str = "01",
        classes: str = "zeros ones",
        torn: bool = False,
        tested: bool = True,
    ) -> None:
        self.class_names = tuple(classes.split())
        draw = np.random.default_rng(0)
        strings = [draw.integers(0, 2, 2 * draw.integers(1, longest // 2) + 1) for _ in range(rows)]
        numbers = [string + 1 for string in strings]
        if torn:
            self._errors, numbers[3] = {3: "line 4 is torn"}, numbers[3][:0]
        self.sequences = Sequences.pack(numbers, np.uint8)
        self.labels = np.array([[float(string.mean() > 0.5)] for string in strings], np.float32)
        bounds = [0, rows * 2 // 3, rows * 5 // 6, rows]
        self.splits = {
            name: np.arange(bounds[i], bounds[i + 1]) for i, name in enumerate(("train", "valid", "test"))
        }
        if not tested:
            self.splits.pop("test")
        self.longest, self.vocabulary = longest, vocabulary

    @property
    def spec(self) -> DataSpec:
        return DataSpec(2, "ids", 3, max_tokens=self.longest, vocabulary=self.vocabulary)


@pytest.fixture(scope="module", autouse=True)
def known():
    DATASETS.add("majority", Majority)
    yield
    DATASETS.remove("majority")


def mapping(**sections):
    base = {
        "data": {"name": "majority"},
        "model": {
            "name": "sequence",
            "num_layers": 1,
            "dim": 16,
            "ffn_dim": 16,
            "num_heads": 2,
            "dropout": 0.0,
            "embedding_std": 0.5,
        },
        "attention": {"name": "softmax"},
        "task": "sequence",
        "optimizer": {"lr": 1e-2, "ema_decay": 0.9},
        "training": {"max_steps": 60, "batch_size": 16, "token_budget": 256, "valid_every_epochs": 2},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    return {name: {**base[name], **sections.get(name, {})} if name != "task" else base[name] for name in base}


def config(**sections):
    return config_from_mapping(mapping(**sections))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(config(), folder, quiet=True)
    return folder


def test_it_learns_and_says_what_it_measured(run):
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metric"] == "accuracy"
    assert summary["test"]["accuracy"]["which"] > 0.9
    assert summary["noun"] == "strings"
    assert "valid_accuracy_which" in (run / "metrics.csv").read_text().splitlines()[0]


def test_evaluation_finds_what_training_reported(run):
    summary = json.loads((run / "summary.json").read_text())
    predictor = load_model(str(run))
    for split in ("valid", "test"):
        result = evaluate(predictor, build_dataset("majority", {}), split, progress=False)
        assert result["targets"][0]["accuracy"] == pytest.approx(summary[split]["accuracy"]["which"])
        assert (result["rows"], result["failed"], result["noun"]) == (50, 0, "strings")


def test_other_data_are_refused(run):
    predictor = load_model(str(run))
    with pytest.raises(MolsliceError, match="vocabulary is 'ab', was '01'"):
        evaluate(predictor, build_dataset("majority", {"vocabulary": "ab"}), "test", progress=False)
    for classes, reason in [("zeros twos", "not in both: ones, twos"), ("ones zeros", "in another order")]:
        with pytest.raises(MolsliceError, match=reason):
            evaluate(predictor, build_dataset("majority", {"classes": classes}), "test", progress=False)
    with pytest.raises(MolsliceError, match="atom_permutation needs molecules"):
        evaluate(predictor, build_dataset("majority", {}), "test", atom_permutation=1, progress=False)


def test_a_stopped_run_ends_like_one_that_was_not(run, tmp_path, monkeypatch):
    from molslice.training.stepper import Stepper

    steps = iter(range(1000))
    original = Stepper.step

    def step(self, batch, number, rate):
        if next(steps) == 37:
            raise KeyboardInterrupt
        return original(self, batch, number, rate)

    monkeypatch.setattr(Stepper, "step", step)
    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path / "run", quiet=True)
    monkeypatch.setattr(Stepper, "step", original)
    train(config(), tmp_path / "run", resume=True, quiet=True)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_accumulated_parts_train_like_the_whole_batch(tmp_path):
    found = [
        train(config(training={"accumulate": parts, "max_steps": 5}), tmp_path / str(parts), quiet=True)
        for parts in (1, 2)
    ]
    assert found[0]["valid"]["accuracy"] == found[1]["valid"]["accuracy"]


def test_a_prediction_takes_no_more_at_once_than_a_part_of_a_step(run, monkeypatch):
    dataset, predictor = build_dataset("majority", {}), load_model(str(run))
    sizes = []
    collate = dataset.collate
    monkeypatch.setattr(dataset, "collate", lambda rows: sizes.append(len(rows)) or collate(rows))
    parts = dataclasses.replace(predictor.config.training, accumulate=4)
    predictor.config = dataclasses.replace(predictor.config, training=parts)
    evaluate(predictor, dataset, "test", progress=False)
    assert sum(sizes) == 50
    assert max(sizes) == 16 // 4


def test_molecules_and_sequences_do_not_mix(tmp_path):
    sizes = {"num_layers": 1, "dim": 16, "ffn_dim": 16, "num_heads": 2}
    wrong = config_from_mapping({**mapping(), "model": sizes})
    with pytest.raises(MolsliceError, match="does not take these data; choices: .*sequence"):
        train(wrong, tmp_path / "run", quiet=True)


def test_attentions_compare(tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps(mapping(training={"max_steps": 4})))
    found = compare_attentions(
        tmp_path / "c.yaml", "slice_sort,slice_sort:order=half", tmp_path / "out", quiet=True
    )
    assert [line.label for line in found.lines()] == ["slice_sort", "slice_sort:order=half"]
    table = (tmp_path / "out" / "table.md").read_text()
    assert "test accuracy" in table
    assert "strings/s" in table


def test_params_and_train_from_the_command_line(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(json.dumps(mapping(training={"max_steps": 2})))
    assert main(["params", "--config", str(tmp_path / "c.yaml"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["parameters"]
    assert counts["embedding"] == (3 + 9) * 16
    assert describe_data(config()) == build_dataset("majority", {}).spec
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "r"), "--quiet"]) == 0
    assert "test accuracy" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "r"), "--quiet"]) == 0
    assert "strings     50" in capsys.readouterr().out


@pytest.fixture
def undrawn(monkeypatch):
    """Studies without their figures."""
    for name in STUDIES.names():
        monkeypatch.setattr(STUDIES.find(name), "draw", lambda self, findings, figure: None)


@pytest.mark.parametrize("name", ["permutation", "spectrum", "correlation"])
def test_studies_look_at_its_own_data(name, run, tmp_path, undrawn):
    found = run_study(name, tmp_path, runs=(run,), options={"molecules": 4}, quiet=True)
    assert found.rows > 0
    assert found.files["csv"].is_file()
    if name == "permutation":
        assert found.files["csv"].read_text().splitlines()[1].startswith("strings,")


def test_maps_are_drawn_of_a_row(run, tmp_path):
    found = run_study("maps", tmp_path, runs=(run,), options={"layer": 1}, quiet=True)
    rows = [line.split(",") for line in found.files["csv"].read_text().splitlines()]
    column = rows[0].index("token_j")
    count = 1 + max(int(row[column]) for row in rows[1:] if row[column])
    # the map, the input of the output map of width 16, and two quantities of each token
    assert found.rows == count**2 + count * 16 + 2 * count
    assert found.files["png"].stat().st_size > 1000


def test_studies_of_data_without_a_test_split_take_the_next(tmp_path, undrawn):
    train(config(data={"tested": False}, training={"max_steps": 1}), tmp_path / "run", quiet=True)
    for name, options in (("spectrum", {"molecules": 4}), ("maps", {"layer": 1})):
        found = run_study(name, tmp_path / name, runs=(tmp_path / "run",), options=options, quiet=True)
        assert found.rows > 0


def test_unreadable_rows_are_reported(tmp_path, caplog):
    summary = train(config(data={"torn": True}, training={"max_steps": 1}), tmp_path / "run", quiet=True)
    assert summary["failed"] == 1
    told = "majority: 1 of 300 strings cannot be read; they are not used. The first, row 4: line 4 is torn"
    assert told in caplog.messages


def test_molecules_are_refused(run, capsys):
    assert main(["predict", str(run), "--smiles", "CCO"]) == 1
    assert "does not take molecules: it was trained on data of 'majority'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "sequences"}, "choices: .*decision, gin_virtual"),
        ({"preset": "base"}, "unknown key 'model.preset'"),
        ({"head": [4, 0]}, "model.head must be at least 1"),
        ({"readout": "last"}, "choices: all, cls, cls_distilled, max, max_mean, mean"),
    ],
)
def test_bad_settings_are_named(section, message):
    with pytest.raises(MolsliceError, match=message):
        config(model=section)


def test_settings_of_another_task_are_refused(tmp_path):
    takers = {"loss": "molecule, pretraining", "label_smoothing": "distillation, sequence"}
    for name, value in (("loss", "mse"), ("label_smoothing", 0.1)):
        wrong = {**mapping(training={name: value}), "task": "language" if name != "loss" else "sequence"}
        reason = f"training.{name} has no effect on task .* only {takers[name]} use"
        with pytest.raises(MolsliceError, match=reason):
            train(config_from_mapping(wrong), tmp_path / name, quiet=True)
    with pytest.raises(MolsliceError, match="choose another task: sequence"):
        train(config_from_mapping({**mapping(), "task": "molecule"}), tmp_path / "task", quiet=True)
    with pytest.raises(MolsliceError, match="seed is -1, expected zero or more"):
        config_from_mapping({**mapping(), "seed": -1})


def test_evaluation_after_training_in_bf16_finds_what_training_reported(tmp_path):
    half = config(trainer={"precision": "bf16"}, training={"max_steps": 30})
    summary = train(half, tmp_path / "run", quiet=True)
    predictor, dataset = load_model(str(tmp_path / "run")), build_dataset("majority", {})
    result = evaluate(predictor, dataset, "test", progress=False)
    assert result["targets"][0]["accuracy"] == summary["test"]["accuracy"]["which"]
    kinds = []
    model = predictor.model
    forward = model.forward
    model.forward = lambda batch: kinds.append(forward(batch).prediction.dtype) or forward(batch)
    evaluate(predictor, dataset, "valid", progress=False)
    assert set(kinds) == {torch.float32}


def test_a_checkpoint_never_holds_broken_weights(tmp_path, monkeypatch):
    from molslice.training.state import load_checkpoint
    from molslice.training.stepper import Stepper

    original, taken = Stepper.step, iter(range(1000))

    def step(self, batch, number, rate):
        loss = original(self, batch, number, rate)
        if next(taken) == 11:
            with torch.no_grad():
                self.model.readout.weight.fill_(float("nan"))
        return loss

    monkeypatch.setattr(Stepper, "step", step)
    settings = config(training={"checkpoint_every_steps": 4, "valid_every_epochs": 1000})
    with pytest.raises(MolsliceError, match="readout.weight are not finite after step 12"):
        train(settings, tmp_path / "run", quiet=True)
    tensors, progress = load_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert progress.step == 8
    assert all(torch.isfinite(tensor).all() for tensor in tensors["model"].values())


def test_without_test_targets_a_run_says_so(tmp_path, caplog, monkeypatch):
    original = Majority.labeled_rows

    def labeled(self, split):
        if split == "test":
            raise MolsliceError("no known target")
        return original(self, split)

    monkeypatch.setattr(Majority, "labeled_rows", labeled)
    summary = train(config(training={"max_steps": 2}), tmp_path / "run", quiet=True)
    assert summary["test"]["rows"] == 0
    assert "majority has no test strings with known targets" in caplog.text


def test_a_resumed_run_keeps_its_epochs(tmp_path):
    def epochs(number):
        return config(training={"max_steps": None, "max_epochs": number})

    first = train(epochs(1), tmp_path / "run", quiet=True)
    assert train(epochs(1), tmp_path / "run", resume=True, quiet=True) == first
    for finished in (True, False):
        with pytest.raises(MolsliceError, match="started with 1 epochs, not 3; train in another folder"):
            train(epochs(3), tmp_path / "run", resume=True, quiet=True)
        if finished:
            (tmp_path / "run" / "summary.json").unlink()
