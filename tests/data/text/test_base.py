"""Tests of options of texts that cannot be combined."""

import pytest

from molslice.data.text.text_folder import TextFolder
from molslice.types import MolsliceError


def test_test_fraction_is_refused_where_there_is_a_test_split(tmp_path):
    for split in ("train", "test"):
        for name in "ab":
            (folder := tmp_path / split / name).mkdir(parents=True)
            for number in range(9):
                (folder / f"{number}.txt").write_text(f"{split} {name} {number}")
    with pytest.raises(MolsliceError, match="test_fraction cannot be used: .* has its own test split"):
        TextFolder(root=tmp_path, test_fraction=0.2)
    with pytest.raises(MolsliceError, match="test_fraction cannot be used with folds"):
        TextFolder(root=tmp_path / "train", test_fraction=0.2, folds=3, fold=0)
