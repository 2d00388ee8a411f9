"""Fit a model to a table of molecules with measured values, in one call.

Every molecule is described by RDKit's descriptors, Morgan counts and the embedding of a trained encoder. The
encoder is also fine-tuned once for each fold, on the other folds. For each target, the learners of
`molslice.learners` are fitted once for each fold. They and the networks are weighted by their predictions for
the rows that they have not seen. The model is measured on held-out rows, beside a random forest and gradient
boosting on the same rows and features. Nothing is chosen on the held-out rows.
"""

import operator
import os
import time
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from molslice.chem import FRAGMENTS, WILDCARDS
from molslice.data.molecules.csv import checked_units
from molslice.data.molecules.input_files import check_rereadable, find_files
from molslice.data.target_values import listed_values
from molslice.files.atomic import atomic_folder, is_taken
from molslice.files.cache import file_checksum
from molslice.files.processes import check_workers, count_cores
from molslice.files.progress import Progress
from molslice.files.received import LARGEST_ARRAYS
from molslice.files.tables import NumberFormat
from molslice.files.urls import File, Url, as_file, file_size
from molslice.fitting.classes import listed_words
from molslice.fitting.data import Duplicates, FitOptions, Scale
from molslice.fitting.folds import assign_folds
from molslice.fitting.learner_fits import LearnerFits
from molslice.fitting.networks import DEVICES, affordable_epochs, fine_tune
from molslice.fitting.record import describe_factors, summarize, write_fit
from molslice.fitting.table import checked_targets, read_fit_data
from molslice.folders.fitted import FINE_TUNED, save_encoder
from molslice.folders.run import model_file
from molslice.inference.load import find_model, load_encoder
from molslice.learners import Features
from molslice.learners.fold_averages import by_member
from molslice.learners.gaussian_process import stored_bytes
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained
from molslice.tasks.several_classes import learned_targets
from molslice.tasks.targets import Kind
from molslice.types import MolsliceError

__all__ = ["fit"]

MIN_FOLDS, MAX_FOLDS = 2, 20
MAX_SEED = 2**32 - 1 - MAX_FOLDS  # of scikit-learn; each model adds its number, below MAX_FOLDS
PARALLEL_ROWS = 1_000  # fewer rows take less time than starting worker processes


def fit(
    data: File | str,
    target: str | Sequence[str],
    out: Path | str,
    *,
    smiles_column: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    missing_values: float | str | Sequence[float | str] = (),
    outliers: str = "refuse",
    kind: Kind | None = None,
    positive: str | Sequence[str] = (),
    order: str | Sequence[str] = (),
    class_weight: str | None = None,
    scale: Scale | None = None,
    units: str | Sequence[str | None] | None = None,
    split: str = "random",
    duplicates: Duplicates = "average",
    fragment: str = "keep",
    wildcards: str = "refuse",
    strict: bool = False,
    members: int = 5,
    minutes: float | None = None,
    seed: int = 0,
    encoder: Path | str | None = DEFAULT_ENCODER,
    workers: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
) -> dict[str, Any]:
    """Fit a model to a table and write its folder.

    Args:
        data: A table (a path, a URL, or a pattern such as `parts/*.csv` for several files) with a column of
            SMILES and columns of measured values: separated values, Parquet, JSON lines or SDF, also
            compressed with gzip or Zstandard.
        target: The measured column or columns. An empty cell is a missing value.
        out: The folder to write; it must not exist or be empty.
        smiles_column: The column of SMILES; None finds it.
        delimiter: The character between cells; None finds it.
        decimal: The decimal mark of the targets, `.` or `,`; with `,`, a point separates thousands.
        missing_values: Values that stand for a missing value too, such as -999 or `n.d.`.
        outliers: Whether to `refuse` targets with values far outside the others, or to `keep` them. See
            `molslice.data.target_values.find_outliers`.
        kind: `regression`, `classification` (0 and 1, or two words) or `multiclass` (three classes or more);
            None finds it.
        positive: The word of class 1 of a target with two classes; one for each such target.
        order: The names of three or more classes from the lowest to the highest, such as `low,medium,high` or
            a list. The classes are then learned as ordered.
        class_weight: `balanced` if all classes have the same weight in the learners; None if all rows have.
            Probabilities are calibrated to the shares of the classes in both cases. The networks learn
            without weights.
        scale: Whether the learners predict the values of a number (`linear`) or their logarithms (`log`);
            None finds it for each target. Predictions are in the unit of the target in both cases.
        units: Unit of all targets, or one for each; None for no unit.
        split: How to hold rows out: `random` (one tenth of the compounds), `scaffold` (one tenth, with
            scaffolds that no training row has), `all` (no row is held out; only cross-validated errors are
            measured), or the name of a column that holds train, valid or test (valid rows are training rows).
        duplicates: Several rows of one molecule: `average` (classes that disagree count as missing), `keep`,
            or `refuse`.
        fragment: What happens to a mixture, in the fit and in predictions: `keep` it, take its `largest`
            molecule, or `refuse` it. See `molslice.chem.fragments.choose_fragment`.
        wildcards: What happens to a row with a wildcard, in the fit and in predictions: `refuse` it, or
            `keep` it as a graph.
        strict: Whether to refuse a table with a SMILES that cannot be read. Otherwise such rows are left out
            and counted.
        members: Number of folds into which the rows are divided, twice if there are at most ten folds and
            2,000 training rows. The predictions of all models are averaged.
        minutes: Learners and baselines that would start later are left out; at least one is fitted. The rows
            are divided into folds a second time only if one division takes less than a quarter of the time
            that is left. The encoder is fine-tuned for as many epochs as the time that is left allows.
        seed: Seed of the split, the folds and the learners.
        encoder: A trained encoder whose embeddings are features too, and which is fine-tuned: a run folder or
            the name of a shipped model; None for no encoder.
        workers: Processes that compute descriptors; None for all cores in large tables.
        device: Where the encoder computes and is fine-tuned: `cpu`, `cuda` (the first GPU) or `mps`.
        quiet: Whether to hide progress.

    Returns:
        The content of `fit.json`.

    Raises:
        MolsliceError: The table cannot be used, or `out` exists.
    """
    start = time.monotonic()
    path, folder = _as_table(data), Path(_as_path("out", out))
    workers = None if workers is None else _whole("workers", workers)
    encoder = None if encoder is None else _as_path("encoder", encoder)
    for name, value in {"split": split, "smiles_column": smiles_column, "delimiter": delimiter}.items():
        if not isinstance(value, str) and (name == "split" or value is not None):
            raise MolsliceError(f"{name} must be text, got {value!r}")
    names = checked_targets(target)
    units = checked_units(units, names)
    options = FitOptions(
        smiles_column=smiles_column,
        delimiter=delimiter,
        written=NumberFormat(decimal, listed_values(missing_values)),
        outliers=outliers,
        kind=kind,
        positive=listed_words("positive", positive),
        order=listed_words("order", order),
        class_weight=class_weight,
        scale=scale,
        split=split,
        duplicates=duplicates,
        fragment=fragment,
        wildcards=wildcards,
        strict=strict,
        members=_whole("members", members),
        minutes=minutes,
        seed=_whole("seed", seed),
    )
    files = find_files([path])
    check_rereadable(files)
    _check(files, folder, options, device)
    check_workers(workers)
    if encoder is None and device != "cpu":
        raise MolsliceError(f"device {device!r} needs an encoder: without one, `fit` computes on the CPU")
    if encoder == DEFAULT_ENCODER:  # not a folder of that name in the working directory
        encoder = find_pretrained(DEFAULT_ENCODER)
    # mixtures are replaced before they are described, whatever the encoder was trained with
    network = None if encoder is None else load_encoder(encoder, device, fragment="keep", wildcards="keep")
    # the folder is made first, so that a path that cannot be written fails before the work
    with atomic_folder(folder, alone=True) as partial:
        processes = _count_workers(files, workers)
        checksum = file_checksum(*files)  # of what is read, even if the files change during the fit
        with Progress("descriptors", unit="molecules", shown=not quiet) as described:
            rows = read_fit_data(path, names, options, workers=processes, progress=described.move)
        if class_weight is not None and rows.kind == "regression":
            raise MolsliceError(f"class_weight is for classes; the targets of {path} are numbers")
        places = rows.sort()  # a model does not depend on the order of the rows in the table
        learned = rows.learned
        targets = rows.describe(units)
        canonical = rows.molecules.canonical
        embedding_start = time.monotonic()
        embedding = (
            None if network is None else network.embed(canonical, workers=processes, progress=not quiet)
        )
        embedding_seconds = time.monotonic() - embedding_start
        features = Features(rows.molecules.descriptors, rows.molecules.counts, embedding)
        _check_size(features, learned[~rows.test], path)
        folds = assign_folds(rows, options.members, options.seed, by_scaffold=options.by_scaffold)
        deadline = float("inf") if minutes is None else start + 60.0 * minutes
        with Progress("learners", unit="fits", shown=not quiet) as fits:
            work = LearnerFits(
                rows,
                learned,
                features,
                folds,
                deadline,
                options.seed,
                fits.move,
                balanced=class_weight is not None,
            )
            fitted = work.fit_targets()
        left_out, folds, epochs = work.left_out, work.folds, 0
        if encoder is not None:
            save_encoder(partial, model_file(find_model(encoder)))
            epochs = affordable_epochs(folds[0], deadline - time.monotonic(), embedding_seconds)
            if not epochs:
                left_out.append("fine-tuned networks")
        if encoder is not None and epochs:
            with Progress("networks", unit="folds", shown=not quiet) as tuned:
                networks = fine_tune(
                    encoder,
                    canonical,
                    learned,
                    learned_targets(targets, rows.classes),
                    folds[0],
                    partial,
                    epochs=epochs,
                    seed=options.seed,
                    device=device,
                    progress=tuned.move,
                )
            for index, target_fit in enumerate(fitted):
                held_out = by_member(networks.held_out[:, :, index], options.members, len(folds))
                target_fit.add(FINE_TUNED, networks.unseen[target_fit.rows, index], held_out)
        for index, target_fit in enumerate(fitted):
            target_fit.stack_learners(
                learned[target_fit.rows, index],
                folds[0, target_fit.rows],
                classes=rows.kind != "regression",
                logarithmic=rows.classes is None and rows.logarithmic[index],
            )
            if target_fit.stack.logarithmic:
                rows.findings += describe_factors(rows, target_fit, index)
        record = summarize(
            path,
            files,
            checksum,
            rows,
            targets,
            fitted,
            folds,
            encoder,
            epochs,
            left_out,
            by_scaffold=options.by_scaffold,
        )
        record["fragment"], record["wildcards"] = fragment, wildcards
        record["seconds"] = round(time.monotonic() - start, 1)
        record["options"] = options.to_mapping()
        write_fit(partial, record, rows, fitted, folds, places)
    return record


def _check(files: Sequence[File], folder: Path, options: FitOptions, device: str) -> None:
    if not MIN_FOLDS <= options.members <= MAX_FOLDS:
        raise MolsliceError(f"members must be from {MIN_FOLDS} to {MAX_FOLDS}, got {options.members}")
    minutes = options.minutes
    if minutes is not None and not (isinstance(minutes, Real) and minutes > 0):
        raise MolsliceError(f"minutes must be a positive number, got {minutes!r}")
    if not 0 <= options.seed <= MAX_SEED:
        raise MolsliceError(f"the seed must be from 0 to {MAX_SEED}, got {options.seed}")
    for name, value, choices in (
        ("kind", options.kind, (None, "regression", "classification", "multiclass")),
        ("class_weight", options.class_weight, (None, "balanced")),
        ("scale", options.scale, (None, "linear", "log")),
        ("duplicates", options.duplicates, ("average", "keep", "refuse")),
        ("fragment", options.fragment, FRAGMENTS),
        ("wildcards", options.wildcards, WILDCARDS),
        ("device", device, DEVICES),
    ):
        if value not in choices:
            listed = ", ".join(choice for choice in choices if choice)
            raise MolsliceError(f"unknown {name} {value!r}; choices: {listed}")
    for table in files:
        if isinstance(table, Path) and folder.exists() and table.exists() and folder.samefile(table):
            raise MolsliceError(f"{folder} is the table; choose another folder for the model")
    if is_taken(folder):
        raise MolsliceError(f"{folder} exists; choose another folder, or remove it")


def _check_size(features: Features, values: np.ndarray, path: File) -> None:
    """Refuse, before the work, so many targets that the written learners could not be read again."""
    if sum(stored_bytes(features, int(rows)) for rows in np.isfinite(values).sum(0)) > LARGEST_ARRAYS:
        raise MolsliceError(
            f"{path}: a model of {values.shape[1]:,} targets has more than {LARGEST_ARRAYS:,} bytes; "
            "fit fewer targets at once"
        )


def _as_table(data: File | str) -> File:
    if not isinstance(data, str | os.PathLike | Url):
        raise MolsliceError(
            f"data must be the path or URL of a table, got {type(data).__name__}; write it to a file, or use "
            "MolsliceRegressor or MolsliceClassifier"
        )
    return as_file(data)


def _as_path(name: str, value: Path | str) -> Path | str:
    if not isinstance(value, str | os.PathLike):
        raise MolsliceError(f"{name} must be a path, got {value!r}")
    return value


def _whole(name: str, value: SupportsIndex) -> int:
    """Return an integer of any type, such as one of numpy, as an int."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise MolsliceError(f"{name} must be an integer, got {value!r}") from error


def _count_workers(files: Sequence[File], workers: int | None) -> int:
    if workers is not None:
        return workers
    try:
        small = sum(map(file_size, files)) < PARALLEL_ROWS * 20  # about 20 bytes a row, compressed
    except OSError:
        return 0  # the reader says what is wrong
    return 0 if small else count_cores()
