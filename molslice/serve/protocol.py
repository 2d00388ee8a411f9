"""End connections whose client is too slow to send a head or to take an answer."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from molslice.serve.limits import Limits

__all__ = ["PatientProtocol", "protocol_class"]


class PatientProtocol(H11Protocol):
    """A connection to one client, with limits of the time to wait for it.

    uvicorn itself waits without end for the head of a request, and for a client that stops reading. The body
    of a request has its own limit, see `molslice.serve.guard`.
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
        self._stop_head_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:  # noqa: D102
        super().pause_writing()
        self._stop_send_timer()
        self._send_timer = self.loop.call_later(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:  # noqa: D102
        self._stop_send_timer()
        super().resume_writing()

    def _watch_head(self) -> None:
        """Limit the time to the end of the next head."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.receive_seconds, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None


def protocol_class(limits: Limits) -> type[PatientProtocol]:
    """Return the protocol with other limits."""
    return type("LimitedProtocol", (PatientProtocol,), {"limits": limits})
