"""Short items, and items with large values, on one machine: beside what others need for them."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_least, at_most
from hesrpt import Pool

_SERVERS = 2
_REPEATS = 5
_LARGE_BYTES = 100_000_000
_MANY = 1_000_000


def run_noop(item: int) -> int:
    return item


def run_1ms(item: int) -> int:
    time.sleep(0.001)
    return item


def run_10ms(item: int) -> int:
    time.sleep(0.01)
    return item


def create_array(item: int) -> Any:
    return np.full(_LARGE_BYTES // 8, float(item))


def use_array(array: Any, item: int) -> float:
    return float(array[item])


def measure_throughput(console: Console) -> list[Ratio]:
    """Compare short items with ``joblib`` and ``concurrent.futures``, and with state."""
    table = Table("items", "a second", "with state=", "executor", "joblib", box=None)
    found: list[Ratio] = []
    for name, work, count, target in (
        ("that do nothing", run_noop, 100_000, 5.0),
        ("of 1 ms", run_1ms, 4000, 0.95),
        ("of 10 ms", run_10ms, 600, 0.98),
    ):
        rounds = []
        for _ in range(_REPEATS):  # in turn, so that what else runs on the machine slows all down
            with tempfile.TemporaryDirectory() as directory:
                state = Path(directory) / "state"
                times = (_time_pool(work, count), _time_pool(work, count, state))
                rounds.append((*times, _time_executor(work, count), _time_joblib(work, count)))
        ours, stored, executor, parallel = map(min, zip(*rounds, strict=True))
        seconds = (ours, stored, executor, parallel)
        table.add_row(name, *(f"{count / each:,.0f}" for each in seconds))
        found.append(
            at_least(f"items {name}, throughput / ProcessPoolExecutor", executor / ours, target)
        )
        if work is run_noop:
            found.append(at_least(f"items {name}, throughput / joblib", parallel / ours, 1.0))
        else:
            found.append(
                at_least(f"items {name}, throughput with state= / without", ours / stored, 0.8)
            )
    console.print(table)
    return found


def _time_pool(work: Callable[[int], int], count: int, state: Path | None = None) -> float:
    with Pool(servers=_SERVERS, state=state) as pool:
        pool.map(work, range(8), name="warm up").wait()
        began = time.perf_counter()
        assert len(pool.map(work, range(count), name="items").results()) == count
        return time.perf_counter() - began


def _time_executor(work: Callable[[int], int], count: int) -> float:
    with ProcessPoolExecutor(_SERVERS, mp_context=get_context("spawn")) as executor:
        list(executor.map(work, range(8)))
        began = time.perf_counter()
        assert len(list(executor.map(work, range(count)))) == count
        return time.perf_counter() - began


def _time_joblib(work: Callable[[int], int], count: int) -> float:
    with joblib.Parallel(_SERVERS) as parallel:
        parallel(joblib.delayed(work)(item) for item in range(8))
        began = time.perf_counter()
        assert len(parallel(joblib.delayed(work)(item) for item in range(count))) == count
        return time.perf_counter() - began


def measure_large_values(console: Console) -> list[Ratio]:
    """Compare results of 100 MB, and a function that carries 100 MB, with joblib."""
    array = np.random.default_rng(0).random(_LARGE_BYTES // 8)
    results, carried = [], []
    with Pool(servers=_SERVERS) as pool, joblib.Parallel(_SERVERS) as parallel:

        def run_ours(work: Callable[[int], Any], count: int) -> None:
            pool.map(work, range(count)).results()

        def run_theirs(work: Callable[[int], Any], count: int) -> None:
            parallel(joblib.delayed(work)(item) for item in range(count))

        for run in (run_ours, run_theirs):
            run(create_array, 2)
        for _ in range(_REPEATS):
            results.append(
                [_time(partial(run, create_array, 10)) for run in (run_ours, run_theirs)]
            )
            use = partial(use_array, array)
            carried.append([_time(partial(run_ours, use, count)) for count in (10, 1000)])
    ours, theirs = (statistics.median(column) for column in zip(*results, strict=True))
    few, many = (min(column) for column in zip(*carried, strict=True))
    console.print(f"10 results of 100 MB: {ours:.2f} s, with joblib {theirs:.2f} s")
    console.print(f"a function that carries 100 MB: 10 items {few:.2f} s, 1,000 items {many:.2f} s")
    return [
        at_most("results of 100 MB, time / joblib", ours / theirs, 1.3),
        at_most("1,000 items that share 100 MB, time / 10 items", many / few, 2.0),
    ]


def _time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure_memory(console: Console) -> list[Ratio]:
    """Show how much memory the scheduler needs for a million items that a generator yields."""
    table = Table("a million items", "more memory at the end", "for each item", box=None)
    grown = {}
    for name, is_stored in (("results in memory", False), ("with state=", True)):
        with tempfile.TemporaryDirectory() as directory:
            state = Path(directory) / "state" if is_stored else None
            with Pool(servers=_SERVERS, state=state) as pool:
                pool.map(run_noop, range(10_000), name="warm up").results()
                before = _get_resident_bytes()
                job = pool.map(run_noop, (item for item in range(_MANY)), name="items")
                assert sum(job.iter_results()) == sum(range(_MANY))
                grown[name] = _get_resident_bytes() - before
        table.add_row(name, f"{grown[name] / 1e6:.0f} MB", f"{grown[name] / _MANY:.0f} bytes")
    console.print(table)
    return [
        at_most(f"a million items, {name}, bytes for each", bytes_grown / _MANY, 200)
        for name, bytes_grown in grown.items()
    ]


def _get_resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
