"""The Dockerfile and the compose file agree with each other and with the command. The image is not built."""

import json
import re
from pathlib import Path

import yaml

from molslice.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
(SERVICE,) = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()


def instruction(name):
    """Return the arguments of the last instruction of this name."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)[-1]


def test_the_command_of_the_container_is_one_of_molslice():
    words = json.loads(instruction("ENTRYPOINT")) + SERVICE["command"]
    args = build_parser().parse_args(words[1:])
    assert (words[0], args.verb, args.host, args.models) == ("molslice", "serve", "0.0.0.0", ["gap-xtb"])
    assert json.loads(instruction("CMD")) == SERVICE["command"]
    assert instruction("EXPOSE") == str(args.port)
    assert SERVICE["ports"] == [f"127.0.0.1:{args.port}:{args.port}"]
    assert f"http://127.0.0.1:{args.port}/health" in instruction("HEALTHCHECK")


def test_the_program_is_not_root_and_everything_copied_exists():
    assert instruction("USER") == "molslice"
    ignored = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored


def test_the_health_check_is_a_program():
    command = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "health check", "exec")
