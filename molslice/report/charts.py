"""Charts of a report as SVG, in colors that follow the page."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molslice.figures import literal, to_picture
from molslice.inference.uncertainty_figure import plot_coverage, plot_ranking
from molslice.report.measure import SplitPredictions
from molslice.tasks.metrics import with_unit
from molslice.tasks.standard_errors import error_of_mean

INK = "#010203"  # becomes the color of the text around the chart
STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
}
COLORS = {"train": "#8c8c8c", "valid": "#d9660a", "test": "#1f8ad1"}
LINE = "#1f8ad1"
MOST_POINTS = 1_000  # of a split
BINS = 10

Classified = Mapping[str, tuple[np.ndarray, np.ndarray]]  # has the class, and its probability, by class
Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # steps and values by name


Parameters = ParamSpec("Parameters")


def _as_svg(plot: Callable[Concatenate[Axes, Parameters], None]) -> Callable[Parameters, str]:
    """Return a function that plots on new axes and returns the chart as an element of a page.

    The chart is scalable, has no IDs of groups, and has the text color of the page.
    """

    @wraps(plot)
    def draw(*args: Parameters.args, **kwargs: Parameters.kwargs) -> str:
        with rc_context(STYLE):
            figure = Figure(figsize=(4.4, 3.6), layout="constrained")
            figure.patch.set_alpha(0.0)
            axes = figure.add_subplot()
            axes.grid(color="#808080", alpha=0.25, linewidth=0.5)
            plot(axes, *args, **kwargs)
            text = to_picture(figure, "svg").decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
        text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 class="chart"', text, count=1)
        text = re.sub(r'<g id="[^"]*"', "<g", text)
        return text.replace(INK, "currentColor")

    return draw


@_as_svg
def draw_curves(axes: Axes, curves: Curves, label: str) -> None:
    """Draw curves over the steps of a training; several have a legend."""
    for index, (name, (steps, values)) in enumerate(curves.items()):
        color = f"C{index % 10}" if len(curves) > 1 else LINE
        axes.plot(steps, values, color=color, label=name, linewidth=1.5)
    if len(curves) > 1:
        axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="step", ylabel=label)


@_as_svg
def draw_parity(
    axes: Axes,
    splits: Sequence[SplitPredictions],
    target: int,
    unit: str,
    truth_word: str = "measured",
    *,
    logarithmic: bool = False,
) -> None:
    """Draw predicted against known values of a target, at most 1,000 points of each split.

    The last split is on top. Logarithmic axes leave out molecules whose values have no logarithm.
    """
    low, high = np.inf, -np.inf
    for split in splits:
        chosen = drawn_rows(split, target, logarithmic=logarithmic)
        if not len(chosen):
            continue
        if len(chosen) > MOST_POINTS:  # the caption says so
            chosen = np.random.default_rng(0).choice(chosen, MOST_POINTS, replace=False)
        truth, predicted = split.truth[chosen, target], split.values(target)[chosen]
        low, high = min(low, truth.min(), predicted.min()), max(high, truth.max(), predicted.max())
        style = {"color": COLORS.get(split.name, LINE), "markersize": 4 if split.name == "test" else 3}
        axes.plot(truth, predicted, ".", **style, alpha=0.7, label=split.label)
    if np.isfinite(low):
        if logarithmic:
            axes.set(xscale="log", yscale="log")
            factor = max(high / low, 1.0 + 1e-12) ** 0.03
            ends = (low / factor, high * factor)
        else:
            margin = 0.03 * max(high - low, 1e-12)
            ends = (low - margin, high + margin)
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        axes.set(xlim=ends, ylim=ends)
    axes.legend(frameon=False, fontsize=8, markerscale=3)
    labels = [literal(with_unit(name, unit)) for name in (truth_word, "predicted")]
    axes.set(aspect="equal", xlabel=labels[0], ylabel=labels[1])


@_as_svg
def draw_suspects(
    axes: Axes,
    truth: np.ndarray,
    predicted: np.ndarray,
    is_suspicious: np.ndarray,
    molecules: np.ndarray,
    name: str,
    *,
    logarithmic: bool = False,
) -> None:
    """Draw predicted against measured values, a dot for each measurement, with the suspicious ones on top.

    A thin line joins the measurements of a molecule. The arrays are the fields of `JudgedRows`, [n] each. At
    most 1,000 suspicious and 1,000 other dots are drawn.
    """
    if logarithmic:
        positive = (truth > 0) & (predicted > 0)
        columns = (truth, predicted, is_suspicious, molecules)
        truth, predicted, is_suspicious, molecules = (column[positive] for column in columns)
    ends = [float(end) for end in (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))]
    if logarithmic:
        axes.set(xscale="log", yscale="log")
    axes.plot(ends, ends, color=INK, linewidth=0.8)
    drawn = []
    for chosen, color, size in ((~is_suspicious, COLORS["train"], 3), (is_suspicious, COLORS["valid"], 8)):
        rows = np.flatnonzero(chosen)[:MOST_POINTS]
        axes.plot(truth[rows], predicted[rows], ".", color=color, markersize=size, alpha=0.8)
        drawn.append(rows)
    rows = np.concatenate(drawn)
    for molecule in np.flatnonzero(np.bincount(molecules[rows]) > 1):
        joined = rows[molecules[rows] == molecule]
        joined = joined[np.argsort(truth[joined], kind="stable")]
        axes.plot(truth[joined], predicted[joined], "-", color=INK, linewidth=0.5, zorder=1)
    axes.set(xlabel=literal(f"measured {name}"), ylabel=literal(f"out-of-fold prediction of {name}"))


@_as_svg
def draw_errors(
    axes: Axes,
    split: SplitPredictions,
    target: int,
    unit: str,
    truth_word: str = "measured",
    *,
    logarithmic: bool = False,
) -> None:
    """Draw the distribution of predicted minus known values of a split, or of their logarithms."""
    chosen = drawn_rows(split, target, logarithmic=logarithmic)
    predicted, truth = split.values(target)[chosen], split.truth[chosen, target]
    errors = np.log10(predicted / truth) if logarithmic else predicted - truth
    if len(errors):
        ends = np.quantile(errors, [0.005, 0.995])  # a few outliers would leave one bar
        if ends[0] == ends[1]:
            ends = ends + np.array([-0.5, 0.5])
        axes.hist(np.clip(errors, *ends), bins=40, range=tuple(ends), color=LINE, alpha=0.85)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    label = f"log10 of predicted / {truth_word}"
    label = label if logarithmic else with_unit(f"predicted minus {truth_word}", unit)
    axes.set(xlabel=literal(label), ylabel=f"{split.label} rows")


def drawn_rows(split: SplitPredictions, target: int, *, logarithmic: bool) -> np.ndarray:
    """Return the positions of the rows of a split that can be drawn, int64 [k]."""
    chosen = split.known(target)
    if not logarithmic:
        return chosen
    return chosen[(split.truth[chosen, target] > 0) & (split.values(target)[chosen] > 0)]


@_as_svg
def draw_calibration(
    axes: Axes, is_class: np.ndarray, predicted: np.ndarray, molecules: np.ndarray, name: str
) -> None:
    """Draw the share of a class against its predicted probability, in ten groups of equal size.

    Args:
        axes: The axes.
        is_class: Whether a molecule has the class, bool [n].
        predicted: Its predicted probability, float64 [n].
        molecules: The number of the molecule, int64 [n].
        name: The name of the class.
    """
    order = np.argsort(predicted, kind="stable")
    for rows in np.array_split(order, min(BINS, max(1, len(order) // 5))):
        if len(rows):
            share, error = is_class[rows].mean(), error_of_mean(is_class[rows], molecules[rows])
            axes.errorbar(predicted[rows].mean(), share, yerr=error, fmt="o", color=LINE, capsize=2)
    axes.plot((0, 1), (0, 1), color=INK, linewidth=0.8)
    axes.set(aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set(xlabel="predicted probability", ylabel=literal(f"share of class {name}"))


def operating_points(is_class: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the rows predicted at least as high as each value, from the highest to the lowest.

    Args:
        is_class: Whether a molecule has the class, bool [n].
        predicted: Its predicted probability, float64 [n].

    Returns:
        The counts with and without the class, int [k] each, which start at 0.
    """
    _, place = np.unique(-predicted, return_inverse=True)
    counts = [np.bincount(place, of_class).astype(np.int64) for of_class in (is_class, ~is_class)]
    right, wrong = (np.concatenate([[0], count.cumsum()]) for count in counts)
    return right, wrong


@_as_svg
def draw_roc(axes: Axes, classes: Classified, threshold: float | None = None) -> None:
    """Draw the share of a class that is found against the share of the others that is mistaken for it.

    Args:
        axes: The axes.
        classes: The classes.
        threshold: A probability to mark, or None.
    """
    axes.plot((0, 1), (0, 1), color=INK, linewidth=0.8)
    for name, color, is_class, predicted in _colored(classes):
        right, wrong = operating_points(is_class, predicted)
        axes.plot(wrong / wrong[-1], right / right[-1], color=color, label=literal(name))
        if threshold is not None:
            chosen = predicted > threshold
            axes.plot(chosen[~is_class].mean(), chosen[is_class].mean(), "o", color=color)
    _finish_shares(axes, classes, "share of other molecules above the threshold", "recall")


@_as_svg
def draw_precision(axes: Axes, classes: Classified, threshold: float | None = None) -> None:
    """Draw precision against recall, with the share of each class; see `draw_roc`."""
    for name, color, is_class, predicted in _colored(classes):
        right, wrong = (counts[1:] for counts in operating_points(is_class, predicted))
        axes.axhline(is_class.mean(), color=color, linewidth=0.8)
        axes.plot(right / right[-1], right / (right + wrong), color=color, label=literal(name))
        chosen = predicted > (1.0 if threshold is None else threshold)
        if chosen.any():
            axes.plot(chosen[is_class].mean(), is_class[chosen].mean(), "o", color=color)
    _finish_shares(axes, classes, "recall", "precision")


def _colored(classes: Classified) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Yield each class with its color."""
    for index, (name, (is_class, predicted)) in enumerate(classes.items()):
        yield name, LINE if len(classes) == 1 else f"C{index % 10}", is_class, predicted


def _finish_shares(axes: Axes, classes: Classified, across: str, up: str) -> None:
    axes.set(aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    if len(classes) > 1:
        axes.legend(frameon=False, fontsize=8)
        axes.set(xlabel=across, ylabel=up)
    else:
        axes.set(xlabel=across, ylabel=literal(f"{up} of class {next(iter(classes))}"))


@_as_svg
def draw_coverage(axes: Axes, by_level: Sequence[Mapping[str, float]]) -> None:
    """Draw the share of covered molecules against the stated probability; see `evaluate_uncertainty`."""
    plot_coverage(axes, by_level, LINE, INK)
    axes.set_aspect("equal")


@_as_svg
def draw_ranking(axes: Axes, target: Mapping[str, Any]) -> None:
    """Draw mean error against uncertainty of an entry of `targets` of `evaluate_uncertainty`."""
    plot_ranking(axes, target, LINE)


@_as_svg
def draw_widths(axes: Axes, target: Mapping[str, Any], level: float) -> None:
    """Draw mean error against the width of the intervals of an entry of `targets`, by fifths of the rows."""
    widths, errors = ([entry[name] for entry in target["width_bins"]] for name in ("uncertainty", "error"))
    axes.plot(widths, errors, marker="o", color=LINE)
    axes.set_ylim(bottom=0)
    if target["logarithmic"]:
        axes.set_xlabel(f"mean width of the {level:.0%} interval of the decimal logarithm")
        axes.set_ylabel("mean absolute error of the decimal logarithm")
    else:
        axes.set_xlabel(literal(with_unit(f"mean width of the {level:.0%} interval", target["unit"])))
        axes.set_ylabel(literal(with_unit("mean absolute error", target["unit"])))
