"""``hesrpt serve`` in a process of its own, as users start it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote


class RunningService:
    """A service, and requests to it."""

    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        self.directory, self.options = directory, options
        places = ["--state", str(directory / "state"), "--port", str(port)]
        access = ["--read-only-token", "--on-stop", "stop"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hesrpt", "serve", *places, *access, *options],
            cwd=directory,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        printed = "".join(self._process.stdout.readline() for _ in range(3))
        tokens = re.findall(r"(http://\S+?/)\?token=(\S+)", printed)
        assert len(tokens) == 2, printed
        self.address, self.token = tokens[0]
        self.read_token = tokens[1][1]
        self.port = int(self.address.rsplit(":", 1)[1].strip("/"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with the owner's token, and return the answer."""
        request = urllib.request.Request(
            f"{self.address}api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def add(self, **job: Any) -> str:
        """Add a job, and return its name."""
        return str(self.request("POST", "jobs", job)["jobs"][0]["name"])

    def get(self, name: str) -> Any:
        """Return a job."""
        return self.request("GET", f"jobs/{quote(name, safe='')}")

    def kill(self) -> None:
        """Kill the scheduler, as a crash would."""
        self._process.kill()
        self._close()

    def stop(self) -> None:
        """Stop the service, and what runs of its jobs."""
        self._process.send_signal(signal.SIGTERM)
        self._close()

    def restart(self) -> RunningService:
        """Start the service again at the same address."""
        return RunningService(self.directory, *self.options, port=self.port)

    def _close(self) -> None:
        self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()
