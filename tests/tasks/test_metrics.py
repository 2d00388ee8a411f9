"""Tests of metrics as text: tiny errors are never shown as zero."""

import numpy as np
import pytest

from molslice.cli.evaluate import result_text
from molslice.cli.train import summary_text
from molslice.tasks.base import Measure
from molslice.tasks.metrics import fold_error, format_metric, median_factor, with_unit
from molslice.training.comparison import Line, _cell
from molslice.training.records import ProgressBar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.19637, "0.1964"),
        (0.5, "0.5000"),
        (0.0123456, "0.01235"),
        (0.001, "0.001000"),
        (0.00099999, "1.000e-03"),
        (3.1254e-5, "3.125e-05"),
        (-3.1254e-5, "-3.125e-05"),
        (-0.19637, "-0.1964"),
        (12.3456, "12.35"),
        (123456.7, "123457"),
        (0.0, "0"),
        (float("nan"), "-"),
        (None, "-"),
        (float("inf"), "inf"),
    ],
)
def test_four_significant_digits(value, text):
    assert format_metric(value) == text


def test_tiny_errors_are_shown_by_train_and_evaluate():
    counts = {"parameters": 9, "parameters_without_embeddings": 8, "seconds": 1.0, "noun": "molecules"}
    errors = {split: {"mae": {"dipole": 3.1254e-30}} for split in ("train", "valid", "test")}
    cost = {"steps": 5, "epochs": 1.0, "rows_per_second": 2.0}
    text = summary_text({"metric": "mae", "units": {"dipole": "C m"}, **counts, **cost, **errors})
    assert text.count("3.125e-30") == 3
    target = {"name": "dipole", "mae": 3.1254e-30, "unit": "C m", "count": 4}
    result = {"metric": "mae", "split": "test", "targets": [target], "failed": 0, "rows": 4, **counts}
    assert "dipole  3.125e-30" in result_text(result)
    undefined = {split: {"mae": {"dipole": None}} for split in errors}  # as read back from summary.json
    text = summary_text({"metric": "mae", "units": {"dipole": "C m"}, **counts, **cost, **undefined})
    assert text.count(" - ") == 3


def test_tiny_errors_are_shown_in_a_comparison():
    means: dict[str, float | None] = {"dipole": 3.1254e-30}
    spreads: dict[str, float | None] = {"dipole": 2.13e-31}
    counts = {"dipole": 2}
    line = Line("flow", 2, 9, 8, means, spreads, counts, means, spreads, counts, 1.0, 5, 2.0, 0)
    assert _cell(line, "valid", "dipole") == "3.13e-30 ± 2.1e-31"


def test_tiny_errors_are_shown_by_the_progress_bar():
    bar = ProgressBar(10, 0, quiet=True, measures=[Measure("dipole", "mae", "C m")])
    bar.show_metrics({"dipole": 3.1254e-30})
    assert bar.valid == "valid MAE 3.125e-30 C m"
    bar.show(4.2e-5, 100.0)
    assert "loss 4.200e-05" in bar.note


def test_a_unit_stands_in_parentheses():
    assert with_unit("gap", "eV") == "gap (eV)"
    assert with_unit("logP", "") == "logP"


def test_the_median_factor_counts_both_directions():
    truth = np.array([1.0, 10.0, 100.0, np.nan, 0.0])
    assert median_factor(np.array([2.0, 2.5, 100.0, 1.0, 1.0]), truth) == pytest.approx(2.0)
    assert median_factor(np.array([-1.0, 0.0, 100.0, 1.0, 1.0]), truth) == np.inf
    assert np.isnan(median_factor(np.array([1.0]), np.array([-1.0])))


def test_the_mean_fold_error_is_a_geometric_mean_of_factors():
    prediction, truth = np.array([1.0, 8.0, 3.0, 5.0]), np.array([2.0, 2.0, 3.0, -1.0])
    assert fold_error(prediction, truth) == pytest.approx((2.0 * 4.0 * 1.0) ** (1 / 3))
    assert fold_error(np.array([0.0, 1.0]), np.array([1.0, 1.0])) == np.inf
    assert np.isnan(fold_error(prediction[:0], truth[:0]))
