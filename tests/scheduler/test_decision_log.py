"""What the scheduler decides and why, in the records of ``logging``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from support.stepping import KillSwitch, SteppedEngine, finish

from hesrpt import Job, Pool
from hesrpt.engines.engine import Outcome
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob

Log: TypeAlias = pytest.LogCaptureFixture


@pytest.fixture
def log(caplog: Log) -> Log:
    return caplog


class Scheduler:
    """A pool whose driver takes one step at a time, and what it logs in each."""

    def __init__(self, pool: Pool, engine: SteppedEngine, log: pytest.LogCaptureFixture) -> None:
        self.pool, self.engine, self._log = pool, engine, log

    def step(self, *outcomes: Outcome, seconds: float = 1.0) -> list[str]:
        """Return what is logged in a step."""
        self._log.clear()
        self.engine.step(outcomes, seconds)
        return [f"{record.levelname}: {record.getMessage()}" for record in self._log.records]

    def add(self, *names: str, items: int = 12, **options: Any) -> list[Job[Any]]:
        """Add jobs whose items are known at once."""
        jobs = []
        for name in names:
            values = tuple(map(str, range(items)))
            command = CommandTemplate(job=name, command=("true", "{item}"), items=values)
            spec = JobSpec(name=name, items=items, command=command, size=items, **options)
            jobs.append(LiveJob.from_command(spec))
        return self.pool.add_jobs(jobs)

    def finish(self, job: str, *, seconds: float = 1.0) -> list[str]:
        """Let all running items of a job end."""
        running = [each for each in self.engine.running.values() if each.job == job]
        return self.step(*(finish(each, 0, seconds) for each in running), seconds=seconds)

    def fail(self, job: str, item: int, **how: Any) -> list[str]:
        """Let an item fail."""
        return self.step(Outcome(job, item, 1.0, **how))


@contextmanager
def schedule(log: pytest.LogCaptureFixture, level: int = logging.INFO) -> Iterator[Scheduler]:
    engine = SteppedEngine(4, KillSwitch())
    pool = Pool(engine=engine, policy="equi")
    try:
        with log.at_level(level, "hesrpt.scheduler"):
            yield Scheduler(pool, engine, log)
    finally:
        engine.release()
        pool.close()


def test_arrivals_ends_and_what_is_planned_because_of_them(log: Log) -> None:
    with schedule(log) as scheduler:
        scheduler.add("medium", items=2)
        assert scheduler.step() == [
            "INFO: medium: arrived, 2 items",
            "INFO: medium: 0 → 2 servers, medium arrived",
        ]
        (small, _) = scheduler.add("small", "large\x1b")
        assert scheduler.step() == [
            "INFO: small: arrived, 12 items",
            r"INFO: large\x1b: arrived, 12 items",
            r"INFO: small: 0 → 1 server, small and large\x1b arrived",
            r"INFO: large\x1b: 0 → 1 server, small and large\x1b arrived",
        ]
        assert scheduler.finish("medium") == [
            "INFO: medium: done after 2 s, 2 items done",
            "INFO: small: 1 → 2 servers, medium ended",
            r"INFO: large\x1b: 1 → 2 servers, medium ended",
        ]
        small.cancel()
        assert scheduler.step() == [
            "INFO: small: cancelled after 2 s, 0 items done",
            r"INFO: large\x1b: 2 → 4 servers, small was cancelled",
        ]


def test_many_reasons_are_counted(log: Log) -> None:
    with schedule(log) as scheduler:
        scheduler.add(*"abcdef")
        assert scheduler.step()[-1] == "INFO: d: 0 → 1 server, a, b, c and 3 others arrived"
    with schedule(log) as scheduler:
        scheduler.add(*"abcd")
        assert scheduler.step()[-1] == "INFO: d: 0 → 1 server, a, b, c and 1 other arrived"


def test_several_jobs_are_spoken_of_in_the_plural(log: Log) -> None:
    with schedule(log) as scheduler:
        a, b, _ = scheduler.add(*"abc")
        scheduler.step()
        a.pause()
        b.pause()
        assert scheduler.step()[-1] == "INFO: c: 1 → 4 servers, a and b were paused"


def test_failures_and_retries(log: Log) -> None:
    with schedule(log) as scheduler:
        scheduler.add("a", retries=1)
        scheduler.step()
        assert scheduler.fail("a", 0, error="boom\nat line 3") == [
            "INFO: a: item 0: boom; it runs again"
        ]
        assert scheduler.fail("a", 1, is_lost=True) == [
            "INFO: a: item 1 lost its server; it runs again"
        ]
        assert scheduler.fail("a", 0, error="boom\nat line 3") == [
            "INFO: a: item 0: boom; given up",
            "INFO: a: failed after 3 s, 0 items done: item 0: boom",
        ]


def test_steering_and_servers_that_come_and_go(log: Log) -> None:
    with schedule(log) as scheduler:
        a, b = scheduler.add("a", "b")
        scheduler.step()
        a.pause()
        assert scheduler.step() == [
            "INFO: a: paused",
            "INFO: a: 2 → 0 servers, a was paused",
            "INFO: b: 2 → 4 servers, a was paused",
        ]
        a.resume()
        assert scheduler.step()[0] == "INFO: a: resumed"
        b.set_weight(2)
        b.pause()
        b.resume()  # before the scheduler has seen it
        assert scheduler.step() == ["INFO: b: weight 2"]
        scheduler.engine.servers = 8
        assert scheduler.step() == [
            "INFO: 8 servers instead of 4",
            "INFO: a: 2 → 4 servers, 8 servers instead of 4",
            "INFO: b: 2 → 4 servers, 8 servers instead of 4",
        ]


def test_what_was_learned_is_a_reason_for_those_who_debug(log: Log) -> None:
    for level, expected in ((logging.INFO, 0), (logging.DEBUG, 1)):
        with schedule(log, level) as scheduler:
            scheduler.add("a", items=5)
            scheduler.step()
            lines = scheduler.finish("a")
            assert lines == ["DEBUG: a: 4 → 1 server, more has been learned"][:expected]


def test_nothing_is_logged_unless_somebody_asks(log: Log) -> None:
    with schedule(log, logging.WARNING) as scheduler:
        scheduler.add("a")
        assert scheduler.step() == []
