"""Dates of a column: forms that are read, and cells that are refused."""

import numpy as np
import pytest

from molslice.data.dates import read_dates
from molslice.types import MolsliceError


def read(*cells, missing=()):
    return read_dates(cells, "date", "row {}".format, missing)


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (["2021-03-04", "2020-12", "2021/3/5"], ["2021-03-04", "2020-12-01", "2021-03-05"]),
        (["2021-03-04T10:30:00", "2021-03-04 00:00:00.000000000"], ["2021-03-04 10:30", "2021-03-04"]),
        (["2021-03-04T01:00:00+02:00", "2021-03-04T01:00Z"], ["2021-03-03 23:00", "2021-03-04 01:00"]),
        (["04.03.2021", "4. 12. 2020 9:05"], ["2021-03-04", "2020-12-04 09:05"]),
        (["3/4/2021", "12/31/2020"], ["2021-03-04", "2020-12-31"]),
        (["3/4/2021", "31/12/2020 2:30 PM"], ["2021-04-03", "2020-12-31 14:30"]),
        (["4-Mar-2021", "4 sept. 2021", "December 1, 2020"], ["2021-03-04", "2021-09-04", "2020-12-01"]),
        (["2021", "2019.5", "-1e3"], ["2021", "2019.5", "-1000"]),
        (["20210304", "44259"], ["20210304", "44259"]),
    ],
)
def test_forms_of_dates(cells, texts):
    dates = read(*cells)
    assert [dates.text(value) for value in dates.values] == texts


def test_dates_have_the_order_of_time():
    values = read("2021-03-04", "1969-12-31", "2021-03-04 00:01").values
    assert values.argsort().tolist() == [1, 0, 2]
    assert values[1] == -1.0


def test_missing_cells_have_no_date():
    values = read("", " 2020 ", "NA", "unknown", "null", missing={"unknown"}).values
    assert np.isnan(values).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["2020", "soon"], "^row 1, column 'date': 'soon' is not a date; write it as 2021-03-04"),
        (["2020", "inf"], "^row 1, column 'date': 'inf' is not a date"),
        (["1e400"], "'1e400' is not a date"),
        (["2021-02-30"], "^row 0, column 'date': '2021-02-30' is not a date"),
        (["2021-03-04T25:00"], "'2021-03-04T25:00' is not a date"),
        (["2021-03-04 noon"], "'2021-03-04 noon' is not a date"),
        (["31/4/2021"], "'31/4/2021' is not a date"),
        (["04.03.21"], "'04.03.21' is not a date"),
        (["4 Foo 2021"], "'4 Foo 2021' is not a date"),
        (["2021-03-04", "2021"], "^row 1, .*'2021' is written in another form than '2021-03-04' in row 0"),
        (["04.03.2021", "3/14/2021"], "'3/14/2021' is written in another form than '04.03.2021'"),
        (["3/4/2021", "12/12/2020"], "^row 0, .*'3/4/2021' may have the day or the month first"),
        (["1/1/2021", "13/1/2021", "1/13/2021"], "^row 2, .*'1/13/2021' has another order of day and month"),
        (["1/13/2021", "13/1/2021"], "^row 1, .*'13/1/2021' has another order of day and month"),
        (["11.2019", "03.2020"], "^row 0, .*'11.2019' may be a month and a year, as all cells"),
        (["", "NA"], "the column 'date' has no dates: all cells are empty"),
    ],
)
def test_cells_that_are_refused(cells, words):
    with pytest.raises(MolsliceError, match=words):
        read(*cells)
