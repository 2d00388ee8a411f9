"""Fit a model to a table of molecules with measured values.

The model is a stack of gradient boosting, extra trees, a Gaussian process and a fine-tuned encoder. The
column of SMILES and the kind of the targets are found and named in the output. One tenth of the molecules is
held out to measure the model beside a random forest and gradient boosting. The folder works with `molslice
predict`, `molslice evaluate` and `load_model`.
"""

import argparse

from molslice.cli.arguments import (
    AUTO,
    add_columns,
    add_fragment,
    add_number_format,
    add_run_options,
    add_strict,
    choose_device,
    file_or_url,
    file_path,
    minutes,
    model_name,
    say_device,
    whole_number,
    worker_count,
)
from molslice.cli.console import say, say_refusals, text_table, write, write_json

SUMMARY = "fit a model to your own measurements"
EXAMPLE = """\
  molslice fit measured.csv --target logS --out solubility
  molslice fit measured.csv --target active --split scaffold --out activity
  molslice fit measured.csv --target solubility --order low,medium,high --out classes
  molslice fit measured.csv --target IC50 --unit nM --scale log --out potency
  molslice fit measured.csv.gz --target logD --target logBB --split part --out several
  molslice fit 'parts/*.csv' --target logS --out solubility    # several files as one table"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit`."""
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
    add_columns(parser)
    add_number_format(parser)
    parser.add_argument(
        "--outliers",
        choices=("refuse", "keep"),
        default="refuse",
        help="targets with values far outside the others (default: refuse)",
    )
    parser.add_argument(
        "--kind",
        choices=("regression", "classification", "multiclass"),
        help="kind of the targets (default: detected)",
    )
    parser.add_argument(
        "--positive",
        action="append",
        metavar="WORD",
        help="class 1 of a target with two classes that are words; repeatable",
    )
    parser.add_argument(
        "--order", metavar="WORD,WORD,...", help="three or more classes, from the lowest to the highest"
    )
    parser.add_argument(
        "--class-weight", choices=("balanced",), help="give all classes the same weight (default: all rows)"
    )
    parser.add_argument(
        "--scale", choices=("linear", "log"), help="learn values or their logarithms (default: detected)"
    )
    parser.add_argument(
        "--unit", action="append", metavar="UNIT", help="unit of the targets, once or for each"
    )
    parser.add_argument(
        "--split",
        default="random",
        metavar="random|scaffold|all|COLUMN",
        help="how to hold rows out; all: not at all; a COLUMN has train, valid or test (default: random)",
    )
    parser.add_argument(
        "--duplicates",
        choices=("average", "keep", "refuse"),
        default="average",
        help="how to treat several rows of one molecule (default: average)",
    )
    add_fragment(parser, "keep")
    add_strict(parser)
    parser.add_argument(
        "--members", type=members, default=5, metavar="K", help="number of folds, 2 to 20 (default: 5)"
    )
    parser.add_argument(
        "--minutes", type=minutes, metavar="M", help="time limit; networks train for fewer epochs"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed (default: 0)")
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
    from molslice.fitting.fit import MAX_FOLDS, MIN_FOLDS

    return whole_number(text, MIN_FOLDS, MAX_FOLDS)


def seed(text: str) -> int:
    """Parse a seed."""
    from molslice.fitting.fit import MAX_SEED

    return whole_number(text, 0, MAX_SEED)


def run(args: argparse.Namespace) -> int:
    """Fit a model and print its errors."""
    from molslice.fitting.card import STANDARD_ERROR, further_rows, result_rows
    from molslice.fitting.fit import fit
    from molslice.pretrained import DEFAULT_ENCODER

    device = "cpu" if args.no_encoder and args.device == AUTO else choose_device(args)
    say_device(args, device)
    units = args.unit[0] if args.unit and len(args.unit) == 1 else args.unit
    about = fit(
        args.data,
        args.target,
        args.out,
        smiles_column=args.smiles_column,
        delimiter=args.delimiter,
        decimal=args.decimal,
        missing_values=args.missing_value,
        outliers=args.outliers,
        kind=args.kind,
        positive=args.positive or (),
        order=args.order or (),
        class_weight=args.class_weight,
        scale=args.scale,
        units=units,
        split=args.split,
        duplicates=args.duplicates,
        fragment=args.fragment or "keep",
        wildcards=args.wildcards or "refuse",
        strict=args.strict,
        members=args.members,
        minutes=args.minutes,
        seed=args.seed,
        encoder=None if args.no_encoder else args.encoder or DEFAULT_ENCODER,
        workers=args.workers,
        device=device,
        quiet=args.quiet,
    )
    if args.json:
        write_json(about)
        return 0
    if not args.quiet:
        for text in about["findings"]:
            say(text)
        say_refusals(about["refusals"], quiet=False)
        for what in about["left_out"]:
            say(f"not computed for lack of time: {what}")
    write(text_table(*result_rows(about)))
    further = further_rows(about)
    if further[1]:
        write(f"\n{text_table(*further)}")
    if not args.quiet:
        say(STANDARD_ERROR)
        say(f"the model is in {args.out}; next: molslice predict {args.out} --smiles CCO")
    return 0
