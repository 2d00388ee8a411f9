"""Tables of the guide to a billion molecules from `results/billion.json`; `result_tables.py` writes them."""

from collections.abc import Mapping
from typing import Any

MOLECULES = 1_000_000_000
CORES = 64  # of a node; assumed
PRICE = 0.04  # of a core-hour; assumed
NODES = (1, 10, 100)
HOUR = 3600.0

Table = tuple[list[str], list[list[str]]]


def rate_table(result: Mapping[str, Any]) -> Table:
    """Return header and rows: the measured time and bytes of each part for one molecule."""
    times, sizes = result["microseconds"], result["bytes"]
    rows = [
        ["read", "one reader", times["read"], f"{sizes['smiles']:.0f} read, {sizes['task']:.0f} sent"],
        ["featurize", "workers of `prepare`", times["featurize"], f"{sizes['arrays']:.0f} sent"],
        [
            "featurize and predict",
            "workers of `predict`",
            times["predict"],
            f"{sizes['prediction']:.0f} sent",
        ],
        ["collect predictions", "one process", times["collect_predictions"], f"{sizes['csv']:.0f} written"],
        ["collect arrays", "one process", times["collect_molecules"], f"{sizes['store']:.0f} written"],
    ]
    for verb, row in (("predict", 4), ("prepare", 6)):
        rows.insert(row, [f"Ray, for a part of `{verb}`", "one process", _ray(result, verb), ""])
    header = ["part", "where", "processor time (µs)", "bytes"]
    return header, [[part, where, f"{time:,.1f}", size] for part, where, time, size in rows]


def plan_table(result: Mapping[str, Any]) -> Table:
    """Return header and rows: core-hours, hours, cost and the number of cores that are of use."""
    header = ["a billion molecules", "core-hours", "cost", *(f"{n} node{'s' * (n > 1)} (h)" for n in NODES)]
    rows = []
    for name, work, slowest in _jobs(result):
        core_hours = MOLECULES * work / 1e6 / HOUR
        least = MOLECULES * slowest / 1e6 / HOUR
        hours = [max(core_hours / (CORES * nodes), least) for nodes in NODES]
        useful = "no limit" if not slowest else f"{work / slowest:,.0f}"
        rows.append(
            [name, f"{core_hours:,.0f}", f"${core_hours * PRICE:,.0f}", *(f"{h:,.1f}" for h in hours), useful]
        )
    return [*header, "useful cores"], rows


def _ray(result: Mapping[str, Any], verb: str) -> float:
    """Return the time of Ray in the collecting process, in microseconds a molecule."""
    return result["ray_milliseconds"] * 1e3 / result["chunk_rows"][verb]


def _jobs(result: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return the name, the time of the workers and that of the slowest single process for each job."""
    times = result["microseconds"]
    one_file = max(times["read"], times["collect_predictions"] + _ray(result, "predict"))
    one_store = max(times["read"], times["collect_molecules"] + _ray(result, "prepare"))
    return [
        ("predict to a folder", times["predict"], 0.0),
        ("predict to one file", times["predict"], one_file),
        ("prepare a store for each group of files", times["featurize"], 0.0),
        ("prepare one store", times["featurize"], one_store),
    ]


def volume_table(result: Mapping[str, Any]) -> Table:
    """Return header and rows: the size of the input and of the outputs."""
    sizes = result["bytes"]
    names = {"smiles": "SMILES, one on each line", "csv": "CSV with one prediction", "store": "store"}
    rows = [
        [label, f"{sizes[name]:.0f}", f"{sizes[name] * MOLECULES / 1e9:,.0f}"]
        for name, label in names.items()
    ]
    return ["", "bytes per molecule", "GB for a billion"], rows
