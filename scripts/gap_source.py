"""Select the molecules of data/gap_xtb and of its large form."""

import csv
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rdkit import Chem, RDConfig
from tqdm import tqdm

from molslice.chem.connectivity import connectivity
from molslice.chem.smiles import ChemError, parse_smiles
from molslice.files.atomic import atomic_path
from molslice.files.cache import file_checksum
from molslice.files.lines import read_lines
from molslice.files.tables import open_table

MIN_HEAVY, MAX_HEAVY = 2, 30
HELD_OUT = "in_gap_xtb_valid_or_test"


@dataclass(frozen=True)
class Candidate:
    """One molecule of a source.

    Attributes:
        source: Name of the source.
        source_id: Name or line number of the molecule in the source.
        smiles: RDKit's canonical isomeric SMILES, or the text of the source if it cannot be parsed.
    """

    source: str
    source_id: str
    smiles: str


class Choice(NamedTuple):
    """The decision on a row of a source.

    Attributes:
        row: The row.
        reason: Why the row is excluded; None if it is to be labeled.
    """

    row: Candidate
    reason: str | None


def read_rdkit_lists() -> Iterator[Candidate]:
    """Yield the rows of the NCI and WEHI lists of the rdkit package in file order, SMILES as written."""
    data = Path(RDConfig.RDDataDir)
    for line in (data / "NCI" / "first_5K.smi").read_text().splitlines():
        if line.strip():
            smiles, _, name = line.strip().partition("\t")
            yield Candidate("nci", name.strip(), smiles)
    with open(data / "Pains" / "test_data" / "wehi_mols.csv", newline="") as file:
        for smiles, name in csv.reader(file):
            yield Candidate("wehi", name, smiles)


def draw(path: Path) -> Iterator[Candidate]:
    """Yield the rows of a file with one SMILES per line, in the order of the SHA-256 of the SMILES.

    This order is pseudo-random and does not depend on the order of the lines. The first rows are therefore a
    uniform sample of the file. The whole file is read into memory.

    Args:
        path: The file, plain or gzip. Text after the SMILES and a blank is ignored.
    """
    texts = [(number, line.split()[0]) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    texts.sort(
        key=lambda item: hashlib.sha256(item[1].encode()).digest()
    )  # stable: equal texts keep their order
    source = path.name.removesuffix(".gz").removesuffix(".smi")
    for number, text in texts:
        yield Candidate(source, str(number), text)


def refuse(mol: Chem.Mol) -> str | None:
    """Return the reason to exclude a molecule, or None."""
    if not MIN_HEAVY <= mol.GetNumHeavyAtoms() <= MAX_HEAVY:
        return "heavy_atoms_outside_2_to_30"
    if len(Chem.GetMolFrags(mol)) > 1:
        return "several_fragments"
    if any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        return "wildcard_atom"
    electrons = sum(a.GetAtomicNum() + a.GetTotalNumHs() for a in mol.GetAtoms())
    electrons -= Chem.GetFormalCharge(mol)
    if electrons % 2 or any(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()):
        return "open_shell"
    return None


def select(rows: Iterable[Candidate], excluded: Mapping[str, str] | None = None) -> Iterator[Choice]:
    """Decide for each row of a source whether to label its molecule.

    Args:
        rows: The rows, with the SMILES of the source.
        excluded: Reason to exclude a molecule, by the key of its skeleton.
    """
    seen: set[str] = set()
    for row in rows:
        try:
            mol = parse_smiles(row.smiles)
        except ChemError:
            yield Choice(row, "unparsable")
            continue
        # The canonical SMILES is parsed again, so that the label is a function of the written SMILES.
        smiles = Chem.CanonSmiles(Chem.MolToSmiles(mol))
        mol = Chem.MolFromSmiles(smiles)
        reason = refuse(mol) or ("duplicate" if smiles in seen else None)
        if reason is None and excluded:
            reason = excluded.get(key_of(mol))
        if reason is None:
            seen.add(smiles)
        kept = Candidate(row.source, row.source_id, smiles)
        yield Choice(row if reason else kept, reason)


def key_of(mol: Chem.Mol) -> str:
    """Compute the key of the skeleton of a molecule with one fragment."""
    return key_of_skeleton(connectivity(mol))


def key_of_skeleton(skeleton: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a skeleton."""
    return hashlib.sha256(skeleton.encode()).hexdigest()[:16]


def split_of(key: str) -> str:
    """Assign train, valid or test (8 : 1 : 1) by the key of the skeleton."""
    tenth = int(key, 16) % 10
    return "train" if tenth < 8 else ("valid" if tenth == 8 else "test")


def held_out_keys(folder: Path) -> dict[str, str]:
    """Return the keys of the skeletons in the valid and test splits, each with the reason to exclude it."""
    with gzip.open(folder / "origin.csv.gz", "rt", newline="") as file:
        keys = [row["connectivity"] for row in csv.DictReader(file)]
    return {key: HELD_OUT for key in keys if split_of(key) != "train"}


def keys_of_table(path: Path) -> tuple[set[str], int, int]:
    """Collect the skeletons of the molecules of a table. Each fragment of a mixture or salt counts.

    Args:
        path: A CSV file, plain or gzip, with a column `smiles` in upper or lower case.

    Returns:
        The keys of the skeletons, the number of rows, and the number of unparsable rows.
    """
    keys: set[str] = set()
    rows = unparsable = 0
    with open_table(path) as table:
        name = next((name for name in table.names if name.strip().lower() == "smiles"), "smiles")
        for chunk in table.chunks(10_000, [name]):
            for text in chunk[name]:
                rows += 1
                try:
                    skeletons = connectivity(parse_smiles(text)).split(".")
                except ChemError:
                    unparsable += 1
                    continue
                keys.update(map(key_of_skeleton, skeletons))
    return keys, rows, unparsable


def select_from_file(
    source: Path, exclude: Sequence[Path], base: Path, work: Path
) -> tuple[dict, list[Choice]]:
    """Decide for each row of a file, in the order of `draw`. The decisions are in WORK/selection.jsonl.gz.

    Args:
        source: A file with one SMILES per line.
        exclude: Tables whose molecules are excluded by skeleton. The first table with a skeleton counts it.
        base: The data set whose valid and test molecules are excluded by skeleton.
        work: The folder of the run. If it holds a selection, that selection is read.

    Returns:
        The inputs of the selection, and the decisions.

    Raises:
        ValueError: The selection in `work` was made from other files or by another version of RDKit.
    """
    identity: dict[str, Any] = {
        "source": [source.name, file_checksum(source)],
        "base": file_checksum(base / "origin.csv.gz"),
        "exclude": [[path.name, file_checksum(path)] for path in exclude],
        "rdkit": version("rdkit"),
    }
    path = work / "selection.jsonl.gz"
    if path.exists():
        lines = map(json.loads, read_lines(path))
        made_from = next(lines)
        if made_from["identity"] != identity:
            raise ValueError(f"{path} was made from other files or another RDKit; choose another --work")
        source_name = made_from["source"]
        return made_from, [Choice(Candidate(source_name, row, text), why) for row, text, why in lines]
    excluded, tables = held_out_keys(base), []
    for table in tqdm(exclude, unit="table", desc="excluded tables"):
        keys, rows, unparsable = keys_of_table(table)
        tables.append({"file": table.name, "rows": rows, "unparsable": unparsable, "skeletons": len(keys)})
        reason = f"in_{table.name.removesuffix('.gz').removesuffix('.csv')}"
        excluded = {**dict.fromkeys(keys, reason), **excluded}
    choices = list(select(tqdm(draw(source), unit="row", desc="selection", mininterval=2), excluded))
    made_from = {"identity": identity, "source": choices[0].row.source if choices else "", "tables": tables}
    work.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial_file, gzip.open(partial_file, "wt") as file:
        file.write(json.dumps(made_from) + "\n")
        for row, reason in choices:
            file.write(json.dumps([row.source_id, row.smiles, reason]) + "\n")
    return made_from, choices
