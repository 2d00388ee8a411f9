"""Write labeled molecules in PCQM4M's layout: table, split, origin of each row, charges and card."""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gap_source import Candidate, Choice, key_of, split_of
from rdkit import Chem

from molslice.files.atomic import write_atomically

SPLITS = ("train", "valid", "test")
COLUMNS = {
    "homolumogap": "energy of the LUMO less that of the HOMO, in eV",
    "homo_ev": "energy of the highest occupied orbital, in eV",
    "lumo_ev": "energy of the lowest unoccupied orbital, in eV",
    "dipole_debye": "length of the dipole moment from the center of mass, in debye",
    "energy_per_atom_ev": "total GFN2-xTB energy over the number of atoms, hydrogens counted, in eV",
    "excess_energy_per_atom_ev": "the same less the mean of `energy_references_ev` over the atoms, in eV",
}
DECIMALS = {name: 3 if name == "dipole_debye" else 4 for name in COLUMNS}
CHARGES = (
    "in charges.npz: Mulliken charges in thousandths of the elementary charge, int16, of all atoms but the "
    "implicit hydrogens, in the order of the atoms of the SMILES as it is written, row after row; "
    "`atom_offsets` [rows + 1] is where each row starts"
)
Labels = Sequence[tuple[Candidate, Mapping[str, Any]]]


@dataclass(frozen=True)
class Labeled:
    """The content of a data set.

    Attributes:
        rows: The molecules, each with its record in the log: its labels, or the reason why labeling failed.
        left_out: Rows of the source that were excluded before labeling.
        settings: The settings that determine the labels of a SMILES.
        wide: Whether to write all labels; otherwise only the gap, as in PCQM4M. With all labels, the card
            counts the rows that were excluded before labeling, without a list of them, and the keys of the
            skeletons are omitted, to keep the files small.
        card: Other entries of the card.
    """

    rows: Labels
    left_out: Sequence[Choice]
    settings: Mapping[str, Any]
    wide: bool = False
    card: Mapping[str, Any] = field(default_factory=dict)


def write_dataset(out: Path, labeled: Labeled) -> dict[str, Any]:
    """Write the data set.

    Returns:
        The card.

    Raises:
        ValueError: No molecule has a label.
    """
    kept = [(c, record) for c, record in labeled.rows if "gap_ev" in record]
    if not kept:
        raise ValueError("no molecule has a label, so nothing is written")
    lost = [Choice(c, record["reason"]) for c, record in labeled.rows if "reason" in record]
    keys = [key_of(Chem.MolFromSmiles(c.smiles)) for c, _ in kept]
    parts = np.array([split_of(key) for key in keys])
    split = {name: np.flatnonzero(parts == name) for name in SPLITS}
    columns, references = {"homolumogap": [record["gap_ev"] for _, record in kept]}, {}
    if labeled.wide:
        columns, references = label_columns(kept)
    rows = [
        [i, c.smiles, *values]
        for i, ((c, _), *values) in enumerate(zip(kept, *columns.values(), strict=True))
    ]
    origin = [[i, c.source, c.source_id] for i, (c, _) in enumerate(kept)]
    origin_header = ["idx", "source", "source_id"]
    if not labeled.wide:
        origin = [[*row, key] for row, key in zip(origin, keys, strict=True)]
        origin_header.append("connectivity")
    listed = [*(() if labeled.wide else labeled.left_out), *lost]
    excluded = Counter((choice.row.source, choice.reason) for choice in [*labeled.left_out, *lost])
    card = {
        "settings": dict(labeled.settings),
        **labeled.card,
        **describe([c for c, _ in kept], excluded, split, len(set(keys))),
        **summaries(columns),
    }
    (out / "raw").mkdir(parents=True, exist_ok=True)
    write_atomically(out / "raw" / "data.csv.gz", csv_gz(["idx", "smiles", *columns], rows))
    write_atomically(out / "split_dict.pt", pack_splits(split))
    write_atomically(out / "origin.csv.gz", csv_gz(origin_header, origin))
    header = ["source", "source_id", "smiles", "reason"]
    lines = [[c.source, c.source_id, c.smiles, reason] for c, reason in listed]
    write_atomically(out / "left_out.csv.gz", csv_gz(header, lines))
    if labeled.wide:
        charges, offsets = pack_charges(kept)
        card["columns"] = {**COLUMNS, "charges": CHARGES}
        card["energy_references_ev"] = references
        card["charge_e"] = summary(charges / 1000)
        packed = io.BytesIO()
        np.savez_compressed(packed, charges=charges, atom_offsets=offsets)
        write_atomically(out / "charges.npz", packed.getvalue())
    write_atomically(out / "card.json", json.dumps(card, indent=2) + "\n")
    return card


def label_columns(kept: Labels) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Round the labels to the precision of the method.

    Returns:
        The columns of the table, and the energy of each element in eV, from a least-squares fit of the
        energies per atom to the fractions of the elements.
    """
    records = [record for _, record in kept]
    atoms = [
        [atom.GetSymbol() for atom in Chem.AddHs(Chem.MolFromSmiles(c.smiles)).GetAtoms()] for c, _ in kept
    ]
    elements = sorted(set().union(*atoms))
    fractions = np.array(
        [[symbols.count(element) / len(symbols) for element in elements] for symbols in atoms]
    )
    energies = np.array(
        [record["energy_ev"] / len(symbols) for record, symbols in zip(records, atoms, strict=True)]
    )
    references = np.linalg.lstsq(fractions, energies, rcond=None)[0].round(4)
    values = {
        "homolumogap": [record["gap_ev"] for record in records],
        "homo_ev": [record["homo_ev"] for record in records],
        "lumo_ev": [record["lumo_ev"] for record in records],
        "dipole_debye": [record["dipole_debye"] for record in records],
        "energy_per_atom_ev": energies.tolist(),
        "excess_energy_per_atom_ev": (energies - fractions @ references).tolist(),
    }
    columns = {name: [round(value, DECIMALS[name]) for value in column] for name, column in values.items()}
    return columns, dict(zip(elements, references.tolist(), strict=True))


def pack_charges(kept: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Pack the charges of the atoms written in the SMILES.

    Returns:
        The charges, int16 [atoms of all molecules], in thousandths of the elementary charge, and the first
        atom of each molecule, int64 [molecules + 1].
    """
    numbers = [Chem.MolFromSmiles(c.smiles).GetNumAtoms() for c, _ in kept]
    values = [record["charges"][:number] for number, (_, record) in zip(numbers, kept, strict=True)]
    charges = np.rint(np.concatenate(values) * 1000).astype(np.int16)
    return charges, np.concatenate([[0], np.cumsum(numbers)])


def describe(
    kept: Sequence[Candidate], excluded: Counter, split: Mapping[str, np.ndarray], skeletons: int
) -> dict[str, Any]:
    """Count the written and the excluded molecules."""
    heavy, elements, ions = Counter(), Counter(), 0
    for candidate in kept:
        mol = Chem.MolFromSmiles(candidate.smiles)
        heavy[mol.GetNumHeavyAtoms()] += 1
        elements.update({atom.GetSymbol() for atom in mol.GetAtoms()})
        ions += Chem.GetFormalCharge(mol) != 0
    sources = list(dict.fromkeys([*(c.source for c in kept), *(source for source, _ in excluded)]))
    return {
        "rows": len(kept),
        "rows_by_source": dict(Counter(c.source for c in kept)),
        "excluded": {
            source: {reason: n for (name, reason), n in sorted(excluded.items()) if name == source}
            for source in sources
        },
        "split": {name: len(rows) for name, rows in split.items()},
        "skeletons": skeletons,
        "ions": ions,
        "elements": dict(sorted(elements.items(), key=lambda item: (-item[1], item[0]))),
        "heavy_atoms": {str(n): heavy[n] for n in sorted(heavy)},
    }


def summaries(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Summarize each label. The gap is named `gap_ev`."""
    return {
        "gap_ev" if name == "homolumogap" else name: summary(np.array(values))
        for name, values in columns.items()
    }


def summary(values: np.ndarray) -> dict[str, Any]:
    """Compute mean, standard deviation and quantiles."""
    return {
        "mean": round(float(values.mean()), 4),
        "sd": round(float(values.std()), 4),
        "quantiles": {
            f"{q:g}": round(float(np.quantile(values, q)), 4)
            for q in (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
        },
    }


def pack_splits(splits: Mapping[str, np.ndarray]) -> bytes:
    """Return the content of `split_dict.pt`."""
    import torch  # slow to import

    packed = io.BytesIO()
    torch.save(dict(splits), packed)
    return packed.getvalue()


def csv_gz(header: list[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a gzipped CSV whose bytes depend only on the content."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0)
