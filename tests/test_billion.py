"""The plan for a billion molecules: its arithmetic, and the program that measures its rates."""

import pytest

from tests.programs import load_program

RESULT = {
    "microseconds": {
        "read": 2.0,
        "featurize": 360.0,
        "predict": 2304.0,
        "collect_predictions": 3.0,
        "collect_molecules": 1.5,
    },
    "bytes": {"smiles": 50.0, "task": 60.0, "prediction": 60.0, "csv": 60.0, "arrays": 500.0, "store": 400.0},
    "chunk_rows": {"predict": 4000, "prepare": 2000},
    "ray_milliseconds": 9.0,
}


def test_the_plan_is_the_formula_of_the_guide():
    header, rows = load_program("billion_tables").plan_table(RESULT)
    assert header[1:] == ["core-hours", "cost", "1 node (h)", "10 nodes (h)", "100 nodes (h)", "useful cores"]
    assert rows == [
        ["predict to a folder", "640", "$26", "10.0", "1.0", "0.1", "no limit"],
        [
            "predict to one file",
            "640",
            "$26",
            "10.0",
            "1.5",
            "1.5",
            "439",
        ],  # 5.25 microseconds for one process
        ["prepare a store for each group of files", "100", "$4", "1.6", "0.2", "0.0", "no limit"],
        ["prepare one store", "100", "$4", "1.7", "1.7", "1.7", "60"],  # 6 microseconds
    ]


def test_sizes_are_those_of_a_billion():
    _, rows = load_program("billion_tables").volume_table(RESULT)
    assert [row[2] for row in rows] == ["50", "60", "400"]


def test_all_parts_are_measured_on_the_same_rows(tmp_path):
    pytest.importorskip("ray")
    program = load_program("billion")
    (tmp_path / "a.smi").write_text("CCO\nnot one\nc1ccccc1\n")
    parts = program.Parts(tmp_path / "a.smi", tmp_path)
    for name in program.NAMES:
        getattr(parts, name)()
    assert parts.rows == 3
    assert sum(len(part.atom_counts) for part in parts.packed) == 3
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 1 + 3 * program.COPIES
    assert parts.bytes.keys() == RESULT["bytes"].keys() - {"smiles"}
    assert not (tmp_path / "store").exists()
