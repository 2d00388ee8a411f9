"""The tables of measured uncertainty."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tables import load, markdown

from molslice.chem.scaffold import SCAFFOLD_GROUPS

NAMES = {"gap_xtb_100k": "`gap-xtb`, `data/gap_xtb_100k`", "gap_xtb": "`gap-xtb`, `data/gap_xtb`"}
AT = 0.9
SET_LEVELS = (0.8, 0.9, 0.95)


def coverage_table() -> str:
    """Return coverage at all levels and the width at 90%, for each set of numbers and division."""
    rows = []
    for name, runs in _grouped(classes=False):
        levels = [entry["level"] for entry in runs[0]["levels"]]
        cells = [_cell(_pooled(runs, level), level) for level in levels]
        width = _mean([_level(run, AT)["width"] for run in runs])
        error = _mean([run["error"] for run in runs])
        seeds = str(len(runs)) if "seed" in runs[0] else ""
        count = sum(run["count"] for run in runs)
        rows.append([name, seeds, f"{count:,}", f"{error:.3g}", *cells, f"{width:.3g}"])
    header = ["", "seeds", "test rows", "MAE", "50%", "80%", "90%", "95%", "width at 90%"]
    return markdown(header, rows)


def ranking_table() -> str:
    """Return miscalibration area, rank correlations and coverage by scaffold."""
    rows = []
    for name, runs in _grouped(classes=False):
        # a single network has no spread, and intervals of one width
        own = [run["rank_correlation"] for run in runs if run["rank_correlation"]["spread"] is not None]
        ranks = [_rounded([found[key] for found in own]) for key in ("spread", "width")]
        area = _rounded([run["miscalibration_area"] for run in runs], 3)
        rows.append([name, area, *ranks, *(_group(runs, kind) for kind in SCAFFOLD_GROUPS)])
    header = ["", "miscalibration area", "error and spread", "error and width"]
    return markdown([*header, *SCAFFOLD_GROUPS], rows)


def network_table() -> str:
    """Return coverage, width and ranking of single networks, ensembles and chemprop, for each set."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run in load("network_uncertainty")["results"]:
        groups.setdefault((run["set"], run["method"]), []).append(run)
    rows = []
    for name, method in sorted(groups, key=lambda key: key[0]):
        runs = groups[name, method]
        levels = [entry["level"] for entry in runs[0]["levels"]]
        ranks = [run["rank_correlation"] for run in runs if run["rank_correlation"] is not None]
        widths = [f"{_mean([_level(run, level)['width'] for run in runs]):.2f}" for level in (0.5, AT)]
        cells = [_cell(_pooled(runs, level), level) for level in levels]
        area = _rounded([run["miscalibration_area"] for run in runs], 3)
        error = f"{_mean([run['mae'] for run in runs]):.3f}"
        rows.append([f"{name}, {method}", str(len(runs)), error, *cells, *widths, area, _rounded(ranks)])
    header = ["", "seeds", "MAE", "50%", "80%", "90%", "95%", "width at 50%", "width at 90%"]
    return markdown([*header, "miscalibration area", "error and spread"], rows)


def class_sets_table() -> str:
    """Return the coverage of each class and the sizes of the sets, for each set of classes and division."""
    rows = []
    for name, runs in _grouped(classes=True):
        for level in SET_LEVELS:
            counts = [run["class_counts"] for run in runs]
            cells = []
            for label in (0, 1):
                own = [
                    {"count": each[label], "coverage": _level(run, level)[f"coverage_class_{label}"]}
                    for run, each in zip(runs, counts, strict=True)
                ]
                share, count = _pool(own)
                cells.append(f"{_cell((share, count), level)} ({count:,})")
            size, empty, double = (
                _mean([_level(run, level)[key] for run in runs])
                for key in ("set_size", "empty_sets", "double_sets")
            )
            sizes = [f"{size:.2f}", f"{100 * empty:.0f}%", f"{100 * double:.0f}%"]
            rows.append([name, str(len(runs)), f"{100 * level:.0f}%", *cells, *sizes])
    return markdown(["", "seeds", "level", "class 0", "class 1", "mean size", "empty", "both classes"], rows)


def probabilities_table() -> str:
    """Return calibration error and Brier score before and after calibration."""
    rows = []
    for name, runs in _grouped(classes=True):
        cells = [
            _rounded([run[score][which] for run in runs], 3)
            for score in ("calibration_error", "brier_score")
            for which in ("predicted", "calibrated")
        ]
        rows.append([name, str(len(runs)), *cells])
    header = ["", "seeds", "calibration error", "calibrated", "Brier score", "calibrated"]
    return markdown(header, rows)


def chemprop_table() -> str:
    """Return coverage, width and ranking of chemprop's methods and of `fit` on the same test rows."""
    theirs: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for run in load("chemprop_uncertainty")["runs"]:
        methods = theirs.setdefault((run["set"], run["division"]), {})
        methods.setdefault(f"chemprop, {run['method']}", []).append(run)
    rows = []
    for (name, division), methods in theirs.items():
        seeds = {run["seed"] for runs in methods.values() for run in runs}
        ours = [
            run
            for run in load("uncertainty")["fits"]
            if (run["set"].lower(), run["division"]) == (name, division) and run["seed"] in seeds
        ]
        for method, runs in {"`molslice fit`": ours, **methods}.items():
            cells = [_cell(_pooled(runs, level), level) for level in (0.5, AT, 0.95)]
            width = _mean([_level(run, AT)["width"] for run in runs])
            rank = _rounded([run["rank_correlation"]["width"] for run in runs])
            area = _rounded([run["miscalibration_area"] for run in runs], 3)
            error = _mean([run["error"] for run in runs])
            title = f"{ours[0]['set']}, {division}"
            rows.append([title, method, str(len(runs)), f"{error:.3g}", *cells, f"{width:.3g}", area, rank])
    header = ["", "", "seeds", "MAE", "50%", "90%", "95%", "width at 90%", "miscalibration area"]
    return markdown([*header, "error and width"], rows)


def _grouped(*, classes: bool) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    result = load("uncertainty")
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in result["fits"]:
        if ("class_counts" in run) == classes:
            groups.setdefault(f"`fit`, {run['set']}, {run['division']}", []).append(run)
    shipped = [] if classes else [(NAMES[run["set"]], [run]) for run in result["gap_xtb"]]
    return [*groups.items(), *shipped]


def _level(run: Mapping[str, Any], level: float) -> Mapping[str, Any]:
    return next(entry for entry in run["levels"] if entry["level"] == level)


def _pooled(runs: Sequence[Mapping[str, Any]], level: float) -> tuple[float, int]:
    """Return the coverage over the test rows of all seeds, and their number."""
    return _pool([_level(run, level) for run in runs])


def _pool(entries: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    total = sum(entry["count"] for entry in entries)
    return sum(entry["coverage"] * entry["count"] for entry in entries) / total, total


def _cell(pooled: tuple[float, int], level: float) -> str:
    share, count = pooled
    return f"{100 * share:.1f} ± {100 * math.sqrt(level * (1 - level) / count):.1f}"


def _group(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    entries = [entry for run in runs for entry in run["groups"] if entry["group"] == name]
    if not sum(entry["count"] for entry in entries):
        return "-"
    share, count = _pool(entries)
    return f"{_cell((share, count), AT)} ({count:,})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rounded(values: Sequence[float], digits: int = 2) -> str:
    return f"{_mean(values):.{digits}f}" if values else "-"
