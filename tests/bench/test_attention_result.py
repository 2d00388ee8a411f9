"""Tests of medians, outcomes, crossings, tables, the plot and its scores."""

import json
import math
import re

import pytest

from molslice.bench.attention import SETTINGS
from molslice.bench.attention_result import BenchResult
from molslice.bench.bubbles import draw_bubbles
from molslice.bench.rounds import Spread
from molslice.bench.scores import Scores, read_scores
from molslice.types import MolsliceError
from tests.bench.jobs import measurement, plan

NAMES = ("softmax", "slice_sort")


def result(seconds, lengths=(8, 16, 32, 64), setting=None, **changes):
    """Return a result: softmax takes 1 s per step, slice_sort `seconds`, or has an outcome."""
    asked = plan(lengths=lengths, **changes)
    measurements = []
    for name in NAMES:
        for length, value in zip(lengths, seconds if name == "slice_sort" else [1.0] * 4, strict=False):
            if isinstance(value, str):
                numbers = {"outcome": value, "reason": "a reason", "training_seconds": None}
                measurements.append(measurement(name, length, **numbers))
            elif value is not None:
                measurements.append(measurement(name, length, training_seconds=value))
    machine = {"device": "a processor", "torch": "2"}
    return BenchResult(
        entries=list(NAMES),
        sizes=asked.sizes(),
        conditions=asked.conditions(),
        machine=machine,
        setting=setting,
        measurements=measurements,
    )


def crossing(measured, quantity):
    """Return the crossing of slice_sort and softmax."""
    (one,) = (one for one in measured.crossings() if one.quantity == quantity)
    return one


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ([4.0, 1.0, 0.5, 0.2], "16"),  # equal at 16
        ([4.0, 2.0, 0.5, 0.2], "23"),  # half way of the logarithms between 16 and 32
        ([0.9, 0.8, 0.5, 0.2], "at most 8"),
        ([2.0, 2.0, 2.0, 2.0], "none up to 64"),
        ([0.5, 0.5, 0.5, 2.0], "none up to 64"),  # faster, but not for good
        ([0.5, 2.0, 0.5, 0.2], "23"),  # the last crossing counts
        ([4.0, 2.0, 0.5, "OOM"], "none up to 64"),
        ([4.0, 2.0, 0.5, "failed"], "23"),  # of what was measured
        ([4.0, 2.0, None, None], "none up to 16"),
        ([None, None, None, None], "-"),
        (["OOM", 0.5, 0.5, 0.5], "16"),
    ],
)
def test_from_which_length_it_trains_faster(seconds, text):
    assert crossing(result(seconds), "training").to_text() == text


def test_where_softmax_has_no_memory_the_other_is_faster():
    measured = result([4.0, 2.0, 2.0, 2.0])
    measured.measurements[3] = measurement("softmax", 64, outcome="OOM", training_seconds=None)
    assert crossing(measured, "training").to_text() == "64"
    measured.measurements[7] = measurement("slice_sort", 64, outcome="OOM", training_seconds=None)
    assert crossing(measured, "training").to_text() == "none up to 32"


@pytest.mark.parametrize("quantity", ["inference", "memory"])
def test_from_which_length_it_predicts_faster_or_needs_less_memory(quantity):
    """The ratios to softmax are 4, 2, 1/2 and 1/4, so the ratio is 1 half way between 16 and 32."""
    measured = result([1.0] * 4)
    for index, ratio in enumerate([4, 2, 0.5, 0.25]):
        changes = {"inference_seconds": 0.01 * ratio} if quantity == "inference" else {}
        changes |= {"peak_bytes": int(1_000_000 * ratio)} if quantity == "memory" else {}
        plain = {"inference_seconds": 0.01, "peak_bytes": 1_000_000, "training_seconds": 1.0}
        length = 8 * 2**index
        measured.measurements[index] = measurement("softmax", length, **plain)
        measured.measurements[index + 4] = measurement("slice_sort", length, **{**plain, **changes})
    texts = {one.quantity: one.to_text() for one in measured.crossings()}
    assert texts.pop(quantity) == "23"
    assert set(texts.values()) == {"none up to 64"}
    titles = {
        "inference": "predicts faster than softmax from",
        "memory": "needs less memory than softmax from",
    }
    assert titles[quantity] in measured.to_markdown()


def test_a_length_that_cannot_be_trained_counts_for_memory_but_not_for_inference():
    measured = result([1.0] * 4)
    measured.measurements[3] = measurement(
        "softmax", 64, outcome="OOM", training_seconds=None, inference_seconds=None, peak_bytes=None
    )
    assert crossing(measured, "memory").to_text() == "64"
    assert crossing(measured, "inference").longest == 32


def test_without_softmax_nothing_crosses():
    measured = result([0.5] * 4)
    measured.entries = ["slice_sort"]
    assert measured.crossings() == []
    assert "faster than" not in measured.to_markdown()


def test_a_cell_is_the_median_of_its_rounds():
    measured = result([1.0], lengths=(8,))
    measured.measurements = [
        measurement("softmax", 8, number, training_seconds=seconds, flops=7 if number == 0 else None)
        for number, seconds in enumerate([0.5, 0.1, 0.25])
    ]
    cell, missing = measured.cells()
    assert cell.numbers["training_steps_per_second"] == Spread(4.0, 2.0, 10.0)
    assert (cell.rounds, cell.numbers["flops"], missing.outcome) == (3, 7, "missing")
    assert "differ by at most 200% (softmax at 8)" in measured.to_markdown()


def test_one_bad_round_is_the_outcome():
    measured = result([1.0], lengths=(8,))
    bad = {"outcome": "OOM", "reason": "no memory", "training_seconds": None}
    measured.measurements.append(measurement("slice_sort", 8, 1, **bad))
    assert measured.cells()[1].outcome == "OOM"


def test_the_tables_say_what_was_measured():
    text = result([4.0, 2.0, 0.5, "OOM"]).to_markdown()
    assert "1 layers, 2 heads, width 8, batch 2, fp32, a processor, 1 threads, torch 2." in text
    assert re.search(r"\| slice_sort \| +1,000 \| +400 \| +none up to 64 \|", text)
    assert "| slice_sort       | 0.25 |  0.5 | 2.00 |  OOM |" in text
    assert "- `slice_sort` at 64 tokens (width 8, batch 2): OOM, a reason" in text
    assert "Published" not in text


def test_widths_and_batches_have_tables_of_their_own():
    measured = result([1.0], lengths=(8,), dims=(8, 16), batch_sizes=(2, 4))
    text = measured.to_markdown()
    for dim in (8, 16):
        for batch in (2, 4):
            assert f"## Width {dim}, batch {batch}" in text
    assert "..." in text  # not measured
    assert len(measured.crossings()) == 4 * 3


def test_the_numbers_of_the_paper_are_beside_its_setting():
    text = result([1.0] * 4, setting="sliceformer_text").to_markdown()
    assert "Sliceformer (`slice_sort`)" in text
    assert "OOM" in text
    assert "32.79" in text
    models = (
        "Transformer, Local Attention, Linformer, Reformer, Sinkhorn Transformer, Synthesizer, BigBird, "
        "Linear Transformer, Performer, Longformer, Sparse Transformer, Sinkformer, Cosformer, Sliceformer"
    )
    for title in ("Training steps/s, published", "Memory (GB), published"):
        table = text.split(f"| {title}")[1].split("\n\n")[0].splitlines()[2:]
        assert ", ".join(line.split(" (")[0].strip("| ") for line in table) == models
    assert set(SETTINGS) == {"sliceformer_text"}


def test_csv_has_a_line_for_every_cell():
    lines = result([4.0, 2.0, "OOM", None]).to_csv().splitlines()
    assert len(lines) == 1 + 8
    header = lines[0].split(",")
    row = dict(zip(header, lines[2].split(","), strict=True))
    assert (row["attention"], row["length"], row["training_steps_per_second"]) == ("slice_sort", "8", "0.25")
    assert row["peak_bytes_max"] == "2000000"


@pytest.mark.parametrize("scores", [None, Scores("accuracy", {"slice_sort": 64.6, "softmax": 64.3}, "file")])
def test_the_plot_is_the_same_every_time(scores):
    measured = result([4.0, "OOM"], lengths=(8, 16))
    if scores is None:
        assert draw_bubbles(measured, "png", scores)[:8] == b"\x89PNG\r\n\x1a\n"
    drawn = draw_bubbles(measured, "svg", scores)
    assert drawn == draw_bubbles(measured, "svg", scores)
    text = drawn.decode()
    assert ">slice_sort<" in text
    assert ("accuracy; area: peak memory" in text) is (scores is not None)
    assert text.count("8 tokens, width 8") == 1


def test_the_area_is_the_memory():
    from matplotlib.figure import Figure

    from molslice.bench.bubbles import _draw_panel

    measured = result([2.0], lengths=(8,))
    measured.measurements[1] = measurement("slice_sort", 8, training_seconds=2.0, peak_bytes=500_000)
    axes = Figure().add_subplot()
    scores = Scores("accuracy", {"slice_sort": 3.0, "softmax": 2.0}, "file")
    _draw_panel(axes, measured.cells(), scores)
    (bubbles,) = axes.collections
    assert bubbles.get_sizes()[1] == pytest.approx(bubbles.get_sizes()[0] / 4)
    assert bubbles.get_offsets().tolist() == [[1.0, 2.0], [0.5, 3.0]]


@pytest.mark.parametrize(
    ("name", "text", "label"),
    [
        ("a.csv", "name,accuracy\nsoftmax,64.3\nslice_sort:order=half, 64.6\n", "accuracy"),
        ("a.csv", "softmax,64.3\n\nslice_sort:order=half,64.6\n", "score"),
        ("a.json", json.dumps({"softmax": 64.3, "slice_sort:order=half": 64.6}), "score"),
    ],
)
def test_scores_from_a_file(tmp_path, name, text, label):
    (tmp_path / name).write_text(text)
    scores = read_scores(tmp_path / name)
    assert scores.label == label
    assert scores.values == {"softmax": 64.3, "slice_sort:order=half": 64.6}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "softmax,1\nflow,much\n", "'flow' is 'much'"),
        ("a.csv", "softmax,1,2\n", "two columns"),
        ("a.csv", "name,score\n", "no score"),
        ("a.csv", "softmax,1\nsoftmax,2\n", "twice"),
        ("a.csv", "softmax,1\nflow,nan\n", "'nan'"),
        ("a.json", "{", "not JSON"),
        ("a.json", "[1]", "not a JSON object"),
        ("a.json", '{"softmax": true}', "True"),
        ("a.csv", None, "cannot read"),
    ],
)
def test_unreadable_scores_are_refused(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(MolsliceError, match=message):
        read_scores(tmp_path / name)


def test_gray_entries_have_numbers_where_there_are_many():
    from molslice.attention import ATTENTIONS

    names = ATTENTIONS.names()[:12]
    measured = result([1.0], lengths=(8,))
    measured.entries = [*NAMES, *(name for name in names if name not in NAMES)]
    measured.measurements = [
        measurement(name, 8, training_seconds=1.0 + index / 10) for index, name in enumerate(measured.entries)
    ]
    text = draw_bubbles(measured, "svg").decode()
    assert ">slice_sort<" in text  # in color, beside its bubble
    assert f">3 {measured.entries[2]}<" in text
    assert ">3<" in text


def test_a_result_is_read_back():
    measured = result([4.0, "OOM"], lengths=(8, 16))
    again = BenchResult.of_mapping(json.loads(json.dumps(measured.to_mapping())), "bench.json")
    assert again.to_mapping() == measured.to_mapping()
    with pytest.raises(MolsliceError, match="cannot read bench.json"):
        BenchResult.of_mapping({"cells": []}, "bench.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training_seconds", 0.0),
        ("training_seconds", math.nan),
        ("inference_seconds", -1.0),
        ("inference_seconds", math.inf),
        ("peak_bytes", -5),
        ("parameters", 10**400),
        ("round", -1),
        ("length", "8"),
    ],
)
def test_numbers_that_no_measurement_has_are_refused(name, value):
    measured = result([])
    measured.measurements = [measurement("mean", 8)]
    (mapping,) = measured.to_mapping()["measurements"]
    assert BenchResult.read_measurement(mapping, "bench.json") == measurement("mean", 8)
    with pytest.raises(MolsliceError, match=f"^invalid measurement in bench.json: {name} is "):
        BenchResult.read_measurement({**mapping, name: value}, "bench.json")
