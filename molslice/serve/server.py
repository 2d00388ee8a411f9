"""Start the server, and end it after the requests under way."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from molslice.serve.app import Service, build_app
from molslice.serve.guard import PatientProtocol
from molslice.serve.limits import Limits
from molslice.types import MolsliceError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
BACKLOG = 512  # connections that wait to be accepted


def serve(
    models: Sequence[str],
    *,
    host: str,
    port: int,
    device: str,
    workers: int,
    limits: Limits,
    started: Callable[[str], None],
) -> None:
    """Serve the page and the API until a signal arrives.

    After Ctrl-C or TERM no connection is accepted. Requests under way are answered. Then uvicorn raises the
    signal again.

    Raises:
        MolsliceError: A model cannot be loaded, two models have the same name, or the address is not free.
    """
    names = model_names(models)
    with _listen(host, port) as listener:
        service = Service(names, device, workers, limits)
        app = build_app(service, (host.lower(), *LOOPBACK_NAMES) if _is_loopback(host) else None)
        config = uvicorn.Config(
            app,
            http=type("LimitedProtocol", (PatientProtocol,), {"limits": limits}),
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,  # addresses contain molecules
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=int(limits.receive_seconds),
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        address = f"[{host}]" if ":" in host else host
        started(f"http://{address}:{listener.getsockname()[1]}")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            service.close()


def model_names(models: Sequence[str]) -> dict[str, str]:
    """Name each model by the last part of its path."""
    names: dict[str, str] = {}
    for path in models:
        name = Path(path).name or Path(path).resolve().name
        if name in names:
            raise MolsliceError(f"{path} and {names[name]} have the same name {name!r}; rename a folder")
        names[name] = path
    return names


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, before the models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise MolsliceError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise MolsliceError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
