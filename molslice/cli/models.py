"""List the models that ship with molslice: what they predict, how well, and from which data.

The error is measured on held-out molecules; the card of each model says how they were chosen. The coverage is
the share of them whose value is in its 90% interval, or whose class is in its 90% set.
"""

import argparse
from dataclasses import asdict

from molslice.cli.arguments import add_options
from molslice.cli.console import text_table, write, write_json

SUMMARY = "list the models that ship with molslice"
EXAMPLE = """\
  molslice models
  molslice models --json"""
HEADER = ("model", "target", "unit", "rows", "held out", "error", "coverage", "data", "license")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `models`."""
    add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Print the table, or the descriptions as JSON."""
    from molslice.number_text import METRIC_LABELS
    from molslice.pretrained import shipped_models
    from molslice.uncertainty.rounding import rounded_error

    models = shipped_models()
    if args.json:
        write_json([asdict(model) for model in models])
        return 0
    rows = []
    for model in models:
        origin = (model.data, model.license)
        if not model.targets:
            rows.append((model.name, "-", "-", "-", "-", "-", "-", *origin))
        for target in model.targets:
            error = rounded_error(target.error, target.standard_error)
            rows.append(
                (
                    model.name,
                    target.name,
                    target.unit or "-",
                    f"{target.train_rows:,}",
                    f"{target.test_rows:,}",
                    f"{METRIC_LABELS[target.metric]} {error}",
                    f"{target.coverage:.0%}",
                    *origin,
                )
            )
    write(text_table(HEADER, rows))
    write("\n" + "\n".join(f"{model.name}: {model.summary}" for model in models))
    return 0
