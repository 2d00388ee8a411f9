"""The page of the papers' tables: every column has a state, every state its file or its reason."""

import math
import re

import pytest
from scipy import stats

from tests.programs import ROOT, load_program


@pytest.fixture(scope="module")
def program():
    return load_program("papers_tables")


def columns(program):
    return [(table, name, column) for table in program._tables() for name, column in table["columns"].items()]


def test_each_column_has_a_state_with_its_file_or_its_reason(program):
    for table, name, column in columns(program):
        assert column["state"] in program.STATES, (table["name"], name)
        assert column["why"], (table["name"], name)
        assert bool(column.get("results")) == (column["state"] in ("measured", "reduced")), (
            table["name"],
            name,
        )


def test_each_row_has_a_number_for_each_column(program):
    for table in program._tables():
        assert all(len(row["values"]) == len(table["columns"]) for row in table["rows"].values()), table[
            "name"
        ]


def test_named_configurations_exist(program):
    for _, _, column in columns(program):
        for path in re.findall(r"configs/[\w/]+\.yaml", f"{column['why']} {column.get('open', '')}"):
            assert (ROOT / path).is_file(), path


def test_the_interval_of_a_difference_is_that_of_welch(program):
    difference = program._difference([1.0, 2.0, 4.0], [0.0, 0.5, 1.5])
    expected = stats.ttest_ind([1.0, 2.0, 4.0], [0.0, 0.5, 1.5], equal_var=False).confidence_interval(0.95)
    assert difference[1:] == pytest.approx((expected.low, expected.high))


def test_one_seed_has_no_interval_and_decides_nothing(program):
    difference = program._difference([1.0], [0.0, 0.5])
    assert math.isnan(difference.low)
    assert program._verdict(1.0, 1, difference) == "undecided"


@pytest.mark.parametrize(("mean", "verdict"), [(2.0, "same"), (-2.0, "opposite")])
def test_an_error_with_the_published_order_is_smaller_where_the_published_one_is(program, mean, verdict):
    low, high = sorted((mean / 2, mean * 2))
    assert program._verdict(3.0, 1, program.Difference(mean, low, high)) == verdict
