"""When the scheduler writes to the journal, and when other threads see what has happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.stepping import KillSwitch, SteppedEngine, finish

from hesrpt import Pool
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Request

WRITE_SECONDS = 10.0  # more than the time between two looks for requests


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """Return a pool that writes less often, and whose driver waits for the test."""
    engine = SteppedEngine(1, KillSwitch())
    pool = Pool(engine=engine, state=tmp_path / "s")
    pool.driver.write_seconds = WRITE_SECONDS
    yield pool
    engine.release()
    pool.close()


@pytest.fixture
def engine(pool: Pool) -> SteppedEngine:
    assert isinstance(pool.driver.engine, SteppedEngine)
    return pool.driver.engine


def create_job(items: int, name: str = "c") -> LiveJob:
    values = tuple(map(str, range(items)))
    template = CommandTemplate(job=name, command=("true", "{item}"), items=values)
    return LiveJob.from_command(JobSpec(name=name, items=items, command=template))


def end(engine: SteppedEngine, item: int, seconds: float = 0.01) -> None:
    engine.step([finish(engine.running["c", item], 0)], seconds)


def count_written(state: Path) -> int:
    with closing(Journal.read(state)) as journal:
        return sum(1 for _ in journal.read_done_items(1))


def test_items_start_at_once_but_are_written_and_shown_together(
    pool: Pool, engine: SteppedEngine, tmp_path: Path
) -> None:
    (job,) = pool.add_jobs([create_job(4)])
    engine.step()  # the arrival is written
    end(engine, 0)
    end(engine, 1)
    assert list(engine.running) == [("c", 2)]
    assert (count_written(tmp_path / "s"), job.done) == (0, 0)
    engine.step(seconds=WRITE_SECONDS)
    assert (count_written(tmp_path / "s"), job.done) == (2, 2)
    end(engine, 2, seconds=WRITE_SECONDS)  # the last write was long ago
    assert (count_written(tmp_path / "s"), job.done) == (3, 3)
    end(engine, 3)
    assert (engine.running, job.has_ended) == ({}, False)
    engine.step(seconds=WRITE_SECONDS)
    assert (job.state, count_written(tmp_path / "s")) == ("done", 4)


def test_arrivals_and_answers_are_written_at_once(
    pool: Pool, engine: SteppedEngine, tmp_path: Path
) -> None:
    (job,) = pool.add_jobs([create_job(4)])
    engine.step()
    end(engine, 0)
    pool.add_jobs([create_job(1, "late")])
    engine.step()
    with closing(Journal.read(tmp_path / "s")) as journal:
        assert [record.name for record in journal.read_records()] == ["c", "late"]
    assert job.done == 1  # what was held back is written with it
    end(engine, 1)
    with closing(Journal.read(tmp_path / "s")) as journal:
        (request,), _ = journal.requests.add([Request(kind="weight", job=1, weight=2.0)])
        assert job.done == 1
        engine.step(seconds=1.0)
        assert job.done == 2
        assert journal.requests.read_answers([request])[request].text == "now has weight 2"


def test_closing_writes_what_was_held_back(
    pool: Pool, engine: SteppedEngine, tmp_path: Path
) -> None:
    pool.add_jobs([create_job(4)])
    engine.step()
    end(engine, 0)
    assert count_written(tmp_path / "s") == 0
    engine.release()
    pool.close()
    assert count_written(tmp_path / "s") == 1
