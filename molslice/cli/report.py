"""Write one HTML page about a trained model: errors, charts, molecules, parameters, data and settings.

Several models are compared on one page instead: errors with standard errors, differences on the molecules
that both held out, rows, times, and the settings that differ.

The page opens from disk without a network. The model is measured on its own data; settings such as
--data.path FILE choose other data, as in `molslice evaluate`; all rows of another table are the split test,
unless settings divide it. If a split has more molecules than --rows, a random sample of it is measured. A
model of `molslice fit` has its own rows, and its training rows are predicted by the models that have not
seen them. Without the data of its training, the page has what the folder of the model says: curves,
parameters, configuration, and the errors from the training.
"""

import argparse
from pathlib import Path

from molslice.cli.arguments import (
    add_fragment,
    add_model,
    add_run_options,
    file_to_write,
    flag,
    load_chosen_model,
    model_name,
    positive,
    share,
)
from molslice.cli.console import say, tell, write_json

SUMMARY = "write an HTML page about a trained model, or compare several"
EXAMPLE = """\
  molslice report runs/first
  molslice report solubility --out solubility.html
  molslice report gap-xtb --root data/gap_xtb
  molslice report solubility solubility-best --out both.html      # side by side"""
TAKES_OVERRIDES = True
ROWS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    add_model(parser, metavar="MODEL")
    parser.add_argument(
        "others",
        nargs="*",
        type=model_name,
        metavar="MODEL",
        help="further models: the page compares them",
    )
    parser.add_argument(
        "--out",
        type=file_to_write,
        metavar="FILE",
        help="page to write (default: NAME_report.html in the current folder)",
    )
    parser.add_argument(
        "--rows",
        type=positive,
        default=ROWS,
        metavar="N",
        help="maximum number of molecules of a split (default: %(default)s)",
    )
    parser.add_argument(
        "--threshold",
        type=share,
        metavar="P",
        help="probability of class 1 above which it is predicted, for the confusion matrix (default: 0.5)",
    )
    parser.add_argument("--root", metavar="DIR", help="same as --data.root: the folder of the data")
    add_fragment(parser)
    add_run_options(parser, device="a GPU if there is one")


def run(args: argparse.Namespace) -> int:
    """Write the page and print its name."""
    if args.others:
        return _compare(args)
    from molslice.cli.datasets import changes_rows, find_model_data
    from molslice.errors import MolsliceError
    from molslice.files.atomic import reserved
    from molslice.report.training import short_name
    from molslice.report.write import write_report

    predictor = load_chosen_model(args)
    path, missing = args.out or Path(f"{short_name(predictor)}_report.html"), ""
    try:
        dataset = find_model_data(
            predictor, predictor.data_config, args.root, args.overrides, args.fragment, whole="test"
        )
    except MolsliceError as error:
        if args.overrides or args.root is not None or args.fragment or args.wildcards:
            raise
        dataset, missing = None, str(error)
        say(f"the report has no measured errors: {missing}")
    with reserved(path):
        verdict = write_report(
            predictor,
            dataset,
            path,
            most_rows=args.rows,
            is_own=not changes_rows(args.overrides),
            threshold=args.threshold,
            missing=missing,
            command=_command(args),
            progress=True,
        )
    if args.json:
        write_json({"model": str(args.model), "report": str(path), "verdict": verdict})
    else:
        for line in verdict:
            tell(line)
        tell(f"the report is in {path}")
    return 0


def _compare(args: argparse.Namespace) -> int:
    """Write the page about several models."""
    from molslice.cli.datasets import find_model_data
    from molslice.files.atomic import reserved
    from molslice.inference.fitted import FittedPredictor
    from molslice.report.comparison import distinct_names, write_comparison
    from molslice.report.measure import measure
    from molslice.types import MolsliceError

    for name in ("threshold", "root", "fragment", "wildcards", *(name for name, _ in args.overrides)):
        if getattr(args, name, name) is not None:
            args.usage_error(f"{flag(name)}: not with several models")
    predictors, measured = [], []
    for model in (args.model, *args.others):
        args.model = model
        predictors.append(load_chosen_model(args))
        measured.append(None)
        if isinstance(predictors[-1], FittedPredictor):
            continue
        try:
            dataset = find_model_data(
                predictors[-1], predictors[-1].data_config, None, [], None, whole="test"
            )
            measured[-1] = measure(predictors[-1], dataset, args.rows, progress=True)
        except MolsliceError as error:
            say(f"{model}: only the errors recorded in its training are shown: {error}")
    names = distinct_names(predictors)
    path = args.out or Path(f"{'_'.join(names[:3])}_report.html")
    with reserved(path):
        result = write_comparison(predictors, measured, path)
    if args.json:
        write_json({"report": str(path), **result})
    else:
        for line in result["verdict"]:
            tell(line)
        tell(f"the report is in {path}")
    return 0


def _command(args: argparse.Namespace) -> list[str]:
    """Return the words of this command, without those that do not change the page."""
    from molslice.report.training import option_words

    words = ["molslice", "report", str(args.model)]
    rows = None if args.rows == ROWS else args.rows
    for option, value in (
        ("rows", rows),
        ("threshold", args.threshold),
        ("root", args.root),
        ("fragment", args.fragment),
        ("wildcards", args.wildcards),
        *args.overrides,
    ):
        words += [] if value is None else option_words(option, value)
    return words
