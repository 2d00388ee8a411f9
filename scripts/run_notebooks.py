"""Run the notebooks of the documentation in its folder, each in a new kernel of this Python.

    python scripts/run_notebooks.py               # run all; an error of a cell ends the program
    python scripts/run_notebooks.py --write       # and store what the cells print and draw
    python scripts/run_notebooks.py docs/notebooks/map-of-molecules.ipynb

Warnings and other output on the standard error are not stored.
"""

import argparse
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 900  # the longest time of a cell


def run(notebook: Path) -> nbformat.NotebookNode:
    """Run the cells of a notebook in the folder of the notebook, and return it with their outputs."""
    content = nbformat.read(notebook, as_version=4)
    place = {"metadata": {"path": str(notebook.parent)}}
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the first has `molslice`
    client = NotebookClient(content, timeout=SECONDS, kernel_name="python3", resources=place)
    client.execute(env={**os.environ, "PATH": paths})
    for cell in content.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    content.metadata["language_info"] = {"name": "python"}  # without the version
    return content


def main() -> None:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in docs/notebooks")
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    options = parser.parse_args()
    for notebook in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        content = run(notebook)
        if options.write:
            nbformat.write(content, notebook)
        print(f"{notebook.name}: {len(content.cells)} cells", flush=True)


if __name__ == "__main__":
    main()
