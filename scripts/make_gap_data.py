"""Make data/gap_xtb, or its large form from a file of SMILES: molecules labeled by GFN2-xTB.

Molecules: the NCI and WEHI lists of the rdkit package, or --rows molecules of --source, drawn in a fixed
random order. Geometry: ETKDGv3 with a fixed seed, then MMFF94. Label: one GFN2-xTB single point (tblite), gap
= LUMO - HOMO in eV; with --source also the orbital energies, the dipole moment, the energy per atom and the
charges of the atoms. The files have PCQM4M's layout.

    pip install -e ".[labels]"
    python scripts/make_gap_data.py --jobs 2
    python scripts/make_gap_data.py --source pubchem.smi.gz --rows 100000 --out data/gap_xtb_100k

A label depends only on the SMILES, so the files depend neither on --jobs nor on interruptions. Finished
molecules are appended to WORK/labels.jsonl, and the same command continues from there. A molecule that
exceeded the time limit counts as finished; delete the folder to try it again. If the log already holds --rows
molecules, the program only writes the files, also while another process continues the log.
"""

import argparse
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from gap_files import Labeled, write_dataset
from gap_log import finished, read_header, run
from gap_source import Choice, read_rdkit_lists, select, select_from_file
from rdkit import rdBase

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "data" / "gap_xtb"


def choose(arguments: argparse.Namespace) -> tuple[list[Choice], dict[str, Any]]:
    """Return the decision on each row, and the entries of the card about the selection."""
    if arguments.source is None:
        return list(select(islice(read_rdkit_lists(), arguments.limit))), {}
    made_from, choices = select_from_file(arguments.source, arguments.exclude, BASE, arguments.work)
    name, checksum = made_from["identity"]["source"]
    source = {"file": name, "sha256": checksum, "rows": len(choices)}
    if arguments.license:
        source["license"] = arguments.license
    return choices, {"source": source, "excluded_tables": made_from["tables"]}


def label_and_write(arguments: argparse.Namespace) -> dict[str, Any]:
    """Label the missing molecules, then write the data set, and return its card."""
    choices, card = choose(arguments)
    candidates = [row for row, reason in choices if reason is None]
    log = arguments.work / "labels.jsonl"
    rows = finished(candidates, log, arguments.rows)
    if rows is None:
        run(candidates, log, arguments.rows, arguments.jobs, arguments.seconds)
        rows = finished(candidates, log, arguments.rows) or []
    if arguments.source is not None and rows:
        # The rows after the last molecule were not drawn.
        last = next(place for place, choice in enumerate(choices) if choice.row == rows[-1][0])
        card["source"]["rows_drawn"] = last + 1
        choices = choices[: last + 1]
    left_out = [choice for choice in choices if choice.reason is not None]
    wide = arguments.source is not None
    return write_dataset(arguments.out, Labeled(rows, left_out, read_header(log)["settings"], wide, card))


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: data/gap_xtb)")
    parser.add_argument(
        "--work", type=Path, help="folder of the log (default: runs/make_NAME for the name of --out)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit of a molecule, in seconds (default: 60)"
    )
    parser.add_argument("--limit", type=int, help="read only the first LIMIT rows of the lists")
    large = parser.add_argument_group("large form")
    large.add_argument("--source", type=Path, help="file with one SMILES per line, plain or gzip")
    large.add_argument("--rows", type=int, help="number of molecules to label (default: all)")
    large.add_argument(
        "--exclude",
        type=Path,
        nargs="+",
        default=[],
        help="CSV files with a column `smiles`, whose molecules are excluded by skeleton",
    )
    large.add_argument("--license", help="license of the molecules, for the card")
    arguments = parser.parse_args(argv)
    numbers = (arguments.jobs, arguments.seconds, arguments.limit, arguments.rows)
    if any(number is not None and number <= 0 for number in numbers):
        parser.error("--jobs, --seconds, --limit and --rows must be positive")
    if arguments.source is None:
        if arguments.rows or arguments.exclude or arguments.license:
            parser.error("--rows, --exclude and --license need --source")
    elif arguments.out is None or arguments.limit:
        parser.error("--source needs --out, and takes --rows instead of --limit")
    arguments.out = arguments.out or BASE
    arguments.work = arguments.work or ROOT / "runs" / f"make_{arguments.out.name}"
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Make the data set."""
    arguments = parse_arguments(argv)
    rdBase.DisableLog("rdApp.*")
    try:
        card = label_and_write(arguments)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"make_gap_data: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"make_gap_data: stopped; the same command continues from {arguments.work}\n")
        return 130
    sys.stderr.write(f"{card['rows']} molecules in {arguments.out}: {card['split']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
