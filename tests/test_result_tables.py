"""The tables of the documentation, on small results: what a table shows, leaves out and computes."""

import math
import re

import pytest
from scipy import stats

from tests.programs import ROOT, load_program


@pytest.fixture
def program():
    return load_program("result_tables")


@pytest.fixture
def show(program, monkeypatch):
    """Return header and rows of all tables of a block, on a result in place of the file."""

    def show(block, result):
        monkeypatch.setattr(program, "load", lambda name: result)
        lines = [line for line in program.TABLES[block]().splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
        return [row for row in cells if not set("".join(row)) <= set(":-")]

    return show


# a billion molecules

BILLION = {
    "microseconds": {
        **{"read": 2.0, "featurize": 360.0, "predict": 2304.0},
        **{"collect_predictions": 3.0, "collect_molecules": 1.5},
    },
    "bytes": {"smiles": 50.0, "task": 60.0, "prediction": 60.0, "csv": 60.0, "arrays": 500.0, "store": 400.0},
    "chunk_rows": {"predict": 4000, "prepare": 2000},
    "ray_milliseconds": 9.0,
}


def test_the_plan_is_the_formula_of_the_guide(show):
    header, *rows = show("billion_plan", BILLION)
    assert header[1:] == ["core-hours", "cost", "1 node (h)", "10 nodes (h)", "100 nodes (h)", "useful cores"]
    assert rows[:4] == [
        ["predict to a folder", "640", "$26", "10.0", "1.0", "0.1", "no limit"],
        # 5.25 microseconds for one process
        ["predict to one file", "640", "$26", "10.0", "1.5", "1.5", "439"],
        ["prepare a store for each group of files", "100", "$4", "1.6", "0.2", "0.0", "no limit"],
        # 6 microseconds
        ["prepare one store", "100", "$4", "1.7", "1.7", "1.7", "60"],
    ]
    assert [row[2] for row in rows[5:]] == ["50", "60", "400"]


# measurements on a GPU


def test_kernels_on_sequences_are_shown_and_kernels_on_molecules_are_not(show):
    names = ("floor", "sort", "sort, torch form", "scaled_dot_product_attention")
    names += ("layer slice_sort", "layer softmax")
    times = {name: {"median": 1.0 + place} for place, name in enumerate(names)}
    rows = [{"tokens": 1024, "ms": times}, {"tokens": 24, "ms": {"mix and sort": {"median": 1.0}}}]
    header, *rows = show("gpu_kernels", {"rows": rows})
    assert dict(zip(header, *rows, strict=True)) == {
        "tokens": "1,024",
        "sort, torch (ms)": "3.0",
        "sort, molslice (ms)": "2.0",
        "FlashAttention (ms)": "4.0",
        "layer `slice_sort` (ms)": "5.0",
        "layer `softmax` (ms)": "6.0",
        "copy (ms)": "1.0",
    }


def test_models_on_all_rows_of_qm9_are_sorted_by_error(show):
    row = {
        "model": "small",
        "parameters": 1_000,
        "epochs": 28.7,
        "seconds": 44.7,
        "rate": 8e-4,
        "valid_mae": 0.1,
    }
    rows = [
        {**row, "attention": "flow", "test_mae": 0.2, "hardware": {"gpus": ["a"]}},
        {**row, "attention": "softmax", "test_mae": 0.1, "hardware": {"cpu_count": 2}},
    ]
    _, first, second = show("qm9_all_rows", {"rows": rows})
    assert first == ["small", "`softmax`", "CPU", "1,000", "29", "45", "0.0008", "0.100", "0.100"]
    assert second[:3] == ["small", "`flow`", "GPU"]


def test_options_on_qm9_have_error_and_time(show):
    numbers = {"valid_mae": {"mean": 0.18, "sd": None}, "test_mae": {"mean": 0.17, "sd": 0.001}}
    entry = {"parameters": 1_000, "seconds": {"mean": 380.4, "sd": None}, **numbers}
    _, *rows = show("qm9_levers", {"entries": [{"label": name, **entry} for name in ("chemprop", "Muon")]})
    assert rows[0] == ["chemprop 2.3, 50 epochs", "1,000", "380", "0.180", "0.170 ± 0.001"]
    assert rows[1][0] == "molslice: Muon"


def test_rates_of_steps_are_shown_and_checks_and_profiles_are_not(show):
    step = {"molecules_per_second": 64_318.6, "step_ms": 12.99, "teraflops": 262.3, "peak_share": 0.265}
    step["peak_gigabytes"] = 4.37
    steps = {
        "check path codes": {"outcome": "ok"},
        "pcqm4m base softmax weights": step,
        "base softmax collated": step,
        "base softmax compiled": {"outcome": "failed"},
        "profile base softmax": {"kernels": []},
    }
    _, *rows = show("gpu_list", {"steps": steps})
    assert [row[:3] for row in rows] == [
        ["`base`, `softmax`", "PCQM4Mv2", "captured, `bf16-weights`"],
        ["`base`, `softmax`", "`gap_xtb`", "before: any shape, launched by the host"],
    ]
    assert rows[0][3:] == ["64,319", "13.0", "262", "26%", "4.4"]


# speed of molecules


def side(name, speed, **ratios):
    return {
        "name": name,
        "parameters": 1000,
        "molecules_per_second": speed,
        "times_as_fast_as": ratios,
    }


@pytest.fixture
def speed():
    ratios = {"chemprop 2.3.1": 2.04, "Graphormer rewrite quickstart": 5.06, "Graphormer rewrite slim": 9.9}
    molecules = {
        "name": "qm9",
        "sides": [
            side("molslice quickstart softmax", 1000.4, **ratios),
            side("molslice slim flow", 500.0, **ratios),
            side("molslice qm9 softmax", 600.0, **ratios),
            side("Graphormer rewrite slim", 99.6, **{"chemprop 2.3.1": 0.5}),
            side("chemprop 2.3.1", 400.0),
        ],
    }
    return {"sets": [molecules]}


def test_sides_of_molslice_are_compared_with_the_same_size(show, speed):
    header, *rows = show("training_speed", speed)
    assert header[2:] == ["QM9: molecules/s", "times chemprop", "times Graphormer's pipeline"]
    assert rows == [
        ["molslice, 4 x 64, `softmax`", "1,000", "1,000", "2.0", "5.1"],
        ["molslice, 12 x 80, `flow`", "1,000", "500", "2.0", "9.9"],
        ["molslice, 4 x 64 in batches of 128, `softmax`", "1,000", "600", "2.0", "5.1"],
        ["Graphormer's pipeline, 12 x 80", "1,000", "100", "", ""],
        ["chemprop 2.3.1", "1,000", "400", "", ""],
    ]


def test_predictions_and_preparation(show):
    result = {
        "milliseconds": {"runs/small": 0.5, "chemprop": 2.0},
        "ratio_to_chemprop": {"runs/small": 4.0},
        "parameters": {"runs/small": 1000},
    }
    _, *rows = show("prediction", result)
    assert rows == [["`small`", "1,000", "0.50", "4.00"], ["chemprop", "", "2.00", ""]]
    two = {"workers": 2, "rows_per_second": 5000.4, "parent_microseconds": 8.2, "worker_microseconds": 367.0}
    _, *rows = show("preparation", {"results": [two, {**two, "workers": 1, "worker_microseconds": 0.0}]})
    assert rows == [["2", "5,000", "8", "367"], ["1", "5,000", "8", ""]]


# small measured sets


def row(name, label, mean, *, sd=None, train_rows=None, metric="mae"):
    fixed = {"set": name, "split": "random", "label": label, "metric": metric}
    return {**fixed, "mean": mean, "sd": sd, "train_rows": train_rows, "error": mean}


def comparison(label, reference, pairs, share, ratio, interval):
    names = {"label": label, "reference": reference, "pairs": pairs, "share_better": share}
    return {**names, "geometric_mean_ratio": ratio, "interval": interval}


SMALL_DATA = {
    "development_sets": ["esol"],
    "mean_ranks": {"pairs": 7, "ranks": {"fit": 1.25, "forest": 2.0}},
    "comparisons": [
        comparison("fit", "chemprop ensemble", 10, 0.9, 0.7654, [0.702, 0.811]),
        comparison("forest", "chemprop ensemble", 2, 0.5, 0.9, None),
    ],
    "results": [
        row("esol", "fit", 0.25, sd=0.01),
        row("lipo", "forest", 0.5),
        row("lipo", "fit", 0.4, train_rows=100),
        row("tdc_herg", "fit", 0.8, metric="roc_auc"),
    ],
}


def test_summary_has_the_ratios_and_ranks_of_each_method_with_a_result(show, program):
    _, *rows = show("small_data_summary", SMALL_DATA)
    assert rows == [
        ["`molslice fit --quality best`", "0.765 (0.70 to 0.81)", "9 of 10", "-", "-", "1.25"],
        ["random forest", "0.900", "1 of 2", "-", "-", "2.00"],
    ]
    assert "7 pairs" in program.small_data_summary().splitlines()[-1]


def test_errors_on_the_sets_of_moleculeace_are_one_mean(show):
    results = [
        row("CHEMBL1_Ki", "fit", 0.5, metric="rmse"),
        row("CHEMBL2_Ki", "fit", 0.7, metric="rmse"),
        row("CHEMBL1_Ki", "tuned", 0.9, metric="rmse"),
    ]
    header, *rows = show("small_data_errors", {**SMALL_DATA, "results": results})
    assert header == ["", "split", "metric", "`fit`, best"]
    assert rows == [["MoleculeACE, mean of 2", "random", "RMSE", "0.600"]]


def test_error_table_marks_development_sets_and_leaves_learning_curves_out(show):
    assert show("small_data_errors", SMALL_DATA) == [
        ["", "split", "metric", "`fit`, best", "forest"],
        ["esol (development)", "random", "MAE", "0.250 ± 0.010", "-"],
        ["lipo", "random", "MAE", "-", "0.500"],
        ["tdc_herg", "random", "ROC-AUC", "0.800", "-"],
    ]


def test_curve_has_the_sizes_of_each_method_and_what_the_encoder_changes(show):
    errors = {"fit": (0.5, 0.4), "fit without encoder": (0.5, 0.8), "forest": (0.9, 0.7)}
    results = [
        row("lipo", label, value, train_rows=size)
        for label, values in errors.items()
        for value, size in zip(values, (100, None), strict=True)
    ]
    results += [row("lipo", "forest", 0.6, train_rows=1_000), row("lipo", "chemprop", 0.3)]
    assert show("small_data_curve", {"results": [*results, row("hiv", "fit", 0.3)]}) == [
        ["", "", "100 rows", "1,000 rows", "all"],
        ["lipo, MAE", "`fit`, best", "0.500", "-", "0.400"],
        ["lipo, MAE", "`fit`, no encoder", "0.500", "-", "0.800"],
        ["lipo, MAE", "forest", "0.900", "0.600", "0.700"],
        ["lipo", "error with the encoder over error without", "1.000", "-", "0.500"],
    ]


# measured uncertainty


def run(name, seed, count, coverage):
    levels = [
        {"level": level, "count": count, "coverage": coverage, "standard_error": 0.0, "width": 2.0}
        for level in (0.5, 0.8, 0.9, 0.95)
    ]
    return {
        **({"set": name, "division": "random", "seed": seed} if seed is not None else {"set": name}),
        **{"count": count, "error": 0.5, "levels": levels},
        "groups": [{"by": "scaffold", "group": "new scaffold", "count": 10, "coverage": coverage}],
        "rank_correlation": {"spread": 0.4, "width": 0.3},
    }


def test_coverage_pools_the_rows_of_all_seeds(show):
    result = {
        "fits": [run("ESOL", 0, 100, 0.8), run("ESOL", 1, 300, 1.0)],
        "gap_xtb": [run("gap_xtb", None, 50, 0.9)],
    }
    _, esol, shipped = show("coverage", result)
    assert esol[:5] == ["`fit`, ESOL, random", "2", "400", "0.5", "95.0 ± 2.5"]
    assert shipped[:3] == ["`gap-xtb`, `data/gap_xtb`", "", "50"]
    result["gap_xtb"][0]["rank_correlation"]["spread"] = None
    _, esol = show("uncertainty_ranking", result)
    assert esol[1:] == ["0.30", "-", "90.0 ± 6.7 (20)", "-"]


def class_run(seed, counts, coverages):
    levels = [
        {
            "level": level,
            **{f"coverage_class_{label}": share for label, share in enumerate(coverages)},
            **{"set_size": 1.25, "empty_sets": 0.1, "double_sets": 0.35},
        }
        for level in (0.5, 0.8, 0.9, 0.95)
    ]
    return {
        **{"set": "BBBP", "division": "random", "seed": seed, "class_counts": counts},
        "levels": levels,
    }


def test_classes_have_rows_in_the_tables_of_classes_only(show):
    runs = [class_run(0, [10, 90], [0.8, 1.0]), class_run(1, [30, 70], [1.0, 1.0])]
    result = {"fits": runs, "gap_xtb": []}
    _, *rows = show("class_sets", result)
    assert len(rows) == 1
    assert rows[0][1:] == ["2", "95.0 ± 4.7 (40)", "100.0 ± 2.4 (160)", "1.25", "10%", "35%"]
    assert len(show("coverage", result)) == 1  # the header


# the tables of the papers


def columns(program):
    return [
        (table["name"], name, column)
        for table in program.paper_tables()
        for name, column in table["columns"].items()
    ]


def test_each_column_has_a_state_with_its_file_or_its_reason(program):
    for *place, column in columns(program):
        assert column["state"] in program.STATES, place
        assert column["why"], place
        assert bool(column.get("results")) == (column["state"] in ("measured", "reduced")), place


def test_each_row_has_a_number_for_each_column(program):
    for table in program.paper_tables():
        for row in table["rows"].values():
            assert len(row["values"]) == len(table["columns"]), table["name"]


def test_named_configurations_exist(program):
    for *_, column in columns(program):
        for path in re.findall(r"configs/[\w/]+\.yaml", f"{column['why']} {column.get('open', '')}"):
            assert (ROOT / path).is_file(), path


def test_the_interval_of_a_difference_is_the_interval_of_welch(program):
    values, others = [1.0, 2.0, 4.0], [0.0, 0.5, 1.5]
    expected = stats.ttest_ind(values, others, equal_var=False).confidence_interval(0.95)
    assert program.welch_difference(values, others)[1:] == pytest.approx((expected.low, expected.high))


def test_one_seed_has_no_interval_and_decides_nothing(program):
    difference = program.welch_difference([1.0], [0.0, 0.5])
    assert math.isnan(difference.low)
    assert program.verdict(1.0, difference) == "undecided"


@pytest.mark.parametrize(("mean", "verdict"), [(2.0, "same"), (-2.0, "opposite")])
def test_an_error_with_the_published_order_is_smaller_where_the_published_one_is(program, mean, verdict):
    low, high = sorted((mean / 2, mean * 2))
    assert program.verdict(3.0, program.Difference(mean, low, high)) == verdict
