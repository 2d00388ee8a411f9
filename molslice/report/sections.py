"""The parts of a report that need known values."""

import contextlib
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from molslice.chem.drawing import draw_molecule
from molslice.chem.rebuild import ChemError, rebuild
from molslice.fitting.card import STANDARD_ERROR, describe_domain, domain_rows, further_rows, result_rows
from molslice.folders.fitted import ROWS
from molslice.inference.fitted import FittedPredictor
from molslice.inference.uncertainty import rank_texts, size_label, size_text
from molslice.report.charts import (
    MOST_POINTS,
    draw_calibration,
    draw_coverage,
    draw_errors,
    draw_parity,
    draw_precision,
    draw_ranking,
    draw_roc,
    draw_widths,
    drawn_rows,
)
from molslice.report.groups import (
    Groups,
    by_domain,
    by_element,
    by_scaffold,
    by_size,
    group_metric,
    score_groups,
)
from molslice.report.measure import MeasuredModel, SplitPredictions
from molslice.report.page import (
    FEW,
    Html,
    bars,
    cards,
    figures,
    heading,
    in_both_schemes,
    limits_text,
    paragraph,
    section,
    share_text,
    side_by_side,
    table,
)
from molslice.report.table_rows import MeasuredRow, knows_table, read_table_rows
from molslice.report.training import short_name, with_short_name
from molslice.tasks.metrics import METRIC_LABELS, format_metric, roc_auc, with_unit
from molslice.types import MolsliceError
from molslice.uncertainty.rounding import rounded_error, rounded_share
from molslice.uncertainty.scores import brier_score, class_calibration_errors, rank_correlation

MOST_TARGETS = 6  # with charts and molecules
MOST_CLASSES = 6  # with charts
MOLECULES = 6  # drawn in each group
LISTED_ROWS = 4  # of a molecule that was measured several times
FEWEST = 5  # molecules of an element that has a row
COVERAGE = ("rows", "interval", "covered")
LIMITS = (
    "Errors count limits, such as >10, as fit does: a limit that is met has no error, and the error of "
    "another one is the distance to it."
)
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the probability of class 1
WIDTH_LEVEL = 0.9  # of the intervals whose width is drawn
QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)


def errors(measured: MeasuredModel) -> Html:
    """Return the errors of each target on each split."""
    tables: dict[tuple[str, ...], list[list[str]]] = {}  # by the names of the errors
    for index, (name, unit) in enumerate(_targets(measured)):
        for split in measured.splits:
            known, truth = split.measured(index)
            exact = np.isfinite(split.truth[known, index])
            if measured.types[index].has_classes:
                scores = _class_errors(measured, split, index)
            else:
                scores = _value_errors(truth, split.values(index)[known], exact)
            count = f"{len(known):,}{limits_text(int((~exact).sum()))}"
            cells = [with_unit(name, unit), split.label, count]
            rows = tables.setdefault(tuple(scores), [])
            rows.append([*cells, *map(format_metric, scores.values())])
    notes = [
        paragraph(
            f"{split.label}: {len(split.rows):,} of {split.total:,} {measured.noun}, drawn at random.",
            soft=True,
        )
        for split in measured.splits
        if len(split.rows) < split.total
    ]
    for split in measured.splits:
        for index, (name, _) in enumerate(_targets(measured)):
            if count := split.unpredicted(index):
                rows = f"{count:,} of {count + len(split.known(index)):,} {measured.noun}"
                note = f"{split.label}: {rows} with a value of {name} have no finite prediction"
                notes.append(paragraph(f"{note} and are left out.", soft=True))
    if seen := _seen(measured):
        note = f"{measured.judged.name}: the model was trained on {seen} molecules; its error for new ones is"
        notes.append(paragraph(f"{note} larger.", soft=True))
    parts = [table(["target", "split", measured.noun, *names], rows) for names, rows in tables.items()]
    if measured.has_limits:
        notes.append(paragraph(f"{LIMITS} R² and Spearman are of exact values only.", soft=True))
    parts += notes
    if isinstance(measured.predictor, FittedPredictor):
        parts.append(table(*result_rows(measured.predictor.model.about), "Compared with baselines"))
        further = further_rows(measured.predictor.model.about)
        parts += [table(*further, "Other metrics")] if further[1] else []
        parts.append(paragraph(STANDARD_ERROR, soft=True))
    return section(*parts)


def _seen(measured: MeasuredModel) -> str:
    """Return which of the judged molecules the model was trained on; "" if none is known."""
    if measured.is_own and measured.judged.name == "train" and not measured.judged.is_unseen:
        return "these"
    return f"{measured.trained_text} of these" if measured.trained else ""


def predictions(measured: MeasuredModel) -> Html:
    """Return charts of predictions against known values, and of their errors; confusion and calibration."""
    charts, tables, rows_label = [], list[Html](), f"{measured.judged.label} {measured.noun}"
    for index, (name, unit) in enumerate(_targets(measured)[:MOST_TARGETS]):
        if names := measured.types[index].class_names:
            tables += _confusion(measured, index)
            labels, probabilities = measured.probabilities(measured.judged, index)
            molecules = measured.judged.molecules[measured.judged.known(index)]
            classes = [*enumerate(names)]
            shown = classes[1:] if len(classes) == 2 else classes[:MOST_CLASSES]
            curves = {word: (labels == label, probabilities[:, label]) for label, word in shown}
            curves = {word: pair for word, pair in curves.items() if 0 < pair[0].sum() < len(labels)}
            if curves:
                threshold = measured.threshold if len(classes) == 2 else None
                mark = "" if threshold is None else f"; the dot is a threshold of {threshold:g}"
                charts.append((draw_roc(curves, threshold), f"{name}: ROC on {rows_label}{mark}."))
                caption = f"{name}: precision against recall; thin lines are the shares of the classes{mark}."
                charts.append((draw_precision(curves, threshold), caption))
            for label, word in shown:
                chart = draw_calibration(labels == label, probabilities[:, label], molecules, word)
                caption = f"{name}: share of class {word} of {rows_label} in groups of equal size,"
                charts.append((chart, f"{caption} with standard errors."))
            if len(classes) > MOST_CLASSES:
                note = f"The first {MOST_CLASSES} of {len(classes)} classes have a chart."
                tables.append(paragraph(note, soft=True))
            continue
        logarithmic = measured.predictor.is_logarithmic(index)
        parity = draw_parity(measured.splits, index, unit, measured.truth_word, logarithmic=logarithmic)
        missing = _drawn_part(measured, index, logarithmic=logarithmic)
        known = "measurements" if isinstance(measured.predictor, FittedPredictor) else "reference values"
        only = _exact_only(measured)
        charts.append((parity, f"{name}: predictions against {known}{only}{missing}."))
        caption = f"{name}: errors on {rows_label}{only}; the outermost 0.5% are in the outermost bars"
        caption += _without_logarithm([measured.judged], index, logarithmic=logarithmic)
        errors = draw_errors(measured.judged, index, unit, measured.truth_word, logarithmic=logarithmic)
        charts.append((errors, f"{caption}."))
    return section(*tables, figures(charts), *_left_out(measured))


def _exact_only(measured: MeasuredModel) -> str:
    return ", exact values only" if measured.has_limits else ""


def _drawn_part(measured: MeasuredModel, target: int, *, logarithmic: bool) -> str:
    """Return what a chart of at most `MOST_POINTS` rows of each split does not show."""
    splits = measured.splits
    counts = {split.label: len(drawn_rows(split, target, logarithmic=logarithmic)) for split in splits}
    drawn = [
        f"{MOST_POINTS:,} of {count:,} {label} {measured.noun}"
        for label, count in counts.items()
        if count > MOST_POINTS
    ]
    sampled = f"; {', '.join(drawn)}, drawn at random" if drawn else ""
    return sampled + _without_logarithm(splits, target, logarithmic=logarithmic)


def _without_logarithm(splits: Sequence[SplitPredictions], target: int, *, logarithmic: bool) -> str:
    """Return how many molecules are not drawn because a value or its prediction is not positive."""
    missing = sum(
        len(split.known(target)) - len(drawn_rows(split, target, logarithmic=logarithmic)) for split in splits
    )
    return f"; not shown: {missing:,} with a value or a prediction that is not positive" if missing else ""


def uncertainty(measured: MeasuredModel) -> Html:
    """Return coverage and width of the intervals, and how errors grow with the uncertainty."""
    split, result, of_learned = measured.judged, measured.uncertainty, measured.is_learned
    if isinstance(result, MolsliceError):
        return paragraph(f"Not measured: {result}.", soft=True)
    lead = f"Intervals are computed from {result['calibration']}. They hold for molecules like these."
    if of_learned:
        kinds = {
            "sets" if target_type.has_classes else "intervals": "size" if target_type.has_classes else "width"
            for target_type in measured.types
        }
        sizes = " and their ".join(f"{size}s" for size in kinds.values())
        lead = (
            f"The {' and '.join(kinds)} of these rows are computed from the out-of-fold predictions of the "
            f"same rows, so that about the stated share is covered in any case; their {sizes} tell how much "
            "the model knows." + " Limits that are met are left out." * measured.has_limits
        )
    charts, rows, notes, tables = [], [], [], list[Html]()
    if (missing := len(split.rows) - result["rows"]) and not of_learned:
        notes.append(f"{missing:,} of {len(split.rows):,} {split.label} {measured.noun} have no prediction.")
    for target in result["targets"][:MOST_TARGETS]:
        name = target["name"]
        if not target["count"]:
            notes.append(f"{name}: no {split.label} molecule has a value.")
            continue
        if not of_learned:
            caption = f"{name}: covered {split.label} {measured.noun}; miscalibration area"
            area = format_metric(target["miscalibration_area"])
            charts.append((draw_coverage(target["by_level"]), f"{caption} {area}."))
        ranks, has_widths = rank_texts(target), bool(target.get("width_bins"))
        if has_widths:
            level = max(entry["level"] for entry in target["levels"] if entry["level"] <= WIDTH_LEVEL)
            caption = f"{name}: error against the width of the {level:.0%} interval; rank correlation"
            rank = format_metric(target["rank_correlation"]["width"])
            charts.append((draw_widths(target, level), f"{caption} {rank}."))
        if ranks and (not has_widths or target["rank_correlation"]["spread"] is not None):
            caption = f"{name}: error against uncertainty; rank correlation of the error with"
            charts.append((draw_ranking(target), f"{caption} {', '.join(ranks)}."))
        elif not ranks and not has_widths:
            same = "predictions have the same largest probability"
            same = same if "classes" in target else "intervals have the same width"
            notes.append(f"{name}: all {same}, so they do not tell which errors are large.")
        groups = [{"group": "all molecules", **entry} for entry in target["levels"]] + target["groups"]
        rows += [[name, entry["group"], *_coverage_cells(entry)] for entry in groups]
        if "classes" in target:
            tables += _set_tables(target)
    return section(
        paragraph(lead),
        figures(charts),
        *(paragraph(note, soft=True) for note in notes),
        table(["target", "molecules", *COVERAGE, size_label(*result["targets"])], rows),
        *tables,
        *_domain(measured),
        *_left_out(measured),
    )


def _domain(measured: MeasuredModel) -> list[Html]:
    """Return how a model tells molecules that are like its training molecules from others."""
    model = measured.predictor
    if isinstance(model, FittedPredictor):
        record = model.model.about
        caption = "Out-of-fold errors by similarity to the nearest training molecule of the other folds"
    elif (domain := model.known_domain()) is not None and domain.rule.groups:
        record = {"domain": domain.rule.to_mapping()}
        caption = "Errors of validation rows by similarity to the nearest training molecule"
    else:
        return []
    sentence, (header, rows) = describe_domain(record), domain_rows(record)
    return [*([paragraph(sentence)] if sentence else []), *([table(header, rows, caption)] if rows else [])]


def _coverage_cells(entry: Mapping[str, Any]) -> list[str]:
    if entry["count"] >= FEW:
        share = rounded_share(entry["coverage"], entry["standard_error"])
    else:
        share = share_text(round(entry["coverage"] * entry["count"]), entry["count"])
    return [f"{entry['count']:,}", f"{entry['level']:.0%}", share, size_text(entry)]


def _set_tables(target: Mapping[str, Any]) -> list[Html]:
    """Return coverage and size of the sets by class, their sizes, and the errors of the probabilities."""
    names = dict.fromkeys(entry["class"] for entry in target["classes"])
    by_class = [
        [name, *_coverage_cells(entry)]
        for name in names
        for entry in target["classes"]
        if entry["class"] == name and entry["count"]
    ]
    sizes = [
        [
            f"{entry['level']:.0%}",
            *(share_text(round(share * entry["count"]), entry["count"]) for share in entry["set_sizes"]),
        ]
        for entry in target["levels"]
    ]
    error, brier = (target[measure]["predicted"] for measure in ("calibration_error", "brier_score"))
    return [
        table(["class", *COVERAGE, size_label(target)], by_class, f"Sets of {target['name']} by class"),
        table(
            ["interval", *(str(size) for size in range(len(names) + 1))],
            sizes,
            f"Share of sets of {target['name']} by their number of classes",
        ),
        paragraph(
            f"{target['name']}: calibration error {format_metric(error)}, Brier score {format_metric(brier)}."
        ),
    ]


def groups(measured: MeasuredModel) -> Html:
    """Return errors by size, element, scaffold and domain."""
    parts = [
        paragraph(
            f"Errors on {measured.judged.label} {measured.noun}. A molecule is in the group of each of its "
            f"elements. Elements of fewer than {FEWEST} {measured.noun} are not listed."
            + f" {LIMITS}"
            * measured.has_limits
        )
    ]
    kinds = {"heavy atoms": by_size(measured), "element": by_element(measured)}
    if (scaffolds := by_scaffold(measured)) is not None:
        kinds["Bemis-Murcko scaffold"] = scaffolds
    if (domain := by_domain(measured)) is not None:
        kinds["domain"] = domain
    for index, (name, unit) in enumerate(_targets(measured)[:MOST_TARGETS]):
        tables = [_group_table(measured, index, kind, groups) for kind, groups in kinds.items()]
        parts += [heading(with_unit(name, unit)), side_by_side(*tables)]
    return section(*parts, *_left_out(measured))


def examples(measured: MeasuredModel) -> Html:
    """Return drawings of the worst and the best predictions."""
    split, parts = measured.judged, []
    identifiers, table_rows = _identifiers(measured), _rows_of_table(measured)
    for index, (name, unit) in enumerate(_targets(measured)[:MOST_TARGETS]):
        known = split.known(index)
        if measured.types[index].several is None:
            off = _distances(measured, index, split.values(index)[known], split.truth[known, index])
        else:
            labels, probabilities = measured.probabilities(split, index)
            off = 1.0 - probabilities[np.arange(len(labels)), labels]
        order = known[np.argsort(-off, kind="stable")]
        for title, chosen in (("Worst", order[:MOLECULES]), ("Best", order[::-1][:MOLECULES])):
            drawn = [_card(measured, int(place), index, unit, identifiers, table_rows) for place in chosen]
            title = f"{title} predictions of {name}, {split.label}{_exact_only(measured)}"
            parts.append(cards(title, drawn))
    if table_rows is not None:
        command = shlex.join(["molslice", "suspects", short_name(measured.predictor)])
        note = f"To list measured values that may be wrong, and pairs of similar molecules: {command}"
        parts.insert(0, paragraph(note))
    return section(*parts, *_left_out(measured))


def _distances(measured: MeasuredModel, target: int, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the size of the errors, float64 [n], of the logarithms if they are learned."""
    if not measured.predictor.is_logarithmic(target):
        return np.abs(predicted - truth)
    with np.errstate(divide="ignore", invalid="ignore"):  # a value of 0 has no logarithm
        factors = np.abs(np.log10(predicted) - np.log10(truth))
    return np.where(np.isnan(factors), np.inf, factors)


def data(measured: MeasuredModel) -> Html:
    """Return the data card: rows, targets, sizes, elements, and rows that cannot be read."""
    dataset = measured.dataset
    rows = [[name, f"{len(rows):,}"] for name, rows in dataset.splits.items()]
    values, counts = [], []
    for index, (name, unit) in enumerate(_targets(measured)):
        for split in measured.splits:
            truth = np.asarray(dataset.targets)[dataset.labeled_rows(split.name), index].astype(np.float64)
            known = truth[np.isfinite(truth)]
            if words := measured.types[index].class_names:
                for label, word in enumerate(words):
                    count = int((known == label).sum())
                    counts.append([name, split.name, word, f"{count:,}", share_text(count, len(known))])
            elif len(known):
                cut = [format_metric(float(value)) for value in np.quantile(known, QUANTILES)]
                moments = [format_metric(float(known.mean())), format_metric(float(known.std()))]
                values.append([with_unit(name, unit), split.name, *moments, *cut])
    names = ["mean", "sd", "minimum", "5%", "median", "95%", "maximum"]
    judged, word, only = measured.judged, measured.truth_word.capitalize(), _exact_only(measured)
    sizes = np.asarray(dataset.store.num_atoms)[dataset.labeled_rows(judged.name)]
    elements = ", ".join(
        f"{symbol} {share_text(int(has.sum()), len(has))}" for symbol, has in by_element(measured).items()
    )
    low, middle, high = np.quantile(sizes, (0.0, 0.5, 1.0))
    sampled = "" if len(judged.rows) == judged.total else f" ({len(judged.rows):,} drawn at random)"
    parts = [
        paragraph(f"Source: {with_short_name(dataset.source, measured.predictor)}"),
        table(["split", "rows"], rows),
        *([table(["target", "split", *names], values, f"{word} values{only}")] * bool(values)),
        *([table(["target", "split", "class", "rows", "share"], counts, f"{word} classes")] * bool(counts)),
        paragraph(f"Heavy atoms in {judged.name}: {low:.0f} to {high:.0f}, median {middle:.0f}."),
        paragraph(f"Molecules of {judged.name} with each element{sampled}: {elements}."),
    ]
    if isinstance(measured.predictor, FittedPredictor) and measured.is_own:
        record = measured.predictor.model.about
        parts += [
            paragraph(f"{str(text).removesuffix(' (detected)')}.")
            for text in (*record.get("notices", ()), *record["findings"])
        ]
    if dataset.failures:
        parts.append(paragraph(dataset.failures))
    return section(*parts)


SECTIONS = {
    "Errors": errors,
    "Predictions": predictions,
    "Uncertainty": uncertainty,
    "Errors by group": groups,
    "Molecules": examples,
    "Data": data,
}


def _targets(measured: MeasuredModel) -> list[tuple[str, str]]:
    predictor = measured.predictor
    return list(zip(predictor.target_names, predictor.target_units, strict=True))


def _left_out(measured: MeasuredModel) -> list[Html]:
    """Return a note if there are too many targets to show all of them."""
    count = len(_targets(measured))
    if count <= MOST_TARGETS:
        return []
    return [paragraph(f"The first {MOST_TARGETS} of {count} targets are shown.", soft=True)]


def _value_errors(truth: np.ndarray, predicted: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Return the errors of numbers, [n] each; `exact` is whether a value is no limit, bool [n]."""
    names = ("MAE", "RMSE", "R²", "Spearman")
    if not len(truth):
        return dict.fromkeys(names, math.nan)
    off, exact_truth = predicted - truth, truth[exact]
    spread = ((exact_truth - exact_truth.mean()) ** 2).sum() if exact.any() else 0.0
    share = 1 - float((off[exact] ** 2).sum() / spread) if spread > 0 else math.nan
    rank = rank_correlation(predicted[exact], exact_truth)
    errors = float(np.abs(off).mean()), float(np.sqrt((off**2).mean())), share, rank
    return dict(zip(names, errors, strict=True))


def _class_errors(measured: MeasuredModel, split: SplitPredictions, target: int) -> dict[str, float]:
    labels, probabilities = measured.probabilities(split, target)
    truth = labels.astype(np.float64)
    if (classes := measured.types[target].several) is None:
        scores = {"roc_auc": roc_auc(probabilities[:, 1], truth)}
    else:
        scores = classes.measure_all(probabilities, truth)
    by_label = {METRIC_LABELS[metric]: value for metric, value in scores.items()}
    return {**by_label, "Brier score": brier_score(probabilities, labels)}


def _confusion(measured: MeasuredModel, target: int) -> list[Html]:
    """Return the confusion matrix of a target of classes, and its errors by class."""
    split, several = measured.judged, measured.types[target].several
    labels, probabilities = measured.probabilities(split, target)
    if several is None:
        chosen = (probabilities[:, 1] > measured.threshold).astype(int)
    else:
        chosen = several.choose(probabilities)
    names = measured.types[target].class_names
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (labels, chosen), 1)
    matrix = [
        [name, *(f"{count:,}" for count in row), f"{row.sum():,}"]
        for name, row in zip([*names, "all"], [*counts, counts.sum(0)], strict=True)
    ]
    header = [measured.truth_word, *(f"predicted {name}" for name in names), measured.noun]
    title = f"Confusion matrix of {measured.predictor.target_names[target]}, {split.label}"
    if several is None:
        title += f", {names[1]} above a probability of {measured.threshold:g}"
    rows, calibration_errors = [], class_calibration_errors(probabilities, labels)
    for label, name in enumerate(names):
        of_class, guessed, chances = labels == label, chosen == label, probabilities[:, label]
        right = int(counts[label, label])
        scores = [
            roc_auc(chances, of_class.astype(np.float64)),
            calibration_errors[label],
        ]
        if several is not None and several.ordered:
            scores.append(float(np.abs(chosen - labels)[of_class].mean()) if of_class.any() else math.nan)
        shares = [share_text(right, int(rows_of.sum())) for rows_of in (of_class, guessed)]
        rows.append([name, f"{of_class.sum():,}", *shares, *map(format_metric, scores)])
    measures = ["class", measured.noun, "recall", "precision", "ROC-AUC", "calibration error"]
    if several is not None and several.ordered:
        measures.append(METRIC_LABELS["class_error"])
    tables = [table(header, matrix, title), table(measures, rows, "Errors by class")]
    return tables if several is not None else [*tables, _thresholds(names, labels, probabilities[:, 1])]


def _thresholds(names: Sequence[str], labels: np.ndarray, chances: np.ndarray) -> Html:
    """Return what other thresholds of the probability of class 1 would find."""
    rows, of_class = [], labels == 1
    for threshold in THRESHOLDS:
        chosen = chances > threshold
        right = int((chosen & of_class).sum())
        kept = int((~chosen & ~of_class).sum())
        shares = ((right, chosen), (right, of_class), (kept, ~of_class))
        cells = [share_text(correct, int(rows_of.sum())) for correct, rows_of in shares]
        rows.append([f"{threshold:g}", f"{chosen.sum():,}", *cells])
    other, name = names
    header = ["threshold", f"predicted {name}", f"precision of {name}", f"recall of {name}"]
    return table([*header, f"recall of {other}"], rows, f"Other thresholds of the probability of {name}")


def _group_table(measured: MeasuredModel, target: int, kind: str, groups: Groups) -> Html:
    scored = score_groups(measured, target, groups)
    if kind == "element":
        scored = [group for group in scored if group.count >= FEWEST]
    label = METRIC_LABELS[group_metric(measured, target)]
    most = max((group.error for group in scored if math.isfinite(group.error)), default=1.0) or 1.0
    lines = []
    for group in scored:
        lines.append(
            ((group.name, f"{group.count:,}", rounded_error(group.error, group.spread)), group.error / most)
        )
    return bars([kind, measured.noun, label], lines)


def _rows_of_table(measured: MeasuredModel) -> Mapping[int, Sequence[MeasuredRow]] | None:
    """Return the rows of the table of each row of a fit; None for other data.

    They are empty if the folder does not know the table.
    """
    model, dataset = measured.predictor, measured.dataset
    if not isinstance(model, FittedPredictor) or dataset.source != str(model.folder / ROWS):
        return None
    rows: dict[int, list[MeasuredRow]] = {}
    for measured_row in read_table_rows(model, len(dataset.targets)) if knows_table(model) else ():
        rows.setdefault(measured_row.row, []).append(measured_row)
    return rows


def _describe_rows(measured: MeasuredModel, target: int, rows: Sequence[MeasuredRow]) -> str:
    """Describe the rows of the table with a value of a target, and say that several values were merged."""
    model = measured.predictor
    assert isinstance(model, FittedPredictor)
    with_value = [measured_row for measured_row in rows if math.isfinite(measured_row.values[target])]
    places, source = [measured_row.place for measured_row in with_value or rows], model.model.about["source"]
    if not places:
        return ""
    listed = [f"{place.row}" + f" of {place.file}" * (place.file != source) for place in places]
    more = f" and {len(listed) - LISTED_ROWS} more" if len(listed) > LISTED_ROWS else ""
    text = f"row{'s' * (len(listed) > 1)} {', '.join(listed[:LISTED_ROWS])}{more}"
    if len(with_value) < 2:
        return text
    mean = ""
    if not measured.types[target].has_classes:
        mean = "geometric mean of " if model.is_logarithmic(target) else "mean of "
    return f"{text}, {mean}{len(with_value)} measurements"


def _identifiers(measured: MeasuredModel) -> list[list[str]]:
    """Return the cells of the columns that name the molecules of a fit; empty if the data have none."""
    model, dataset = measured.predictor, measured.dataset
    if not isinstance(model, FittedPredictor):
        return []
    with contextlib.suppress(MolsliceError):  # other data
        return [*dataset.side_cells(model.model.about.get("identifiers", [])).values()]
    return []


def _card(
    measured: MeasuredModel,
    place: int,
    target: int,
    unit: str,
    identifiers: list[list[str]],
    table_rows: Mapping[int, Sequence[MeasuredRow]] | None,
) -> tuple[Html, list[str]]:
    split, row = measured.judged, int(measured.judged.rows[place])
    molecule = measured.dataset.store.arrays(row)
    drawings = [draw_molecule(molecule, ".svg", numbered=False, dark=dark).decode() for dark in (False, True)]
    suffix = f" {unit}" if unit else ""
    where = f"row {row + 1}"
    if table_rows is not None:
        where = _describe_rows(measured, target, table_rows.get(row, ()))
    truth, predicted = split.truth[place, target], split.values(target)[place]
    if (several := measured.types[target].several) is None:
        lines = [
            f"{measured.truth_word} {truth:.4g}, predicted {predicted:.4g}{suffix}",
            ", ".join(filter(None, (f"error {predicted - truth:+.3g}{suffix}", where))),
        ]
    else:
        chances = split.predicted[place, split.columns[target]]
        name, chosen = several.names[int(truth)], several.names[int(several.choose(chances))]
        lines = [
            f"{measured.truth_word} {name}, predicted {chosen}",
            ", ".join(filter(None, (f"probability of {name} {chances[int(truth)]:.2f}", where))),
        ]
    if name := ", ".join(filter(None, (cells[row] for cells in identifiers))):
        lines.insert(0, name)
    with contextlib.suppress(ChemError):
        lines.append(rebuild(molecule).smiles)
    return in_both_schemes(*(text[text.index("<svg") :] for text in drawings)), lines
