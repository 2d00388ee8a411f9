"""The small measured sets of `small_data.py`: files, divisions and scores."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from molslice.chem import DESCRIPTORS_VERSION
from molslice.chem.scaffold import scaffolds
from molslice.data.molecules.describe import DescribedMolecules, describe_molecules
from molslice.data.sequences import keep_arrays
from molslice.data.splits import Division
from molslice.files.cache import file_checksum
from molslice.files.tables import numbers, open_table, read_columns
from molslice.learners import Features
from molslice.tasks.metrics import mean_absolute_error, roc_auc

MAX_ROWS = 5_000  # larger sets are represented by a fixed sample of this size
VALID_FRACTION = TEST_FRACTION = 0.1
LOWER_IS_BETTER = ("mae", "rmse")
SPLITS = ("train", "val", "test")  # names in the table; chemprop requires `val`


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """A set of molecules with measured values.

    Attributes:
        name: Short name.
        file: Path below the folder of all sets.
        targets: Measured columns; empty for all columns except those of `ignored`.
        kind: `regression` or `classification`.
        metric: `mae`, `rmse`, `spearman`, `roc_auc` or `pr_auc`; the mean over the targets is reported.
        splits: Names of the divisions: `random`, `scaffold`, or `own` for the column `split` of the file.
        max_rows: Size of the sample that represents a larger set.
        ignored: Columns that are not targets.
    """

    name: str
    file: str
    targets: tuple[str, ...]
    kind: str
    metric: str
    splits: tuple[str, ...]
    max_rows: int = MAX_ROWS
    ignored: tuple[str, ...] = ("smiles", "mol_id", "split")


def _moleculenet() -> list[MeasuredSet]:
    both = ("random", "scaffold")
    solubility = "measured log solubility in mols per litre"
    regression = [("esol", solubility), ("freesolv", "expt"), ("lipo", "exp")]
    classes: list[tuple[str, tuple[str, ...]]] = [
        ("bbbp", ("p_np",)),
        ("bace", ("Class",)),
        ("clintox", ("FDA_APPROVED", "CT_TOX")),
        ("sider", ()),
        ("tox21", ()),
        ("hiv", ("HIV_active",)),
    ]
    sets = [
        MeasuredSet(name, f"moleculenet/{name}.csv.gz", (target,), "regression", "mae", both)
        for name, target in regression
    ]
    for name, targets in classes:
        size = 4_113 if name == "hiv" else MAX_ROWS  # a tenth of HIV
        file = f"moleculenet/{name}.csv.gz"
        sets.append(MeasuredSet(name, file, targets, "classification", "roc_auc", both, size))
    return sets


def _admet() -> list[MeasuredSet]:
    own = [
        ("ames", "ames_mutagenic[0/1]", "roc_auc"),
        ("bioavailability_ma", "bioavailable[0/1]", "roc_auc"),
        ("clearance_hepatocyte_az", "clint[uL/min/1e6cells]", "spearman"),
        ("cyp2c9_substrate_carbonmangels", "cyp2c9_substrate[0/1]", "pr_auc"),
        ("cyp2d6_substrate_carbonmangels", "cyp2d6_substrate[0/1]", "pr_auc"),
        ("cyp3a4_substrate_carbonmangels", "cyp3a4_substrate[0/1]", "roc_auc"),
        ("dili", "dili[0/1]", "roc_auc"),
        ("herg", "herg_blocker[0/1]", "roc_auc"),
        ("ld50_zhu", "ld50[-log10(mol/kg)]", "mae"),
        ("pgp_broccatelli", "pgp_inhibitor[0/1]", "roc_auc"),
        ("solubility_aqsoldb", "logS[log10(mol/L)]", "mae"),
    ]
    sets = []
    for name, target, metric in own:
        kind = "classification" if metric in ("roc_auc", "pr_auc") else "regression"
        sets.append(MeasuredSet(f"tdc_{name}", f"admet/tdc_{name}.csv.gz", (target,), kind, metric, ("own",)))
    for name, targets in (
        ("biogen_fang2023", ()),
        ("logd74_nanxstats", ("logD7.4",)),
        ("b3db_regression", ("logBB",)),
    ):
        sets.append(MeasuredSet(name, f"admet/{name}.csv.gz", targets, "regression", "mae", ("random",)))
    return sets


MOLECULEACE = [
    "1862_Ki",
    "2034_Ki",
    "204_Ki",
    "214_Ki",
    "219_Ki",
    "231_Ki",
    "234_Ki",
    "236_Ki",
    "237_Ki",
    "239_EC50",
    "262_Ki",
    "2835_Ki",
    "2971_Ki",
    "4005_Ki",
    "4616_EC50",
]


def _moleculeace() -> list[MeasuredSet]:
    return [
        MeasuredSet(
            f"CHEMBL{name}",
            f"moleculeace/CHEMBL{name}.csv.gz",
            ("pki" if name.endswith("Ki") else "pec50",),
            "regression",
            "rmse",
            ("own",),
        )
        for name in MOLECULEACE
    ]


SETS = {one.name: one for one in (*_moleculenet(), *_admet(), *_moleculeace())}


@dataclass(frozen=True, slots=True)
class Molecules:
    """The readable rows of a set.

    Attributes:
        smiles: SMILES as in the file, n rows.
        names: Names of the targets.
        values: float64 [n, T], NaN where missing.
        features: Descriptors and Morgan counts of the rows.
        canonical: Canonical SMILES of the rows.
        scaffolds: Bemis-Murcko scaffolds of the rows.
        own_split: The column `split` of the file, or empty.
    """

    smiles: list[str]
    names: tuple[str, ...]
    values: np.ndarray
    features: Features
    canonical: list[str]
    scaffolds: list[str]
    own_split: list[str]


def read_molecules(measured: MeasuredSet, folder: Path, cache: Path) -> Molecules:
    """Read, describe and sample the rows of a set.

    Rows that cannot be read or have no value are left out. Without a split of its own, a set keeps the first
    row of each molecule, so that no molecule is in two splits.

    Args:
        measured: The set.
        folder: Folder of all sets.
        cache: Folder that keeps the descriptors between runs.
    """
    path = folder / measured.file
    with open_table(path) as table:
        columns = table.names
    names = measured.targets or tuple(name for name in columns if name not in measured.ignored)
    own = ["split"] if measured.splits == ("own",) else []
    smiles: list[str] = []
    words: list[str] = []
    values = []
    for chunk in read_columns(path, ["smiles", *names, *own]):
        smiles += [text.strip() for text in chunk["smiles"]]
        words += chunk["split"] if own else []
        values.append(np.stack([numbers(chunk[name], name, chunk.where) for name in names], axis=1))
    table_values = np.concatenate(values)
    described = describe(smiles, path, cache)
    good = np.array([reason is None for reason in described.errors]) & np.isfinite(table_values).any(1)
    rows = np.flatnonzero(good)
    if not own:
        _, first = np.unique([described.canonical[row] for row in rows], return_index=True)
        rows = rows[np.sort(first)]
    if len(rows) > measured.max_rows:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[: measured.max_rows])
    described = described.take(rows)
    return Molecules(
        [smiles[row] for row in rows],
        names,
        table_values[rows],
        Features(described.descriptors, described.counts),
        described.canonical,
        described.scaffolds,
        [words[row] for row in rows] if own else [],
    )


def describe(smiles: list[str], file: Path, cache: Path) -> DescribedMolecules:
    """Compute descriptors, counts, canonical SMILES, scaffolds and parents, or read them from `cache`.

    Args:
        smiles: All rows of `file`.
        file: The table, whose checksum identifies the rows.
        cache: Folder of the cached arrays.
    """
    identity = {
        "described": file_checksum(file),
        "descriptors": DESCRIPTORS_VERSION,
        "rdkit": version("rdkit"),
        "groups": ["scaffolds", "parents"],
    }
    arrays = keep_arrays([cache], identity, lambda: _described_arrays(smiles))
    return DescribedMolecules(
        arrays["descriptors"],
        arrays["counts"],
        arrays["canonical"].tolist(),
        arrays["parents"].tolist(),
        arrays["scaffolds"].tolist(),
        [text or None for text in arrays["errors"].tolist()],
    )


def _described_arrays(smiles: list[str]) -> dict[str, np.ndarray]:
    found = describe_molecules(smiles)
    return {
        "descriptors": found.descriptors,
        "counts": found.counts,
        "canonical": np.array(found.canonical),
        "scaffolds": np.array(scaffolds(found.canonical)),  # with the rings of counterions
        "parents": np.array(found.parents),
        "errors": np.array([reason or "" for reason in found.errors]),
    }


def divide(
    molecules: Molecules, split: str, seed: int, train_rows: int | None = None
) -> dict[str, np.ndarray]:
    """Divide the rows into train, val and test.

    Args:
        molecules: The rows.
        split: `random`, `scaffold` (the same for every seed), or `own` (the test rows of the file).
        seed: Seed of the draws.
        train_rows: Number of rows of train and val together; None for all.
    """
    everything = np.arange(len(molecules.smiles))
    if split == "own":
        is_test = np.array([word == "test" for word in molecules.own_split])
        known, test = everything[~is_test], everything[is_test]
    else:
        groups = molecules.scaffolds if split == "scaffold" else None
        shares = {"valid": VALID_FRACTION, "test": TEST_FRACTION}
        parts = Division(shares, seed).divide({"train": everything}, split, groups=groups)
        known, test = np.concatenate([parts["train"], parts["valid"]]), parts["test"]
        if train_rows is None:
            return {"train": parts["train"], "val": parts["valid"], "test": test}
    known = np.random.default_rng(seed).permutation(known)[:train_rows]
    held = max(1, round(VALID_FRACTION * len(known)))
    return {"train": np.sort(known[held:]), "val": np.sort(known[:held]), "test": test}


def write_rows(
    file: Path, molecules: Molecules, parts: Mapping[str, np.ndarray], names: Sequence[str] = SPLITS
) -> None:
    """Write the rows of some splits as CSV with the columns smiles, t0, t1, ... and split."""
    columns = [f"t{index}" for index in range(len(molecules.names))]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["smiles", *columns, "split"])
        for name in names:
            for row in parts[name]:
                cells = [f"{value:.10g}" if math.isfinite(value) else "" for value in molecules.values[row]]
                writer.writerow([molecules.smiles[row], *cells, name])


def score(metric: str, predictions: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean of a metric over the targets for which it is defined.

    Args:
        metric: Name of the metric.
        predictions: float [n, T].
        truth: float [n, T], NaN where missing.
    """
    values = [_score_one(metric, predictions[:, i], truth[:, i]) for i in range(truth.shape[1])]
    return float(np.nanmean(values))


def _score_one(metric: str, predicted: np.ndarray, truth: np.ndarray) -> float:
    known = np.isfinite(truth)
    predicted, truth = predicted[known].astype(np.float64), truth[known]
    if metric == "mae":
        return mean_absolute_error(predicted, truth)
    if metric == "rmse":
        return float(np.sqrt(np.mean((predicted - truth) ** 2)))
    if metric == "spearman":
        from scipy.stats import spearmanr

        return float(np.asarray(spearmanr(predicted, truth))[0])
    if metric == "roc_auc":
        return roc_auc(predicted, truth)
    if metric == "pr_auc":
        from sklearn.metrics import average_precision_score

        return float(average_precision_score(truth, predicted)) if truth.any() else math.nan
    raise ValueError(f"unknown metric {metric!r}")


def error_of(metric: str, value: float) -> float:
    """Return an error that is better when smaller: the value itself, or one less the value."""
    return value if metric in LOWER_IS_BETTER else 1.0 - value
