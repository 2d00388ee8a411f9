"""The tables of measured uncertainty."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tables import load, markdown

from molslice.chem.scaffold import FRAMEWORK_GROUPS

NAMES = {"gap_xtb_100k": "`gap-xtb`, `data/gap_xtb_100k`", "gap_xtb": "`gap-xtb`, `data/gap_xtb`"}
AT = 0.9


def coverage_table() -> str:
    """Return coverage at all levels and the width at 90 %, for each set and division."""
    rows = []
    for name, runs in _grouped():
        levels = [entry["level"] for entry in runs[0]["levels"]]
        cells = [_cell(_pooled(runs, level), level) for level in levels]
        width = _mean([_level(run, AT)["width"] for run in runs])
        error = _mean([run["error"] for run in runs])
        seeds = str(len(runs)) if "seed" in runs[0] else ""
        count = _rows([run["count"] for run in runs], runs)
        rows.append([name, seeds, f"{count:,}", f"{error:.3g}", *cells, f"{width:.3g}"])
    header = ["", "seeds", "test rows", "MAE", "50 %", "80 %", "90 %", "95 %", "width at 90 %"]
    return markdown(header, rows)


def ranking_table() -> str:
    """Return miscalibration area, rank correlations and coverage by framework."""
    rows = []
    for name, runs in _grouped():
        # a single network has no spread, and intervals of one width
        own = [run["rank_correlation"] for run in runs if run["rank_correlation"]["spread"] is not None]
        ranks = [_rounded([found[key] for found in own]) for key in ("spread", "width")]
        area = _rounded([run["miscalibration_area"] for run in runs], 3)
        rows.append([name, area, *ranks, *(_group(runs, kind) for kind in FRAMEWORK_GROUPS)])
    header = ["", "miscalibration area", "error and spread", "error and width"]
    return markdown([*header, *FRAMEWORK_GROUPS], rows)


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
    header = ["", "seeds", "MAE", "50 %", "80 %", "90 %", "95 %", "width at 50 %", "width at 90 %"]
    return markdown([*header, "miscalibration area", "error and spread"], rows)


def _grouped() -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    result = load("uncertainty")
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in result["fits"]:
        groups.setdefault(f"`fit`, {run['set']}, {run['division']}", []).append(run)
    return [*groups.items(), *((NAMES[run["set"]], [run]) for run in result["gap_xtb"])]


def _level(run: Mapping[str, Any], level: float) -> Mapping[str, Any]:
    return next(entry for entry in run["levels"] if entry["level"] == level)


def _pooled(runs: Sequence[Mapping[str, Any]], level: float) -> tuple[float, int]:
    """Return the coverage over the test rows of all seeds, and the number of different rows."""
    return _pool([_level(run, level) for run in runs], runs)


def _pool(entries: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    total = sum(entry["count"] for entry in entries)
    share = sum(entry["coverage"] * entry["count"] for entry in entries) / total
    return share, _rows([entry["count"] for entry in entries], runs)


def _rows(counts: Sequence[int], runs: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of different rows: a split by framework holds out the same rows for all seeds."""
    return max(counts) if runs[0].get("division") == "scaffold" else sum(counts)


def _cell(pooled: tuple[float, int], level: float) -> str:
    share, count = pooled
    return f"{100 * share:.1f} ± {100 * math.sqrt(level * (1 - level) / count):.1f}"


def _group(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    entries = [entry for run in runs for entry in run["groups"] if entry["group"] == name]
    if not sum(entry["count"] for entry in entries):
        return "-"
    share, count = _pool(entries, runs)
    return f"{_cell((share, count), AT)} ({count:,})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rounded(values: Sequence[float], digits: int = 2) -> str:
    return f"{_mean(values):.{digits}f}" if values else "-"
