"""Diagnoses of discharge notes: MIMIC-III (Johnson et al. 2016) in tables of notes and ICD-9 codes."""

from collections.abc import Mapping
from typing import Any

from molslice.data.splits import NAMES
from molslice.data.text.base import TRAIN_TEST, FolderTexts, describe_classes
from molslice.data.text.documents import Documents
from molslice.data.text.text_table import TextColumns
from molslice.types import DataSpec, MolsliceError

NUM_CODES = 50  # as in the Singularformer paper


class Mimic3(FolderTexts):
    """Notes in the folder `root`: `train.csv`, `test.csv` and optionally `valid.csv`.

    Each has the column `TEXT`, the note of an admission, and the column `ICD9_CODE`, the codes of its
    diagnoses separated by semicolons. The most frequent codes of all files are binary targets.
    `TextDataset` describes the other options.

    Args:
        max_labels: Number of codes.
    """

    instructions = (
        "MIMIC-III needs an account with training in research on humans: "
        "https://physionet.org/content/mimiciii/1.4/. Join the discharge summaries of NOTEEVENTS.csv with "
        "DIAGNOSES_ICD.csv by HADM_ID to train.csv and test.csv with the columns TEXT and ICD9_CODE (codes "
        "separated by semicolons)"
    )

    def __init__(self, *, max_labels: int = NUM_CODES, **options: Any) -> None:  # noqa: ANN401
        self.columns = TextColumns("TEXT", "ICD9_CODE", ";", max_labels)
        super().__init__(**options)

    def read(self) -> Documents:
        """Read all tables."""
        files = {split: self.root / f"{split}.csv" for split in NAMES}
        for split in TRAIN_TEST:
            if not files[split].is_file():
                raise MolsliceError(f"no such file: {files[split]}. {self.advice()}")
        return self.columns.read({split: file for split, file in files.items() if file.is_file()})

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Derive the spec without the fingerprint."""
        return describe_classes(options.get("max_labels", NUM_CODES), options)
