"""The page of parameter counts agrees with the configurations and with what the papers print."""

import pytest

from tests.programs import ROOT, load_program


@pytest.fixture(scope="module")
def program():
    return load_program("parameter_page")


def test_the_page_is_that_of_the_configurations(program):
    hint = "run python benchmarks/parameter_page.py"
    assert program.PAGE.read_text(encoding="utf-8") == program.make_page(), hint


@pytest.mark.parametrize(
    ("ours", "millions", "difference"),
    [
        (1_899_138, "1.90", "0"),
        (6_504_036, "6.50", "0"),
        (6_423_050, "6.50", "-0.08 M (-1.2%)"),
        (43_311_304, "41", "+2.31 M (+5.6%)"),
    ],
)
def test_a_difference_is_that_of_the_printed_digits(program, ours, millions, difference):
    assert program.difference(ours, millions) == difference


def test_each_difference_has_a_reason_and_each_equal_count_of_a_configuration_has_none(program):
    for rows in program.TABLES.values():
        for row in rows:
            differs = program.difference(program.count_printed(row), row.millions) != "0"
            assert bool(row.why) == differs, row


def test_the_numbers_of_the_papers(program):
    printed = {
        (row.config, row.attention): row.millions
        for rows in program.TABLES.values()
        for row in rows
        if not row.overrides
    }
    assert printed == {
        ("molecule/pcqm4m_v1", "softmax"): "47.09",
        ("molecule/pcqm4m_v1", "slice_sort"): "32.91",
        ("vision/dogs_vs_cats", "softmax"): "1.90",
        ("vision/dogs_vs_cats", "slice_sort"): "1.11",
        ("vision/mnist", "softmax"): "9.60",
        ("vision/mnist", "slice_sort"): "6.50",
        ("vision/cifar10", "softmax"): "9.60",
        ("vision/cifar10", "slice_sort"): "6.46",
        ("vision/cifar100", "softmax"): "9.65",
        ("vision/cifar100", "slice_sort"): "6.50",
        ("vision/tiny_imagenet", "softmax"): "22.05",
        ("vision/tiny_imagenet", "slice_sort"): "18.50",
        ("vision/flowformer_imagenet", "flow"): "41",
        ("vision/image_folder", "softmax"): "22",
        ("vision/deit_distilled", "softmax"): "22",
        ("text/imdb_sliceformer", "softmax"): "8.84",
        ("text/imdb_sliceformer", "slice_sort"): "8.05",
    }
    assert all((ROOT / "configs" / f"{config}.yaml").is_file() for config, _ in printed)
