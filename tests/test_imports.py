"""Imports of the package: no cycles, and what they change in the process."""

import graphlib
import subprocess
import sys

import grimp
import pytest


def test_no_imports_form_a_cycle():
    graph = grimp.build_graph("molslice", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(f"imports in a cycle: {' <- '.join(error.args[1])}") from None


HEAVY = ("torch", "lightning", "sklearn", "scipy", "pandas", "rdkit", "matplotlib")


def heavy_imports(words):
    """Run a command in a new process, and return the packages that it has imported and its messages."""
    code = f"""
import sys
from molslice.cli import main
main({words!r})
print({{*{HEAVY!r}}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1], done.stderr


def test_the_list_of_models_needs_no_heavy_package():
    assert heavy_imports(["models"]) == ("set()", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "logP"], "has no column 'logP'; "),
        (["--target", "y", "--condition", "T"], "has no column 'T'; "),
        (["--target", "y", "--smiles-column", "S"], "has no column 'S'; "),
        (["--target", "y", "--with", "FILE:x"], "has no column 'x'; "),
        (["--target", "y", "--split", "scafold"], "unknown split 'scafold'; did you mean 'scaffold'?"),
        (["--target", "y", "--members", "99"], "'99' is not a whole number of at least 2 and at most 20"),
        (["--target", "y", "--tune", "5", "--minutes", "5"], "tune must be less than the 5 minutes"),
    ],
)
def test_an_error_of_usage_of_fit_needs_no_heavy_package(tmp_path, words, message):
    table = tmp_path / "table.csv"
    table.write_text("smiles,y\nCCO,1\nCCN,2\n")
    words = [word.replace("FILE", str(table)) for word in words]
    assert message in refused(["fit", str(table), *words, "--out", str(tmp_path / "model")])


def test_a_table_or_folder_that_fit_cannot_take_needs_no_heavy_package(tmp_path):
    table, rest = tmp_path / "table.csv", ["--target", "y", "--out"]
    assert "no such file" in refused(["fit", str(table), *rest, str(tmp_path / "model")])
    table.write_text("name,y\nethanol,1\n")
    assert "SMILES" in refused(["fit", str(table), *rest, str(tmp_path / "model")])
    table.write_text("smiles,y\nCCO,1\n")
    assert "exists; choose another folder" in refused(["fit", str(table), *rest, str(tmp_path)])


def refused(words):
    """Return the message of a command that fails without a package that takes long to import."""
    packages, message = heavy_imports(words)
    assert packages in ("set()", "{'rdkit'}")  # RDKit finds a column of SMILES that has another name
    return message


def test_a_fast_fit_needs_no_network(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("smiles,y\n" + "".join(f"{'C' * k},{k}\n" for k in range(1, 31)))
    words = [
        "fit",
        str(table),
        "--target",
        "y",
        "--no-encoder",
        "--quality",
        "fast",
        "--out",
        str(tmp_path / "m"),
    ]
    packages, _ = heavy_imports([*words, "--out", str(tmp_path / "model")])
    assert "torch" in packages
    assert "lightning" not in packages
    assert "matplotlib" not in packages


def test_the_last_garbage_collection_of_a_command_is_short():
    """Functions that are registered at exit run in reverse order; the first one sees what the others did."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); import molslice.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
