"""Fit a model to a table of molecules with measured values, in one call.

Every molecule is described by RDKit's descriptors, Morgan counts and the embedding of a trained encoder. The
encoder is also fine-tuned once for each fold, on the other folds. For each target, the learners of
`molslice.learners` are fitted once for each fold. They and the networks are weighted by their predictions for
the rows that they have not seen. The model is measured on held-out rows, beside a random forest and gradient
boosting on the same rows and features. Nothing is chosen on the held-out rows.
"""

import functools
import operator
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from molslice.chem import FRAGMENTS, STANDARDS, WILDCARDS
from molslice.data.molecules.csv import checked_units
from molslice.data.molecules.input_files import check_rereadable, find_files
from molslice.data.target_values import listed_values
from molslice.errors import MolsliceError
from molslice.files.atomic import atomic_folder
from molslice.files.cache import file_checksum
from molslice.files.processes import check_workers, count_cores
from molslice.files.progress import Phases, Progress
from molslice.files.received import LARGEST_ARRAYS
from molslice.files.tables import NumberFormat
from molslice.files.urls import File, Url, as_file, file_size
from molslice.fitting.classes import listed_orders, listed_words
from molslice.fitting.columns import checked_columns, checked_targets, columns_of_targets, names_without_units
from molslice.fitting.conditions import cover_conditions
from molslice.fitting.data import Duplicates, FitData, FitOptions, Limits, Scale, Transform
from molslice.fitting.encoder_use import EncoderUse, may_start_process, read_for_encoder
from molslice.fitting.expected_time import expected_seconds
from molslice.fitting.first_checks import (
    MAX_FOLDS,
    MAX_SEED,
    MIN_FOLDS,
    check_folder,
    check_times,
    refits_all,
)
from molslice.fitting.quality import QUALITIES
from molslice.fitting.record import summarize, write_fit
from molslice.fitting.related import (
    RelatedFit,
    RelatedTable,
    RelatedTarget,
    fit_related,
    listed_related,
    read_related,
)
from molslice.fitting.stacks import Stacks, fit_stacks
from molslice.fitting.table import read_fit_data
from molslice.fitting.target_checks import describe_without_logarithm
from molslice.fitting.tuning import NOT_TUNED, TrialLog, log_file, log_key, tune_learners
from molslice.folders.fitted import ENCODER, save_encoder
from molslice.folders.run import model_file
from molslice.inference.load import find_model, load_encoder, name_device
from molslice.learners import Features
from molslice.learners.gaussian_process import stored_bytes
from molslice.pretrained import DEFAULT_ENCODER, find_pretrained
from molslice.tasks.targets import Kind

DEVICES = ("cpu", "cuda", "mps")
PARALLEL_ROWS = 1_000  # fewer rows take less time than starting worker processes


def fit(
    data: File | str,
    target: str | Sequence[str],
    out: Path | str,
    *,
    smiles_column: str | Sequence[str] | None = None,
    symmetric: bool = False,
    delimiter: str | None = None,
    decimal: str | None = None,
    missing_values: float | str | Sequence[float | str] = (),
    outliers: str = "refuse",
    kind: Kind | Sequence[Kind | None] | None = None,
    positive: str | Sequence[str] = (),
    order: str | Sequence[str] | Sequence[Sequence[str]] = (),
    class_weight: str | None = None,
    scale: Scale | None = None,
    units: str | Sequence[str | None] | None = None,
    split: str = "random",
    by: str | None = None,
    groups: str | None = None,
    conditions: str | Sequence[str] = (),
    related: str | Sequence[str | tuple[File | str, str]] = (),
    duplicates: Duplicates = "average",
    limits: Limits = "learn",
    relation: str | Sequence[str | None] | None = None,
    unit_column: str | Sequence[str | None] | None = None,
    transform: Transform | None = None,
    weight: str | None = None,
    error: str | Sequence[str | None] | None = None,
    fragment: str = "keep",
    wildcards: str = "refuse",
    standardize: str = "no",
    strict: bool = False,
    members: int = 5,
    minutes: float | None = None,
    seed: int = 0,
    refit: bool | None = None,
    quality: str = "good",
    tune: float | None = None,
    encoder: Path | str | None = DEFAULT_ENCODER,
    workers: int | None = None,
    device: str = "cpu",
    quiet: bool = False,
    announce: Callable[[FitData, float], None] | None = None,
) -> dict[str, Any]:
    """Fit a model to a table and write its folder.

    Args:
        data: A table (a path, a URL, or a pattern such as `parts/*.csv` for several files) with a column of
            SMILES and columns of measured values: separated values, Parquet, JSON lines or SDF, also
            compressed with gzip or Zstandard.
        target: The measured column or columns. An empty cell is a missing value.
        out: The folder to write; it must not exist or be empty.
        smiles_column: The column of SMILES; None finds it. Two columns, such as a solute and a solvent, are
            the molecules of a pair; all rows with one first molecule are in one fold or held out.
        symmetric: Whether swapping the molecules of a pair changes nothing. The first molecule is then the
            one with fewer partners in the table.
        delimiter: The character between cells; None finds it.
        decimal: The decimal mark of the targets, `.` or `,`; with `,`, a point separates thousands.
        missing_values: Values that stand for a missing value too, such as -999 or `n.d.`.
        outliers: Whether to `refuse` targets with values far outside the others, or to `keep` them. See
            `molslice.data.target_values.find_outliers`.
        kind: `regression`, `classification` (0 and 1, or two words) or `multiclass` (three classes or more),
            of all targets, or one for each; None finds it.
        positive: The word of class 1 of a target with two classes; one for each such target.
        order: The names of three or more classes from the lowest to the highest, such as `low,medium,high` or
            a list. The classes are then learned as ordered. A list of such lists is for several targets; an
            order is for the targets that have some of its words.
        class_weight: `balanced` if all classes have the same weight in the learners; None if all rows have.
            Probabilities are calibrated to the shares of the classes in both cases. The networks learn
            without weights.
        scale: Whether the learners predict the values of a number (`linear`) or their logarithms (`log`);
            None finds it for each target. Predictions are in the unit of the target in both cases.
        units: Unit of all targets, or one for each; "" for no unit. None takes it from brackets at the end of
            the name of a column, such as `logS [log mol/L]`; the target is then called `logS`.
        split: How to hold rows out: `random` (one tenth of the compounds), `scaffold` (one tenth, with
            scaffolds that no training row has), `cluster` (one tenth, in whole clusters of similar
            compounds), `time` (about one tenth, those first measured last; see `by`), `all` (no row is held
            out; only cross-validated errors are measured), or the name of a column that holds train, valid or
            test (valid rows are training rows).
        by: The column of the dates for the split `time`.
        groups: A column, such as the project or the laboratory. Rows with the same word in it are all held
            out or all in one fold, like rows of one compound. A row with an empty cell is its own group.
        conditions: Columns of numbers or categories, such as a temperature or an assay, that the learners
            take beside the molecule, and that predictions need too. See `molslice.fitting.conditions`.
        related: Measured columns of other tables, numbers or two classes, such as `other.csv:logP` or
            `("other.csv", "logP")`. A Gaussian process is fitted to each, and its predictions are features of
            the learners. See `molslice.fitting.related`.
        duplicates: Several rows of one molecule (in the same conditions): `average` (classes that disagree
            count as missing), `keep`, or `refuse`.
        limits: What happens to limits such as `>10` in a cell of a target, or `10` with `>` in a column of
            relations: `learn` them as limits, `drop` them, or learn them as `exact` values.
        relation: The column of relations, or one for each target; None finds it if there is one target and
            one such column.
        unit_column: The column of units, or one for each target; None finds it if there is one target and one
            such column, "" for no column. Several concentrations, such as nM and ug/mL, are converted to the
            unit in `units`, or to the most frequent one.
        transform: `p` learns and predicts the negative common logarithm of concentrations in mol/L, such as
            pIC50; the values need a unit.
        weight: A column of positive numbers: how much a row counts in the learners and their weights, but not
            in errors that are reported, nor in fine-tuned networks. An empty cell counts as the median.
        error: The column of standard errors in the unit of the target, or one for each target: noise of the
            row in the Gaussian process, and a smaller weight in the other learners. As for `weight`.
        fragment: What happens to a mixture, in the fit and in predictions: `keep` it, take its `largest`
            molecule, or `refuse` it. See `molslice.chem.fragments.choose_fragment`.
        wildcards: What happens to a row with a wildcard, in the fit and in predictions: `refuse` it, or
            `keep` it as a graph.
        standardize: What standard form molecules get, in the fit and in predictions: `no`, `neutral` (groups
            written in one way, and no charges where protons can balance them) or `tautomer` (also the
            canonical tautomer). See `molslice.chem.standardize.standardize`.
        strict: Whether to refuse a table with a SMILES that cannot be read. Otherwise such rows are left out
            and counted.
        members: Number of folds into which the rows are divided, twice if there are at most ten folds and
            2,000 training rows. The predictions of all models are averaged.
        minutes: Learners and baselines that would start later are left out; at least one is fitted. After a
            measurement on held-out rows, the same learners are fitted to all rows. The rows are divided into
            folds a second time only if one division takes less than a quarter of the time that is left. The
            encoder is fine-tuned for as many epochs as the time that is left allows.
        seed: Seed of the split, the folds and the learners.
        refit: Whether to fit the model again to all rows after the error on held-out rows is measured.
            Otherwise, the model has not learned the held-out rows. None does it unless a column holds the
            rows out.
        quality: `fast` (extra trees and a Gaussian process, one division into folds), `good` (also boosting,
            two divisions), or `best` (also networks: the encoder is fine-tuned for each fold).
        tune: Minutes in which the settings of the learners are first chosen by cross-validation within the
            training rows; None for the defaults. A fit that is interrupted continues with the same call.
        encoder: A trained encoder whose embeddings are features too, and which `best` fine-tunes: a run
            folder or the name of a shipped model; None for no encoder.
        workers: Processes that compute descriptors; None for all cores in large tables.
        device: Where the encoder computes and is fine-tuned: `cpu`, `cuda` (the first GPU), `mps`, or `auto`
            for `cuda` if it is available and there is an encoder, else `cpu`.
        quiet: Whether to hide progress.
        announce: Called before the fit with its rows, which have the findings about the table, and with the
            expected time in seconds.

    Returns:
        The content of `fit.json`.

    Raises:
        MolsliceError: The table cannot be used, or `out` exists.
    """
    start = time.monotonic()
    path, folder = _as_table(data), Path(_as_path("out", out))
    workers = None if workers is None else _whole("workers", workers)
    encoder = None if encoder is None else _as_path("encoder", encoder)
    first, partner = _pair(smiles_column, symmetric)
    texts = {"smiles_column": first, "delimiter": delimiter, "by": by, "groups": groups, "weight": weight}
    for name, value in {"split": split, **texts}.items():
        if not isinstance(value, str) and (name == "split" or value is not None):
            raise MolsliceError(f"{name} must be text, got {value!r}")
    names = checked_targets(target)
    of_targets = checked_units(units, names)
    options = FitOptions(
        smiles_column=first,
        partner_column=partner,
        symmetric=symmetric,
        delimiter=delimiter,
        written=NumberFormat(decimal, listed_values(missing_values)),
        outliers=outliers,
        kinds=_kinds(kind, names),
        positive=listed_words("positive", positive),
        order=listed_orders(order),
        class_weight=class_weight,
        scale=scale,
        split=split,
        by=by,
        groups=groups,
        conditions=checked_columns("condition", conditions),
        duplicates=duplicates,
        limits=limits,
        relations=columns_of_targets("relation", relation, names),
        units=of_targets,
        names=names_without_units(names, units),
        unit_columns=columns_of_targets("unit_column", unit_column, names),
        transform=transform,
        weight=weight,
        errors=columns_of_targets("error", error, names),
        fragment=fragment,
        wildcards=wildcards,
        standardize=standardize,
        strict=strict,
        members=_whole("members", members),
        minutes=minutes,
        seed=_whole("seed", seed),
        refit=refits_all(split, refit),
        quality=quality,
        tune=tune,
    )
    device = name_device(device, computes=encoder is not None)
    files = find_files([path])
    check_rereadable(files)
    others = listed_related(related, files, names, pairs=partner is not None)
    _check([*files, *map(attrgetter("file"), others)], folder, options, device)
    check_workers(workers)
    if encoder is None and device != "cpu":
        raise MolsliceError(f"device {device!r} needs an encoder: without one, `fit` computes on the CPU")
    if encoder == DEFAULT_ENCODER:  # not a folder of that name in the working directory
        encoder = find_pretrained(DEFAULT_ENCODER)
    if encoder is not None:
        load_encoder(encoder, device)  # refuses anything else before the work
    # the folder is made first, so that a path that cannot be written fails before the work
    with atomic_folder(folder, alone=True) as partial:
        processes = _count_workers(files, workers)
        checksum = file_checksum(*files)  # of what is read, even if the files change during the fit
        with Progress("descriptors", unit="molecules", shown=not quiet) as described:
            reading = time.monotonic()
            read = read_fit_data(path, names, options, workers=processes, progress=described.move)
            reading = max(1, processes) * (time.monotonic() - reading)
        read.sort()  # a model does not depend on the order of the rows in the table
        rows, learned, kept = _divide(read, refit=options.refit)
        refits = rows is not learned
        expected = expected_seconds(
            rows,
            options,
            reading,
            refits=refits,
            has_encoder=encoder is not None,
            tables=[*map(_described, others)],
        )
        (announce or _say_nothing)(read if refits else rows, sum(expected.values()))
        with Phases(expected, shown=not quiet) as phases:
            encoder_use, embed, molecules = None, _no_embedding, None
            if encoder is not None:
                phases.begin("embedding")
                save_encoder(partial, model_file(find_model(encoder)))
                count = processes if device == "cpu" else workers
                embed, molecules = read_for_encoder(partial / ENCODER, device, learned, options, count)
            embedding_start = time.monotonic()
            features = learned.features(embed)
            taken = features if len(kept) == len(features) else features[kept]
            taken = replace(taken, conditions=rows.encoded_conditions)
            if encoder is not None:
                seconds = time.monotonic() - embedding_start
                beside = workers != 0 and may_start_process(device)
                encoder_use = EncoderUse(encoder, device, seconds, molecules, has_process=beside)
            tables = _read_tables(others, options, embed, workers, phases)
            known = learned.known[~learned.test]
            parts = [target_type.num_parts for target_type in rows.types]
            _check_size(features, np.repeat(known.sum(0), parts), path, tables)
            of_related, taken = _add_related(tables, rows, taken, options, phases)
            tuning, log = NOT_TUNED, log_file(folder)
            if tune is not None:
                inputs = " ".join([checksum, *map(str, map(attrgetter("checksum", "target.column"), tables))])
                trials = TrialLog(log, log_key(inputs, names, options, encoder))
                tuning = tune_learners(rows, taken, options, trials, progress=phases.begin("tuning"))
            now, end = time.monotonic(), float("inf") if minutes is None else start + 60.0 * minutes
            measured = fit_stacks(
                rows,
                taken,
                options,
                encoder_use and encoder_use.take(kept),
                partial,
                tuning.settings,
                deadline=now + (end - now) / 2 if refits else end,
                only_measures=refits,
                begin=phases.begin,
            )
            rows.findings += describe_without_logarithm(rows, refits=refits)
            model = measured
            if refits:
                of_related, taken = _add_related(tables, learned, features, options, phases)
                model = fit_stacks(
                    learned,
                    taken,
                    options,
                    encoder_use,
                    partial,
                    tuning.settings,
                    deadline=end,
                    only_measures=False,
                    measured=measured,
                    begin=phases.begin,
                )
            plain = (features, options, None, partial, tuning.settings)
            alone = _fit_alone(learned, plain, phases) if tables else None
            record = summarize(
                path, files, checksum, rows, measured, learned, model, encoder, options, of_related, alone
            )
        if tune is not None:
            record["tuning"] = tuning.trials
        record["seconds"] = round(time.monotonic() - start, 1)
        write_fit(partial, record, rows, measured, learned, model, of_related)
    if tune is not None:
        log.unlink(missing_ok=True)
    return record


def _check(files: Sequence[File], folder: Path, options: FitOptions, device: str) -> None:
    if not MIN_FOLDS <= options.members <= MAX_FOLDS:
        raise MolsliceError(f"members must be from {MIN_FOLDS} to {MAX_FOLDS}, got {options.members}")
    check_times(options.minutes, options.tune)
    if not 0 <= options.seed <= MAX_SEED:
        raise MolsliceError(f"the seed must be from 0 to {MAX_SEED}, got {options.seed}")
    for name, value, choices in (
        *(("kind", kind, (None, "regression", "classification", "multiclass")) for kind in options.kinds),
        ("class_weight", options.class_weight, (None, "balanced")),
        ("scale", options.scale, (None, "linear", "log")),
        ("duplicates", options.duplicates, ("average", "keep", "refuse")),
        ("transform", options.transform, (None, "p")),
        ("limits", options.limits, ("learn", "drop", "exact")),
        ("fragment", options.fragment, FRAGMENTS),
        ("wildcards", options.wildcards, WILDCARDS),
        ("quality", options.quality, tuple(QUALITIES)),
        ("standardize", options.standardize, STANDARDS),
        ("device", device, ("auto", *DEVICES)),
    ):
        if value not in choices:
            listed = ", ".join(choice for choice in choices if choice)
            raise MolsliceError(f"unknown {name} {value!r}; choices: {listed}")
    if options.partner_column is not None and options.standardize != "no":
        raise MolsliceError("standardize does not support pairs; standardize the table first")
    check_folder(folder, files)


def _divide(data: FitData, *, refit: bool) -> tuple[FitData, FitData, np.ndarray]:
    """Divide the rows of a table into what the error is measured with, and what the model learns.

    Returns:
        The rows with which the error is measured; the rows of the model, which are the same without `refit`
        or a held-out row; and which of the second the first are, int [k].
    """
    rows, kept, _ = cover_conditions(data)
    if not refit:
        return rows, rows, np.arange(len(rows.smiles))
    all_rows = cover_conditions(replace(data, test=np.zeros_like(data.test))).rows
    if not rows.test.any():
        return all_rows, all_rows, np.arange(len(all_rows.smiles))
    # a held-out value without a logarithm is not learned
    return rows, replace(all_rows, test=data.test & ~all_rows.is_learnable, findings=[]), kept


def _read_tables(
    targets: Sequence[RelatedTarget],
    options: FitOptions,
    embed: Callable[[list[str]], np.ndarray | None],
    workers: int | None,
    phases: Phases,
) -> list[RelatedTable]:
    """Read the related targets one by one."""
    tables = []
    for target in targets:
        move, count = phases.begin(_described(target)), _count_workers(find_files([target.file]), workers)
        tables.append(read_related(target, options, embed, workers=count, progress=move))
    return tables


def _described(target: RelatedTarget) -> str:
    """Name the phase in which the molecules of a related table are described."""
    return f"descriptors of {target.file.name}"


def _fit_alone(rows: FitData, shared: tuple[Any, ...], phases: Phases) -> Stacks | None:
    """Fit training rows without related targets, to compare.

    Returns None if this would take too long, or the settings are tuned with the related targets.

    `shared` are the arguments of `fit_stacks` after the rows.
    """
    features, options, *others = shared
    if options.minutes is not None or options.tune is not None or QUALITIES[options.quality].fine_tunes:
        return None
    kept = np.flatnonzero(~rows.test)
    trained = replace(rows, findings=[])
    trained.keep(kept)
    limits = {"deadline": float("inf"), "only_measures": False}
    begin = functools.partial(phases.begin, "without related targets")
    return fit_stacks(trained, features[kept], options, *others, **limits, begin=lambda _: begin())


def _add_related(
    tables: Sequence[RelatedTable], rows: FitData, features: Features, options: FitOptions, phases: Phases
) -> tuple[list[RelatedFit], Features]:
    """Fit the related targets without the held-out compounds, and add their predictions to features."""
    if not tables:
        return [], features
    alone, fits = replace(features, conditions=None), list[RelatedFit]()
    move = phases.begin("related targets")
    for table in tables:
        fits.append(fit_related(table, rows, alone, options))
        move(len(fits), len(tables))
    return fits, features.with_conditions([related_fit.column for related_fit in fits])


def _check_size(features: Features, known: np.ndarray, path: File, tables: Sequence[RelatedTable]) -> None:
    """Refuse, before the work, so many targets that the written learners could not be read again.

    `known` is the number of rows with a value or a limit for each column that is learned, int [P]; `tables`
    are the related targets.
    """
    counts = [*known, *(len(table.features) for table in tables)]
    if sum(stored_bytes(features, int(rows)) for rows in counts) > LARGEST_ARRAYS:
        raise MolsliceError(
            f"{path}: a model of {len(known):,} targets has more than {LARGEST_ARRAYS:,} bytes; "
            "fit fewer targets at once"
        )


def _say_nothing(rows: FitData, seconds: float) -> None:
    """Do nothing with the rows before the fit."""


def _no_embedding(smiles: Sequence[str]) -> None:
    """Return no embeddings of molecules."""


def _pair(columns: str | Sequence[str] | None, symmetric: bool) -> tuple[Any, str | None]:
    """Return the columns of the first and of the second molecule; None for one that is not given."""
    if columns is None or isinstance(columns, str) or not isinstance(columns, Sequence):
        names = (columns,)
    elif len(names := checked_columns("smiles_column", columns)) not in (1, 2):
        raise MolsliceError(f"give one column of SMILES, or two for pairs of molecules, got {len(names)}")
    if symmetric and len(names) < 2:
        raise MolsliceError("symmetric needs two columns of SMILES")
    return names[0], names[1] if len(names) > 1 else None


def _kinds(kind: Kind | Sequence[Kind | None] | None, names: Sequence[str]) -> tuple[Kind | None, ...]:
    """Return the kind of each target; None for one that is to be found."""
    listed: Any = (kind,) if kind is None or isinstance(kind, str) else kind
    if not isinstance(listed, Sequence) or len(listed) not in (1, len(names)):
        raise MolsliceError(f"kind must be one, or one for each target ({len(names)}), got {kind!r}")
    return (*listed,) * (1 if len(listed) == len(names) else len(names))


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
