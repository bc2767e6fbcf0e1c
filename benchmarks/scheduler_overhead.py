"""Overhead of the live scheduler: the time that its decisions take."""

from __future__ import annotations

import time
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.timing import measure_best_time
from hesrpt import PowerLaw
from hesrpt.runtime.decisions.core import Core
from hesrpt.runtime.decisions.events import ItemFinished, JobArrived, Tick
from hesrpt.runtime.job_spec import JobSpec


def measure_decisions(console: Console) -> None:
    """Show how long a decision takes as the number of jobs grows."""
    table = Table("jobs", "same p", "different p", "item finished", box=None)
    for jobs in (10, 100, 1000, 10_000):
        cells = []
        for has_own_powers in (False, True):
            core = _create_core(jobs, has_own_powers)
            cells.append(measure_best_time(partial(_review, core), 5))
        core = _create_core(jobs, has_own_powers=False)
        name, active = next((n, job) for n, job in core.jobs.items() if job.in_flight)
        first = next(iter(active.in_flight))
        began = time.perf_counter()
        core.handle(ItemFinished(core.planned_at + 0.1, name, first, 1.0))
        cells.append(time.perf_counter() - began)
        table.add_row(f"{jobs:,}", *(f"{1000 * seconds:.2f} ms" for seconds in cells))
    console.print(table)


def _review(core: Core) -> None:
    core.handle(Tick(core.planned_at + 2.0))


def _create_core(jobs: int, has_own_powers: bool) -> Core:
    core = Core(64)
    arrivals = []
    for job in range(jobs):
        p = 0.3 + 0.6 * job / jobs if has_own_powers else 0.5
        spec = JobSpec(name=str(job), items=100, size=float(job + 1), speedup=PowerLaw(p))
        arrivals.append(JobArrived(0.0, spec))
    core.handle(*arrivals)
    return core
