"""Measuring time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import process_time


def measure_best_time(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the processor time of the fastest of several runs, in seconds.

    Other programs on the machine change it less than the time on the clock.
    """
    times = []
    for _ in range(repeats):
        start = process_time()
        call()
        times.append(process_time() - start)
    return min(times)


def measure_peak_memory(call: Callable[[], object]) -> int:
    """Return the peak memory that a call allocates, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
