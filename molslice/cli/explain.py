"""Show which atoms a prediction comes from.

The methods shapley (Shapley values of masked atoms) and gradients (integrated gradients) give a number for
each atom. The numbers add up to the prediction minus the prediction for the saturated hydrocarbon with the
same skeleton, in the unit of the target; for classes they are log-odds. Of a model of `molslice fit`, shapley
explains the whole model and is the default; gradients, a quick view, shows its fine-tuned networks alone. The
method attention gives the attention maps instead. Atoms have the order of the SMILES, counted from 0.

One molecule is drawn to a file, several to a folder with one picture for each row and explanations.jsonl.
Without --out the numbers are printed.

With --global, a model of `molslice fit` is described over many molecules: how much its predictions change
when a feature is shuffled among them, and when a substructure is masked.
"""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from molslice.chem import BACKGROUNDS
from molslice.cli.arguments import (
    add_condition,
    add_fragment,
    add_input,
    add_model,
    add_options,
    add_run_options,
    add_smiles,
    add_strict,
    check_delimiter,
    check_needs,
    file_path,
    flag,
    given_conditions,
    load_chosen_model,
    positive,
)
from molslice.cli.console import say, tell, tell_refusals, text_table, write, write_json
from molslice.number_text import counted

if TYPE_CHECKING:
    from molslice.explanation.explain import Explainer
    from molslice.explanation.result import AttentionView, Contributions

SUMMARY = "show which atoms a prediction comes from"
EXAMPLE = """\
  molslice explain gap-xtb --smiles "Cn1c(=O)c2c(ncn2C)n(C)c1=O" --out caffeine.svg
  molslice explain gap-xtb --smiles "CCO" "c1ccccc1O" --method shapley --out pictures
  molslice explain runs/first --input molecules.csv --out pictures --format png
  molslice explain solubility --smiles "CCO" --json                      # of molslice fit
  molslice explain toxicity --smiles "CCO" --class high                  # of three classes and more
  molslice explain solubility --global --out overview                    # what matters over many molecules"""
METHODS = ("gradients", "shapley", "attention")  # as in `molslice.explanation`, which imports torch
FORMATS = ("svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    add_model(parser)
    group = parser.add_mutually_exclusive_group()
    add_smiles(group)
    add_input(group)
    parser.add_argument(
        "--global",
        dest="overview",
        action="store_true",
        help="features and substructures that matter over the molecules of --input (default: the rows of the "
        "fit), as a figure and a table",
    )
    parser.add_argument(
        "--out",
        type=file_path,
        metavar="PATH",
        help="picture of one molecule (.svg or .png), or folder for several molecules",
    )
    parser.add_argument(
        "--method", choices=METHODS, help="default: shapley for models of molslice fit, gradients for others"
    )
    parser.add_argument(
        "--max-evaluations",
        type=positive,
        metavar="N",
        help="approximate limit of masked molecules for shapley (default: 4096 for models of molslice fit, "
        "8192 for others, at least 16 for each group); a higher limit lowers the standard errors",
    )
    parser.add_argument("--target", metavar="NAME", help="target (needed if the model has several)")
    parser.add_argument(
        "--class",
        dest="class_name",
        metavar="NAME",
        help="class to explain, for a target with three or more classes (default: the predicted class; "
        "needed by --global)",
    )
    add_condition(parser)
    parser.add_argument(
        "--background",
        choices=BACKGROUNDS,
        help="background of the pictures (default: white); dark is for dark slides",
    )
    parser.add_argument("--format", choices=FORMATS, help="format of the pictures in a folder (default: svg)")
    add_options(parser, "--smiles-column", "--delimiter")
    add_fragment(parser)
    add_strict(parser)
    add_run_options(parser, device="cpu")


def run(args: argparse.Namespace) -> int:
    """Explain, and return 1 if no molecule could be explained."""
    check_needs(
        args, {"smiles_column": "input", "delimiter": "input", "condition": "smiles", "background": "out"}
    )
    check_delimiter(args, args.input)
    if args.max_evaluations is not None and args.method in ("gradients", "attention"):
        args.usage_error("--max-evaluations needs --method shapley")
    if args.smiles is None and args.input is None and not args.overview:
        args.usage_error("one of the arguments --smiles --input --global is required")
    if args.input is not None and args.out is None:
        args.usage_error("--input needs --out, a folder")
    is_picture = args.out is not None and args.out.suffix.lower() in (".svg", ".png")
    is_folder = args.out is not None and not is_picture
    several = args.smiles is None or len(args.smiles) > 1
    if is_picture and several:
        args.usage_error("--out is one picture; give a folder for several molecules")
    if args.out is not None and args.out.suffix and is_folder and not args.out.is_dir():
        args.usage_error(f"a picture ends in .svg or .png, and a folder has no ending, got {str(args.out)!r}")
    if args.format and not is_folder:
        args.usage_error("--format needs --out, a folder")
    if args.overview:
        return _survey(args, is_folder)
    from molslice.explanation.explain import Explainer
    from molslice.files.atomic import reserved

    names = ("method", "target", "class_name", "max_evaluations")
    options = {name: getattr(args, name) for name in names}
    explainer = Explainer(load_chosen_model(args), **options, progress=not is_folder)
    if is_folder:
        return _explain_to_folder(explainer, args)
    with reserved(args.out):
        return _explain_listed(explainer, args)


def _survey(args: argparse.Namespace, is_folder: bool) -> int:
    """Write the global view of a fitted model."""
    if not is_folder:
        args.usage_error("--global needs --out, a folder")
    for name in ("smiles", "method", "max_evaluations", "strict"):
        if getattr(args, name) not in (None, False):
            args.usage_error(f"{flag(name)}: not with --global")
    from molslice.errors import MolsliceError
    from molslice.explanation.overview import write_overview
    from molslice.explanation.picture_folder import read_rows
    from molslice.explanation.score import PredictionScore, find_score
    from molslice.folders.fitted import ROW_COLUMNS, ROWS

    predictor = load_chosen_model(args)
    score = find_score(predictor, args.target, "shapley", args.class_name)
    if not isinstance(score, PredictionScore):
        raise MolsliceError(f"--global needs a model of molslice fit; {predictor.name} is a network")
    if score.several is not None:
        choices = ", ".join(score.several.names)
        raise MolsliceError(f"--global needs a class of {score.name}: give --class; choices: {choices}")
    column = args.smiles_column or (None if args.input else ROW_COLUMNS[0])
    read = read_rows(predictor, args.input or [score.predictor.folder / ROWS], column, args.delimiter)
    rows = (row for _, row, _ in read)
    ending = f".{args.format or FORMATS[0]}"
    effects = write_overview(
        score, rows, args.out, ending=ending, background=args.background or BACKGROUNDS[0], progress=True
    )
    if args.json:
        write_json(
            {"model": predictor.name, "output": args.out, "effects": [asdict(effect) for effect in effects]}
        )
    tell(f"global view of {effects[0].molecules} molecules written to {args.out}")
    return 0


def _explain_listed(explainer: "Explainer", args: argparse.Namespace) -> int:
    """Explain the SMILES of the command line; draw the only one if a picture is asked for."""
    from molslice.data.molecules.refusals import Refusals
    from molslice.errors import MolsliceError
    from molslice.explanation.result import Contributions
    from molslice.files.atomic import write_atomically

    entries: list[dict[str, Any]] = []
    texts: list[str] = []
    refusals, conditions = Refusals(), given_conditions(args)
    for place, smiles in enumerate(args.smiles, start=1):
        try:
            explanation = explainer(smiles, conditions)
        except MolsliceError as error:
            if args.strict:
                raise
            refusals.add(str(error), smiles, f"SMILES {place}")
            entries.append({"smiles": smiles, "error": str(error)})
            continue
        entries.append({**explanation.to_dict(), "error": None})
        texts.append(_text(explanation))
        if isinstance(explanation, Contributions) and explanation.warning and (args.json or args.out):
            say(f"warning: {smiles}: {explanation.warning}")
        if args.out is not None:
            write_atomically(
                args.out,
                explanation.picture(args.out.suffix.lower(), background=args.background or BACKGROUNDS[0]),
            )
    if not texts:
        say(f"error: {entries[0]['error']}")
    if args.json:
        counts = {"failed": len(entries) - len(texts), "refusals": refusals.report()}
        write_json({"model": explainer.model, "explanations": entries, **counts})
    elif texts and args.out is None:
        write("\n\n".join(texts))
    if texts:
        tell_refusals(refusals.report())
        if args.out is not None:
            tell(f"written: {args.out}")
    return 0 if texts else 1


def _text(explanation: "Contributions | AttentionView") -> str:
    """Format a table with one line for each atom."""
    from molslice.explanation.result import Contributions

    if isinstance(explanation, Contributions):
        lines = [
            explanation.smiles,
            str(explanation.headline),
            explanation.equation,
            *([f"explained: {explanation.note}"] if explanation.note else []),
            *([f"warning: {explanation.warning}"] if explanation.warning else []),
        ]
        columns = {"contribution": explanation.values}
        if explanation.standard_errors is not None:
            columns["standard error"] = explanation.standard_errors
    else:
        network = f", of {explanation.note}" if explanation.note else ""
        layers = f"mean over {len(explanation.maps)} layers"
        lines = [f"{explanation.smiles}: attention {explanation.attention}, {layers}{network}"]
        columns = {caption: values.mean(0) for caption, values in explanation.by_atom.items()}
    rows = [
        [str(index), element, *(f"{values[index]:.4g}" for values in columns.values())]
        for index, element in enumerate(explanation.elements)
    ]
    return "\n".join([*lines, text_table(["atom", "element", *columns], rows)])


def _explain_to_folder(explainer: "Explainer", args: argparse.Namespace) -> int:
    from molslice.explanation.picture_folder import explain_to_folder, read_rows

    if args.input is None:
        given = explainer.predictor.given_rows(args.smiles, given_conditions(args))
        rows = ((f"row {row}", smiles, "") for row, smiles in enumerate(given, start=1))
    else:
        rows = read_rows(explainer.predictor, args.input, args.smiles_column, args.delimiter)
    ending = f".{args.format or FORMATS[0]}"
    options = {"ending": ending, "background": args.background or BACKGROUNDS[0], "strict": args.strict}
    report = explain_to_folder(explainer, rows, args.out, **options, progress=True)
    if args.json:
        names = ("rows", "failed", "not_converged", "refusals")
        counts = {name: getattr(report, name) for name in names}
        write_json({"model": explainer.model, "output": args.out, **counts})
    tell_refusals(report.refusals)
    if report.rows and report.failed == report.rows:
        say(f"error: none of the {report.rows} molecules can be explained; {report.first_failure}")
        return 1
    if report.failed:
        say(f"{report.failed} of {report.rows} molecules have no explanation; {report.first_failure}")
    if report.not_converged:
        say(
            f"warning: {report.not_converged} of {report.rows} explanations are not converged; see the field "
            f"warning in {args.out}/explanations.jsonl"
        )
    drawn = report.rows - report.failed
    tell(f"{counted(drawn, 'picture')} written to {args.out}")
    return 0
