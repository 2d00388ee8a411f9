"""The lists of packages agree, and the installation scripts work."""

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from molslice.model import build_model
from molslice.model.base import AttentionChoice
from molslice.model.gin_virtual import GinVirtualSpec
from molslice.types import DataSpec
from molslice.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# what a package is called on conda-forge, where it is not called as on PyPI
CONDA_NAMES = {"torch": "pytorch", "torch-geometric": "pytorch_geometric", "torch-scatter": "pytorch_scatter"}
ASKED = ("torch", "torch-geometric", "rdkit", "ogb", "torch-scatter", "lightning", "numpy")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(*extras):
    texts = list(PROJECT["dependencies"])
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    return {normal(parsed.name): parsed for parsed in map(Requirement, texts)}


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_conda_and_pip_ask_for_the_same():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {line for line in listed if isinstance(line, str)} - {"pip"}
    expected = {f"python{PROJECT['requires-python']}"}
    for name, requirement in requirements("scatter", "logging", "images", "text", "rl").items():
        expected.add(f"{CONDA_NAMES.get(name, name)}{requirement.specifier}")
    assert conda == expected
    assert {"pip": ["-e ."]} in listed
    assert set(ASKED) <= requirements("scatter").keys()


def test_the_other_extras_are_named_in_the_conda_file():
    comments = (ROOT / "environment.yml").read_text().partition("name:")[0]
    extras = PROJECT["optional-dependencies"].keys() - {"dev", "docs"}
    assert {extra for extra in extras if not re.search(rf"[`\[]{extra}[`\]]", comments)} == set()


def test_scatter_is_said_to_be_unused_as_long_as_it_is():
    assert "torch_scatter" not in imported()
    for page in ("environment.yml", "README.md", "docs/index.md"):
        assert "does not import" in (ROOT / page).read_text(encoding="utf-8"), page


def test_the_network_of_pytorch_geometric_only_sums():
    """PyG sums with torch. It calls torch-scatter on a GPU, for products and gradients of extreme values."""
    from torch_geometric.nn import MessagePassing

    model = build_model(GinVirtualSpec(num_layers=2, dim=8), AttentionChoice(), DataSpec(1))
    aggregations = [layer.aggr for layer in model.modules() if isinstance(layer, MessagePassing)]
    assert aggregations == ["add", "add"]


def test_the_conda_recipe_is_the_package_of_the_project():
    recipe = yaml.safe_load((ROOT / "scripts" / "recipe.yaml").read_text())
    python = recipe["context"]["python_min"]
    names = {**CONDA_NAMES, "matplotlib": "matplotlib-base"}
    expected = {f"{names.get(name, name)} {one.specifier}" for name, one in requirements().items()}
    run = {line.replace("${{ python_min }}", python) for line in recipe["requirements"]["run"]}
    assert run == expected | {f"python {PROJECT['requires-python']}"}
    assert recipe["context"]["version"] == citation()["version"] == __version__
    about, urls = recipe["about"], PROJECT["urls"]
    assert (about["license"], about["summary"]) == (PROJECT["license"], PROJECT["description"])
    assert (about["repository"], about["documentation"]) == (urls["Repository"], urls["Documentation"])
    assert recipe["source"]["url"].startswith(urls["Repository"])
    assert recipe["build"]["python"]["entry_points"] == [f"molslice = {PROJECT['scripts']['molslice']}"]
    for file in about["license_file"]:
        assert any((ROOT / file).match(pattern) for pattern in PROJECT["license-files"]), file


def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_classifiers_are_the_tested_versions_of_python():
    tested = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]["test"]
    versions = {f"Programming Language :: Python :: {one}" for one in tested["strategy"]["matrix"]["python"]}
    pattern = re.compile(r"Programming Language :: Python :: 3\.\d+")
    assert {one for one in PROJECT["classifiers"] if pattern.fullmatch(one)} == versions


def imported(*files):
    """Return the top-level names that files, by default the package, import in modules and in functions."""
    names = set()
    for path in files or (ROOT / "molslice").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"molslice", "tests"}


def test_every_library_that_the_package_imports_is_declared():
    projects = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
    needed = {normal(projects.get(name, name)) for name in imported()}
    with_torch = {"triton"}  # installed with torch for CUDA
    assert needed - with_torch - requirements(*PROJECT["optional-dependencies"]).keys() == set()


def test_what_the_checks_of_all_tests_import_is_installed_where_tests_run():
    needed = imported(ROOT / "tests" / "shapes.py", ROOT / "tests" / "json_results.py") | {"pytest"}
    assert needed <= requirements("dev").keys()
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    (lowest,) = re.findall(r"pip install -c lowest\.txt -e \. (.*)", workflow)
    assert needed <= {*requirements(), *lowest.split()}


def test_constraints_are_exact_and_name_no_place():
    for line in constraints():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line
    names = [normal(line.partition("==")[0]) for line in constraints()]
    assert names == sorted(set(names), key=names.index)
    assert "molslice" not in names


def test_constraints_hold_every_requirement():
    fixed = {
        normal(name): Version(version)
        for name, _, version in (line.partition("==") for line in constraints())
    }
    for name, requirement in requirements("dev", "labels", "logging").items():
        assert fixed[name] in requirement.specifier, name


def test_tensorboard_is_an_extra_that_the_tests_install():
    assert "tensorboard" not in requirements()
    assert requirements("logging")["tensorboard"] == requirements("dev")["tensorboard"]


def test_these_tests_run_on_the_versions_that_are_written():
    """Only in the project's own environment; others may have other versions."""
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("not the environment that scripts/test.sh makes")
    from importlib.metadata import version

    fixed = {
        normal(name): Version(text) for name, _, text in (line.partition("==") for line in constraints())
    }
    for name in requirements("dev"):
        assert Version(Version(version(name)).public) == fixed[name], name


@pytest.mark.parametrize(
    "name", ["scripts/quickstart.sh", "scripts/test.sh", "scripts/environment.sh", ".ci/run"]
)
def test_shell_scripts_are_sound(name):
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)
    assert (ROOT / name).stat().st_mode & stat.S_IXUSR or name.endswith("environment.sh")


def prepared(root, *arguments, path=None, **environment):
    """Run `prepare_environment` for a project in `root`, with `path` first in PATH."""
    script = (
        f'set -euo pipefail; root="{root}"; source "{ROOT}/scripts/environment.sh"; prepare_environment "$@"'
    )
    return subprocess.run(
        ["bash", "-c", script, "test", *arguments],
        env={**os.environ, **environment, **({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def project(tmp_path):
    """Write a project with an environment whose pip only records its arguments."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$1 $2" = "-m pip" ]; then echo "$@" >> "{tmp_path}/asked"; exit 0; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return tmp_path


def test_installed_once(project):
    first, second = prepared(project), prepared(project)
    assert first.returncode == second.returncode == 0, first.stderr
    assert "Installing molslice" in first.stdout
    assert "Found the environment" in second.stdout
    (asked,) = (project / "asked").read_text().splitlines()
    assert f"-c {project}/constraints.txt -e {project}" in asked


def test_installed_again_when_the_versions_change(project):
    prepared(project)
    with (project / "constraints.txt").open("a") as file:
        file.write("another==1.0\n")
    assert "Installing molslice" in prepared(project).stdout
    assert len((project / "asked").read_text().splitlines()) == 2


def test_the_extra_brings_the_plain_installation(project):
    assert "with the extra dev" in prepared(project, "dev").stdout
    assert "Found the environment" in prepared(project).stdout
    assert "Found the environment" in prepared(project, "dev").stdout
    assert f"-e {project}[dev]" in (project / "asked").read_text()


def test_an_old_python_is_said(tmp_path):
    """Every Python on the path reports an old version."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        (fakes / name).write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1"\nexit 1\n')
        (fakes / name).chmod(0o755)
    result = prepared(tmp_path, path=fakes, PYTHON="")
    assert result.returncode == 1
    assert "needs Python 3.11 or newer; found: Python 3.9.1" in result.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("script", "verb"),
    [("train_pcqm4m", "train"), ("predict_smiles", "predict"), ("params_vs_mae", "compare")],
)
def test_the_thin_doors_open(script, verb):
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / f"{script}.py", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0
    assert f"usage: molslice {verb}" in result.stdout
