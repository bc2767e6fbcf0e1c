"""The servers that jobs held over time, and what other policies would have made of them.

Another process works out the comparison with other policies; the latest is kept here.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hesrpt.engines.local.supervisor_client import KeptProcess
from hesrpt.service.answers import Analysis, JobSeries, ShownSchedule
from hesrpt.service.job_queue import JobQueue
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding

# How often to compare again at most, and how long that may take, in seconds.
_EVERY_SECONDS, _TIMEOUT = 60.0, 300.0
# How many of the latest changes are drawn.
_MAX_CHANGES = 20_000

_LOG = logging.getLogger("hesrpt")


class ComparisonCache:
    """The comparison with other policies, a minute old at most while somebody looks at it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found = Analysis(comparison=None, bound=None)
        self._ended = 0  # how many jobs had ended when it was started
        self._next_start = 0.0
        self._process: KeptProcess | None = None
        self._is_working = self._is_closed = False
        self._lock = threading.Lock()

    def get(self, ended: int) -> Analysis:
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


def show_schedule(
    queue: JobQueue, comparisons: ComparisonCache, points: int, jobs: int
) -> ShownSchedule:
    """Return who held how many servers when: the jobs that held most, and all others together."""
    holdings = queue.driver.holdings[-_MAX_CHANGES:]
    names = {job.number: job.spec.name for job in queue.list_jobs()}
    picture = sample_holdings(holdings, queue.driver.now, points, jobs)
    flow_times = queue.list_flow_times()
    return ShownSchedule(
        times=picture["times"],
        series=[
            JobSeries(name=names.get(number, f"job {number}"), servers=servers)
            for number, servers in picture["series"]
        ],
        others=picture["others"],
        capacity=picture["capacity"],
        mean_flow_time=sum(flow_times) / len(flow_times) if flow_times else None,
        ended=len(flow_times),
        **comparisons.get(len(flow_times)),
    )


def sample_holdings(
    holdings: Sequence[Holding], now: float, points: int, jobs: int
) -> dict[str, Any]:
    """Return the mean number of servers of each job between consecutive times.

    The mean over each interval loses no server second, however short a job was.
    """
    start = holdings[0].time if holdings else 0.0
    edges = np.linspace(start, max(now, start + 1e-6), points + 1)
    changes: dict[int, list[Holding]] = {}
    for holding in holdings:
        changes.setdefault(holding.job, []).append(holding)
    areas: dict[int, np.ndarray[Any, Any]] = {}
    for number, held in changes.items():
        times = np.array([each.time for each in held] + [edges[-1]])
        servers = np.array([each.servers for each in held])
        held_until = np.concatenate(([0.0], np.cumsum(servers * np.diff(times))))
        if held_until[-1] > 0:
            areas[number] = np.diff(np.interp(edges, times, held_until))
    width = edges[1] - edges[0]
    capacity = areas.pop(WHOLE_POOL, np.zeros(points)) / width
    largest = sorted(areas, key=lambda number: -areas[number].sum())[:jobs]
    others = sum((areas[number] for number in areas if number not in largest), np.zeros(points))
    return {
        "times": np.round(edges[:-1], 3).tolist(),
        "series": [(n, np.round(areas[n] / width, 3).tolist()) for n in sorted(largest)],
        "others": np.round(others / width, 3).tolist(),
        "capacity": np.round(capacity, 3).tolist(),
    }
