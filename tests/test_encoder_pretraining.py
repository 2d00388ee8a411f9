"""The program that pretrains encoders, on the CPU with few molecules and a small model."""

import json
import signal

import pytest

from tests.data.molecules.corpora import make_corpus
from tests.programs import load_program
from tests.stopping import signal_at


@pytest.fixture
def program(monkeypatch):
    program = load_program("encoder_pretraining")
    small = {"model.num_layers": "1", "model.dim": "16", "model.ffn_dim": "16", "model.num_heads": "2"}
    monkeypatch.setattr(
        program, "SIZES", {size: {**settings, **small} for size, settings in program.SIZES.items()}
    )
    return program


@pytest.fixture
def words(tmp_path):
    """Return the words of a command."""
    corpus = make_corpus(tmp_path / "corpus", rows=400)
    given = ["--corpus", corpus, "--device", "cpu", "--precision", "32", "--epochs", "3"]
    given += ["--runs", tmp_path / "runs", "--out", tmp_path / "results"]
    return [str(word) for word in given]


def test_a_stopped_training_is_continued_and_recorded_once(program, words, tmp_path, monkeypatch):
    stopped = pytest.raises(SystemExit, match="stopped at step 2 of .* the same command continues")
    with signal_at(2, signal.SIGTERM), stopped:
        program.main(words)
    with pytest.raises(SystemExit, match="no training is finished"):
        program.main([*words, "--collect"])
    program.main(words)
    monkeypatch.setattr(program, "train", None)  # nothing is trained again
    program.main(words)
    for _ in range(2):
        program.main([*words, "--collect"])
    (row,) = json.loads((tmp_path / "results" / "encoder_pretraining.json").read_text())["encoders"]
    assert row["run"] == "wide_softmax_0.0005_3_32_0"
    assert row["molecules"] == 394
    assert 0 < row["test"]["bonds_accuracy"] <= 1


def test_training_needs_a_corpus(program, capsys):
    with pytest.raises(SystemExit):
        program.main([])
    assert "training needs --corpus" in capsys.readouterr().err
