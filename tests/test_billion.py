"""The program that measures the rates of the plan for a billion molecules."""

from tests.programs import load_program


def test_all_parts_are_measured_on_the_same_rows(tmp_path):
    program = load_program("billion")
    (tmp_path / "a.smi").write_text("CCO\nnot one\nc1ccccc1\n")
    parts = program.Parts(tmp_path / "a.smi", tmp_path)
    for name in program.NAMES:
        getattr(parts, name)()
    assert parts.rows == 3
    assert sum(len(part) for part in parts.packed) == 3
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 1 + 3 * program.COPIES
    assert parts.bytes.keys() == {"task", "prediction", "csv", "arrays", "store"}
    assert not (tmp_path / "store").exists()
