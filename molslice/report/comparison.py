"""Compare the errors, the data and the settings of several models on one page."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from molslice.chem.canonical import canonical_molecule
from molslice.chem.smiles import ChemError
from molslice.config import config_to_mapping
from molslice.files.atomic import write_atomically
from molslice.fitting.card import NAMES, STANDARD_ERROR
from molslice.folders.fitted import HELD_OUT, ROWS
from molslice.inference.fitted import FittedPredictor
from molslice.inference.groups import number_names
from molslice.inference.load import AnyPredictor
from molslice.report.measure import MeasuredModel, read_rows
from molslice.report.page import Html, page, paragraph, section, table
from molslice.report.training import networks_of, short_name
from molslice.report.verdict import CLEAR, ROUGH, SMALL
from molslice.tasks.metrics import METRIC_LABELS, format_metric, with_unit
from molslice.tasks.standard_errors import MeasuredMetric, measure_rows
from molslice.tasks.target_types import column_slices
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error

FEWEST = 5  # molecules of a difference
HIGHER_IS_BETTER = {"roc_auc", "pr_auc", "macro_roc_auc", "accuracy", "balanced_accuracy"}


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one target of a model.

    Attributes:
        target: Name of the target.
        model: Name of the model.
        unit: Unit of the target; "" without one.
        metric: Name of the metric.
        train_rows: Number of learned rows; None if unknown, as are the fields below.
        cross_validated: The metric on out-of-fold predictions.
        cross_validated_error: Its standard error.
        test_rows: Number of held-out rows.
        test: The metric on held-out rows.
        test_error: Its standard error.
    """

    target: str
    model: str
    unit: str
    metric: str
    train_rows: int | None
    cross_validated: float | None
    cross_validated_error: float | None
    test_rows: int | None
    test: float | None
    test_error: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The errors of two models on the molecules that both held out.

    Attributes:
        target: Name of the target.
        model: Name of the model.
        reference: Name of the model that it is compared with.
        unit: Unit of the target.
        metric: Name of the metric.
        rows: Number of rows.
        molecules: Number of their molecules.
        value: The metric of the model.
        reference_value: The metric of the reference.
        standard_error: Standard error of the difference over samples of molecules, smaller than the standard
            errors of both metrics, because the molecules are the same.
        cross_validated: The metric of the model on out-of-fold predictions; None if unknown.
        reference_cross_validated: The same of the reference.
    """

    target: str
    model: str
    reference: str
    unit: str
    metric: str
    rows: int
    molecules: int
    value: float
    reference_value: float
    standard_error: float
    cross_validated: float | None = None
    reference_cross_validated: float | None = None

    @property
    def gain(self) -> float:
        """How much better the model is than the reference."""
        return self._gain(self.value, self.reference_value)

    @property
    def has_other_order(self) -> bool:
        """Whether the model with the better metric here has the worse one in cross-validation."""
        if self.cross_validated is None or self.reference_cross_validated is None:
            return False
        return self.gain * self._gain(self.cross_validated, self.reference_cross_validated) < 0

    def _gain(self, value: float, reference: float) -> float:
        return value - reference if self.metric in HIGHER_IS_BETTER else reference - value

    def __str__(self) -> str:
        better, other = (self.model, self.reference) if self.gain > 0 else (self.reference, self.model)
        unit = f" {self.unit}" if self.unit and self.metric == "mae" else ""
        size = f"{rounded_error(abs(self.gain), self.standard_error)}{unit}"
        several = f"{self.rows:,} rows of " if self.rows > self.molecules else ""
        rows = f"on the {several}{self.molecules:,} molecules that both held out"
        label, few = METRIC_LABELS[self.metric], ROUGH * (self.molecules < SMALL)
        if not abs(self.gain) > CLEAR * self.standard_error:
            pair = f"no clear difference between {other} and {better}"
            return f"{self.target}: {pair} {rows} ({label} {size}).{few}"
        if not self.has_other_order:
            return f"{self.target}: {better} is better than {other} by {label} {size} {rows}.{few}"
        of_model, of_reference = map(format_metric, (self.cross_validated, self.reference_cross_validated))
        against = (
            f"{of_reference} against {of_model}" if self.gain > 0 else f"{of_model} against {of_reference}"
        )
        return (
            f"{self.target}: {better} is ahead of {other} by {label} {size} {rows}, but {other} is ahead in "
            f"cross-validation ({against}).{few}"
        )


@dataclass(frozen=True, slots=True)
class _HeldOut:
    """Held-out rows of a model.

    Attributes:
        places: Place of each row by its canonical SMILES, its conditions, and how often these came before.
        truth: Measured values, float64 [n, T], NaN where missing.
        predicted: Predictions, float64 [n, C], with the columns of `Predictions`.
    """

    places: Mapping[tuple[object, ...], int]
    truth: np.ndarray
    predicted: np.ndarray


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of a comparison.

    Attributes:
        name: Its name on the page.
        predictor: The model.
        measured: Its predictions for its data; None if they are not needed or the data are not available.
        held_out: Its held-out rows; None if they are not known.
    """

    name: str
    predictor: AnyPredictor
    measured: MeasuredModel | None
    held_out: _HeldOut | None


def write_comparison(
    predictors: Sequence[AnyPredictor], measured: Sequence[MeasuredModel | None], path: Path
) -> dict[str, Any]:
    """Write a page that compares models, and return its content.

    Args:
        predictors: The models; a target is compared with the first model that has it.
        measured: The predictions of each network for its data, or None; not needed for models of `fit`.
        path: The file to write. An existing file is replaced when the page is complete.

    Returns:
        `models`, `errors` (see `Errors`), `differences` (see `Difference`), `settings` (those that differ,
        by model) and `verdict`.

    Raises:
        MolsliceError: A model does not take molecules, a file of its folder is damaged, or the page cannot be
            written.
    """
    models = []
    for name, predictor, of_model in zip(distinct_names(predictors), predictors, measured, strict=True):
        predictor.reader()  # refuses a model that does not take molecules
        models.append(_Model(name, predictor, of_model, _held_out(predictor, of_model)))
    errors = [error for model in models for error in _errors(model)]
    outcomes = [*_differences(models, errors)]
    differences = [outcome for outcome in outcomes if isinstance(outcome, Difference)]
    settings, verdict = _settings(models), [*map(str, outcomes)]
    described = [_describe(model) for model in models]
    sections = [
        ("Errors", _error_tables(errors)),
        ("Differences", _difference_table(differences)),
        ("Models", _model_table(described)),
        ("Settings", _setting_table(models, settings)),
    ]
    names = ", ".join(model.name for model in models)
    lead = f"{len(models)} models side by side; differences are from the first model with the same target."
    write_atomically(path, page(f"Comparison of {names}", lead, sections, verdict))
    return {
        "models": described,
        "errors": [asdict(error) for error in errors],
        "differences": [asdict(difference) for difference in differences],
        "settings": settings,
        "verdict": verdict,
    }


def distinct_names(predictors: Sequence[AnyPredictor]) -> list[str]:
    """Name models by the last part of their paths, with a number if it repeats."""
    names, numbers = [short_name(predictor) for predictor in predictors], Counter[str]()
    distinct = []
    for name in names:
        numbers[name] += 1
        distinct.append(f"{name} ({numbers[name]})" if names.count(name) > 1 else name)
    return distinct


def _errors(model: _Model) -> Iterator[Errors]:
    predictor, units = model.predictor, model.predictor.target_units
    if isinstance(predictor, FittedPredictor):
        record = predictor.model.about
        for result, unit in zip(record["results"], units, strict=True):
            metric = result.get("metric", record.get("metric"))
            spreads = result.get("standard_errors", {})
            yield Errors(
                result["target"],
                model.name,
                unit,
                metric,
                result["train_rows"],
                result["cross_validated"],
                spreads.get("cross_validated"),
                result["test_rows"],
                result["test"].get(NAMES[0]),
                spreads.get("test", {}).get(NAMES[0]),
            )
        return
    summary = networks_of(predictor)[0].summary or {}
    for index, (target, unit) in enumerate(zip(predictor.target_names, units, strict=True)):
        metric, of_test = predictor.types[index].metric, summary.get("test", {})
        held_out = of_test.get("of"), (of_test.get(metric) or {}).get(target), None
        if model.held_out is not None and model.measured is not None:
            truth = model.held_out.truth[:, index]
            known = np.isfinite(truth)
            molecules = model.measured.judged.molecules[known]
            rows = model.held_out.predicted[known], truth[known], molecules
            error = _measure(model, index, *rows, metric)
            held_out = int(known.sum()), _defined(error.value), _defined(error.standard_error)
        yield Errors(
            target, model.name, unit, metric, summary.get("train", {}).get("of"), None, None, *held_out
        )


def _measure(
    model: _Model, target: int, predicted: np.ndarray, truth: np.ndarray, molecules: np.ndarray, metric: str
) -> MeasuredMetric:
    """Measure predictions [n, C] of a target."""
    of_target, columns = model.predictor.types[target], [*column_slices(model.predictor.types)][target]
    values = predicted[:, columns] if of_target.several is not None else predicted[:, columns.start]
    return measure_rows(of_target, values, truth, molecules, metric)


def _defined(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _held_out(predictor: AnyPredictor, measured: MeasuredModel | None) -> _HeldOut | None:
    if isinstance(predictor, FittedPredictor):
        files = (predictor.folder / name for name in (HELD_OUT, ROWS))
        path = next(filter(Path.is_file, files), None)
        if path is None:  # models that ship do not have their rows
            return None
        rows = read_rows(predictor, path)
        test = np.flatnonzero(rows.is_test).tolist()
        keys = [(rows.smiles[row], *rows.given[row]) for row in test]
        return _HeldOut(_places(keys), rows.truth[test], rows.predicted[test]) if len(test) else None
    if measured is None or measured.judged.name != "test":
        return None
    split = measured.judged
    try:
        smiles = measured.dataset.smiles()
    except MolsliceError:  # of a store that has only arrays
        return None
    return _HeldOut(_places([(smiles[row],) for row in split.rows]), split.truth, split.predicted)


def _places(rows: Sequence[tuple[str, ...]]) -> dict[tuple[object, ...], int]:
    """Return the place of each row by its key; see `_HeldOut`."""
    numbers, places = Counter[tuple[str, ...]](), dict[tuple[object, ...], int]()
    for place, (smiles, *given) in enumerate(rows):
        try:
            key = (canonical_molecule(smiles).smiles or smiles, *given)
        except ChemError:
            continue
        places[(*key, numbers[key])] = place
        numbers[key] += 1
    return places


def _differences(models: Sequence[_Model], errors: Sequence[Errors]) -> Iterator[Difference | str]:
    """Yield the difference of each model from the first one with the same target, or why there is none."""
    recorded = {(error.model, error.target, error.metric): error.cross_validated for error in errors}
    with_target: dict[str, list[_Model]] = {}
    for model in models:
        for target in model.predictor.target_names:
            with_target.setdefault(target, []).append(model)
    for target, (reference, *others) in with_target.items():
        for model in others:
            yield _difference(model, reference, target, recorded)
    alone = [
        model.name
        for model in models
        if all(len(with_target[target]) == 1 for target in model.predictor.target_names)
    ]
    if alone:
        listed = " and ".join(filter(None, [", ".join(alone[:-1]), alone[-1]]))
        others = " with the others" * (len(alone) < len(models))
        yield f"{listed} {'has' if len(alone) == 1 else 'have'} no target in common{others}."


def _difference(
    model: _Model,
    reference: _Model,
    target: str,
    recorded: Mapping[tuple[str, str, str], float | None],
) -> Difference | str:
    sides = [(side, side.predictor.target_names.index(target)) for side in (model, reference)]
    types = [side.predictor.types[index] for side, index in sides]
    units = [side.predictor.target_units[index] for side, index in sides]
    pair = f"{target}: {model.name} and {reference.name} cannot be compared, because"
    if types[0] != types[1]:
        return f"{pair} one learns another kind of target, or other classes."
    if units[0] != units[1]:
        return f"{pair} their units differ: {' and '.join(unit or 'none' for unit in units)}."
    if model.held_out is None or reference.held_out is None:
        return f"{pair} they have no held-out molecules in common."
    kept = [model.held_out, reference.held_out]
    common = [key for key in kept[0].places if key in kept[1].places]
    rows = [np.array([held_out.places[key] for key in common], np.int64) for held_out in kept]
    values = [held_out.truth[at, index] for held_out, at, (_, index) in zip(kept, rows, sides, strict=True)]
    alike = np.isclose(*values, rtol=1e-6)
    truth = values[0][alike]
    # by canonical SMILES, so that a molecule has one number also if a table spells it in two ways
    smiles, partners = [str(key[0]) for key in common], list[str]()
    if reference.predictor.symmetric:  # the second molecule is the last of the given cells
        partners = reference.predictor.name_molecules([str(key[-2]) for key in common])
    molecules = number_names(smiles, partners)[alike]
    count = len(np.unique(molecules))
    if count < FEWEST:
        return (
            f"{pair} they held out {count or 'none'} of the same molecules with equal values, and {FEWEST} "
            "are needed."
        )
    first, second = (
        _measure(side, index, of_model.predicted[at[alike]], truth, molecules, types[0].metric)
        for (side, index), of_model, at in zip(sides, kept, rows, strict=True)
    )
    if not (math.isfinite(first.value) and math.isfinite(second.value)):
        return f"{pair} the molecules that both held out lack a class or a prediction."
    return Difference(
        target,
        model.name,
        reference.name,
        units[0],
        types[0].metric,
        len(truth),
        count,
        first.value,
        second.value,
        first.difference_error(second),
        *(recorded.get((side.name, target, types[0].metric)) for side, _ in sides),
    )


def _describe(model: _Model) -> dict[str, Any]:
    """Return what a model is, for the table of models."""
    predictor = model.predictor
    if isinstance(predictor, FittedPredictor):
        record, rows = predictor.model.about, predictor.model.about["rows"]
        kind, version = f"fit, {record['options'].get('quality', 'good')}", record.get("version")
        learned, seconds = rows["train"], record.get("seconds")
        encoder = record.get("encoder")
    else:
        networks = networks_of(predictor)
        summary = networks[0].summary or {}
        kind = f"{'run' if len(networks) == 1 else f'{len(networks)} runs'}, {networks[0].config.model.name}"
        version, encoder = summary.get("versions", {}).get("molslice"), None
        learned, seconds = summary.get("train", {}).get("of"), summary.get("total_seconds")
    return {
        "model": model.name,
        "kind": kind,
        "targets": ", ".join(map(with_unit, predictor.target_names, predictor.target_units)),
        "learned_rows": learned,
        "encoder": encoder,
        "seconds": seconds,
        "version": version,
    }


def _model_table(described: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            row["model"],
            row["kind"],
            row["targets"],
            _counted(row["learned_rows"]),
            row["encoder"] or "-",
            "-" if row["seconds"] is None else f"{row['seconds']:,.0f}",
            row["version"] or "-",
        ]
        for row in described
    ]
    return table(["model", "kind", "targets", "learned rows", "encoder", "seconds", "version"], rows)


def _settings(models: Sequence[_Model]) -> dict[str, dict[str, str]]:
    """Return the settings that several models have and that differ, by setting and model."""
    of_models = {model.name: dict(_flat(_all_settings(model.predictor))) for model in models}
    names = dict.fromkeys(name for settings in of_models.values() for name in settings)
    differing = {}
    for name in names:
        values = {model: settings[name] for model, settings in of_models.items() if name in settings}
        if len(values) > 1 and len(set(values.values())) > 1:
            differing[name] = values
    return differing


def _all_settings(predictor: AnyPredictor) -> Mapping[str, Any]:
    if not isinstance(predictor, FittedPredictor):
        return config_to_mapping(networks_of(predictor)[0].config)
    record = predictor.model.about
    treatment = {name: getattr(predictor.model, name) for name in ("fragment", "wildcards", "standardize")}
    file = {"source": record["source"], "checksum of the source": str(record.get("source_sha256"))[:12]}
    related = [
        f"{related_target['source']}:{related_target['target']}"
        for related_target in record.get("related", ())
    ]
    weights = {
        f"weights of {result['target']}": ", ".join(
            f"{learner} {weight:.2f}".replace("_", " ") for learner, weight in result["weights"].items()
        )
        for result in record["results"]
    }
    encoder = {"encoder": record.get("encoder"), "related tables": related}
    return {**file, **encoder, **treatment, **record["options"], **weights}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield settings of all levels with dotted names, as text."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            listed = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            yield f"{prefix}{name}", "-" if value in (None, [], ()) else listed


def _error_tables(errors: Sequence[Errors]) -> Html:
    """Return a table for each target."""
    parts = []
    for target in dict.fromkeys(error.target for error in errors):
        rows = [
            [
                error.model,
                METRIC_LABELS[error.metric],
                error.unit or "-",
                _counted(error.train_rows),
                rounded_error(error.cross_validated, error.cross_validated_error),
                _counted(error.test_rows),
                rounded_error(error.test, error.test_error),
            ]
            for error in errors
            if error.target == target
        ]
        header = ["model", "metric", "unit", "rows", "cross-validated", "held-out rows", "held-out error"]
        parts.append(table(header, rows, target))
    return section(*parts, paragraph(STANDARD_ERROR, soft=True))


def _counted(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _difference_table(differences: Sequence[Difference]) -> Html:
    if not differences:
        return paragraph("No two models held out the same molecules.", soft=True)
    rows = [
        [
            difference.target,
            difference.model,
            difference.reference,
            METRIC_LABELS[difference.metric],
            difference.unit or "-",
            f"{difference.molecules:,}",
            format_metric(difference.value),
            format_metric(difference.reference_value),
            rounded_error(
                difference.value - difference.reference_value, difference.standard_error, signed=True
            ),
        ]
        for difference in differences
    ]
    header = ["target", "model", "reference", "metric", "unit", "molecules"]
    header += ["error", "of the reference", "difference"]
    note = (
        "Differences are measured on the exact values that both models held out, so that they have smaller "
        f"standard errors than the errors. A difference is clear from {CLEAR:g} standard errors."
    )
    return section(table(header, rows), paragraph(note, soft=True))


def _setting_table(models: Sequence[_Model], settings: Mapping[str, Mapping[str, str]]) -> Html:
    if not settings:
        return paragraph("No setting differs.", soft=True)
    names = [model.name for model in models]
    rows = [[name, *(values.get(model, "") for model in names)] for name, values in settings.items()]
    return table(["setting", *names], rows, "Settings that differ")
