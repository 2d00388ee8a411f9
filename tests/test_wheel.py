"""A wheel contains only the package and predicts in a separate environment."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from the files that git tracks."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, tree / name
        if name.startswith(("molslice/", "pyproject", "README", "LICENSE")) and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree)]
    subprocess.run(command, capture_output=True, check=True)
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "molslice").rglob("*")
        if path.suffix in {".py", ".typed", ".safetensors"}
        or {"pretrained", "static"} & {*path.parts}
        and path.is_file()
    }
    assert found == {name for name in wanted if "__pycache__" not in name}


def test_the_wheel_predicts_where_molslice_is_not_installed(wheel, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    places = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    site = Path(places.stdout.strip())
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies come from this environment; the path entry does not run its editable installation.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    program = (
        f"import molslice; assert molslice.__file__.startswith({str(site)!r}), molslice.__file__;"
        "print(molslice.load_model('gap-xtb').predict(['CCO']).shape)"
    )
    run = subprocess.run(
        [python, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.stdout == "(1,)\n", run.stderr
