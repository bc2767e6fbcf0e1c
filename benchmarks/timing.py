"""Measuring time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from statistics import median
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


def measure_time_ratio(
    measure: Callable[[], float], other: Callable[[], float], rounds: int = 31
) -> float:
    """Return the ratio of two times, each of which a call measures and returns.

    It is the median over rounds that measure one after the other, so that it does not depend on
    what else the machine does, nor on how much memory an earlier call has left to be used again.
    """
    return median(measure() / other() for _ in range(rounds))


def measure_peak_memory(call: Callable[[], object]) -> int:
    """Return the peak memory that a call allocates, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
