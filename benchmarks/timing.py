"""Measuring time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import perf_counter


def measure_best_time(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the time of the fastest of several runs, in seconds: it contains the least noise."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def measure_peak_memory(call: Callable[[], object]) -> int:
    """Return the peak memory that a call allocates, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
