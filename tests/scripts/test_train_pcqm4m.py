"""The script that trains on PCQM4M: its own options, and what it hands to `molslice`."""

import subprocess
import sys

import pytest

from tests.programs import ROOT, load_program

V1, V2 = (str(ROOT / "configs" / "molecule" / f"pcqm4m_{version}.yaml") for version in ("v1", "v2"))


@pytest.fixture(scope="module")
def program():
    return load_program("train_pcqm4m", folder="scripts")


@pytest.mark.parametrize(
    ("words", "config"),
    [
        ([], V2),
        (["--version", "v1"], V1),
        (["--version=v1"], V1),
        (["--version=v2"], V2),
        (["--config", "my.yaml"], "my.yaml"),
        (["--config=my.yaml"], "my.yaml"),
    ],
)
def test_the_version_chooses_the_configuration(program, words, config):
    assert program.calls([*words, "--out", "run"]) == [["train", "--config", config, "--out", "run"]]


def test_data_are_downloaded_before_the_training_to_where_it_reads_them(program):
    words = ["--data.root", "here", "--out", "run", "--data.workers=4", "--version=v1", "--download"]
    prepare, train = program.calls(words)
    assert prepare == ["prepare", "--config", V1, "--download", "--data.root=here", "--data.workers=4"]
    assert train == ["train", "--config", V1, "--data.root", "here", "--out", "run", "--data.workers=4"]


def test_a_setting_without_a_value_does_not_take_the_next_option(program):
    prepare, _ = program.calls(["--download", "--data.root", "--out", "run"])
    assert prepare == ["prepare", "--config", V2, "--download", "--data.root"]


def test_a_run_is_resumed_with_its_own_configuration(program):
    assert program.calls(["--resume", "--out", "run"]) == [["train", "--resume", "--out", "run"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--version"], "expected one argument"),
        (["--version=v3"], "invalid choice: 'v3'"),
        (["--version", "v1", "--config", "my.yaml"], "--version or --config"),
        (["--download", "--resume"], "a run that is resumed has its data"),
    ],
)
def test_wrong_usage(program, capsys, words, message):
    with pytest.raises(SystemExit) as end:
        program.calls(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_missing_data_say_how_to_get_them(tmp_path):
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "train_pcqm4m.py", "--version=v1", "--out", "run"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert result.returncode == 1
    assert "no such folder: data/pcqm4m_kddcup2021 (data.root)" in result.stderr
    assert "`molslice prepare --config FILE --download` fetches it. By hand: unpack https" in result.stderr
