"""Limits in the table of the rows of a fit."""

import math

import pytest

from molslice.folders.limit_cells import limit_columns, limit_text, read_limit


@pytest.mark.parametrize("limit", [(10.0, math.inf), (-math.inf, 0.1), (1.0, 5.0), (-1e-30, math.inf)])
def test_a_written_limit_is_read_again(limit):
    assert read_limit(limit_text(*limit)) == limit


def test_an_empty_cell_is_no_limit():
    assert all(map(math.isnan, read_limit("")))


def test_names_of_columns_are_new():
    assert limit_columns(["y", "y", "z"], ["y_limit", "z"]) == ["y_limit_", "y_limit__", "z_limit"]
