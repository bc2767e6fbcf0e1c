"""The connections of a service: how many there may be, and how long each may keep it waiting.

The scheduler shares its process, and so its descriptors and its memory, with the web server. So
connections are accepted here rather than by the event loop: TLS handshakes count too, and a
connection is dropped before the scheduler runs out of descriptors.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: The most connections, however many descriptors there are.
MAX_CONNECTIONS = 1000
#: The most bytes of a request's headers. httptools, which parses them, has no limit.
MAX_HEADERS = 64 << 10
#: How long the headers of a request may take, and then its body, in seconds.
HEADER_SECONDS, BODY_SECONDS = 10.0, 60.0
#: How long a client may read nothing while an answer waits to be sent, in seconds.
WRITE_SECONDS = 30.0
#: How many requests a client may send before it has got the answer to the first one.
MAX_PIPELINED = 16
# The descriptors that the scheduler keeps for itself, and for each of its servers.
_RESERVED, _RESERVED_PER_SERVER = 64, 8
# How many connections to accept before other work goes on, and how long to wait for descriptors.
_ACCEPTED_AT_ONCE, _ACCEPT_PAUSE = 16, 0.2


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections a service may have, and which descriptors they may get."""

    most: int = MAX_CONNECTIONS
    # The system hands out the lowest free descriptor. One that is not below this number says that
    # no more are left than the scheduler may need.
    highest_descriptor: float = float("inf")

    @classmethod
    def choose(cls, servers: int) -> ConnectionLimits:
        """Return limits that leave the scheduler the descriptors that it needs."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            return cls()
        reserved = min(_RESERVED + _RESERVED_PER_SERVER * servers, descriptors * 3 // 4)
        free = descriptors - reserved
        # The other half is for the files that are open while requests are answered.
        return cls(min(MAX_CONNECTIONS, free // 2), free)


class LimitedConnection(HttpToolsProtocol):
    """A connection with limits on time, on the size of headers and on pipelined requests.

    ``idle`` says since when connections wait that may be dropped if there are too many; those that
    have waited longest come first.
    """

    def __init__(self, idle: dict[LimitedConnection, float], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._idle = idle
        self._unparsed = 0  # bytes since the parser last had headers, a part of a body, or its end
        self._deadline: asyncio.TimerHandle | None = None  # of the client's next step
        self._write_deadline: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether somebody with a token is being answered, and takes the answer."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.flow.write_paused:
            return False
        return "access" in cycle.scope["state"]

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # --- what happens to the connection -----------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle[self] = self.loop.time()
        self._expect_within(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._expect_within(None)
        self._expect_reading(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > MAX_HEADERS and not self.transport.is_closing():
            self._refuse(431, f"the headers are longer than {MAX_HEADERS:,} bytes")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._idle[self] = self.loop.time()
        self._expect_reading(WRITE_SECONDS)

    def resume_writing(self) -> None:
        self._expect_reading(None)
        super().resume_writing()

    # --- what the parser finds --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many pipelined requests")  # the parser stops, and answers 400
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._expect_within(BODY_SECONDS)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        if not self.cycle.response_complete:
            self._expect_within(None)  # it is our turn
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle.pop(self, None)  # it comes last now
        self._idle[self] = self.loop.time()
        if self.cycle.response_complete:  # otherwise, the next of several requests is answered
            self._expect_within(HEADER_SECONDS)

    # --- limits of time ---------------------------------------------------------------------------

    def _expect_within(self, seconds: float | None) -> None:
        """Give up unless the client takes its next step in time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _expect_reading(self, seconds: float | None) -> None:
        """Give up unless the client reads some of its answer in time."""
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        self._write_deadline = None if seconds is None else self.loop.call_later(seconds, self.drop)

    def _give_up(self) -> None:
        is_answering = self.cycle is not None and self.cycle.response_started
        if self.transport.is_closing() or (is_answering and not self.cycle.response_complete):
            self.drop()
        else:
            self._refuse(408, "the request did not come in time")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer a request that is not complete, and close the connection."""
        body = json.dumps({"detail": detail}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self._expect_within(HEADER_SECONDS)  # to take the answer


class LimitedServer(uvicorn.Server):
    """The web server: accepts connections within limits, and leaves signals to the service.

    If there are too many connections, the one that has waited longest is dropped, unless somebody
    with a token is being answered on it. So strangers cannot keep others out. If all are busy, the
    new one is refused.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        limits: ConnectionLimits,
        on_signal: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._listener, self._limits, self._on_signal = listener, limits, on_signal
        # Since when connections wait that have not ended their handshakes, and others.
        self._arriving: dict[asyncio.Task[None], float] = {}
        self._idle: dict[LimitedConnection, float] = {}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_signal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._listener.setblocking(False)
        self._listen()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._arriving:
            task.cancel()
        await super().shutdown(sockets)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:  # otherwise, the service stops
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # there are too many open files
                self._drop_oldest()
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(_ACCEPT_PAUSE, self._listen)
                return
            if self._is_full(connection) and not self._drop_oldest():
                connection.close()
                continue
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._connect(connection))
            self._arriving[task] = loop.time()
            task.add_done_callback(lambda task: self._arriving.pop(task, None))

    def _is_full(self, connection: socket.socket) -> bool:
        count = len(self.server_state.connections) + len(self._arriving)
        limits = self._limits
        return count >= limits.most or connection.fileno() >= limits.highest_descriptor

    def _drop_oldest(self) -> bool:
        """Drop the connection that has waited longest; return whether there was one."""
        while self._idle and next(iter(self._idle)).is_busy:
            del self._idle[next(iter(self._idle))]  # it comes back when it has its answer
        arriving, arrived = next(iter(self._arriving.items()), (None, float("inf")))
        idle, idle_since = next(iter(self._idle.items()), (None, float("inf")))
        if idle is not None and idle_since <= arrived:
            del self._idle[idle]
            idle.drop()
        elif arriving is not None:
            del self._arriving[arriving]
            arriving.cancel()
        return idle is not None or arriving is not None

    async def _connect(self, connection: socket.socket) -> None:
        """Hand an accepted connection over to a protocol, after its handshake if there is TLS."""
        has_tls = self.config.ssl is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._create_protocol,
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=HEADER_SECONDS if has_tls else None,
                ssl_shutdown_timeout=HEADER_SECONDS if has_tls else None,
            )
        except OSError:  # the handshake has failed, or the client is gone
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _create_protocol(self) -> LimitedConnection:
        return LimitedConnection(
            self._idle,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
