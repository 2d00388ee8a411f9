"""The tables of results on a GPU."""

import pytest

from tests.programs import load_program


@pytest.fixture
def tables():
    return load_program("gpu_tables")


def test_rates_are_medians_over_rounds_with_their_range(tables):
    same = {"attention": "softmax", "form": "kernels"}
    rows = [
        {**same, "molecules": 900, "seconds": 3.0, "peak_bytes": 2e9},
        {**same, "molecules_per_second": 1_200.0, "peak_gb": 2.5},  # a printed line
        {**same, "molecules": 100, "seconds": 0.1, "peak_bytes": 2e9},
        {**same, "form": "compiled", "molecules": 100, "seconds": 0.1, "peak_bytes": 1e9},
    ]
    _, found = tables.rates_table({"rows": rows})
    assert found == [
        ["`softmax`, own kernels", "1,000", "300 to 1,200", "3", "2.5"],
        ["`softmax`, own kernels, compiled", "1,000", "1,000 to 1,000", "1", "1.0"],
    ]


def test_kernels_on_sequences_are_shown_and_those_on_molecules_are_not(tables):
    names = ("floor", "sort", "sort, torch form", "scaled_dot_product_attention")
    names += ("layer slice_sort", "layer softmax")
    times = {name: {"median": 1.0 + place} for place, name in enumerate(names)}
    rows = [{"tokens": 1024, "ms": times}, {"tokens": 24, "ms": {"mix and sort": {"median": 1.0}}}]
    header, found = tables.kernels_table({"rows": rows})
    assert dict(zip(header, *found, strict=True)) == {
        "tokens": "1,024",
        "sort, torch (ms)": "3.0",
        "sort, molslice (ms)": "2.0",
        "FlashAttention (ms)": "4.0",
        "layer `slice_sort` (ms)": "5.0",
        "layer `softmax` (ms)": "6.0",
        "copy (ms)": "1.0",
    }


def test_attentions_on_qm9_are_sorted_by_error(tables):
    row = {"parameters": 1_000, "epochs": 28.7, "seconds": 44.7, "rate": 8e-4, "valid_mae": 0.1}
    rows = [{**row, "attention": "flow", "test_mae": 0.2}, {**row, "attention": "softmax", "test_mae": 0.1}]
    _, found = tables.qm9_table({"rows": rows})
    assert found[0] == ["`softmax`", "1,000", "29", "45", "0.0008", "0.100", "0.100"]
    assert found[1][0] == "`flow`"


def test_rates_of_steps_are_shown_and_checks_and_profiles_are_not(tables):
    step = {"molecules_per_second": 64_318.6, "step_ms": 12.99, "teraflops": 262.3, "peak_share": 0.265}
    step["peak_gigabytes"] = 4.37
    steps = {
        "check path codes": {"outcome": "ok"},
        "pcqm4m base softmax weights": step,
        "base softmax collated": step,
        "base softmax compiled": {"outcome": "failed"},
        "profile base softmax": {"kernels": []},
    }
    _, rows = tables.steps_table({"steps": steps})
    assert [row[:3] for row in rows] == [
        ["`base`, `softmax`", "PCQM4Mv2", "captured, `bf16-weights`"],
        ["`base`, `softmax`", "`gap_xtb`", "before: any shape, launched by the host"],
    ]
    assert rows[0][3:] == ["64,319", "13.0", "262", "26%", "4.4"]
