"""Tests of names in place of the paths of folders."""

import pytest

from molslice.files.folder_names import without_folders

NAMES = {"/a/b": "b", "/a/b/c": "inner"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cannot read /a/b/rows.csv: it is empty", "cannot read b/rows.csv: it is empty"),
        ("/a/b is a run. See /a/b.", "b is a run. See b."),
        ("/a/b/c/x and '/a/b'", "inner/x and 'b'"),
        ("/a/b.csv, /a/bc, /a/b-2", "/a/b.csv, /a/bc, /a/b-2"),
    ],
)
def test_paths_of_folders_are_replaced_and_no_others(text, wanted):
    assert without_folders(text, NAMES) == wanted
