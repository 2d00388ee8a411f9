"""Say what to measure next: rank molecules by a goal.

A goal is a limit of a target such as "logS > -4", a range such as "-1 < logD < 3", or a class such as
"toxic = 0". Molecules are ordered by the probability that they meet it, which is consistent with the
intervals of predict. With several --goal, one for each target, it is the product of their probabilities, as
if the errors of the targets were independent.

--diverse N chooses N molecules one by one, each with the largest probability times (1 - similarity to the
molecules chosen before). Molecules of the training table are not chosen.

Without --output the first molecules are printed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import (
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
    given_conditions,
    load_chosen_model,
    positive,
    share,
)
from molslice.cli.console import (
    say,
    say_failed_rows,
    tell,
    tell_treated_rows,
    text_table,
    write,
    write_json,
    writing_to,
)

if TYPE_CHECKING:
    from molslice.inference.ranking import Ranker
    from molslice.inference.tables.ranked import RankedRow, RankedTable

SUMMARY = "rank molecules by a goal: what to measure next"
EXAMPLE = """\
  molslice rank solubility --input library.csv --goal "log_solubility > 1.5" --diverse 20
  molslice rank solubility --input library.csv --goal "log_solubility > 1.5" --output ranked.csv
  molslice rank logbb --input library.csv --goal "-1 < logBB < 0" --in-domain --top 100 --output best.csv
  molslice rank tox21 --input library.csv --goal "NR-AR = 0" --goal "SR-p53 = 0"    # both
  molslice rank solubility --input library.csv --goal "log_solubility > 1.5" --by improvement"""
ORDERS = ("probability", "value", "improvement", "uncertainty")  # as in `molslice.inference.ranking`
LISTED = 20  # rows on the terminal
LEVEL = 0.9
NEEDS = {"output": "input", "smiles_column": "input", "delimiter": "input", "condition": "smiles"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rank`."""
    add_model(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    add_input(group)
    add_smiles(group)
    parser.add_argument(
        "--goal",
        action="append",
        required=True,
        metavar="GOAL",
        help='"TARGET > NUMBER", "NUMBER < TARGET < NUMBER" or "TARGET = CLASS"; repeatable',
    )
    parser.add_argument(
        "--by",
        choices=ORDERS,
        default=ORDERS[0],
        help="what comes first: the largest probability of the goal, the best predicted value, the largest "
        "expected improvement on the best measured value, or the widest interval (default: %(default)s)",
    )
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--top", type=positive, metavar="N", help="only the N best molecules")
    number.add_argument("--diverse", type=positive, metavar="N", help="N good molecules that differ")
    parser.add_argument(
        "--in-domain", action="store_true", help="leave out molecules outside the domain of the model"
    )
    parser.add_argument(
        "--interval",
        type=share,
        default=LEVEL,
        metavar="P",
        help="coverage of the intervals beside the predictions (default: %(default)s)",
    )
    add_output(parser, ".csv, .csv.gz, .parquet, .jsonl or .jsonl.gz")
    add_condition(parser)
    add_options(parser, "--workers")
    add_strict(parser)
    add_fragment(parser)
    add_run_options(parser, device="a GPU for large files")


def run(args: argparse.Namespace) -> int:
    """Rank, and return 1 if no molecule is left."""
    from molslice.inference.ranking import Ranker
    from molslice.inference.tables.table import estimate_rows

    check_needs(args, NEEDS)
    check_delimiter(args, args.input)
    if args.json and str(args.output) == "-":
        args.usage_error("--json needs a file as --output, because both write to standard output")
    count = partial(len, args.smiles) if args.smiles is not None else partial(estimate_rows, args.input)
    ranker = Ranker(
        load_chosen_model(args, count), args.goal, args.by, interval=args.interval, in_domain=args.in_domain
    )
    ranked = _rank_listed(ranker, args) if args.smiles is not None else _rank_table(ranker, args)
    if args.json:
        write_json(_to_json(ranker, ranked, args))
    elif args.output is None and ranked.best:
        write(_text(ranker, ranked.best))
    return _tell(ranker, ranked, args)


def _rank_table(ranker: "Ranker", args: argparse.Namespace) -> "RankedTable":
    from molslice.inference.tables.ranked import rank_table

    names = ("top", "diverse", "smiles_column", "delimiter", "workers", "strict")
    options = {name: getattr(args, name) for name in names}
    listed = 0 if args.output is not None else args.top or args.diverse or LISTED
    with writing_to(args.output):
        return rank_table(ranker, args.input, args.output, listed=listed, **options)


def _rank_listed(ranker: "Ranker", args: argparse.Namespace) -> "RankedTable":
    """Rank the SMILES of the command line, all of which are listed."""
    from molslice.inference.tables.ranked import rank_list

    rows = ranker.predictor.given_rows(args.smiles, given_conditions(args))
    return rank_list(
        ranker, rows, top=args.top, diverse=args.diverse, workers=args.workers, strict=args.strict
    )


def _to_json(ranker: "Ranker", ranked: "RankedTable", args: argparse.Namespace) -> dict[str, Any]:
    from molslice.inference.predictions import text_to_json

    report = asdict(ranked.report)
    names = ("columns", "findings", "rows", "failed", "refusals", "fragment", "replaced", "wildcards")
    several = len({row.file for row in ranked.best}) > 1
    return {
        "model": ranker.predictor.name,
        "goals": [
            {
                "goal": goal.text,
                "target": goal.target,
                "unit": ranker.predictor.target_units[goal.index],
                "lower": goal.lower,
                "upper": goal.upper,
                "class": goal.class_name,
            }
            for goal in ranker.goals
        ],
        "by": ranker.by,
        "interval": args.interval,
        **({} if args.output is None else {"output": args.output}),
        "targets": ranker.predictor.described_columns,
        "asked": args.top or args.diverse,
        "ranked": ranked.ranked,
        "outside_domain": ranked.outside,
        "in_training": ranked.trained,
        "notes": ranker.notes,
        **{name: report[name] for name in names},
        "best": [
            {
                "rank": place,
                **({"file": row.file} if several else {}),
                "row": row.row,
                "smiles": row.smiles,
                "cells": row.cells,
                **row.values,
                **{name: text_to_json(text) for name, text in row.texts.items()},
            }
            for place, row in enumerate(ranked.best, 1)
        ],
    }


def _text(ranker: "Ranker", best: Sequence["RankedRow"]) -> str:
    """Format a table with one line for each molecule: what decides its place."""
    from molslice.data.molecules.identifiers import find_name_column
    from molslice.inference.tables.ranked import SIMILARITY_BEFORE

    predictor, options = ranker.predictor, ranker.options
    several = len({row.file for row in best}) > 1
    others = [name for name, cell in best[0].cells.items() if cell != best[0].smiles]
    name = find_name_column(others, "") or next(iter(others), None)
    intervals = [goal for goal in ranker.goals if goal.label is None]
    values, texts = list(best[0].values), list(best[0].texts)
    added = values[len(predictor.table_columns(options)[0]) :]
    added += texts[-4:-3] if options.domain is not None else []  # whether a molecule is in it
    header = ["", "row", *([] if name is None else [name]), "SMILES"]
    for goal in intervals:
        unit = predictor.target_units[goal.index]
        header.append(f"{goal.target}{f' [{unit}]' if unit else ''} ({options.level:.0%} interval)")
    rows = []
    for place, row in enumerate(best, 1):
        cells = [str(place), f"{row.file}, {row.row}" if several else str(row.row)]
        cells += [*([] if name is None else [row.cells[name]]), row.smiles]
        cells += [_with_interval(ranker, row, goal.column) for goal in intervals]
        for column in added:
            digits = ".2f" if column == SIMILARITY_BEFORE else ".3g"
            cells.append(f"{row.values[column]:{digits}}" if column in row.values else row.texts[column])
        rows.append(cells)
    return text_table([*header, *added], rows)


def _with_interval(ranker: "Ranker", row: "RankedRow", column: int) -> str:
    """Return a prediction and its interval, such as `-3.9 (-5.3 to -2.4)`."""
    from molslice.tasks.target_types import columns_of_kind
    from molslice.uncertainty.rounding import rounded_interval

    numbers, values = columns_of_kind(ranker.predictor.types, "regression"), [*row.values.values()]
    lower = len(ranker.predictor.columns) + numbers.index(column)  # the upper ends follow the lower ones
    ends = (values[column], values[lower], values[lower + len(numbers)])
    value, low, high = rounded_interval(*map(float, ends))
    return f"{value} ({low} to {high})"


def _tell(ranker: "Ranker", ranked: "RankedTable", args: argparse.Namespace) -> int:
    """Write what was left out and how the molecules are ordered; return 1 if no molecule is left."""
    from molslice.inference.ranking import INDEPENDENT

    report, where = ranked.report, "-" if args.output is None else args.output
    if say_failed_rows(report, where, "prediction"):
        return 1
    outside, trained = (
        f"{ranked.outside:,} outside the domain",
        f"{ranked.trained or 0:,} in the training table",
    )
    leaves_trained = bool(args.diverse and ranked.trained and not ranker.predictor.condition_names)
    left_out = [outside] * bool(ranked.outside) + [trained] * leaves_trained
    if report.rows and not ranked.ranked:
        say(f"error: none of the {report.rows:,} molecules is left; left out: {', '.join(left_out)}")
        return 1
    tell("; ".join(report.findings)) if report.findings else None
    tell_treated_rows(report.replaced, report.wildcards)
    if left_out:
        tell(f"molecules left out: {', '.join(left_out)}")
    elif ranked.trained:
        tell(f"molecules of the training table (in_training with --output or --json): {ranked.trained:,}")
    if ranker.options.domain is None:
        tell(f"{ranker.predictor.name} has no training molecules to compare with")
    for note in ranker.notes:
        tell(note)
    if len(ranker.goals) > 1:
        tell(INDEPENDENT)
    asked = args.top or args.diverse or 0
    if ranked.ranked < asked:
        option = "--top" if args.top else "--diverse"
        tell(f"warning: {option} {asked}: there are only {ranked.ranked:,} molecules to choose from")
    shown = f"{ranked.ranked:,} of {report.rows:,} molecules"
    goals = " and ".join(goal.text for goal in ranker.goals)
    order = f"diverse, by {args.by}" if args.diverse else f"by {args.by}"
    written = "" if args.output is None else f", written to {args.output}"
    tell(f"{shown} ranked {order} of {goals}{written}")
    return 0
