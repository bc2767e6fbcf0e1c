"""A fake engine whose clock starts on request, so that jobs can be added together."""

from __future__ import annotations

import threading
import time

from hesrpt.runtime.engines.engine import Outcome
from hesrpt.runtime.engines.fake import Duration, FakeEngine


class PausedEngine(FakeEngine):
    """An engine whose clock is stopped until ``go`` is set."""

    def __init__(self, servers: int, duration: Duration) -> None:
        super().__init__(servers, duration)
        self.go = threading.Event()

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        if self.go.wait(0.01):
            time.sleep(0.002)  # the thread that reads items must keep up with simulated time
            return super().wait_for_outcomes(timeout)
        return []
