"""Look at stores of molecules: verify them, show a row, and write them back to a table.

A store is a folder that molslice prepare writes, or a folder of such folders that is read as one store.
verify reads every byte. It prints one line for each problem, with the name of the file, and exits with 1.
SMILES are rebuilt from the arrays: isotopes and a few other properties are not in the arrays.
"""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from molslice.cli.arguments import (
    HelpFormatter,
    add_options,
    count,
    file_or_url,
    file_path,
    file_to_write,
    is_on_disk,
)
from molslice.cli.console import say, tell, text_table, write, write_json, writing_to
from molslice.number_text import counted

if TYPE_CHECKING:
    from molslice.data.molecules.store import MoleculeStore

SUMMARY = "verify stores of molecules, show a row, write them to a table"
EXAMPLE = """\
  molslice data verify data/mine
  molslice data show data/mine --row 5
  molslice data show data/mine --row 5 --out molecule.svg
  molslice data csv data/mine --out mine.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `data` with their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        added = actions.add_parser(
            name, help=summary, description=summary, formatter_class=HelpFormatter, allow_abbrev=False
        )
        added.add_argument("store", type=file_path, metavar="STORE", help="a store or a folder of stores")
        return added

    verify = action("verify", "find damage in a store")
    add_options(verify, "--quiet", "--json")
    show = action("show", "show the molecule and the targets of a row")
    show.add_argument("--row", type=count, required=True, metavar="N", help="number of the row, from 0")
    show.add_argument(
        "--out", type=file_to_write, metavar="FILE", help="draw the molecule to this .svg or .png"
    )
    add_options(show, "--json")
    table = action("csv", "write a store to CSV, Parquet or JSON lines")
    table.add_argument(
        "--out",
        type=file_or_url,
        required=True,
        metavar="FILE",
        help="the file to write: .csv, .csv.gz, .parquet, .jsonl, .jsonl.gz, or - for CSV on standard output",
    )
    add_options(table, "--workers", "--quiet")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    return {"verify": _verify, "show": _show, "csv": _csv}[args.action](args)


def _verify(args: argparse.Namespace) -> int:
    from molslice.data.molecules.verify import verify_store
    from molslice.files.progress import BYTES, Progress

    with Progress("verify", None, BYTES) as bar:
        report = verify_store(args.store, bar.update)
    if args.json:
        write_json(asdict(report))
        return int(bool(report.problems))
    for problem in report.problems:
        say(f"error: {problem}")
    if report.problems:
        return 1
    counts = ("rows", "molecules", "atoms", "bonds", "stores", "bytes")
    facts = {
        **{name: f"{getattr(report, name):,}" for name in counts},
        "targets": ", ".join(report.targets) or "-",
        "schema version": str(report.schema_version),
        "versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()) or "-",
    }
    width = max(map(len, facts))
    write("\n".join([f"{args.store} is sound", *(f"{name:{width}}  {text}" for name, text in facts.items())]))
    return 0


def _show(args: argparse.Namespace) -> int:
    from molslice.data.molecules.row import read_row
    from molslice.data.molecules.store import MoleculeStore

    _check_output(args)
    store = MoleculeStore.open(args.store, verify=False)
    row = read_row(store, args.row)
    if args.out is not None:
        _draw(args, store)
    if args.json:
        write_json(row)
        return 0
    lines = [f"row {args.row} of {args.store}"]
    if row["error"] is not None:
        lines.append(f"no molecule: {row['error']}")
    if row["smiles"]:
        lines.append(f"SMILES: {row['smiles']}")
    if row["lost"] is not None:
        lines.append(f"not reproduced: {row['lost']}")
    for target in row["targets"]:
        value = "missing" if target["value"] is None else f"{target['value']:.6g}"
        lines.append(" ".join(filter(None, (f"{target['name']}:", value, target["unit"]))))
    for name in ("atoms", "bonds"):
        if row[name]:
            cells = [[str(index), *item.values()] for index, item in enumerate(row[name])]
            lines.append("\n" + text_table([name[:-1], *row[name][0]], cells))
    write("\n".join(lines))
    return 0


def _check_output(args: argparse.Namespace) -> None:
    """Refuse a file in a store or in the folder of stores, which `verify` would report."""
    from molslice.data.molecules.store_files import HEADER
    from molslice.errors import MolsliceError

    if not is_on_disk(args.out):
        return
    folder = args.out.parent
    if (folder / HEADER).exists() or folder.resolve() == args.store.resolve():
        raise MolsliceError(f"{args.out}: {folder} is the folder of a store; choose another folder")


def _draw(args: argparse.Namespace, store: "MoleculeStore") -> None:
    from molslice.chem.drawing import draw_molecule
    from molslice.errors import MolsliceError
    from molslice.files.atomic import write_atomically

    reason = store.errors.get(args.row)
    if reason is not None:
        raise MolsliceError(f"cannot draw row {args.row}: it has no molecule: {reason}")
    write_atomically(args.out, draw_molecule(store.arrays(args.row), args.out.suffix.lower()))


def _csv(args: argparse.Namespace) -> int:
    from molslice.data.molecules.store import MoleculeStore
    from molslice.inference.tables.store_table import write_store_table

    _check_output(args)
    store = MoleculeStore.open(args.store)
    with writing_to(args.out):
        report = write_store_table(store, args.out, workers=args.workers or 0)
    if report.differing:
        say(
            f"{report.differing:,} of {report.rows:,} SMILES do not give the arrays of their row again; the "
            f"first, {report.first_difference}; the column error says why"
        )
    rows = counted(report.rows)
    tell(f"{rows} written to {args.out}, {report.failed:,} of them without a molecule")
    return 0
