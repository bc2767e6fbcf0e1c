"""Jobs submitted to a run: each runs once, whenever it is submitted."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import wait_until

from hesrpt import StateError
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs
from hesrpt.pool.job_handle import JobHandles
from hesrpt.pool.pool import Pool
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler.driver import Lease
from hesrpt.scheduler.requests import (
    ImpossibleJobError,
    find_names,
    request_change,
    submit_jobs,
)
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, Changes, JobRecord, Request


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    path = tmp_path / "jobs.toml"
    path.write_text('[[job]]\nname = "first"\nitems = [1]\ncommand = "echo {job} >> ran"\n')
    (only,) = read_jobs_file(path).jobs
    return only


def read_jobs_that_ran(spec: JobSpec) -> list[str]:
    assert spec.command is not None
    assert spec.command.directory is not None
    return (Path(spec.command.directory) / "ran").read_text().splitlines()


def rename(spec: JobSpec, name: str) -> JobSpec:
    assert spec.command is not None
    return replace(spec, name=name, command=replace(spec.command, job=name))


def test_numbers_of_submissions_never_recur(tmp_path: Path, spec: JobSpec) -> None:
    with closing(Journal.create(tmp_path / "s", 1, "hesrpt")) as journal:
        numbers = []
        for number in range(1, 4):
            journal.requests.add([Request(kind="submit", spec=spec)])
            (submission,) = journal.requests.read()
            numbers.append(submission.number)
            record = JobRecord(spec=rename(spec, f"{number}"), number=number, arrived=0.0)
            journal.write(Changes(jobs=[record], answers=[Answer(submission.number, False, "")]))
        assert numbers == [1, 2, 3]


def test_jobs_submitted_one_after_another_all_run(tmp_path: Path, spec: JobSpec) -> None:
    state = tmp_path / "s"
    names = [f"job {number}" for number in range(60)]
    will_start: list[bool] = []

    def submit() -> None:
        wait_until(lambda: state.is_dir() and (state / "state.db").exists())
        will_start.extend(submit_jobs(state, [rename(spec, name)]).starts_now for name in names)

    submitting = threading.Thread(target=submit)
    submitting.start()
    run_jobs([spec], RunOptions(servers=2, state=state))
    submitting.join()
    in_time = [name for name, is_in_time in zip(names, will_start, strict=True) if is_in_time]
    done = {job.name for job in read_status(state).jobs if job.state == "done"}
    assert done >= {"first", *in_time}
    if len(in_time) < len(names):
        run_jobs([], RunOptions(servers=2, state=state))
    assert {job.state for job in read_status(state).jobs} == {"done"}
    assert sorted(read_jobs_that_ran(spec)) == sorted(["first", *names])


def test_job_submitted_after_all_others_have_ended_still_runs(
    tmp_path: Path, spec: JobSpec
) -> None:
    state = tmp_path / "s"
    waiting = [rename(spec, "third"), rename(spec, "second")]

    def display(pool: Pool) -> None:
        if waiting and all(job.state == "done" for job in pool.jobs):
            # The run has looked for new jobs and found none.
            assert submit_jobs(state, [waiting.pop()]).starts_now

    pool = run_jobs([spec], RunOptions(servers=1, state=state), display)
    assert [(job.name, job.state) for job in pool.jobs] == [
        ("first", "done"),
        ("second", "done"),
        ("third", "done"),
    ]


def test_submitting_says_whether_a_scheduler_will_see_the_job(
    tmp_path: Path, spec: JobSpec
) -> None:
    state = tmp_path / "s"
    with Pool(1, state=state):
        assert submit_jobs(state, [spec]).starts_now  # the pool of a script takes it too
    assert [job.state for job in read_status(state).jobs] == ["done"]
    assert not submit_jobs(state, [rename(spec, "late")]).starts_now
    with closing(Journal.resume(state)) as journal:
        journal.requests.open()
        assert not journal.requests.close()
        (submission,) = journal.requests.read()
        assert journal.requests.close(deferred=[submission.number])
        assert not submit_jobs(state, [rename(spec, "too late")]).starts_now
        journal.requests.open()
        assert submit_jobs(state, [rename(spec, "in time")]).starts_now
    assert not submit_jobs(state, [rename(spec, "later")]).starts_now  # nobody holds the lock
    run_jobs([], RunOptions(servers=1, state=state))
    assert sorted(read_jobs_that_ran(spec)) == ["first", "in time", "late", "later", "too late"]


def test_damaged_submission_is_named(tmp_path: Path, spec: JobSpec) -> None:
    with closing(Journal.create(tmp_path / "s", 1, "hesrpt")) as journal:
        journal.requests.add([Request(kind="submit", spec=spec)] * 2)
        with closing(sqlite3.connect(tmp_path / "s" / "state.db")) as connection, connection:
            connection.execute("UPDATE requests SET spec = '{}' WHERE number = 1")
        with pytest.raises(StateError, match="request number 1 is damaged: KeyError"):
            journal.requests.read()


def test_job_submitted_before_the_pool_is_there_waits_for_it(
    tmp_path: Path, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's thread may look for submitted jobs as soon as it has started."""
    Pool(1, state=tmp_path / "s", engine=FakeEngine(1)).close()
    submit_jobs(tmp_path / "s", [spec])

    class SlowHandles(JobHandles):
        def __init__(self, lease: Lease) -> None:
            time.sleep(0.1)
            super().__init__(lease)

    monkeypatch.setattr("hesrpt.pool.pool.JobHandles", SlowHandles)
    with Pool(1, state=tmp_path / "s", resume=True, engine=FakeEngine(1)) as pool:
        wait_until(lambda: [job.state for job in pool.jobs] == ["done"])


def test_submitted_jobs_that_can_never_start_are_refused_and_not_listed(
    tmp_path: Path, spec: JobSpec
) -> None:
    directory = tmp_path / "s"
    wide = replace(rename(spec, "wide"), min_servers=2)
    dependent = replace(rename(spec, "dependent"), after=("wide",))
    with Pool(1, state=directory) as pool:
        first = submit_jobs(directory, [spec])
        assert find_names(directory, first) == ["first"]  # now it has looked for requests
        submission = submit_jobs(directory, [rename(spec, "with it"), wide, dependent])
        other = submit_jobs(directory, [rename(spec, "second"), rename(spec, "third")])
        with pytest.raises(ImpossibleJobError) as error:
            find_names(directory, submission)
        assert find_names(directory, other) == ["second", "third"]
        wait_until(lambda: len(pool.jobs) == 3)
    assert str(error.value) == (
        "job 'wide': it needs at least 2 servers, but there are only 1; no job was added"
    )
    assert sorted(read_jobs_that_ran(spec)) == ["first", "second", "third"]
    assert [job.name for job in read_status(directory).jobs] == ["first", "second", "third"]


def test_a_job_that_nobody_could_refuse_is_listed_as_failed(tmp_path: Path, spec: JobSpec) -> None:
    directory = tmp_path / "s"
    Pool(1, state=directory).close()
    submit_jobs(directory, [replace(spec, min_servers=2)])
    with Pool(1, state=directory, resume=True) as pool:
        wait_until(lambda: bool(pool.jobs) and pool.jobs[0].state == "failed")
        (retried,) = request_change(directory, "retry", [spec.name])
    error = "it needs at least 2 servers, but there are only 1"
    assert (retried.is_refused, retried.text) == (True, f"can never start: {error}")
    (job,) = read_status(directory).jobs
    assert (job.state, job.error) == ("failed", error)
