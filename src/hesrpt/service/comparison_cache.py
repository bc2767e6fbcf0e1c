"""Keeps the latest comparison with other policies, and lets another process work out a new one."""

from __future__ import annotations

import json
import logging
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from hesrpt.engines.local.supervision import KeptProcess

# How often to compare again at most, and how long that may take, in seconds.
_EVERY_SECONDS, _TIMEOUT = 60.0, 300.0
# Until something was compared.
_NOTHING: dict[str, Any] = {"comparison": None, "bound": None}

_LOG = logging.getLogger("hesrpt")


class ComparisonCache:
    """The comparison with other policies, a minute old at most while somebody looks at it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found = _NOTHING
        self._ended = 0  # how many jobs had ended when it was started
        self._next_start = 0.0
        self._process: KeptProcess | None = None
        self._is_working = self._is_closed = False
        self._lock = threading.Lock()

    def get(self, ended: int) -> dict[str, Any]:
        """Return the latest comparison; start a new one if more jobs have ended since."""
        with self._lock:
            is_due = ended != self._ended and time.monotonic() >= self._next_start
            if is_due and not self._is_working and not self._is_closed:
                self._ended = ended
                self._next_start = time.monotonic() + _EVERY_SECONDS
                self._is_working = True
                threading.Thread(target=self._compare, daemon=True).start()
            return self._found

    def _compare(self) -> None:
        """Let a process compare policies, and keep what it has found."""
        command = [sys.executable, "-m", "hesrpt.service.analysis", str(self._directory)]
        found, problem = None, ""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                with self._lock:
                    if self._is_closed:
                        return
                    self._process = KeptProcess(
                        command, output=output.fileno(), errors=errors.fileno()
                    )
                code = self._process.wait(_TIMEOUT)
                output.seek(0)
                errors.seek(0)
                if code == 0:
                    found = json.load(output)
                elif code not in (-signal.SIGKILL, -signal.SIGTERM):
                    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
                    problem = lines[-1] if lines else f"exit code {code}"
            except TimeoutError:
                pass
            except (OSError, ValueError) as error:
                problem = str(error)
        with self._lock:
            self._process, self._is_working = None, False
            self._found = found or self._found
        if problem:
            _LOG.warning("hesrpt: comparing policies failed: %s", problem)

    def close(self) -> None:
        """Stop the process if it runs."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
