"""The journal: what it records, and what a later run or another process reads from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hesrpt import Amdahl, InputError, PowerLaw, StateError
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.journal_entries import (
    Changes,
    FailedAttempt,
    FinishedItem,
    Holding,
    JobRecord,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    created = Journal.create(tmp_path / "state", servers=4, policy="equi")
    yield created
    created.close()


def create_record(name: str, number: int) -> JobRecord:
    return JobRecord(spec=JobSpec(name=name, weight=2.0), number=number, arrived=1.5)


def test_jobs_and_items_are_read_back(journal: Journal) -> None:
    journal.add_jobs([create_record("b", 1), create_record("a", 2)])
    changes = Changes(
        finished_items=[
            FinishedItem("b", 1, 0.5, 3.0, b"one"),
            FinishedItem("b", 0, 0.25, 2.0, b"zero"),
        ],
        failed_attempts=[FailedAttempt("b", 1, 2.5, "item 1: crash")],
        holdings=[Holding(1.5, "b", 4)],
    )
    assert changes
    journal.write(changes)
    first, second = journal.read_records()
    assert (first.name, first.state, first.spec.weight) == ("b", "running", 2.0)
    assert (first.done, first.failures, first.item_seconds) == (2, 1, 0.75)
    assert (second.name, second.done, second.failures) == ("a", 0, 0)
    assert [result.pickled for result in journal.read_results("b")] == [b"zero", b"one"]
    assert sorted(journal.read_done_items("b")) == [0, 1]
    assert journal.read_holdings() == [Holding(1.5, "b", 4)]
    assert journal.get_value("policy") == "equi"
    assert journal.get_value("unknown", default=3) == 3


def test_ended_job_keeps_its_measured_size_and_p(journal: Journal) -> None:
    journal.add_jobs([create_record("a", 1), create_record("b", 2)])
    for name, number, speedup in (("a", 1, PowerLaw(0.7)), ("b", 2, Amdahl(0.9))):
        ended = JobRecord(
            spec=JobSpec(name=name),
            number=number,
            arrived=1.5,
            ended=9.0,
            error="item 1: crash",
            items=5,
            size=12.0,
            speedup=speedup,
        )
        journal.write(Changes(ended_jobs=[ended]))
    first, second = journal.read_records()
    assert (first.state, first.flow_time, first.items, first.size) == ("failed", 7.5, 5, 12.0)
    assert first.speedup == PowerLaw(0.7)
    assert second.speedup is None  # only power laws are kept


def test_resuming_releases_servers_and_retries_failed_jobs(journal: Journal) -> None:
    journal.add_jobs([create_record("a", 1)])
    failed = JobRecord(spec=JobSpec(name="a"), number=1, arrived=1.5, ended=8.0, error="crash")
    journal.write(Changes(holdings=[Holding(6.0, "a", 3)], ended_jobs=[failed]))
    journal.close()
    resumed = Journal.resume(journal.directory)
    assert resumed.is_running
    assert resumed.read_holdings()[-1] == Holding(6.0, "a", 0)
    assert resumed.read_records()[0].ended is None
    resumed.close()
    assert not resumed.is_running


def test_submissions_wait_until_their_jobs_are_added(journal: Journal) -> None:
    spec = JobSpec(name="more", items=3)
    reader = Journal.read(journal.directory)
    reader.submit([spec, spec])
    reader.close()
    first, second = journal.read_submissions()
    assert first.spec == spec
    journal.add_jobs([create_record("more", 1)], submissions=[first.number])
    assert journal.read_submissions() == [second]


def test_unknown_job_is_reported(journal: Journal) -> None:
    journal.add_jobs([create_record("a", 1), create_record("b", 2)])
    with pytest.raises(InputError, match=r"there is no job 'c' in .*; jobs are: a, b"):
        journal.get_record("c")


def test_journal_of_another_version_is_refused(journal: Journal) -> None:
    journal.close()
    connection = sqlite3.connect(journal.directory / "state.db")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(StateError, match=r"another version of hesrpt \(format 1\)"):
        Journal.read(journal.directory)
