"""What a worker process computes: the loaded models and the tasks on them."""

import json
import math
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import tee
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from tqdm import tqdm

from molslice.chem.drawing import draw_smiles
from molslice.data.molecules.identifiers import find_name_column
from molslice.data.molecules.tables import MoleculeTable
from molslice.explanation.explain import Explainer
from molslice.explanation.result import Contributions
from molslice.files.atomic import write_atomically
from molslice.files.folder_names import without_folders
from molslice.files.tables import Chunk
from molslice.inference.base import Predictor
from molslice.inference.fitted import FittedPredictor
from molslice.inference.load import load_model
from molslice.inference.options import PredictionOptions
from molslice.inference.predictions import Domain, Neighbor, Predictions
from molslice.inference.ranking import LEVEL, Ranker, choose_diverse, describe_row
from molslice.inference.smiles_reader import default_workers
from molslice.inference.tables.result_formats import write_rows
from molslice.inference.tables.table import Computed, estimate_rows, predict_table
from molslice.tasks.target_types import column_slices
from molslice.types import MolsliceError
from molslice.uncertainty.calibration import Calibration

MOST_LEVELS = 16  # of intervals for which options are kept, because the held-out rows are in a file
MASKED_MOLECULES = 512  # about, that a model of `molslice fit` predicts for an explanation, in some seconds
SHOWN_ROWS = 10_000  # of a file, on the page
FILE_CHUNK_ROWS = 256  # rows between two reports of progress

Method = Literal["gradients", "shapley"]
Theme = Literal["light", "dark"]
METHODS: tuple[Method, ...] = get_args(Method)  # the default is the first
Report = Callable[[dict[str, Any]], None]
Result = TypeVar("Result")


class ServedModel:
    """A loaded model and what it can compute.

    Args:
        name: Its name in the service.
        path: Path or name of the model.
        device: Where to compute.

    Attributes:
        plain: The loaded model.
        domain: Whether the model has training molecules to compare with.
        intervals: Whether the model has intervals or sets.
        measured_widths: `HeldOut.measured_width` at the level of the page by column, where it is known.
        method: The method that explains its predictions by default; None if they cannot be explained.
        folders: Paths by which messages may name its folder, which messages to clients do not contain.
        options: `find_options` of the model, which remembers its latest results.
        ranker: Returns the `Ranker` of goals and a level of intervals, and remembers the latest ones.

    Raises:
        MolsliceError: The model cannot be loaded, or does not predict molecules.
    """

    def __init__(self, name: str, path: str, device: str) -> None:
        self.name, self.plain = name, load_model(path, device)
        self.plain.name = name  # messages to clients do not tell where the folder is
        with self.plain.reader():  # refuses a model that does not take molecules
            pass
        if not self.plain.target_names:
            raise MolsliceError(f"{path} predicts no targets; serve a model that does")
        self.domain = self.plain.known_domain() is not None
        calibration = _or_none(self.plain.find_calibration)
        self.intervals = calibration is not None
        self.measured_widths = {} if calibration is None else self._measured_widths(calibration)
        self.method: Method | None = next(filter(self._explains, METHODS), None)
        is_path = os.sep in path
        self.folders = (str(Path(path)), os.path.abspath(path), os.path.realpath(path)) if is_path else ()
        self.options = lru_cache(MOST_LEVELS)(self.plain.find_options)
        self.ranker = lru_cache(MOST_LEVELS)(lambda goals, level: Ranker(self.plain, goals, interval=level))

    def _explains(self, method: Method) -> bool:
        """Return whether a method explains the prediction; gradients of a fit show its networks alone."""
        is_whole = method == "shapley" or not isinstance(self.plain, FittedPredictor)
        return is_whole and _or_none(partial(self.explainer, method)) is not None

    def explainer(
        self, method: Method | None = None, target: str | None = None, class_name: str | None = None
    ) -> Explainer:
        """Return the explainer of a target and of one of its classes, see `find_score`.

        Without both it explains the first target that has not several classes, if any.
        """
        if target is None and class_name is None:
            pairs = zip(self.plain.target_names, self.plain.types, strict=True)
            target = next(
                (name for name, target_type in pairs if target_type.several is None),
                self.plain.target_names[0],
            )
        method = method or self.method or METHODS[0]
        masks_whole = method == "shapley" and isinstance(self.plain, FittedPredictor)
        limit = MASKED_MOLECULES if masks_whole else None
        return Explainer(
            self.plain, method=method, target=target, class_name=class_name, max_evaluations=limit
        )

    def _measured_widths(self, calibration: Calibration) -> dict[str, float]:
        pairs = zip(calibration.targets, column_slices(self.plain.types), strict=True)
        widths = {self.plain.columns[columns.start]: held.measured_width(LEVEL) for held, columns in pairs}
        return {column: width for column, width in widths.items() if width is not None}

    def describe(self) -> dict[str, Any]:
        """Return what `/models` shows."""
        types = [target_type for target_type in self.plain.types for _ in range(target_type.num_columns)]
        targets = [
            {
                "name": f"{column['name']}: {column['class']}" if target_type.several else column["name"],
                "target": column["name"],
                "unit": column["unit"],
                "kind": target_type.kind,
                "column": column["column"],
            }
            for target_type, column in zip(types, self.plain.described_columns, strict=True)
        ]
        return {
            "name": self.name,
            "kind": self.plain.targets.kind,
            "targets": targets,
            "intervals": self.intervals,
            "domain": self.domain,
            "explanations": self.method is not None,
            "method": self.method,
            "measured_widths": self.measured_widths,
            "conditions": self.plain.condition_names,
        }


Models = Mapping[str, ServedModel]


def load_models(models: Mapping[str, str], device: str) -> dict[str, ServedModel]:
    """Load models, given as path or name by their names in the service; see `ServedModel`."""
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own lock is a system semaphore, which a killed process would leak
    return {name: ServedModel(name, path, device) for name, path in models.items()}


def _or_none(attempt: Callable[[], Result]) -> Result | None:
    """Return the result of a function; None if it raises a `MolsliceError`."""
    with suppress(MolsliceError):
        return attempt()
    return None


def answer(models: Models, task: str, options: dict[str, Any], report: Report) -> tuple[str, Any]:
    """Carry out a task; return `("done", result)` or `("failed", reason)`."""
    try:
        return "done", TASKS[task](models, report, **options)
    except (MolsliceError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return "failed", _to_client(reason_of(error), models)


def reason_of(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())


def _to_client(text: str, models: Models) -> str:
    """Name models in a message by their names instead of their folders."""
    return without_folders(
        text, {folder: model.name for model in models.values() for folder in model.folders}
    )


def _predict(
    models: Models,
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    interval: float | None = None,
    domain: bool = False,
    goals: Sequence[str] | None = None,
    conditions: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Predict molecules, and return one row for each; with goals it has the `notes` about them."""
    served, ranker = models[model], None
    predictor, options = served.plain, served.options(interval, domain=domain)
    if goals is not None:
        ranker = served.ranker(tuple(goals), interval or LEVEL)
        options = replace(ranker.options, domain=options.domain)
    predictions = predictor.predict_with_errors(smiles, conditions=conditions, options=options)
    rows = _prediction_rows(predictor, smiles, predictions, with_uncertainty=interval is not None)
    if ranker is not None:
        notes = ranker.notes
        for row, probability in zip(rows, ranker.score(predictions).probability, strict=True):
            row |= {"probability": _number(probability), "notes": notes}
    return rows


def _prediction_rows(
    predictor: Predictor, smiles: Sequence[str], predictions: Predictions, *, with_uncertainty: bool
) -> list[dict[str, Any]]:
    """Return predictions as the rows that `/predict` answers."""
    rows = []
    for place, (text, error) in enumerate(zip(smiles, predictions.errors, strict=True)):
        is_read = error is None
        labels = predictions.labels[place] if predictions.labels is not None and is_read else None
        compared = predictions.domain[place] if predictions.domain is not None else None
        rows.append(
            {
                "smiles": text,
                "values": _by_column(predictor, predictions.values[place]) if is_read else None,
                "classes": None
                if labels is None
                else dict(zip(predictor.labeled_targets, labels, strict=True)),
                "uncertainty": _uncertainty(predictor, predictions, place)
                if is_read and with_uncertainty
                else None,
                "domain": None if compared is None else _domain(predictor, compared),
                "error": error,
            }
        )
    return rows


def _domain(predictor: Predictor, domain: Domain) -> dict[str, Any]:
    neighbors = [
        {
            "smiles": neighbor.smiles,
            "similarity": neighbor.similarity,
            "measured": _measured(predictor, neighbor),
        }
        for neighbor in domain.neighbors
    ]
    return {
        "place": domain.place,
        "reason": domain.reason,
        "is_training": domain.is_training,
        "neighbors": neighbors,
    }


def _uncertainty(predictor: Predictor, predictions: Predictions, place: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name in ("lower", "upper", "spread", "calibrated"):
        values = getattr(predictions, name)
        numbers[name] = None if values is None else _by_column(predictor, values[place])
    sets = None
    if predictions.sets is not None:
        columns, sets = iter(predictor.columns), {}
        for target_type, members in zip(predictor.types, predictions.set_members(place), strict=True):
            # each of several classes has a column
            of_target = [next(columns) for _ in range(target_type.num_columns)]
            sets |= dict.fromkeys(of_target, members) if target_type.has_classes else {}
    return {**numbers, "set": sets}


def _measured(predictor: Predictor, neighbor: Neighbor) -> dict[str, float | None] | None:
    """Return the values of a training molecule by column; several classes have none."""
    if neighbor.measured is None:
        return None
    types = predictor.types
    targets = zip(types, column_slices(types), neighbor.measured, strict=True)
    return {
        predictor.columns[columns.start]: _number(value)
        for target_type, columns, value in targets
        if target_type.several is None
    }


def _by_column(predictor: Predictor, values: np.ndarray) -> dict[str, float | None]:
    """Return numbers by column."""
    return {column: _number(value) for column, value in zip(predictor.columns, values, strict=True)}


def _number(value: float) -> float | None:
    """Return a number with the shortest digits of a float32; None if it is not finite."""
    return float(str(np.float32(value))) if math.isfinite(value) else None


def _explain(
    models: Models,
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    target: str | None,
    class_name: str | None = None,
    method: Method | None,
    theme: Theme | None = None,
    conditions: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Compute and draw the contributions of the atoms of molecules."""
    explainer = models[model].explainer(method, target, class_name)

    def explain(text: str) -> dict[str, Any]:
        explanation = explainer(text, conditions)
        assert isinstance(explanation, Contributions)
        if theme is None:
            drawn = explanation.picture(".svg").decode("ascii", "replace")
        else:
            drawn = explanation.bare_picture(dark=theme == "dark")
        return {**explanation.to_dict(), "svg": drawn}

    return _rows(smiles, explain, models)


def _choose(
    models: Models,
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    scores: Sequence[float],
    number: int,
    request: str,  # noqa: ARG001
) -> list[dict[str, Any] | None]:
    """Choose diverse molecules with large scores; each has its rank from 1, and the others None."""
    predictor, readable = models[model].plain, np.zeros(len(smiles), bool)
    described: dict[int, tuple[str, np.ndarray]] = {}
    for place, text in enumerate(smiles):
        with suppress(MolsliceError):
            described[place] = describe_row(predictor, text)
            readable[place] = True
    weights = np.where(readable, np.array(scores, np.float64), -np.inf)
    order = np.argsort(-weights, kind="stable")[: int(readable.sum())]
    places, similarities = choose_diverse(weights[order], lambda place: described[int(order[place])], number)
    chosen: list[dict[str, Any] | None] = [None] * len(smiles)
    for rank, (place, similarity) in enumerate(zip(order[places], similarities, strict=True), start=1):
        chosen[place] = {"rank": rank, "similarity": float(similarity)}
    return chosen


def _draw(models: Models, report: Report, *, smiles: Sequence[str], dark: bool) -> list[dict[str, Any]]:
    """Draw molecules as SVG."""
    return _rows(smiles, partial(draw_smiles, dark=dark), models)


def _rows(smiles: Sequence[str], compute: Callable[[str], Any], models: Models) -> list[dict[str, Any]]:
    """Return `result` and `error` of each molecule."""
    rows = []
    for text in smiles:
        try:
            rows.append({"result": compute(text), "error": None})
        except MolsliceError as error:
            rows.append({"result": None, "error": _to_client(str(error), models)})
    return rows


def _predict_file(
    models: Models,
    report: Report,
    *,
    model: str,
    source: str,
    target: str,
    shown: str,
    name: str,
    max_rows: int,
    interval: float | None = None,
    domain: bool = False,
) -> dict[str, Any]:
    """Predict a file with the code of `molslice predict`; report the rows and the share of the bytes done.

    The first `SHOWN_ROWS` rows are also written to `shown`, as `FileRows`. Messages name the file as the user
    does. Beside a GPU, the SMILES of a large file are read by all cores; on a CPU they are left to the other
    requests.
    """
    rows: list[dict[str, Any]] = []
    predictor = models[model].plain
    workers = 0
    if predictor.device.type != "cpu":
        workers = default_workers(predictor.device, estimate_rows([source]))

    def as_named(text: str) -> str:
        return text.replace(target, "the result").replace(source, name)

    try:
        options = models[model].options(interval, domain=domain)
        outcome = predict_table(
            predictor,
            Path(source),
            Path(target),
            options,
            engine=partial(_in_small_chunks, report, max_rows, options, rows, workers),
            workers=0,
            progress=False,
        )
        described = models[model].describe()
        document = {
            "model": model,
            "targets": described["targets"],
            "rows": outcome.rows,
            "predictions": rows,
        }
        write_atomically(shown, json.dumps(document, allow_nan=False, separators=(",", ":")))
    except MolsliceError as error:
        raise MolsliceError(as_named(str(error))) from error
    except OSError as error:
        raise MolsliceError(f"cannot write the predictions of {name}: {reason_of(error)}") from error
    return {
        "rows": outcome.rows,
        "failed": outcome.failed,
        "refusals": [
            {"reason": as_named(kind["reason"]), "count": kind["count"]} for kind in outcome.refusals
        ],
        "columns": list(outcome.columns),
        "smiles_column": outcome.smiles_column,
        "message": as_named("; ".join([*outcome.findings, *filter(None, [outcome.first_failure])])),
    }


def _in_small_chunks(
    report: Report,
    max_rows: int,
    options: PredictionOptions,
    shown: list[dict[str, Any]],
    workers: int,
    predictor: Predictor,
    table: MoleculeTable,
    columns: Sequence[str],
) -> Generator[Computed]:
    """Predict the chunks of a table in order, and add its first rows to `shown`.

    It is an `Engine` of `predict_table`.
    """
    name_column = find_name_column(table.names, table.smiles_column)
    columns = columns if name_column is None else [*columns, name_column]

    def chunks() -> Generator[Chunk]:
        rows, size = 0, FILE_CHUNK_ROWS if predictor.device.type == "cpu" else predictor.chunk_rows
        for chunk in table.chunks(size, columns):
            rows += len(chunk)
            if rows > max_rows:
                raise MolsliceError(f"more than {max_rows:,} rows; use molslice predict for larger files")
            yield chunk

    done = 0
    read, to_predict = tee(chunks())
    smiles = (predictor.rows_of(chunk, table.smiles_column) for chunk in to_predict)
    with closing(predictor.predict_chunks(smiles, options, workers)) as predicted:
        for predictions, chunk in zip(predicted, read, strict=True):
            position = table.position
            if len(shown) < SHOWN_ROWS:
                shown += _named_rows(predictor, table, chunk, predictions, name_column, options)
                del shown[SHOWN_ROWS:]
            yield chunk, predictions.table_rows(), position
            done += len(chunk)
            report({"rows": done, "share": min(1.0, position / max(table.size, 1))})


def _named_rows(
    predictor: Predictor,
    table: MoleculeTable,
    chunk: Chunk,
    predictions: Predictions,
    name_column: str | None,
    options: PredictionOptions,
) -> list[dict[str, Any]]:
    """Return rows of `FileRows` with the nearest training molecule only."""
    rows = _prediction_rows(
        predictor, chunk[table.smiles_column], predictions, with_uncertainty=options.level is not None
    )
    for place, row in enumerate(rows):
        row["name"] = "" if name_column is None else chunk[name_column][place]
        row["conditions"] = {name: chunk[name][place] for name in predictor.condition_names} or None
        if row["domain"] is not None:
            del row["domain"]["neighbors"][1:]
    return rows


def _write_rows(
    models: Models,
    report: Report,
    *,
    source: str,
    target: str,
    smiles_column: str,
    rows: Sequence[int] | None,
    columns: Mapping[str, Sequence[str]],
) -> None:
    """Write rows of a result in another format."""
    write_rows(Path(source), Path(target), smiles_column, rows, columns, lambda done: report({"rows": done}))


TASKS: dict[str, Callable[..., Any]] = {
    "predict": _predict,
    "draw": _draw,
    "explain": _explain,
    "choose": _choose,
    "predict_file": _predict_file,
    "write_rows": _write_rows,
}
