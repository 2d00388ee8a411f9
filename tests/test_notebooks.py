"""The notebooks of the documentation run, and have stored outputs of all cells without an error."""

import nbformat
import pytest

from tests.programs import ROOT, load_program

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 400_000  # bytes

notebooks = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)


@pytest.fixture(scope="module")
def program():
    return load_program("run_notebooks", "scripts")


@notebooks
def test_the_stored_outputs_are_small_and_complete(notebook):
    content = nbformat.read(notebook, as_version=4)
    nbformat.validate(content)
    cells = [cell for cell in content.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert notebook.stat().st_size < LARGEST
    assert str(ROOT) not in notebook.read_text(encoding="utf-8")


@pytest.mark.slow
@notebooks
def test_a_notebook_runs(notebook, program):
    stored, executed = nbformat.read(notebook, as_version=4), program.run(notebook)
    for before, after in zip(stored.cells, executed.cells, strict=True):
        assert before.source == after.source
        kinds = [{output.output_type for output in cell.get("outputs", [])} for cell in (before, after)]
        assert kinds[0] == kinds[1], before.source
