"""Measuring time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import perf_counter


def best_time(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest of several runs, in seconds: the one least disturbed by others."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def peak_memory(call: Callable[[], object]) -> int:
    """Return the most bytes that are allocated at once during a call, beyond those before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
