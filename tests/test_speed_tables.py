"""The tables of the speed of training."""

import pytest

from tests.programs import load_program

SPREAD = {"median": 1234.6, "min": 1.0, "max": 2000.0}


def side(name, speed, **ratios):
    return {
        "name": name,
        "parameters": 1000,
        "molecules_per_second": speed,
        "start_seconds": 3.21,
        "prepare_microseconds": 456.7,
        "example_seconds": 78.9,
        "times_as_fast_as": ratios,
    }


@pytest.fixture
def tables():
    return load_program("speed_tables")


@pytest.fixture
def result():
    ratios = {"chemprop 2.3.1": 2.04, "Graphormer rewrite quickstart": 5.06, "Graphormer rewrite slim": 9.9}
    names = ("molecules_per_second", "molecules_per_processor_second", "batches_per_second", "peak_bytes")
    stage = dict.fromkeys(names, SPREAD)
    stage = {"stage": "batches of 64", "padding_share": 0.0123, "worker_peak_bytes": None, **stage}
    one = {
        "name": "qm9",
        "sides": [
            side("molslice quickstart softmax", 1000.4, **ratios),
            side("molslice slim flow", 500.0, **ratios),
            side("molslice qm9 softmax", 600.0, **ratios),
            side("Graphormer rewrite slim", 99.6, **{"chemprop 2.3.1": 0.5}),
            side("chemprop 2.3.1", 400.0),
        ],
        "data_path": {"molecules": 5000, "stages": [stage]},
    }
    return {"sets": [one], "example": {"rows": 10_000, "epochs": 20}}


def test_ratios_are_those_of_molslice_to_the_same_size(tables, result):
    header, rows = tables.training_table(result)
    assert header[2:] == ["QM9: molecules/s", "times chemprop", "times Graphormer's pipeline"]
    assert rows == [
        ["molslice, 4 x 64, `softmax`", "1,000", "1,000", "2.0", "5.1"],
        ["molslice, 12 x 80, `flow`", "1,000", "500", "2.0", "9.9"],
        ["molslice, 4 x 64 in batches of 128, `softmax`", "1,000", "600", "2.0", "5.1"],
        ["Graphormer's pipeline, 12 x 80", "1,000", "100", "", ""],
        ["chemprop 2.3.1", "1,000", "400", "", ""],
    ]


def test_the_time_before_the_first_step(tables, result):
    header, rows = tables.start_table(result)
    assert header[-1] == "10,000 molecules, 20 epochs (s)"
    assert rows[0] == ["molslice, 4 x 64, `softmax`", "3.2", "457", "79"]
    assert [row[0] for row in rows[1:]] == ["molslice, 4 x 64 in batches of 128, `softmax`", "chemprop 2.3.1"]


def test_predictions_and_preparation(tables):
    result = {
        "milliseconds": {"runs/mine": 0.5, "chemprop": 2.0},
        "ratio_to_chemprop": {"runs/mine": 4.0},
        "parameters": {"runs/mine": 1000},
    }
    _, rows = tables.prediction_table(result)
    assert rows == [["`mine`", "1,000", "0.50", "4.00"], ["chemprop", "", "2.00", ""]]
    side = {"workers": 2, "rows_per_second": 5000.4, "parent_microseconds": 8.2, "worker_microseconds": 367.0}
    _, rows = tables.preparation_table(
        {"results": [side, {**side, "workers": 1, "worker_microseconds": 0.0}]}
    )
    assert rows == [["2", "5,000", "8", "367"], ["1", "5,000", "8", ""]]


def test_the_data_path_and_padding(tables, result):
    _, rows = tables.data_table(result)
    assert rows == [["QM9: batches of 64", "5,000", "1,235", "1.2%", "1.2e-06"]]
    assert tables.padding_sentence(result) == ""
    batches = [
        {"padding_share": 0.011, "batch_size": 64, "token_budget": 2048},
        {"padding_share": 0.024, "batch_size": 1024, "token_budget": 65536},
    ]
    found = {"drawn": 3_378_606, "rows": 1999, "batches": batches}
    sentence = tables.padding_sentence({"pcqm4m_padding": found})
    assert "3,378,606 lengths drawn from the first 1,999 training rows" in sentence
    assert "1.1% with batches of at most 64 molecules and 2,048 tokens and 2.4%" in sentence


def test_a_large_store_is_described(tables):
    run = {"workers": 2, "parent_mib": 330.4, "worker_mib": 222.7, "seconds": 60.0}
    epoch = {
        "open_seconds": 3.04,
        "batches": 3369,
        "batch_size": 1024,
        "token_budget": 65536,
        "seconds": 11.2,
        "rows_per_second": 304604.4,
        "padding_share": 0.0196,
    }
    text = tables.large_store(
        {
            "rows": 3400000,
            "atoms_per_molecule": {"median": 26},
            "runs": [run, {**run, "parent_mib": 331.0}],
            "seconds": 120.0,
            "bytes": 1378042701,
            "bytes_per_molecule": 405.6,
            "epoch": epoch,
        }
    )
    assert "3,400,000 rows (26 heavy atoms in the median) was prepared by 2 processes in 2 minutes" in text
    words = " ".join(text.split())
    assert "at most 331 MiB, a worker 223 MiB. The store has 1.38 GB, 406 bytes per molecule." in words
    assert "take 11 s without a model on one thread, 304,604 molecules per second, with 2.0% padding" in words
