"""Tests of labels next to crowded marks, and of figure files."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from molslice.figures import (
    DPI,
    Point,
    color_of,
    is_highlighted,
    literal,
    place_labels,
    set_log_scale,
    to_picture,
)


def drawn(points, size=(6, 5), log=False):
    figure = Figure(figsize=size, dpi=DPI)
    axes = figure.add_subplot()
    axes.scatter([p.x for p in points], [p.y for p in points])
    if log:
        set_log_scale(axes, "x", [p.x for p in points])
    axes.margins(0.15)
    place_labels(axes, points, 7.0)
    return figure, axes


@pytest.mark.parametrize("log", [False, True])
def test_labels_of_a_crowd_overlap_neither_each_other_nor_marks(log):
    generator = np.random.default_rng(0)
    places = np.exp(generator.normal(0.0, 0.2, (31, 2)))  # one cluster
    points = [Point(x, y, f"{index}", radius=2.0) for index, (x, y) in enumerate(places)]
    figure, axes = drawn(points, log=log)
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert [text.get_text() for text in axes.texts] == [point.label for point in points]
    for text in axes.texts:
        text.update_positions(renderer)
    boxes = [Text.get_window_extent(text, renderer) for text in axes.texts]  # without the lines
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    marks = axes.transData.transform(places)
    assert not any(box.contains(*mark) for box in boxes for mark in marks)
    assert all(axes.bbox.contains(*corner) for box in boxes for corner in box.corners())


def test_a_single_label_is_next_to_its_mark_without_a_line():
    _, axes = drawn([Point(1.0, 2.0, "softmax", radius=3.0)])
    (note,) = axes.texts
    assert note.arrow_patch is None
    assert note.xyann[0] > 0
    assert abs(note.xyann[1]) < 1e-6


def test_dollar_signs_in_labels_are_no_formulas():
    figure, axes = drawn([Point(1.0, 2.0, r"a $\frac$ b")])
    axes.set_xlabel(literal("$x$ in \\$"))
    shown = to_picture(figure, "svg").decode()
    assert r"a $\frac$ b" in shown
    assert "$x$ in" in shown


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_points_give_the_same_file(suffix):
    points = [Point(1.0, 2.0, "one"), Point(1.01, 2.0, "two", spread=0.1)]
    assert to_picture(drawn(points)[0], suffix) == to_picture(drawn(points)[0], suffix)


def test_an_axis_with_a_value_of_zero_stays_linear():
    axes = Figure().add_subplot()
    set_log_scale(axes, "x", [0.0, 1.0])
    set_log_scale(axes, "y", [0.5, 1.0])
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_options_leave_the_color_of_an_attention():
    assert color_of("slice_sort:form=mix_plus_sort") == color_of("slice_sort") != color_of("flow")
    assert is_highlighted("softmax:fused=false")
    assert color_of("linear") == color_of("mean")
    assert not is_highlighted("linear")
