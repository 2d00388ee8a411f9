"""Reject cross-origin, oversized and slow requests; add security headers; count responses."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from molslice.serve.limits import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

UPLOAD_PATH = "/files"
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class JsonAnswer(JSONResponse):
    """JSON in ASCII, which can hold any text of a request, also unpaired surrogates."""

    def render(self, content: Any) -> bytes:  # noqa: ANN401
        """Return the document."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refusal(error: HTTPException) -> JsonAnswer:
    """Return the answer to a refused request."""
    return JsonAnswer({"detail": error.detail}, error.status_code, error.headers)


class Guard:
    """An ASGI application around another one.

    Args:
        app: The other application.
        limits: Limits of the size of a request and of the time to receive it.
        hosts: The allowed host names of requests; None allows all. A service on the loopback interface allows
            only its own names, so that no other site can read it through a name that points to this machine.
        count: Called with path, status and seconds of each answer.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        hosts: Collection[str] | None,
        count: Callable[[str, int, float], None],
    ) -> None:
        self.app, self.limits, self.hosts, self.count = app, limits, hosts, count

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        is_upload = scope["method"] == "POST" and scope["path"] == UPLOAD_PATH
        size = self.limits.file_bytes if is_upload else self.limits.body_bytes
        seconds = self.limits.upload_seconds if is_upload else self.limits.receive_seconds
        try:
            self._check(scope, size)
            await self.app(scope, _Receiver(receive, size, seconds), send_guarded)
        except HTTPException as error:
            await refusal(error)(scope, receive, send_guarded)
        finally:
            route = scope.get("route")
            self.count(getattr(route, "path", "other"), status or 500, time.monotonic() - started)

    def _check(self, scope: MutableMapping[str, Any], size: int) -> None:
        """Refuse a request from another site, or one that states more bytes than `size`."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # without the port; a name in brackets is an address of IPv6
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        if self.hosts is not None and name.lower() not in self.hosts:
            raise HTTPException(403, f"the host {host[:100]!r} is not a name of this service")
        origin = headers.get("origin")
        is_reading = scope["method"] in ("GET", "HEAD")
        if origin is not None and not is_reading and origin.partition("://")[2] != host:
            raise HTTPException(403, "requests from other sites are not allowed")
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 18 or int(length) > size):
            raise _too_large(size)


class _Receiver:
    """Receives the body of a request, and refuses it beyond its limits of size and time."""

    def __init__(self, receive: Receive, size: int, seconds: float) -> None:
        self._receive, self._size, self._seconds = receive, size, seconds
        self._end = time.monotonic() + seconds
        self._bytes = 0
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # waits for the end of the connection
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._end - time.monotonic()))
        except TimeoutError:
            raise HTTPException(
                408, f"the request was not received in {self._seconds:g} s", {"connection": "close"}
            ) from None
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._size:
            raise _too_large(self._size)
        self._complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


def _too_large(size: int) -> HTTPException:
    """Return the error for a body beyond the limit; the connection closes because the rest is not read."""
    return HTTPException(413, f"the request has more than {size:,} bytes", {"connection": "close"})


class PatientProtocol(H11Protocol):
    """A connection to one client, with limits of the time to wait for it.

    uvicorn itself waits without end for the head of a request, and for a client that stops reading. A
    subclass sets `limits`.
    """

    limits = Limits()
    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401, D102
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:  # noqa: D102
        super().on_response_complete()
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        for timer in (self._head_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:  # noqa: D102
        super().pause_writing()
        self._send_timer = self.loop.call_later(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:  # noqa: D102
        if self._send_timer is not None:
            self._send_timer.cancel()
        super().resume_writing()

    def _watch_head(self) -> None:
        """Limit the time to the end of the next head."""
        is_idle = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if is_idle and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.receive_seconds, self.transport.abort)
        elif not is_idle and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
