"""The tables of what pretraining changes on small measured sets."""

from collections.abc import Mapping
from typing import Any

from tables import cell, load, markdown

LABELS = {
    "none": "random weights",
    "descriptors": "descriptors",
    "quantum": "quantum labels",
    "charges": "charges of atoms",
    "atoms": "hidden atoms",
    "bonds": "hidden bonds",
    "all": "all of these",
}
HOW = ("frozen", "fine-tuned")
SETS = {"esol": "ESOL, MAE", "freesolv": "FreeSolv, MAE", "bace": "BACE, ROC-AUC"}


def labels_table() -> str:
    """Return the errors and their ratios to random weights, after pretraining with each family of labels."""
    result = load("pretraining_ablation")
    return _tables(result, {_key(one): LABELS[one["labels"]] for one in result["ratios"]})


def attentions_table() -> str:
    """Return the errors of each attention from random weights and pretrained, and their ratios."""
    result = load("pretraining_attentions")
    starts = {"none": "random weights", "all": "pretrained"}
    names = {_key(one): f"`{one['attention']}`, {starts[one['labels']]}" for one in result["ratios"]}
    return _tables(result, names)


def _key(one: Mapping[str, Any]) -> tuple[str, str]:
    """Return attention and labels; earlier results of one attention do not name it."""
    return one.get("attention", ""), one["labels"]


def _tables(result: Mapping[str, Any], names: Mapping[tuple[str, str], str]) -> str:
    """Return one table for each use of an encoder."""
    errors = {(one["how"], _key(one), one["set"]): cell(one) for one in result["results"]}
    ratios = {
        (one["how"], _key(one)): cell({"mean": one["error_over_none"], "sd": one.get("sd")})
        for one in result["ratios"]
    }
    parts = []
    for how in HOW:
        header = [how, *SETS.values(), "error ratio to random weights"]
        rows = [
            [name, *(errors[how, key, measured] for measured in SETS), ratios[how, key]]
            for key, name in names.items()
        ]
        parts.append(markdown(header, rows))
    return "\n\n".join(parts)


def sizes_table() -> str:
    """Return the errors of encoders of several sizes, after pretraining and on small measured sets."""
    result = load("pretraining_sizes")
    names = {
        one["encoder"]: f"{one['model']['num_layers']} layers of width {one['model']['dim']}"
        for one in result["encoders"]
    }
    header = ["", "parameters", "steps", "batch", "descriptors", "gap (eV)", "HOMO (eV)", "LUMO (eV)"]
    rows = [
        [
            names[one["encoder"]],
            f"{one['parameters']:,}",
            f"{one['steps']:,}",
            str(one["batch_size"]),
            *(f"{one[name]:.3f}" for name in ("descriptors_mae_std", "gap_mae", "homo_mae", "lumo_mae")),
        ]
        for one in result["encoders"]
    ]
    parts = [markdown(header, rows)]
    errors = {(one["how"], one["labels"], one["set"]): cell(one) for one in result["results"]}
    ratios = {(one["how"], one["labels"]): cell({**one, "mean": one["ratio"]}) for one in result["ratios"]}
    for how in dict.fromkeys(one["how"] for one in result["results"]):
        shown = {
            f"{one}{end}": f"{name}{end}" for end in ("", ", random weights") for one, name in names.items()
        }
        rows = [
            [name, *(errors[how, label, measured] for measured in SETS), ratios.get((how, label), "1.000")]
            for label, name in shown.items()
            if (how, label, next(iter(SETS))) in errors
        ]
        parts.append(markdown([how, *SETS.values(), "error ratio to the first"], rows))
    return "\n\n".join(parts)


def embedded_table() -> str:
    """Return the errors on the embedded data at equal steps, from random weights and pretrained."""
    errors: dict[str, dict[str, Any]] = {}
    for one in load("pretraining_embedded")["results"]:
        errors.setdefault(one["attention"], {})[one["start"]] = one
    rows = [
        [
            f"`{attention}`",
            f"{both['pretrained']['pretraining_steps']:,}",
            cell(both["random weights"]["test_mae_eV"]),
            cell(both["pretrained"]["test_mae_eV"]),
        ]
        for attention, both in errors.items()
    ]
    return markdown(["", "steps of pretraining", "random weights, MAE (eV)", "pretrained, MAE (eV)"], rows)
