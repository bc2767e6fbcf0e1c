"""What status, report and logs say about jobs in every state, by directory and by URL."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.served_queue import OWNER, URL, AppTransport, ServedQueue, serve_queue
from support.shell import call
from support.waiting import wait_until

from hesrpt import Client, Pool
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs
from hesrpt.reports.inspection import read_report
from hesrpt.service.client import ServiceError
from hesrpt.service.job_requests import read_jobs
from hesrpt.storage.journal import RequestTable
from hesrpt.storage.journal_entries import Request

Command = Callable[..., subprocess.CompletedProcess[str]]

#: The jobs of the queue, and their states.
STATES = {
    "quick": "done",
    "reused": "done",  # in an earlier run
    "failed": "failed",
    "after failed": "cancelled",
    "paused": "paused",
    "never started": "cancelled",
    "after paused": "waiting",
    "stopped while waiting": "cancelled",
    "retried": "done",
    "kept": "failed",
    "running": "running",
    "needs memory": "waiting",
    "python": "failed",
    "not in the file": "cancelled",
    "in the file": "done",
    "after stopped": "cancelled",
}

#: Why those that have ended did so.
REASONS = {
    "quick": "done",
    "reused": "done",
    "failed": "items_failed",
    "after failed": "predecessor_failed",
    "never started": "requested",
    "stopped while waiting": "requested",
    "retried": "done",
    "kept": "items_failed",
    "python": "items_failed",
    "not in the file": "removed",
    "in the file": "done",
    "after stopped": "predecessor_cancelled",
}


def forget_servers_held(state: Path, *jobs: str) -> None:
    """Change a journal as if jobs had ended in the step in which they started."""
    with closing(sqlite3.connect(state / "state.db")) as database, database:
        for job in jobs:
            (number,) = database.execute(
                "SELECT number FROM jobs WHERE name = ?", (job,)
            ).fetchone()
            database.execute("DELETE FROM holdings WHERE job = ?", (number,))


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedQueue]:
    """Serve a queue with a job in every state."""
    directory = tmp_path_factory.mktemp("states")
    state = directory / "s"
    with Pool(1, state=state) as pool:
        pool.map(int, ["1", "x", "y"], name="python", on_error="keep", retries=0).wait()
    for name, line in (("not in the file", "false"), ("in the file", "true")):
        text = f'[[job]]\nname = "{name}"\ncommand = "{line}"\nretries = 0\n'
        run_jobs(
            parse_jobs_file(text, "jobs.toml", directory).jobs, RunOptions(servers=1, state=state)
        )
    with serve_queue(state) as served:
        served.add("echo earlier", name="reused")
        served.client.wait(timeout=60)
    with serve_queue(state, resources={"memory": 8e9}) as served:
        served.add("echo quick {item}", name="quick", items=["a", "b"])
        served.add("echo no; exit 3", name="failed", retries=0)
        served.add("true", name="after failed", after=["failed"])
        served.add(f"test -e {directory}/permit", name="retried", retries=0)
        served.client.wait(timeout=60)
        (directory / "permit").touch()
        served.client.retry("retried")
        served.client.wait(timeout=60)
        served.add("sleep 60", name="paused", group="late")
        served.client.pause("paused")
        served.add("true", name="after paused", after=["paused"])
        served.add("true", name="stopped while waiting", after=["paused"])
        served.add("true", name="after stopped", after=["stopped while waiting"])
        served.client.cancel("stopped while waiting")
        served.client.change_group("late", paused=True)
        served.add("true", name="never started", group="late")
        served.client.cancel("never started")
        served.add(
            "test {item} = b || (echo bad; exit 2)",
            name="kept",
            items=["a", "b", "c"],
            keep_going=True,
            on_end=["echo secret; exit 7"],
        )
        served.client.wait("kept", timeout=60)
        served.add("sleep 600 # {item}", name="running", items=[1], resources={"memory": "1 GB"})
        wait_until(lambda: served.client.info("running").state == "running")
        served.add("true", name="needs memory", resources={"memory": "8 GB"})
        wait_until(lambda: bool(served.client.info("needs memory").waits_because))
        forget_servers_held(state, "quick")
        yield served


@pytest.fixture(params=["state", "url"])
def command(
    request: pytest.FixtureRequest,
    queue: ServedQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Run commands about the queue, once by its directory and once by its URL."""

    def connect(url: str, token: str | None) -> Client:
        return Client(url, token, transport=AppTransport(queue.app))

    monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
    by_url, by_state = ["--url", f"{URL}/?token={OWNER}"], ["--state", str(queue.queue.directory)]
    choice = by_url if request.param == "url" else by_state

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return call(name, *choice, *arguments, cwd=tmp_path)

    return run


def test_status_has_every_state(command: Command) -> None:
    done = command("status", "--json")
    jobs = {job["name"]: job for job in json.loads(done.stdout)["jobs"]}
    assert {name: jobs[name]["state"] for name in STATES} == STATES
    for job in jobs.values():
        if job["ended"] is not None:
            keys = ("servers", "planned", "eta", "waits_for", "waits_because")
            assert [job[key] for key in keys] == [0, None, None, [], ""]
            assert job["flow_time"] == job["ended"] - job["arrived"]
        else:
            assert job["flow_time"] is None
    assert jobs["quick"]["progress"] == 1.0
    assert jobs["after paused"]["waits_for"] == ["paused"]
    printed = command("status")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert all(name in printed.stdout for name in STATES)


Views = tuple[dict[str, Any], dict[str, Any]]


def read_both(served: ServedQueue, monkeypatch: pytest.MonkeyPatch) -> Views:
    """Return what status says by URL and by directory, without what may be a moment older."""

    def connect(url: str, token: str | None) -> Client:
        return Client(url, token, transport=AppTransport(served.app))

    def read(*choice: str) -> dict[str, Any]:
        content = json.loads(call("status", *choice, "--json", cwd=served.queue.directory).stdout)
        for job in content["jobs"]:
            for key in ("eta", "elapsed"):
                if job["ended"] is None and job[key] is not None:
                    assert job[key] >= 0
                    job[key] = "known"
        return dict(content)

    monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
    directory = str(served.queue.directory)
    return read("--url", f"{URL}/?token={OWNER}"), read("--state", directory)


def test_status_is_the_same_by_directory_and_by_url(
    queue: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: list[Views] = []

    def agree() -> bool:
        pairs.append(read_both(queue, monkeypatch))
        by_url, by_directory = pairs[-1]
        return by_url == by_directory

    # What is planned may be a second old, and a hook may fail again between the two readings.
    with suppress(AssertionError):  # see below what differs
        wait_until(agree, 60)
    by_url, by_directory = pairs[-1]
    for job, same in zip(by_url["jobs"], by_directory["jobs"], strict=True):
        assert job == same
    assert by_url == by_directory
    jobs = {job["name"]: job for job in by_url["jobs"]}
    assert {name: job["state"] for name, job in jobs.items()} == STATES
    assert {name: job["reason"] for name, job in jobs.items() if job["reason"]} == REASONS
    assert [item["item"] for item in jobs["kept"]["failed_items"]] == [0, 2]
    assert (jobs["kept"]["failed"], jobs["kept"]["failed_attempts"]) == (2, 4)
    assert jobs["failed"]["error"].endswith("exit code 3\nno")  # as it is, in two lines
    assert (jobs["python"]["failed"], jobs["python"]["failed_attempts"]) == (2, 2)
    assert jobs["python"]["failed_items"][0]["traceback"]
    assert jobs["needs memory"]["waits_because"]
    assert [hook["error"] for hook in by_url["failed_hooks"]] == ["exit code 7: secret"]


def test_submitted_job_is_the_same_by_directory_and_by_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_queue(tmp_path / "s") as served:
        served.client.wait(served.add("true", name="again"), timeout=60)
        specs = read_jobs({"command": "true {item}", "items": ["a"], "name": "again"}, ())
        request = Request(kind="submit", number=99, spec=specs[0])

        def read(table: RequestTable) -> list[Request]:
            is_scheduler = threading.current_thread().name == "hesrpt-driver"
            return [] if is_scheduler else [request]

        monkeypatch.setattr(RequestTable, "read", read)
        by_url, by_directory = read_both(served, monkeypatch)
    assert by_url == by_directory
    assert by_url["submitted"] == ["again (2)"]
    assert [(job["name"], job["state"], job["items"]) for job in by_url["jobs"]] == [
        ("again", "done", 1),
        ("again (2)", "submitted", 1),
    ]


def test_report_covers_all_jobs_that_have_ended(command: Command) -> None:
    ended = {name for name, state in STATES.items() if state in ("done", "failed", "cancelled")}
    printed = command("report")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert all(name in printed.stdout for name in ended)
    done = command("report", "--json")
    jobs = json.loads(done.stdout)["jobs"]
    assert {job["job"] for job in jobs} == {job["name"] for job in jobs} == ended
    assert set(jobs[0]) >= {"arrival", "completion_time", "flow_time", "size", "slowdown", "reason"}


def test_logs_of_every_state(command: Command) -> None:
    printed = {"reused": "earlier\n", "quick": "quick a\n", "failed": "no\n", "kept": "bad\n"}
    printed["python"] = "ValueError"
    for name in STATES:
        done = command("logs", name)
        nothing = "" if name in printed else f"hesrpt: job {name!r} has printed nothing\n"
        assert (done.returncode, done.stderr) == (0, nothing)
        assert printed.get(name, "") in done.stdout


def test_refused_job_is_in_no_list(queue: ServedQueue, command: Command) -> None:
    with pytest.raises(ServiceError, match="'wide'"):
        queue.client.submit([{"name": "wide", "command": "true", "min_servers": 99}])
    jobs = json.loads(command("status", "--json").stdout)["jobs"]
    assert "wide" not in [job["name"] for job in jobs]


def test_report_compares_jobs_that_ended_in_the_step_in_which_they_started(tmp_path: Path) -> None:
    state = tmp_path / "s"
    with Pool(servers=1, policy="fifo", state=state) as pool:
        pool.map(abs, range(5), name="short").wait()
        pool.map(abs, range(5), name="long").wait()
    forget_servers_held(state, "short")
    held = read_report(state).history.trace_servers(1)
    assert held.count_server_seconds() == 0.0
    for arguments in (
        ["report", "s"],
        ["report", "s", "--json"],
        ["report", "s", "--csv", "r.csv"],
    ):
        done = call(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "short" in done.stdout


def test_report_on_jobs_that_never_held_a_server(tmp_path: Path) -> None:
    with Pool(servers=1, state=tmp_path / "s") as pool:
        first = pool.map(time.sleep, [3600], name="first")
        pool.map(abs, range(5), name="second", after=first)
        pool.map(abs, [], name="empty").wait()
        call("cancel", "s", "second", "first", cwd=tmp_path)
    for arguments in ([], ["--json"], ["--csv", "r.csv", "--plot", "r.svg"]):
        done = call("report", "s", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "second" in done.stdout
        assert "empty" in done.stdout


def test_job_that_ended_a_moment_ago_has_no_plan(tmp_path: Path) -> None:
    """The progress that the scheduler wrote a second ago may name it."""
    with serve_queue(tmp_path / "s") as served:
        served.add("true", name="first")
        served.client.wait(timeout=60)

        def read() -> dict[str, Any]:
            done = call("status", "--state", "s", "--json", cwd=tmp_path)
            (job,) = json.loads(done.stdout)["jobs"]
            return dict(job)

        wait_until(lambda: read()["state"] == "done")
        assert (read()["planned"], read()["eta"]) == (None, None)


def test_a_client_cannot_retry_the_job_of_a_script(queue: ServedQueue) -> None:
    """Only its script has the function."""
    text = "calls a Python function; run its script again to retry it"
    with pytest.raises(ServiceError, match=f"job 'python' {text}"):
        queue.client.retry("python")
    (result,) = queue.client.change("retry", ["python"])
    assert (result["refused"], result["text"]) == (True, text)
    with pytest.raises(ServiceError, match="job 'in the file' has no failed items"):
        queue.client.retry("in the file")
