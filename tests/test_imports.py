"""Imports of the package: no cycles, and what they change in the process."""

import graphlib
import subprocess
import sys

import grimp


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


def test_the_last_garbage_collection_of_a_command_is_short():
    """Functions that are registered at exit run in reverse order; the first one sees what the others did."""
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); import molslice.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
