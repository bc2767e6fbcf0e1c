"""Traces: the time to read and to replay them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.ratios import Ratio, at_most
from benchmarks.simulation_speed import wait_with_simpy
from hesrpt.traces import Trace, read_trace
from hesrpt.whatif import StudyOptions, run_study


def _make_trace(
    jobs: int, machine_servers: int = 256, load: float = 0.7, burst: float = 1.0
) -> Trace:
    """Return a synthetic trace: log-normal run times, numbers of servers that are powers of two.

    Jobs are submitted in bursts of this many on average.
    """
    rng = np.random.default_rng(1)
    servers = rng.choice(
        [1, 2, 4, 8, 16, 32, 64], jobs, p=[0.28, 0.14, 0.16, 0.18, 0.13, 0.08, 0.03]
    )
    runtimes = np.exp(rng.normal(7.6, 1.7, jobs)).clip(5, 90_000)
    span = float(servers @ runtimes) / machine_servers / load
    submit_times = np.sort(rng.uniform(0, span, jobs))
    submit_times = submit_times[
        np.maximum.accumulate(np.arange(jobs) * (rng.random(jobs) < 1 / burst))
    ]
    return Trace(
        source="synthetic",
        submit_times=submit_times - submit_times[0],
        runtimes=runtimes,
        servers=servers.astype(np.float64),
        start_times=np.full(jobs, np.nan),
        estimates=np.full(jobs, np.nan),
        names=tuple(map(str, range(jobs))),
        machine_servers=machine_servers,
        jobs_read=jobs,
        dropped={},
    )


def measure_replays(console: Console) -> list[Ratio]:
    """Measure replays of 200,000 jobs under all policies, and of a million under single ones.

    The target of a minute depends on the machine. The one that it was meant for ran about 1.4
    million events of SimPy that do nothing in a second.
    """
    run_study(_make_trace(300))  # compiles the simulator
    # About as many jobs and servers as the log of HPC2N, and bursts as there.
    trace = _make_trace(200_000, machine_servers=240, load=0.6, burst=30)
    began = time.perf_counter()
    run_study(trace)
    total = time.perf_counter() - began
    console.print(f"200,000 jobs under all policies: {total:.1f} s (target: below a minute)")
    began = time.perf_counter()
    wait_with_simpy(400_000)
    empty = time.perf_counter() - began
    name = "replaying 200,000 jobs under all policies / 400,000 events of SimPy that do nothing"
    ratios = [at_most(name, total / empty, 200)]
    trace = _make_trace(1_000_000)
    began = time.perf_counter()
    np.argsort(trace.runtimes, kind="stable")
    sort = time.perf_counter() - began
    for policy in ("fcfs", "easy", "equi", "adaptive", "hesrpt"):
        began = time.perf_counter()
        run_study(trace, StudyOptions(policies=[policy]))
        seconds = time.perf_counter() - began
        console.print(
            f"1,000,000 jobs, {policy}: {seconds:.1f} s, {seconds / sort:.0f} times a sort"
        )
    return ratios


def measure_reading(console: Console) -> list[Ratio]:
    """Measure reading a million lines of the Standard Workload Format."""
    trace = _make_trace(1_000_000)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.swf"
        lines = [
            f"{job} {submit:.0f} 0 {runtime:.0f} {held:.0f} -1 -1 -1 -1 -1 1 1 1 1 1 1 -1 -1\n"
            for job, submit, runtime, held in zip(
                range(len(trace)), trace.submit_times, trace.runtimes, trace.servers, strict=True
            )
        ]
        path.write_text("".join(lines))
        began = time.perf_counter()
        path.read_text().split()
        split = time.perf_counter() - began
        began = time.perf_counter()
        read_trace(path)
        seconds = time.perf_counter() - began
    console.print(
        f"1,000,000 lines: {seconds:.1f} s, {seconds / split:.1f} times as long as splitting them"
    )
    return [at_most("reading 1,000,000 lines / splitting them into words", seconds / split, 4)]
