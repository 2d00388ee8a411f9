"""Reject cross-origin, oversized and slow requests; add security headers; count responses."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from molslice.serve.limits import Limits

__all__ = ["CONTENT_POLICY", "UPLOAD_PATH", "Guard", "JsonAnswer", "refusal"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

UPLOAD_PATH = "/files"
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
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
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, _Receiver(scope, receive, self.limits, self._seconds(scope)), send_guarded)
        except HTTPException as error:
            await refusal(error)(scope, receive, send_guarded)
        finally:
            route = scope.get("route")
            self.count(getattr(route, "path", "other"), status or 500, time.monotonic() - started)

    def _seconds(self, scope: MutableMapping[str, Any]) -> float:
        return self.limits.upload_seconds if is_upload(scope) else self.limits.receive_seconds

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        """Refuse a request from another site, or one that states a size beyond the limit.

        Raises:
            HTTPException: The request is refused.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and host_name(host) not in self.hosts:
            raise HTTPException(403, f"the host {host[:100]!r} is not a name of this service")
        origin = headers.get("origin")
        if (
            origin is not None
            and scope["method"] not in ("GET", "HEAD")
            and origin.partition("://")[2] != host
        ):
            raise HTTPException(403, "requests from other sites are not allowed")
        length = headers.get("content-length", "0")
        limit = body_limit(scope, self.limits)
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            raise too_large(limit)


class _Receiver:
    """Receives the body of a request within its limits of size and time.

    Raises:
        HTTPException: The body is too large or takes too long.
    """

    def __init__(
        self, scope: MutableMapping[str, Any], receive: Receive, limits: Limits, seconds: float
    ) -> None:
        self._receive, self._limit, self._seconds = receive, body_limit(scope, limits), seconds
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
        if self._bytes > self._limit:
            raise too_large(self._limit)
        self._complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


def is_upload(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request sends a file."""
    return scope["method"] == "POST" and scope["path"] == UPLOAD_PATH


def body_limit(scope: MutableMapping[str, Any], limits: Limits) -> int:
    """Return the maximum size of the body of a request, in bytes."""
    return limits.file_bytes if is_upload(scope) else limits.body_bytes


def too_large(limit: int) -> HTTPException:
    """Return the error for a body beyond the limit; the connection closes because the rest is not read."""
    return HTTPException(413, f"the request has more than {limit:,} bytes", {"connection": "close"})


def host_name(host: str) -> str:
    """Return the name of a `Host` header without the port, in lower case."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower()
