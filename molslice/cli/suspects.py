"""List the measured values of a fit that may be wrong, and pairs of molecules whose values change a lot.

A value is suspicious if it is outside the 99% interval of its prediction by models that have not seen it, or
if it contradicts another value of the same molecule. Matched pairs are two molecules that differ by one
substituent; the ones with a large measured change are activity cliffs.

A folder gets suspects.csv, which can be handed to the laboratory, pairs.csv, and suspects.html, a page with
drawings. --table FILE, the table of the fit, adds all its columns, such as batches and dates.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from molslice.cli.arguments import add_model, add_run_options, file_or_url, file_path, tell_shipped
from molslice.cli.console import tell, text_table, write, write_json

if TYPE_CHECKING:
    from molslice.report.suspects import Examined

SUMMARY = "list measured values of a fit that may be wrong, and matched pairs"
EXAMPLE = """\
  molslice suspects solubility
  molslice suspects solubility --table measured.csv --out checked"""
LISTED = 20  # on the terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `suspects`."""
    add_model(parser)
    parser.add_argument(
        "--out",
        type=file_path,
        metavar="DIR",
        help="folder of the files (default: NAME_suspects in the current folder)",
    )
    parser.add_argument(
        "--table", type=file_or_url, metavar="FILE", help="table of the fit, whose columns are added"
    )
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write the files and print the most suspicious values."""
    from molslice.files.progress import Progress
    from molslice.folders.results import check_results_folder
    from molslice.inference.load import load_model
    from molslice.report.suspects import examine
    from molslice.report.suspects_files import write_examined
    from molslice.report.training import option_words, short_name

    predictor = load_model(args.model)
    tell_shipped(args.model)
    folder = args.out or Path(f"{short_name(predictor)}_suspects")
    check_results_folder(folder)
    with Progress("matched pairs", unit="molecules") as bar:
        examined = examine(predictor, table=args.table, progress=bar.move)
    command = ["molslice", "suspects", short_name(predictor)]
    command += [] if args.table is None else option_words("table", Path(args.table.name))
    files = write_examined(examined, predictor, folder, command)
    if args.json:
        write_json(_to_json(examined, args.model, files))
    elif examined.suspects:
        write(_text(examined))
    cliffs = sum(pair.is_cliff for pair in examined.pairs)
    if not examined.knows_table:
        tell(
            "an earlier version wrote the model: rows are numbered as in rows.csv, and duplicates are merged"
        )
    tell(
        f"{len(examined.suspects):,} of {examined.values:,} measured values are suspicious; "
        f"{len(examined.pairs):,} matched pairs, {cliffs:,} of them cliffs; written to {folder}"
    )
    return 0


def _text(examined: "Examined") -> str:
    """Format the first suspects as a table."""
    has_names = any(suspect.place.name for suspect in examined.suspects)
    header = [
        "target",
        "row",
        *["name"] * has_names,
        "SMILES",
        "measured",
        "predicted",
        "99% interval",
        "reason",
    ]
    rows = []
    for suspect in examined.suspects[:LISTED]:
        predicted, lower, upper = suspect.rounded() if suspect.has_interval else (suspect.predicted, "", "")
        interval = f"{lower} to {upper}" if suspect.has_interval else ""
        place = suspect.place
        cells = [suspect.target, str(place.row), *[place.name] * has_names, place.smiles]
        rows.append([*cells, suspect.measured, predicted, interval, "; ".join(suspect.reasons)])
    return text_table(header, rows)


def _to_json(examined: "Examined", model: str, files: list[Path]) -> dict[str, Any]:
    return {
        "model": model,
        "files": files,
        "values": examined.values,
        "knows_table": examined.knows_table,
        "suspects": [
            {
                "target": suspect.target,
                "unit": suspect.unit,
                "name": suspect.place.name or None,
                "file": suspect.place.file,
                "row": suspect.place.row,
                "line": suspect.place.line,
                "smiles": suspect.place.smiles,
                "measured": suspect.measured,
                "predicted": suspect.predicted or None,
                "lower": suspect.lower,
                "upper": suspect.upper,
                "probability": suspect.probability,
                "excess": suspect.excess,
                "reasons": suspect.reasons,
            }
            for suspect in examined.suspects
        ],
        "pairs": len(examined.pairs),
        "cliffs": sum(pair.is_cliff for pair in examined.pairs),
    }
