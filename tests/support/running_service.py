"""A service with a page to look at: its address, its tokens, and jobs to add."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from support.service_process import ServiceProcess


class RunningService(ServiceProcess):
    """``hesrpt serve`` in a directory of its own, also with a token that may only read."""

    def __init__(self, directory: Path, *, servers: int = 2, port: int = 0) -> None:
        access = ("--read-only-token", "--on-stop", "stop", "--port", str(port))
        super().__init__(directory / "state", *access, servers=servers)
        self.directory, self.servers = directory, servers
        (self.address, self.token), (_, self.read_token) = re.findall(
            r"(http://\S+?/)\?token=(\S+)", self.output
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()
        self.close()

    def add(self, **job: Any) -> str:
        """Add a job, and return its name."""
        return self.client.submit([job])[0].name

    def get(self, name: str) -> dict[str, Any]:
        """Return all that is known of a job."""
        return self.client.details(name)

    def restart(self) -> RunningService:
        """Start the service again at the same address, after it was killed."""
        self.client.close()
        port = urlsplit(self.address).port
        return RunningService(self.directory, servers=self.servers, port=port or 0)
