"""The program that searches for inputs that crash molslice."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tests.programs import ROOT, load_program

PROGRAM = ROOT / "scripts" / "fuzz.py"
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import fuzz_targets

def prepare(folder):
    def check(content):
        if content.startswith(b"bad"):
            raise KeyError("a bug")
    return check

fuzz_targets.TARGETS = {{"broken": fuzz_targets.Target(prepare, lambda: [b"bad"], ("bad",))}}
import fuzz
fuzz.__file__ = __file__
sys.exit(fuzz.main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="atheris has wheels for Linux")
def test_each_target_runs_and_finds_nothing_in_a_second(tmp_path):
    command = [sys.executable, str(PROGRAM), "0.07", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    executed = dict(re.findall(r"^(\w+): ([\d,]+) executions", done.stdout, re.M))
    assert list(executed) == ["smiles", "table", "model", "store"]
    assert all(int(count.replace(",", "")) > 5 for count in executed.values()), executed
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="atheris has wheels for Linux")
def test_a_finding_is_kept_with_its_reason(tmp_path):
    program = tmp_path / "broken.py"
    program.write_text(BROKEN.format(folder=str(PROGRAM.parent)))
    keep = tmp_path / "keep"
    command = [sys.executable, str(program), "0.1", "--keep", str(keep)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "KeyError: 'a bug'" in done.stdout
    found = [file for file in keep.iterdir() if file.suffix != ".log"]
    assert [file.read_bytes()[:3] for file in found] == [b"bad"]
    again = subprocess.run(
        [sys.executable, str(program), "--input", str(found[0])], check=False, capture_output=True
    )
    assert b"KeyError" in again.stderr


def test_changed_tokens_keep_the_header_of_tensors_readable():
    mutate_tokens = load_program("fuzz_mutate", "scripts").mutate_tokens
    content = save({"a": np.arange(3, dtype=np.float32)}, {"about": json.dumps({"sizes": [1, 2]})})
    forged = {mutate_tokens(content, seed) for seed in range(300)}
    assert len(forged) > 200
    parsed, loaded = 0, 0
    for each in forged:
        length = int.from_bytes(each[:8], "little")
        assert each[8 + length :] == content[-12:]
        try:
            json.loads(each[8 : 8 + length])
            parsed += 1
            load(each)
            loaded += 1
        except (ValueError, SafetensorError):
            pass
    assert parsed > 100
    assert loaded < parsed  # some descriptions do not fit the numbers


def test_changed_tokens_of_a_text():
    mutate_tokens = load_program("fuzz_mutate", "scripts").mutate_tokens
    found = {mutate_tokens(b'{"rows": 3}', seed) for seed in range(2_000)}
    assert {b'{"rows": 4}', b'{"rows": null}'} <= found
    assert mutate_tokens(b"?!", 0) == b"?!"
