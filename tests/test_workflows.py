"""The workflows have few rights, fixed actions, and commands that molslice has. They are not run."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from molslice.cli import build_parser
from molslice.cli.arguments import split_overrides

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAY_WRITE = {
    ("docs.yml", "deploy"): {"pages": "write", "id-token": "write"},
    ("release.yml", "draft"): {"contents": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
}


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def file(request):
    return request.param


def steps(file):
    return [step for job in yaml.safe_load(file.read_text())["jobs"].values() for step in job["steps"]]


def test_tokens_only_read(file):
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        assert job.get("permissions", {}) == MAY_WRITE.get((file.name, name), {}), name


def test_actions_are_fixed_and_leave_no_token(file):
    for line in re.findall(r"uses: (.*)", file.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    for step in steps(file):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_files_and_commands_exist(file):
    for step in steps(file):
        for name in re.findall(r"(?<![\w/])(?:tests|scripts|configs)/[\w/.-]+\w", step.get("run", "")):
            assert (ROOT / name).exists(), name
        for line in step.get("run", "").splitlines():
            if line.startswith("molslice "):
                words = shlex.split(re.split(r" (&&|\|\||#) ", line)[0])[1:]
                build_parser().parse_args(split_overrides(words)[0])
