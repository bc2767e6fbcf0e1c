"""A queue behind its web application, in this process and without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from hesrpt import Client, Retention
from hesrpt.pool.batch_run import RunOptions
from hesrpt.service.app import create_app
from hesrpt.service.auth import AccessRules
from hesrpt.service.job_queue import JobQueue

URL = "http://127.0.0.1:8642"
OWNER, READER = "owner-token-of-the-tests", "reader-token-of-the-tests"


class AppTransport(httpx.BaseTransport):
    """Calls an application for each request, which must end."""

    def __init__(self, app: ASGIApp, client: str = "127.0.0.1") -> None:
        self._inner = httpx.ASGITransport(app, client=(client, 1))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run(self._handle(request))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        copy = httpx.Request(
            request.method, request.url, headers=request.headers, content=request.read()
        )
        answer = await self._inner.handle_async_request(copy)
        content = await answer.aread()
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)


@dataclass
class ServedQueue:
    """A queue, its application, and clients of it."""

    queue: JobQueue
    app: ASGIApp

    def connect(
        self, token: str | None = OWNER, *, address: str = "127.0.0.1", **headers: str
    ) -> httpx.Client:
        """Return an HTTP client; with a token, as a program sends it."""
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = AppTransport(self.app, address)
        return httpx.Client(transport=transport, base_url=URL, headers=bearer | headers)

    @property
    def client(self) -> Client:
        """A client of this queue."""
        return Client(URL, OWNER, transport=AppTransport(self.app))

    def add(self, command: Any, **values: Any) -> str:
        """Add a job; return its name."""
        answer = self.connect().post("/api/v1/jobs", json={"command": command, **values})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["jobs"][0]["name"])


@contextmanager
def serve_queue(
    directory: Path,
    *,
    servers: int = 2,
    retention: Retention | None = None,
    resources: dict[str, float] | None = None,
) -> Iterator[ServedQueue]:
    """Serve the queue in a directory."""
    options = {} if resources is None else {"resources": resources}
    queue = JobQueue(
        RunOptions(servers=servers, state=directory, retention=retention, engine_options=options)
    )
    try:
        queue.continue_jobs()
        rules = AccessRules(owner_token=OWNER, read_token=READER)
        yield ServedQueue(queue, create_app(queue, rules))
    finally:
        queue.close()
