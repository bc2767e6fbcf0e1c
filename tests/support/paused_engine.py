"""A fake engine whose clock starts on request, so that jobs can be added together."""

from __future__ import annotations

import threading
import time
from typing import Any

from hesrpt import Job
from hesrpt.engines.engine import Outcome
from hesrpt.engines.fake import Duration, FakeEngine
from hesrpt.scheduler.python_source import PythonSource
from support.waiting import wait_until


class PausedEngine(FakeEngine):
    """An engine whose clock is stopped until ``go`` is set.

    Set it when the items of all jobs have been read: see :func:`wait_until_read`.
    """

    def __init__(self, servers: int, duration: Duration) -> None:
        super().__init__(servers, duration)
        self.go = threading.Event()

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        if self.go.wait(0.01):
            time.sleep(0.002)  # the thread that reads items must keep up with simulated time
            return super().wait_for_outcomes(timeout)
        return []


def wait_until_read(*jobs: Job[Any]) -> None:
    """Wait until other threads have read all items, which simulated time would not wait for."""

    def is_read(job: Job[Any]) -> bool:
        source = job._live.source
        assert isinstance(source, PythonSource)
        return source.count == job.items

    wait_until(lambda: all(map(is_read, jobs)))
