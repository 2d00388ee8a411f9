"""Charts of a report as SVG, in colors that follow the page."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molslice.figures import literal, to_picture
from molslice.report.measure import SplitPredictions
from molslice.tasks.metrics import with_unit

__all__ = [
    "MOST_POINTS",
    "draw_calibration",
    "draw_coverage",
    "draw_curves",
    "draw_errors",
    "draw_parity",
    "draw_ranking",
    "drawn_rows",
]

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


def draw_curves(curves: Curves, label: str) -> str:
    """Draw curves over the steps of a training; several have a legend."""
    with rc_context(STYLE):
        figure, axes = _panel()
        for index, (name, (steps, values)) in enumerate(curves.items()):
            color = f"C{index % 10}" if len(curves) > 1 else LINE
            axes.plot(steps, values, color=color, label=name, linewidth=1.5)
        if len(curves) > 1:
            axes.legend(frameon=False, fontsize=8)
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        return _svg(figure)


def draw_parity(
    splits: Sequence[SplitPredictions], target: int, unit: str, *, logarithmic: bool = False
) -> str:
    """Draw predicted against measured values of a target, at most 1,000 points of each split.

    The last split is on top. Logarithmic axes leave out molecules whose values have no logarithm.
    """
    with rc_context(STYLE):
        figure, axes = _panel()
        low, high = np.inf, -np.inf
        for split in splits:
            chosen = drawn_rows(split, target, logarithmic=logarithmic)
            if not len(chosen):
                continue
            if len(chosen) > MOST_POINTS:  # the caption says so
                chosen = np.random.default_rng(0).choice(chosen, MOST_POINTS, replace=False)
            truth, predicted = split.truth[chosen, target], split.predicted[chosen, target]
            low, high = min(low, truth.min(), predicted.min()), max(high, truth.max(), predicted.max())
            style = {"color": COLORS.get(split.name, LINE), "markersize": 4 if split.name == "test" else 3}
            axes.plot(truth, predicted, ".", **style, alpha=0.7, label=split.name)
        if np.isfinite(low):
            if logarithmic:
                axes.set_xscale("log")
                axes.set_yscale("log")
                factor = max(high / low, 1.0 + 1e-12) ** 0.03
                ends = (low / factor, high * factor)
            else:
                margin = 0.03 * max(high - low, 1e-12)
                ends = (low - margin, high + margin)
            axes.plot(ends, ends, color=INK, linewidth=0.8)
            axes.set_xlim(ends)
            axes.set_ylim(ends)
        axes.set_aspect("equal")
        axes.legend(frameon=False, fontsize=8, markerscale=3)
        axes.set_xlabel(literal(with_unit("measured", unit)))
        axes.set_ylabel(literal(with_unit("predicted", unit)))
        return _svg(figure)


def draw_errors(split: SplitPredictions, target: int, unit: str, *, logarithmic: bool = False) -> str:
    """Draw the distribution of predicted minus measured values of a split, or of their logarithms."""
    with rc_context(STYLE):
        figure, axes = _panel()
        chosen = drawn_rows(split, target, logarithmic=logarithmic)
        predicted, truth = split.predicted[chosen, target], split.truth[chosen, target]
        errors = np.log10(predicted / truth) if logarithmic else predicted - truth
        if len(errors):
            ends = np.quantile(errors, [0.005, 0.995])  # a few outliers would leave one bar
            if ends[0] == ends[1]:
                ends = ends + np.array([-0.5, 0.5])
            axes.hist(np.clip(errors, *ends), bins=40, range=tuple(ends), color=LINE, alpha=0.85)
        axes.axvline(0.0, color=INK, linewidth=0.8)
        label = (
            "log10 of predicted / measured" if logarithmic else with_unit("predicted minus measured", unit)
        )
        axes.set_xlabel(literal(label))
        axes.set_ylabel(f"molecules of {split.name}")
        return _svg(figure)


def drawn_rows(split: SplitPredictions, target: int, *, logarithmic: bool) -> np.ndarray:
    """Return the positions of the rows of a split that can be drawn, int64 [k]."""
    chosen = split.known(target)
    if not logarithmic:
        return chosen
    return chosen[(split.truth[chosen, target] > 0) & (split.predicted[chosen, target] > 0)]


def draw_calibration(split: SplitPredictions, target: int) -> str:
    """Draw the share of class 1 against its predicted probability, in ten groups of equal size."""
    with rc_context(STYLE):
        figure, axes = _panel()
        chosen = split.known(target)
        truth, predicted = split.truth[chosen, target], split.predicted[chosen, target]
        order = np.argsort(predicted, kind="stable")
        for rows in np.array_split(order, min(BINS, max(1, len(order) // 5))):
            if len(rows):
                share = truth[rows].mean()
                error = np.sqrt(share * (1 - share) / len(rows))
                axes.errorbar(predicted[rows].mean(), share, yerr=error, fmt="o", color=LINE, capsize=2)
        axes.plot((0, 1), (0, 1), color=INK, linewidth=0.8)
        axes.set_aspect("equal")
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share of class 1")
        return _svg(figure)


def draw_coverage(by_level: Sequence[Mapping[str, float]]) -> str:
    """Draw the share of covered molecules against the stated probability; see `evaluate_uncertainty`."""
    with rc_context(STYLE):
        figure, axes = _panel()
        axes.plot((0, 1), (0, 1), color=INK, linewidth=0.8)
        levels, shares = ([entry[name] for entry in by_level] for name in ("level", "coverage"))
        axes.plot(levels, shares, marker="o", markersize=3, color=LINE)
        axes.set_aspect("equal")
        axes.set_xlabel("stated probability")
        axes.set_ylabel("share of covered molecules")
        return _svg(figure)


def draw_ranking(bins: Sequence[Mapping[str, float]], unit: str) -> str:
    """Draw mean error against uncertainty of the `bins` of `evaluate_uncertainty`."""
    with rc_context(STYLE):
        figure, axes = _panel()
        uncertainties, errors = ([entry[name] for entry in bins] for name in ("uncertainty", "error"))
        axes.plot(uncertainties, errors, marker="o", color=LINE)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mean uncertainty of a fifth of the molecules")
        axes.set_ylabel(literal(with_unit("mean absolute error", unit)))
        return _svg(figure)


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.grid(color="#808080", alpha=0.25, linewidth=0.5)
    return figure, axes


def _svg(figure: Figure) -> str:
    """Return the chart as an element of a page: scalable, without IDs of groups, and in its text color."""
    text = to_picture(figure, "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 class="chart"', text, count=1)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    return text.replace(INK, "currentColor")
