"""The servers that jobs held over time, as few enough points for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hesrpt.service.comparison_cache import ComparisonCache
from hesrpt.service.job_queue import JobQueue
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding

# How many of the latest changes are drawn.
_MAX_CHANGES = 20_000


def describe_schedule(
    queue: JobQueue, comparisons: ComparisonCache, points: int, jobs: int
) -> dict[str, Any]:
    """Return who held how many servers when: the jobs that held most, and all others together."""
    driver = queue.driver
    now = driver.now
    holdings = driver.holdings[-_MAX_CHANGES:]
    names = {job.number: job.spec.name for job in queue.list_jobs()}
    picture = sample_holdings(holdings, now, points, jobs)
    flow_times = [
        job.ended - job.arrived
        for job in queue.list_jobs()
        if job.ended is not None and job.arrived is not None and job.error is None
    ]
    return {
        "times": picture["times"],
        "series": [
            {"name": names.get(number, f"job {number}"), "servers": servers}
            for number, servers in picture["series"]
        ],
        "others": picture["others"],
        "capacity": picture["capacity"],
        "mean_flow_time": sum(flow_times) / len(flow_times) if flow_times else None,
        "ended": len(flow_times),
        **comparisons.get(len(flow_times)),
    }


def sample_holdings(
    holdings: Sequence[Holding], now: float, points: int, jobs: int
) -> dict[str, Any]:
    """Return the mean number of servers of each job between consecutive times.

    The mean over each interval loses no server second, however short a job was.
    """
    start = holdings[0].time if holdings else 0.0
    edges = np.linspace(start, max(now, start + 1e-6), points + 1)
    areas: dict[int, np.ndarray[Any, Any]] = {}
    since: dict[int, tuple[float, int]] = {}

    def add(number: int, end: float) -> None:
        began, servers = since.get(number, (end, 0))
        if servers and end > began:
            area = areas.setdefault(number, np.zeros(points))
            _add_box(area, edges, began, end, servers)

    for time, number, servers in holdings:
        add(number, time)
        since[number] = (time, servers)
    for number in list(since):
        add(number, float(edges[-1]))
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


def _add_box(
    area: np.ndarray[Any, Any],
    edges: np.ndarray[Any, Any],
    began: float,
    end: float,
    servers: int,
) -> None:
    """Add the server seconds of a box to the intervals that it covers."""
    width = edges[1] - edges[0]
    first = min(int((began - edges[0]) / width), len(area) - 1)
    last = min(int((end - edges[0]) / width), len(area) - 1)
    if first == last:
        area[first] += servers * (end - began)
        return
    area[first] += servers * (edges[first + 1] - began)
    area[first + 1 : last] += servers * width
    area[last] += servers * (end - edges[last])
