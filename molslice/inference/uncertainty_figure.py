"""Plots of the uncertainty of a model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molslice.figures import literal, to_picture
from molslice.files.atomic import write_atomically
from molslice.folders.results import results_folder
from molslice.inference.json_text import to_json
from molslice.inference.uncertainty import rank_texts
from molslice.tasks.metrics import with_unit

RESULT = "uncertainty.json"
_FIGURE = re.compile(r"uncertainty(_\d+)?\.png")
BLUE, ORANGE, GRAY = "#0072b2", "#d55e00", "#8c8c8c"


def write_uncertainty(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the result of `evaluate_uncertainty` and a figure for each target with measured values.

    Figures of an earlier result are removed.

    Raises:
        MolsliceError: The folder is a file, or holds a model.
    """
    with results_folder(folder):
        return _write(result, folder)


def _write(result: Mapping[str, Any], folder: Path) -> list[Path]:
    files = [folder / RESULT]
    write_atomically(files[0], to_json(dict(result)))
    for place, target in enumerate(result["targets"], start=1):
        if not target["count"]:
            continue
        name = "uncertainty" if len(result["targets"]) == 1 else f"uncertainty_{place}"
        files.append(folder / f"{name}.png")
        write_atomically(files[-1], to_picture(draw_uncertainty(target), "png"))
    for path in folder.glob("uncertainty*.png"):
        if path not in files and _FIGURE.fullmatch(path.name):
            path.unlink()
    return files


def draw_uncertainty(target: Mapping[str, Any]) -> Figure:
    """Draw coverage, error against uncertainty, and coverage by group of an entry of `targets`."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    figure.suptitle(literal(f"{target['name']}: {target['count']:,} held-out molecules"))
    plot_coverage(left, target["by_level"], BLUE, GRAY)
    left.set(xlim=(0, 1), ylim=(0, 1))
    left.set_title(f"miscalibration area {target['miscalibration_area']:.3f}", fontsize=10)
    plot_ranking(middle, target, BLUE)
    middle.set_title(f"rank correlation: {', '.join(rank_texts(target)) or 'undefined'}", fontsize=10)
    groups = target["groups"]
    labels = [literal(f"{entry['group']} ({entry['count']:,})") for entry in groups]
    shares = [entry["coverage"] for entry in groups]
    errors = [2 * entry["standard_error"] for entry in groups]
    right.barh(labels, shares, xerr=errors, color=BLUE, ecolor=ORANGE)
    if groups:
        right.axvline(groups[0]["level"], color=GRAY, linewidth=1)
    right.invert_yaxis()
    right.set(xlabel="coverage, with two standard errors", xlim=(0, 1))
    right.tick_params(axis="y", labelsize=8)
    return figure


def plot_coverage(
    axes: Axes, by_level: Sequence[Mapping[str, float]], color: str, diagonal_color: str
) -> None:
    """Plot the share of covered molecules against the stated probability; see `evaluate_uncertainty`."""
    axes.plot((0, 1), (0, 1), color=diagonal_color, linewidth=0.8)
    levels, shares = ([entry[name] for entry in by_level] for name in ("level", "coverage"))
    axes.plot(levels, shares, marker="o", markersize=3, color=color)
    axes.set(xlabel="stated probability", ylabel="share of covered molecules")


def plot_ranking(axes: Axes, target: Mapping[str, Any], color: str) -> None:
    """Plot mean error against uncertainty of an entry of `targets`; see `evaluate_uncertainty`."""
    uncertainties, errors = ([entry[name] for entry in target["bins"]] for name in ("uncertainty", "error"))
    axes.plot(uncertainties, errors, marker="o", color=color)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("mean uncertainty of a fifth of the molecules")
    if "classes" in target:
        axes.set_ylabel("mean of 1 - probability of the class")
    elif target["logarithmic"]:
        axes.set_ylabel("mean absolute error of the decimal logarithm")
    else:
        axes.set_ylabel(literal(with_unit("mean absolute error", target["unit"])))
