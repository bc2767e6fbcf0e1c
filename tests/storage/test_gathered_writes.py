"""Short items that end soon after others are written together, and nobody sees them before."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.stepping import KillSwitch, SteppedEngine

from hesrpt import Job, Pool
from hesrpt.engines.engine import FinishedItems, Outcome

ITEMS = 8


class Run:
    """A pool with one job, all of whose items run until a test ends some of them."""

    def __init__(self, state: Path) -> None:
        self.state, self.engine = state, _Engine(ITEMS, KillSwitch())
        self.pool = Pool(engine=self.engine, policy="equi", state=state)
        self.job: Job[int] = self.pool.map(abs, range(ITEMS), name="a")
        self.engine.step_until(lambda: len(self.engine.running) == ITEMS)
        self.engine.step(seconds=0.5)  # nothing is written for a while

    def end(self, *items: int, seconds: float = 0.0) -> None:
        """End some items, after some seconds."""
        outcomes = [Outcome("a", item, 0.001) for item in items]
        self.engine.step(outcomes, seconds)

    @property
    def done(self) -> tuple[int, int]:
        """How many items are done as the job says, and as the journal says."""
        with closing(sqlite3.connect(self.state / "state.db")) as connection:
            ((written,),) = connection.execute("SELECT COUNT(*) FROM items")
        return self.job.done, written

    def close(self) -> None:
        """Close the pool."""
        self.engine.release()
        self.pool.close()


class _Engine(SteppedEngine):
    """Reports several items that end in one step as one outcome."""

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:  # type: ignore[override]
        self.timeout = timeout
        ended = super().wait_for_outcomes(timeout)
        if len(ended) < 2:
            return [*ended]
        items = [each.item for each in ended]
        results = [pickle.dumps(item) for item in items]
        return [FinishedItems("a", items, [each.seconds for each in ended], results)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "s")
    yield run
    run.close()


def test_first_items_are_written_at_once(run: Run) -> None:
    run.end(0, 1)
    assert run.done == (2, 2)


def test_items_that_follow_soon_are_written_together(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3, seconds=0.005)
    run.end(4, 5, seconds=0.005)
    assert run.done == (2, 2)  # never more than a crash would leave
    assert 0.009 < run.engine.timeout < 0.011  # the scheduler wakes up when it is time
    run.end(seconds=0.011)
    assert run.done == (6, 6)
    assert list(zip(range(6), run.job.iter_results(), strict=False)) == [(n, n) for n in range(6)]


def test_items_that_follow_later_are_written_at_once(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3, seconds=0.021)
    assert run.done == (4, 4)


def test_single_item_does_not_wait_nor_let_others_wait(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3)
    run.end(4)
    assert run.done == (5, 5)


def test_end_of_the_job_does_not_wait(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3)
    run.end(4, 5, 6, 7)
    assert run.done == (8, 8)
    assert run.job.has_ended
    assert run.job.results() == list(range(ITEMS))


def test_steering_does_not_wait(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3)
    run.job.set_weight(2.0)
    run.end()
    assert run.done == (4, 4)


def test_closing_the_pool_writes_what_waits(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3)
    assert run.done == (2, 2)
    run.close()
    assert run.done == (4, 4)


def test_killed_scheduler_leaves_at_least_as_many_items_done_as_it_said(run: Run) -> None:
    run.end(0, 1)
    run.end(2, 3)
    run.engine.switch.points_left = 0
    run.engine.begin_step()
    run.engine.wait_until_idle()
    done, written = run.done
    assert done == 2 <= written  # its thread may still write what it has
