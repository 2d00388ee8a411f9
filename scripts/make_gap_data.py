"""Make data/gap_xtb: real molecules labeled with their GFN2-xTB HOMO-LUMO gap, in PCQM4M's layout.

Molecules: the NCI and WEHI lists that ship inside the rdkit package. Geometry: ETKDGv3 with a fixed
seed, then MMFF94. Label: one GFN2-xTB single point (tblite), gap = LUMO - HOMO in eV.

    pip install "molslice[labels]"
    python scripts/make_gap_data.py --jobs 2

A label depends on the SMILES alone, so the files do not depend on --jobs nor on interruptions.
Finished molecules are appended to WORK/labels.jsonl; running again continues from there (a
molecule that ran out of time counts as finished: delete the folder to try it again).
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from gap_label import label_all, settings
from rdkit import Chem, RDConfig, rdBase
from tqdm import tqdm

from molslice.chem.connectivity import connectivity
from molslice.chem.smiles import ChemError, parse_smiles

MIN_HEAVY, MAX_HEAVY = 2, 30
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Candidate:
    """One molecule as its source gives it; smiles is RDKit's canonical isomeric form."""

    source: str
    source_id: str
    smiles: str


def read_sources() -> Iterator[Candidate]:
    """Yield the rows of both lists in file order, SMILES as written there."""
    data = Path(RDConfig.RDDataDir)
    for line in (data / "NCI" / "first_5K.smi").read_text().splitlines():
        if line.strip():
            smiles, _, name = line.strip().partition("\t")
            yield Candidate("nci", name.strip(), smiles)
    with open(data / "Pains" / "test_data" / "wehi_mols.csv", newline="") as file:
        for smiles, name in csv.reader(file):
            yield Candidate("wehi", name, smiles)


def refuse(mol: Chem.Mol) -> str | None:
    """Say why a parsed molecule is left out before any computing, or None."""
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


def select(rows: Iterator[Candidate]) -> tuple[list[Candidate], list[tuple[Candidate, str]]]:
    """Split the source rows into molecules to label and rows left out with their reason."""
    kept: list[Candidate] = []
    left_out: list[tuple[Candidate, str]] = []
    seen: set[str] = set()
    for row in rows:
        try:
            mol = parse_smiles(row.smiles)
        except ChemError:
            left_out.append((row, "unparsable"))
            continue
        # Parsed again from its canonical form: the label is then a function of the written SMILES.
        smiles = Chem.CanonSmiles(Chem.MolToSmiles(mol))
        reason = refuse(Chem.MolFromSmiles(smiles)) or ("duplicate" if smiles in seen else None)
        if reason:
            left_out.append((row, reason))
            continue
        seen.add(smiles)
        kept.append(Candidate(row.source, row.source_id, smiles))
    return kept, left_out


def split_of(skeleton: str) -> str:
    """Assign train, valid or test (8 : 1 : 1) by SHA-256 of the skeleton."""
    tenth = int.from_bytes(hashlib.sha256(skeleton.encode()).digest()[:8], "big") % 10
    return "train" if tenth < 8 else ("valid" if tenth == 8 else "test")


def read_log(log: Path) -> dict[str, dict[str, Any]]:
    """Read the finished records by SMILES; cut off a last line that was not written whole."""
    header = json.dumps(settings(), sort_keys=True)
    if not log.exists() or b"\n" not in log.read_bytes():
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(header + "\n")
        return {}
    whole = log.read_bytes()
    whole = whole[: whole.rindex(b"\n") + 1]
    os.truncate(log, len(whole))
    first, *lines = whole.decode().splitlines()
    if first != header:
        raise ValueError(f"{log} was made with other settings or versions; give another --work")
    records = [json.loads(line) for line in lines]
    return {record["smiles"]: record for record in records}


def run(candidates: list[Candidate], log: Path, jobs: int, seconds: float) -> dict[str, Any]:
    """Label what the log lacks, appending as molecules finish; return all records by SMILES."""
    records = read_log(log)
    todo = [c.smiles for c in candidates if c.smiles not in records]
    done = len(candidates) - len(todo)
    bar = tqdm(total=len(candidates), initial=done, unit="mol", mininterval=2)
    with open(log, "a") as file, bar:
        for record in label_all(todo, jobs, seconds):
            file.write(json.dumps(record) + "\n")
            file.flush()
            records[record["smiles"]] = record
            bar.update()
    return records


def publish(path: Path, content: bytes) -> None:
    """Write a file that is whole as soon as it has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def csv_gz(header: list[str], rows: list[list[Any]]) -> bytes:
    """Pack a gzipped CSV whose bytes depend on the content alone."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0)


def write_dataset(
    out: Path,
    candidates: list[Candidate],
    records: dict[str, dict[str, Any]],
    left_out: list[tuple[Candidate, str]],
) -> dict[str, Any]:
    """Write the rows, the split, where each row comes from, what was left out, and the counts."""
    import torch  # here, as every worker process imports this file and needs no torch

    kept = [c for c in candidates if "gap_ev" in records[c.smiles]]
    if not kept:
        raise ValueError("no molecule got a label, so there is nothing to write")
    for c in candidates:
        if "reason" in records[c.smiles]:
            left_out = [*left_out, (c, records[c.smiles]["reason"])]
    skeletons = [connectivity(Chem.MolFromSmiles(c.smiles)) for c in kept]
    parts = np.array([split_of(skeleton) for skeleton in skeletons])
    keys = [hashlib.sha256(s.encode()).hexdigest()[:16] for s in skeletons]
    gaps = [records[c.smiles]["gap_ev"] for c in kept]
    split = {part: np.flatnonzero(parts == part) for part in ("train", "valid", "test")}
    packed_split = io.BytesIO()
    torch.save(split, packed_split)
    rows = [[i, c.smiles, gap] for i, (c, gap) in enumerate(zip(kept, gaps, strict=True))]
    origin = [[i, c.source, c.source_id, keys[i]] for i, c in enumerate(kept)]
    lost = [[c.source, c.source_id, c.smiles, reason] for c, reason in left_out]
    card = describe(kept, np.array(gaps), split, left_out, len(set(keys)))
    publish(out / "raw" / "data.csv.gz", csv_gz(["idx", "smiles", "homolumogap"], rows))
    publish(out / "split_dict.pt", packed_split.getvalue())
    header = ["idx", "source", "source_id", "connectivity"]
    publish(out / "origin.csv.gz", csv_gz(header, origin))
    header = ["source", "source_id", "smiles", "reason"]
    publish(out / "left_out.csv.gz", csv_gz(header, lost))
    publish(out / "card.json", (json.dumps(card, indent=2) + "\n").encode())
    return card


def describe(
    kept: list[Candidate],
    gaps: np.ndarray,
    split: dict[str, np.ndarray],
    left_out: list[tuple[Candidate, str]],
    skeletons: int,
) -> dict[str, Any]:
    """Count and summarize what was written; energies in eV."""
    molecules = [Chem.MolFromSmiles(c.smiles) for c in kept]
    heavy = Counter(mol.GetNumHeavyAtoms() for mol in molecules)
    excluded = {
        source: dict(sorted(Counter(r for c, r in left_out if c.source == source).items()))
        for source in ("nci", "wehi")
    }
    elements = Counter(e for mol in molecules for e in {a.GetSymbol() for a in mol.GetAtoms()})
    return {
        "settings": settings(),
        "rows": len(kept),
        "rows_by_source": dict(Counter(c.source for c in kept)),
        "excluded": excluded,
        "split": {part: len(rows) for part, rows in split.items()},
        "skeletons": skeletons,
        "ions": sum(Chem.GetFormalCharge(mol) != 0 for mol in molecules),
        "elements": dict(sorted(elements.items(), key=lambda item: (-item[1], item[0]))),
        "heavy_atoms": {str(n): heavy[n] for n in sorted(heavy)},
        "gap_ev": {
            "mean": round(float(gaps.mean()), 4),
            "sd": round(float(gaps.std()), 4),
            "quantiles": {
                f"{q:g}": round(float(np.quantile(gaps, q)), 4)
                for q in (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
            },
        },
    }


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "gap_xtb")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "make_gap_data")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit for a molecule")
    parser.add_argument("--limit", type=int, help="read only the first LIMIT rows")
    arguments = parser.parse_args(argv)
    if arguments.jobs < 1 or arguments.seconds <= 0 or (arguments.limit is not None and arguments.limit < 1):
        parser.error("--jobs, --seconds and --limit must be positive")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Make the data set."""
    arguments = parse_arguments(argv)
    rdBase.DisableLog("rdApp.*")
    candidates, left_out = select(islice(read_sources(), arguments.limit))
    log = arguments.work / "labels.jsonl"
    try:
        records = run(candidates, log, arguments.jobs, arguments.seconds)
        card = write_dataset(arguments.out, candidates, records, left_out)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"make_gap_data: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"make_gap_data: stopped; what is done is in {log}, run again to go on\n")
        return 130
    sys.stderr.write(f"{card['rows']} molecules in {arguments.out}: {card['split']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
