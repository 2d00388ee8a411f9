"""PCQM4M-LSC, PCQM4Mv2, and whatever else has their layout, as the embedded data has."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from molslice.data import prepare, table
from molslice.data.base import MoleculeDataset
from molslice.data.download import ARCHIVES
from molslice.data.split_file import read_split_file
from molslice.types import MolsliceError

TABLE = Path("raw") / "data.csv.gz"
SPLITS = "split_dict.pt"
COLUMNS = ("idx", "smiles", "homolumogap")


class Pcqm4m(MoleculeDataset):
    """HOMO-LUMO gaps in eV, read from the folder that OGB unpacks.

    The folder holds `raw/data.csv.gz` with the columns idx, smiles and homolumogap, and `split_dict.pt`. A
    gap that is not known (OGB keeps those of the test splits) is NaN, and a SMILES that cannot be read
    keeps its row.

    Args:
        root: the folder, or the one that holds `pcqm4m_kddcup2021` or `pcqm4m-v2`.
        atom_order: `canonical`, or `input` for the atoms as the SMILES lists them.
        max_atoms: larger molecules are refused, with that as their reason.
        workers: processes for the preparation; by default all cores where it pays.
        cache_dir: where the prepared store goes, by default `<root>/processed`, or the user's cache where
            that cannot be written.

    Raises:
        MolsliceError: the folder is not one, or something in it is wrong; names file, row and column.
    """

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        atom_order: str = "canonical",
        max_atoms: int = 256,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.root = _find_root(Path(root))
        self.source = str(self.root)
        self.kind = "regression"
        self.target_names, self.target_units = ("homolumogap",), ("eV",)
        self.splits = read_split_file(self.root / SPLITS)
        source = prepare.Source(
            name=self.source,
            chunks=self._chunks,
            rows=sum(map(len, self.splits.values())),
            target_names=self.target_names,
            target_units=self.target_units,
            identity={"format": "pcqm4m", "sha256": prepare.file_checksum(self.root / TABLE)},
        )
        self.store = prepare.prepare_store(
            source,
            prepare.Featurizing(max_atoms=max_atoms, atom_order=atom_order, workers=workers),
            prepare.cache_folders(cache_dir, self.root / "processed"),
        )
        self._refuse_if_all_failed()
        self._check_splits()

    @property
    def version(self) -> Literal["v1", "v2"]:
        """OGB's version by the names of the splits: v2 has test-dev and test-challenge, v1 has test."""
        return "v2" if "test-dev" in self.splits else "v1"

    def smiles(self) -> list[str]:
        """The SMILES of every row."""
        chunks = table.read_columns(self.root / TABLE, ["smiles"])
        return [text for chunk in chunks for text in chunk["smiles"]]

    def _chunks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        path, row = self.root / TABLE, 0
        for chunk in table.read_columns(path, COLUMNS, chunk_rows=prepare.CHUNK_ROWS):
            smiles = chunk["smiles"]
            _check_numbering(path, chunk["idx"], row)
            gaps = table.numbers(chunk["homolumogap"], path=path, column="homolumogap", first_row=row)
            yield smiles, gaps[:, None]
            row += len(smiles)

    def _check_splits(self) -> None:
        path, rows = self.root / SPLITS, len(self.store)
        together = np.concatenate([*self.splits.values()])
        if len(together) and not 0 <= together.min() <= together.max() < rows:
            raise MolsliceError(
                f"{path} names rows {together.min()} to {together.max()}, the table has {rows}"
            )
        if len(np.unique(together)) < len(together):
            raise MolsliceError(f"{path} has rows that stand twice in its splits")


def _find_root(root: Path) -> Path:
    candidates = [root, *(root / archive.folder for archive in ARCHIVES.values())]
    found = [folder for folder in candidates if (folder / TABLE).is_file()]
    if not found:
        raise MolsliceError(
            f"no {TABLE} in {root}, nor in a folder {' or '.join(a.folder for a in ARCHIVES.values())} there"
        )
    if len(found) > 1:
        raise MolsliceError(f"several data sets in {root}: name one of {', '.join(map(str, found))}")
    return found[0]


def _check_numbering(path: Path, texts: list[str], first: int) -> None:
    """The splits name rows by their place, so `idx` must say the same."""
    for row, text in enumerate(texts, first):
        if text != str(row):
            raise MolsliceError(
                f"{path}, row {row} (counted from 0), column 'idx': {text!r} instead of {row}"
            )
