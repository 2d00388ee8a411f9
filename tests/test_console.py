"""Tests of what the command line writes to the terminal."""

from molslice.cli.console import say, text_table


def test_text_of_a_file_does_not_control_the_terminal(capsys):
    table = text_table(("target", "gap\n\x1b[31m"), [("C\rC", "0.5"), ("é\ud800", "1")])
    assert table.splitlines() == [
        r"target   gap\n\x1b[31m",
        r"C\rC               0.5",
        r"é\ud800              1",
    ]
    say("error: no column 'a\x1b[2J\n'")
    assert capsys.readouterr().err == "molslice: error: no column 'a\\x1b[2J\\n'\n"
