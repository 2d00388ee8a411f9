import csv
import itertools
import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from molslice.cli import main
from molslice.config import load_config
from molslice.data import build_dataset
from molslice.data.molecules.collate import collate
from molslice.folders.run import CONFIG, METRICS, MODEL, SUMMARY, TENSORBOARD, read_run
from molslice.tasks.base import MicroBatch
from molslice.training import duration
from molslice.training import run as training_run
from molslice.training.batches import TrainingBatches, prefetch
from molslice.training.run import train
from molslice.types import MolsliceError
from tests.inference.models import embedded_smiles


def rows(folder):
    with (folder / METRICS).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(build_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "new" / "run"
    model = {"dropout": 0.0, "attention_dropout": 0.0}
    config = build_config(model=model, training={"max_epochs": 12}, optimizer={"lr": 1e-2})
    return folder, config, train(config, folder, quiet=True)


def test_the_run_folder_is_complete(finished):
    folder, config, summary = finished
    assert json.loads((folder / SUMMARY).read_text()) == summary
    assert list((folder / TENSORBOARD).glob("events*"))
    kept = load_config(folder / CONFIG)
    assert kept.training.max_steps == summary["steps"] == summary["max_steps"]
    assert kept.training.max_epochs is None
    assert kept.model == config.model
    assert [int(row["step"]) for row in rows(folder)] == sorted({int(row["step"]) for row in rows(folder)})
    assert summary["epochs"] == 12.0
    assert summary["versions"].keys() == {"molslice", "torch", "lightning"}
    assert summary["seconds"] <= summary["total_seconds"]


def test_training_makes_the_loss_smaller(finished):
    folder, _, summary = finished
    losses = [float(row["train_loss"]) for row in rows(folder)]
    assert losses[-1] < 0.8 * losses[0]
    assert summary["train"]["rows"] == summary["valid"]["rows"] <= summary["train"]["of"]


def test_the_summary_is_the_error_of_the_stored_weights(finished):
    """Predicts row by row with the stored model, without the evaluation of the training loop."""
    folder, config, summary = finished
    run = read_run(folder)
    dataset = build_dataset(config.data.name, dict(config.data.options))
    for split in ("valid", "test"):
        chosen = dataset.splits[split]
        with torch.no_grad():
            standardized = [run.model(collate(dataset.store, [row])).prediction.item() for row in chosen]
        predicted = np.array(standardized) * run.targets.std[0] + run.targets.mean[0]
        error = np.abs(predicted - dataset.store.targets[chosen, 0]).mean()
        assert summary[split]["mae"]["gap"] == pytest.approx(error, abs=1e-5)
    best = min(rows(folder), key=lambda row: float(row["valid_mae_gap_eV"]))
    assert summary["best_step"] == int(best["step"])
    assert summary["valid"]["mae"]["gap"] == pytest.approx(float(best["valid_mae_gap_eV"]), abs=1e-6)


def test_targets_are_standardized_by_the_training_split(finished):
    folder, config, _ = finished
    dataset = build_dataset(config.data.name, dict(config.data.options))
    known = dataset.store.targets[dataset.splits["train"], 0].astype(np.float64)
    targets = read_run(folder).targets
    assert targets.mean[0] == pytest.approx(known.mean())
    assert targets.std[0] == pytest.approx(known.std())
    assert targets.units == ("eV",)


@pytest.mark.parametrize(
    ("name", "asked", "mixed"),
    [("graphormer", None, False), ("graphormer", True, True), ("gin_virtual", None, True)],
)
def test_batches_for_batch_norm_and_on_request_have_all_lengths(
    build_config, tmp_path, monkeypatch, name, asked, mixed
):
    streams = []

    def record(*args, **options):
        streams.append(TrainingBatches(*args, **options))
        return streams[-1]

    monkeypatch.setattr(training_run, "TrainingBatches", record)
    config = build_config(model={"name": name}, training={"max_steps": 1, "mix_lengths": asked})
    train(config, tmp_path / "run", quiet=True)
    [stream] = streams
    tokens = stream.num_tokens
    spreads = [tokens[rows].std() for rows in stream.order.epoch(0)]
    assert (np.mean(spreads) > 0.5 * tokens.std()) == mixed


@pytest.mark.slow
def test_minutes_become_steps_that_repeat_the_run(build_config, tmp_path):
    # batch norms have statistics that measuring the speed must not leave behind
    small = build_config(training={"max_minutes": 0.02}, model={"name": "gin_virtual"})
    summary = train(small, tmp_path / "minutes", quiet=True)
    again = build_config(training={"max_steps": summary["steps"]}, model={"name": "gin_virtual"})
    train(again, tmp_path / "steps", quiet=True)
    assert (tmp_path / "minutes" / MODEL).read_bytes() == (tmp_path / "steps" / MODEL).read_bytes()
    assert load_config(tmp_path / "minutes" / CONFIG) == load_config(tmp_path / "steps" / CONFIG)


def test_the_number_of_steps_fits_the_minutes(monkeypatch):
    """Steps of 50 tokens with 1 ms per token, a validation of 2 s every 10 steps, and 2 + 4 s at the end."""
    monkeypatch.setattr(duration, "_seconds_per_token", lambda stepper, seconds: 0.001)
    monkeypatch.setattr(duration, "_validation_seconds", lambda stepper, valid: 2.0)
    batches = SimpleNamespace(padded_tokens=lambda epoch: np.array([40, 60]), steps_per_epoch=10)
    training = SimpleNamespace(valid_every_steps=None, valid_every_epochs=1)
    stepper = SimpleNamespace(
        batches=batches,
        config=SimpleNamespace(training=training),
        fabric=SimpleNamespace(broadcast=lambda value: value),
    )
    valid = SimpleNamespace(rows=range(100))
    steps = duration.measure_max_steps(stepper, valid, 2.0, 200, time.perf_counter() - 14.0)
    assert steps == pytest.approx((120 - 14 - 6) / (0.05 + 0.2), abs=1)


def test_the_measured_steps_do_not_wait_for_the_device_one_by_one(build_config, tmp_path, monkeypatch):
    waited, measure = [], duration._seconds_per_token
    found = []

    def measured(stepper, seconds):
        steps, step = [], stepper.step
        monkeypatch.setattr(stepper, "step", lambda *given, **named: steps.append(step(*given, **named)))
        monkeypatch.setattr(duration, "_wait", lambda stepper: waited.append(len(steps)))
        found.append(measure(stepper, seconds))
        monkeypatch.setattr(stepper, "step", step)
        return found[0]

    monkeypatch.setattr(duration, "_seconds_per_token", measured)
    train(build_config(training={"max_minutes": 0.02}), tmp_path / "run", quiet=True)
    first, last = waited[:2]
    assert first == duration.WARM_UP_STEPS
    assert last >= first + duration.MIN_TIMED
    assert 0 < found[0] < 0.01


def test_the_number_of_epochs_depends_on_the_rows(build_config, tmp_path, monkeypatch):
    assert [duration.count_epochs(rows) for rows in (0, 100, 960, 10_000)] == [40, 40, 20, 4]
    monkeypatch.setattr(duration, "SEEN_ROWS", 700)
    config = build_config(training={"max_epochs": "auto"})
    summary = train(config, tmp_path / "run", quiet=True)
    assert summary["train"]["of"] == 120
    assert summary["epochs"] == 700 // 120
    assert load_config(tmp_path / "run" / CONFIG).training.max_steps == summary["steps"]
    assert train(config, tmp_path / "run", resume=True, quiet=True) == summary
    with pytest.raises(MolsliceError, match="max_epochs"):
        build_config(training={"max_epochs": "automatic"})
    monkeypatch.setattr(duration, "SEEN_ROWS", 1200)
    with pytest.raises(MolsliceError, match="was started with 5 epochs, not 10"):
        train(config, tmp_path / "run", resume=True, quiet=True)


def test_early_stopping_counts_validations(build_config, tmp_path):
    training = {"max_steps": 400, "valid_every_steps": 2, "early_stopping_patience": 3}
    config = build_config(
        training=training, optimizer={"lr": 1e-9, "ema_decay": None, "schedule": "constant"}
    )
    summary = train(config, tmp_path / "run", quiet=True)
    assert summary["steps"] == summary["best_step"] + 6 < 400
    assert summary["max_steps"] == 400


@pytest.mark.parametrize("attention", ["softmax", "slice_sort", "flow", "singular"])
def test_bfloat16_trains(build_config, tmp_path, attention):
    config = build_config(
        attention={"name": attention},
        trainer={"precision": "bf16"},
        training={"max_steps": 6},
        optimizer={"ema_decay": None},
    )
    summary = train(config, tmp_path / "run", quiet=True)
    assert np.isfinite(summary["valid"]["mae"]["gap"])
    assert {tensor.dtype for tensor in load_file(tmp_path / "run" / MODEL).values()} == {torch.float32}


def test_float16_on_a_cpu_is_refused(build_config, tmp_path):
    with pytest.raises(MolsliceError, match="choices here: 32, bf16"):
        train(build_config(trainer={"precision": "16"}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named(build_config, tmp_path):
    with pytest.raises(MolsliceError, match="accelerator=cuda"):
        train(build_config(trainer={"accelerator": "cuda"}), tmp_path / "run", quiet=True)


def test_classes_with_missing_labels(build_config, tmp_path):
    config = build_config(
        data={"target_columns": ["wide"], "kind": "classification", "units": ""},
        model={"dropout": 0.0, "attention_dropout": 0.0},
        optimizer={"lr": 1e-2},
        training={"max_steps": 60},
    )
    summary = train(config, tmp_path / "run", quiet=True)
    assert summary["metric"] == "roc_auc"
    assert summary["train"]["roc_auc"]["wide"] > 0.7
    assert "valid_roc_auc_wide" in rows(tmp_path / "run")[0]


def test_an_undefined_score_and_a_single_class_are_named(build_config, tmp_path, caplog):
    table = tmp_path / "one.csv"
    rows = [
        f"{text},{row % 2 if row < 40 else 1},{'train' if row < 40 else 'valid'}"
        for row, text in enumerate(embedded_smiles(60))
    ]
    table.write_text("\n".join(["smiles,toxic,part", *rows]))
    options = {"path": str(table), "target_columns": ["toxic"], "units": None, "kind": "classification"}
    options["split"] = {"kind": "column", "column": "part"}
    config = build_config(data=options, training={"max_epochs": 2})
    train(config, tmp_path / "run", quiet=True)
    line = "the error on the split valid is not defined for toxic; early stopping is off"
    assert caplog.text.count(line) == 1
    assert "in every training row" not in caplog.text
    table.write_text(table.read_text().replace(",0,", ",1,"))
    train(config, tmp_path / "other", quiet=True)
    assert "target 'toxic' is 1 in every training row" in caplog.text


def test_other_rows_are_measured_by_the_kind_of_the_model(build_config, tmp_path, capsys):
    """A model of numbers stays one if all values of a table are 0 and 1."""
    train(build_config(training={"max_steps": 1}), tmp_path / "run", quiet=True)
    table = tmp_path / "new.csv"
    table.write_text(
        "\n".join(["smiles,gap", *(f"{text},{i % 2}" for i, text in enumerate(embedded_smiles(8)))])
    )
    words = [
        "evaluate",
        str(tmp_path / "run"),
        "--split",
        "all",
        "--data.path",
        str(table),
        "--json",
        "--quiet",
    ]
    assert main(words) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert 0 < target["mae"] < 10


def test_doubts_about_the_targets_are_reported(build_config, tmp_path, caplog):
    table = tmp_path / "limits.csv"
    parts = ["train_val"] * 24 + ["holdout"] * 6
    rows = [f"{text},{row % 3},{'<=>'[row % 3]},{parts[row]}" for row, text in enumerate(embedded_smiles(30))]
    table.write_text("\n".join(["smiles,a,note,set", *rows]) + "\n")
    options = {"path": str(table), "target_columns": ["a"], "split": {"kind": "column", "column": "set"}}
    run = {"training": {"max_steps": 1}}
    summary = train(build_config(data=options, **run), tmp_path / "run", quiet=True)
    assert [summary[split]["rows"] for split in ("train", "valid", "test")] == [2, 2, 6]
    for said in (
        "column 'note' has relations, which are not used (< in 10 rows, = in 10 rows, > in 10 rows)",
        "a: has only 0, 1 and 2, but is learned as numbers",
        "no row is valid in the column 'set'; 2 of the 24 training rows are drawn as valid rows",
    ):
        assert f"{table}: {said}" in caplog.text


def test_held_out_rows_of_training_molecules_are_reported(build_config, tmp_path, caplog):
    smiles = embedded_smiles(20)
    parts = [*["train"] * 16, "valid", "valid", "test", "test"]
    smiles[17], smiles[18] = smiles[0], smiles[1]
    table = tmp_path / "twice.csv"
    rows = [f"{text},{row},{part}" for row, (text, part) in enumerate(zip(smiles, parts, strict=True))]
    table.write_text("\n".join(["smiles,a,part", *rows]))
    options = {"path": str(table), "target_columns": ["a"], "split": {"kind": "column", "column": "part"}}
    train(build_config(data=options, training={"max_steps": 1}), tmp_path / "run", quiet=True)
    line = f"{table}: 1 of 2 valid molecules and 1 of 2 test molecules are also training molecules"
    assert caplog.text.count(line) == 1


def test_a_loss_that_is_not_finite_stops_with_the_step(build_config, tmp_path):
    config = build_config(optimizer={"lr": 1e30, "gradient_clip": None, "warmup_steps": 0})
    with pytest.raises(MolsliceError, match=r"the loss became (nan|inf) at step \d+; .* 32 may help$"):
        train(config, tmp_path / "run", quiet=True)


def test_a_full_disk_leaves_nothing_half_written(build_config, tmp_path, monkeypatch):
    def full(content, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(MolsliceError, match=r"last.ckpt.*No space left"):
        train(build_config(), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert (tmp_path / "run" / "metrics.csv").is_file()


@pytest.mark.parametrize("warmup", [3, 4])
def test_a_warmup_that_does_not_end_is_reported(build_config, tmp_path, caplog, warmup):
    config = build_config(training={"max_steps": 4}, optimizer={"warmup_steps": warmup})
    train(config, tmp_path / "run", quiet=True)
    message = "warmup_steps is 4, but the training has 4 steps: the learning rate never reaches optimizer.lr"
    assert (message in caplog.text) == (warmup == 4)


def test_without_a_terminal_nothing_is_printed(build_config, tmp_path, capfd):
    train(build_config(training={"max_steps": 4}), tmp_path / "run")
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.fixture
def stream(build_config):
    config = build_config()
    dataset = build_dataset(config.data.name, dict(config.data.options))
    return TrainingBatches(dataset, dataset.splits["train"], config.training, config.seed)


def taken(stream, epoch, index, count):
    batches = itertools.islice(stream.stream(epoch, index), count)
    return [(b.epoch, b.index, b.last, b.micro_batches[0].batch.rows.tolist()) for b in batches]


def test_the_stream_can_be_entered_anywhere(stream):
    whole = taken(stream, 0, 0, 3 * stream.steps_per_epoch)
    for start in (1, stream.steps_per_epoch - 1, stream.steps_per_epoch):
        epoch, index, *_ = whole[start]
        assert taken(stream, epoch, index, 9) == whole[start : start + 9]
    first = sorted(row for epoch, *_, rows in whole if epoch == 0 for row in rows)
    assert first == sorted(stream.order.rows)


def test_prefetching_changes_nothing_and_raises_the_errors(stream, monkeypatch):
    monkeypatch.setattr(MicroBatch, "pin_memory", lambda micro_batch: micro_batch)  # needs a GPU
    plain = taken(stream, 0, 2, 20)
    prepared = []
    fetched = prefetch(stream.stream(0, 2), lambda batch: prepared.append(len(batch)) or batch)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "stream", lambda epoch, index: fetched)
        assert taken(stream, 0, 2, 20) == plain
    fetched.close()
    assert prepared[:20] == [len(rows) for *_, rows in plain]

    def broken(*_):
        raise OSError("gone")

    monkeypatch.setattr(stream.dataset, "collate", broken)
    with pytest.raises(OSError, match="gone"):
        next(prefetch(stream.stream(0, 0)))


def test_a_read_ahead_that_failed_on_a_full_queue_closes(stream, monkeypatch):
    monkeypatch.setattr(MicroBatch, "pin_memory", lambda micro_batch: micro_batch)  # needs a GPU
    failed = threading.Event()

    def source():
        for number, batch in enumerate(stream.stream(0, 0)):
            if number == 3:  # one is taken, two fill the queue
                failed.set()
                raise OSError("gone")
            yield batch

    fetched = prefetch(source(), depth=2)
    next(fetched)
    assert failed.wait(60)
    closing = threading.Thread(target=fetched.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.exhaustive
def test_compiled_equals_eager(build_config, write_config, tmp_path):
    """Runs in a separate process, because the shape checks of the tests cannot be compiled."""
    sections = {"model": {"dropout": 0.0, "attention_dropout": 0.0}}
    train(build_config(**sections, training={"max_steps": 6}), tmp_path / "eager", quiet=True)
    config = build_config(**sections, training={"max_steps": 6, "compile": True})
    path = write_config(config, tmp_path / "compiled.yaml")
    code = "import sys; from molslice.config import load_config; from molslice.training.run import train; "
    code += "train(load_config(sys.argv[1]), sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "compiled")], check=True)
    eager, compiled = (load_file(tmp_path / name / MODEL) for name in ("eager", "compiled"))
    assert eager.keys() == compiled.keys()
    for name, tensor in eager.items():
        # The softmax cancels a key's bias: its gradient is rounding alone, which Adam makes whole steps of.
        if not name.endswith("attention.key.bias"):
            assert torch.allclose(compiled[name], tensor, atol=1e-4), name
