"""Measure the error of a trained model on a split of its data, or on other data.

Settings such as --data.root DIR replace the settings of the run. With another --data.name, none of the run's
data settings are kept: give those that the data set needs. Your own CSV file needs data.path,
data.target_columns (the columns of the model's targets, in the order of the targets) and, if the targets have
units, data.units.
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import (
    add_fragment,
    add_model,
    add_run_options,
    add_strict,
    check_needs,
    count,
    file_path,
    load_chosen_model,
    positive,
)
from molslice.cli.console import tell, tell_refusals, tell_trained, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.data.base import Dataset
    from molslice.inference.base import Predictor
    from molslice.inference.load import AnyPredictor

SUMMARY = "measure the error of a trained model"
EXAMPLE = """\
  molslice evaluate runs/first
  molslice evaluate runs/first --split valid --json
  molslice evaluate runs/first --shuffle-atoms 1          # does the order of atoms matter?
  molslice evaluate runs/first --split valid --calibrate --dropout-passes 20   # intervals from dropout
  molslice evaluate runs/first --uncertainty --out uncertainty     # coverage and width of intervals
  molslice evaluate gap-xtb --root data/gap_xtb           # the data are in another folder
  molslice evaluate gap-xtb --split all --data.name csv --data.path mine.csv \\
      --data.target-columns gap --data.units eV           # your own molecules"""
TAKES_OVERRIDES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `evaluate`."""
    add_model(parser, metavar="RUN")
    parser.add_argument(
        "--split", default="test", help="train, valid, test, ..., or all for all rows (default: test)"
    )
    parser.add_argument("--root", metavar="DIR", help="same as --data.root: the folder of the data")
    parser.add_argument(
        "--shuffle-atoms", type=count, metavar="SEED", help="first shuffle the atoms of each molecule"
    )
    add_fragment(parser)
    add_strict(parser)
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="also write what predict --interval and --domain need into RUN, from --split valid",
    )
    parser.add_argument(
        "--dropout-passes",
        type=positive,
        metavar="K",
        help="with --calibrate: compute the spread from K passes with dropout, now and in later predictions",
    )
    parser.add_argument(
        "--uncertainty",
        action="store_true",
        help="also measure coverage, width and ranking of intervals, by size and scaffold",
    )
    parser.add_argument(
        "--out", type=file_path, metavar="DIR", help="folder for the result and plots of --uncertainty"
    )
    add_run_options(parser, device="a GPU if there is one")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print the errors."""
    from molslice.files.atomic import reserved
    from molslice.folders.results import check_results_folder

    _check_uncertainty(args)
    if args.out is not None:
        check_results_folder(args.out)
    with reserved(args.out):
        return _evaluate(args)


def _evaluate(args: argparse.Namespace) -> int:
    from molslice.inference.evaluate import evaluate
    from molslice.inference.held_out import calibrate, write_domain
    from molslice.inference.uncertainty import evaluate_uncertainty
    from molslice.inference.uncertainty_figure import write_uncertainty

    predictor = load_chosen_model(args)
    dataset = _find_data(predictor, args)
    trained = _count_trained(predictor, dataset, args)
    result = evaluate(
        predictor,
        dataset,
        args.split,
        atom_permutation=args.shuffle_atoms,
        strict=args.strict,
    )
    if args.calibrate:
        assert predictor.folder is not None  # it was loaded from one
        passes = args.dropout_passes or 0
        calibration = calibrate(predictor, dataset, args.split, dropout_passes=passes, progress=True)
        calibration.write(predictor.folder)
        if not args.overrides:  # the data that the model was trained on
            write_domain(predictor, dataset)
    result = {"model": str(args.model), **result}
    if trained is not None:
        result["trained"] = trained
    if args.uncertainty:
        result["uncertainty"] = evaluate_uncertainty(predictor, dataset, args.split, progress=True)
        files = [] if args.out is None else write_uncertainty(result["uncertainty"], args.out)
    if args.json:
        write_json(result)
    else:
        write(result_text(result))
        if args.uncertainty:
            write(f"\n{uncertainty_text(result['uncertainty'])}")
            for file in files:
                tell(f"written: {file}")
        tell_refusals(result.get("refusals", []))
    if trained:
        tell_trained(predictor, trained, len(dataset.labeled_rows(args.split)))
    return 0


def _find_data(predictor: "AnyPredictor", args: argparse.Namespace) -> "Dataset":
    """Build the data, with a split `all` if all rows are measured."""
    import numpy as np

    from molslice.cli.datasets import find_model_data
    from molslice.errors import MolsliceError
    from molslice.files.tables.base import MissingColumnError

    data = predictor.data_config
    try:
        dataset = find_model_data(
            predictor,
            data,
            args.root,
            args.overrides,
            args.fragment,
            whole="all" if args.split == "all" else None,
            same_division=args.calibrate,
        )
    except MissingColumnError as error:
        split = data.options.get("split")
        if not isinstance(split, Mapping) or split.get("column") != error.column:
            raise
        raise MolsliceError(f"{error}; to measure all rows of another table, give --split all") from error
    if args.split == "all":
        rows = np.concatenate(list(dataset.splits.values()))
        dataset.splits = {**dataset.splits, "all": np.unique(rows)}
    return dataset


def _count_trained(predictor: "Predictor", dataset: "Dataset", args: argparse.Namespace) -> int | None:
    """Count the measured molecules that the model was trained on; None if it is not needed.

    Raises:
        MolsliceError: Intervals would be calibrated on such molecules.
    """
    from molslice.cli.datasets import changes_rows
    from molslice.errors import MolsliceError
    from molslice.inference.evaluate import count_trained
    from molslice.inference.fitted import FittedPredictor

    of_fit = isinstance(predictor, FittedPredictor) and args.split == "train"
    if args.split != "all" and not changes_rows(args.overrides) and not of_fit:
        return None
    if args.quiet and not args.json and not args.calibrate:  # the count would not be shown
        return None
    trained = count_trained(predictor, dataset, dataset.rows(args.split))
    if trained and args.calibrate:
        raise MolsliceError(
            f"cannot calibrate on the split {args.split}: the model was trained on at least {trained:,} of "
            "its molecules"
        )
    return trained


def _check_uncertainty(args: argparse.Namespace) -> None:
    """End with a usage error if other options do not fit --uncertainty."""
    from molslice.cli.datasets import names_data

    check_needs(args, {"dropout_passes": "calibrate", "out": "uncertainty"})
    if args.uncertainty and args.shuffle_atoms is not None:
        args.usage_error("--uncertainty: not with --shuffle-atoms")
    if args.uncertainty and args.split == "all" and not names_data(args.overrides):
        args.usage_error("--uncertainty needs rows that the model was not trained on: give --split test")


def uncertainty_text(result: dict[str, Any]) -> str:
    """Format the coverage of each target at each level and of each group, then the ranking."""
    from molslice.inference.uncertainty import error_text, rank_texts, size_label

    levels, classes, groups, lines = [], [], [], []
    for target in result["targets"]:
        if not target["count"]:
            lines.append(f"{target['name']}: no molecule has a value")
            continue
        for entry in target["levels"]:
            levels.append((target["name"], *_coverage_cells(entry)))
        for entry in target.get("classes", ()):
            cells = entry["class"], f"{entry['count']:,}", *_coverage_cells(entry)
            classes.append((target["name"], *cells))
        for entry in target["groups"]:
            cells = error_text(entry), *_coverage_cells(entry)
            groups.append((target["name"], entry["group"], str(entry["count"]), *cells))
        ranks = ", ".join(rank_texts(target)) or "uncertainty undefined"
        lines.append(
            f"{target['name']}: miscalibration area {target['miscalibration_area']:.3f}; rank correlation of "
            f"error with {ranks}"
        )
        if "brier_score" in target:
            error, brier = (target[name]["predicted"] for name in ("calibration_error", "brier_score"))
            lines.append(f"{target['name']}: calibration error {error:.3f}; Brier score {brier:.3f}")
    size = size_label(*result["targets"])
    return "\n".join(
        [
            text_table(("target", "interval", "coverage", size), levels),
            "",
            *(
                [
                    text_table(
                        ("target", "class", "rows", "interval", "coverage", "classes in a set"), classes
                    ),
                    "",
                ]
                * bool(classes)
            ),
            text_table(("target", "molecules", "rows", "error", "interval", "coverage", size), groups),
            "",
            *lines,
            f"intervals are computed from {result['calibration']}",
        ]
    )


def _coverage_cells(entry: dict[str, Any]) -> tuple[str, str, str]:
    from molslice.inference.uncertainty import size_text
    from molslice.uncertainty.rounding import rounded_error

    share = rounded_error(entry["coverage"], entry["standard_error"])
    return f"{entry['level']:g}", share, size_text(entry)


def result_text(result: dict[str, Any]) -> str:
    """Format one line for each target, then the counts."""
    from molslice.tasks.metrics import METRIC_LABELS
    from molslice.uncertainty.rounding import rounded_error

    metric = result["metric"]
    atoms = f", atoms {result['atoms']}" if "atoms" in result else ""
    rows = []
    for target in result["targets"]:
        announced = metric or next(name for name in target if name in METRIC_LABELS)
        error = rounded_error(target[announced], target.get("standard_error"))
        cells = error, target["unit"] or "-", str(target["count"])
        rows.append((target["name"], *([] if metric else [METRIC_LABELS[announced]]), *cells))
    value = f"{result['split']} {METRIC_LABELS[metric]}" if metric else result["split"]
    header = ("target", *([] if metric else ["metric"]), value, "unit", "labels")
    failed = f" ({result['failed']} could not be read)" if result["failed"] else ""
    noun, molecules = result["noun"], result.get("molecules", result["rows"])
    if molecules < result["rows"]:
        noun, failed = "rows", f" of {molecules:,} molecules{failed}"
    lines = [
        text_table(header, rows),
        "",
        f"{noun:<10}  {result['rows']:,}{failed}{atoms}",
    ]
    if "parameters" in result:
        without = f"({result['parameters_without_embeddings']:,} without embeddings)"
        lines.append(f"parameters  {result['parameters']:,} {without}")
    return "\n".join([*lines, f"seconds     {result['seconds']:.1f}"])
