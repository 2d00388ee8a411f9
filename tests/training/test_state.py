"""Tests of the checkpoint file."""

import pytest
import torch

from molslice.training.state import Progress, load_checkpoint, save_checkpoint
from molslice.types import MolsliceError


def test_what_is_saved_is_loaded(tmp_path):
    progress = Progress(step=3, best_score=0.5, best_metrics={"gap": 0.25}, validation_due=True)
    save_checkpoint(tmp_path / "last.ckpt", {"model": {"weight": torch.arange(3)}}, progress)
    tensors, found = load_checkpoint(tmp_path / "last.ckpt")
    assert found == progress
    assert tensors["model"]["weight"].tolist() == [0, 1, 2]


def test_a_write_that_fails_leaves_the_former_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, {}, Progress(step=1))

    def full(content, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(MolsliceError, match=r"last\.ckpt.*No space left"):
        save_checkpoint(path, {}, Progress(step=2))
    assert load_checkpoint(path)[1].step == 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_reason_of_a_full_disk_is_that_of_the_stream(tmp_path, monkeypatch):
    """torch continues after the error of the stream and then raises its own."""

    class Full:
        written = 0

        def write(self, part):
            self.written += len(part)
            if self.written > 8000:
                raise OSError(28, "No space left on device")
            return len(part)

        def flush(self):
            pass

    save = torch.save
    monkeypatch.setattr(torch, "save", lambda content, file: save(content, Full()))
    with pytest.raises(MolsliceError, match=r"cannot write .*last\.ckpt: No space left on device$"):
        save_checkpoint(
            tmp_path / "last.ckpt", {str(i): torch.zeros(100) for i in range(100)}, Progress(step=1)
        )
    assert not list(tmp_path.iterdir())
