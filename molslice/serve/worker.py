"""The program of a worker process: it loads the models and computes what it is asked for."""

import math
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from molslice.files.folder_names import without_folders
from molslice.files.processes import end_with_parent
from molslice.serve.served_model import ServedModel, explainer_of, load_models

if TYPE_CHECKING:
    import numpy as np

    from molslice.data.molecules.tables import MoleculeTable
    from molslice.files.tables import Chunk
    from molslice.inference.base import Predictions, SmilesPredictor
    from molslice.inference.options import PredictionOptions
    from molslice.inference.predictions import Domain
    from molslice.inference.tables.table import Computed

__all__ = ["TASKS", "answer", "run_worker"]

FILE_CHUNK_ROWS = 256  # rows between two reports of progress

Report = Callable[[dict[str, Any]], None]


def run_worker(
    connection: Any,  # noqa: ANN401
    models: Mapping[str, str],
    device: str,
) -> None:
    """Load the models, then carry out tasks until None is received or the other end of the connection closes.

    Sends `("ready", descriptions of the models)`. Receives `(task, options)` and answers with
    `("begun", None)`, any number of `("progress", value)` and one `("done", result)` or `("failed", reason)`.

    Args:
        connection: The connection to the process of the server.
        models: Path or name of each model.
        device: Where to compute.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the server ends this process after the last answer
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    end_with_parent()
    from molslice.types import MolsliceError

    try:
        loaded = load_models(models, device)
        connection.send(("ready", [model.describe() for model in loaded.values()]))
        while (order := connection.recv()) is not None:
            connection.send(("begun", None))
            task, options = order
            connection.send(answer(loaded, task, options, lambda value: connection.send(("progress", value))))
    except (MolsliceError, OSError) as error:
        if not isinstance(error, BrokenPipeError | ConnectionError):
            connection.send(("failed", _reason(error)))
    except EOFError:
        pass


def answer(
    models: Mapping[str, ServedModel], task: str, options: dict[str, Any], report: Report
) -> tuple[str, Any]:
    """Carry out a task; return `("done", result)` or `("failed", reason)`."""
    from molslice.types import MolsliceError

    try:
        return "done", TASKS[task](models, report, **options)
    except (MolsliceError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        return "failed", _to_client(_reason(error), models)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())


def _to_client(text: str, models: Mapping[str, ServedModel]) -> str:
    """Name models in a message by their names instead of their folders."""
    return without_folders(
        text, {folder: model.name for model in models.values() for folder in model.folders}
    )


def _predict(
    models: Mapping[str, ServedModel],
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    interval: float | None = None,
    domain: bool = False,
    conditions: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Predict molecules, and return one row for each."""
    predictor, options = models[model].plain, models[model].options(interval, domain)
    predictions = predictor.predict_with_errors(smiles, conditions=conditions, options=options)
    rows = []
    for place, (text, error) in enumerate(zip(smiles, predictions.errors, strict=True)):
        is_read = error is None
        compared = predictions.domain[place] if predictions.domain is not None else None
        rows.append(
            {
                "smiles": text,
                "values": _by_column(predictor, predictions.values, place) if is_read else None,
                "uncertainty": _uncertainty(predictor, predictions, place) if is_read and interval else None,
                "domain": None if compared is None else _domain(predictor, compared),
                "error": error,
            }
        )
    return rows


def _explain(
    models: Mapping[str, ServedModel],
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    target: str | None,
    method: Literal["gradients", "shapley"] | None,
) -> list[dict[str, Any]]:
    """Compute and draw the contributions of the atoms of molecules."""
    from molslice.explanation.result import Contributions
    from molslice.types import MolsliceError

    served = models[model]
    explainer = explainer_of(served.plain, served.part, method or served.method or "gradients", target)
    rows = []
    for text in smiles:
        try:
            explanation = explainer(text)
        except MolsliceError as error:
            rows.append({"explanation": None, "error": _to_client(str(error), models)})
            continue
        assert isinstance(explanation, Contributions)
        svg = explanation.picture(".svg").decode("ascii", "replace")
        rows.append({"explanation": {**explanation.to_dict(), "svg": svg}, "error": None})
    return rows


def _domain(predictor: "SmilesPredictor", domain: "Domain") -> dict[str, Any]:
    neighbors = []
    for neighbor in domain.neighbors:
        measured = None
        if neighbor.measured is not None:
            values = zip(predictor.columns, neighbor.measured, strict=True)
            measured = {column: None if math.isnan(value) else _digits(value) for column, value in values}
        neighbors.append({"smiles": neighbor.smiles, "similarity": neighbor.similarity, "measured": measured})
    return {"in_domain": domain.in_domain, "reason": domain.reason, "neighbors": neighbors}


def _uncertainty(predictor: "SmilesPredictor", predictions: "Predictions", place: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        name: _by_column(predictor, getattr(predictions, name), place)
        for name in ("lower", "upper", "spread", "calibrated")
    }
    sets = None
    if predictions.sets is not None:
        members = predictions.set_members(place)
        if predictor.targets.kind == "multiclass":  # each class of the target has a column
            members *= len(predictor.columns)
        sets = dict(zip(predictor.columns, members, strict=True))
    return {**numbers, "set": sets}


def _by_column(
    predictor: "SmilesPredictor", values: "np.ndarray | None", place: int
) -> dict[str, float | None] | None:
    """Return the numbers of a row by column; None for an infinite one, and if there are none."""
    if values is None:
        return None
    return {column: _number(value) for column, value in zip(predictor.columns, values[place], strict=True)}


def _number(value: Any) -> float | None:  # noqa: ANN401
    return _digits(value) if math.isfinite(value) else None


def _digits(value: Any) -> float:  # noqa: ANN401
    """Return the shortest digits of a float32."""
    import numpy as np

    return float(str(np.float32(value)))


def _draw(
    models: Mapping[str, ServedModel],
    report: Report,
    *,
    model: str,
    smiles: Sequence[str],
    dark: bool,
) -> list[dict[str, Any]]:
    """Draw molecules as SVG."""
    from molslice.chem.drawing import draw_smiles
    from molslice.chem.smiles import ChemError

    drawn = []
    for text in smiles:
        try:
            drawn.append({"svg": draw_smiles(text, dark=dark), "error": None})
        except ChemError as error:
            drawn.append({"svg": None, "error": str(error)})
    return drawn


def _predict_file(
    models: Mapping[str, ServedModel],
    report: Report,
    *,
    model: str,
    source: str,
    target: str,
    name: str,
    max_rows: int,
    interval: float | None = None,
    domain: bool = False,
) -> dict[str, Any]:
    """Predict a file with the code of `molslice predict`; report the rows and the share of the bytes done.

    Messages name the file as the user does.
    """
    from molslice.inference.tables.table import predict_table
    from molslice.types import MolsliceError

    def as_named(text: str) -> str:
        return text.replace(target, "the result").replace(source, name)

    try:
        options = models[model].options(interval, domain)
        engine = partial(_in_small_chunks, report, max_rows, options)
        outcome = predict_table(
            models[model].plain,
            Path(source),
            Path(target),
            options,
            engine=engine,
            workers=0,
            progress=False,
        )
    except MolsliceError as error:
        raise MolsliceError(as_named(str(error))) from error
    except OSError as error:
        raise MolsliceError(f"cannot write the predictions of {name}: {_reason(error)}") from error
    return {
        "rows": outcome.rows,
        "failed": outcome.failed,
        "refusals": [
            {"reason": as_named(kind["reason"]), "count": kind["count"]} for kind in outcome.refusals
        ],
        "columns": list(outcome.columns),
        "message": as_named("; ".join([*outcome.findings, *filter(None, [outcome.first_failure])])),
    }


def _in_small_chunks(
    report: Report,
    max_rows: int,
    options: "PredictionOptions",
    predictor: "SmilesPredictor",
    table: "MoleculeTable",
    columns: Sequence[str],
) -> Generator["Computed", None, None]:
    """Predict the chunks of a table in order; an `Engine` of `predict_table`."""
    from molslice.types import MolsliceError

    def chunks() -> Generator["Chunk", None, None]:
        rows = 0
        for chunk in table.chunks(FILE_CHUNK_ROWS, columns):
            rows += len(chunk)
            if rows > max_rows:
                raise MolsliceError(f"more than {max_rows:,} rows; use molslice predict for larger files")
            yield chunk

    done = 0
    read, to_predict = tee(chunks())
    smiles = (predictor.rows_of(chunk, table.smiles_column) for chunk in to_predict)
    with closing(predictor.predict_chunks(smiles, options)) as predicted:
        for predictions, chunk in zip(predicted, read, strict=True):
            position = table.position
            yield chunk, predictions.table_rows(), position
            done += len(chunk)
            report({"rows": done, "share": min(1.0, position / max(table.size, 1))})


TASKS: dict[str, Callable[..., Any]] = {
    "predict": _predict,
    "draw": _draw,
    "explain": _explain,
    "predict_file": _predict_file,
}
