"""Predict from SMILES on the command line, from files of any length, or for a PCQM4M test split."""

import argparse
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import (
    AUTO,
    OPTIONS,
    add_condition,
    add_fragment,
    add_input,
    add_model,
    add_options,
    add_output,
    add_run_options,
    add_smiles,
    add_strict,
    check_delimiter,
    check_needs,
    check_resume,
    file_path,
    given_conditions,
    load_chosen_model,
    share,
    tell_shipped,
)
from molslice.cli.console import (
    say,
    say_failed_rows,
    tell,
    tell_refusals,
    tell_trained,
    tell_treated_rows,
    text_table,
    write,
    write_json,
    writing_to,
)
from molslice.number_text import counted

if TYPE_CHECKING:
    from molslice.inference.base import Predictor
    from molslice.inference.load import NetworkPredictor
    from molslice.inference.options import PredictionOptions
    from molslice.inference.predictions import Predictions
    from molslice.inference.tables.cluster import RayEngine

SUMMARY = "predict from SMILES"
EXAMPLE = """\
  molslice predict gap-xtb --smiles "CCO" "c1ccccc1"
  molslice predict runs/first --input molecules.csv.gz --output predicted.parquet
  molslice predict solubility --input measured.csv --output predicted.csv --metrics
  molslice predict solubility --input new.csv --output predicted.csv --strict    # stop at an unreadable row
  molslice predict solubility --smiles "CCO" --interval 0.9 --domain
  molslice predict solubility --smiles "CCO" --condition temperature=298.15     # fitted with --condition
  molslice predict gap-xtb --input 's3://bucket/parts/*.csv' --output s3://bucket/predicted.parquet
  molslice predict gap-xtb --input 'parts/*.csv' --output predicted --engine ray    # a file for each input
  molslice predict runs/pcqm --dataset pcqm4m-v2 --root data/pcqm4m-v2 --submission submission"""
NEEDS = {  # options that need another one
    "input": "output",
    "output": "input",
    "metrics": "input",
    "decimal": "metrics",
    "missing_value": "metrics",
    "engine": "input",
    "resume": "input",
    "smiles_column": "input",
    "delimiter": "input",
    "condition": "smiles",
    "dataset": "submission",
    "root": "submission",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `predict`."""
    add_model(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    add_smiles(group, "; print the predictions")
    add_input(group)
    group.add_argument(
        "--submission", type=file_path, metavar="DIR", help="write PCQM4M submission files to this folder"
    )
    add_output(parser, ".csv, .csv.gz, .parquet, .jsonl or .jsonl.gz; a folder for a file for each input")
    parser.add_argument(
        "--metrics", action="store_true", help="print the error if --input has the measured values"
    )
    for name, what in (("--decimal", "decimal mark"), ("--missing-value", "a missing value (repeatable)")):
        described = f"with --metrics, {what} of the measured values (default: as in the training)"
        parser.add_argument(name, **{**OPTIONS[name], "help": described})
    parser.add_argument(
        "--interval",
        type=share,
        metavar="P",
        help="add prediction intervals with this coverage, such as 0.9; for classes, prediction sets",
    )
    add_condition(parser)
    parser.add_argument(
        "--domain",
        action="store_true",
        help="applicability domain: whether a molecule is like the training molecules, and the nearest one",
    )
    parser.add_argument(
        "--dataset", choices=("pcqm4m", "pcqm4m-v2"), help="data of --submission (default: the model's)"
    )
    parser.add_argument("--root", metavar="DIR", help="folder of the data, with --submission")
    add_options(parser, "--workers", "--engine", "--resume")
    add_strict(parser, in_folder=True)
    add_fragment(parser)
    add_run_options(parser, device="a GPU for large files; cpu with --engine")


def run(args: argparse.Namespace) -> int:
    """Predict, and return 1 if no molecule could be read."""
    from molslice.inference.load import NetworkPredictor, load_model
    from molslice.inference.tables.table import estimate_rows

    _check_usage(args)
    if args.engine:  # its workers load the model again
        predictor = load_model(args.model, fragment=args.fragment, wildcards=args.wildcards)
        tell_shipped(args.model)
    elif args.submission:
        predictor = load_chosen_model(args)
    elif args.smiles is not None:
        predictor = load_chosen_model(args, partial(len, args.smiles))
    else:
        predictor = load_chosen_model(args, partial(estimate_rows, args.input))
    options = predictor.find_options(args.interval, domain=args.domain)
    if args.smiles is not None:
        return _predict_listed(predictor, options, args)
    if args.input is not None:
        return _predict_table(predictor, options, args)
    if isinstance(predictor, NetworkPredictor):
        return _write_submission(predictor, args)
    args.usage_error("--submission needs the run of a network")
    raise AssertionError("a usage error ends the program")


def _check_usage(args: argparse.Namespace) -> None:
    """End with a usage error if options do not fit together."""
    check_needs(args, NEEDS)
    check_delimiter(args, args.input)
    if args.strict and args.submission is not None:
        args.usage_error("--strict: not with --submission")
    if (args.interval is not None or args.domain) and args.submission is not None:
        args.usage_error("--interval and --domain need --smiles or --input")
    if args.json and str(args.output) == "-":
        args.usage_error("--json needs a file as --output, because both write to standard output")


def _predict_listed(predictor: "Predictor", options: "PredictionOptions", args: argparse.Namespace) -> int:
    from molslice.data.molecules.fragments import count_wildcards
    from molslice.data.molecules.refusals import Refusals, failure_text
    from molslice.errors import MolsliceError

    conditions = given_conditions(args)
    predictions = predictor.predict_with_errors(
        args.smiles, conditions=conditions, options=options, workers=args.workers, progress=True
    )
    refusals = Refusals()
    for place, (text, reason) in enumerate(zip(args.smiles, predictions.errors, strict=True)):
        if reason is not None and args.strict:
            raise MolsliceError(failure_text(f"SMILES {place + 1}", text, reason))
        if reason is not None:
            refusals.add(reason, text, f"SMILES {place + 1}")
    readable = [text for text, reason in zip(args.smiles, predictions.errors, strict=True) if reason is None]
    wildcards = count_wildcards(readable)
    if args.json:
        counts = {"failed": len(predictions.errors) - predictions.errors.count(None)}
        listed = listed_json(predictor, args.smiles, predictions, options)
        mixtures = {"fragment": predictor.fragment, "replaced": predictions.replaced, "wildcards": wildcards}
        chosen = {} if conditions is None else {"conditions": conditions}
        write_json({**listed, **chosen, **counts, "refusals": refusals.report(), **mixtures})
    else:
        write(listed_text(predictor, args.smiles, predictions, options))
    tell_refusals(refusals.report())
    if all(reason is not None for reason in predictions.errors):
        problem = "no row has a prediction" if predictor.condition_names else "none of the SMILES can be read"
        say(f"error: {problem}")  # the reasons are in the table
        return 1
    tell_treated_rows(predictions.replaced, wildcards)
    return 0


def listed_json(
    predictor: "Predictor",
    smiles: list[str],
    predictions: "Predictions",
    options: "PredictionOptions",
) -> dict:
    """Return the model, its targets, and one entry for each SMILES."""
    from molslice.inference.columns import ERROR, SMILES
    from molslice.inference.predictions import text_to_json

    numbers, texts = predictor.table_columns(options)
    return {
        "model": predictor.name,
        **({} if options.level is None else {"interval": options.level}),
        "targets": predictor.described_columns,
        "predictions": [
            {
                SMILES: text,
                **dict(zip(numbers, values, strict=True)),
                **dict(zip(texts, map(text_to_json, more), strict=True)),
                ERROR: reason,
            }
            for text, (values, more, reason) in zip(smiles, predictions.table_rows(), strict=True)
        ],
    }


def listed_text(
    predictor: "Predictor",
    smiles: list[str],
    predictions: "Predictions",
    options: "PredictionOptions",
) -> str:
    """Format a table with one line for each SMILES.

    A number is rounded as its interval allows, which stands beside it. The spread is not shown.
    """
    from molslice.tasks.target_types import columns_of_kind

    count, types = len(predictor.columns), predictor.types
    header = ["SMILES", *map(_heading, predictor.described_columns)]
    numbers, texts = predictor.table_columns(options)
    with_interval, further = list[int](), [*range(count, len(numbers))]
    if options.level is not None:
        with_interval = columns_of_kind(types, "regression")
        for column in with_interval:
            header[1 + column] += f" ({options.level:.0%} interval)"
        calibrated = count + 2 * len(with_interval)  # after the lower and the upper ends
        spread = calibrated + len(columns_of_kind(types, "classification"))
        further = [*range(calibrated, spread)]
        further += range(spread + count * predictor.has_spread(options), len(numbers))
    header += [*(numbers[place] for place in further), *texts]
    failed = any(reason is not None for reason in predictions.errors)
    rows = []
    for row, (values, more, reason) in enumerate(predictions.table_rows()):
        cells = [f"{value:.4g}" for value in values]
        if reason is None:
            for column in with_interval:
                cells[column] = _with_interval(predictions, row, column)
        if options.domain is not None:
            cells[-1] = f"{values[-1]:.2f}"  # the similarity
        shown = [*cells[:count], *(cells[place] for place in further), *more]
        rows.append([smiles[row], *shown, *([reason or ""] if failed else [])])
    return text_table([*header, "error"] if failed else header, rows)


def _with_interval(predictions: "Predictions", row: int, column: int) -> str:
    """Return a prediction and its interval, such as `-3.9 (-5.3 to -2.4)`."""
    from molslice.uncertainty.rounding import rounded_interval

    assert predictions.lower is not None
    assert predictions.upper is not None
    numbers = (predictions.values, predictions.lower, predictions.upper)
    value, lower, upper = rounded_interval(*(float(block[row, column]) for block in numbers))
    return f"{value} ({lower} to {upper})"


def _heading(column: dict[str, str]) -> str:
    """Return a target with its unit, or with the class whose probability is predicted."""
    if word := column.get("class"):
        return f"{column['name']}: probability of {word!r}"
    return f"{column['name']} [{column['unit']}]" if column["unit"] else column["name"]


def _predict_table(predictor: "Predictor", options: "PredictionOptions", args: argparse.Namespace) -> int:
    from molslice.inference.tables.folder import is_folder, predict_folder
    from molslice.inference.tables.table import predict_table

    reading = {name: getattr(args, name) for name in ("smiles_column", "delimiter", "resume", "strict")}
    cluster = _cluster(args) if args.engine else None
    outputs = None
    if is_folder(args.output):
        if args.metrics:
            args.usage_error("--metrics needs one file as --output")
        workers = 0 if cluster else args.workers
        report, outputs = predict_folder(
            predictor, args.input, args.output, options, engine=cluster, workers=workers, **reading
        )
    else:
        if cluster and args.resume:
            args.usage_error("--resume with --engine needs a folder as --output")
        check_resume(args)
        with writing_to(args.output):
            report = predict_table(
                predictor,
                args.input,
                args.output,
                options,
                metrics=args.metrics,
                decimal=args.decimal,
                missing_values=args.missing_value,
                workers=args.workers,
                engine=None if cluster is None else cluster.predict_chunks,
                **reading,
            )
    if args.json:
        files = {} if outputs is None else {"files": outputs}
        write_json({"model": predictor.name, "output": args.output, **files, **asdict(report)})
    elif report.metrics is not None:
        _show_errors(report.metrics, args)
        if report.trained:
            tell_trained(predictor, report.trained, report.measured)
    if say_failed_rows(report, args.output, "prediction"):
        return 1
    tell("; ".join(report.findings))
    tell_treated_rows(report.replaced, report.wildcards)
    where = args.output if outputs is None else f"{len(outputs)} files in {args.output}"
    reasons = f", reasons of failed rows in {report.error_column}" if report.failed else ""
    rows = counted(report.rows)
    tell(f"{rows} written to {where}; predictions in {', '.join(report.columns)}{reasons}")
    return 0


def _cluster(args: argparse.Namespace) -> "RayEngine":
    from molslice.inference.tables.cluster import RayEngine

    return RayEngine(
        args.model,
        "cpu" if args.device == AUTO else args.device,
        args.workers or None,
        args.interval,
        args.fragment,
        domain=args.domain,
        wildcards=args.wildcards,
    )


def _show_errors(metrics: list[dict[str, Any]], args: argparse.Namespace) -> None:
    from molslice.fitting.card import STANDARD_ERROR

    show = say if str(args.output) == "-" else write
    for line in text_table(*metric_rows(metrics)).splitlines():
        show(line)
    if any(target["standard_error"] is not None for target in metrics):
        tell(STANDARD_ERROR)


def metric_rows(metrics: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of errors."""
    from molslice.tasks.metrics import METRIC_LABELS
    from molslice.uncertainty.rounding import rounded_error

    labels = [METRIC_LABELS[target["metric"]] for target in metrics]
    several = len({*labels}) > 1
    rows = []
    for target, label in zip(metrics, labels, strict=True):
        limits = f" ({target['limits']:,} limits)" if "limits" in target else ""
        name = f"{target['name']}, {label}" if several else target["name"]
        error = rounded_error(target["value"], target["standard_error"])
        rows.append([name, target["unit"] or "-", f"{target['count']:,}{limits}", error])
    return ["target", "unit", "rows", "value" if several else labels[0]], rows


def _write_submission(predictor: "NetworkPredictor", args: argparse.Namespace) -> int:
    from molslice.inference.tables.submission import predict_submission

    root, data = args.root, predictor.config.data
    if root is None:
        if data.name != "pcqm4m" or args.dataset is not None:
            args.usage_error("--submission needs --root, the folder of the PCQM4M data")
        root = data.options["root"]
    paths = predict_submission(
        predictor,
        root,
        args.submission,
        dataset=args.dataset,
        workers=args.workers or 0,
    )
    if args.json:
        write_json({"model": predictor.name, "files": paths})
    for path in paths:
        tell(f"written: {path}")
    return 0
