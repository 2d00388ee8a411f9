"""Tests of time series files: content, and every kind of invalid file."""

import gzip
import importlib.util

import numpy as np
import pytest

from molslice.data.series.ts_file import read_ts_file
from molslice.files.lines import read_byte_lines
from molslice.types import MolsliceError
from tests.real_data import shared

HEADER = """\
# Two channels, \N{EN DASH} of three lengths
%another comment

@problemName Steps
@problemName Stairs
@timeStamps false
@missing True
@univariate false
@dimensions 2
@equalLength false
@classLabel true up Down
"""
CASES = "1,2.5,-3e-1:4,5,6:up\r\n?,NaN, 7 :1,?,2:Down\n1:2:up\n"
# the sets of the folder of real files that are read here; the others differ in size alone
REAL = (
    "JapaneseVowels",
    "JapaneseVowels_eq",
    "BasicMotions",
    "GunPoint",
    "ItalyPowerDemand",
    "PickupGestureWiimoteZ",
    "UWaveGestureLibrary",
)
nan = np.nan


@pytest.fixture
def write(tmp_path):
    def write(text, name="Steps_TRAIN.ts"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def same(found, expected):
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float64))


def test_a_file_comes_as_it_is(write):
    file = read_ts_file(write(HEADER + "@data\n" + CASES))
    assert (file.classes, file.regression) == (("up", "Down"), False)
    same(file.cases[0], [[1, 4], [2.5, 5], [-0.3, 6]])
    same(file.cases[1], [[nan, 1], [nan, nan], [7, 2]])
    same(file.cases[2], [[1, 2]])
    same(file.targets, [0, 1, 0])


def test_a_compressed_file_is_the_same(write):
    text = (HEADER + "@data\n" + CASES).encode()
    plain, packed = read_ts_file(write(text)), read_ts_file(write(gzip.compress(text), "a.ts.gz"))
    for one, other in zip(plain.cases, packed.cases, strict=True):
        same(one, other)
    same(packed.targets, plain.targets)


def test_a_channel_that_ends_before_the_others_is_missing_there(write):
    file = read_ts_file(write(HEADER + "@data\n1,2,3:4:up\n:5,6:Down\n::up\n"))
    same(file.cases[0], [[1, 4], [2, nan], [3, nan]])
    same(file.cases[1], [[nan, 5], [nan, 6]])
    assert file.cases[2].shape == (0, 2)


def test_numbers_to_predict(write):
    file = read_ts_file(write("@univariate true\n@targetlabel true\n@data\n1,2:0.5\n3:-2e3\n4,5:?\n"))
    assert file.regression
    assert file.classes is None
    same(file.targets, [0.5, -2000, nan])


def test_neither_class_nor_number(write):
    file = read_ts_file(write("@classLabel false\n@data\n1,2:3,4\n5:6\n"))
    assert file.classes is None
    assert not file.regression
    same(file.cases[0], [[1, 3], [2, 4]])
    same(file.targets, [nan, nan])


def test_an_unknown_class_is_missing(write):
    same(read_ts_file(write(HEADER + "@data\n1:2:?\n")).targets, [nan])


def test_comments_may_be_in_any_encoding(write):
    file = read_ts_file(write(b"# caf\xe9\n@classLabel true a\n@data\n# \xe9\n1:a\n"))
    same(file.cases[0], [[1]])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("@timeStamps true\n@classLabel true a\n@data\n", "time stamps"),
        (
            "@classLabel true a\n@problemNam x\n@data\n",
            "line 2: unknown tag '@problemNam'; did you mean 'problemname'",
        ),
        ("@missing false\n@Missing false\n@data\n", "line 2: duplicate tag '@Missing'"),
        ("@classLabel true a\n1,2:a\n", "line 2: expected a tag before @data, got '1,2:a'"),
        ("@classLabel true a\n", "has no line @data"),
        ("", "has no line @data"),
        ("@univariate true\n@data\n", "neither @classLabel nor @targetLabel"),
        ("@classLabel true a\n@targetLabel true\n@data\n", "both @classLabel and @targetLabel"),
        ("@classLabel true\n@data\n", "invalid @classLabel 'true'; expected"),
        ("@classLabel\n@data\n", "invalid @classLabel ''; expected"),
        ("@classLabel yes a\n@data\n", "invalid @classLabel 'yes a'; expected"),
        ("@classLabel true a b a\n@data\n", "duplicate class in @classLabel"),
        ("@univariate 1\n@classLabel true a\n@data\n", "invalid @univariate '1'; choices: true, false"),
        (
            "@dimension two\n@classLabel true a\n@data\n",
            "invalid @dimension 'two'; expected a positive integer",
        ),
        (
            "@seriesLength 0\n@classLabel true a\n@data\n",
            "invalid @serieslength '0'; expected a positive integer",
        ),
        ("@classLabel true a\n@data\n\n", "a header but no cases"),
        ("@classLabel true \xe9\n@data\n".encode("latin-1"), "line 1 is not UTF-8"),
    ],
)
def test_a_bad_header_is_named(write, header, message):
    with pytest.raises(MolsliceError, match=message):
        read_ts_file(write(header))


PLAIN = "@classLabel true a b\n"


@pytest.mark.parametrize(
    ("header", "cases", "message"),
    [
        (PLAIN, "1,2:a\n1,x:a\n", r"line 4, channel 0 \(counted from 0\): 'x' is not a number"),
        (
            PLAIN,
            "1,2:3,,4:a\n",
            r"line 3, channel 1 \(counted from 0\): empty value; write \? for a missing one",
        ),
        (PLAIN, "1,2,:a\n", "empty value"),
        (PLAIN, "1_000:a\n", "'1_000' is not a number"),
        (PLAIN, "??:a\n", r"'\?\?' is not a number"),
        (PLAIN, "1,-inf:a\n", "-inf is infinite"),
        (PLAIN, "1:2,1e39:a\n", r"channel 1 \(counted from 0\): 1e\+39 is infinite, or too large"),
        (PLAIN, "1:c\n", "line 3: the class 'c' is not one of the header's; choices: a, b"),
        (PLAIN, "1:A\n", "the class 'A' is not one"),
        (PLAIN, "1,2\n", "line 3 has no colon"),
        (PLAIN, "1:2:a\n1:a\n", "line 4 has 1 channels, expected 2"),
        (PLAIN + "@univariate true\n", "1:2:a\n", "has 2 channels, expected 1"),
        (PLAIN + "@dimensions 3\n", "1:2:a\n", "has 2 channels, expected 3"),
        (PLAIN + "@equalLength true\n", "1,2:a\n1:a\n", "line 5, channel 0.* has 1 values, expected 2"),
        (PLAIN + "@equalLength true\n", "1,2:1:a\n", "channel 1.* has 1 values, expected 2"),
        (PLAIN + "@equalLength true\n@seriesLength 3\n", "1,2:a\n", "has 2 values, expected 3"),
        ("@targetLabel true\n", "1:x\n", "line 3: the target 'x' is not a finite number"),
        ("@targetLabel true\n", "1:inf\n", "the target 'inf' is not a finite number"),
        ("@targetLabel true\n", "1:1_0\n", "the target '1_0' is not a finite number"),
    ],
)
def test_a_bad_case_is_named(write, header, cases, message):
    with pytest.raises(MolsliceError, match=message):
        read_ts_file(write(header + "@data\n" + cases))


def test_a_missing_or_damaged_file_is_named(write, tmp_path):
    with pytest.raises(MolsliceError, match="no such file"):
        read_ts_file(tmp_path / "nowhere.ts")
    packed = gzip.compress((HEADER + "@data\n" + CASES * 99).encode())
    with pytest.raises(MolsliceError, match="cannot read"):
        read_ts_file(write(packed[:-20], "a.ts.gz"))


@pytest.mark.parametrize("name", REAL)
def test_real_files_read(name):
    for part in ("TRAIN", "TEST"):
        file = read_ts_file(shared("uea_timeseries", f"{name}_{part}.ts.gz"))
        assert file.classes is not None
        assert set(file.targets) == set(range(len(file.classes)))
        assert all(np.isfinite(case).all() for case in file.cases)


needs_aeon = pytest.mark.skipif(importlib.util.find_spec("aeon") is None, reason="aeon is not installed")


def check_against_aeon(path):
    from aeon.datasets import load_from_ts_file

    ours = read_ts_file(path)
    theirs, targets = load_from_ts_file(str(path))
    assert len(ours.cases) == len(theirs)
    for one, other in zip(ours.cases, theirs, strict=True):
        same(one.T, other)
    if ours.classes is None:
        same(ours.targets, targets)
    else:  # aeon makes them lower case
        assert [ours.classes[int(number)].lower() for number in ours.targets] == list(targets)


@needs_aeon
@pytest.mark.parametrize("name", REAL)
def test_aeon_reads_the_same_of_real_files(name, tmp_path):
    for part in ("TRAIN", "TEST"):
        plain = tmp_path / f"{name}_{part}.ts"  # aeon reads no compressed file
        plain.write_bytes(b"\n".join(read_byte_lines(shared("uea_timeseries", f"{name}_{part}.ts.gz"))))
        check_against_aeon(plain)


@needs_aeon
@pytest.mark.parametrize(
    "text", [HEADER + "@data\n" + CASES, "@equalLength false\n@targetlabel true\n@data\n1,?:0.5\n3,4,5:-2\n"]
)
def test_aeon_reads_the_same_of_missing_values_and_numbers(text, write):
    check_against_aeon(write(text))
