"""Reading results while a job runs: what it costs the scheduler, beside reading them at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Table

from hesrpt import Job, Pool

_ITEMS = 1_000_000


def measure_streaming(console: Console) -> None:
    """Stream the results of a million items that do nothing, on 2 servers."""
    table = Table("results", "items a second", "processor time", "first result", box=None)
    readers: dict[str, Callable[[Job[int]], float]] = {
        "at the end": _read_at_end,
        "in order": partial(_stream, ordered=True),
        "as completed": partial(_stream, ordered=False),
        "async for": lambda job: asyncio.run(_stream_in_loop(job)),
    }
    for name, read in readers.items():
        with Pool(servers=2) as pool:
            pool.map(_return_item, range(100), name="warm up").wait()
            began, used = time.perf_counter(), time.process_time()
            first = read(pool.map(_return_item, range(_ITEMS), name="items"))
            seconds, used = time.perf_counter() - began, time.process_time() - used
        table.add_row(
            name,
            f"{_ITEMS / seconds:,.0f}",
            f"{1e6 * used / _ITEMS:.1f} µs an item",
            f"{first - began:.3f} s",
        )
    console.print(table)


def _return_item(item: int) -> int:
    return item


def _read_at_end(job: Job[int]) -> float:
    """Read all results; return when the first one was there."""
    assert sum(job.results()) == sum(range(_ITEMS))
    return time.perf_counter()


def _stream(job: Job[int], *, ordered: bool) -> float:
    stream = job.iter_results(ordered=ordered)
    total, first = next(stream), time.perf_counter()
    assert total + sum(stream) == sum(range(_ITEMS))
    return first


async def _stream_in_loop(job: Job[int]) -> float:
    stream = job.iter_results()
    total, first = await anext(stream), time.perf_counter()
    async for result in stream:
        total += result
    assert total == sum(range(_ITEMS))
    return first
