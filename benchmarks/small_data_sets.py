"""The small measured sets of `small_data.py`: files, divisions and scores."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
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
        targets: Measured columns; empty for all columns except `ignored`.
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


# file, metric, splits, and targets separated by commas; `all` for all columns
TABLE = """
moleculenet/esol                         mae       random,scaffold  measured log solubility in mols per litre
moleculenet/freesolv                     mae       random,scaffold  expt
moleculenet/lipo                         mae       random,scaffold  exp
moleculenet/bbbp                         roc_auc   random,scaffold  p_np
moleculenet/bace                         roc_auc   random,scaffold  Class
moleculenet/clintox                      roc_auc   random,scaffold  FDA_APPROVED,CT_TOX
moleculenet/sider                        roc_auc   random,scaffold  all
moleculenet/tox21                        roc_auc   random,scaffold  all
moleculenet/hiv                          roc_auc   random,scaffold  HIV_active
admet/tdc_ames                           roc_auc   own              ames_mutagenic[0/1]
admet/tdc_bioavailability_ma             roc_auc   own              bioavailable[0/1]
admet/tdc_clearance_hepatocyte_az        spearman  own              clint[uL/min/1e6cells]
admet/tdc_cyp2c9_substrate_carbonmangels pr_auc    own              cyp2c9_substrate[0/1]
admet/tdc_cyp2d6_substrate_carbonmangels pr_auc    own              cyp2d6_substrate[0/1]
admet/tdc_cyp3a4_substrate_carbonmangels roc_auc   own              cyp3a4_substrate[0/1]
admet/tdc_dili                           roc_auc   own              dili[0/1]
admet/tdc_herg                           roc_auc   own              herg_blocker[0/1]
admet/tdc_ld50_zhu                       mae       own              ld50[-log10(mol/kg)]
admet/tdc_pgp_broccatelli                roc_auc   own              pgp_inhibitor[0/1]
admet/tdc_solubility_aqsoldb             mae       own              logS[log10(mol/L)]
admet/biogen_fang2023                    mae       random           all
admet/logd74_nanxstats                   mae       random           logD7.4
admet/b3db_regression                    mae       random           logBB
"""
MOLECULEACE = (
    "1862_Ki 2034_Ki 204_Ki 214_Ki 219_Ki 231_Ki 234_Ki 236_Ki 237_Ki 239_EC50 262_Ki 2835_Ki 2971_Ki "
    "4005_Ki 4616_EC50"
)


def list_sets() -> Iterator[MeasuredSet]:
    """Yield all sets."""
    for line in TABLE.strip().splitlines():
        path, metric, splits, targets = line.split(maxsplit=3)
        name = path.partition("/")[2]
        yield MeasuredSet(
            name,
            f"{path}.csv.gz",
            () if targets == "all" else tuple(targets.split(",")),
            "classification" if metric in ("roc_auc", "pr_auc") else "regression",
            metric,
            tuple(splits.split(",")),
            4_113 if name == "hiv" else MAX_ROWS,  # a tenth of HIV
        )
    for name in MOLECULEACE.split():
        target = "pki" if name.endswith("Ki") else "pec50"
        file = f"moleculeace/CHEMBL{name}.csv.gz"
        yield MeasuredSet(f"CHEMBL{name}", file, (target,), "regression", "rmse", ("own",))


SETS = {measured.name: measured for measured in list_sets()}


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
    """
    path = folder / measured.file
    with open_table(path) as table:
        columns = table.names
    names = measured.targets or tuple(name for name in columns if name not in measured.ignored)
    split_column = ["split"] if measured.splits == ("own",) else []
    smiles: list[str] = []
    words: list[str] = []
    values = []
    for chunk in read_columns(path, ["smiles", *names, *split_column]):
        smiles += [text.strip() for text in chunk["smiles"]]
        words += chunk["split"] if split_column else []
        values.append(np.stack([numbers(chunk[name], name, chunk.where) for name in names], axis=1))
    table_values = np.concatenate(values)
    described = describe(smiles, path, cache)
    is_usable = np.array([reason is None for reason in described.errors]) & np.isfinite(table_values).any(1)
    rows = np.flatnonzero(is_usable)
    if not split_column:
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
        [words[row] for row in rows] if split_column else [],
    )


def describe(smiles: list[str], file: Path, cache: Path) -> DescribedMolecules:
    """Describe all rows of a table, or read their descriptions from `cache`."""
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
    described = describe_molecules(smiles)
    return {
        "descriptors": described.descriptors,
        "counts": described.counts,
        "canonical": np.array(described.canonical),
        "scaffolds": np.array(scaffolds(described.canonical)),  # with the rings of counterions
        "parents": np.array(described.parents),
        "errors": np.array([reason or "" for reason in described.errors]),
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
    all_rows = np.arange(len(molecules.smiles))
    if split == "own":
        is_test = np.array([word == "test" for word in molecules.own_split])
        known, test = all_rows[~is_test], all_rows[is_test]
    else:
        groups = molecules.scaffolds if split == "scaffold" else None
        shares = {"valid": VALID_FRACTION, "test": TEST_FRACTION}
        parts = Division(shares, seed).divide({"train": all_rows}, split, groups=groups)
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
