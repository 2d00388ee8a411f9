"""Diagnoses of discharge notes: MIMIC-III (Johnson et al. 2016) in tables of notes and ICD-9 codes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from molslice.data.text.base import describe_classes
from molslice.data.text.text_table import TextTable
from molslice.data.text.tokenizing import DEFAULT_MAX_TOKENS, DEFAULT_TOKENS
from molslice.types import DataSpec, MolsliceError

NUM_CODES = 50  # as in the Singularformer paper


class Mimic3(TextTable):
    """Notes in the folder `root`: `train.csv`, `test.csv` and optionally `valid.csv`.

    Each has the column `TEXT`, the note of an admission, and the column `ICD9_CODE`, the codes of its
    diagnoses separated by semicolons. The most frequent codes of all files are binary targets.
    `TextDataset` describes the other options.

    Args:
        root: Folder of the data.
        max_labels: Number of codes.

    Raises:
        MolsliceError: An option or a file is invalid. The message names file, row, column and value.
    """

    instructions = (
        "MIMIC-III needs an account with training in research on humans: "
        "https://physionet.org/content/mimiciii/1.4/. Join the discharge summaries of NOTEEVENTS.csv with "
        "DIAGNOSES_ICD.csv by HADM_ID to train.csv and test.csv with the columns TEXT and ICD9_CODE (codes "
        "separated by semicolons)"
    )

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        max_labels: int = NUM_CODES,
        tokens: str = DEFAULT_TOKENS,
        vocabulary_size: int | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        lower: bool | None = None,
        valid_fraction: float = 0.1,
        test_fraction: float | None = None,
        seed: int = 0,
        folds: int | None = None,
        fold: int | None = None,
        fold_over: str = "all",
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        folder = Path(root)
        paths = {split: folder / f"{split}.csv" for split in ("train", "valid", "test")}
        for split in ("train", "test"):
            if not paths[split].is_file():
                raise MolsliceError(f"no such file: {paths[split]}. {self.advice()}")
        super().__init__(
            path=paths["train"],
            valid_path=paths["valid"] if paths["valid"].is_file() else None,
            test_path=paths["test"],
            text_column="TEXT",
            label_columns="ICD9_CODE",
            separator=";",
            max_labels=max_labels,
            tokens=tokens,
            vocabulary_size=vocabulary_size,
            max_tokens=max_tokens,
            lower=lower,
            valid_fraction=valid_fraction,
            test_fraction=test_fraction,
            seed=seed,
            folds=folds,
            fold=fold,
            fold_over=fold_over,
            cache_dir=cache_dir,
        )

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec:
        """Derive the spec without the fingerprint."""
        return describe_classes(options.get("max_labels", NUM_CODES), options)
