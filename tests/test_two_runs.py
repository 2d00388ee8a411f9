"""Two runs that write the same folder or file, and an interrupted run."""

import contextlib
import os

import pytest

from molslice.cli import main
from molslice.data.molecules.prepare_files import partial_folder
from molslice.files.atomic import reserved
from molslice.files.lock import lock_folder
from tests.inference.models import checkpoint_folder, embedded_smiles


@pytest.fixture
def folder(tmp_path):
    """A folder with a model and a table with measured values."""
    checkpoint_folder(tmp_path / "model", data={"path": str(tmp_path / "measured.csv")})
    rows = [f"{text},{len(text)}\n" for text in embedded_smiles(40)]
    (tmp_path / "measured.csv").write_text("smiles,gap\n" + "".join(rows))
    return tmp_path


TABLE = ("measured.csv", "--target", "gap", "--out", "out")
DATA = ("--data.path", "measured.csv", "--data.units", "eV")
UNCERTAIN = ("--calibrate", "--split", "valid", "--uncertainty", "--out", "out")
# the command, what it writes, and the function that Ctrl-C interrupts
COMMANDS = {
    "fit": (("fit", *TABLE, "--members", "2", "--no-encoder"), "out", "molslice.fitting.fit.write_fit"),
    "prepare": (("prepare", *TABLE), "out", "molslice.data.molecules.prepare_files.StoreWriter.append"),
    "predict": (
        ("predict", "model", "--input", "measured.csv", "--output", "out.csv"),
        "out.csv",
        "molslice.inference.tables.sinks.format_value",
    ),
    "embed": (
        ("embed", "model", "--input", "measured.csv", "--output", "out.npy"),
        "out.npy",
        "molslice.files.npy.ArrayFile.append",
    ),
    "export": (("export", "model", "--out", "out.pt2"), "out.pt2", "torch.export.save"),
    "report": (("report", "model", "--out", "out.html", *DATA), "out.html", "molslice.report.write.page"),
    "evaluate": (
        ("evaluate", "model", *UNCERTAIN, *DATA),
        "out",
        "molslice.cli.evaluate.evaluate",
    ),
    "explain": (
        ("explain", "model", "--input", "measured.csv", "--out", "out"),
        "out",
        "molslice.explanation.picture_folder.to_json",
    ),
    "picture": (
        ("explain", "model", "--smiles", "C", "--out", "a.svg"),
        "a.svg",
        "molslice.files.atomic._sync",
    ),
}


@contextlib.contextmanager
def written(name, out):
    """Hold what a process holds that writes `out`."""
    if name != "prepare":
        with reserved(out):
            yield
        return
    partial_folder(out).mkdir()
    with lock_folder(partial_folder(out)):
        yield
    partial_folder(out).rmdir()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_run_is_refused(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command, out, _ = COMMANDS[name]
    with written(name, folder / out):
        before = sorted(os.listdir(folder))
        assert main([*command, "--quiet"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"is in use by process {os.getpid()}" in line
        assert out in line
        assert sorted(os.listdir(folder)) == before
    assert sorted(os.listdir(folder)) == ["measured.csv", "model"]


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_leaves_nothing_behind(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command, out, interrupted = COMMANDS[name]
    called = []

    def interrupt(*arguments, **options):
        called.append(interrupted)
        raise KeyboardInterrupt

    if name == "evaluate":
        interrupted = "molslice.inference.evaluate.evaluate"
    monkeypatch.setattr(interrupted, interrupt)
    assert main([*command, "--quiet"]) == 130
    assert called
    assert "Traceback" not in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == ["measured.csv", "model"]
