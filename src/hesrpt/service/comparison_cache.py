"""Keeps the latest comparison with other policies, and lets another process work out a new one."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

# How often to compare again at most, and how long that may take, in seconds.
_EVERY_SECONDS, _TIMEOUT = 60.0, 300.0
# The first comparison of a service need not wait so long.
_NOTHING: dict[str, Any] = {"comparison": None, "bound": None}

_LOG = logging.getLogger("hesrpt")


class ComparisonCache:
    """The comparison with other policies, a minute old at most while somebody looks at it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found = _NOTHING
        self._ended = 0  # how many jobs had ended when it was started
        self._next_start = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def get(self, ended: int) -> dict[str, Any]:
        """Return the latest comparison; start a new one if more jobs have ended since."""
        with self._lock:
            is_due = ended != self._ended and time.monotonic() >= self._next_start
            if is_due and self._process is None:
                self._ended = ended
                self._next_start = time.monotonic() + _EVERY_SECONDS
                self._start()
            return self._found

    def _start(self) -> None:
        command = [sys.executable, "-m", "hesrpt.service.analysis", str(self._directory)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        threading.Thread(target=self._collect, args=(self._process,), daemon=True).start()

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the result of a process."""
        try:
            output, errors = process.communicate(timeout=_TIMEOUT)
            found = json.loads(output) if process.returncode == 0 else None
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            output, errors = process.communicate()
            found = None
        with self._lock:
            self._process = None
            if found is not None:
                self._found = found
            elif process.returncode not in (-9, -15):
                lines = errors.decode("utf-8", "replace").strip().splitlines()
                _LOG.warning("hesrpt: comparing policies failed: %s", lines[-1] if lines else "")

    def close(self) -> None:
        """Stop the process if it runs."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
