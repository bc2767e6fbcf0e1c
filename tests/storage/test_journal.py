"""The journal: what it records, and what a later run or another process reads from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hesrpt import Amdahl, InputError, PowerLaw, StateError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.storage.earlier_items import create_key
from hesrpt.storage.journal import KEY_SECONDS, Journal
from hesrpt.storage.journal_entries import (
    NO_POSITION,
    Answer,
    Changes,
    FailedAttempt,
    FinishedItem,
    Holding,
    JobRecord,
    MovedItem,
    Request,
    SubmissionKey,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    created = Journal.create(tmp_path / "state", servers=4, policy="equi")
    yield created
    created.close()


CRASH = ItemFailure(item=1, value="'x.png'", error="the process ended")

#: The keys of three equal items.
KEYS = [create_key(b"fingerprint", 0, position) for position in range(3)]


def create_record(name: str, number: int) -> JobRecord:
    return JobRecord(spec=JobSpec(name=name, weight=2.0), number=number, arrived=1.5)


def test_jobs_and_items_are_read_back(journal: Journal) -> None:
    changes = Changes(
        jobs=[create_record("b", 1), create_record("a", 2)],
        finished_items=[
            FinishedItem(1, KEYS[1], 1, 0.5, 3.0, b"one"),
            FinishedItem(1, KEYS[0], 0, 0.25, 2.0, b"zero"),
        ],
        failed_attempts=[FailedAttempt(1, 2.5, 0, False, CRASH)],
        holdings=[Holding(1.5, 1, 4)],
    )
    assert changes
    journal.write(changes)
    first, second = journal.read_records()
    assert (first.name, first.state, first.spec.weight) == ("b", "waiting", 2.0)
    assert (first.done, first.failures, first.item_seconds) == (2, 1, 0.75)
    assert (second.name, second.done, second.failures) == ("a", 0, 0)
    results = journal.read_results(1, 0, range(2), range(2))
    assert [result.pickled for result in results] == [b"zero", b"one"]
    assert dict(journal.read_done_items(1)) == {KEYS[0]: 0, KEYS[1]: 1}
    assert journal.read_holdings() == [Holding(1.5, 1, 4)]
    assert journal.get_value("policy") == "equi"
    assert journal.get_value("unknown", default=3) == 3


def test_results_of_items_that_have_gone_are_kept_but_not_shown(journal: Journal) -> None:
    items = [FinishedItem(1, KEYS[n], n, 1.0, 2.0, b"%d" % n) for n in range(3)]
    journal.write(Changes(jobs=[create_record("a", 1)], finished_items=items))
    moved = dict(zip(KEYS, [1, NO_POSITION, 0], strict=True))
    journal.write(Changes(moved_items=[MovedItem(1, *each) for each in moved.items()]))
    assert dict(journal.read_done_items(1)) == moved
    assert journal.read_records()[0].done == 2
    (last,), (first,) = (
        journal.read_results(1, 0, range(earlier, earlier + 1), [position])
        for earlier, position in [(2, 0), (0, 1)]
    )
    assert (last.pickled, first.pickled) == (b"2", b"0")


def test_job_to_redo_loses_its_items_and_failures_only(journal: Journal) -> None:
    journal.write(
        Changes(
            jobs=[create_record("a", 1), create_record("b", 2)],
            finished_items=[FinishedItem(n, b"A", 0, 1.0, 2.0, b"") for n in (1, 2)],
            failed_attempts=[FailedAttempt(1, 2.5, 0, True, CRASH)],
        )
    )
    changed = replace(create_record("a", 1), fingerprint=b"new")
    journal.write(Changes(jobs=[changed], jobs_to_redo=[1]))
    first, second = journal.read_records()
    assert (first.done, first.failures, first.fingerprint) == (0, 0, b"new")
    assert journal.read_failures(first) == []
    assert (second.done, second.fingerprint) == (1, b"")


def test_only_items_that_failed_in_the_latest_round_have_failed(journal: Journal) -> None:
    record = create_record("a", 1)
    crash = replace(CRASH, attempts=2, traceback="Traceback …", pickled_exception=b"\x80")
    attempts = [
        FailedAttempt(1, 2.0, 0, True, CRASH),
        FailedAttempt(1, 3.0, 1, False, CRASH),
        FailedAttempt(1, 4.0, 1, True, crash),
    ]
    journal.write(Changes(jobs=[record], failed_attempts=attempts))
    assert journal.read_failures(record) == [CRASH]
    retried = replace(record, spec=replace(record.spec, retried=1))
    assert journal.read_failures(retried) == [crash]
    resumed = replace(record, spec=replace(record.spec, retried=1, resumed=1))
    assert journal.read_failures(resumed) == []


def test_two_jobs_cannot_have_the_same_name(journal: Journal) -> None:
    journal.write(Changes(jobs=[create_record("a", 1)]))
    with pytest.raises(StateError, match=r"state\.db: UNIQUE constraint failed: jobs\.name"):
        journal.write(Changes(jobs=[create_record("a", 2)]))
    assert [record.number for record in journal.read_records()] == [1]


def test_ended_job_keeps_its_measured_size_and_p(journal: Journal) -> None:
    for name, number, speedup in (("a", 1, PowerLaw(0.7)), ("b", 2, Amdahl(0.9))):
        ended = JobRecord(
            spec=JobSpec(name=name),
            number=number,
            arrived=1.5,
            ended=9.0,
            end=JobEnd("items_failed", "item 1: crash"),
            items=5,
            size=12.0,
            speedup=speedup,
        )
        journal.write(Changes(jobs=[ended]))
    first, second = journal.read_records()
    assert (first.state, first.flow_time, first.items, first.size) == ("failed", 7.5, 5, 12.0)
    assert first.speedup == PowerLaw(0.7)
    assert second.speedup is None  # only power laws are kept


def test_resuming_releases_servers_and_cancels_calls(journal: Journal) -> None:
    end = JobEnd("items_failed", "crash")
    failed = JobRecord(spec=JobSpec(name="a"), number=1, arrived=1.5, ended=8.0, end=end)
    calls = JobRecord(spec=JobSpec(name="calls", is_executor=True), number=2, arrived=1.5)
    journal.write(Changes(holdings=[Holding(6.0, 1, 3)], jobs=[failed, calls]))
    journal.close()
    resumed = Journal.resume(journal.directory)
    assert resumed.is_running
    assert resumed.read_holdings()[-1] == Holding(8.0, 1, 0)
    assert [record.state for record in resumed.read_records()] == ["failed", "cancelled"]
    resumed.close()
    assert not resumed.is_running


def test_submissions_wait_until_their_jobs_are_added(journal: Journal) -> None:
    spec = JobSpec(name="more", items=3)
    reader = Journal.read(journal.directory)
    request = Request(kind="submit", spec=spec)
    assert reader.requests.add([request, request]) == ([1, 2], False)
    reader.close()
    first, second = journal.requests.read()
    assert first.spec == spec
    journal.write(Changes(jobs=[create_record("more", 1)], answers=[Answer(1, False, "")]))
    assert journal.requests.read() == [second]


def test_end_of_a_job_is_synchronised_with_the_disk(journal: Journal) -> None:
    def is_synchronised() -> bool:
        (level,) = journal._database._writer.execute("PRAGMA synchronous").fetchone()
        return bool(level >= 2)  # each commit waits for the disk

    record = create_record("a", 1)
    journal.write(Changes(jobs=[record]))
    assert not is_synchronised()
    journal.write(Changes(jobs=[replace(record, ended=3.0)]))
    assert is_synchronised()
    journal.write(Changes(holdings=[Holding(4.0, 1, 0)]))
    assert not is_synchronised()


def test_unknown_job_is_reported(journal: Journal) -> None:
    journal.write(Changes(jobs=[create_record("a", 1), create_record("b", 2)]))
    with pytest.raises(InputError, match=r"there is no job 'c' in .*; jobs are: a, b"):
        journal.get_record("c")


def test_journal_of_another_version_is_refused(journal: Journal) -> None:
    journal.close()
    connection = sqlite3.connect(journal.directory / "state.db")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(StateError, match=r"an earlier version of hesrpt \(format 1\)"):
        Journal.read(journal.directory)


def test_idempotency_keys_are_forgotten_after_a_week(tmp_path: Path) -> None:
    with closing(Journal.create(tmp_path / "s", 1, "hesrpt")) as journal:

        def add(time: float, key: str, *jobs: int) -> None:
            journal.write(Changes(keys=[SubmissionKey(key, "digest", jobs, time)]))

        def read(time: float, key: str) -> list[int] | None:
            found = journal.requests.read_key(key, time)
            return None if found is None else list(found.jobs)

        add(0.0, "x", 1)
        add(1.0, "y", 2, 3)
        assert [read(KEY_SECONDS, key) for key in "xyz"] == [[1], [2, 3], None]
        assert read(KEY_SECONDS + 1, "x") is None
        add(KEY_SECONDS + 1, "x", 4)
        assert (read(KEY_SECONDS + 1, "x"), read(KEY_SECONDS + 1, "y")) == ([4], [2, 3])
        add(2 * KEY_SECONDS, "z", 5)
        kept = journal._database.select("SELECT key FROM submission_keys ORDER BY key")
        assert kept == [("x",), ("z",)]
