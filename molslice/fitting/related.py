"""Related targets: measured targets of other tables, whose predictions are features of the learners.

A Gaussian process is fitted to each related target. The feature of a molecule that has a measured related
value is predicted by the model of the fold without its compound, as for a molecule without one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from molslice.data.molecules.input_files import check_rereadable, find_files, place_of
from molslice.data.molecules.tables import open_molecules
from molslice.errors import MolsliceError
from molslice.files.cache import file_checksum
from molslice.files.urls import File
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.folds import divide_into_folds
from molslice.fitting.related_target import RelatedTarget
from molslice.fitting.table import read_fit_data
from molslice.fitting.target_checks import check_targets
from molslice.folders.fitted import RelatedModel
from molslice.learners import Features
from molslice.learners.gaussian_process import GaussianProcess
from molslice.number_text import counted
from molslice.tasks.metrics import METRIC_LABELS, format_metric
from molslice.tasks.standard_errors import MeasuredMetric


@dataclass(frozen=True, slots=True)
class RelatedTable:
    """The rows of a related target.

    Attributes:
        target: Where it is.
        checksum: SHA-256 of the files.
        data: The rows.
        features: Their features.
    """

    target: RelatedTarget
    checksum: str
    data: FitData
    features: Features


@dataclass(frozen=True, slots=True)
class RelatedFit:
    """A related target in the rows of a fit.

    Attributes:
        model: What predicts it.
        column: The feature of each row of the fit, float64 [n].
        record: What `fit.json` has about it.
        findings: What was found, one sentence each.
    """

    model: RelatedModel
    column: np.ndarray
    record: dict[str, Any]
    findings: list[str]


def listed_related(
    related: str | Sequence[str | tuple[File | str, str]],
    files: Sequence[File],
    targets: Sequence[str],
    *,
    pairs: bool,
) -> list[RelatedTarget]:
    """Return the related targets of a fit to `targets` of the table in `files`, whose rows may be `pairs`.

    Raises:
        MolsliceError: A related target is invalid or repeated, its table or column cannot be read, it is a
            target of the fit, or the rows are pairs.
    """
    if not isinstance(related, str | list | tuple):
        raise MolsliceError(f"related must be FILE:COLUMN or a list of them, got {related!r}")
    names = [name.strip() for name in targets]
    taken = {
        (place_of(file), name): "the target, and cannot be related to itself"
        for file in files
        for name in names
    }
    listed: list[RelatedTarget] = []
    for given in [related] if isinstance(related, str) else related:
        related_target = RelatedTarget.of(given)
        paths = find_files([related_target.file])
        check_rereadable(paths)
        with open_molecules(paths) as table:
            table.find(related_target.column)
        for path in paths:
            place = place_of(path), related_target.column
            if place in taken:
                raise MolsliceError(f"{path}: {related_target.column!r} is {taken[place]}")
            taken[place] = "given twice as a related target"
        listed.append(related_target)
    if listed and pairs:
        raise MolsliceError("related targets are for single molecules, but the rows have two")
    return listed


def read_related(
    target: RelatedTarget,
    options: FitOptions,
    embed: Callable[[list[str]], np.ndarray | None],
    *,
    workers: int,
    progress: Callable[[int, int], None],
) -> RelatedTable:
    """Read the rows of a related target as a fit does; only `options` about reading apply.

    Raises:
        MolsliceError: The table cannot be used, or the target has more than two classes.
    """
    reading = FitOptions(
        written=options.written,
        outliers=options.outliers,
        limits=options.limits,
        fragment=options.fragment,
        wildcards=options.wildcards,
        standardize=options.standardize,
        strict=options.strict,
        split="all",
    )
    checksum = file_checksum(*find_files([target.file]))
    data = read_fit_data(target.file, [target.column], reading, workers=workers, progress=progress)
    if (several := data.types[0].several) is not None:
        raise MolsliceError(
            f"{target.file}, column {target.column!r}: {len(several.names)} classes; a related target "
            "is a number or has two classes"
        )
    data.sort()
    return RelatedTable(target, checksum, data, data.features(embed))


def fit_related(table: RelatedTable, rows: FitData, features: Features, options: FitOptions) -> RelatedFit:
    """Fit a model to a related target without the held-out compounds of a fit, and predict its rows.

    If scaffolds divide the rows of the fit, they divide the related rows too.

    Args:
        table: The related target.
        rows: The rows of the fit.
        features: Their features, without conditions.
        options: Options of the fit.

    Raises:
        MolsliceError: Too few rows are left, or they cannot be divided into folds.
    """
    grouped_by = "scaffold" if options.split == "scaffold" else "compound"
    data, names = replace(table.data, grouped_by=grouped_by, findings=[]), rows.group_names(grouped_by)
    held_out = {name for name, test in zip(names, rows.test, strict=True) if test}
    known = data.labels(0).known
    kept = [
        row for row, name in enumerate(data.group_names(grouped_by)) if known[row] and name not in held_out
    ]
    data.losses = [*data.losses, f"{counted(len(known) - len(kept))} with a held-out {grouped_by}"]
    data.keep(np.array(kept, int))
    check_targets(data, table.target.file)
    try:
        folds = divide_into_folds(data, options.members, options.seed)
    except MolsliceError as error:
        raise MolsliceError(f"{table.target.file}, column {table.target.column!r}: {error}") from error
    of_target = data.types[0]
    learner, unseen = GaussianProcess.fit(
        table.features[np.array(kept, int)],
        data.labels(0),
        folds,
        classes=of_target.has_classes,
        seed=options.seed,
    )
    of_folds = learner.predict(features)
    predicted = of_folds.mean(0)
    fold_of = dict(zip(data.group_names(grouped_by), folds.tolist(), strict=True))
    for row, name in enumerate(names):
        if name in fold_of:
            predicted[row] = of_folds[fold_of[name], row]
    trained = predicted[~rows.test]
    model = RelatedModel(learner, float(trained.mean()), float(trained.std()) or 1.0)
    unseen = 10.0**unseen if data.logarithmic[0] else unseen
    truth = data.nearest(unseen, np.arange(len(unseen)), 0)
    error = MeasuredMetric.of(of_target.kind, unseen, truth, data.number_groups()).value
    shared = len({*rows.molecules.parents} & {*data.molecules.parents})
    name, source, metric = data.names[0], table.target.file.name, of_target.metric
    record = {
        "source": source,
        "source_sha256": table.checksum,
        "target": name,
        "kind": of_target.kind,
        "unit": data.units[0],
        "rows": len(kept),
        "shared_compounds": shared,
        "metric": metric,
        "cross_validated": error,
        "offset": model.offset,
        "scale": model.scale,
    }
    label = f"related {name} of {source}"
    findings = [f"{label}: {text}" for text in (*table.data.notices, *table.data.findings)]
    findings.append(
        f"{label}: {counted(len(kept))}, {counted(shared, 'compound')} in both tables; "
        f"cross-validated {METRIC_LABELS[metric]} {format_metric(error)}"
    )
    findings = [text.replace(str(table.target.file), source) for text in findings]
    return RelatedFit(model, model.scaled(predicted), record, findings)
