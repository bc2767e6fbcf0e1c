"""A journal that another process has locked: the run waits for it, and can still be stopped."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler.requests import submit_jobs
from hesrpt.storage import journal_database


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_database, "_ATTEMPT_SECONDS", 0.05)
    monkeypatch.setattr(journal_database, "_WARNING_SECONDS", 0.2)


@contextmanager
def lock(state: Path) -> Iterator[None]:
    with closing(sqlite3.connect(state / "state.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("COMMIT")


def test_run_waits_for_a_locked_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tmp_path / "s"
    with Pool(state=state, engine=InlineEngine()) as pool:
        with lock(state):
            job = pool.map(abs, [-1, -2], name="job")
            wait_until(lambda: caplog.text.count("another process has locked it for") >= 2)
            # Other threads go on meanwhile.
            assert not job.wait(timeout=0.01)
            assert pool.snapshot().held == {}
            assert (job.state, read_status(state).jobs) == ("waiting", [])
        assert job.results() == [1, 2]
    assert f"hesrpt: {state}/state.db: another process has locked it for" in caplog.text


def test_pool_with_a_locked_journal_can_be_closed(tmp_path: Path) -> None:
    state = tmp_path / "s"
    with Pool(state=state, engine=InlineEngine()) as pool:
        assert pool.map(abs, [-1], name="first").results() == [1]
        with lock(state):
            job = pool.map(abs, [-2], name="second")
            pool.close()  # does not wait for the lock
            assert job.state == "cancelled"
    with Pool(state=state, resume=True, engine=InlineEngine()) as pool:
        assert pool.map(abs, [-1], name="first").results() == [1]
        assert pool.map(abs, [-2], name="second").results() == [2]


def test_submitting_waits_for_a_locked_journal(tmp_path: Path) -> None:
    state, jobs = tmp_path / "s", tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "a"\nitems = [1]\ncommand = "true"\n')
    Pool(state=state, engine=InlineEngine()).close()
    submitting = threading.Thread(target=submit_jobs, args=(state, read_jobs_file(jobs).jobs))
    with lock(state):
        submitting.start()
        submitting.join(0.3)
        assert submitting.is_alive()
    submitting.join(60)
    with closing(sqlite3.connect(state / "state.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM requests").fetchall() == [(1,)]


def test_run_with_a_locked_journal_can_be_interrupted(tmp_path: Path) -> None:
    state, jobs = tmp_path / "s", tmp_path / "jobs.toml"
    jobs.write_text(
        '[[job]]\nname = "a"\nitems = {range = [0, 3]}\n'
        'command = "echo {item} >> started; while [ ! -e go ]; do sleep 0.05; done"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "hesrpt", "run", str(jobs), "--state", str(state), "--servers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "started").exists)
    with lock(state):
        (tmp_path / "go").touch()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # the outcome of the first item cannot be written
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "hesrpt: stopped; continue with" in err
    assert "Traceback" not in err
    resume = [sys.executable, "-m", "hesrpt", "run", "--state", str(state)]
    subprocess.run(resume, capture_output=True, timeout=60, check=True)
    assert [(job.state, job.done) for job in read_status(state).jobs] == [("done", 3)]
