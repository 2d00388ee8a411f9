"""PCQM4M-LSC, PCQM4Mv2, and other data in the same layout, such as the embedded data."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from molslice.data.molecules import prepare
from molslice.data.molecules.base import MoleculeDataset
from molslice.data.molecules.ogb_download import ARCHIVES, download
from molslice.data.molecules.ogb_split import read_split_file
from molslice.files import cache, tables
from molslice.types import MolsliceError

TABLE = Path("raw") / "data.csv.gz"
SPLITS = "split_dict.pt"
COLUMNS = ("idx", "smiles", "homolumogap")
VERSIONS = {"pcqm4m": "v1", "pcqm4m-v2": "v2"}  # by name of the archive


class Pcqm4m(MoleculeDataset):
    """HOMO-LUMO gaps in eV, in the folder of OGB's archive.

    The folder contains `split_dict.pt` and `raw/data.csv.gz` with the columns idx, smiles and homolumogap. An
    unknown gap is NaN (OGB does not publish the gaps of the test splits). A row with an unreadable SMILES
    keeps its row number.

    Args:
        root: The folder, or the parent of `pcqm4m_kddcup2021` or `pcqm4m-v2`.
        atom_order: `canonical`, or `input` for the atoms of the SMILES as OGB has them.
        max_atoms: Maximum number of atoms; the row of a larger molecule is unreadable.
        geometry: Whether to compute a conformer of each molecule too, by ETKDG, from which a model learns the
            distances of atoms in training (`training.distance_weight`). Predictions need none. It takes ten
            to fifty times as long as the arrays.
        workers: Number of processes for the preparation; by default all cores for large files.
        cache_dir: Folder for the prepared store; by default `<root>/processed`, or the user's cache if that
            is not writable.

    Raises:
        MolsliceError: The folder is missing or a file is invalid. The message names file, row and column.
    """

    instructions: ClassVar[str] = (
        f"By hand: unpack {' or '.join(archive.url for archive in ARCHIVES.values())}. The data of gap-xtb "
        "are the folder data/gap_xtb_100k of the repository of molslice"
    )

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        atom_order: str = "canonical",
        max_atoms: int = 256,
        geometry: bool = False,
        workers: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.root = _find_root(Path(root))
        self.source = str(self.root)
        self.kind = "regression"
        self.target_names, self.target_units = ("homolumogap",), ("eV",)
        self.splits = read_split_file(self.root / SPLITS)
        self._checksum = cache.file_checksum(self.root / TABLE)
        self.store = prepare.prepare_store(
            self._chunks,
            prepare.Featurizing(
                max_atoms=max_atoms, atom_order=atom_order, workers=workers, geometry=geometry
            ),
            cache.cache_folders(cache_dir, self.root / "processed"),
            source=self.source,
            rows=sum(map(len, self.splits.values())),
            target_names=self.target_names,
            target_units=self.target_units,
            identity={"format": "pcqm4m", "sha256": self._checksum},
        )
        self._refuse_if_all_failed()
        self._check_splits()

    @classmethod
    def download(cls, options: Mapping[str, Any]) -> None:
        """Download the version that the name of the folder says, unless the data are there.

        Raises:
            MolsliceError: The folder has another name, or the download failed.
        """
        root = Path(options["root"])
        if _roots(root):
            return
        names = [name for name, archive in ARCHIVES.items() if archive.folder == root.resolve().name]
        if not names:
            folders = " and ".join(f"{archive.folder} ({name})" for name, archive in ARCHIVES.items())
            raise MolsliceError(
                f"cannot tell which data to download to {root}: folders are called {folders}; with another "
                f"name, use molslice prepare --dataset NAME --root {root} --download"
            )
        download(names[0], root)

    @property
    def version(self) -> Literal["v1", "v2"]:
        """OGB's version, detected from the splits: v2 has test-dev and test-challenge, v1 has test."""
        return "v2" if "test-dev" in self.splits else "v1"

    def check_version(self, name: str) -> None:
        """Check that the splits are the splits of an archive, `pcqm4m` or `pcqm4m-v2`.

        Raises:
            MolsliceError: They belong to the other one.
        """
        if self.version != VERSIONS[name]:
            raise MolsliceError(
                f"{self.source} has the splits of PCQM4M {self.version}, not the splits of {name}"
            )

    def smiles(self) -> list[str]:
        """Read the SMILES of every row.

        Raises:
            MolsliceError: The table has changed since the rows were read.
        """
        table = self.root / TABLE
        self._refuse_if_changed([table], [self._checksum], table)
        return [text for chunk in tables.read_columns(table, ["smiles"]) for text in chunk["smiles"]]

    def _chunks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        for chunk in tables.read_columns(self.root / TABLE, COLUMNS, chunk_rows=prepare.CHUNK_ROWS):
            _check_numbering(chunk)
            gaps = tables.numbers(chunk["homolumogap"], "homolumogap", chunk.where)
            yield chunk["smiles"], gaps[:, None].astype(np.float32)

    def _check_splits(self) -> None:
        path, rows = self.root / SPLITS, len(self.store)
        together = np.concatenate([*self.splits.values()])
        if len(together) and not 0 <= together.min() <= together.max() < rows:
            raise MolsliceError(
                f"{path} has rows {together.min()} to {together.max()}, but the table has {rows} rows"
            )
        if len(np.unique(together)) < len(together):
            raise MolsliceError(f"{path} has duplicate rows in its splits")


def _roots(root: Path) -> list[Path]:
    """List the folders with data: the folder itself, or the folders of archives in it."""
    candidates = [root, *(root / archive.folder for archive in ARCHIVES.values())]
    return [folder for folder in candidates if (folder / TABLE).is_file()]


def _find_root(root: Path) -> Path:
    folders = _roots(root)
    if not folders:
        names = " or ".join(archive.folder for archive in ARCHIVES.values())
        raise MolsliceError(f"no {TABLE} in {root} or in its folders {names}. {Pcqm4m.advice()}")
    if len(folders) > 1:
        raise MolsliceError(f"several data sets in {root}; choices: {', '.join(map(str, folders))}")
    return folders[0]


def _check_numbering(chunk: tables.Chunk) -> None:
    """Check that `idx` counts rows from 0, because the splits refer to rows by position."""
    for place, text in enumerate(chunk["idx"]):
        if isinstance(text, tables.Unreadable):
            raise MolsliceError(f"{chunk.where(place)}: {text.reason}")
        expected = chunk.first - 1 + place
        if text != str(expected):
            raise MolsliceError(f"{chunk.where(place)}, column 'idx': {text!r} instead of {expected}")
