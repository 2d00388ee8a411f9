"""Requests that are generated from the OpenAPI document, valid and invalid ones."""

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from molslice.serve import app as app_module
from molslice.serve.app import Service, build_app
from tests.serve.inline import InlineWorker

# a text is valid for the document even if it is no SMILES and no name of a file
EXCLUDED = [positive_data_acceptance]
ALWAYS_VALID = {"/models", "/limits", "/health", "/metrics", "/files/{job_id}", "/files/{job_id}/rows"}


@pytest.fixture(scope="module")
def api_schema(model_folders):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "WorkerProcess", InlineWorker)
        service = Service(model_folders)
        close, service.close = service.close, lambda: None  # each request starts and ends the application
        yield schemathesis.openapi.from_asgi("/openapi.json", build_app(service))
        close()


OPERATIONS = [
    ("/predict", "POST"),
    ("/choose", "POST"),
    ("/explain", "POST"),
    ("/draw", "GET"),
    ("/files", "POST"),
    ("/files/{job_id}", "GET"),
    ("/files/{job_id}/result", "GET"),
    ("/files/{job_id}/result", "POST"),
    ("/files/{job_id}/rows", "GET"),
    ("/models", "GET"),
    ("/limits", "GET"),
    ("/health", "GET"),
    ("/metrics", "GET"),
]


def test_all_paths_are_tested(api_schema):
    paths = api_schema.raw_schema["paths"]
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert described - {("/files/{job_id}", "DELETE")} == set(OPERATIONS)


CASES = [
    (path, method, mode)
    for path, method in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or (path not in ALWAYS_VALID and (path, method) != ("/files/{job_id}/result", "GET"))
]


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_every_answer_is_one_that_the_document_describes(api_schema, path, method, mode):
    @hypothesis.given(case=api_schema[path][method].as_strategy(generation_mode=mode))
    @hypothesis.settings(max_examples=30, deadline=None, derandomize=True, database=None)
    def check(case):
        case.call_and_validate(excluded_checks=EXCLUDED)

    check()
