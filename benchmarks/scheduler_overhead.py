"""Overhead of the live scheduler as its queue grows: decisions, starts and resumes."""

from __future__ import annotations

import heapq
import tempfile
import time
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_most
from hesrpt import Pool
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import Event, Finish, ItemsFinished, JobArrived, Start
from hesrpt.jobs.job_spec import JobSpec

_SERVERS = 8
_ITEMS_ENDED = 1000
_REPEATS = 3


def measure_decisions(console: Console) -> list[Ratio]:
    """Show what the core's decisions cost per item as the number of jobs that wait grows."""
    policies = ("adaptive", "hesrpt")
    table = Table("jobs", "items of each", *policies, box=None)
    found = []
    for items, name in ((1, "jobs of one item"), (20, "jobs of 20 items")):
        costs = {}
        for jobs in (10, 100, 1000, 10_000):
            for policy in policies:
                times = [_time_items(jobs, items, policy, seed) for seed in range(_REPEATS)]
                costs[jobs, policy] = min(times)
            cells = (f"{1000 * costs[jobs, policy]:.2f} ms" for policy in policies)
            table.add_row(f"{jobs:,}", str(items), *cells)
        found += [
            at_most(
                f"{policy}, {name}: time per item, 10,000 jobs / 10",
                costs[10_000, policy] / costs[10, policy],
                2.0,
            )
            for policy in policies
        ]
    console.print(table)
    return found


def _time_items(jobs: int, items: int, policy: str, seed: int) -> float:
    """Return the processor time of the core for each item that ends.

    Whenever a job ends, another one arrives. Sizes are random, and known of every second job.
    """
    random, core = Random(seed), Core(_SERVERS, policy)
    ends: list[tuple[float, str, int, float]] = []  # a heap
    spent, arrived, ended = 0.0, 0, 0

    def create_arrival(now: float) -> JobArrived:
        nonlocal arrived
        arrived += 1
        size = items * random.expovariate(1.0) if arrived % 2 else None
        return JobArrived(now, JobSpec(name=str(arrived), items=items, size=size))

    def handle(*events: Event) -> None:
        nonlocal spent, ended
        now = events[-1].time
        began = time.process_time()
        commands = core.handle(*events)
        spent += time.process_time() - began
        for command in commands:
            if isinstance(command, Start):
                for item in command.items:
                    seconds = random.expovariate(1.0)
                    heapq.heappush(ends, (now + seconds, command.job, item, seconds))
            ended += isinstance(command, Finish)

    handle(*(create_arrival(0.0) for _ in range(jobs)))
    spent = 0.0
    for _ in range(_ITEMS_ENDED):
        now, job, item, seconds = heapq.heappop(ends)
        before = ended
        handle(ItemsFinished(now, job, (item,), (seconds,)))
        for _ in range(ended - before):
            handle(create_arrival(now))
    return spent / _ITEMS_ENDED


def return_item(item: int) -> int:
    return item


def measure_starts(console: Console) -> list[Ratio]:
    """Show what jobs of one item cost this process, as their number grows, and a resume of them."""
    counts = 500, 5000
    costs: dict[int, list[float]] = {}
    for count in counts:
        with tempfile.TemporaryDirectory() as directory:
            state = Path(directory) / "state"
            runs = {"run": (None, False), "with state=": (state, False), "resumed": (state, True)}
            costs[count] = []
            for name, run in runs.items():
                costs[count].append(_time_jobs(count, *run) / count)
                console.print(
                    f"{count:,} jobs of one item, {name}: {1000 * costs[count][-1]:.2f} ms each"
                )
    names = "jobs of one item", "jobs of one item with state=", "resumed jobs"
    return [
        at_most(f"{name}: time of each, 5,000 / 500", most / fewest, 1.3)
        for name, most, fewest in zip(names, costs[counts[-1]], costs[counts[0]], strict=True)
    ]


def _time_jobs(count: int, state: Path | None, resume: bool) -> float:
    """Return the processor time of this process, in which the scheduler runs."""
    began = time.process_time()
    with Pool(servers=2, state=state, resume=resume) as pool:
        for number in range(count):
            pool.map(return_item, [number], name=f"job {number}")
    return time.process_time() - began
