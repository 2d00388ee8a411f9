"""Tests of the quickstart with replaced programs: time budget, and files that a second run keeps."""

import json
import os
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest
import quickstart_report
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "quickstart.sh"
MOLSLICE = """#!/usr/bin/env bash
echo "$*" >> calls
out="${@: -1}"
mkdir -p "$out"
[ "$1" = train ] && touch "$out/config.yaml" || touch "$out/plan.json"
[ ! -e stopping ] || exit 130
[ "$1" = train ] && touch "$out/summary.json" || echo "| the table |" > "$out/table.md"
"""


def numbers(pattern):
    return [int(text.replace(",", "")) for text in re.findall(pattern, SCRIPT.read_text(encoding="utf-8"))]


def test_it_ends_within_ten_minutes_on_a_machine_half_as_fast():
    outputs = json.loads((ROOT / "benchmarks/results/quickstart.json").read_text())["outputs"]
    steps, seconds = re.search(r"([\d,]+) steps, .*?(\d+) s,", outputs["train"]).groups()
    step_seconds = int(seconds) / int(steps.replace(",", ""))
    entries = json.loads((ROOT / "benchmarks/results/compare_gap_xtb.json").read_text())["entries"]
    times = {one["label"]: one["seconds"]["mean"] for one in entries}
    four = statistics.fmean(times[name] for name in ("softmax", "slice_sort", "flow", "singular"))
    (compared,) = numbers(r"compare_steps=(\d+)")
    config = yaml.safe_load((ROOT / "configs/molecule/quickstart.yaml").read_text())
    trained = config["training"]["max_steps"]
    assert "--minutes" not in SCRIPT.read_text()
    assert numbers(r"([\d,]+) steps: one to three")[0] == trained
    needed = 2 * step_seconds * (trained + 4 * compared * four / times["softmax"])
    assert needed < 600 - 240  # installing and reporting


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "scripts/environment.sh").write_text("prepare_environment() { python=true; }\n")
    molslice = tmp_path / ".venv/bin/molslice"
    molslice.write_text(MOLSLICE)
    molslice.chmod(0o755)
    return tmp_path


def start(clone):
    done = subprocess.run(
        ["bash", "scripts/quickstart.sh", "mine"],
        cwd=clone,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    calls = clone / "calls"
    found = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return done, found


def test_a_stopped_quickstart_continues_and_a_finished_one_is_kept(clone):
    (clone / "stopping").touch()
    done, calls = start(clone)
    assert done.returncode == 130
    assert "bash scripts/quickstart.sh mine continues" in done.stderr
    assert len(calls) == 1
    (clone / "stopping").unlink()
    done, calls = start(clone)
    assert done.returncode == 0
    assert calls[0] == "train --resume --out runs/mine"
    assert calls[1].startswith("compare ")
    assert "continues" not in done.stderr
    done, calls = start(clone)
    assert (done.returncode, calls) == (0, [])
    assert done.stdout.count("and kept it") == 2
    assert "| the table |" in done.stdout


def test_every_step_says_how_long_it_takes(clone):
    done, _ = start(clone)
    steps = [line for line in done.stdout.splitlines() if re.match(r"\[\d/5\]", line)]
    assert len(steps) == 5
    assert all(re.search(r"second|minute", line) for line in steps)


def test_errors_have_four_significant_digits_and_a_missing_one_is_a_dash(tmp_path, monkeypatch):
    summary = {"units": {"mu": "D"}, "attention": "flow", "parameters": 1234}
    summary |= {
        split: {"mae": {"mu": error}}
        for split, error in (("train", 3.2e-5), ("valid", 12.3456), ("test", 0.25))
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    baselines = {
        name: {"valid": {"mae_mean": 0.98765}, "test": {"mae_mean": 101.234}}
        for name in quickstart_report.BASELINE_NAMES
    }
    (tmp_path / "baselines.json").write_text(json.dumps({"baselines": baselines}))
    monkeypatch.setattr(quickstart_report, "BASELINES", tmp_path / "baselines.json")
    header, ours, first, *_ = quickstart_report.errors_table(tmp_path).splitlines()
    assert header.split() == ["MAE", "in", "D", "train", "valid", "test"]
    assert ours.split()[-3:] == ["3.200e-05", "12.35", "0.2500"]
    assert first.split()[-3:] == ["-", "0.9877", "101.2"]
