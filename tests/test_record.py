"""The helpers of the benchmarks."""

import os

import pytest

from tests.programs import load_program


def test_a_failed_call_ends_calls_that_have_not_begun(tmp_path):
    folders = [tmp_path / str(number) for number in range(9)]
    folders[1].mkdir()
    results = load_program("record").run_all(os.mkdir, [(folder,) for folder in folders], 1)
    assert next(results) == ((folders[0],), None)
    with pytest.raises(FileExistsError):
        next(results)
    assert not folders[-1].exists()
