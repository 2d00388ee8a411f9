"""Charts of a report as SVG, in colors that follow the page."""

import re
from collections.abc import Callable, Mapping, Sequence
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
    axes: Axes, splits: Sequence[SplitPredictions], target: int, unit: str, *, logarithmic: bool = False
) -> None:
    """Draw predicted against measured values of a target, at most 1,000 points of each split.

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
        axes.plot(truth, predicted, ".", **style, alpha=0.7, label=split.name)
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
    labels = [literal(with_unit(name, unit)) for name in ("measured", "predicted")]
    axes.set(aspect="equal", xlabel=labels[0], ylabel=labels[1])


@_as_svg
def draw_errors(
    axes: Axes, split: SplitPredictions, target: int, unit: str, *, logarithmic: bool = False
) -> None:
    """Draw the distribution of predicted minus measured values of a split, or of their logarithms."""
    chosen = drawn_rows(split, target, logarithmic=logarithmic)
    predicted, truth = split.values(target)[chosen], split.truth[chosen, target]
    errors = np.log10(predicted / truth) if logarithmic else predicted - truth
    if len(errors):
        ends = np.quantile(errors, [0.005, 0.995])  # a few outliers would leave one bar
        if ends[0] == ends[1]:
            ends = ends + np.array([-0.5, 0.5])
        axes.hist(np.clip(errors, *ends), bins=40, range=tuple(ends), color=LINE, alpha=0.85)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    label = "log10 of predicted / measured" if logarithmic else with_unit("predicted minus measured", unit)
    axes.set(xlabel=literal(label), ylabel=f"molecules of {split.name}")


def drawn_rows(split: SplitPredictions, target: int, *, logarithmic: bool) -> np.ndarray:
    """Return the positions of the rows of a split that can be drawn, int64 [k]."""
    chosen = split.known(target)
    if not logarithmic:
        return chosen
    return chosen[(split.truth[chosen, target] > 0) & (split.values(target)[chosen] > 0)]


@_as_svg
def draw_calibration(axes: Axes, is_class: np.ndarray, predicted: np.ndarray, name: str) -> None:
    """Draw the share of a class against its predicted probability, in ten groups of equal size.

    Args:
        axes: The axes.
        is_class: Whether a molecule has the class, bool [n].
        predicted: Its predicted probability, float64 [n].
        name: The name of the class.
    """
    order = np.argsort(predicted, kind="stable")
    for rows in np.array_split(order, min(BINS, max(1, len(order) // 5))):
        if len(rows):
            share = is_class[rows].mean()
            error = np.sqrt(share * (1 - share) / len(rows))
            axes.errorbar(predicted[rows].mean(), share, yerr=error, fmt="o", color=LINE, capsize=2)
    axes.plot((0, 1), (0, 1), color=INK, linewidth=0.8)
    axes.set(aspect="equal", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set(xlabel="predicted probability", ylabel=literal(f"share of class {name}"))


@_as_svg
def draw_coverage(axes: Axes, by_level: Sequence[Mapping[str, float]]) -> None:
    """Draw the share of covered molecules against the stated probability; see `evaluate_uncertainty`."""
    plot_coverage(axes, by_level, LINE, INK)
    axes.set_aspect("equal")


@_as_svg
def draw_ranking(axes: Axes, target: Mapping[str, Any]) -> None:
    """Draw mean error against uncertainty of an entry of `targets` of `evaluate_uncertainty`."""
    plot_ranking(axes, target, LINE)
