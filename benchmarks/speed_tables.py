"""Tables of the documentation from `results/training_speed.json`; `result_tables.py` writes them."""

import textwrap
from collections.abc import Mapping
from typing import Any

SETS = {"qm9": "QM9", "chembl": "ChEMBL", "gap_xtb": "embedded data"}
MARKS = {"quickstart": "4 x 64", "slim": "12 x 80", "qm9": "4 x 64 in batches of 128"}
SAME_SIZE = {"qm9": "quickstart"}


def training_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: molecules per second of processor time, and ratios to other programs."""
    sets = result["sets"]
    header = ["", "parameters"]
    for one in sets:
        label = SETS[one["name"]]
        header += [f"{label}: molecules/s", "times chemprop", "times Graphormer's pipeline"]
    rows = []
    for place, side in enumerate(sets[0]["sides"]):
        row = [label_of(side["name"]), f"{side['parameters']:,}"]
        for one in sets:
            own = one["sides"][place]
            row.append(f"{own['molecules_per_second']:,.0f}")
            row += [ratio(own, "chemprop"), ratio(own, f"Graphormer rewrite {size_of(own['name'])}")]
        rows.append(row)
    return header, rows


def start_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: start of the process, conversion, and a whole training, on the first set.

    Of the sides of molslice only the first model is shown, because the start and the conversion are equal.
    """
    first, example = result["sets"][0], result["example"]
    header = [
        f"{SETS[first['name']]}, processor time",
        "start (s)",
        "conversion (µs per molecule)",
        f"{example['rows']:,} molecules, {example['epochs']} epochs (s)",
    ]
    rows = [
        [
            label_of(side["name"]),
            f"{side['start_seconds']:.1f}",
            f"{side['prepare_microseconds']:.0f}",
            f"{side['example_seconds']:,.0f}",
        ]
        for side in first["sides"]
        if "slim" not in side["name"]
    ]
    return header, rows


def data_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the stages of the data path in one process, by its processor time."""
    header = ["", "molecules", "molecules/s", "padding", "memory (GB)"]
    rows = [
        [
            f"{SETS[one['name']]}: {stage['stage']}",
            f"{one['data_path']['molecules']:,}",
            number(stage["molecules_per_processor_second"]),
            "" if stage["padding_share"] is None else f"{stage['padding_share']:.1%}",
            number(stage["peak_bytes"], 1e9),
        ]
        for one in result["sets"]
        for stage in one["data_path"]["stages"]
        if stage["molecules_per_processor_second"] is not None
    ]
    return header, rows


def padding_sentence(result: Mapping[str, Any]) -> str:
    """Return the share of padding for the lengths of PCQM4M, as a sentence; empty if not measured."""
    found = result.get("pcqm4m_padding")
    if found is None:
        return ""
    shares = [
        f"{one['padding_share']:.1%} with batches of at most {one['batch_size']:,} molecules and "
        f"{one['token_budget']:,} tokens"
        for one in found["batches"]
    ]
    return (
        f"With {found['drawn']:,} lengths drawn from the first {found['rows']:,} training rows of PCQM4Mv2, "
        f"the share of padding in the tokens of an epoch is {' and '.join(shares)}."
    )


def prediction_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: processor time of a prediction with each model of `prediction.json`."""
    times, ratios = result["milliseconds"], result["ratio_to_chemprop"]
    rows = [
        [
            "chemprop" if name == "chemprop" else f"`{name.rpartition('/')[2]}`",
            f"{result['parameters'][name]:,}" if name in result["parameters"] else "",
            f"{milliseconds:.2f}",
            f"{ratios[name]:.2f}" if name in ratios else "",
        ]
        for name, milliseconds in times.items()
    ]
    return ["", "parameters", "milliseconds", "times as fast as chemprop"], rows


def preparation_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: rate and processor time of `prepare` with one and two processes."""
    rows = [
        [
            str(one["workers"]),
            f"{one['rows_per_second']:,.0f}",
            f"{one['parent_microseconds']:.0f}",
            f"{one['worker_microseconds']:.0f}" if one["worker_microseconds"] else "",
        ]
        for one in result["results"]
    ]
    return ["processes", "rows/s", "main process (µs per row)", "workers (µs per row)"], rows


def large_store(result: Mapping[str, Any]) -> str:
    """Return time, memory and size of a store with as many rows as PCQM4M, as sentences."""
    epoch, runs = result["epoch"], result["runs"]
    workers = " and ".join(sorted({str(run["workers"]) for run in runs}))
    memory = [max(run[name] for run in runs) for name in ("parent_mib", "worker_mib")]
    atoms = result["atoms_per_molecule"]["median"]
    text = (
        f"A store of {result['rows']:,} rows ({atoms:.0f} heavy atoms in the median) was prepared by "
        f"{workers} processes in {result['seconds'] / 60:.0f} minutes. The main process used at most "
        f"{memory[0]:.0f} MiB, a worker {memory[1]:.0f} MiB. The store has "
        f"{result['bytes'] / 1e9:.2f} GB, {result['bytes_per_molecule']:.0f} bytes per molecule. It opens in "
        f"{epoch['open_seconds']:.1f} s with its checksums. All {epoch['batches']:,} batches of an epoch (at "
        f"most {epoch['batch_size']:,} molecules and {epoch['token_budget']:,} tokens) take "
        f"{epoch['seconds']:.0f} s without a model on one thread, {epoch['rows_per_second']:,.0f} molecules "
        f"per second, with {epoch['padding_share']:.1%} padding."
    )
    return textwrap.fill(text, 118)


def label_of(name: str) -> str:
    """Return the name of a side as the tables show it."""
    program, _, rest = name.partition(" ")
    for size, mark in MARKS.items():
        rest = rest.replace(size, mark)
    if program == "molslice":
        mark, _, attention = rest.rpartition(" ")
        return f"molslice, {mark}, `{attention}`"
    return (
        f"Graphormer's pipeline, {rest.removeprefix('rewrite ')}"
        if program == "Graphormer"
        else f"{program} {rest}"
    )


def size_of(name: str) -> str:
    """Return the name of the size in the name of a side; empty without one."""
    return next((SAME_SIZE.get(size, size) for size in MARKS if size in name.split()), "")


def ratio(side: Mapping[str, Any], other: str) -> str:
    """Return how many times as fast as another program a side of molslice is; empty for other sides."""
    known = side["times_as_fast_as"] if side["name"].startswith("molslice") else {}
    found = [value for name, value in known.items() if name.startswith(other)]
    return f"{found[0]:.1f}" if found else ""


def number(spread: Mapping[str, float] | None, divisor: float = 1.0) -> str:
    """Return the median of a spread as text; empty without one."""
    if spread is None:
        return ""
    value = spread["median"] / divisor
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
