"""A service that computes in this process, and the page of one that runs as a program."""

import pytest
from fastapi.testclient import TestClient

from molslice.serve import app as app_module
from molslice.serve.app import Service, build_app
from molslice.serve.limits import Limits
from tests.inference.models import TWO, checkpoint_folder
from tests.serve.inline import InlineWorker
from tests.serve.running import Running

WAIT = 60_000  # milliseconds; a loaded machine is slow


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


@pytest.fixture(scope="module")
def server(model_folders):
    with Running(*model_folders.values()) as server:
        yield f"http://{server.host}:{server.port}"


@pytest.fixture
def open_page(browser, server):
    """Return a function that opens the page; at the end no script has failed and no other host was asked."""
    problems, hosts, contexts = [], set(), []

    def open_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
        page.goto(server)
        page.wait_for_selector("#model option", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    expected = "Failed to load resource"  # a molecule that cannot be drawn
    assert [problem for problem in problems if expected not in problem] == []
    assert hosts == {server}
