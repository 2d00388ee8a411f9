"""Tests of what the command line writes to the terminal."""

import logging

import pytest

from molslice.cli.console import describe_replaced, say, text_table, warnings_as_messages


def test_text_of_a_file_does_not_control_the_terminal(capsys):
    table = text_table(("target", "gap\n\x1b[31m"), [("C\rC", "0.5"), ("é\ud800", "1")])
    assert table.splitlines() == [
        r"target   gap\n\x1b[31m",
        r"C\rC               0.5",
        r"é\ud800              1",
    ]
    say("error: no column 'a\x1b[2J\n'")
    assert capsys.readouterr().err == "molslice: error: no column 'a\\x1b[2J\\n'\n"


def test_logged_warnings_are_messages(capsys):
    logger = logging.getLogger("molslice.training.run")
    with warnings_as_messages():
        logger.warning("%s: 1 row is left out", "a.csv")
        logger.info("not shown")
    assert capsys.readouterr().err == "molslice: a.csv: 1 row is left out\n"
    assert not logging.getLogger("molslice").handlers


@pytest.mark.parametrize(("count", "rows"), [(1, "1 row"), (0, "0 rows"), (2_000, "2,000 rows")])
def test_one_row_is_no_plural(count, rows):
    assert describe_replaced(count).endswith(f" in {rows}")
