"""The application with all paths: the page, the JSON API and the metrics."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect

from molslice.serve.batching import Batcher, QueueFullError
from molslice.serve.file_jobs import FileJob, FileJobs, UnpackedTooLargeError, result_formats
from molslice.serve.guard import UPLOAD_PATH, Guard, JsonAnswer, refusal
from molslice.serve.limits import Limits
from molslice.serve.metrics import Metrics
from molslice.serve.process import WorkerLostError, WorkerProcess
from molslice.serve.schemas import (
    ChooseAnswer,
    ChooseRequest,
    ExplainAnswer,
    ExplainRequest,
    FileRows,
    FileStatus,
    Health,
    LimitsAnswer,
    ModelCard,
    PredictAnswer,
    PredictRequest,
    Problem,
    RowsRequest,
)
from molslice.types import MolsliceError
from molslice.version import __version__

STATIC = Path(__file__).parent / "static"
UPLOAD_PIECE = 1_000_000  # bytes written at once
JobId = Annotated[str, PathParameter(description="`id` of the uploaded file")]
SHOWN_PROBLEMS, LONGEST_DETAIL = 3, 1_000  # of an invalid request; characters
REFUSALS = {
    400: "The request cannot be read.",
    403: "The request comes from another site.",
    404: "There is no such model, file or path.",
    408: "The request was not received in time.",
    409: "The file has no predictions, or not yet.",
    413: "The request is too large.",
    422: "The request is invalid, or the molecule or file cannot be read.",
    429: "The queue is full; the header Retry-After tells when to try again.",
    503: "The service cannot compute at the moment.",
    504: "The computation took too long.",
}
STATUSES: dict[type, int] = {QueueFullError: 429, WorkerLostError: 503, UnpackedTooLargeError: 413}


class Service:
    """The models, given as path or name by their names, and the workers that compute for the application.

    The first model is the default. `workers` processes compute requests; explanations and files have another
    one each.
    """

    def __init__(
        self, models: Mapping[str, str], device: str = "cpu", workers: int = 1, limits: Limits | None = None
    ) -> None:
        self.limits, self.metrics = limits or Limits(), Metrics()
        self.workers = [WorkerProcess(models, device) for _ in range(workers)]
        try:
            with ThreadPoolExecutor(workers) as pool:
                self.models = list(pool.map(WorkerProcess.start, self.workers))[0]
        except BaseException:
            for worker in self.workers:
                worker.close()
            raise
        self.batcher = Batcher(self.workers, self.limits, self.metrics.count_batch)
        # explanations take longer than predictions, so that they do not share a worker
        self.explainer = Batcher(
            [WorkerProcess(models, device)], replace(self.limits, waiting=self.limits.explanations_waiting)
        )
        self.files = FileJobs(WorkerProcess(models, device), WorkerProcess({}), self.limits)

    def find_model(self, name: str | None) -> dict[str, Any]:
        """Return the description of a model; of the first one for None."""
        if name is None:
            return self.models[0]
        models = {model["name"]: model for model in self.models}
        if name not in models:
            raise HTTPException(404, f"no model {name[:100]!r}; the models are {', '.join(models)}")
        return models[name]

    async def compute(self, task: str, smiles: Sequence[str], **options: Any) -> list[Any]:  # noqa: ANN401
        """Compute one result for each molecule, together with other requests.

        Raises:
            HTTPException: The time is over.
            MolsliceError: As in `Batcher.submit` and `WorkerProcess.call`.
        """
        if not smiles:
            return []
        batcher = self.explainer if task == "explain" else self.batcher
        future = asyncio.wrap_future(batcher.submit(task, options, smiles))
        try:
            return await asyncio.wait_for(future, self.limits.seconds)
        except TimeoutError:
            raise HTTPException(504, f"not computed within {self.limits.seconds:g} s") from None

    async def compute_one(self, task: str, smiles: str, **options: Any) -> Any:  # noqa: ANN401
        """Compute the result of one molecule, as `compute`; one without a result is refused."""
        (row,) = await self.compute(task, [smiles], **options)
        if row["error"] is not None:
            raise HTTPException(422, row["error"])
        return row["result"]

    def warm_up(self) -> None:
        """Start the worker for explanations, which loads the models, before the first explanation."""
        with contextlib.suppress(MolsliceError):  # then the first explanation starts it
            if not self.explainer.is_started:
                self.explainer.submit("draw", {"dark": False}, ["C"])

    def close(self) -> None:
        """End all workers and delete all files."""
        self.batcher.close()
        self.explainer.close()
        self.files.close()


def build_app(service: Service, hosts: Collection[str] | None = None) -> FastAPI:
    """Build the application, which closes the service at its end; see `Guard` for the hosts."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:  # noqa: ARG001
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="molslice",
        description="Predict molecular properties.",
        version=__version__,
        docs_url=None,  # these pages load programs from another host
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Guard, limits=service.limits, hosts=hosts, count=service.metrics.count_request)
    _add_errors(app)
    _add_predictions(app, service)
    _add_files(app, service)
    _add_status(app, service)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        service.warm_up()
        return FileResponse(STATIC / "index.html")

    return app


def _refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem, "description": REFUSALS[code]} for code in (400, 403, *codes)}


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JsonAnswer:  # noqa: ARG001
        problems = error.errors()
        texts = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems[:SHOWN_PROBLEMS]
        ]
        return JsonAnswer({"detail": "; ".join(texts)[:LONGEST_DETAIL]}, 422)

    @app.exception_handler(AnyHTTPException)
    async def not_answered(request: Request, error: AnyHTTPException) -> JsonAnswer:  # noqa: ARG001
        return refusal(error)

    @app.exception_handler(MolsliceError)
    async def refused(request: Request, error: MolsliceError) -> JsonAnswer:  # noqa: ARG001
        headers = {"retry-after": str(error.retry_seconds)} if isinstance(error, QueueFullError) else {}
        return JsonAnswer({"detail": str(error)}, STATUSES.get(type(error), 422), headers)


def _add_predictions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/predict",
        summary="Predict one or many molecules",
        responses=_refusals(404, 408, 413, 422, 429, 503, 504),
        response_model=PredictAnswer,
    )
    async def predict(body: PredictRequest) -> Response:
        """Predict molecules. A molecule that cannot be read has the reason in `error`."""
        smiles = [body.smiles] if isinstance(body.smiles, str) else body.smiles
        _check_count(service, smiles)
        model = service.find_model(body.model)
        rows = await service.compute(
            "predict",
            smiles,
            model=model["name"],
            interval=body.interval,
            domain=body.domain,
            goals=body.goals,
            conditions=body.conditions,
        )
        failed = sum(row["error"] is not None for row in rows)
        service.metrics.count_molecules(model["name"], len(rows) - failed, failed)
        notes = [row.pop("notes", []) for row in rows]  # the same for all rows
        return JsonAnswer(
            {
                "model": model["name"],
                "targets": model["targets"],
                "failed": failed,
                "notes": notes[0] if notes else [],
                "predictions": rows,
            }
        )

    @app.post(
        "/choose",
        summary="Choose diverse molecules",
        responses=_refusals(404, 408, 413, 422, 429, 503, 504),
        response_model=ChooseAnswer,
    )
    async def choose(body: ChooseRequest) -> Response:
        """Choose molecules one by one, each with the largest score times (1 - similarity to those before)."""
        if len(body.smiles) != len(body.scores):
            raise HTTPException(422, f"{len(body.smiles)} molecules and {len(body.scores)} scores")
        _check_count(service, body.smiles)
        model = service.find_model(body.model)["name"]
        choices = await service.compute(
            "choose",
            body.smiles,
            model=model,
            scores=body.scores,
            number=body.number,
            request=secrets.token_hex(8),  # two equal requests are not one with more molecules
        )
        return JsonAnswer({"choices": choices})

    @app.post(
        "/explain",
        summary="Explain a prediction by its atoms",
        responses=_refusals(404, 408, 413, 422, 429, 503, 504),
        response_model=ExplainAnswer,
    )
    async def explain(body: ExplainRequest) -> Response:
        """Compute the contribution of each atom to a prediction, and draw them."""
        model = service.find_model(body.model)
        explanation = await service.compute_one(
            "explain",
            body.smiles,
            model=model["name"],
            target=body.target,
            class_name=body.class_name,
            method=body.method,
            theme=body.theme,
            conditions=body.conditions,
        )
        return JsonAnswer(explanation)

    @app.get(
        "/draw",
        summary="Draw a molecule",
        responses={
            200: {
                "content": {"image/svg+xml": {"schema": {"type": "string"}}},
                "description": "The drawing.",
            },
            **_refusals(422, 429, 503, 504),
        },
        response_class=Response,
    )
    async def draw(
        smiles: Annotated[str, Query(max_length=10_000, description="the molecule", examples=["CCO"])],
        theme: Annotated[Literal["light", "dark"], Query(description="of the background")] = "light",
    ) -> Response:
        """Draw the structure as SVG, on a transparent background."""
        drawn = await service.compute_one("draw", smiles, dark=theme == "dark")
        return Response(drawn.encode("ascii"), media_type="image/svg+xml")


def _check_count(service: Service, smiles: Sequence[str]) -> None:
    """Refuse more molecules than a request may have."""
    if len(smiles) > service.limits.molecules:
        raise HTTPException(
            413, f"{len(smiles)} molecules, more than {service.limits.molecules}; upload them as a file"
        )


def _add_files(app: FastAPI, service: Service) -> None:
    @app.post(
        UPLOAD_PATH,
        status_code=202,
        summary="Upload a file to predict",
        responses=_refusals(404, 408, 413, 422, 429, 503),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def upload(
        request: Request,
        name: Annotated[
            str,
            Query(description="name of the file; its ending tells the format", examples=["molecules.csv"]),
        ],
        model: Annotated[str | None, Query(description="by default the first model")] = None,
        interval: Annotated[float | None, Query(gt=0, lt=1, description="as in /predict")] = None,
        domain: Annotated[bool, Query(description="as in /predict")] = False,
    ) -> FileStatus:
        """Upload a table as the body of the request, also packed with gzip, to predict all its rows."""
        known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
        if unknown := request.query_params.keys() - known:
            raise HTTPException(422, f"unknown parameter {min(unknown)!r}; choices: {', '.join(known)}")
        job = service.files.create(service.find_model(model)["name"], name, interval, domain=domain)
        try:
            await _save(request, job)
            await asyncio.to_thread(service.files.submit, job)
        except BaseException as error:
            await asyncio.to_thread(service.files.discard, job.id)
            if isinstance(error, ClientDisconnect):
                raise HTTPException(400, "the file is incomplete") from error
            if isinstance(error, OSError):
                raise HTTPException(503, f"the file cannot be stored: {error.strerror}") from error
            raise
        return job

    @app.get("/files/{job_id}", summary="Tell the progress of a file", responses=_refusals(404, 422))
    async def progress(job_id: JobId) -> FileStatus:
        """Tell how far the prediction of a file is."""
        return _find(service, job_id)

    @app.get(
        "/files/{job_id}/result",
        summary="Download the predictions of a file",
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "The rows with predictions."},
            **_refusals(404, 409, 422),
        },
        response_class=FileResponse,
    )
    async def result(job_id: JobId) -> FileResponse:
        """Download the file with the columns of predictions, the same rows in the same order."""
        job = _find_done(service, job_id)
        return FileResponse(job.result, filename=job.result_name(), media_type="application/octet-stream")

    @app.post(
        "/files/{job_id}/result",
        summary="Download rows of a file with predictions",
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "The rows with predictions."},
            **_refusals(404, 408, 409, 413, 422, 429, 503),
        },
        response_class=FileResponse,
    )
    async def chosen_rows(job_id: JobId, body: RowsRequest) -> FileResponse:
        """Download rows with all their columns, in the order of the request, as CSV, SD file or workbook."""
        job, ending = _find_done(service, job_id), f".{body.format}"
        path = await asyncio.wrap_future(service.files.write(job, ending, body.rows, body.columns))
        return FileResponse(
            path,
            filename=job.result_name(ending),
            media_type="application/octet-stream",
            background=BackgroundTask(path.unlink, missing_ok=True),
        )

    @app.get(
        "/files/{job_id}/rows",
        summary="Return the first rows of a file with their predictions",
        responses={200: {"model": FileRows}, **_refusals(404, 409, 422)},
        response_class=FileResponse,
    )
    async def rows(job_id: JobId) -> FileResponse:
        """Return the first 10,000 rows of a file as `/predict` answers them, with their names."""
        return FileResponse(_find_done(service, job_id).shown, media_type="application/json")

    @app.delete("/files/{job_id}", status_code=204, summary="Delete a file", responses=_refusals(404, 422))
    async def delete(job_id: JobId) -> Response:
        """Stop the prediction of a file, and delete the file and its predictions."""
        _find(service, job_id)
        await asyncio.to_thread(service.files.discard, job_id)
        return Response(status_code=204)


async def _save(request: Request, job: FileJob) -> None:
    """Write the body of a request to the file of a job."""
    piece = bytearray()
    with await asyncio.to_thread(job.source.open, "wb") as file:
        async for received in request.stream():
            piece += received
            if len(piece) >= UPLOAD_PIECE:
                await asyncio.to_thread(file.write, bytes(piece))
                piece.clear()
        await asyncio.to_thread(file.write, bytes(piece))


def _find(service: Service, job_id: str) -> FileJob:
    job = service.files.find(job_id)
    if job is None:
        raise HTTPException(404, "there is no such file")
    return job


def _find_done(service: Service, job_id: str) -> FileJob:
    job = _find(service, job_id)
    if job.state != "done":
        raise HTTPException(409, f"{job.name} has no predictions: {job.message or job.state}")
    return job


def _add_status(app: FastAPI, service: Service) -> None:
    @app.get("/models", summary="List the models", response_model=list[ModelCard], responses=_refusals())
    async def models() -> list[dict[str, Any]]:
        """List the models; the first one is the default."""
        return service.models

    @app.get(
        "/limits",
        summary="Tell what one request may ask for",
        response_model=LimitsAnswer,
        responses=_refusals(),
    )
    async def limits() -> dict[str, Any]:
        """Tell the sizes and counts beyond which a request is refused, and the formats of results."""
        return {**asdict(service.limits), "formats": result_formats()}

    @app.get(
        "/health",
        summary="Tell whether the service answers requests",
        response_model=Health,
        responses={**_refusals(), 503: {"model": Health, "description": "No worker process is running."}},
    )
    async def health() -> JsonAnswer:
        """Tell whether the service answers requests."""
        alive = any(worker.is_alive for worker in service.workers)
        state = {
            "status": "ok" if alive else "unavailable",
            "version": __version__,
            "waiting": service.batcher.waiting,
        }
        return JsonAnswer(state, 200 if alive else 503)

    @app.get(
        "/metrics",
        summary="Show the counters for Prometheus",
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counters."},
            **_refusals(),
        },
        response_class=Response,
    )
    async def metrics() -> Response:
        """Show the counters for Prometheus."""
        starts = sum(worker.starts for worker in service.workers)
        text = service.metrics.text(service.batcher.waiting, starts)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
