"""Extend the training split of a data set with molecules that trained models label.

    python scripts/make_distilled_data.py molecules.smi.gz more.smi.gz --rows 200000 \
        --base data/gap_xtb_100k --measured data/gap_xtb --teacher gap-xtb --work work \
        --out data/gap_xtb_distilled --jobs 2

A small model that is trained on these data learns the predictions of larger ones, the teachers. The value of
a molecule is the mean of the predictions of all teachers: give --teacher once for each. Of each file the
first --rows molecules are drawn in a fixed random order. Molecules of --base are left out, and those that the
rules of data/gap_xtb exclude, and those whose skeleton belongs to valid or test by the rule of that data set.

OUT has PCQM4M's layout. The rows of --base come first and keep their values and their splits. All other rows
are training rows: the training rows of the data sets --measured, with their values, and then the molecules
with predicted values. A molecule has one row. After an interruption the same command continues.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from gap_files import csv_gz, pack_splits
from gap_source import draw, key_of, select, split_of
from rdkit import Chem, rdBase
from tqdm import tqdm

from molslice.data.molecules.ogb_split import read_split_file
from molslice.data.molecules.pcqm4m import COLUMNS, SPLITS, TABLE
from molslice.files.atomic import atomic_folder, write_atomically
from molslice.files.cache import file_checksum
from molslice.files.parsing import read_json_object
from molslice.files.tables import read_columns
from molslice.inference.load import load_model
from molslice.types import MolsliceError

DECIMALS = 4  # of a value, as in the base
PREDICTED = f"{COLUMNS[-1]}_eV"  # the column that `molslice predict` writes


def choose(path: Path, left_out: Mapping[str, str], reasons: Counter[str]) -> Iterator[str]:
    """Yield canonical SMILES of molecules to label, and count why other rows are left out.

    Args:
        path: A file with one SMILES on each line.
        left_out: Reason to leave out a molecule, by its SMILES.
        reasons: Number of rows left out, by reason.
    """
    for row, excluded in select(draw(path)):
        reason = excluded or left_out.get(row.smiles)
        if reason is None and split_of(key_of(Chem.MolFromSmiles(row.smiles))) != "train":
            reason = "valid_or_test"
        if reason is None:
            yield row.smiles
        else:
            reasons[reason] += 1


def choose_once(options: argparse.Namespace, known: Sequence[str]) -> tuple[Path, dict[str, Any]]:
    """Write the SMILES of the molecules to label to WORK/chosen.csv, unless it has them.

    Returns:
        The file, and its origin: what it was made from, and the numbers of chosen and of left out rows of
        each input file.

    Raises:
        MolsliceError: The folder was made from other files.
    """
    chosen, origin = options.work / "chosen.csv", options.work / "chosen.json"
    sources = [{"file": path.name, "sha256": file_checksum(path)} for path in options.inputs]
    asked = {"base": file_checksum(options.base / TABLE), "sources": sources, "rows": options.rows}
    if origin.exists():
        record = read_json_object(origin)
        if record["asked"] != asked:
            raise MolsliceError(f"{options.work} was made from other files; choose another --work")
        return chosen, record
    left_out, counts, lines = dict.fromkeys(known, "in_base"), {}, ["smiles"]
    for path in options.inputs:
        reasons: Counter[str] = Counter()
        rows = tqdm(choose(path, left_out, reasons), desc=path.name, unit=" molecules", mininterval=2)
        molecules = list(islice(rows, options.rows))
        counts[path.name] = {"chosen": len(molecules), **dict(sorted(reasons.items()))}
        left_out |= dict.fromkeys(molecules, "duplicate")
        lines += molecules
    options.work.mkdir(parents=True, exist_ok=True)
    write_atomically(chosen, "\n".join(lines) + "\n")
    record = {"asked": asked, "counts": counts}
    write_atomically(origin, json.dumps(record, indent=2) + "\n")
    return chosen, record


def label(chosen: Path, teacher: str, checksum: str, jobs: int) -> Iterator[tuple[str, float | None]]:
    """Predict the molecules of a file, or continue, and return each SMILES with its value.

    Args:
        chosen: The file of molecules.
        teacher: Name or folder of a model.
        checksum: The checksum of the model.
        jobs: Number of processes.

    Returns:
        The SMILES and the predictions in eV, None for a molecule without one. A file beside `chosen` keeps
        them; its name has the checksum of the teacher.
    """
    predicted = chosen.with_name(f"predicted-{checksum[:12]}.csv")
    if not predicted.exists():
        command = [sys.executable, "-m", "molslice", "predict", teacher, "--input", str(chosen)]
        command += ["--output", str(predicted), "--workers", str(jobs)]
        partial = predicted.with_name(f"{predicted.name}.partial")
        subprocess.run([*command, *(["--resume"] if partial.exists() else [])], check=True)
    smiles, values = columns_of(predicted, "smiles", PREDICTED)
    return zip(smiles, (float(value) if value else None for value in values), strict=True)


def training_rows(root: Path, known: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield SMILES and value of the training rows of a data set, without those that are known."""
    rows = [*zip(*columns_of(root / TABLE, *COLUMNS[1:]), strict=True)]
    for row in read_split_file(root / SPLITS)["train"].tolist():
        if rows[row][0] not in known:
            yield rows[row]


def mean_labels(labels: Sequence[Iterator[tuple[str, float | None]]]) -> Iterator[tuple[str, str]]:
    """Yield each SMILES that all teachers could predict, with the mean of the predictions as text."""
    for predictions in zip(*labels, strict=True):
        values = [value for _, value in predictions if value is not None]
        if len(values) == len(labels):
            yield predictions[0][0], f"{sum(values) / len(values):.{DECIMALS}f}"


def columns_of(path: Path, *names: str) -> list[list[str]]:
    """Read columns of a table as text."""
    columns: list[list[str]] = [[] for _ in names]
    for chunk in read_columns(path, names):
        for column, name in zip(columns, names, strict=True):
            column += chunk[name]
    return columns


def main(argv: list[str] | None = None) -> int:
    """Choose molecules, label them, and write the data set."""
    options = parse_arguments(argv)
    rdBase.DisableLog("rdApp.*")
    smiles, values = columns_of(options.base / TABLE, *COLUMNS[1:])
    chosen, record = choose_once(options, smiles)
    teachers = {name: load_model(name).checksum() for name in options.teacher}
    labels = dict(mean_labels([label(chosen, *teacher, options.jobs) for teacher in teachers.items()]))
    known, measured = set(smiles), dict[str, str]()
    for root in options.measured:
        measured |= training_rows(root, known | measured.keys())
    labels = {text: value for text, value in labels.items() if text not in measured}
    table = [*zip(smiles, values, strict=True), *measured.items(), *labels.items()]
    splits = dict(read_split_file(options.base / SPLITS))
    splits["train"] = np.concatenate([splits["train"], np.arange(len(smiles), len(table))])
    origins = [{"model": name, "sha256": checksum} for name, checksum in teachers.items()]
    counts = {"measured": len(measured), "labeled": len(labels), "rows": len(table)}
    card = {**record, "teachers": origins, **counts}
    with atomic_folder(options.out) as folder:
        (folder / TABLE).parent.mkdir()
        write_atomically(folder / TABLE, csv_gz(list(COLUMNS), ((i, *row) for i, row in enumerate(table))))
        write_atomically(folder / SPLITS, pack_splits(splits))
        write_atomically(folder / "card.json", json.dumps(card, indent=2) + "\n")
    return 0


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FILE", help=".smi file, plain or gzip")
    parser.add_argument("--rows", type=int, required=True, metavar="N", help="maximum molecules of each file")
    parser.add_argument("--base", type=Path, required=True, metavar="DIR", help="the data set to extend")
    parser.add_argument(
        "--measured",
        type=Path,
        default=[],
        action="append",
        metavar="DIR",
        help="a data set whose training rows are added (repeatable)",
    )
    parser.add_argument(
        "--teacher", required=True, action="append", metavar="MODEL", help="a model that labels (repeatable)"
    )
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of the pieces")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder of the data set")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
