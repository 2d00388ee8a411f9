"""Bemis-Murcko frameworks."""

from molslice.chem.scaffold import scaffolds


def test_frameworks_keep_rings_and_linkers():
    found = scaffolds(["CCO", "Cc1ccccc1", "CCOc1ccccc1", "c1ccccc1Cc1ccccc1C", "C[C@H]1CCCO1"])
    assert found == ["", "c1ccccc1", "c1ccccc1", "c1ccc(Cc2ccccc2)cc1", "C1CCOC1"]


def test_what_cannot_be_read_has_no_framework(capfd):
    assert scaffolds(["XXX", "", None, "CO(C)C", "a\0b"]) == [""] * 5
    assert capfd.readouterr().err == ""
