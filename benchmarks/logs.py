"""Logs of clusters: how long it takes to read and to replay them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from hesrpt.traces import Log, read_log
from hesrpt.whatif import whatif


def _made(jobs: int, servers: int = 256, load: float = 0.7) -> Log:
    """Return a log of jobs that nobody has run: log-normal run times, powers of two of servers."""
    rng = np.random.default_rng(1)
    held = rng.choice([1, 2, 4, 8, 16, 32, 64], jobs, p=[0.28, 0.14, 0.16, 0.18, 0.13, 0.08, 0.03])
    runtime = np.exp(rng.normal(7.6, 1.7, jobs)).clip(5, 90_000)
    span = float(held @ runtime) / servers / load
    submit = np.sort(rng.uniform(0, span, jobs))
    unknown = np.full(jobs, np.nan)
    return Log(
        "made up", submit - submit[0], runtime, held.astype(np.float64), unknown, unknown.copy(),
        tuple(map(str, range(jobs))), servers, None, jobs, {},
    )  # fmt: skip


def replays(console: Console) -> None:
    """All policies on 20,000 jobs, and single ones on a million."""
    whatif(_made(300))  # compiled by then
    log = _made(20_000)
    began = time.perf_counter()
    whatif(log)
    all_of_them = time.perf_counter() - began
    console.print(f"20,000 jobs under all policies: {all_of_them:.1f} s (wanted: below 10 s)")
    log = _made(1_000_000)
    began = time.perf_counter()
    np.argsort(log.runtime, kind="stable")
    sort = time.perf_counter() - began
    for policy in ("fcfs", "easy", "equi", "hesrpt"):
        began = time.perf_counter()
        whatif(log, policies=[policy])
        seconds = time.perf_counter() - began
        console.print(f"1,000,000 jobs, {policy}: {seconds:.1f} s, {seconds / sort:.0f} sorts")


def reading(console: Console) -> None:
    """Read a million lines of the Standard Workload Format."""
    log = _made(1_000_000)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.swf"
        lines = [
            f"{job} {submit:.0f} 0 {runtime:.0f} {held:.0f} -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1\n"
            for job, submit, runtime, held in zip(
                range(len(log)), log.submit, log.runtime, log.servers, strict=True
            )
        ]
        path.write_text("".join(lines))
        began = time.perf_counter()
        path.read_text().split()
        split = time.perf_counter() - began
        began = time.perf_counter()
        read_log(path)
        seconds = time.perf_counter() - began
    console.print(
        f"1,000,000 lines: {seconds:.1f} s, {seconds / split:.1f} times as long as splitting them"
    )
