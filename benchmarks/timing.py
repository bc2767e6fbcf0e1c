"""Measuring time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import perf_counter


def best_time(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the time of the shortest of several runs, in seconds; it is disturbed the least."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def peak_memory(call: Callable[[], object]) -> int:
    """Return the peak of the memory that a call allocates, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
