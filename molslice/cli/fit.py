"""Fit a model to a table of molecules with measured values.

The model is a stack of gradient boosting, extra trees and a Gaussian process on descriptors, fingerprints and
the embedding of a trained encoder; with `--quality best`, the encoder is also fine-tuned. The column of
SMILES and the kind of the targets are found and named in the output. One tenth of the molecules is held out
to measure the error beside a random forest and gradient boosting; the model is then fitted to all rows. The
folder works with `molslice predict`, `molslice report` and `load_model`.
"""

import argparse
import shlex
from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import (
    AUTO,
    add_fragment,
    add_options,
    add_run_options,
    add_strict,
    check_delimiter,
    choose_device,
    file_or_url,
    file_path,
    minutes,
    model_name,
    tell_device,
    whole_number,
    worker_count,
)
from molslice.cli.console import tell, tell_refusals, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.fitting.data import FitData
    from molslice.fitting.related_target import RelatedTarget

SUMMARY = "fit a model to your own measurements"
EXAMPLE = """\
  molslice fit measured.csv --target logS --out solubility
  molslice fit measured.csv --target active --split scaffold --out activity
  molslice fit measured.csv --target logS --split time --by date --groups project --out prospective
  molslice fit measured.csv --target solubility --order low,medium,high --out classes
  molslice fit measured.csv --target IC50 --unit nM --scale log --out potency
  molslice fit measured.csv --target logS --condition temperature --out solubility
  molslice fit measured.csv --target logD --with other.csv:logP --out lipophilicity
  molslice fit measured.csv --target logS --smiles-column solute --smiles-column solvent --out solubility
  molslice fit measured.csv.gz --target logD --target logBB --split part --out several
  molslice fit 'parts/*.csv' --target logS --out solubility    # several files as one table"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit`."""
    from molslice.chem import STANDARDS

    parser.add_argument(
        "data",
        type=file_or_url,
        metavar="FILE",
        help="table of molecules with measured values: a file, a URL or a pattern",
    )
    parser.add_argument(
        "--target", action="append", required=True, metavar="COLUMN", help="measured column; repeatable"
    )
    parser.add_argument("--out", type=file_path, required=True, metavar="MODEL", help="folder to write")
    parser.add_argument(
        "--smiles-column",
        action="append",
        metavar="NAME",
        help="column of SMILES (default: detected); twice for pairs of molecules, such as solute and solvent",
    )
    add_options(parser, "--delimiter")
    parser.add_argument(
        "--symmetric", action="store_true", help="the order of the molecules of a pair has no meaning"
    )
    add_options(parser, "--decimal", "--missing-value")
    parser.add_argument(
        "--outliers",
        choices=("refuse", "keep"),
        help="targets with values far outside the others (default: refuse)",
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=("regression", "classification", "multiclass"),
        help="kind of the targets, once or for each target (default: detected)",
    )
    parser.add_argument(
        "--positive",
        action="append",
        metavar="WORD",
        help="class 1 of a target with two classes that are words; repeatable",
    )
    parser.add_argument(
        "--order",
        action="append",
        metavar="WORD,WORD,...",
        help="three or more classes of a target, from the lowest to the highest; repeatable",
    )
    parser.add_argument(
        "--class-weight",
        choices=("balanced",),
        help="weight all classes equally (default: weight all rows equally)",
    )
    parser.add_argument(
        "--scale", choices=("linear", "log"), help="learn values or their logarithms (default: detected)"
    )
    parser.add_argument(
        "--unit",
        action="append",
        dest="units",
        metavar="UNIT",
        help="unit of the targets, once or for each target",
    )
    parser.add_argument(
        "--split",
        metavar="random|scaffold|cluster|time|all|COLUMN",
        help="how to hold rows out; all: hold out none; a COLUMN has train, valid or test (default: random)",
    )
    parser.add_argument(
        "--by", metavar="COLUMN", help="dates for --split time, which holds the latest compounds out"
    )
    parser.add_argument(
        "--groups",
        metavar="COLUMN",
        help="column of groups, such as projects; the rows of a group are never divided",
    )
    parser.add_argument(
        "--condition",
        action="append",
        dest="conditions",
        metavar="COLUMN",
        help="number or category that the model takes beside the molecule, such as a temperature; repeatable",
    )
    parser.add_argument(
        "--with",
        action="append",
        type=related_target,
        dest="related",
        metavar="FILE:COLUMN",
        help="measured column of another table, whose prediction is a feature of the learners; repeatable",
    )
    parser.add_argument(
        "--duplicates",
        choices=("average", "keep", "refuse"),
        help="how to treat several rows of one molecule in the same conditions (default: average)",
    )
    parser.add_argument(
        "--limits",
        choices=("learn", "drop", "exact"),
        help="censored values such as >10: learn them as limits, drop them, or learn them as exact values "
        "(default: learn)",
    )
    parser.add_argument(
        "--relation",
        action="append",
        metavar="COLUMN",
        help="column with > and <, once or for each target (default: detected)",
    )
    parser.add_argument(
        "--unit-column",
        action="append",
        metavar="COLUMN",
        help="column of units; values are converted to --unit; once or for each target (default: detected)",
    )
    parser.add_argument(
        "--transform",
        choices=("p",),
        help="p: learn and predict -log10 of concentrations in mol/L, such as pIC50",
    )
    parser.add_argument("--weight", metavar="COLUMN", help="column of positive weights of the rows")
    parser.add_argument(
        "--error",
        action="append",
        metavar="COLUMN",
        help="column of standard errors, in the unit of the target; once or for each target",
    )
    add_fragment(parser, "keep")
    parser.add_argument(
        "--standardize",
        choices=STANDARDS,
        help="form of molecules, also in predictions: neutral, or also the canonical tautomer (default: no)",
    )
    add_strict(parser)
    parser.add_argument(
        "--quality",
        choices=("fast", "good", "best"),
        help="how much time to spend; best also fine-tunes the encoder (default: good)",
    )
    parser.add_argument("--members", type=members, metavar="K", help="number of folds, 2 to 20 (default: 5)")
    parser.add_argument(
        "--minutes",
        type=minutes,
        metavar="M",
        help="time limit; learners are left out, and networks train for fewer epochs",
    )
    parser.add_argument(
        "--tune",
        type=minutes,
        metavar="M",
        help="first spend up to M minutes on choosing the settings of the learners by cross-validation",
    )
    parser.add_argument("--seed", type=seed, metavar="N", help="seed (default: 0)")
    parser.add_argument(
        "--refit",
        action=argparse.BooleanOptionalAction,
        help="fit again to all rows after the error is measured (default: unless a COLUMN holds rows out)",
    )
    encoder = parser.add_mutually_exclusive_group()
    encoder.add_argument(
        "--encoder",
        type=model_name,
        metavar="MODEL",
        help="trained encoder for features and fine-tuning (default: encoder-small)",
    )
    encoder.add_argument("--no-encoder", action="store_true", help="fit to descriptors and fingerprints only")
    parser.add_argument("--workers", type=worker_count, metavar="N", help="processes that read SMILES")
    parser.add_argument(
        "--device",
        choices=(AUTO, "cpu", "cuda", "mps"),
        default=AUTO,
        help="where the encoder is fine-tuned (default: auto, the first GPU if there is one)",
    )
    add_run_options(parser)


def members(text: str) -> int:
    """Parse a number of folds."""
    from molslice.fitting.first_checks import MAX_FOLDS, MIN_FOLDS

    return whole_number(text, MIN_FOLDS, MAX_FOLDS)


def seed(text: str) -> int:
    """Parse a seed."""
    from molslice.fitting.first_checks import MAX_SEED

    return whole_number(text, 0, MAX_SEED)


def related_target(text: str) -> "RelatedTarget":
    """Parse a column of another table, `FILE:COLUMN`."""
    from molslice.errors import MolsliceError
    from molslice.fitting.related_target import RelatedTarget

    try:
        return RelatedTarget.parse(text)
    except MolsliceError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _example(condition: Mapping[str, Any]) -> str:
    """Return a condition with a value, as an argument of `predict`."""
    words = condition["words"]
    value = f"{condition['low']:g}" if words is None else next(filter(None, words), "")
    return shlex.quote(f"{condition['name']}={value}")


def _check_first(args: argparse.Namespace) -> None:
    """Check the folder and the columns of the table, before packages that take seconds to import."""
    from molslice.fitting.first_checks import check_folder, check_table, check_times

    check_times(args.minutes, args.tune)
    check_delimiter(args, [args.data])
    smiles_columns = args.smiles_column or [None]
    single = (args.by, args.groups, args.weight)
    several = (smiles_columns[1:], args.conditions, args.error, args.relation, args.unit_column)
    columns = [name for names in ([*single], *several) for name in names or () if name]
    reading = {"smiles_column": smiles_columns[0], "delimiter": args.delimiter}
    check_table(args.data, args.target, columns, args.split, **reading)
    for target in args.related or ():
        check_table(target.file, [target.column])
    check_folder(args.out, [args.data])


def _announce(early_findings: list[str], refits: bool, rows: "FitData", seconds: float) -> None:
    """Say what was found in the table, how many rows the model learns, and how long the fit will take."""
    from molslice.fitting.expected_time import describe_seconds

    early_findings += rows.findings
    for text in early_findings:
        tell(text)
    tell_refusals(rows.refusals.report())
    held_out = int(rows.test.sum())
    count = f"{len(rows.smiles) - (0 if refits else held_out):,} rows to learn"
    if held_out:
        count += f", {held_out:,} of them held out first" if refits else f", {held_out:,} others held out"
    tell(f"{count}; the fit takes {describe_seconds(seconds)}")


def run(args: argparse.Namespace) -> int:
    """Fit a model and print its errors."""
    _check_first(args)
    from molslice.fitting.card import (
        STANDARD_ERROR,
        describe_more_time,
        describe_tuning,
        further_rows,
        result_rows,
    )
    from molslice.fitting.first_checks import refits_all
    from molslice.fitting.fit import fit

    device = "cpu" if args.no_encoder and args.device == AUTO else choose_device(args)
    tell_device(args, device)
    options = {name: value for name, value in vars(args).items() if name in signature(fit).parameters}
    options |= {
        "device": device,
        "missing_values": args.missing_value,
        "order": [word.split(",") for word in args.order or ()] or None,
    }
    if args.units and len(args.units) == 1:
        options["units"] = args.units[0]
    options = {name: value for name, value in options.items() if value is not None}
    if args.no_encoder:
        options["encoder"] = None
    if args.tune:
        limit = f"{args.tune:g} minute{'s' * (args.tune != 1)}"
        tell(f"tuning takes up to {limit}; then the model is fitted as without it")
    early_findings: list[str] = []  # what is found in the table, before the fit
    refits = refits_all(options.get("split", "random"), args.refit)
    announce = None if args.json or args.quiet else partial(_announce, early_findings, refits)
    about = fit(**options, announce=announce)
    if args.json:
        write_json(about)
        return 0
    for text in about["findings"][len(early_findings) :]:
        tell(text)
    for what in about["left_out"]:
        tell(f"not computed for lack of time: {what}")
    write(text_table(*result_rows(about)))
    further = further_rows(about)
    if further[1]:
        write(f"\n{text_table(*further)}")
    tell(STANDARD_ERROR)
    if args.tune:
        for text in describe_tuning(about):
            tell(text)
    given = "".join(f" --condition {_example(condition)}" for condition in about.get("conditions", ()))
    given += f" --condition {shlex.quote(about['partner'])}=O" if "partner" in about else ""
    tell(f"the model is in {args.out}; next: molslice predict {args.out} --smiles CCO{given}")
    tell(f"measured values that may be wrong: molslice suspects {args.out}")
    if more := describe_more_time(about):
        tell(more)
    return 0
