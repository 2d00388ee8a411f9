"""Compare attentions: plot the error against the parameters, with the same training budget for each.

An entry of --attention is a name with options after colons, such as
slice_sort:form=mix_plus_sort:placement=aligned, or gin_virtual, a graph network without attention.
Each entry is trained with several seeds or on several folds. A second call with the same --out continues
where the first one stopped.

--runs compares finished runs, or models of molslice fit: their errors, rows, times and settings.
"""

import argparse

from molslice.cli.arguments import add_run_options, file_path, minutes, positive
from molslice.cli.console import say, tell, write, write_json

SUMMARY = "compare attentions by parameters and error"
EXAMPLE = """\
  molslice compare --config configs/molecule/quickstart.yaml --attention softmax,slice_sort,flow,singular \\
      --minutes 1 --out runs/compare
  molslice compare --config configs/text/r8_small.yaml --folds 5 --out runs/r8
  molslice compare --runs runs/first runs/slices --curves --out runs/drawn
  molslice compare --runs solubility solubility_best --out fits    # models of molslice fit"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--config", type=file_path, metavar="FILE", help="YAML file that all entries are trained with"
    )
    group.add_argument(
        "--runs",
        type=file_path,
        nargs="+",
        action="extend",
        metavar="RUN",
        help="finished runs, or models of molslice fit, to compare without training",
    )
    parser.add_argument(
        "--attention", metavar="A,B,...", help="entries to train (default: softmax,slice_sort,flow,singular)"
    )
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help="number of seeds for each entry (default: 1)"
    )
    parser.add_argument(
        "--folds",
        type=positive,
        metavar="K",
        help="K-fold cross-validation: train each entry once for each test fold",
    )
    parser.add_argument("--minutes", type=minutes, metavar="M", help="training time of each run")
    parser.add_argument(
        "--out", type=file_path, required=True, metavar="DIR", help="folder for the table, plot and runs"
    )
    parser.add_argument(
        "--curves", action="store_true", help="also draw the training curves of all runs in one figure"
    )
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, and return 1 if an entry failed; the other entries are still run."""
    from molslice.folders.fitted import is_fitted_folder
    from molslice.training.compare import FOUR, Comparison, compare_attentions, compare_runs

    if args.runs is not None:
        if args.attention or args.minutes or args.seeds or args.folds or args.overrides:
            args.usage_error("--runs compares finished runs; settings for training need --config")
        if any(map(is_fitted_folder, args.runs)):
            return _compare_fits(args)
        comparison: Comparison = compare_runs(args.runs, args.out, curves=args.curves)
    else:
        comparison = compare_attentions(
            args.config,
            args.attention or FOUR,
            args.out,
            seeds=args.seeds or 1,
            folds=args.folds,
            minutes=args.minutes,
            curves=args.curves,
            overrides=args.overrides,
            quiet=args.quiet,
            tell=tell,
        )
    if args.json:
        write_json(comparison.to_mapping())
    else:
        write(comparison.to_text())
    plots = f"plot: {args.out / 'compare.png'}" + (f", {args.out / 'curves.png'}" if args.curves else "")
    tell(f"table: {args.out / 'table.md'}, {plots}")
    for label, reason in comparison.failed.items():
        say(f"error: {label} failed: {reason}")
    return 1 if comparison.failed else 0


def _compare_fits(args: argparse.Namespace) -> int:
    """Compare models of `molslice fit`."""
    from molslice.errors import MolsliceError
    from molslice.fitting.compared_fits import compare_fits
    from molslice.folders.fitted import is_fitted_folder

    if args.curves:
        args.usage_error("--curves: models of molslice fit have no training curves")
    if others := [run for run in args.runs if not is_fitted_folder(run)]:
        raise MolsliceError(
            f"--runs has runs and models of molslice fit: {others[0]} is a run; compare them separately"
        )
    compared = compare_fits(args.runs, args.out)
    if args.json:
        write_json(compared.to_mapping())
    else:
        write(compared.to_text())
    tell(f"table: {args.out / 'table.md'}, {args.out / 'table.csv'}")
    tell("they may have held out other molecules; molslice report compares two models on the same ones")
    return 0
