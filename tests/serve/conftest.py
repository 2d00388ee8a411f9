"""A service that computes in this process."""

import pytest
from fastapi.testclient import TestClient

from molslice.serve import app as app_module
from molslice.serve.app import Service, build_app
from molslice.serve.limits import Limits
from tests.inference.models import TWO, checkpoint_folder
from tests.serve.inline import InlineWorker


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory):
    """Folders of two models: `first`, and `second` with two targets."""
    folder = tmp_path_factory.mktemp("served")
    names = {
        "first": checkpoint_folder(folder / "first"),
        "second": checkpoint_folder(folder / "second", TWO),
    }
    return {name: str(path) for name, path in names.items()}


@pytest.fixture
def serve(model_folders, monkeypatch):
    """Return a function that starts a service with other limits and returns its client."""
    monkeypatch.setattr(app_module, "WorkerProcess", InlineWorker)
    clients = []

    def start(hosts=None, **limits):
        service = Service(model_folders, limits=Limits(**limits))
        client = TestClient(build_app(service, hosts), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serve):
    return serve()
