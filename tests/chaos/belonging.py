"""Results that carry the names of their items, while workers are suspended and killed at random.

Every result must be that of its own item: of jobs with short items, with and without a state
directory, that are cancelled and retried, and of executors that replace their workers.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from hesrpt import Job, JobError, Pool
from hesrpt.engines.local.local_engine import LocalEngine

_SERVERS = 3
# How long a worker stays suspended at most, and how long nothing happens at most, in seconds.
_SUSPENDED_SECONDS, _PAUSE_SECONDS = 0.05, 0.05
# How many suspended workers are killed. On a busy machine, a new one needs seconds to start.
_KILLED_FRACTION = 0.03
_PATIENCE = 300.0  # seconds until it is a hang


@dataclass
class BelongingReport:
    """How many results were checked, which of them were wrong, and what was done to workers."""

    results: int = 0
    wrong: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    def check(self, name: str, result: object) -> None:
        """Check the result of the item with this name."""
        self.results += 1
        if result != f"result of {name}":
            self.wrong.append(f"the result of {name} is {result!r}")


def name_result(name: str) -> str:
    """Return a result that shows to which item it belongs."""
    return f"result of {name}"


def check_belonging(
    directory: Path, results: int, seed: int = 1, max_items: int = 20_000
) -> BelongingReport:
    """Run jobs until this many results were checked."""
    report, rng = BelongingReport(), random.Random(seed)
    number = 0
    while report.results < results:
        state = directory / f"state-{number}" if rng.random() < 0.3 else None
        engine = LocalEngine(_SERVERS)
        with Pool(engine=engine, state=state) as pool, _torment(engine, report, rng.random()):
            for check in (_check_job, _check_executor, _check_retried_job, _check_job):
                number += 1
                check(pool, report, rng, number, max_items)
    return report


def _check_job(
    pool: Pool, report: BelongingReport, rng: random.Random, number: int, most: int
) -> None:
    names = [f"{number}-{item}" for item in range(rng.randint(1, most))]
    found = pool.map(name_result, names, retries=1000).results(timeout=_PATIENCE)
    for name, result in zip(names, found, strict=True):
        report.check(name, result)


def _check_retried_job(
    pool: Pool, report: BelongingReport, rng: random.Random, number: int, most: int
) -> None:
    """Let a job fail at one of its items and go on, or cancel it."""
    names = [f"{number}-{item}" for item in range(rng.randint(1, most))]
    bad = rng.choice(names)
    with tempfile.TemporaryDirectory() as directory:
        mark = Path(directory) / "failed"

        def fail_once(name: str) -> str:
            if name == bad and not mark.exists():
                mark.touch()
                raise ValueError(name)
            return name_result(name)

        _finish_by_retries(pool.map(fail_once, names, retries=0), names, report, rng)


def _finish_by_retries(
    job: Job[str], names: list[str], report: BelongingReport, rng: random.Random
) -> None:
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0.0, 0.2))
        job.cancel()
        report.others["jobs cancelled"] += 1
    # Workers are killed too, and without retries each kill lets the job fail.
    for _ in range(1000):
        assert job.wait(_PATIENCE)
        if job.state != "failed":
            break
        job.retry()
        report.others["jobs retried"] += 1
    for name, result in zip(names, job.results(errors="return"), strict=False):
        if not isinstance(result, JobError):
            report.check(name, result)


def _check_executor(
    pool: Pool, report: BelongingReport, rng: random.Random, number: int, most: int
) -> None:
    calls: dict[Future[str], str] = {}
    each = rng.choice([1, 3, 50])
    with pool.executor(max_tasks_per_child=each) as executor:
        for item in range(rng.randint(1, 4 * each)):
            calls[executor.submit(name_result, f"{number}-{item}")] = f"{number}-{item}"
        for future in as_completed(calls, timeout=_PATIENCE):
            if future.exception() is None:  # otherwise its worker was killed
                report.check(calls[future], future.result())


@contextlib.contextmanager
def _torment(engine: LocalEngine, report: BelongingReport, seed: float) -> Iterator[None]:
    """Suspend and kill workers at random, in another thread."""
    rng, is_over = random.Random(seed), threading.Event()

    def torment() -> None:
        while not is_over.wait(rng.uniform(0.0, _PAUSE_SECONDS)):
            pids = engine.worker_pids
            if not pids:
                continue
            pid = rng.choice(pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                report.others["workers suspended"] += 1
                time.sleep(rng.uniform(0.0, _SUSPENDED_SECONDS))
                if rng.random() < _KILLED_FRACTION:
                    os.kill(pid, signal.SIGKILL)
                    report.others["workers killed"] += 1
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=torment, name="tormentor")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
