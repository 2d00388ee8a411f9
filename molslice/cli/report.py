"""Write one HTML page about a trained model: errors, charts, molecules, parameters, data and settings.

The page opens from disk without a network. The model is measured on its own data; settings such as
--data.path FILE choose other data, as in `molslice evaluate`. Of a split with more molecules than --rows, a
random sample is measured. A model of `molslice fit` has its own rows, and its training rows are predicted by
the models that have not seen them.
"""

import argparse
from pathlib import Path

from molslice.cli.arguments import add_device, add_json, add_model, add_quiet, file_path, positive
from molslice.cli.console import say, write_json

SUMMARY = "write an HTML page about a trained model"
EXAMPLE = """\
  molslice report runs/first
  molslice report solubility --out solubility.html
  molslice report gap-xtb --root data/gap_xtb"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    add_model(parser, metavar="MODEL")
    parser.add_argument(
        "--out", type=file_path, metavar="FILE", help="page to write (default: NAME_report.html, here)"
    )
    parser.add_argument(
        "--rows",
        type=positive,
        default=10_000,
        metavar="N",
        help="most molecules of a split (default: 10000)",
    )
    parser.add_argument("--root", metavar="DIR", help="same as --data.root: the folder of the data")
    add_device(parser)
    add_quiet(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the page and print its name."""
    from molslice.cli.datasets import find_dataset
    from molslice.inference.load import load_model
    from molslice.report import write_report

    predictor = load_model(args.model, args.device)
    dataset = find_dataset(predictor.data_config, args.root, args.overrides)
    path = args.out or Path(f"{Path(predictor.name).name}_report.html")
    write_report(predictor, dataset, path, most_rows=args.rows, progress=not args.quiet)
    if args.json:
        write_json({"model": str(args.model), "report": str(path)})
    elif not args.quiet:
        say(f"the report is in {path}")
    return 0
