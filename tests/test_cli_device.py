"""The device that `--device auto` chooses, on a machine with and without a GPU."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from molslice.cli import main
from molslice.cli.arguments import choose_device, load_chosen_model, tell_device
from molslice.files.progress import hidden_progress
from molslice.inference.smiles_reader import DEVICE_PARALLEL_ROWS
from molslice.inference.tables.table import ROW_BYTES, estimate_rows
from molslice.training.run import _log_device
from molslice.types import MolsliceError

NAMED = "molslice: device: cuda (Some GPU); --device cpu computes without it\n"
SHIPPED = "molslice: gap-xtb: the model that ships with molslice (HOMO-LUMO gap by GFN2-xTB)\n"
FIT = str(Path(__file__).parent / "saved_models" / "fit")  # without encoder


class Stop(Exception):
    """Ends a command where it would compute."""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")


@pytest.fixture
def loaded(monkeypatch):
    """The devices on which commands load models. No model is loaded."""
    devices = []

    def record(device):
        devices.append(device)
        raise Stop

    # not `load_model`, which modules that are imported meanwhile would keep
    monkeypatch.setattr("molslice.inference.load._find_device", record)
    return devices


def arguments(device, model="gap-xtb"):
    return SimpleNamespace(device=device, model=model, fragment=None, wildcards=None)


@pytest.mark.parametrize(
    ("device", "rows", "expected"),
    [
        ("auto", None, "cuda"),
        ("auto", DEVICE_PARALLEL_ROWS, "cuda"),
        ("auto", DEVICE_PARALLEL_ROWS - 1, "cpu"),
        ("cuda:1", 1, "cuda:1"),
        ("cpu", None, "cpu"),
    ],
)
def test_a_gpu_is_used_unless_the_input_is_small(gpu, device, rows, expected):
    assert choose_device(arguments(device), None if rows is None else lambda: rows) == expected


def test_without_a_gpu_all_is_computed_on_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(arguments("auto")) == "cpu"
    assert choose_device(arguments("auto"), pytest.fail) == "cpu"  # rows are not counted
    assert choose_device(arguments("cuda")) == "cuda"  # loading the model refuses it


def test_a_gpu_that_was_found_is_named(gpu, capsys):
    tell_device(arguments("auto"), torch.device("cuda"))
    assert capsys.readouterr().err == NAMED
    tell_device(arguments("cuda"), torch.device("cuda"))
    with hidden_progress():
        tell_device(arguments("auto"), torch.device("cuda"))
    tell_device(arguments("auto"), torch.device("cpu"))
    choose_device(arguments("auto"))
    assert capsys.readouterr() == ("", "")


def test_a_gpu_is_named_if_the_loaded_model_computes_on_it(gpu, monkeypatch, capsys):
    monkeypatch.setattr("molslice.inference.load._find_device", torch.device)  # this machine may have no GPU
    assert load_chosen_model(arguments("auto", FIT)).device == torch.device("cpu")
    with pytest.raises(MolsliceError, match="no model"):
        load_chosen_model(arguments("auto", "nothing"))
    assert capsys.readouterr() == ("", "")
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr("molslice.inference.load.load_model", lambda *given, **named: on_gpu)
    assert load_chosen_model(arguments("auto")) is on_gpu
    assert capsys.readouterr().err == SHIPPED + NAMED


def test_rows_are_estimated_from_sizes(tmp_path):
    for name, rows in [("a.csv", 30), ("b.csv", 12)]:
        (tmp_path / name).write_text("x" * ROW_BYTES * rows)
    assert estimate_rows([str(tmp_path / "*.csv")]) == 42
    assert estimate_rows(["-"]) == 0
    assert estimate_rows([str(tmp_path / "none.csv")]) == 0


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_large_files_are_predicted_on_a_gpu(verb, gpu, loaded, tmp_path):
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_text("smiles\nC\n")
    large.write_text("smiles\n" + "C" * ROW_BYTES * DEVICE_PARALLEL_ROWS)
    for file in (small, large):
        with pytest.raises(Stop):
            main([verb, "gap-xtb", "--input", str(file), "--output", str(tmp_path / "out.csv")])
    assert loaded == ["cpu", "cuda"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict", "gap-xtb", "--smiles", "C"], "cpu"),
        (["predict", "gap-xtb", "--smiles", "C", "--device", "cuda"], "cuda"),
        (["predict", "gap-xtb", "--input", "-", "--output", "-", "--engine", "ray"], "cpu"),
        (["evaluate", "gap-xtb"], "cuda"),
        (["report", "gap-xtb"], "cuda"),
        (["explain", "gap-xtb", "--smiles", "C", "--out", "no/molecule.svg"], "cpu"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2] + value[4:]),
)
def test_each_verb_has_its_rule(words, expected, gpu, loaded):
    with pytest.raises(Stop):
        main(words)
    assert loaded == [expected]


@pytest.mark.parametrize(("words", "expected"), [([], "cuda"), (["--no-encoder"], "cpu")])
def test_fit_uses_a_gpu_for_its_encoder(words, expected, gpu, monkeypatch, capsys, tmp_path):
    devices, table = [], tmp_path / "data.csv"
    table.write_text("smiles,y\nCCO,1\nCCC,2\n")

    def record(*positional, device, **options):
        devices.append(device)
        raise Stop

    monkeypatch.setattr("molslice.fitting.fit.fit", record)
    with pytest.raises(Stop):
        main(["fit", str(table), "--target", "y", "--out", str(tmp_path / "model"), *words])
    assert devices == [expected]
    assert capsys.readouterr().err == (NAMED if expected == "cuda" else "")


def test_a_service_and_embeddings_name_the_gpu(gpu, monkeypatch, capsys, tmp_path):
    def stop(*given, **named):
        raise Stop

    monkeypatch.setattr("molslice.serve.server.serve", stop)
    with pytest.raises(Stop):
        main(["serve", "gap-xtb", "--device", "auto"])
    assert capsys.readouterr().err == SHIPPED + NAMED
    monkeypatch.setattr("molslice.inference.load.load_network", lambda *given, **named: None)
    monkeypatch.setattr("molslice.inference.embedding.Embedder", lambda network: None)
    monkeypatch.setattr("molslice.inference.tables.table.predict_table", stop)
    large = tmp_path / "large.csv"
    large.write_text("smiles\n" + "C" * ROW_BYTES * DEVICE_PARALLEL_ROWS)
    with pytest.raises(Stop):
        main(["embed", "gap-xtb", "--input", str(large), "--output", str(tmp_path / "out.csv")])
    assert capsys.readouterr().err == SHIPPED + NAMED


@pytest.mark.parametrize(
    ("accelerator", "device", "is_first", "is_named"),
    [
        ("auto", "cuda", True, True),
        ("auto", "cuda", False, False),
        ("auto", "cpu", True, False),
        ("cuda", "cuda", True, False),
    ],
)
def test_a_training_names_the_gpu_that_it_finds(accelerator, device, is_first, is_named, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    config = SimpleNamespace(trainer=SimpleNamespace(accelerator=accelerator))
    _log_device(config, SimpleNamespace(device=torch.device(device), is_global_zero=is_first))
    expected = ["device: cuda (Some GPU); trainer.accelerator cpu trains without it"]
    assert caplog.messages == (expected if is_named else [])
