"""The tables of methods on small measured sets."""

import pytest

from tests.programs import load_program


def row(name, label, mean, *, sd=None, train_rows=None, metric="mae"):
    return {
        "set": name,
        "split": "random",
        "label": label,
        "metric": metric,
        "mean": mean,
        "sd": sd,
        "train_rows": train_rows,
    }


@pytest.fixture
def tables(monkeypatch):
    program = load_program("small_data_tables")
    result = {
        "development_sets": ["esol"],
        "mean_ranks": {"pairs": 7, "ranks": {"fit": 1.25, "forest": 2.0}},
        "comparisons": [
            {
                "label": "fit",
                "reference": "chemprop ensemble",
                "pairs": 10,
                "share_better": 0.9,
                "geometric_mean_ratio": 0.7654,
                "interval": [0.702, 0.811],
            },
            {
                "label": "forest",
                "reference": "chemprop ensemble",
                "pairs": 2,
                "share_better": 0.5,
                "geometric_mean_ratio": 0.9,
                "interval": None,
            },
            {
                "label": "tuned",
                "reference": "forest",
                "pairs": 4,
                "share_better": 0.25,
                "median_ratio": 1.0504,
                "geometric_mean_ratio": 1.1,
                "interval": [0.9, 1.2],
            },
        ],
        "results": [
            row("esol", "fit", 0.25, sd=0.01),
            row("lipo", "forest", 0.5),
            row("lipo", "fit", 0.4, train_rows=100),
            row("tdc_herg", "fit", 0.8, metric="roc_auc"),
        ],
    }
    monkeypatch.setattr(program, "load", lambda name: result)
    return program


def test_summary_has_the_ratios_and_ranks_of_each_method_with_a_result(tables):
    lines = tables.summary_table().splitlines()
    assert lines[2] == "| `molslice fit` | 0.765 (0.70 to 0.81) | 9 of 10 | - | - | 1.25 |"
    assert lines[3] == "| random forest | 0.900 | 1 of 2 | - | - | 2.00 |"
    assert lines[4] == ""
    assert "7 pairs" in lines[7]


def test_pairs_have_the_ratios_of_methods_to_others(tables):
    assert tables.pairs_table().splitlines() == [
        "|  | compared with | error ratio | median ratio | lower on |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| `encoder-small`, fine-tuned, one network | random forest | "
        "1.100 (0.90 to 1.20) | 1.050 | 1 of 4 |",
    ]


def test_scales_have_one_row_for_each_set_and_scale(tables, monkeypatch):
    numbers = {"spearman": 0.91, "mae": 1234.5, "rmse": 0.25, "fold_error": 1.852, "not_positive": 0.39}
    measured = {key: {"mean": value, "sd": 0.01} for key, value in numbers.items()}
    result = {"results": [{"set": "bace", "unit": "nM", "scale": "log", **measured}]}
    monkeypatch.setattr(tables, "load", lambda name: result if name == "fit_scales" else None)
    assert tables.scales_table().splitlines()[2] == (
        "| BACE, IC50 (nM) | logarithms | 0.910 ± 0.010 | 1.85 ± 0.01 | 1,230 | 0.25 | 39% |"
    )


def test_error_table_marks_development_sets_and_leaves_learning_curves_out(tables):
    assert tables.error_table().splitlines() == [
        "|  | split | metric | `fit` | forest |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| esol (development) | random | MAE | 0.250 ± 0.010 | - |",
        "| lipo | random | MAE | - | 0.500 |",
        "| tdc_herg | random | ROC-AUC | 0.800 | - |",
    ]


def test_curve_has_the_sizes_of_each_method_and_what_the_encoder_changes(tables, monkeypatch):
    errors = {"fit": (0.5, 0.4), "fit without encoder": (0.5, 0.8), "forest": (0.9, 0.7)}
    results = [
        {**row("lipo", label, value, train_rows=size), "error": value}
        for label, values in errors.items()
        for value, size in zip(values, (100, None), strict=True)
    ]
    results.append({**row("lipo", "forest", 0.6, train_rows=1_000), "error": 0.6})
    only_all = {**row("lipo", "chemprop", 0.3), "error": 0.3}
    elsewhere = {**row("hiv", "fit", 0.3), "error": 0.3}
    monkeypatch.setattr(tables, "load", lambda name: {"results": [*results, only_all, elsewhere]})
    assert tables.curve_table().splitlines() == [
        "|  |  | 100 rows | 1,000 rows | all |",
        "| :--- | ---: | ---: | ---: | ---: |",
        "| lipo, MAE | `fit` | 0.500 | - | 0.400 |",
        "| lipo, MAE | `fit`, no encoder | 0.500 | - | 0.800 |",
        "| lipo, MAE | forest | 0.900 | 0.600 | 0.700 |",
        "| lipo | error with the encoder over error without | 1.000 | - | 0.500 |",
    ]


def test_candidates_have_their_error_on_each_set_and_the_ratio(tables, monkeypatch):
    result = {
        "reference": "three learners",
        "results": [
            {
                "candidate": "gaussian_process, ranks",
                "sets": {"esol": {"mean": 0.25, "sd": 0.01}, "freesolv": {"mean": 0.5, "sd": None}},
                "ratio": None,
            },
            {"candidate": "three learners", "sets": {}, "ratio": 1.0},
        ],
    }
    monkeypatch.setattr(tables, "load", lambda name: result)
    lines = tables.candidates_table().splitlines()
    assert lines[0] == "|  | ESOL, MAE | FreeSolv, MAE | BACE, 1 - ROC-AUC | error ratio to three learners |"
    assert lines[2:] == [
        "| Gaussian process, ranks | 0.250 ± 0.010 | 0.500 | - | - |",
        "| three learners | - | - | - | 1.000 |",
    ]
