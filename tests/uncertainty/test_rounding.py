import math

import pytest

from molslice.uncertainty.rounding import rounded_error, rounded_interval, rounded_share


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((-3.864, -5.312, -2.447), ("-3.9", "-5.3", "-2.4")),
        ((0.4939, 0.2331, 0.7442), ("0.49", "0.23", "0.74")),
        ((10.4512, 10.4311, 10.4987), ("10.451", "10.431", "10.499")),
        ((1234.5, 1100.0, 1411.0), ("1230", "1100", "1410")),
        ((12.04, 3.04, 481.2), ("12.0", "3.0", "481.2")),
        ((-0.004, -0.4, 0.31), ("0.00", "-0.40", "0.31")),
        ((0.0, -0.5, 0.5), ("0.00", "-0.50", "0.50")),
        ((1.5e-7, 1e-7, 4e-7), ("1.50e-07", "1.00e-07", "4.00e-07")),
        ((2.5e7, 2e7, 3e7), ("2.50e+07", "2.00e+07", "3.00e+07")),
        ((1000.0, 4.0, 2.5e5), ("1000", "4.0", "250000")),
        ((690_000.0, 290.8, 7.3987e8), ("690000", "290", "7.3987e+08")),
        ((3.5e-12, 1.1e-13, 1.504e-10), ("3.5e-12", "1.1e-13", "1.504e-10")),
        ((-3.9, -5.3, -1e-4), ("-3.9", "-5.3", "-0.00010")),
        ((3e-14, -1e-10, 1e-10), ("0", "-1.00e-10", "1.00e-10")),
        ((2.0, 0.0, 4.0), ("2.0", "0.0", "4.0")),
        ((1.5, -math.inf, 2.0), ("1.50", "unlimited", "2.00")),
        ((1.23456, 1.23456, 1.23456), ("1.235", "1.235", "1.235")),
        ((1.23456, -math.inf, math.inf), ("1.235", "unlimited", "unlimited")),
        ((math.nan, math.nan, math.nan), ("nan", "nan", "nan")),
    ],
)
def test_digits_follow_the_width(numbers, texts):
    assert rounded_interval(*numbers) == texts


def test_rounding_changes_a_number_by_less_than_a_tenth_of_the_nearer_side():
    for exponent in range(-3, 4):
        for value in (-7.777, -1.234, 3.456):
            half = 10.0**exponent * 1.7
            if half < abs(value) / 100:  # then three digits of the number decide
                continue
            for number, text in zip(
                (value, value - half, value + half),
                rounded_interval(value, value - half, value + half),
                strict=True,
            ):
                assert abs(float(text) - number) <= half / 10


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.83312, 0.08123, "0.833 ± 0.081"),
        (0.83312, 0.0996, "0.83 ± 0.10"),
        (0.19637, 1.27e-5, "0.196370 ± 0.000013"),
        (12.3456, 0.5, "12.35 ± 0.50"),
        (1234.5, 141.0, "1230 ± 140"),
        (-0.012, 0.5, "-0.012 ± 0.50"),
        (-0.002, 0.5, "-0.0020 ± 0.50"),
        (0.00996, 0.5, "0.010 ± 0.50"),
        (1e-17, 0.5, "0.00 ± 0.50"),
        (33_210.0, 1.61e6, "3.3e+04 ± 1.6e+06"),
        (12.3, 1.61e6, "1.2e+01 ± 1.6e+06"),
        (3.1254e-5, 2.13e-6, "3.13e-05 ± 2.1e-06"),
        (0.0, 2.13e-6, "0 ± 2.1e-06"),
        (2.51e7, 1.2e6, "2.51e+07 ± 1.2e+06"),
        (0.5, 1e-17, "0.5000 ± 0"),
        (3.1254e-5, 0.0, "3.125e-05 ± 0"),
        (0.19637, None, "0.1964"),
        (0.19637, math.nan, "0.1964"),
        (math.inf, math.nan, "inf"),
        (math.nan, 0.1, "-"),
        (None, None, "-"),
    ],
)
def test_a_value_has_the_decimals_of_its_standard_error(value, error, text):
    assert rounded_error(value, error) == text


def test_changes_have_a_sign_and_shares_are_percentages():
    assert rounded_error(0.126, 0.05, signed=True) == "+0.126 ± 0.050"
    assert rounded_error(-0.126, 0.05, signed=True) == "-0.126 ± 0.050"
    assert rounded_share(0.9231, 0.0154) == "92.3% ± 1.5%"
    assert rounded_share(0.9231, 0.11) == "92% ± 11%"
